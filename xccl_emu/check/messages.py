"""What messages of search and sampling say alike."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check import verdict
from xccl_emu.check.device.accesses import NAMED, TAKEN
from xccl_emu.check.trial import Expected, Trial
from xccl_emu.machine import report
from xccl_emu.machine.device import layout as at
from xccl_emu.machine.pod import Pod

_KINDS = {
    at.ERR_ACCESS: verdict.AREA_VIOLATION, at.ERR_FAIL: verdict.ASSERTION, at.ERR_LEFT_SET: verdict.LEFTOVER,
    at.ERR_ARITHMETIC: verdict.ARITHMETIC, at.ERR_UNDEFINED: verdict.UNDEFINED,
}  # fmt: skip

SET_AGAIN = "is set again, and nothing orders that behind the wait for it"
"""Said of an event that could be set while it is still set, if pipes went otherwise and queues were deep."""

_FLAG_WRITES = ("store", "atomic_add", "put", "add")
"""Operations that write words whole, as flags are written."""


def error_kind(pod: Pod) -> str:
    """The kind of violation that the machine has recorded."""
    if report.is_fault(pod):
        return verdict.KERNEL_FAULT
    return _KINDS.get(int(pod.state[at.ERROR]), verdict.BAD_INSTRUCTION)


def race_kind(pod: Pod, address: int, both_write: bool) -> str:
    """Torn metadata if one of the two reads the metadata area, else a data race."""
    spec = pod.spec
    in_meta = spec.meta_start <= address % spec.die_bytes < spec.managed_start
    in_meta = in_meta and address < spec.memory_bytes
    return verdict.TORN_METADATA if in_meta and not both_write else verdict.DATA_RACE


def wrong_byte(pod: Pod, expected: Expected, there: NDArray[np.uint8]) -> tuple[int, str]:
    """The first byte of those that are there which is not as expected, as address and in words; -1 if all are right."""
    wrong = np.flatnonzero(there != np.frombuffer(expected.data, np.uint8))
    if not wrong.size:
        return -1, ""
    i = int(wrong[0])
    place = f"{report.symbolic_byte(pod, expected.address + i)}, byte {i} of {len(expected.data)}"
    told = f"{expected.name} is wrong at {place}: {there[i]:#04x} instead of {expected.data[i]:#04x}"
    return expected.address + i, told


def wrong_bits(trial: Trial, expected: Expected) -> str:
    """The first wrong byte as the pod stands, when it was judged, and who wrote there; empty if all are right."""
    first, told = wrong_byte(trial.pod, expected, trial.pod.memory[expected.address :][: len(expected.data)])
    return told and f"{told}, judged {moment(trial, expected)}; {report.last_writer(trial.pod, first)}"


def not_done(pod: Pod) -> list[str]:
    """Each core whose kernel has not returned, and what it asks for."""
    return [report.request(pod, core) for core in report.running(pod)]


def words_of_sites(pod: Pod) -> NDArray[np.int64]:
    """`NAMED` and `TAKEN` of each kernel and site, [kernels * MAX_SITES]."""
    words = np.zeros(at.MAX_KERNELS * at.MAX_SITES, np.int64)
    for number, kernel in enumerate(pod.kernels):
        first = number * at.MAX_SITES
        known = [(NAMED if site.sync else 0) | (TAKEN if site.used else 0) for site in kernel.sites]
        words[first : first + len(known)] = known
    return words


def core_name(pod: Pod, core: int) -> str:
    """A core by its global number, for example ``die1.core0``."""
    die, on_die = divmod(core, pod.spec.cores_per_die)
    return f"{pod.spec.home(die)}.core{on_die}"


def is_due(trial: Trial, expected: Expected) -> bool:
    """Have all owners of these bytes returned, as the pod stands?"""
    return _returned(trial.pod, trial.owners(expected))


def moment(trial: Trial, expected: Expected) -> str:
    """When bytes were judged that are wrong as the pod stands."""
    if not expected.cores or _returned(trial.pod, tuple(trial.pod.active_cores())):
        return "when all kernels were done"
    owners = [core_name(trial.pod, core) for core in expected.cores]
    default = " (an owner by default: owners= names others)" if expected.by_default else ""
    return f"when {'its owner' if len(owners) == 1 else 'its owners'} {', '.join(owners)} had returned{default}"


def due(trial: Trial) -> dict[str, tuple[str, ...]]:
    """Names of the expected bytes, by what makes them due: the return of a die's kernels, or cores, or the very end."""
    told = dict[str, tuple[str, ...]]()
    for each in trial.expected:
        when = f"{_whose(trial.pod, each.cores)} returned" if each.cores else "everything drained"
        told[when] = (*told.get(when, ()), each.name)
    return told


def _whose(pod: Pod, cores: tuple[int, ...]) -> str:
    """Dies of which these are all cores that run a kernel, else the cores."""
    per_die = pod.spec.cores_per_die
    dies = sorted({core // per_die for core in cores})
    if sorted(cores) == [core for core in pod.active_cores() if core // per_die in dies]:
        return ", ".join(map(pod.spec.home, dies))
    return ", ".join(core_name(pod, core) for core in cores)


def hint(pod: Pod, sides: Sequence[tuple[int, int]]) -> str:
    """A line more for a race of two instructions (core, site), if one looks like a load that waits for a flag."""
    one, other = (report.site_of(pod, core, site) for core, site in sides)
    for read, write in ((one, other), (other, one)):
        if read is not None and write is not None and read.operation == "load" and not read.sync:
            if write.operation in _FLAG_WRITES:
                return f"\n  if `{read.text}` waits for a flag, it wants a name: load(..., sync=\"...\")"
    return ""


def _returned(pod: Pod, cores: tuple[int, ...]) -> bool:
    return all(pod.state[pod.core_base(core) + at.STATUS] == at.STATUS_DONE for core in cores)
