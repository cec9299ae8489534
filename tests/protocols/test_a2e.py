"""A2E and E2A on small pods, with trampolines and by plain pull, bit for bit against the oracle."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu import oracle
from xccl_emu.kernels.experts.counts import INDEX_BYTES
from xccl_emu.lang.requests import MTU_OUT
from xccl_emu.machine.pod import ORDERS, POLICIES
from xccl_emu.protocols.a2e.case import A2ECase
from xccl_emu.protocols.a2e.data import in_turns
from xccl_emu.protocols.a2e.layout import A2ELayout
from xccl_emu.protocols.a2e.pull import PullLayout
from xccl_emu.protocols.a2e.session import A2E, A2EConfig, Calls
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.run import VirtualTime

from .a2e_support import Case, cases, follow
from .ep_support import assert_same_bits

SMALL = A2EConfig(2, 2, 3, hidden=64, top_k=2, tokens_max=3)
CASE = Case(SMALL, "relaxed", "random", seed=3, lengths=((3, 0), (1, 2), (2, 3), (0, 0), (3, 3)))


@settings(max_examples=100)
@given(cases())
def test_calls_give_what_the_oracle_gives(case: Case) -> None:
    """Any small group and any number of calls, none too: outputs and rows are the oracle's, and all kernels return."""
    follow(case)


@settings(max_examples=30)
@given(cases(pull=True))
def test_plain_pull_gives_the_same(case: Case) -> None:
    """Without trampolines too, outputs and received rows are the oracle's."""
    follow(case)


@pytest.mark.boundscheck
@settings(max_examples=10)
@given(st.one_of(cases(calls=st.integers(1, 3)), cases(pull=True, calls=st.integers(1, 2))))
def test_calls_stay_in_bounds(case: Case) -> None:
    """No index of the machine's arrays leaves them (the run with bounds checks is what can fail here)."""
    follow(case)


@pytest.mark.nojit
@pytest.mark.parametrize("path", ["mtu", "urma"])
@pytest.mark.parametrize("pull", [False, True])
def test_small_calls_without_the_jit(path: str, pull: bool) -> None:
    """The same kernels and machine in plain Python give what the oracle gives."""
    config = A2EConfig(1, 1, 2, hidden=32, top_k=2, tokens_max=2, path=path, depth=1)
    follow(Case(config, "relaxed", "random", seed=5, lengths=((2,), (1,)), pull=pull))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("path", ["mtu", "urma"])
@pytest.mark.parametrize("pull", [False, True])
def test_every_way_of_running(order: str, policy: str, path: str, pull: bool) -> None:
    """Each order, policy and path is run at least once, whatever Hypothesis draws."""
    config = replace(SMALL, path=path, cores=2, a2e_cores=2, compute_cores=2, e2a_cores=2, shared=True, local_experts=2)
    case = replace(CASE, config=config, order=order, policy=policy)
    follow(case.pulled() if pull else case)


@settings(max_examples=8)
@given(cases(calls=st.integers(1, 4)))
def test_memory_is_the_same_in_every_order_under_every_policy(case: Case) -> None:
    """All memory but the cores' data buffers ends the same for all orders, policies and two seeds."""
    digests = set()
    for order in ORDERS:
        for policy in POLICIES:
            group = case.group(order=order, policy=policy, seed=case.seed + 1)
            Calls(group, case.calls()).launch()
            group.run_launched()
            digests.add(group.pod.digest())
    assert len(digests) == 1


@pytest.mark.parametrize("path", ["mtu", "urma"])
@pytest.mark.parametrize("pull", [False, True])
@pytest.mark.parametrize("cores", [1, 3])
def test_a_large_batch_streams_its_choices(cores: int, pull: bool, path: str) -> None:
    """Choices of 300 tokens go through data buffers with room for a part of them, many times, and no bit differs."""
    config = A2EConfig(
        1, 2, 3, local_experts=2, hidden=32, top_k=3, tokens_max=300, path=path, depth=1, cores=cores, a2e_cores=cores,
        e2a_cores=cores, n_trampolines=1, a2e_parts=2, e2a_parts=2, counting="scalar", listed=17,
    )  # fmt: skip
    layout = PullLayout if pull else A2ELayout
    assert layout.ub_bytes(config) < 300 * INDEX_BYTES / 2
    follow(Case(config, "relaxed", "random", seed=8, lengths=((300, 41), (7, 290)), pull=pull))


