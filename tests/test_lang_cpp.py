"""Kernels as C++ make the requests of their generators, at the same places; what C++ is not made of is refused."""

import ctypes
import itertools
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from foreign_support import has_compiler
from hypothesis import given, settings
from hypothesis import strategies as st
from lang_kernels import CASES
from lang_programs import programs
from lang_support import BASE, module_of, new_state, own_cache, walk_generator, walk_step

from xccl_emu.base.errors import KernelError
from xccl_emu.lang import Kernel, Step, abi, cpp, kernel, load, store
from xccl_emu.lang._text import _STATUSES, with_status
from xccl_emu.lang.foreign import compiler
from xccl_emu.native import host, program

__all__ = ["own_cache"]
pytestmark = pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: C++ is not tested here")
_KINDS = {status: kind for kind, status in _STATUSES.items()}
_CALLED = (
    'extern "C" long long called(long long kernel, long long *words) { Core core{words}; return step(kernel, core); }'
)


def steps_of(kernels: list[Kernel], folder: Path) -> list[Step]:
    """Compile kernels as C++ in one library, without the machine of requests; return the step function of each."""
    here = program.HERE
    parts = [(here / "host.h").read_text(), program.constants(), (here / "arithmetic.h").read_text()]
    text = "\n".join([*parts, "using Core = Arithmetic;", program.steps(kernels), _CALLED])
    library = folder / "steps.so"
    command = [*compiler.compiler(False, os.environ), *host.FLAGS, "-o", str(library)]
    subprocess.run(command, input=text, text=True, check=True)
    called: Any = ctypes.CDLL(str(library)).called
    called.argtypes, called.restype = (ctypes.c_longlong, ctypes.c_void_p), ctypes.c_longlong

    def step(number: int, state: Any, base: int) -> int:
        operation = int(called(number, state.ctypes.data + 8 * base))
        if operation < 0:
            raise _KINDS.get(-(-operation % abi.PLACES), ValueError)(operation)
        return operation

    return [lambda state, base, number=number: step(number, state, base) for number in range(len(kernels))]


def test_every_construct(tmp_path: Path) -> None:
    """Each construct of the language makes its generator's requests; one kernel that keeps tuples is refused."""
    made = {name: case for name, case in CASES.items() if name != "plain_code"}
    steps = steps_of([case[0] for case in made.values()], tmp_path)
    for (name, (each, cases)), step in zip(made.items(), steps, strict=True):
        for arguments in cases:
            assert walk_step(each, step, arguments) == walk_generator(each, arguments), name
    with pytest.raises(KernelError, match=r"plain_code: .* is not among what C\+\+ is made of"):
        cpp.steps([CASES["plain_code"][0]])


@kernel
def wide(n, word, xor, errno):
    """Numbers of more than 32 bits, and names that C++ or our header has."""
    least = 1 << n
    yield store(least, (65536 if word else 1) * (65536 if xor else 2), sync="a\nline")
    yield store((word > 0) << n, min(least, errno))


@kernel
def fails_first(by, word):
    """Two statements that may fail, and a loop in which one does."""
    yield load(word)
    x = 7 // by
    y = 8 // (by + 1)
    i = 0
    while i < 5:
        i += 5 // by
    yield load(x + y + i)


def test_wide_numbers_and_any_names(tmp_path: Path) -> None:
    """Integers have 64 bits wherever they come from, and no name of an author is one of C++."""
    (step,) = steps_of([wide], tmp_path)
    for arguments in ((40, 1, 1, 5), (3, 0, 0, -1), (62, 1, 0, 2)):
        assert walk_step(wide, step, arguments) == walk_generator(wide, arguments)


@pytest.mark.parametrize("by", [0, -1])
def test_the_first_failure_counts(by: int, tmp_path: Path) -> None:
    """The status of a step names the first of several statements that fail, as machine code does."""
    (step,) = steps_of([fails_first], tmp_path)
    states = [new_state(fails_first, (by, 8)) for _ in range(2)]
    for each, state in zip((with_status(fails_first.lowered), step), states, strict=True):
        each(state, BASE)
    expected = with_status(fails_first.lowered)(states[0], BASE)
    with pytest.raises(ZeroDivisionError) as failed:
        step(states[1], BASE)
    assert failed.value.args == (expected,)


@settings(max_examples=12)
@given(st.lists(programs(), min_size=6, max_size=6), st.tuples(st.integers(-9, 9), st.integers(-9, 9)))
def test_random_programs(texts: list[str], arguments: tuple[int, int]) -> None:
    """Random programs, as far as C++ is made of them, make the requests of their generators."""
    with tempfile.TemporaryDirectory() as folder:
        kernels = list(itertools.chain.from_iterable(_made(module_of(Path(folder), text).k) for text in texts))
        for each, step in zip(kernels, steps_of(kernels, Path(folder)), strict=True):
            assert walk_step(each, step, arguments) == walk_generator(each, arguments)


def _made(kernel: Kernel) -> list[Kernel]:
    try:
        cpp.steps([kernel])
    except KernelError:
        return []
    return [kernel]
