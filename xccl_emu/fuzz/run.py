"""Fuzzing of a protocol: many sequences, in processes or on a Dask cluster, and what it came to.

What fails is shrunk: fewer communicators, fewer calls, sizes as usual.  Hypothesis has shrunk what it has drawn; but a
size that is drawn as usual stays in it, and so does a call where what is drawn after it would change.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Any
from unittest.mock import patch

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.stateful import run_state_machine_as_test

from xccl_emu.base import words as w
from xccl_emu.base.errors import ConfigError, RunError
from xccl_emu.base.jobs import Gathered, in_parts
from xccl_emu.check.verdict import Verdict, Violation
from xccl_emu.fuzz.judge import SequenceBudget, judge, verdict_of
from xccl_emu.fuzz.machine import COUNTS, Counts, SequenceViolation, machine_of
from xccl_emu.machine.clock import working_seconds
from xccl_emu.protocol.folder import Contents, contents_of, same
from xccl_emu.protocol.registry import known
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


CHUNK = 20
"""Sequences of one task."""


@dataclass(frozen=True)
class FuzzPlan:
    """Which protocol is called, how often, and how each sequence is judged."""

    protocol: str
    """A name of the registry, or ``FILE.py:NAME``."""
    sizes: Sizes = field(default_factory=dict)
    """Sizes that are the same in all sequences."""
    examples: int = 200
    seed: int = 0
    budget: SequenceBudget = field(default_factory=SequenceBudget)
    contents: Contents = field(default_factory=dict)
    """Contents of the protocol's files; they must be the same in each worker."""

    def chunks(self) -> list["FuzzPlan"]:
        """Split the plan into parts, each with a seed of its own."""
        return [
            replace(self, examples=min(CHUNK, self.examples - first), seed=self.seed + first)
            for first in range(0, self.examples, CHUNK)
        ]


@dataclass(frozen=True, eq=False)
class FailingSequence(w.Printed):
    """A sequence in which something goes wrong, made as short as Hypothesis could, and the verdict on it."""

    verdict: Annotated[Verdict, w.INLINE]
    stages: Annotated[str, "the calls of each communicator, as JSON"]
    """`Sequence.configuration` has them so."""
    fault: str

    def sequence(self, protocol: str) -> Sequence:
        """The sequence itself."""
        return Sequence.read(protocol, {"stages": self.stages})


@dataclass
class FuzzSummary(Counts, Gathered):
    """What fuzzing came to."""

    COUNTED = (*COUNTS, "findings")
    protocol: w.Protocol
    findings: Annotated[list[FailingSequence], "sequences in which something goes wrong"] = field(default_factory=list)
    order: w.Order = ""
    seed: w.Seed = 0
    replay_file: w.ReplayFile = None
    spent: set[int] = field(default_factory=set)
    """Processes whose time is over."""

    def add(self, other: Any) -> None:
        """Count what another part came to."""
        super().add(other)
        self.spent |= other.spent


def fuzz_part(plan: FuzzPlan) -> FuzzSummary:
    """Draw and judge the sequences of a plan one after the other, up to the first in which something goes wrong."""
    if plan.budget.spent:
        return FuzzSummary(plan.protocol, spent={os.getpid()})
    of = known(plan.protocol)
    if not same(plan.contents):
        raise ConfigError(f"protocol {plan.protocol!r}: one of {', '.join(plan.contents)} has changed meanwhile")
    machine = machine_of(of, plan.sizes, plan.budget, plan.seed)
    settings = hypothesis.settings(
        max_examples=plan.examples, stateful_step_count=plan.budget.calls_max + 2, database=None, deadline=None,
        phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck), verbosity=Verbosity.quiet,
        report_multiple_bugs=False, print_blob=False,
    )  # fmt: skip
    found: list[FailingSequence] = []
    try:
        with _drawn_by_seed_alone():
            run_state_machine_as_test(hypothesis.seed(plan.seed)(machine), settings=settings)
    except SequenceViolation as error:
        sequence, violation = shrunk(
            error.sequence, error.fault, error.violation, plan.seed, plan.budget, plan.sizes
        )
        verdict = verdict_of(sequence, error.fault, plan.seed, plan.budget, violation)
        found.append(FailingSequence(verdict, str(sequence.configuration["stages"]), error.fault))
    spent = {os.getpid()} if plan.budget.spent else set[int]()
    counts = {name: getattr(machine.counted, name) for name in COUNTS}
    return FuzzSummary(plan.protocol, findings=found, spent=spent, **counts)


@contextmanager
def _drawn_by_seed_alone() -> Iterator[None]:
    """Draw without the constants that Hypothesis reads in the modules which a process happens to have loaded.

    It draws one of them now and then, and the parts of a plan run in processes that have loaded different ones.
    """
    provider: Any = getattr(sys.modules.get("hypothesis.internal.conjecture.providers"), "HypothesisProvider", None)
    if hasattr(provider, "_maybe_draw_constant"):  # an earlier version has no constants
        with patch.object(provider, "_maybe_draw_constant", return_value=None):
            yield
    else:
        yield


def fuzz(
    plan: FuzzPlan,
    workers: int,
    dask: str | None = None,
    seconds: float | None = None,
    progress: Callable[[FuzzSummary], None] | None = None,
) -> FuzzSummary:
    """Fuzz until something is found, all sequences are through, or ``seconds`` are over.

    What stops it before that (Ctrl-C, a worker that dies) is in the summary.  The first sequences are drawn in this
    process, and what they compile is kept.  The seconds of a process begin when it is ready to judge, and stand still
    while it compiles.
    """
    plan = replace(plan, contents=contents_of(known(plan.protocol).maker.__module__))
    fuzz_part(replace(plan, examples=1))
    summary = FuzzSummary(plan.protocol, order=plan.budget.order, seed=plan.seed)
    chunks = replace(plan, budget=replace(plan.budget, seconds=seconds, begun=time.time())).chunks()
    processes = len(chunks) if dask else min(workers, len(chunks))

    def enough() -> bool:
        if summary.spent and summary.sequences < plan.examples:
            summary.stopped = f"more than {seconds:g} seconds"
        return bool(summary.findings) or len(summary.spent) == processes

    summary.gather(in_parts(fuzz_part, chunks, workers, dask), enough, progress)
    return summary
