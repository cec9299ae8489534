"""Shrinks a sequence in which something goes wrong: fewer communicators, fewer calls, sizes as usual.

Hypothesis has shrunk what it has drawn; but a size that is drawn as usual stays in it, and so does a call where
what is drawn after it would change.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from xccl_emu.base.errors import ConfigError, RunError
from xccl_emu.check.verdict import Violation
from xccl_emu.fuzz.judge import SequenceBudget, judge
from xccl_emu.machine.clock import working_seconds
from xccl_emu.protocol.sequence import AGAIN, Sequence, Sizes, Stage

SECONDS = 10.0


def shrunk(
    sequence: Sequence, fault: str, violation: Violation, seed: int, budget: SequenceBudget, fixed: Sizes
) -> tuple[Sequence, Violation]:
    """The shortest that is found in a few seconds, and what goes wrong in it: something of the same kind.

    The ``fixed`` sizes stay.
    """
    until, kind, quick = working_seconds() + SECONDS, violation.kind, replace(budget, states=0)

    def wrong(candidate: Sequence) -> Iterator[tuple[Sequence, Violation]]:
        """The candidate, if it shows something of the same kind, and there is time."""
        if working_seconds() <= until:
            with suppress(ConfigError, RunError):
                found = judge(candidate, fault, seed, quick).violation
                if found is not None and found.kind == kind:
                    yield candidate, found

    better: tuple[Sequence, Violation] | None = (sequence, violation)
    while better is not None:
        sequence, violation = better
        candidates = (replace(sequence, stages=stages) for stages in _smaller(sequence.stages, fixed))
        better = next((each for candidate in candidates for each in wrong(candidate)), None)
    return sequence, violation


def _smaller(stages: tuple[Stage, ...], fixed: Sizes) -> Iterator[tuple[Stage, ...]]:
    """Leave out a communicator; leave out a call; take a size as usual."""
    if len(stages) > 1:
        yield from (stages[:i] + stages[i + 1 :] for i in range(len(stages)))
    for i, stage in enumerate(stages):
        for changed in _fewer(stage, fixed):
            yield (*stages[:i], changed, *stages[i + 1 :])


def _fewer(stage: Stage, fixed: Sizes) -> Iterator[Stage]:
    if (other := stage.beside) is not None:
        yield from (replace(stage, beside=None), other)
        yield from (replace(stage, beside=fewer) for fewer in _fewer(other, fixed))
    calls = stage.calls
    if len(calls) > 1 and not any(AGAIN in call for call in calls):
        yield from (replace(stage, calls=calls[:i] + calls[i + 1 :]) for i in range(len(calls)))
    elif len(calls) > 1:
        yield replace(stage, calls=calls[:-1])
    yield from (replace(stage, sizes=sizes) for sizes in _usual(stage.sizes, fixed))
    for i, call in enumerate(calls):
        yield from (replace(stage, calls=(*calls[:i], sizes, *calls[i + 1 :])) for sizes in _usual(call, fixed))


def _usual(sizes: Sizes, fixed: Sizes) -> Iterator[Sizes]:
    """Leave out one of them; a call that is made again stays one."""
    for name in sizes:
        if name != AGAIN and name not in fixed:
            yield {other: value for other, value in sizes.items() if other != name}
