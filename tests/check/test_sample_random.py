"""Random programs: what is rightly synchronized passes, and what passes has one outcome only."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.machine.support import small
from tests.machine.test_random_kernels import Step, launched, programs, start_and_end
from xccl_emu.check.sampling.sample import PORTFOLIO, sample
from xccl_emu.check.trial import Expected, Trial
from xccl_emu.guards.campaign.programs import DATA, WORDS_A_DIE, Small
from xccl_emu.machine.explore import Explored, explore

from .monitor_support import ORDERS


def _moving(start: np.ndarray, end: np.ndarray, steps: list[Step], order: str) -> Trial:
    """The steps, and the blocks as they must be in the end."""
    pod, filled = launched(start, steps, order)
    everybody = tuple(pod.active_cores())  # a die's core may be done before others write there
    expected = [
        Expected(f"block {each.die}", each.address, block.tobytes(), everybody)
        for each, block in zip(filled, end, strict=False)
    ]
    return Trial(pod, tuple(expected), tuple(filled))


@settings(max_examples=12)
@given(programs(3), st.integers(0, 2**32))
def test_transfers_handed_on_by_a_flag_pass(drawn: tuple[int, list[Step]], seed: int) -> None:
    """Any sequence of transfers, awaited and handed on, gives no alarm and the bytes of NumPy; in every order that
    keeps writes to one address, since these transfers overlap without a fence."""
    start, end = start_and_end(*drawn, seed)
    for order in ORDERS[:3]:
        result = sample(_moving(start, end, drawn[1], order), seed=seed, schedules=2 * len(PORTFOLIO))
        assert result.violation is None, (order, result.violation)


DATA_WORDS = {DATA: 0, DATA | 4: 0}  # in metadata two stores need no order
OPS = {
    "store": "store m0.{place} {value}", "load": "load m0.{place}", "quiet": "quiet", "flag": "store 0.{place} 1",
    "wait": "ge 0.{place} 1", "pull": "in m0.{place} 0; set 1 0; wait 1 0; ub_load 0", "put": "put m0.{place} {value}",
    "count": "add 0.{place} 1",
}  # fmt: skip
Op = tuple[str, int]


def _little(threads: list[list[Op]], one_die: bool = False) -> Small:
    """Operations on two words of data and two flags; each write of a program has a value of its own."""
    texts = [
        "; ".join(OPS[op].format(place=4 * place, value=1 + 4 * thread + i) for i, (op, place) in enumerate(ops))
        for thread, ops in enumerate(threads)
    ]
    return small(" | ".join(texts), cores_per_die=len(threads) if one_die else 1, memory=DATA_WORDS)


def _ends(small: Small, order: str) -> Explored:
    """How all schedules end: in words of data, and in what was read; the flags may differ."""
    pod = small.pod(order)
    read = [(pod.meta(die, 8 * WORDS_A_DIE), 32 * small.cores_per_die) for die in range(small.n_dies)]
    return explore(pod, [(pod.managed(0), 8 * WORDS_A_DIE), *read])


_ops = st.lists(st.tuples(st.sampled_from([*OPS, "quiet", "wait"]), st.integers(0, 1)), min_size=1, max_size=4)


@settings(max_examples=30)
@given(st.lists(_ops, min_size=2, max_size=2), st.sampled_from(ORDERS), st.booleans())
def test_what_passes_has_one_outcome(threads: list[list[Op]], order: str, one_die: bool) -> None:
    """If sampling finds nothing, every schedule of the brute-force search ends alike: no missing order goes
    unnoticed; under `unordered`, where the older of two writes of a core may stay, if no core writes a word twice."""
    writes = [(core, place) for core, ops in enumerate(threads) for op, place in ops if op in ("store", "put")]
    assume(order != "unordered" or len(writes) == len(set(writes)))
    small = _little(threads, one_die)
    if sample(small.trial(order, None), schedules=20 * len(PORTFOLIO)).violation is None:
        explored = _ends(small, order)
        assert explored.complete
        assert len(explored.outcomes) == 1
        assert not explored.deadlocks
        assert not explored.errors


def test_such_programs_pass_and_fail() -> None:
    """The property above is not empty: a flag behind a quiet passes with one outcome, one without is found."""
    reader = [("wait", 0), ("pull", 0)]
    for writer, ok in (([("put", 0), ("quiet", 0), ("flag", 0)], True), ([("put", 0), ("flag", 0)], False)):
        small = _little([writer, reader])
        assert (sample(small.trial("relaxed", None), schedules=60).violation is None) == ok
        assert (len(_ends(small, "relaxed").outcomes) == 1) == ok
