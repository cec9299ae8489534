"""What A2E and E2A refuse, that a refused call changes nothing, and the way back from a failed run."""

from dataclasses import replace
from typing import Any

import pytest

from xccl_emu.base.errors import AccessError, CapacityError, ConfigError, DeadlockError
from xccl_emu.kernels.experts.dummy import dummy_expert
from xccl_emu.kernels.experts.parameters import Buffers
from xccl_emu.machine.pod import Pod
from xccl_emu.protocols.a2e.pull import A2EPull
from xccl_emu.protocols.a2e.session import A2E, A2EConfig, Calls

from .a2e_support import Case, follow
from .ep_support import refused
from .refused_batches import EACH, Change, changed

CONFIG = A2EConfig(2, 2, 3, local_experts=2, hidden=64, top_k=2, tokens_max=4, cores=2)
CASE = Case(CONFIG, "relaxed", "random", seed=9, lengths=((3, 0), (1, 4), (2, 2)))


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"n_experts": 4}, {}, "8 dies from die 0: the pod has 7 dies"),
        ({}, {"first_die": 1}, "7 dies from die 1: the pod has 7 dies"),
        ({"compute_cores": 2}, {}, "cores=2, 4 of an expert die: a die has 3"),
        ({"cores": 4}, {}, "cores=4, 3 of an expert die: a die has 3"),
        ({}, {"managed_offset": 16}, "managed_offset=16: must be a multiple of 32 and not negative"),
        ({}, {"field_offset": -32}, "field_offset=-32: must be a multiple of 32 and not negative"),
    ],
)
def test_a_group_that_does_not_fit_the_pod_is_refused(
    changes: dict[str, Any], options: dict[str, int], message: str
) -> None:
    """The pod's dies and cores are named, and offsets that are none."""
    pod = CASE.group().pod
    with pytest.raises(ConfigError) as caught:
        A2E(pod, replace(CONFIG, **changes), **options)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("area", "field"),
    [("managed data area", "managed_bytes"), ("metadata area", "meta_bytes"), ("data buffer", "ub_bytes")],
)
@pytest.mark.parametrize(("kind", "case"), [(A2E, CASE), (A2EPull, CASE.pulled())])
def test_an_area_that_is_too_small_is_named(area: str, field: str, kind: type, case: Case) -> None:
    """One granule less than is needed is refused with both sizes; exactly what is needed is enough (`Case.group`)."""
    fits = case.group().pod.spec
    smaller = fits.with_(**{field: getattr(fits, field) - 32})
    with pytest.raises(CapacityError, match=rf"^{area}.*: needs \d+ bytes, has {getattr(smaller, field)};"):
        kind(Pod(smaller), case.config)


@pytest.mark.parametrize("changes", [{"n_domains": 2}, {"depth": 2}, {"microbatches": 2}])
def test_pulling_takes_one_domain_and_one_call(changes: dict[str, int]) -> None:
    """More than one domain or microbatch, or memory for more than one call, is refused."""
    with pytest.raises(ConfigError, match="=2: pulling, it must be 1"):
        A2EPull(CASE.group().pod, replace(CONFIG, **{"n_domains": 1, "depth": 1, **changes}))


@EACH
def test_a_bad_call_is_refused_before_anything_changes(part: str, change: Change, message: str) -> None:
    """Call, die, token and value are named; memory is as it was, nothing is allocated, and the group goes on."""
    group, calls = CASE.group(), CASE.calls()
    calls[1] = calls[1]._replace(**{part: changed(getattr(calls[1], part), 1, change)})
    refused(group.pod, lambda: group.run(calls), f"^call 1: {part} of rank 1{message}")
    follow(CASE, group)


def test_rows_of_an_older_call_are_refused() -> None:
    """Only the last ``depth`` calls have their rows on the expert dies."""
    calls = follow(CASE)
    with pytest.raises(ConfigError, match="call=0: of 3 calls the last 2 are kept"):
        calls.received(0, 1)
    with pytest.raises(ConfigError, match="call=3: of 3 calls"):
        calls.received(3, 1)


def test_a_taken_core_is_refused_before_anything_is_launched() -> None:
    """A core that somebody else has launched on is named by its die, and nothing of the calls is launched."""
    group = CASE.group()
    shape = group.config.group(group.config.n_experts, 1, group.pod.spec.die_bytes)
    args = {"core": 0, "c": shape, "b": Buffers()}
    group.pod.launch(dummy_expert, 4, [1], args, [])
    refused(group.pod, lambda: group.run(CASE.calls()), "cores=2: on die 4 one of them is taken by another launch")


def test_after_a_failed_run_reset_brings_the_group_back() -> None:
    """A run that fails, here for want of a permission, must be reset; then calls are right again."""
    group = CASE.group()
    Calls(group, CASE.calls()).launch()
    core = group.pod.active_cores()[0]
    group.pod.state[group.pod.core_base(core) + 8] = 0  # its windows
    with pytest.raises(AccessError):
        group.run_launched()
    with pytest.raises(ConfigError, match="call reset"):
        group.run(CASE.calls())
    group.reset()
    follow(CASE, group)


def test_a_later_group_takes_over() -> None:
    """The earlier of two groups in the same part of the areas is refused."""
    first = CASE.group()
    A2E(first.pod, CONFIG)
    with pytest.raises(ConfigError, match="made later has taken its part"):
        first.run(CASE.calls())


@pytest.mark.parametrize("sync", ["tokens in", "counts of messages", "rows gathered", "rows computed", "call returned"])
def test_without_an_announcement_all_wait(sync: str) -> None:
    """The streams never go on by themselves: without the flag between two of them the run ends in a deadlock."""
    group = CASE.group(without=[sync])
    Calls(group, CASE.calls()).launch()
    with pytest.raises(DeadlockError):
        group.run_launched()
