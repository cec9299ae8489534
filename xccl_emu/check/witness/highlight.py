"""Which steps of a run are the violation itself."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from xccl_emu.check import verdict
from xccl_emu.check.witness.trace import PERFORM, RunTrace, TracedAccess, TraceStep

RACES = (verdict.DATA_RACE, verdict.TORN_METADATA)
LOOP = "↻"
"""Marks the step with which a loop begins."""
FAILS = "✗"
"""Marks the action that fails, and cores that are blocked."""
ROUND = "from here round and round"
"""What it says."""
_PLACE = re.compile(r"die (\d+) core (\d+), kernel \w+ \(([^()]*?:\d+)[,)]")


def marks(trace: RunTrace, violation: verdict.Violation) -> dict[int, str]:
    """Marks by number of step: ``A`` and ``B`` for the two accesses of a race, ``✗`` for the action that fails, `LOOP`.

    The second access of a race is of the last action's instruction.  The first is the latest one that meets it in a
    byte; one that the message names goes first, then one of another core.
    """
    if not trace.steps:
        return {}
    last = trace.steps[-1]
    if violation.kind == verdict.LIVELOCK and violation.loop:
        return {len(trace.steps) - violation.loop + 1: LOOP}
    if violation.kind not in RACES:
        return {} if trace.end in ("done", "deadlock") else {last.number: FAILS}
    named = set(_PLACE.findall(violation.message))

    def weight(pair: tuple[TraceStep, ...]) -> tuple[bool, bool, bool]:
        one, other = pair
        return _place(one) in named, other is last, one.core != other.core

    pair = max(_races(trace), key=weight, default=())
    return dict(zip((step.number for step in pair), "AB", strict=False)) or {last.number: "B"}


def raced(trace: RunTrace, marked: Mapping[int, str]) -> dict[int, TraceStep]:
    """Return the two accesses of a race by number of step, with the place in a data buffer where they meet there."""
    pair = [trace.steps[number - 1] for number, mark in marked.items() if mark in ("A", "B")]
    met = next(_meetings(*pair), ()) if len(pair) == 2 else ()
    return {
        step.number: replace(step, place=f"{access.place} ({step.place})")
        for step, access in zip(pair, met, strict=False)
        if access.place not in ("", step.place)
    }


def _meetings(one: TraceStep, other: TraceStep) -> Iterator[tuple[TracedAccess, TracedAccess]]:
    """Yield what of two steps meets in a byte."""
    yield from ((a, b) for a in one.accesses for b in other.accesses if a.races(b))


def _races(trace: RunTrace) -> Iterator[tuple[TraceStep, TraceStep]]:
    """Pairs of steps of different instructions that meet in a byte, the latest first."""
    last = trace.steps[-1]
    for other in reversed(trace.steps):
        if (other.instruction, other.pipe) == (last.instruction, last.pipe):
            for one in reversed(trace.steps[: other.number - 1]):
                meet = next(_meetings(one, other), None) is not None
                if meet and one.instruction != other.instruction and one.pipe != PERFORM:
                    yield one, other


def _place(step: TraceStep) -> tuple[str, str, str]:
    """Die, core, and source line as messages name them."""
    die, core = step.who.removeprefix("die").split(".core")
    return die, core, f"{step.source.file}:{step.source.line}" if step.source is not None else ""
