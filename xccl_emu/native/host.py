"""Running a pod by threads of this computer: a program is compiled once for its text, and has the pod's own memory."""

import ctypes
import functools
import hashlib
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import config
from numpy.typing import NDArray

from xccl_emu.base.errors import CapacityError, ConfigError, KernelError
from xccl_emu.jit import cache
from xccl_emu.lang import Kernel, _machine_code
from xccl_emu.lang.foreign import compiler
from xccl_emu.lang.foreign.kernel import CKernel
from xccl_emu.machine.device import layout as ms
from xccl_emu.native import program

if TYPE_CHECKING:
    from xccl_emu.machine.pod import Pod, Snapshot

FLAGS = ["-std=c++17", "-O1", "-fwrapv", "-ffp-contract=off", "-fno-strict-aliasing"]
FLAGS += ["-fPIC", "-shared", "-pthread", "-w", "-x", "c++", "-"]
_PARTS = ("host.h", "", "host.cpp")
_SECONDS_MOST = 1_000_000
ENDED = {0: ms.ENDED_DONE, 1: ms.ENDED_ERROR, 2: ms.ENDED_DEADLOCK}
"""How a run ended, by `Stop` of machine.h."""


class Machine(ctypes.Structure):
    """`Machine` of machine.h."""

    _fields_ = (
        ("memory", ctypes.c_void_p), ("n_bytes", ctypes.c_int64), ("state", ctypes.c_void_p),
        ("n_words", ctypes.c_int64), ("most_ns", ctypes.c_int64), ("stop", ctypes.c_void_p),
    )  # fmt: skip


class Real:
    """What all ways to run a pod on real memory share: a seed, and how long a run may take."""

    name = ""
    data = True
    poisons = False

    def __init__(self, seed: int = 0, seconds: float = 10.0) -> None:
        if seed < 0:
            raise ConfigError("seed", seed, "must be 0 or more")
        if not 0 < seconds <= _SECONDS_MOST:
            raise ConfigError("seconds", seconds, f"must be more than 0, and at most {_SECONDS_MOST}")
        self.seconds = seconds
        self.seed = seed

    def look(self, pod: "Pod") -> None:
        """Look at what is about to run; ConfigError for what does not run on real memory."""
        if config.DISABLE_JIT:
            raise ConfigError("on", self.name, "needs the compiled machine: unset NUMBA_DISABLE_JIT")
        if pod.state[ms.CACHE_LINES]:
            raise ConfigError("on", self.name, "runs no pod with scalar caches")
        for each in pod.kernels:
            if isinstance(each, CKernel):
                raise ConfigError("on", self.name, f"is for kernels in Python, and {each.name} is in C")
        if pod.generators:
            raise ConfigError("on", self.name, "needs kernels, not plain generators")

    def several(self, pod: "Pod", before: "Snapshot", runs: int) -> Iterator[tuple[int, float]]:
        """Run what is launched again and again, from ``before`` on; of each run how it ended, and seconds.

        The pod is as the run left it until the next is asked for.
        """
        for _ in range(runs):
            pod.restore(before)
            ended, seconds, _ = self.drive(pod, None)
            yield ended, seconds

    def drive(self, pod: "Pod", progress: Callable[[int], None] | None) -> tuple[int, float, NDArray[np.int64]]:
        """Run what is launched; how it ended, and the seconds that it took."""
        raise NotImplementedError


class Native(Real):
    """A way to run a pod (`Pod.policy`): its kernels as threads of this computer, on real memory.

    Each core is a thread that also runs its own queues.  How soon these go on, and what `choose` answers, is drawn by
    ``seed``, and differs from run to run; what else comes out is the computer's.  A run that takes longer than
    ``seconds`` ends in a DeadlockError that says who waits for what; Ctrl-C ends it too.

    Raises:
        ConfigError: for a seed below 0, or seconds that are not more than 0; from `Pod.run` for a pod with kernels in
            C, with caches of scalar units, or of plain generators.
        KernelError: from `Pod.run`, if there is no compiler for C++, or no folder for what it makes.
        CapacityError: from `Pod.run`, if the computer has no more threads.
    """

    name = "native"

    def look(self, pod: "Pod") -> None:
        """Compile the program, if that was not done before."""
        super().look(pod)
        _program_of(tuple(pod.kernels))

    def drive(self, pod: "Pod", progress: Callable[[int], None] | None) -> tuple[int, float, NDArray[np.int64]]:
        """Run what is launched; how it ended, and the seconds that this computer took."""
        run = _program_of(tuple(pod.kernels))
        pod.activate()
        memory, cores, stop = pod.memory, np.array(pod.active_cores(), np.int64), ctypes.c_int(0)
        machine = Machine(
            memory.ctypes.data, memory.size, pod.state.ctypes.data, pod.state.size, int(self.seconds * 1e9),
            ctypes.addressof(stop),
        )  # fmt: skip
        self.seed += 1
        started = time.perf_counter()
        why = run(ctypes.byref(machine), cores.ctypes.data, cores.size, self.seed, ctypes.byref(_of_python()))
        seconds = time.perf_counter() - started
        if why not in ENDED:
            raise CapacityError(f"native: this computer has no more threads: the run takes {cores.size}, one a core")
        return ENDED[why], seconds, np.zeros(0, np.int64)


@functools.cache
def _of_python() -> "ctypes.Array[ctypes.c_void_p]":
    """`Python` of host.cpp."""
    names = ("PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_CheckSignals")
    return (ctypes.c_void_p * 3)(*(ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in names))


@functools.lru_cache(maxsize=64)
def _program_of(kernels: tuple[Kernel, ...]) -> Any:
    """Compile the program of some kernels, or take it from the disk; return what runs it."""
    run = _library(program.text(kernels, _PARTS)).xccl_run
    run.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p)
    return run


def _library(text: str) -> ctypes.PyDLL:
    """Return a program, which is called with the interpreter's lock held."""
    command = [*compiler.compiler(False, os.environ), *FLAGS, *_of_processor()]
    digest = hashlib.sha256("\0".join([*command, text]).encode()).hexdigest()
    path = f"{_machine_code.folder()}/native-{digest[:32]}.o"
    content = cache.read_kept(path)
    try:
        with tempfile.TemporaryDirectory(prefix="xccl_emu-") as folder:
            made = Path(folder) / "program.so"
            if content is None:
                cache.tell_compiling("kernels")
                compiler.run([*command, "-o", str(made)], text, "native", "the program of some kernels")
                cache.keep(path, made.read_bytes())
            else:
                made.write_bytes(content)
            return ctypes.PyDLL(str(made))
    except OSError as error:
        raise KernelError(f"native: no program can be loaded from the folder of temporary files: {error}") from error


def _of_processor() -> list[str]:
    """Flags with which 32 bytes are written in one instruction, where this processor can."""
    known = Path("/proc/cpuinfo")
    return ["-mavx"] if platform.machine() == "x86_64" and known.exists() and " avx " in known.read_text() else []
