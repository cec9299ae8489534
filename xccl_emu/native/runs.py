"""A protocol on real memory again and again, each result held against what must be there."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from xccl_emu.base import words as w
from xccl_emu.base.errors import XcclEmuError
from xccl_emu.check.trial import Trial
from xccl_emu.machine import driver
from xccl_emu.native.host import Real

if TYPE_CHECKING:
    from xccl_emu.machine.pod import Pod


@dataclass
class Runs(w.Printed):
    """What came of some runs on real memory."""

    n_runs: Annotated[int, "how often it ran"] = 0
    wrong: Annotated[int, "runs after which bytes were not as expected"] = 0
    ended_by: Annotated[dict[str, int], "runs that did not come to their end, by what ended them"] = field(
        default_factory=dict
    )
    first_bad: Annotated[int | None, "the number of the first run that was wrong or failed; null if none was"] = None
    report: Annotated[str, "what the first run that failed said, whole: who waits for what"] = ""
    copied_bytes: Annotated[int, "bytes that instructions copied, in all runs that came to their end"] = 0
    run_seconds: Annotated[float, "time of the runs alone, on this computer or GPU; pods that run at once share it"] = (
        0.0
    )
    seconds: w.Seconds = 0.0

    @property
    def n_bad(self) -> Annotated[int, "runs that were wrong or failed"]:
        """Runs that were wrong or failed."""
        return self.wrong + sum(self.ended_by.values())

    @property
    def gb_per_s(self) -> Annotated[float | None, "`copied_bytes` by `run_seconds`; null if a run failed"]:
        """Copied bytes by the time of the runs, in GB/s of this computer or GPU; None if that means nothing."""
        return None if self.ended_by or not self.run_seconds else self.copied_bytes / 1e9 / self.run_seconds

    def take(self, pod: "Pod", ended: int, seconds: float, wrong_bytes: Callable[[], Mapping[str, int]]) -> None:
        """Count a run that has just ended."""
        self.n_runs += 1
        self.run_seconds += seconds
        before = self.n_bad
        try:
            self.copied_bytes += driver.outcome(pod, ended, seconds).copied_bytes
            self.wrong += bool(wrong_bytes())
        except XcclEmuError as error:
            first = str(error).partition("\n")[0]
            self.ended_by[first] = self.ended_by.get(first, 0) + 1
            self.report = self.report or str(error)
        if self.first_bad is None and self.n_bad > before:
            self.first_bad = self.n_runs


def repeat(
    trial: Trial, on: Real, runs: int, progress: Callable[[Runs], None] = lambda _: None, seconds: float = math.inf
) -> Runs:  # fmt: skip
    """Run a trial's pod, which must be small and not have run, this often; ``progress`` is called after each.

    It goes on after a run that fails, but begins no run when ``seconds`` have passed.  Ctrl-C ends it.

    Raises as `Real` does, and CapacityError for a pod that is not small.
    """
    pod, done, started = trial.pod, Runs(), time.perf_counter()
    pod.check_runnable()
    on.look(pod)
    for ended, took in on.several(pod, pod.snapshot(), runs):
        done.take(pod, ended, took, trial.wrong_bytes)
        done.seconds = time.perf_counter() - started
        progress(done)
        if done.seconds >= seconds:
            break
    return done


@dataclass(frozen=True)
class RealRun(w.Printed):
    """A protocol on real memory: what was run, where, and what came of its runs."""

    protocol: w.Protocol
    configuration: w.Configuration
    machine: Annotated[str, "where it ran: `native`, threads of this computer, or `cuda`"]
    without: Annotated[tuple[str, ...], "synchronizations that were switched off"]
    seed: w.Seed
    done: Annotated[Runs, "the runs", w.INLINE]

    def shown(self) -> str:
        """Return what its runs showed, as words of a line."""
        done = self.done
        first = f", the first of them run {done.first_bad:,}" if done.first_bad else ""
        return f"{self.machine} {done.n_bad:,} of {done.n_runs:,} runs wrong{first}, in {done.seconds:.1f} s"
