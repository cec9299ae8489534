"""Random programs of transfers, rightly synchronized, leave the same bits under every order, policy and seed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.lang import (
    add,
    atomic_add,
    dma,
    kernel,
    load,
    mtu_in,
    mtu_out,
    poll_ge,
    put,
    quiet,
    set_flag,
    store,
    wait_flag,
)
from xccl_emu.lang.requests import DMA, MTU_IN, MTU_OUT, SCALAR
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import small_pod

from .support import ORDERS

BLOCK, STEP_WORDS = 512, 5
THROUGH_BUFFER, BY_DMA, BY_WORDS, ADD_ONE = range(4)


@kernel
def mover(table, n, mine, previous):
    """Take turns: wait for the core before, carry out one step of the table, quiet, let the next one go."""
    for i in range(n):
        turn = yield load(table + 40 * i)
        source = yield load(table + 40 * i + 8)
        target = yield load(table + 40 * i + 16)
        nbytes = yield load(table + 40 * i + 24)
        kind = yield load(table + 40 * i + 32)
        yield poll_ge(previous, turn)
        if kind == 0:
            yield mtu_in(source, 0, nbytes)
            yield set_flag(MTU_IN, MTU_OUT, 2)
            yield wait_flag(MTU_IN, MTU_OUT, 2)
            yield mtu_out(0, target, nbytes)
        elif kind == 1:
            yield dma(source, target, nbytes, 7)
            yield wait_flag(DMA, SCALAR, 7)
        elif kind == 2:
            for k in range(nbytes // 4):
                word = yield load(source // 4 * 4 + 4 * k, 4)
                yield store(target // 4 * 4 + 4 * k, word, 4)
        else:
            yield add(target // 8 * 8, nbytes)
            old = yield atomic_add(source // 8 * 8, nbytes)
            yield put(target // 32 * 32, old, turn)
        yield quiet(sync="quiet")
        yield store(mine, turn + 1)


@dataclass(frozen=True)
class Step:
    """One transfer: by which die, from where to where (die, offset), how much, how."""

    by: int
    source: tuple[int, int]
    target: tuple[int, int]
    nbytes: int
    kind: int


def _steps(dies: int) -> st.SearchStrategy[list[Step]]:
    place = st.tuples(st.integers(0, dies - 1), st.integers(0, BLOCK - 200))
    step = st.builds(Step, st.integers(0, dies - 1), place, place, st.integers(1, 190), st.integers(0, 3))
    return st.lists(step.filter(_disjoint), min_size=1, max_size=8)


def programs(most: int) -> st.SearchStrategy[tuple[int, list[Step]]]:
    """A number of dies, and steps of them."""
    return st.integers(1, most).flatmap(lambda dies: st.tuples(st.just(dies), _steps(dies)))


def _disjoint(step: Step) -> bool:
    return step.source[0] != step.target[0] or abs(step.source[1] - step.target[1]) >= 200


def model(memory: np.ndarray, steps: list[Step]) -> None:
    """What the steps, one after the other, do to [dies, BLOCK] bytes."""
    for turn, step in enumerate(steps):
        (s, i), (t, j), n = step.source, step.target, step.nbytes
        if step.kind in (THROUGH_BUFFER, BY_DMA):
            memory[t, j : j + n] = memory[s, i : i + n]
        elif step.kind == BY_WORDS:
            i, j, n = i // 4 * 4, j // 4 * 4, n // 4 * 4
            memory[t, j : j + n] = memory[s, i : i + n]
        else:
            old = memory[s, i // 8 * 8 :][:8].view(np.int64)
            words = int(old[0]), turn, 0, 0
            old += n
            memory[t, j // 32 * 32 :][:32].view(np.int64)[:] = words


def start_and_end(dies: int, steps: list[Step], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random blocks, and what the steps make of them."""
    start = np.random.default_rng(seed).integers(0, 100, (dies, BLOCK)).astype(np.uint8)
    end = start.copy()
    model(end, steps)
    return start, end


def launched(start: np.ndarray, steps: list[Step], order: str, **options: Any) -> tuple[Pod, list[Buffer]]:
    """Dies that carry out the steps in turn, handing on by one flag; and all that is filled, the blocks first."""
    dies = len(start)
    pod = Pod(small_pod(dies, flight_granules=8), order=order, **options)
    filled = [pod.put(die, start[die]) for die in range(dies)]
    grants = [*(pod.grant(block, "rw") for block in filled), pod.grant_meta("rw", 0)]
    for die in range(dies):
        rows = [_row(filled, turn, step) for turn, step in enumerate(steps) if step.by == die]
        table = pod.put(die, np.array([*rows, [0] * STEP_WORDS], np.int64))
        filled.append(table)
        args = {"table": table.address, "n": len(rows), "mine": pod.meta(0), "previous": pod.meta(0)}
        pod.launch(mover, die, [0], args, [*grants, pod.grant(table, "r")])
    return pod, filled


def run(start: np.ndarray, steps: list[Step], order: str, **options: Any) -> np.ndarray:
    """The [dies, BLOCK] bytes that the machine leaves."""
    pod, blocks = launched(start, steps, order, **options)
    pod.run()
    return np.array([pod.view(block) for block in blocks[: len(start)]])


def _row(blocks: list, turn: int, step: Step) -> list[int]:
    source, target = (blocks[die].address + offset for die, offset in (step.source, step.target))
    return [turn, source, target, step.nbytes, step.kind]


@settings(max_examples=40)
@given(programs(4), st.integers(0, 2**32))
def test_synchronized_transfers_are_exact_everywhere(drawn: tuple[int, list[Step]], seed: int) -> None:
    """Any sequence of transfers handed on by a flag gives the bytes of NumPy, in every policy, seed and order
    that keeps writes to one address (transfers overlap without a fence)."""
    start, expected = start_and_end(*drawn, seed)
    for order in ORDERS[:3]:
        for policy in ("round-robin", "random"):
            assert (run(start, drawn[1], order, policy=policy, seed=seed) == expected).all(), (order, policy)


@pytest.mark.nojit
@pytest.mark.boundscheck
@pytest.mark.parametrize("order", ORDERS)
def test_one_program_in_plain_python_too(order: str) -> None:
    """A program with every kind of transfer is exact without the JIT and with bounds checks."""
    steps = [Step(kind % 2, (kind % 2, 3), (1 - kind % 2, 205), 100, kind) for kind in range(4)]
    start, expected = start_and_end(2, steps, 1)
    assert (run(start, steps, order, policy="random", seed=1) == expected).all()


def test_without_quiets_some_seed_goes_wrong() -> None:
    """The quiets are what makes it right: without them a stale byte is read under `relaxed` with some seed."""
    steps = [Step(0, (0, 0), (1, 0), 190, THROUGH_BUFFER), Step(1, (1, 0), (0, 300), 190, THROUGH_BUFFER)]
    start, expected = start_and_end(2, steps, 2)
    options = {"policy": "random", "without": ["quiet"]}
    assert any((run(start, steps, "relaxed", seed=seed, **options) != expected).any() for seed in range(50))
