"""Fuzzing of a protocol: many sequences, in processes or on a Dask cluster, and what it came to."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.stateful import run_state_machine_as_test

from xccl_emu.bench.processes import in_parts
from xccl_emu.check.verdict import Verdict
from xccl_emu.errors import UnfinishedError
from xccl_emu.fuzz.judge import Budget, verdict_of
from xccl_emu.fuzz.machine import Counted, SequenceViolation, machine_of
from xccl_emu.fuzz.shorter import shortened
from xccl_emu.protocol.registry import known
from xccl_emu.protocol.sequence import Sequence

Sizes = Mapping[str, int | str]
CHUNK = 20
"""Sequences of one task."""
INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Plan:
    """Which protocol is called, how often, and how each sequence is judged."""

    protocol: str
    """A name of the registry, or ``FILE.py:NAME``."""
    sizes: Sizes = field(default_factory=dict)
    """That are the same in all sequences."""
    examples: int = 200
    seed: int = 0
    budget: Budget = field(default_factory=Budget)

    def chunks(self) -> list["Plan"]:
        """The same in parts, each with a seed of its own."""
        return [
            replace(self, examples=min(CHUNK, self.examples - first), seed=self.seed + first)
            for first in range(0, self.examples, CHUNK)
        ]


@dataclass(frozen=True, eq=False)
class Finding:
    """A sequence in which something goes wrong, made as short as Hypothesis could, and the verdict on it."""

    stages: str
    """As `Sequence.configuration` has them."""
    fault: str
    verdict: Verdict

    def sequence(self, protocol: str) -> Sequence:
        """The sequence itself."""
        return Sequence.read(protocol, {"stages": self.stages})


@dataclass
class Summary:
    """What fuzzing came to."""

    protocol: str
    sequences: int = 0
    calls: int = 0
    judged: int = 0
    """Different sequences, those too with which a longer one begins."""
    proved: int = 0
    """Of these: every schedule of the last stage was covered."""
    schedules: int = 0
    states: int = 0
    seconds: float = 0.0
    stopped: str = ""
    """Why it came to no end."""
    killed: bool = False
    """Was that because a worker was killed?"""
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: "Summary") -> None:
        """Count what another part came to."""
        for name in ("sequences", "calls", "judged", "proved", "schedules", "states"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.findings += other.findings

    def to_json(self) -> dict[str, Any]:
        """As the command's ``--json`` prints it."""
        found = [{"stages": one.stages, "fault": one.fault, "verdict": one.verdict.to_json()} for one in self.findings]
        return {**vars(self), "seconds": round(self.seconds, 1), "findings": found}


def fuzz_part(plan: Plan) -> Summary:
    """Draw and judge the sequences of a plan one after the other, up to the first in which something goes wrong."""
    if plan.budget.spent:
        return Summary(plan.protocol)
    machine = machine_of(known(plan.protocol), plan.sizes, plan.budget, plan.seed)
    settings = hypothesis.settings(
        max_examples=plan.examples, stateful_step_count=plan.budget.calls_max + 2, database=None, deadline=None,
        phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck), verbosity=Verbosity.quiet,
        report_multiple_bugs=False, print_blob=False,
    )  # fmt: skip
    found: list[Finding] = []
    try:
        with _drawn_by_seed_alone():
            run_state_machine_as_test(hypothesis.seed(plan.seed)(machine), settings=settings)
    except SequenceViolation as error:
        sequence, violation = shortened(
            error.sequence, error.fault, error.violation, plan.seed, plan.budget, plan.sizes
        )
        verdict = verdict_of(sequence, error.fault, plan.seed, plan.budget, violation)
        found.append(Finding(str(sequence.configuration["stages"]), error.fault, verdict))
    return _summary(plan.protocol, machine.counted, found)


@contextmanager
def _drawn_by_seed_alone() -> Iterator[None]:
    """Without the constants that Hypothesis reads in the modules which a process happens to have loaded.

    It draws one of them now and then, and the parts of a plan run in processes that have loaded different ones.
    """
    provider: Any = getattr(sys.modules.get("hypothesis.internal.conjecture.providers"), "HypothesisProvider", None)
    if hasattr(provider, "_maybe_draw_constant"):  # an earlier version has no constants
        with patch.object(provider, "_maybe_draw_constant", return_value=None):
            yield
    else:
        yield


def _summary(protocol: str, counted: Counted, found: list[Finding]) -> Summary:
    numbers = {name: value for name, value in vars(counted).items() if name not in ("seen", "found_at")}
    return Summary(protocol, findings=found, **numbers)


def fuzz(
    plan: Plan,
    workers: int,
    dask: str | None = None,
    seconds: float | None = None,
    progress: Callable[[Summary], None] | None = None,
) -> Summary:
    """Fuzz until something is found, all sequences are through, or ``seconds`` are over.

    What stops it before that (Ctrl-C, a worker that dies) is in the summary.  The first sequences are drawn in this
    process, and what they compile is kept: its seconds do not count.
    """
    fuzz_part(replace(plan, examples=1))
    summary, started = Summary(plan.protocol), time.perf_counter()
    until = math.inf if seconds is None else time.time() + seconds
    late = 0
    chunks = replace(plan, budget=replace(plan.budget, until=until)).chunks()
    with closing(in_parts(fuzz_part, chunks, workers, dask)) as done:
        try:
            for part in done:
                summary.add(part)
                summary.seconds = time.perf_counter() - started
                if progress is not None:
                    progress(summary)
                if summary.findings:
                    break
                if seconds is not None and summary.seconds > seconds and summary.sequences < plan.examples:
                    summary.stopped = f"more than {seconds:g} seconds"
                    late += 1
                if late == workers:  # each has told what it was at
                    break
        except KeyboardInterrupt:
            summary.stopped = INTERRUPTED
        except UnfinishedError as error:
            summary.stopped, summary.killed = str(error), True
    return summary
