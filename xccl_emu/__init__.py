"""Emulator of the shared-memory communication protocols of the CloudMatrix384 supernode.

Importing the package is cheap and does not import Numba; it only chooses the folder of Numba's cache.
"""

from xccl_emu import _early

_early.listen()

from xccl_emu import _cache  # noqa: E402  what it imports takes its time

__version__ = "0.1.0"

_cache.activate()
