"""What memory a protocol used, as some drawn runs show: slots written once, and counters that came near no wrap.

A verdict rests on none of it: which word is written how often is read off runs that have been judged already.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from xccl_emu.check.reach import MemoryUse
from xccl_emu.check.trial import Checkable, Trial
from xccl_emu.check.witness.trace import RunTrace, TraceStep
from xccl_emu.check.witness.tracer import drawn

_TRIES = 4_000
"""How many actions are tried in each run; one that is not over then is left out."""
_WORD_BYTES = 4
_HALF = 1 << 31
"""Where words of 4 bytes wrap as signed numbers, and twice that as unsigned ones."""
_NEAR = 1 << 16
"""A counter that lacks no more to either is near its wrap."""


def memory_of(checkable: Checkable, order: str, without: Collection[str] = ()) -> MemoryUse:
    """Return what two runs show: writes are seen soon in one, and as late as can be in the other."""
    seen = _Seen(checkable.build(order, without))
    for late in (False, True):
        run = drawn(checkable.build(order, without), late=late, tries=_TRIES)
        if run.end == "done":
            seen.look(run)
    return MemoryUse(tuple(sorted(seen.used_once())), tuple(sorted(seen.far_from_wrap())))


@dataclass
class _Seen:
    """What runs did to regions, which are what labels name, on all dies together."""

    trial: Trial
    writers: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """How many requests wrote to a region that is neither metadata nor a result, in one run at most."""
    reused: set[str] = field(default_factory=set)
    """Regions with a word that two requests wrote."""
    awaited: set[str] = field(default_factory=set)
    """Regions that reads synchronize with."""
    counted: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """What stores of 4 bytes wrote to a region, without zeros."""

    def look(self, run: RunTrace) -> None:
        """Add a run."""
        by, requests = dict[int, int](), defaultdict[str, set[int]](set)
        for write in run.writes:
            region, who = self._slots(write.address), write.by.instruction
            if not region:
                continue
            requests[region].add(who)
            for word in range(write.address // _WORD_BYTES, -(-(write.address + write.nbytes) // _WORD_BYTES)):
                if by.setdefault(word, who) != who:
                    self.reused.add(region)
        for region, all_of_it in requests.items():
            self.writers[region] = max(self.writers[region], len(all_of_it))
        for step in run.steps:
            self._count(step)

    def used_once(self) -> set[str]:
        """Regions that several requests wrote to, and none where another had."""
        results = {self._region(address) for each in self.trial.expected for address, _ in each.ranges}
        several = {region for region, writers in self.writers.items() if writers > 1}
        return several - self.reused - results

    def far_from_wrap(self) -> set[str]:
        """Regions with words of 4 bytes that count, are waited for, and came near no wrap."""
        counts = {region: values for region, values in self.counted.items() if len(values) > 1}
        return {one for one in self.awaited & set(counts) if all(-value % _HALF > _NEAR for value in counts[one])}

    def _count(self, step: TraceStep) -> None:
        for access in step.accesses:
            if access.synchronizes and not access.writes:
                self.awaited.add(self._region(access.start))
        if step.operation == "store" and step.nbytes == _WORD_BYTES and not step.switched_off and int(step.value, 0):
            assert step.address is not None, "a store has an address"
            self.counted[self._region(step.address)].add(int(step.value, 0))

    def _slots(self, address: int) -> str:
        """Return the region of an address that is no metadata; empty where nothing has a name."""
        spec = self.trial.pod.spec
        is_meta = spec.meta_start <= address % spec.die_bytes < spec.managed_start
        return "" if is_meta else self._region(address)

    def _region(self, address: int) -> str:
        """The label of an address without die, element and offset: ``inbox`` of ``die1.inbox[3]+0x8``."""
        name = self.trial.pod.labels.name(address)
        return name.partition("+")[0].partition("[")[0].partition(".")[2]
