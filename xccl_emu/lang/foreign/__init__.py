"""Kernels in C and C++ (docs/foreign.md)."""

from xccl_emu.lang.foreign.kernel import CKernel, CStream, c_kernel

__all__ = ["CKernel", "CStream", "c_kernel"]
