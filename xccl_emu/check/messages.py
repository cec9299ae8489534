"""What messages of search and sampling say alike."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check import verdict
from xccl_emu.check.device.accesses import NAMED, TAKEN
from xccl_emu.check.trial import Expected, Trial
from xccl_emu.lang import operations as ops
from xccl_emu.machine import report
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.pod import Pod

_KINDS = {
    ms.ERR_ACCESS: verdict.AREA_VIOLATION, ms.ERR_FAIL: verdict.ASSERTION, ms.ERR_LEFT_SET: verdict.LEFTOVER,
    ms.ERR_ARITHMETIC: verdict.ARITHMETIC, ms.ERR_UNDEFINED: verdict.UNDEFINED,
}  # fmt: skip

SET_AGAIN = "is set again, and nothing orders that after the wait for it"
"""Said of an event that could be set while it is still set, if pipes went otherwise and queues were deep."""

_RANGES = 4
"""How many ranges of rows a message names."""

_LOADS = ops.names(ops.LOADS)
_FLAG_WRITES = ops.names(ops.WRITES & ~ops.COPIES)
"""Operations that write words whole, as flags are written."""


def too_long(seconds: float) -> str:
    """Why what has a limit in seconds came to no end."""
    return f"more than {round(seconds, 2) or seconds:g} seconds"


def error_kind(pod: Pod) -> str:
    """The kind of violation that the machine has recorded.

    Raises PointerError where it is none of the kernel's, but its compiler's.
    """
    if report.is_refused(pod):
        raise report.violation(pod)
    if report.is_fault(pod):
        return verdict.KERNEL_FAULT
    if report.lacks_right(pod):
        return verdict.MISSING_RIGHT
    return _KINDS.get(int(pod.state[ms.ERROR]), verdict.BAD_INSTRUCTION)


def race_kind(pod: Pod, address: int, both_write: bool) -> str:
    """Torn metadata if one of the two reads the metadata area, else a data race."""
    spec = pod.spec
    in_meta = spec.meta_start <= address % spec.die_bytes < spec.managed_start
    in_meta = in_meta and address < spec.memory_bytes
    return verdict.TORN_METADATA if in_meta and not both_write else verdict.DATA_RACE


def wrong_byte(pod: Pod, expected: Expected, there: NDArray[np.uint8]) -> tuple[int, str]:
    """The first byte of those that are there which is not as expected, as address and in words; -1 if all are right."""
    if expected.judge is not None:
        said = expected.judge.wrong(there.tobytes())
        return (expected.address, f"{expected.name}: {said}") if said else (-1, "")
    wrong = np.flatnonzero(there != np.frombuffer(expected.data, np.uint8))
    if not wrong.size:
        return -1, ""
    first, size = int(wrong[0]), expected.dtype.itemsize
    elements = np.unique(wrong // size)
    at = expected.address + int(elements[0]) * size
    which = _which(expected, int(elements[0]))
    values = _values(expected, int(elements[0]) * size, there)
    said = f"{expected.name} is wrong at {report.symbolic_byte(pod, at)}, {which}: {values}"
    return expected.address + first, f"{said}{_how_many(expected, elements)}"


def wrong_element(trial: Trial, expected: Expected) -> tuple[int, int] | None:
    """The first element that is not as expected in the pod now: its first byte and the one after its last."""
    first, _ = wrong_byte(trial.pod, expected, np.frombuffer(expected.there(trial.pod.memory), np.uint8))
    start = first - (first - expected.address) % expected.dtype.itemsize
    return None if first < 0 else (start, start + expected.dtype.itemsize)


def _which(expected: Expected, element: int) -> str:
    """An element of expected bytes by its index and type."""
    if expected.dtype == np.uint8 and len(expected.shape) < 2:
        return f"byte {element} of {len(expected.data)}"
    if len(expected.shape) < 2:
        return f"element {element} of {len(expected.data) // expected.dtype.itemsize} ({expected.dtype})"
    row, *more = (int(i) for i in np.unravel_index(element, expected.shape))
    return f"row {row} of {expected.shape[0]}, element {', '.join(map(str, more))} ({expected.dtype})"


def _values(expected: Expected, at: int, there: NDArray[np.uint8]) -> str:
    """Return what an element is and should be; by its bytes where its value does not say that it is another."""
    both = [raw[at : at + expected.dtype.itemsize] for raw in (there.tobytes(), expected.data)]
    one, other = (f"0x{raw[::-1].hex()}" for raw in both)
    if expected.dtype != np.uint8:
        said = [str(np.frombuffer(raw, expected.dtype)[0]) for raw in both]
        one, other = said if said[0] != said[1] else (one, other)
    return f"{one} instead of {other}"


def _how_many(expected: Expected, elements: NDArray[np.int64]) -> str:
    """Return how many elements are wrong if more than one is, and in which rows."""
    n, rows = len(expected.data) // expected.dtype.itemsize, expected.shape[0] if len(expected.shape) > 1 else 0
    if len(elements) < 2:
        return ""
    unit = "bytes" if expected.dtype == np.uint8 else "elements"
    said = f"{len(elements)} of {n} {unit} are wrong"
    if not rows:
        return f" ({said})"
    wrong = np.unique(elements // (n // rows))
    right = np.setdiff1d(np.arange(rows), wrong)
    return f" ({said}: rows {_ranges(wrong)} wrong{f', rows {_ranges(right)} right' if right.size else ''})"


def _ranges(numbers: NDArray[np.int64]) -> str:
    """Numbers as ``0-2, 5``, of many ranges the first."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    said = [f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    return ", ".join(said[:_RANGES] + ["..."] * (len(said) > _RANGES))


