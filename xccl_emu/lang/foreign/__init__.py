"""Kernels in C and C++ (docs/foreign.md)."""

from xccl_emu.lang.foreign.kernel import CKernel, c_kernel

__all__ = ["CKernel", "c_kernel"]
