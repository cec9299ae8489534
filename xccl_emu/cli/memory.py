"""How much memory this machine has left."""

from pathlib import Path

_SHARE = 0.92
"""What of the free memory a job may plan with."""


def available_bytes() -> int:
    """Bytes that a job may plan with: of the free memory of the machine, or of its control group if that is less."""
    free = _available_of_machine()
    limit, used = _number("/sys/fs/cgroup/memory.max"), _number("/sys/fs/cgroup/memory.current")
    if limit is not None and used is not None:
        free = min(free, limit - used)
    return int(free * _SHARE)


def _available_of_machine() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 1 << 40  # not known: do not refuse


def _number(path: str) -> int | None:
    """The number in a file of the control group, None if there is none (or it says "max")."""
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return None
