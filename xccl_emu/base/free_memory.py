"""How much memory this machine has left, for this process."""

import math
from pathlib import Path

_SHARE = 0.92
"""What of the free memory a job may plan with."""
_at_most = math.inf
"""What this process may plan with, if others run at the same time."""


def plan_with(nbytes: float) -> None:
    """Let this process plan with no more than that."""
    global _at_most
    _at_most = nbytes


def available_bytes() -> int:
    """Bytes that a job may plan with: of the free memory of the machine, or of its control group if that is less, as
    far as `plan_with` allows."""
    free = (_field("/proc/meminfo", "MemAvailable:") or 1 << 30) * 1024  # not known: do not refuse
    limit, used = _number("/sys/fs/cgroup/memory.max"), _number("/sys/fs/cgroup/memory.current")
    if limit is not None and used is not None:
        cached = _field("/sys/fs/cgroup/memory.stat", "inactive_file") or 0  # given back when memory is needed
        free = min(free, limit - used + cached)
    return int(min(free * _SHARE, _at_most))


def _field(path: str, name: str) -> int | None:
    """Return the number after a name in a file of lines, None if there is none."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), None)


def _number(path: str) -> int | None:
    """The number in a file of the control group, None if there is none (or it says "max")."""
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
