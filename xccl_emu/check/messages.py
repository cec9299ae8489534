"""What messages of search and sampling say alike."""

from collections.abc import Sequence

from xccl_emu.check.trial import Expected, Trial
from xccl_emu.lang import Site
from xccl_emu.machine.device.layout import AT_END, STATUS, STATUS_DONE
from xccl_emu.machine.pod import Pod

_FLAG_WRITES = ("store", "atomic_add", "put", "add")
"""Operations that write words whole, as flags are written."""


def core_name(pod: Pod, core: int) -> str:
    """A core by its global number, for example ``die1.core0``."""
    die, on_die = divmod(core, pod.spec.cores_per_die)
    return f"die{die}.core{on_die}"


def is_due(trial: Trial, expected: Expected) -> bool:
    """Have all cores returned that answer for these bytes, as the pod stands?"""
    return _returned(trial.pod, trial.owners(expected))


def moment(trial: Trial, expected: Expected) -> str:
    """When bytes were judged that are wrong as the pod stands."""
    if not expected.cores or _returned(trial.pod, tuple(trial.pod.active_cores())):
        return "when all kernels were done"
    owners = [core_name(trial.pod, core) for core in expected.cores]
    return f"when {'its owner' if len(owners) == 1 else 'its owners'} {', '.join(owners)} had returned"


def hint(pod: Pod, sides: Sequence[tuple[int, int]]) -> str:
    """A line more for a race of two instructions (core, site), if one looks like a load that waits for a flag."""
    one, other = (_site(pod, core, site) for core, site in sides)
    for read, write in ((one, other), (other, one)):
        if read is not None and write is not None and read.operation == "load" and not read.sync:
            if write.operation in _FLAG_WRITES:
                return f"\n  if `{read.text}` waits for a flag, it wants a name: load(..., sync=\"...\")"
    return ""


def _site(pod: Pod, core: int, site: int) -> Site | None:
    launch = pod.launch_of(core)
    return None if launch is None or site == AT_END else launch.kernel.sites[site]


def _returned(pod: Pod, cores: tuple[int, ...]) -> bool:
    return all(pod.state[pod.core_base(core) + STATUS] == STATUS_DONE for core in cores)
