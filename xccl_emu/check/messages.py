"""What messages of search and sampling say alike."""

from xccl_emu.check.trial import Expected, Trial
from xccl_emu.machine.layout import STATUS, STATUS_DONE
from xccl_emu.machine.pod import Pod


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


def _returned(pod: Pod, cores: tuple[int, ...]) -> bool:
    return all(pod.state[pod.core_base(core) + STATUS] == STATUS_DONE for core in cores)