@settings(max_examples=20)
@given(cases(calls=st.integers(1, 4)), st.integers(1, 4))
def test_a_batch_goes_through_smaller_buffers_in_several_calls(case: Case, at_once: int) -> None:
    """In one launch, each part in a turn of its domain: put together, the outputs are those of the whole batch."""
    whole, c = case.calls(), replace(case.config, tokens_max=at_once)
    outputs = replace(case, config=c).group().run(in_turns(whole, at_once, c.turns))
    parts = max(1, *(-(-n // at_once) for lengths in case.lengths for n in lengths))
    for number, call in enumerate(whole):
        cycle, turn = divmod(number, c.turns)
        mine = [outputs[(cycle * parts + part) * c.turns + turn] for part in range(parts)]
        sent = oracle.dispatch(call.tokens, call.topk, c.n_experts, c.local_experts, c.quantized, c.quantizer)
        for i in range(c.n_attention):
            summed = sent.combined_for(i, call.weights[i], shared=c.shared)
            assert_same_bits(f"call {number}", np.concatenate([part[i] for part in mine]), summed)


@pytest.mark.parametrize("first", [CASE, CASE.pulled()])
def test_launches_may_follow_each_other(first: Case) -> None:
    """A second launch on the same pod, and a third without calls, find nothing left behind by those before."""
    group = first.group()
    for case in (first, replace(first, seed=4, lengths=((1, 3),)), replace(first, lengths=())):
        follow(case, group)


def test_run_returns_copies_and_gives_the_buffers_back() -> None:
    """What `run` returns stays as it is when the next run uses the same memory."""
    group, other = CASE.group(), replace(CASE, seed=8)
    before = group.pod.mark_app()
    outputs = group.run(CASE.calls())
    kept = [[out.copy() for out in call] for call in outputs]
    group.run(other.calls())
    assert group.pod.mark_app() == before
    for call, copies in zip(outputs, kept, strict=True):
        for out, copy in zip(call, copies, strict=True):
            assert_same_bits("output", out, copy)


def test_two_groups_share_a_pod() -> None:
    """A group behind another in the managed and metadata areas of the same dies leaves it alone."""
    large = replace(CASE, config=replace(SMALL, tokens_max=4 * SMALL.tokens_max, depth=8, local_experts=8))
    one = A2E(large.group().pod, SMALL)
    two = A2E(one.pod, SMALL, managed_offset=one.layout.managed_end, field_offset=one.layout.meta_end)
    for group in (one, two, one):
        follow(CASE, group)


def test_each_phase_is_announced_once_to_each_die() -> None:
    """An attention die writes one flag a call, to its trampoline; by plain pull, one to each expert die and back."""
    config = A2EConfig(1, 2, 3, hidden=32, top_k=1, tokens_max=1, depth=1)
    flags = {}
    for pull in (False, True):
        case = Case(config, "sc", "round-robin", seed=1, lengths=((1, 1),), masked=0.0, pull=pull)
        calls = follow(case)
        puts = calls.owner.stats[calls.owner.name].instructions
        flags[pull] = puts["put"] + puts.get("add", 0)
    # Trampolines, a call: 2 announcements, 2 credits, 2 x 3 counts, 3 x 2 acks, 2 arrivals (of a row each), 2 back, and
    # inside of the dies 2 numbers of tokens, 3 x 3 handed over, 2 relayed; the end: 2, 2 x 3, and 3 x 2 handed over.
    assert flags[False] == (2 + 2 + 6 + 6 + 2 + 2) + (2 + 9 + 2) + (2 + 6 + 6)
    # Pull: counts, messages pulled, rows offered, rows pulled, each from every die to every opposite one.
    assert flags[True] == 4 * 2 * 3


@pytest.mark.parametrize(("parts", "overlap"), [(1, False), (4, True)])
def test_a_trampoline_forwards_a_part_while_the_next_arrives(parts: int, overlap: bool) -> None:
    """In parts, the first row leaves the trampoline for home before the last has come to it; in one part, after."""
    case = A2ECase(attention=1, experts=3, tokens=16, top_k=2, granules=64, rounds=1, cores=2, e2a_parts=parts)
    pod = case.build("sc").pod
    pod.policy = policy = VirtualTime(log=True)
    pod.run()
    timing = policy.timing
    writes = timing.records[timing.records[:, tl.RECORD_ENGINE] == MTU_OUT]
    writes = writes[writes[:, tl.RECORD_NBYTES] > 32]
    steps = np.array([0 if site is None else site.step for site in map(timing.site, writes)])
    dies = writes[:, tl.RECORD_CORE] // timing.cores_per_die
    arrived = writes[(steps == 5) & (dies > 0), tl.RECORD_VISIBLE].max()
    left = writes[(steps == 6) & (dies == 0), tl.RECORD_START].min()
    assert (left < arrived) == overlap
