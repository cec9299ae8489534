"""The kernel language: generator functions that yield requests, and their lowering to step functions."""

from xccl_emu.lang import abi
from xccl_emu.lang import requests as rq
from xccl_emu.lang._blocks import NOTHING, VECTOR_BARRIER
from xccl_emu.lang.kernel import Kernel, Requests, Site, Step, kernel
from xccl_emu.lang.requests import *  # noqa: F403 - the requests are the language's vocabulary
from xccl_emu.lang.rights import Anywhere, Own, Reads, Updates, Writes

__all__ = [
    "NOTHING", "VECTOR_BARRIER", "Anywhere", "Kernel", "Own", "Reads", "Requests", "Site", "Step", "Updates", "Writes",
    "abi", "kernel", "rq",
]  # fmt: skip
__all__ += [name for name in vars(rq) if not name.startswith("_") and name not in ("Literal", "TypeAlias")]
