"""Kernels on real memory: the same step functions as C++, run by threads of this computer or blocks of a GPU.

`Native` and `Cuda` are ways to run a pod, as `Pod.policy` takes them: ``Pod(..., policy=Native(seed=1))``.
"""

from xccl_emu.native.cuda import Cuda
from xccl_emu.native.host import Native

__all__ = ["Cuda", "Native"]
