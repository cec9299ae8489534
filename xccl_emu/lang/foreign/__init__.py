"""Kernels in C and C++ (docs/bring-your-own.md)."""

from xccl_emu.lang.foreign.kernel import CKernel, CStream, InTurn, c_kernel

__all__ = ["CKernel", "CStream", "InTurn", "c_kernel"]
