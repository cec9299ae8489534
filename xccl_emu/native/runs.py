"""A protocol on real memory again and again, each result held against what must be there."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from xccl_emu.base import words as w
from xccl_emu.base.errors import XcclEmuError
from xccl_emu.check.trial import Trial
from xccl_emu.machine import driver
from xccl_emu.native.host import Real


@dataclass
class Runs(w.Printed):
    """What came of some runs on real memory."""

    n_runs: Annotated[int, "how often it ran"] = 0
    wrong: Annotated[int, "runs after which bytes were not as expected"] = 0
    ended_by: Annotated[dict[str, int], "runs that did not come to their end, by what ended them"] = field(
        default_factory=dict
    )
    run_seconds: Annotated[float, "time of the runs alone, on this computer or GPU; pods that run at once share it"] = (
        0.0
    )
    seconds: w.Seconds = 0.0

    @property
    def n_bad(self) -> Annotated[int, "runs that were wrong or failed"]:
        """Runs that were wrong or failed."""
        return self.wrong + sum(self.ended_by.values())


def repeat(trial: Trial, on: Real, runs: int, progress: Callable[[Runs], None] = lambda _: None) -> Runs:
    """Run a trial's pod, which must be small and not have run, this often; ``progress`` is called after each.

    It goes on after a run that fails.  Ctrl-C ends it between two runs.

    Raises as `Real` does, and CapacityError for a pod that is not small.
    """
    pod, done, started = trial.pod, Runs(), time.perf_counter()
    pod.check_runnable()
    on.look(pod)
    for ended, seconds in on.several(pod, pod.snapshot(), runs):
        done.n_runs += 1
        done.run_seconds += seconds
        try:
            driver.raise_for(pod, ended)
            done.wrong += bool(trial.wrong_bytes())
        except XcclEmuError as error:
            first = str(error).partition("\n")[0]
            done.ended_by[first] = done.ended_by.get(first, 0) + 1
        done.seconds = time.perf_counter() - started
        progress(done)
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
