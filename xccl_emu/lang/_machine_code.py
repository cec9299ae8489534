"""Machine code: instructions of LLVM, compiled once, kept on disk by content and loaded into this process.

A file is named by a digest of the instructions, the version of llvmlite and the processor, so it is never stale, and
whatever else is edited it is still right.  It begins with a digest of the rest: a damaged file is compiled again.
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
from llvmlite import binding as llvm

from xccl_emu.jit import cache
from xccl_emu.lang import abi

LEVEL = 2
"""How hard LLVM works."""

KEPT = 1000
"""How many files stay: those last used."""

FAILURES: dict[int, Callable[[], Exception]] = {
    abi.DIVISION_BY_ZERO: lambda: ZeroDivisionError("integer division or modulo by zero"),
    abi.BAD_VALUE: lambda: ValueError("a shift count that is negative or too large, or a range with step 0"),
    abi.BAD_INDEX: lambda: IndexError("tuple index out of range"),
    abi.NO_VALUE: lambda: TypeError("a function ended without the value that its caller takes"),
    abi.ENDLESS: lambda: TimeoutError("loops that go on without a request"),
}


class MachineCode:
    """A compiled step function: its address, and a call of it from Python."""

    def __init__(self, name: str, instructions: str, symbol: str) -> None:
        text = _header() + instructions
        digest = hashlib.sha256("\0".join((llvmlite.__version__, *_processor(), str(LEVEL), text)).encode())
        self.path = folder() / f"{name}-{digest.hexdigest()[:32]}.o"
        kept = cache.read_kept(str(self.path))
        self.from_disk = kept is not None
        self._engine = _loaded(_made(self.path, text) if kept is None else kept)  # the code is there as long as this is
        self.address: int = self._engine.get_function_address(symbol)
        self._call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(self.address)

    def __call__(self, state: Any, base: int) -> int:
        """Run one step.

        Raises:
            TypeError: if the state is no array of 64-bit integers.
            ArithmeticError, ValueError, IndexError: if the kernel's arithmetic fails.
            TimeoutError: if a loop goes on and on without a request.
        """
        words = memoryview(state)
        if words.format not in ("l", "q") or not words.c_contiguous:
            raise TypeError("the state is an array of 64-bit integers in one granule")
        operation: int = self._call(ctypes.addressof(ctypes.c_char.from_buffer(words)), base)
        if operation < 0:
            raise FAILURES[-(-operation % abi.PLACES)]()
        return operation


# ---- compiling


@functools.cache
def _processor() -> tuple[str, str]:
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _machine() -> Any:
    name, features = _processor()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(cpu=name, features=features, opt=LEVEL, jit=True)


@functools.cache
def _header() -> str:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple = llvm.get_process_triple()
    return f'target triple = "{triple}"\ntarget datalayout = "{_machine().target_data}"\n'


def _made(path: Path, text: str) -> bytes:
    """Compile and keep."""
    cache.tell_compiling("kernels")
    code = _compiled(text)
    cache.keep(str(path), code)
    _prune(path.parent)
    return code


def _compiled(text: str) -> bytes:
    module = llvm.parse_assembly(text)
    module.verify()
    machine = _machine()
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=LEVEL))
    passes.getModulePassManager().run(module, passes)
    code: bytes = machine.emit_object(module)
    return code


def _loaded(code: bytes) -> Any:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


# ---- files


def folder() -> Path:
    """Return the folder of the files, next to Numba's, or one among the temporary files of this process."""
    numba = os.environ.get("NUMBA_CACHE_DIR")
    return Path(numba).parent / "kernels" if numba else Path(_own_folder().name)


@functools.cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="xccl_emu-")


def _prune(parent: Path) -> None:
    """Remove the files that were not used for longest."""
    with contextlib.suppress(OSError):  # another process may prune too
        ages = sorted(((file.stat().st_mtime, file) for file in parent.glob("*.o")), reverse=True)
        for _, file in ages[KEPT:]:
            file.unlink()
