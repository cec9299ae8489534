"""Running a pod on a GPU: the same program, several pods at a time, a block for each core."""

import functools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError, KernelError
from xccl_emu.lang import Kernel
from xccl_emu.native import program
from xccl_emu.native.host import ENDED, Machine, Real

if TYPE_CHECKING:
    from xccl_emu.machine.pod import Pod, Snapshot

FLAGS = ("-std=c++17", "-fmad=false")
"""Options of NVRTC: each product and each sum is rounded by itself."""
_PARTS = ("cuda.h", "", "cuda.cu")
_BLOCKS_MOST = 1024
"""All blocks of a launch must be on the GPU at once, since they wait for each other."""
_PODS_MOST = 64


class Cuda(Real):
    """A way to run a pod (`Pod.policy`): its kernels on an NVIDIA GPU, a block of one thread for each core.

    It takes CuPy (``pip install 'xccl_emu[cuda]'``).  Everything else is as in `Native`, but for one thing: a NaN that
    arithmetic makes has the GPU's bits.

    Raises:
        ConfigError: as `Native`; from `Pod.run` also for more than 1,024 cores, and without CuPy or a GPU.
        KernelError: from `Pod.run`, if the program does not compile or the GPU ends it.
    """

    name = "cuda"

    def look(self, pod: "Pod") -> None:
        """Compile the program, if that was not done before."""
        super().look(pod)
        if len(pod.active_cores()) > _BLOCKS_MOST:
            raise ConfigError("on", "cuda", f"runs {_BLOCKS_MOST} cores at most")
        _program_of(tuple(pod.kernels))

    def drive(self, pod: "Pod", progress: Callable[[int], None] | None) -> tuple[int, float, NDArray[np.int64]]:
        """Run what is launched; how it ended, and the seconds that the launch took."""
        pod.activate()
        launched = self._launch(pod, 1)
        self._take(pod, launched, 0)
        return launched.ends[0], launched.seconds, np.zeros(0, np.int64)

    def several(self, pod: "Pod", before: "Snapshot", runs: int) -> Iterator[tuple[int, float]]:
        """Run what is launched again and again, as many pods at a time as a GPU holds, up to 64."""
        at_once = max(1, min(_PODS_MOST, _BLOCKS_MOST // len(pod.active_cores())))
        for first in range(0, runs, at_once):
            pod.restore(before)
            pod.activate()
            launched = self._launch(pod, min(at_once, runs - first))
            for k, ended in enumerate(launched.ends):
                self._take(pod, launched, k)
                yield ended, launched.seconds / len(launched.ends)

    def _take(self, pod: "Pod", launched: "_Launched", k: int) -> None:
        pod.memory[:], pod.state[:] = launched.memory[k], launched.state[k]

    def _launch(self, pod: "Pod", n: int) -> "_Launched":
        """Run ``n`` copies of the pod."""
        cupy, run = _cupy(), _program_of(tuple(pod.kernels))
        try:
            memory = cupy.tile(cupy.asarray(pod.memory), (n, 1))
            state = cupy.tile(cupy.asarray(pod.state), (n, 1))
            stop, cores = cupy.zeros(n, np.int32), cupy.asarray(np.array(pod.active_cores(), np.int64))
            machine = Machine(
                memory.data.ptr, pod.memory.size, state.data.ptr, pod.state.size, int(self.seconds * 1e9), stop.data.ptr
            )
            self.seed += n
            started = time.perf_counter()
            given = np.frombuffer(bytes(machine), np.dtype(f"V{len(bytes(machine))}"))[0]
            run((n * cores.size,), (1,), (given, cores, np.int64(cores.size), np.uint64(self.seed)))
            ends = [ENDED[int(why)] for why in cupy.asnumpy(stop)]
            seconds = time.perf_counter() - started
            return _Launched(ends, cupy.asnumpy(memory), cupy.asnumpy(state), seconds)
        except (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError) as error:
            raise KernelError(f"the GPU has ended the program: {error}") from error


class _Launched(NamedTuple):
    """What a launch of several pods left."""

    ends: list[int]
    """How each ended, one of `layout.ENDED_*`."""
    memory: NDArray[np.uint8]
    state: NDArray[np.int64]
    """A row for each pod."""
    seconds: float


def _cupy() -> Any:
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except ImportError as error:
        raise ConfigError("on", "cuda", "takes CuPy: pip install 'xccl_emu[cuda]'") from error
    except Exception as error:
        raise ConfigError("on", "cuda", f"finds no GPU: {error}") from error
    return cupy


@functools.lru_cache(maxsize=64)
def _program_of(kernels: tuple[Kernel, ...]) -> Any:
    """Compile the program of some kernels; CuPy keeps it on disk by its text."""
    cupy = _cupy()
    module = cupy.RawModule(code=program.text(kernels, _PARTS), options=FLAGS)
    try:
        return module.get_function("xccl_run")
    except cupy.cuda.compiler.CompileException as error:
        raise KernelError(f"a program of kernels does not compile: {error}") from error
