"""A protocol on real memory again and again, each result held against what must be there."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from xccl_emu.base.errors import XcclEmuError
from xccl_emu.check.trial import Trial
from xccl_emu.machine import driver
from xccl_emu.native.host import Real


@dataclass
class Rounds:
    """What came of some rounds."""

    rounds: int = 0
    wrong: int = 0
    """Rounds after which bytes were not as expected."""
    failed: dict[str, int] = field(default_factory=dict)
    """Rounds that did not come to their end, by what ended them."""
    seconds: float = 0.0
    """Of the runs alone, of this computer or GPU; of pods that run at once, each has its share."""
    total_seconds: float = 0.0

    @property
    def n_bad(self) -> int:
        """Rounds that were wrong or failed."""
        return self.wrong + sum(self.failed.values())


def repeat(trial: Trial, on: Real, rounds: int, progress: Callable[[Rounds], None] = lambda _: None) -> Rounds:
    """Run a trial's pod, which must be small and not have run, so many times; ``progress`` is called after each.

    It goes on after a round that fails.  Ctrl-C ends it between two rounds.

    Raises as `Real` does, and CapacityError for a pod that is not small.
    """
    pod, done, started = trial.pod, Rounds(), time.perf_counter()
    pod.check_runnable()
    on.look(pod)
    for ended, seconds in on.several(pod, pod.snapshot(), rounds):
        done.rounds += 1
        done.seconds += seconds
        try:
            driver.raise_for(pod, ended)
            done.wrong += bool(trial.wrong_bytes())
        except XcclEmuError as error:
            first = str(error).partition("\n")[0]
            done.failed[first] = done.failed.get(first, 0) + 1
        done.total_seconds = time.perf_counter() - started
        progress(done)
    return done
