"""How much memory this machine has left, for this process."""

import math
import resource
from collections.abc import Iterator
from pathlib import Path

_SHARE = 0.92
"""What of the free memory a job may plan with."""
_GROUPS = Path("/sys/fs/cgroup")
_at_most = math.inf
"""What this process may plan with, if others run at the same time."""


def plan_with(nbytes: float) -> None:
    """Let this process plan with no more than that."""
    global _at_most
    _at_most = nbytes


def available_bytes() -> int:
    """Bytes that a job may plan with: of the free memory of the machine, or of its control groups or its address space
    (RLIMIT_AS) if that is less, as far as `plan_with` allows."""
    free = (_field("/proc/meminfo", "MemAvailable:") or 1 << 30) * 1024  # not known: do not refuse
    for group in _groups():
        limit, used = _number(group / "memory.max"), _number(group / "memory.current")
        if limit is not None and used is not None:
            cached = _field(group / "memory.stat", "inactive_file") or 0  # given back when memory is needed
            free = min(free, limit - used + cached)
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        free = min(free, limit - 1024 * (_field("/proc/self/status", "VmSize:") or 0))
    return max(0, int(min(free * _SHARE, _at_most)))


def peak_bytes() -> int:
    """Most memory that this process has had, or one of those that it has started."""
    whose = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return 1024 * max(resource.getrusage(who).ru_maxrss for who in whose)


def resident_bytes() -> int:
    """Memory that this process has now; 0 if it is not known."""
    return 1024 * (_field("/proc/self/status", "VmRSS:") or 0)


def _groups() -> Iterator[Path]:
    """The control group of this process, and those that it is in."""
    own = Path(_own_group())
    yield from (_GROUPS / each for each in (own, *own.parents))


def _own_group() -> str:
    """The path of this process's control group; empty if it is not known."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    return next((line[4:] for line in lines if line.startswith("0::/")), "")


def _field(path: str | Path, name: str) -> int | None:
    """Return the number after a name in a file of lines, None if there is none."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), None)


def _number(path: Path) -> int | None:
    """The number in a file of the control group, None if there is none (or it says "max")."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
