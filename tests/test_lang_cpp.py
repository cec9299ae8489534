"""Kernels as C++ make the requests of their generators, at the same places; what C++ is not made of is refused."""

import ctypes
import itertools
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lang_kernels import CASES
from lang_programs import programs
from lang_support import module_of, own_cache, walk_generator, walk_step

from xccl_emu.base.errors import KernelError
from xccl_emu.lang import Kernel, Step, abi, cpp
from xccl_emu.lang._text import _STATUSES
from xccl_emu.native import host, program

__all__ = ["own_cache"]
_CALLED = (
    'extern "C" long long called(long long kernel, long long *words) { Core core{words}; return step(kernel, core); }'
)
_STATUS = {status: kind for kind, status in _STATUSES.items()}


def steps_of(kernels: list[Kernel], folder: Path) -> list[Step]:
    """Compile kernels as C++ in one library, without the machine of requests; return the step function of each."""
    here = program.HERE
    parts = [(here / "host.h").read_text(), program.constants(), (here / "arithmetic.h").read_text()]
    text = "\n".join([*parts, "using Core = Arithmetic;", program.steps(kernels), _CALLED])
    library = folder / "steps.so"
    subprocess.run(["c++", *host.FLAGS, "-o", str(library)], input=text, text=True, check=True)
    called: Any = ctypes.CDLL(str(library)).called
    called.argtypes, called.restype = (ctypes.c_longlong, ctypes.c_void_p), ctypes.c_longlong

    def step(number: int, state: Any, base: int) -> int:
        operation = int(called(number, state.ctypes.data + 8 * base))
        if operation < 0:
            raise _STATUS.get(-(-operation % abi.PLACES), ValueError)
        return operation

    return [lambda state, base, number=number: step(number, state, base) for number in range(len(kernels))]


def test_every_construct(tmp_path: Path) -> None:
    """Each construct of the language makes its generator's requests; one kernel that keeps tuples is refused."""
    made = {name: case for name, case in CASES.items() if name != "plain_code"}
    for (name, (kernel, cases)), step in zip(
        made.items(), steps_of([kernel for kernel, _ in made.values()], tmp_path), strict=True
    ):
        for arguments in cases:
            assert walk_step(kernel, step, arguments) == walk_generator(kernel, arguments), name
    with pytest.raises(KernelError, match=r"plain_code: .* is not among what C\+\+ is made of"):
        cpp.steps([CASES["plain_code"][0]])


@settings(max_examples=12)
@given(st.lists(programs(), min_size=6, max_size=6), st.tuples(st.integers(-9, 9), st.integers(-9, 9)))
def test_random_programs(texts: list[str], arguments: tuple[int, int]) -> None:
    """Random programs, as far as C++ is made of them, make the requests of their generators."""
    with tempfile.TemporaryDirectory() as folder:
        kernels = list(itertools.chain.from_iterable(_made(module_of(Path(folder), text).k) for text in texts))
        for kernel, step in zip(kernels, steps_of(kernels, Path(folder)), strict=True):
            assert walk_step(kernel, step, arguments) == walk_generator(kernel, arguments)


def _made(kernel: Kernel) -> list[Kernel]:
    try:
        cpp.steps([kernel])
    except KernelError:
        return []
    return [kernel]
