"""The kernel language: generator functions that yield requests, and their lowering to step functions."""

from xccl_emu.lang import abi
from xccl_emu.lang import requests as rq
from xccl_emu.lang.kernel import Kernel, Requests, Site, Step, kernel
from xccl_emu.lang.requests import *  # noqa: F403 - the requests are the language's vocabulary

__all__ = ["Kernel", "Requests", "Site", "Step", "abi", "kernel", "rq"]
__all__ += [name for name in vars(rq) if not name.startswith("_") and name != "TypeAlias"]
