"""``nvshmem.core`` and ``cuda.core.experimental``, as far as pplx-kernels uses them to begin and end."""

from types import SimpleNamespace
from typing import Any

direct = SimpleNamespace(init_status=lambda: 2)
"""Whether the library is ready: it is."""


def get_unique_id(empty: bool = False) -> int:
    """A name for the job: nobody asks for it."""
    return 0


def init(**_: Any) -> None:
    """Return: the server is there."""


def finalize() -> None:
    """Return."""


class Device:
    """A device of this computer."""

    def __init__(self, *_: Any) -> None:
        pass

    def set_current(self) -> None:
        """Return: `torch.cuda.set_device` remembers which."""