def wrong_bits(trial: Trial, expected: Expected) -> str:
    """The first wrong byte in the pod now, when it was judged, and who wrote there; empty if all are right."""
    first, said = wrong_byte(trial.pod, expected, np.frombuffer(expected.there(trial.pod.memory), np.uint8))
    return said and f"{said}, judged {moment(trial, expected)}; {report.last_writer(trial.pod, first)}"


def not_done(pod: Pod) -> list[str]:
    """Each core whose kernel has not returned, and what it asks for."""
    return [report.request(pod, core) for core in report.running(pod)]


def words_of_sites(pod: Pod) -> NDArray[np.int64]:
    """`NAMED` and `TAKEN` of each kernel and site, [kernels * MAX_SITES]."""
    words = np.zeros(ms.MAX_KERNELS * ms.MAX_SITES, np.int64)
    for number, kernel in enumerate(pod.kernels):
        first = number * ms.MAX_SITES
        known = [(NAMED if site.sync else 0) | (TAKEN if site.used else 0) for site in kernel.sites]
        words[first : first + len(known)] = known
    return words


def core_name(pod: Pod, core: int) -> str:
    """A core by its global number, for example ``die1.core0``."""
    die, on_die = divmod(core, pod.spec.cores_per_die)
    return f"{pod.spec.home(die)}.core{on_die}"


def is_due(trial: Trial, expected: Expected) -> bool:
    """Have all owners of these bytes returned by now?"""
    return _returned(trial.pod, trial.owners(expected))


def moment(trial: Trial, expected: Expected) -> str:
    """Say when bytes were judged that are wrong in the pod now."""
    if not expected.cores or _returned(trial.pod, tuple(trial.pod.active_cores())):
        return "when all kernels were done"
    owners = [core_name(trial.pod, core) for core in expected.cores]
    said = f"when {'its owner' if len(owners) == 1 else 'its owners'} {', '.join(owners)} had returned"
    if expected.by_default:
        said += " (by default: owners= names others, owners='drained' or --owners drained waits for all kernels)"
    return said


def due(trial: Trial) -> dict[str, tuple[str, ...]]:
    """Names of the expected bytes, by what makes them due: the return of a die's kernels, or cores, or the very end."""
    said = dict[str, tuple[str, ...]]()
    for each in trial.expected:
        when = f"{_whose(trial.pod, each.cores)} returned" if each.cores else "everything drained"
        said[when] = (*said.get(when, ()), each.name)
    return said


def _whose(pod: Pod, cores: tuple[int, ...]) -> str:
    """The dies, if these are all of their cores that run a kernel; else the cores."""
    per_die = pod.spec.cores_per_die
    dies = sorted({core // per_die for core in cores})
    if sorted(cores) == [core for core in pod.active_cores() if core // per_die in dies]:
        return ", ".join(map(pod.spec.home, dies))
    return ", ".join(core_name(pod, core) for core in cores)


def hint(pod: Pod, sides: Sequence[tuple[int, int]]) -> str:
    """A line more for a race of two instructions (core, site), if one is a load by which a loop waits for a flag."""
    one, other = (report.site_of(pod, core, site) for core, site in sides)
    for read, write in ((one, other), (other, one)):
        if read is not None and write is not None and read.operation in _LOADS and not read.sync and read.looped_on:
            if write.operation in _FLAG_WRITES:
                return f"\n  if `{read.text}` waits for a flag, it wants a name: {read.operation}(..., sync=\"...\")"
    return ""


def _returned(pod: Pod, cores: tuple[int, ...]) -> bool:
    return all(pod.state[pod.core_base(core) + ms.STATUS] == ms.STATUS_DONE for core in cores)
