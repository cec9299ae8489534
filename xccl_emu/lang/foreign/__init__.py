"""Kernels in C and C++ (docs/bring-your-own.md)."""

from xccl_emu.lang.foreign.kernel import STREAM_WORDS, CKernel, CStream, c_kernel

__all__ = ["STREAM_WORDS", "CKernel", "CStream", "c_kernel"]
