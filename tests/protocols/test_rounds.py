"""Several rounds in one launch, where a fast rank may be a round ahead of a slow one."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.errors import CapacityError, ConfigError
from xccl_emu.kernels.moe import COMBINE, DISPATCH, EXPERT
from xccl_emu.machine.pod import ORDERS, POLICIES, Pod
from xccl_emu.protocols.expert_parallel import ExpertParallel
from xccl_emu.protocols.layout import EpConfig
from xccl_emu.protocols.rounds import Rounds, run_rounds

from .ep_support import Batch, Case, assert_same_bits, cases, check_outputs, check_received, check_round

CONFIG = EpConfig(n_ranks=3, local_experts=2, hidden=32, top_k=3, tokens_max=3, cores=2)
CASE = Case(CONFIG, "relaxed", "random", seed=1, lengths=((3, 0, 1), (0, 2, 3), (1, 3, 0)))


def rounds_of(group: ExpertParallel, batches: list[Batch], parts: int = DISPATCH | EXPERT | COMBINE) -> Rounds:
    """The batches as rounds of one launch."""
    return Rounds(group, [b.tokens for b in batches], [b.topk for b in batches], [b.weights for b in batches], parts)


def check_rounds(rounds: Rounds, batches: list[Batch]) -> None:
    """Compare what each round left with the oracle."""
    config = rounds.config
    for i, batch in enumerate(batches):
        for rank in range(config.n_ranks):
            check_received(config, batch, rank, rounds.received(i, rank))
        check_outputs(config, batch, [rounds.output(i, rank) for rank in range(config.n_ranks)])


@settings(max_examples=100)
@given(cases(ranks=st.integers(2, 4), rounds=st.integers(1, 4)))
def test_rounds_in_one_launch_give_what_the_oracle_gives(case: Case) -> None:
    """All that dispatch and combine give in each round, for any small group, order and policy."""
    group, batches = case.group(), case.batches()
    rounds = rounds_of(group, batches)
    rounds.run()
    check_rounds(rounds, batches)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("path", ["mtu", "dma"])
@pytest.mark.parametrize("n_ranks", [2, 3, 4])
def test_many_schedules(order: str, path: str, n_ranks: int) -> None:
    """Three rounds, ranks without tokens, ten seeds of the random policy for each order and path."""
    lengths = tuple(tuple((2 * i + rank) % 3 for rank in range(n_ranks)) for i in range(3))
    config = replace(CONFIG, n_ranks=n_ranks, path=path)
    for seed in range(10):
        case = Case(config, order, "random", seed, lengths)
        group, batches = case.group(), case.batches()
        rounds = rounds_of(group, batches)
        rounds.run()
        check_rounds(rounds, batches)


@pytest.mark.boundscheck
@pytest.mark.parametrize("policy", POLICIES)
def test_single_calls_and_rounds_in_one_launch_mix(policy: str) -> None:
    """The counts of rounds carry over from calls to launches of rounds and back."""
    case = replace(CASE, policy=policy)
    group, batches = case.group(), case.batches()
    check_round(group, batches[0])
    for outputs, batch in zip(_run(group, batches), batches, strict=True):
        check_outputs(CONFIG, batch, outputs)
    check_round(group, batches[1])
    for outputs, batch in zip(_run(group, batches[::-1]), batches[::-1], strict=True):
        check_outputs(CONFIG, batch, outputs)
    assert group.stats["rounds"].actions > 0


def _run(group: ExpertParallel, batches: list[Batch]) -> list[list[np.ndarray]]:
    return run_rounds(group, [b.tokens for b in batches], [b.topk for b in batches], [b.weights for b in batches])


@pytest.mark.nojit
def test_two_rounds_without_the_jit() -> None:
    """The same kernel in plain Python gives what the oracle gives."""
    config = EpConfig(n_ranks=2, hidden=32, top_k=1, tokens_max=1, quantized=False)
    case = Case(config, "relaxed", "random", seed=3, lengths=((1, 1), (0, 1)))
    rounds = rounds_of(case.group(), case.batches())
    rounds.run()
    check_rounds(rounds, case.batches())


def test_memory_is_the_same_under_every_order_and_policy() -> None:
    """One digest of all memory after three rounds in one launch."""
    digests = set()
    for order in ORDERS:
        for policy in POLICIES:
            group = CASE.group_in(order, policy, 5)
            rounds_of(group, CASE.batches()).run()
            digests.add(group.pod.digest())
    assert len(digests) == 1


@pytest.mark.parametrize("order", ORDERS)
def test_phases_can_be_launched_apart(order: str) -> None:
    """All dispatches in one launch, then all experts, then all combines: acknowledgements keep their blocks apart."""
    batches = CASE.batches()
    group = CASE.group_in(order, "random", 2)
    mark = group.pod.mark_app()
    for parts in (DISPATCH, EXPERT, COMBINE):
        group.pod.release_app(mark)  # so that the next launch finds what the one before left
        rounds = rounds_of(group, batches, parts)
        rounds.run()
    check_rounds(rounds, batches)
    check_round(group, batches[0])


def test_the_expert_of_a_round_is_that_of_the_single_call() -> None:
    """The expert's outputs are the same bits as after `run_dummy`."""
    batches = CASE.batches()
    rounds = rounds_of(CASE.group(), batches)
    rounds.run()
    group = CASE.group()
    for i, batch in enumerate(batches):
        check_round(group, batch)
        for rank in range(CONFIG.n_ranks):
            assert_same_bits("expert output", rounds.expert_output(i, rank), group.expert_output(rank))


