"""The protocols that ship, in small configurations, as things to check (`xccl_emu.check.trial.Checkable`)."""

from xccl_emu.scenarios.a2e import A2ECheck
from xccl_emu.scenarios.common import Scenario, reached_syncs
from xccl_emu.scenarios.configurations import configurations, true_size
from xccl_emu.scenarios.fused import FusedCheck
from xccl_emu.scenarios.moe import MoeCheck
from xccl_emu.scenarios.registry import NAMES, make
from xccl_emu.scenarios.sendrecv import SendRecvCheck

__all__ = [
    "NAMES",
    "A2ECheck",
    "FusedCheck",
    "MoeCheck",
    "Scenario",
    "SendRecvCheck",
    "configurations",
    "make",
    "reached_syncs",
    "true_size",
]
