"""What a witness leaves out: cores that play no part in a deadlock, steps that a wrong element does not come from."""

import re

import numpy as np
import pytest
from numpy.typing import DTypeLike

from xccl_emu.check.check import check
from xccl_emu.check.messages import wrong_byte
from xccl_emu.check.trial import Expected
from xccl_emu.check.verdict import DEADLOCK, WRONG_BITS
from xccl_emu.check.witness import render, tracer
from xccl_emu.lang import MTU_IN, MTU_OUT, add, kernel, load, mtu_in, mtu_out, poll_ge, quiet, set_flag, wait_flag
from xccl_emu.machine import Pod, small_pod
from xccl_emu.protocol import Bench, Regions, protocol

from .witness_support import printed

ROW = 32


@kernel
def gather(table, which, out, rows):
    """Copies rows, each by its number in a list; the last is taken twice."""
    for i in range(rows):
        row = yield load(which + 8 * (i - i // (rows - 1)))
        yield mtu_in(table + row * ROW, i * ROW, ROW)
        yield set_flag(MTU_IN, MTU_OUT, 0)
        yield wait_flag(MTU_IN, MTU_OUT, 0)
        yield mtu_out(i * ROW, out + i * ROW, ROW)
        yield quiet()


@protocol
def gathered(bench: Bench) -> None:
    """Eight rows of numbers in another order."""
    pod = bench.pod(small_pod(1, app_bytes=1024, ub_bytes=256))
    rows, order = np.arange(1.0, 65.0, dtype=np.float32).reshape(8, 8), np.array([7, 6, 5, 4, 3, 2, 1, 0])
    table, which = bench.filled(0, rows, "rows"), bench.filled(0, order, "order")
    out = bench.wanted(0, rows[order], "out")
    args = {"table": table.address, "which": which.address, "out": out.address, "rows": 8}
    pod.launch(gather, 0, [0], args, [pod.grant(table, "r"), pod.grant(which, "r"), pod.grant(out, "w")])


def test_wrong_bits_are_shown_by_what_they_come_from() -> None:
    """By row, element and value, with which rows are right; of the run only what touches that row is left."""
    verdict = check(gathered(), policy="eager", schedules=1)
    assert verdict.violation.kind == WRONG_BITS
    said = "row 7 of 8, element 0 (float32): 9.0 instead of 1.0 (8 of 64 elements are wrong: "
    rows = "rows 7 wrong, rows 0-6 right)"
    assert said + rows in verdict.violation.message
    text, run = printed(gathered().build("relaxed"), verdict.violation)
    lines = re.findall(r"^ +(\d+)(?:-(\d+))? +die0", text, re.MULTILINE)
    shown = [run.steps[int(first) - 1] for first, _ in lines]
    assert len(shown) < 16 < len(run.steps)
    assert {step.place for step in shown if step.operation == "mtu_in"} == {"die0.rows+0x20"}
    assert {step.place for step in shown if step.operation == "mtu_out" and not step.issues} == {"die0.out+0xe0"}
    assert "lines are left out, of what the wrong element does not come from)" in text


@kernel
def wait(bell, n):
    """Waits for n rings."""
    yield poll_ge(bell, n)


@kernel
def ring(bell):
    """Rings once."""
    yield add(bell, 1)
    yield quiet()


@protocol
def pairs(bench: Bench, wanted: int = 2) -> None:
    """Die 0 rings for die 1, and die 2 for die 3; die 3 waits for as many rings as wanted."""
    regions = Regions(4)
    bells = regions.meta("bell")
    pod = bench.pod(regions.tight_pod(app_bytes=32, ub_bytes=32))
    regions.place(bench, pod)
    for die, n in ((1, 1), (3, wanted)):
        pod.launch(ring, die - 1, [0], {"bell": bells.at(die)}, [bells.grant(die, "rw")])
        pod.launch(wait, die, [0], {"bell": bells.at(die), "n": n}, [bells.grant(die, "r")])


def test_cores_that_share_nothing_with_blocked_ones_are_left_out() -> None:
    """Who waits is shown, and who rang for it; the other pair has returned, and has no line."""
    verdict = check(pairs())
    assert verdict.violation.kind == DEADLOCK
    run = tracer.steps(pairs().build("relaxed"), verdict.violation.actions.tolist())
    assert render.cores_that_matter(run) == {2, 3}
    text, _ = printed(pairs().build("relaxed"), verdict.violation)
    assert re.search(r"\d die2\.core0|\d +die2\.core0", text)
    assert not re.search(r"\d +die[01]\.core0", text)
    assert "lines are left out, of cores that play no part, and return)" in text


@pytest.mark.parametrize(
    ("dtype", "shape", "changed", "said"),
    [
        (np.uint8, (6,), {2: 9}, "byte 2 of 6: 0x09 instead of 0x01"),
        (np.int64, (6,), {2: -9, 3: 0}, "element 2 of 6 (int64): -9 instead of 1 (2 of 6 elements are wrong)"),
        (np.int32, (2, 3), {4: 7}, "row 1 of 2, element 1 (int32): 7 instead of 1"),
        (np.float32, (2, 1, 3), {5: -0.5}, "row 1 of 2, element 0, 2 (float32): -0.5 instead of 1.0"),
        (np.float32, (), {0: np.nan}, "element 0 of 1 (float32): nan instead of 1.0"),
    ],
)  # fmt: skip
def test_a_wrong_element_is_named(
    dtype: DTypeLike, shape: tuple[int, ...], changed: dict[int, float], said: str
) -> None:
    """By index, type and value, and how many are wrong."""
    wanted = np.ones(shape, dtype)
    there = wanted.copy()
    there.flat[list(changed)] = list(changed.values())
    pod = Pod(small_pod(1))
    expected = Expected("it", pod.meta(0), wanted.tobytes(), dtype=wanted.dtype, shape=wanted.shape)
    _, text = wrong_byte(pod, expected, np.frombuffer(there.tobytes(), np.uint8))
    assert text.endswith(f", {said}")
