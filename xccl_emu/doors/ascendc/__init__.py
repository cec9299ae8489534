"""Kernels in Ascend C (docs/bring-your-own.md): a header of our own, and what a case needs to launch them."""

from xccl_emu.doors.ascendc.kernel import BARRIERS, EVENTS, AscendKernel, ascend_kernel
from xccl_emu.doors.ascendc.launch import Tiling, hccl_context, launch, to_fill
from xccl_emu.doors.ascendc.structs import host_tiling
from xccl_emu.lang.foreign.image import constant

__all__ = [
    "BARRIERS", "EVENTS", "AscendKernel", "Tiling", "ascend_kernel", "constant", "hccl_context", "host_tiling",
    "launch", "to_fill",
]  # fmt: skip
