"""Kernels on real memory: the same step functions as C++, run by threads of this computer or blocks of a GPU.

`Native` is a way to run a pod, as `Pod.policy` takes it: ``Pod(..., policy=Native(seed=1))``.
"""

from xccl_emu.native.host import Native

__all__ = ["Native"]
