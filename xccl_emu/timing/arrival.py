"""Who comes when, and how long an operator takes: one definition for all of them.

Ranks are not ready together: what they did before leaves them apart, by a normal distribution.  A rank's latency is
from its own start to its own end, so an operator that waits for the last rank takes longer on those that were early.
An operator that follows another at once finds its ranks as that one left them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xccl_emu.errors import ConfigError
from xccl_emu.timing.run import Timing

Microseconds = NDArray[np.float64]


def arrivals(ranks: int, spread_us: float, seed: int | Sequence[int]) -> Microseconds:
    """[ranks] microseconds from the first start: quantiles of a normal distribution, dealt to the ranks.

    spread_us: its standard deviation.  Raises ConfigError for fewer than one rank or a negative spread.
    """
    if ranks < 1 or not spread_us >= 0:
        raise ConfigError(f"ranks={ranks}, spread_us={spread_us}: must be at least 1, and at least 0")
    quantiles = np.array([NormalDist().inv_cdf((i + 0.5) / ranks) for i in range(ranks)])
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
        """Over ranks."""
        return float(self.us.mean())
