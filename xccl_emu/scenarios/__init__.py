"""The protocols that ship, in small configurations, as things to check (`xccl_emu.check.trial.Checkable`)."""

from xccl_emu.scenarios.moe import MoeCheck
from xccl_emu.scenarios.registry import NAMES, make
from xccl_emu.scenarios.sendrecv import SendRecvCheck

__all__ = ["NAMES", "MoeCheck", "SendRecvCheck", "make"]
