"""Who comes when, and how long an operator takes: one definition for all of them.

Ranks are not ready together: what they did before leaves them apart.  How far is triangular, as the sum of two equal
delays that have an end each: with the tail of a normal distribution the last of 256 ranks would be twice as late
as the last of 8, and Table 7's rows do not grow so (`xccl-emu fit` says by how much).  A rank's latency is
from its own start to its own end, so an operator that waits for the last rank takes longer on those that were early.
An operator that follows another at once finds its ranks as that one left them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.timing.run import Timing

Microseconds = NDArray[np.float64]

SPREADS = 6**0.5
"""How many standard deviations the last of very many ranks is after the mean, and the first before it."""


def arrivals(ranks: int, spread_us: float, seed: int | Sequence[int]) -> Microseconds:
    """[ranks] microseconds from the first start: quantiles of the distribution, dealt to the ranks.

    spread_us: its standard deviation.  Raises ConfigError for fewer than one rank or a negative spread.
    """
    if ranks < 1 or not spread_us >= 0:
        raise ConfigError(f"ranks={ranks}, spread_us={spread_us}: must be at least 1, and at least 0")
    below = (np.arange(ranks) + 0.5) / ranks
    quantiles = np.where(below < 0.5, np.sqrt(2 * below) - 1, 1 - np.sqrt(2 * (1 - below))) * SPREADS
    starts: Microseconds = np.random.default_rng(seed).permutation(quantiles - quantiles[0]) * spread_us
    return starts


def on_cores(starts_us: ArrayLike, cores: Sequence[int], cores_per_die: int, first_die: int = 0) -> dict[int, float]:
    """The ``start_us`` of `VirtualTime` for dies that follow each other, whose cores all start together."""
    starts = np.asarray(starts_us, np.float64)
    return {
        (first_die + die) * cores_per_die + core: float(start) for die, start in enumerate(starts) for core in cores
    }


@dataclass(frozen=True, eq=False)
class Taken:
    """How long an operator took on each rank."""

    starts_us: Microseconds
    """[ranks]"""
    ends_us: Microseconds
    """[ranks]"""

    @classmethod
    def of(cls, timing: Timing, starts_us: Microseconds) -> "Taken":
        """On ranks that are on the first dies, and started so."""
        ends = timing.by_die_us
        return cls(starts_us, np.array([ends[rank] for rank in range(len(starts_us))]))

    @property
    def us(self) -> Microseconds:
        """[ranks] from the own start to the own end."""
        return self.ends_us - self.starts_us

    @property
    def mean_us(self) -> float:
        """Return the mean over ranks."""
        return float(self.us.mean())
