"""Fuzzing of a protocol: many sequences, in processes or on a Dask cluster, and what it came to."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any
from unittest.mock import patch

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.stateful import run_state_machine_as_test

from xccl_emu.base import words as w
from xccl_emu.base.errors import ConfigError
from xccl_emu.base.jobs import Gathered, in_parts
from xccl_emu.check.verdict import Verdict
from xccl_emu.fuzz.judge import SequenceBudget, verdict_of
from xccl_emu.fuzz.machine import COUNTS, Counts, SequenceViolation, machine_of
from xccl_emu.fuzz.shrink_sequence import shrunk
from xccl_emu.protocol.folder import Contents, contents_of, same
from xccl_emu.protocol.registry import known
from xccl_emu.protocol.sequence import Sequence, Sizes

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
