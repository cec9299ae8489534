"""What a table leaves out: cores that nothing depends on, and steps that a wrong element does not come from."""

from collections.abc import Iterable, Iterator

from xccl_emu.check import verdict
from xccl_emu.check.messages import wrong_element
from xccl_emu.check.trial import Trial
from xccl_emu.check.witness.trace import RunTrace, TracedAccess, TraceStep
from xccl_emu.lang import operations as ops

_GROUP = ("arrive", "await_group")
_READS = ops.names(ops.LOOKS | ops.ATOMICS | ops.BUFFER_READS)

Range = tuple[int, int]
"""First byte, and the one after the last."""


def cores_that_matter(trace: RunTrace) -> set[int]:
    """After a deadlock: blocked cores, and all that wrote what these have read, or what those have, and so on."""
    matter = {one.step.core for one in trace.waiting}
    need = [(one.step.address, one.step.address + 8) for one in trace.waiting if one.step.address is not None]
    meet = {step.core for step in (*trace.steps, *(one.step for one in trace.waiting)) if step.operation in _GROUP}
    for step in reversed(trace.steps):
        wrote = {write.by.core for write in map(trace.writes.__getitem__, step.landed) if _meets(write.range, need)}
        matter |= wrote | (meet if meet & (matter | wrote) else set())
        if step.core in matter:
            need += [_range(each) for each in step.accesses if not each.writes and trace.die_of(each.start) >= 0]
    return matter


def element(trial: Trial, violation: verdict.Violation) -> Range | None:
    """The wrong element that a message is about, where the run of a trial has ended; None if it is about none."""
    if violation.kind != verdict.WRONG_BITS:
        return None
    named = (each for each in trial.expected if violation.message.startswith(f"{each.name} is wrong at"))
    return next((found for each in named if (found := wrong_element(trial, each))), None)


def steps_that_matter(trace: RunTrace, wrong: Range) -> set[int]:
    """Numbers of the steps that wrote an element, or what it was made of, and of those that read it for that."""
    return set(_Slice(trace, wrong).numbers())


class _Slice:
    """A walk from the end of a run to its beginning, along where bytes come from."""

    def __init__(self, trace: RunTrace, wrong: Range) -> None:
        self._trace, self._wrong = trace, wrong
        self._need = [wrong]
        self._writes: set[int] = set()
        self._issued: set[int] = set()
        self._cores: set[int] = set()
        """Cores whose registers matter: their kernels gave addresses or values."""

    def numbers(self) -> Iterator[int]:
        """The steps, the last one first."""
        for step in reversed(self._trace.steps):
            landed = {n for n in step.landed if _meets(self._trace.writes[n].range, self._need)}
            self._writes |= landed
            if self._carries_out(step) or self._reads_for_it(step) or step.number in self._issued or landed:
                yield step.number

    def _carries_out(self, step: TraceStep) -> bool:
        """Return True if a step writes what is needed; what it reads for that is needed from here on."""
        left = [self._trace.writes[n].range for n in step.left if n in self._writes]
        inside = [_range(each) for each in step.accesses if each.writes and self._trace.die_of(each.start) < 0]
        wrote = left + [part for each in inside for part in _common(each, self._need)]
        if not wrote:
            return False
        self._need = [part for one in self._need for part in _without(one, inside)]
        self._need += _sources(step.accesses, wrote)
        self._issued.add(step.instruction)
        self._cores.add(step.core)
        return True

    def _reads_for_it(self, step: TraceStep) -> bool:
        """Return True if a kernel reads what it makes an address or a value of."""
        taken = step.pipe == "scalar" and step.operation in _READS and step.core in self._cores
        if not taken or step.issues or (step.operation.startswith("poll") and not (step.source and step.source.used)):
            return False
        self._need += [_range(each) for each in step.accesses if not each.writes]
        return True


def _range(access: TracedAccess) -> Range:
    return access.start, access.start + access.nbytes


def _common(one: Range, others: Iterable[Range]) -> list[Range]:
    both = ((max(one[0], start), min(one[1], end)) for start, end in others)
    return [(start, end) for start, end in both if start < end]


def _meets(one: Range, others: Iterable[Range]) -> bool:
    return bool(_common(one, others))


def _without(one: Range, taken: Iterable[Range]) -> list[Range]:
    """Return what is left of a range."""
    left = [one]
    for start, end in taken:
        left = [part for a, b in left for part in ((a, min(b, start)), (max(a, end), b)) if part[0] < part[1]]
    return left


def _sources(accesses: tuple[TracedAccess, ...], wrote: list[Range]) -> list[Range]:
    """Return where a step's bytes come from: of a copy the same part of what it reads, else all that it reads."""
    read = [_range(each) for each in accesses if not each.writes]
    target = [_range(each) for each in accesses if each.writes]
    if len(read) == len(target) == 1 and read[0][1] - read[0][0] == target[0][1] - target[0][0]:
        by = read[0][0] - target[0][0]
        return [(start + by, end + by) for each in wrote for start, end in _common(each, target)]
    return read
