"""Who owns expected bytes, as a protocol function names them."""

import re
from collections.abc import Iterable, Iterator

import numpy as np

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import items
from xccl_emu.lang import Kernel
from xccl_emu.machine.pod import Pod

Owners = int | str | Iterable[int | str]
"""``"die1"`` or ``"cpu0"`` for its cores that run a kernel, ``"die1.core0"``, the number of a core; or several such.
None of these: what `owners_of` says.  `DRAINED`: nobody."""

DRAINED = "drained"
"""In place of owners: the bytes are judged when all kernels are done and everything has drained."""

RETURNED = "returned"
"""How a run reads bytes for which nobody names owners, unless ``--owners drained`` is said: as `owners_of` says."""

_TEXT = re.compile(r"(die|cpu)(\d{1,5})(?:\.core(\d{1,5}))?")


def owners_of(pod: Pod, owners: Owners, ranges: Iterable[tuple[int, int]], unnamed: str = RETURNED) -> tuple[int, ...]:
    """Global numbers of the cores whose return makes bytes due; none for `DRAINED`.

    Where nobody is named, these are the kernels on the die where the bytes lie; if none runs there, those that have
    leave to write them; none if ``unnamed`` is `DRAINED`.  ConfigError for a core that runs no kernel.
    """
    said = unnamed if owners == () else owners
    if isinstance(said, str) and said == DRAINED:
        return ()
    named = cores_of(pod, owners)
    return named or tuple(dict.fromkeys(core for each in ranges for core in _by_default(pod, *each)))


def _by_default(pod: Pod, address: int, nbytes: int) -> Iterable[int]:
    die, start = divmod(address, pod.spec.die_bytes)
    here = [core for core in pod.active_cores() if core // pod.spec.cores_per_die == die]
    return here or _writers(pod, die, start, start + nbytes)


def _writers(pod: Pod, die: int, start: int, end: int) -> Iterator[int]:
    """Cores that have leave to write to bytes of a die."""
    for core in pod.active_cores():
        if any(
            "w" in grant.rights and grant.die in (None, die) and grant.start < end and start < grant.end
            for grant in pod.grants_of(core)
        ):
            yield core


def cores_of(pod: Pod, owners: Owners) -> tuple[int, ...]:
    """Global numbers of the cores that are named, each once; ConfigError for one that runs no kernel."""
    each = items(owners)
    return tuple(dict.fromkeys(core for owner in each for core in _cores_of_one(pod, owner)))


def _cores_of_one(pod: Pod, owner: int | str) -> list[int]:
    running, per_die = pod.active_cores(), pod.spec.cores_per_die
    if isinstance(owner, str):
        found = _TEXT.fullmatch(owner)
        if found is None:
            known = f"a die, as in 'die1', a core, as in 'die1.core0', or {DRAINED!r} alone"
            raise ConfigError("owners", owner, f"must be {known}")
        die, on_die = int(found[2]) + (pod.spec.n_dies if found[1] == "cpu" else 0), found[3]
        cores = [core for core in running if core // per_die == die and on_die in (None, str(core % per_die))]
    elif isinstance(owner, int | np.integer) and not isinstance(owner, bool):
        cores = [core for core in running if core == owner]
    else:
        raise ConfigError("owners", owner, "must be the global number of a core, or a text as 'die1.core0'")
    if not cores:
        from xccl_emu.check.messages import core_name  # with it comes compiled code

        known = ", ".join(f"{core_name(pod, core)} (number {core})" for core in running)
        raise ConfigError("owners", owner, f"no kernel runs there; kernels run on {known}")
    return cores


def cores_running(pod: Pod, die: int, kernels: Iterable[Kernel]) -> list[int]:
    """Global numbers of the cores of a die on which one of the kernels is launched."""
    names = {kernel.name for kernel in kernels}
    launches = {core: pod.launch_of(core) for core in pod.active_cores() if core // pod.spec.cores_per_die == die}
    return [core for core, launch in launches.items() if launch is not None and launch.kernel.name in names]
