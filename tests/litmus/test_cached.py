"""Caches of scalar units: small programs with the outcomes they deserve, on machine, in searches and in a model."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.check.check import check
from xccl_emu.check.trial import Expected, Trial
from xccl_emu.check.verdict import DEADLOCK, VERIFIED, VIOLATION, WRONG_BITS
from xccl_emu.lang import dcci, kernel, load, poll_eq, put, quiet, store
from xccl_emu.machine.explore import explore
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod

from .cached import CELLS, KINDS, Op, Outcome, Program, outcomes, program

ORDERS = ("sc", "fifo", "relaxed")
CELL_BYTES, OP_BITS = 32, 7


@kernel
def interpret(code, home, out):
    """Up to eight operations of 7 bits, its kind (3), cell (2) and value (2); what was loaded goes to ``out``."""
    seen = 0
    while code > 0:
        kind, address, value = (code & 7) - 1, home + 32 * (code >> 3 & 3), code >> 5 & 3
        if kind == 0:
            word = yield load(address, sync="look")
            seen = seen << 2 | word
        elif kind == 1:
            yield store(address, value)
        elif kind == 2:
            yield dcci(address)
        elif kind == 3:
            yield poll_eq(address, value)
        elif kind == 4:
            yield put(address, value)
        else:
            yield quiet()
        code = code >> 7
    yield put(out, seen)


def encode(ops: Sequence[Op]) -> int:
    """A thread as one integer."""
    words = [KINDS.index(op.kind) + 1 | op.cell << 3 | op.value << 5 for op in ops]
    return sum(word << OP_BITS * i for i, word in enumerate(words))


@dataclass(frozen=True)
class Cached:
    """A program on pods whose scalar units cache lines, a thread a die, and what is to come out of it."""

    threads: Program
    expected: Outcome | None = None
    lines: int = 4
    """Lines that a scalar unit caches."""
    name: ClassVar[str] = "cached"
    configuration: ClassVar[Mapping[str, int | str]] = {}

    def pod(self, order: str) -> Pod:
        """All launched; cells are in the metadata area of die 0, what was loaded in the managed area of each die."""
        spec = small_pod(
            len(self.threads), app_bytes=64, meta_bytes=CELLS * CELL_BYTES, managed_bytes=64, ub_bytes=32,
            scalar_cache=self.lines,
        )  # fmt: skip
        pod = Pod(spec, order=order)
        for die, ops in enumerate(self.threads):
            args = {"code": encode(ops), "home": pod.meta(0), "out": pod.managed(die)}
            pod.launch(interpret, die, [0], args, [pod.grant_meta("rw", 0), pod.grant_managed("w", die)])
        return pod

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """With the expected outcome."""
        assert self.expected is not None
        pod, (memory, loaded) = self.pod(order), self.expected
        cells = np.zeros((CELLS, 4), np.int64)
        cells[:, 0] = memory
        words = [Expected("cells", pod.meta(0), cells.tobytes())]
        words += [
            Expected(f"loaded {die}", pod.managed(die), packed(one).to_bytes(8, "little"))
            for die, one in enumerate(loaded)
        ]
        return Trial(pod, tuple(words))


def packed(values: Sequence[int]) -> int:
    """As the kernel has what it has loaded."""
    return sum(value << 2 * i for i, value in enumerate(reversed(values)))


def on_machine(case: Cached, order: str) -> tuple[set[Outcome], bool]:
    """What brute force finds, as the model has it."""
    pod = case.pod(order)
    found = explore(pod, [(pod.meta(0), CELLS * CELL_BYTES), *((pod.managed(d), 8) for d in range(len(case.threads)))])
    assert found.complete
    assert not found.errors
    ends = set()
    for words in found.outcomes:
        loads = [sum(op.kind == "R" for op in ops) for ops in case.threads]
        seen = words[4 * CELLS : 4 * CELLS + len(loads)]
        values = tuple(
            tuple(one >> 2 * (n - 1 - i) & 3 for i in range(n)) for one, n in zip(seen, loads, strict=True)
        )
        ends.add((words[: 4 * CELLS : 4], values))
    return ends, found.deadlocks > 0


LITMUS: dict[str, tuple[str, dict[str, str], bool]] = {
    # name: program, by order what threads have loaded and cells 0 and 1 in the end, and whether it may be stuck
    "a line that was read stays as it was": ("A01 | R0 P01 R0", {"sc": "0,0:10 0,1:10 1,1:10"}, False),
    "cleaned, it is read anew": ("A01 | R0 P01 D0 R0", {"sc": "0,1:10 1,1:10"}, False),
    "a neighbour is brought along": ("A11 | R0 P11 R1", {"sc": "0,0:01 0,1:01"}, False),
    "a store stays in the cache": ("W01 P21 | P01 A21", {"sc": ":10"}, True),
    "a store that is cleaned does not": ("W01 D0 P21 | P01 A21", {"sc": ":10"}, False),
    "a return cleans": ("W01 | P01", {"sc": ":10"}, False),
    "a line is written back with old neighbours": ("W01 D0 | A11", {"sc": ":11 :10"}, False),
    "two writers of one line": (
        "W01 D0 | W11 D1", {"sc": ":11 :10 :01", "fifo": ":11 :10 :01 :00", "relaxed": ":11 :10 :01 :00"}, False,
    ),
    "data behind no clean": ("W01 F A21 | P21 R0", {"sc": "0:10 1:10"}, False),
    "data behind a clean and a quiet": ("W01 D0 F A21 | P21 R0", {"sc": "1:10"}, False),
    "data behind a clean": ("W01 D0 A21 | P21 R0", {"sc": "1:10", "relaxed": "0:10 1:10"}, False),
    "an own put goes past the cache": ("R0 A01 F R0", {"sc": "0,0:10 0,1:10"}, False),
    "a changed line hides an own put": ("W01 A02 F R0", {"sc": "1:10 2:20"}, False),
    "values do not go back": ("A01 | R0 R0", {"sc": "0,0:10 0,1:10 1,1:10"}, False),
    "what it has cleaned it can read again": ("W01 D0 R0 W02 D0 R0", {"sc": "1,2:20"}, False),
    "nobody else sees what is not evicted": ("W01 P01 R0", {"sc": "1:10"}, True),
}
"""An order that is not named has the outcomes of `sc`."""


def told(found: set[Outcome]) -> set[str]:
    """Outcomes as `LITMUS` has them."""
    return {
        ",".join(str(value) for one in loaded for value in one) + f":{memory[0]}{memory[1]}" for memory, loaded in found
    }


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", LITMUS)
def test_litmus_programs_have_their_outcomes(name: str, order: str) -> None:
    """By hand, in the model and on the machine a program has the same outcomes; the search proves it if it has one."""
    text, by_order, stuck = LITMUS[name]
    threads, wanted = program(text), set(by_order.get(order, by_order["sc"]).split())
    found, blocks = outcomes(threads, order)
    assert (told(found), blocks) == (wanted, stuck)
    assert on_machine(Cached(threads), order) == (found, blocks)
    judged_as(threads, order, found, blocks)


def judged_as(threads: Program, order: str, found: set[Outcome], blocks: bool) -> None:
    """Both searches prove what has one outcome, and refute what has several or may be stuck."""
    expected = min(found, default=((0,) * CELLS, ((),) * len(threads)))
    for reduction in ("full", "merged"):
        verdict = check(Cached(threads, expected), order=order, reduction=reduction)
        assert verdict.verdict == (VERIFIED if len(found) == 1 and not blocks else VIOLATION), verdict
        if verdict.violation is not None:
            kinds = {WRONG_BITS: len(found) > 1, DEADLOCK: blocks}
            assert kinds.get(verdict.violation.kind), verdict.violation


OPS = st.builds(Op, st.sampled_from("RRWWDDPAF"), st.sampled_from([0, 1, 2]), st.integers(1, 2))
PROGRAMS = st.lists(st.lists(OPS, min_size=1, max_size=3), min_size=1, max_size=2)


@pytest.mark.parametrize("order", ORDERS)
@given(PROGRAMS)
@settings(max_examples=25, deadline=None)
def test_random_programs_have_the_outcomes_of_the_model(order: str, threads: Program) -> None:
    """Whatever threads do, brute force finds what the model finds, and the searches judge by it."""
    found, blocks = outcomes(threads, order)
    assert on_machine(Cached(threads), order) == (found, blocks)
    judged_as(threads, order, found, blocks)
