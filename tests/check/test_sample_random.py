"""Random programs: what is rightly synchronized passes, and what passes has one outcome only."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.machine.test_random_kernels import BLOCK, Step, _steps, launched, model
from xccl_emu.check.sampling.sample import PORTFOLIO, sample
from xccl_emu.check.trial import Expected, Trial
from xccl_emu.lang import (
    MTU_IN,
    SCALAR,
    add,
    kernel,
    load,
    mtu_in,
    poll_ge,
    put,
    quiet,
    set_flag,
    store,
    ub_load,
    wait_flag,
)
from xccl_emu.machine.explore import explore
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import small_pod

from .monitor_support import ORDERS


def _moving(start: np.ndarray, steps: list[Step], order: str) -> Trial:
    """The steps, and the blocks as they must be in the end."""
    pod, filled = launched(start, steps, order)
    end = start.copy()
    model(end, steps)
    everybody = tuple(pod.active_cores())  # a die's core may be done before others write there
    expected = [
        Expected(f"block {each.die}", each.address, block.tobytes(), everybody)
        for each, block in zip(filled, end, strict=False)
    ]
    return Trial(pod, tuple(expected), tuple(filled))


@settings(max_examples=12)
@given(st.integers(1, 3).flatmap(lambda dies: st.tuples(st.just(dies), _steps(dies))), st.integers(0, 2**32))
def test_transfers_handed_on_by_a_flag_pass(drawn: tuple[int, list[Step]], seed: int) -> None:
    """Any sequence of transfers, awaited and handed on, gives no alarm and the bytes of NumPy, whatever the order."""
    dies, steps = drawn
    start = np.random.default_rng(seed).integers(0, 100, (dies, BLOCK)).astype(np.uint8)
    for order in ORDERS:
        result = sample(_moving(start, steps, order), seed=seed, schedules=2 * len(PORTFOLIO))
        assert result.violation is None, (order, result.violation)


PLAIN_STORE, PLAIN_LOAD, QUIET, FLAG, WAIT, PULL, PUT, COUNT = range(8)


@kernel
def little(program, data, flags):
    """Run up to seven operations of 8 bits: kind (3), place (1), value (4); return what was read."""
    seen = 0
    while program > 0:
        kind = program & 7
        place = 32 * (program >> 3 & 1)
        value = program >> 4 & 15
        program = program >> 8
        if kind == 0:
            yield store(data + place, value)
        elif kind == 1:
            word = yield load(data + place)
            seen = seen * 16 + word
        elif kind == 2:
            yield quiet()
        elif kind == 3:
            yield store(flags + place, 1)
        elif kind == 4:
            yield poll_ge(flags + place, 1)
        elif kind == 5:
            yield mtu_in(data + place, 0, 8)
            yield set_flag(MTU_IN, SCALAR, 0)
            yield wait_flag(MTU_IN, SCALAR, 0)
            word = yield ub_load(0, 8)
            seen = seen * 16 + word
        elif kind == 6:
            yield put(data + place, value)
        else:
            yield add(flags + place, 1)
    return seen


Op = tuple[int, int]
_CLOSING = 15
"""A value that no operation writes: keeps a program from ending in a store of 0, which would be no operation."""


def _encoded(ops: list[Op], thread: int) -> int:
    """Each write of a program has a value of its own."""
    word = 0
    for i, (kind, place) in enumerate(ops):
        value = 1 + 4 * thread + i if kind in (PLAIN_STORE, PUT) else _CLOSING
        word |= (kind | place << 3 | value << 4) << 8 * i
    return word


def _little(threads: list[list[Op]], order: str, one_die: bool) -> tuple[Trial, list[tuple[int, int]]]:
    dies, cores = (1, len(threads)) if one_die else (len(threads), 1)
    spec = small_pod(dies, cores, app_bytes=0, meta_bytes=64, managed_bytes=64, ub_bytes=64, flight_pieces=8)
    pod = Pod(spec, order=order)
    data, flags = pod.managed(0), pod.meta(0)  # in metadata two stores need no order
    for i, ops in enumerate(threads):
        args: dict[str, Any] = {"program": _encoded(ops, i), "data": data, "flags": flags}
        grants = [pod.grant_meta("rw"), pod.grant_managed("rw")]
        pod.launch(little, 0 if one_die else i, [i if one_die else 0], args, grants)
    return Trial(pod, (), (Buffer(0, data, 64),)), [(data, 64)]


_ops = st.lists(
    st.tuples(
        st.sampled_from([PLAIN_STORE, PLAIN_LOAD, QUIET, QUIET, FLAG, WAIT, WAIT, PULL, PUT, COUNT]), st.integers(0, 1)
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=30)
@given(st.lists(_ops, min_size=2, max_size=2), st.sampled_from(ORDERS), st.booleans())
def test_what_passes_has_one_outcome(threads: list[list[Op]], order: str, one_die: bool) -> None:
    """If sampling finds nothing, every schedule of the naive search ends alike: no missing order goes unnoticed."""
    trial, observed = _little(threads, order, one_die)
    if sample(trial, schedules=20 * len(PORTFOLIO)).violation is None:
        explored = explore(trial.pod, observed)
        assert explored.complete
        assert len(explored.outcomes) == 1
        assert not explored.deadlocks
        assert not explored.errors


def test_such_programs_pass_and_fail() -> None:
    """The property above is not empty: a flag behind a quiet passes with one outcome, one without is found."""
    reader = [(WAIT, 0), (PULL, 0)]
    for writer, ok in (([(PUT, 0), (QUIET, 0), (FLAG, 0)], True), ([(PUT, 0), (FLAG, 0)], False)):
        trial, observed = _little([writer, reader], "relaxed", False)
        assert (sample(trial, schedules=60).violation is None) == ok
        assert (len(explore(trial.pod, observed).outcomes) == 1) == ok
