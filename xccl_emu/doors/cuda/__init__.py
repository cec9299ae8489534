"""Kernels in CUDA C++ (docs/bring-your-own.md): headers of our own, and what a case needs to launch them."""

from xccl_emu.doors.cuda.kernel import CudaKernel, cuda_kernel
from xccl_emu.doors.cuda.launch import Gpus, Grids, gpus

__all__ = ["CudaKernel", "Gpus", "Grids", "cuda_kernel", "gpus"]
