"""For tests of kernels in C: a compiler or a skip, sources from a line, and the Python twins of examples/c_ping."""

import os
from pathlib import Path

import pytest

from xccl_emu import lang
from xccl_emu.base import errors
from xccl_emu.lang.foreign import CKernel, c_kernel, compiler

ROOT = Path(__file__).parents[1]
PING = ROOT / "examples" / "c_ping" / "ping.py"


def has_compiler(is_c: bool = True) -> bool:
    """Whether this machine can run kernels in C (or C++)."""
    try:
        return bool(compiler.compiler(is_c, os.environ))
    except errors.KernelError:
        return False


def has_clang() -> bool:
    """Whether kernels in Ascend C are compiled by a clang, so that pointers are followed by requests."""
    return has_compiler(False) and compiler.is_clang(compiler.compiler(False, os.environ, follows=True))


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="no C compiler: kernels in C are not tested here")


def written(folder: Path, text: str, name: str = "k", suffix: str = ".c", **more: int) -> CKernel:
    """The kernel of a source with this text, below the line that includes the header."""
    file = folder / f"{name}{suffix}"
    file.write_text(f'#include "xccl_emu.h"\n{text}\n')
    return c_kernel(file, name, **more)


# ---- the same protocol as examples/c_ping/ping.c


def copy(source, target, nbytes):
    """Copy a chunk through the data buffer."""
    yield lang.mtu_in(source, 0, nbytes)
    yield lang.set_flag(lang.MTU_IN, lang.MTU_OUT, 0, sync="chunk in buffer")
    yield lang.wait_flag(lang.MTU_IN, lang.MTU_OUT, 0, sync="chunk in buffer")
    yield lang.mtu_out(0, target, nbytes)


def send(source, slot, tail, nbytes, number, fenced):
    """Write a chunk, and behind it its tail."""
    yield from copy(source, slot, nbytes)
    if fenced:
        yield lang.fence(sync="chunk before tail")
    yield lang.put(tail, number, sync="tail")


def receive(slot, tail, target, nbytes, number):
    """Copy a chunk out when its tail is there."""
    yield lang.poll_ge(tail, number, sync="chunk arrived")
    yield from copy(slot, target, nbytes)
    yield lang.quiet(sync="slot read")


@lang.kernel
def ping(own, out, mine, my_tail, theirs, their_tail, chunks, nbytes, fenced):
    """Send each chunk and wait until it is back."""
    for i in range(chunks):
        yield from send(own + i * nbytes, theirs, their_tail, nbytes, i + 1, fenced)
        yield from receive(mine, my_tail, out + i * nbytes, nbytes, i + 1)


@lang.kernel
def pong(out, mine, my_tail, theirs, their_tail, chunks, nbytes):
    """Send each chunk back."""
    for i in range(chunks):
        yield from receive(mine, my_tail, out + i * nbytes, nbytes, i + 1)
        yield from send(out + i * nbytes, theirs, their_tail, nbytes, i + 1, 1)