def test_app_memory_is_given_back() -> None:
    """`run_rounds` leaves as much of the app areas free as it found, also when it refuses."""
    group, batches = CASE.group(), CASE.batches()
    mark = group.pod.mark_app()
    _run(group, batches)
    assert group.pod.mark_app() == mark
    with pytest.raises(CapacityError, match="do not fit the app data area"):
        _run(group, batches * 9)
    assert group.pod.mark_app() == mark
    check_round(group, batches[0])


def test_refusals_name_round_rank_and_value() -> None:
    """What does not fit is refused before anything moves."""
    group, batches = CASE.group(), CASE.batches()
    tokens, topk, weights = ([getattr(b, name) for b in batches] for name in ("tokens", "topk", "weights"))
    before = group.pod.digest()
    with pytest.raises(ConfigError, match="tokens: no rounds"):
        Rounds(group, [], [], [])
    with pytest.raises(ConfigError, match="topk: 2 rounds, tokens has 3"):
        Rounds(group, tokens, topk[:2], weights)
    with pytest.raises(ConfigError, match="weights of round 1: 2 arrays for 3 ranks"):
        Rounds(group, tokens, topk, [weights[0], weights[1][:2], weights[2]])
    with pytest.raises(ConfigError, match=r"weights of round 0, rank 0: \[1, 3\] float32, must be \[3, 3\] float32"):
        Rounds(group, tokens, topk, [[w[:1] for w in per_rank] for per_rank in weights])
    with pytest.raises(ConfigError, match="topk of rank 0, token 0: 99 must be -1 or a slot below 6"):
        Rounds(group, tokens, [[np.full_like(t, 99) for t in per_rank] for per_rank in topk], weights)
    with pytest.raises(ConfigError, match="parts=8: must be a sum of"):
        Rounds(group, tokens, topk, weights, parts=8)
    assert group.pod.digest() == before


def test_a_pod_with_few_registers_is_refused() -> None:
    """The kernel of whole rounds needs more registers than those of the phases, and the message says how many."""
    spec = CASE.group().pod.spec.with_(registers=150)
    group, batches = ExpertParallel(Pod(spec), CONFIG), CASE.batches()
    check_round(group, batches[0])
    with pytest.raises(ConfigError, match=r"registers=150: rounds in one launch need a pod with \d+$"):
        rounds_of(group, batches)
