"""What synchronizations cost in virtual time: a run with them minus a run without them.

A run without a synchronization has it switched off, as in a check: a poll still reads its word once, and all else takes
no time.  Its time is a price only if the kernels do the same work without it: if they move as many bytes and compute on
as many elements.  Prices do not add up, since waits overlap, and may be below 0, since what waits leaves a queue to
others.

An interval is made as for a row of a bench: each constant of the model is set to the ends of its range, all others left
alone, and what the price then moves is added in squares.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from xccl_emu.base import words as w
from xccl_emu.base.errors import CapacityError, DeadlockError, RunError, UnfinishedError
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol.case import Case
from xccl_emu.timing.costs import Costs, ends, in_squares
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.fabric import Fabric
from xccl_emu.timing.run import VirtualTime
from xccl_emu.timing.topologies import CLOUDMATRIX384

DEADLOCK, FAILS, ENDLESS, OTHER_WORK = "deadlock", "the run fails", "the run has no end", "other work is done"
"""Why there is no price: how it goes without the synchronization."""
_PATIENCE = 16
"""How many times as many actions as with it are waited for."""
_OF_OPERATORS = ("skew_us", "launch_us")
"""Constants that the run of a case does not have."""

Weaker = tuple[int, int, str]
"""Number of a kernel in its pod, number of a site in it, and what that asks for instead (`Pod.weaken`)."""
Work = tuple[dict[str, int], int]
"""Bytes that each pipe moved, and elements that were computed on."""
Outcome = tuple[float | str, Work | None]
"""Microseconds and what was done; or why there are none."""


@dataclass(frozen=True)
class Price(w.Printed):
    """What one or several synchronizations cost in virtual time."""

    us: Annotated[float | None, "virtual time with it minus without it; null if `why` says why there is none"]
    why: Annotated[str, "how it goes without it, where that gives no price"] = ""
    low_us: Annotated[float | None, "lower end of the 80% interval of `us`; null if it has none"] = None
    high_us: Annotated[float | None, "upper end of it"] = None


class Prices:
    """Prices of the synchronizations of a case, with those ``without`` switched off all the time.

    banded: with intervals.  data: as `VirtualTime` has it.  ConfigError if virtual time cannot run the case.
    """

    def __init__(
        self, case: Case, without: Collection[str] = (), fabric: Fabric = CLOUDMATRIX384, costs: Costs | None = None,
        *, banded: bool = True, data: bool = True,
    ) -> None:  # fmt: skip
        self._case, self._without, self._fabric, self._data = case, frozenset(without), fabric, data
        usual = costs or Costs()
        moved = {name: each for name, each in ends(usual).items() if banded and name[0] not in _OF_OPERATORS}
        self._costs = [usual, *moved.values()]
        self._actions = 0
        VirtualTime(fabric, usual).look(self._pod(self._without))
        self._whole = [*self._runs(self._without)]

    @property
    def latency_us(self) -> float | None:
        """Virtual time with all of them; None if such a run has no end."""
        us, _ = self._whole[0]
        return None if isinstance(us, str) else us

    @property
    def reached(self) -> list[str]:
        """The names that the run with all of them comes to, in the order of the kernels' sources."""
        pod = self._pod(self._without)
        names, costs = self._case.syncs, self._costs[0]
        policy = pod.policy = VirtualTime(self._fabric, costs, log=True, data=self._data, sites=names)
        pod.run()
        timing = policy.timing
        rows = {(row[tl.RECORD_CORE], row[tl.RECORD_SITE]): row for row in timing.records}
        there = {site.sync for row in rows.values() if (site := timing.site(row)) is not None}
        return [name for name in names if name in there]

    def of(self, names: Collection[str], weaker: Sequence[Weaker] = ()) -> Price:
        """Return the price of some synchronizations together, and of asking for more than ``weaker`` says."""
        found = map(_price, self._whole, self._runs(self._without | {*names}, weaker))
        us = next(found)
        if isinstance(us, str):
            return Price(None, us)
        ends_us = [*found]
        moves = [each - us for each in ends_us if not isinstance(each, str)]
        if len(moves) < len(ends_us) or not moves:
            return Price(us)
        down, up = in_squares(moves)
        return Price(us, "", us + down, us + up)

    def _runs(self, without: Collection[str], weaker: Sequence[Weaker] = ()) -> Iterator[Outcome]:
        """Yield how it goes without some names, with the usual costs, then with each constant at each end."""
        pod, kept = self._pod(without, weaker), None
        with suppress(CapacityError):  # a pod that is not small is made again for each run
            kept = pod.snapshot()
        for number, costs in enumerate(self._costs):
            if kept is not None:
                pod.restore(kept)
            elif number:
                pod = self._pod(without, weaker)
            yield self._outcome(pod, costs)

    def _pod(self, without: Collection[str], weaker: Sequence[Weaker] = ()) -> Pod:
        pod = self._case.build("sc", without, payload=self._data).pod
        for kernel, site, to in weaker:
            pod.weaken(kernel, site, to)
        return pod

    def _outcome(self, pod: Pod, costs: Costs) -> Outcome:
        policy = pod.policy = VirtualTime(self._fabric, costs, data=self._data)
        try:
            stats = pod.run(self._watch)
        except DeadlockError:
            return DEADLOCK, None
        except UnfinishedError:
            return ENDLESS, None
        except RunError:
            return FAILS, None
        self._actions = self._actions or stats.actions
        return policy.timing.latency_us, (stats.bytes_by_pipe, stats.vector_elements)

    def _watch(self, actions: int) -> None:
        if self._actions and actions > _PATIENCE * self._actions:
            raise UnfinishedError(ENDLESS)


def _price(whole: Outcome, cut: Outcome) -> float | str:
    """Microseconds more than without, in whole picoseconds; or why they are no price."""
    if isinstance(whole[0], str):
        return whole[0]
    if isinstance(cut[0], str):
        return cut[0]
    return round(whole[0] - cut[0], 6) if whole[1] == cut[1] else OTHER_WORK
