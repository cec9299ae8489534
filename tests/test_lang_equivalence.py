"""Random kernels make the same requests in every form: the lowering is right for programs that nobody thought of."""

import tempfile
from pathlib import Path

import llvmlite.binding as llvm
from hypothesis import given, settings
from hypothesis import strategies as st
from lang_programs import programs
from lang_support import Walk, grant, module_of, own_cache, walk_generator, walk_step

from xccl_emu.lang import Kernel, Step
from xccl_emu.lang._llvm import instructions

__all__ = ["own_cache"]
ARGUMENTS = st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=3)


def walks_of(kernel: Kernel, step: Step, arguments: tuple[int, ...], salt: int) -> tuple[Walk, Walk]:
    """Return what the generator and a step function do for the same arguments and grants."""

    def granted(number: int, request: tuple[int, ...]) -> int:
        return grant(number + salt, request)

    return walk_generator(kernel, arguments, 60, granted), walk_step(kernel, step, arguments, 60, granted)


def check_sites(kernel: Kernel) -> None:
    """Each site's text is a line that makes this operation with this step and sync."""
    for site in kernel.sites:
        assert f"yield {site.operation}(" in site.text
        assert f"step={site.step}" in site.text
        assert f"sync='{site.sync}'" in site.text or site.sync in ("", "none", "x", "y")


@settings(max_examples=150)
@given(programs(), ARGUMENTS, st.integers(0, 1000))
def test_lowered_equals_generator(text: str, arguments: list[tuple[int, int]], salt: int) -> None:
    """The lowered function and the plain step, in Python, make the requests of the generator, at the same places."""
    with tempfile.TemporaryDirectory() as folder:
        kernel = module_of(Path(folder), text).k
        check_sites(kernel)
        for pair in arguments:
            for step in (kernel.lowered, kernel.plain_step()):
                expected, got = walks_of(kernel, step, pair, salt)
                assert got == expected


@given(programs())
def test_instructions_are_valid(text: str) -> None:
    """What is given to LLVM for a program is a valid module."""
    with tempfile.TemporaryDirectory() as folder:
        builder, shape = module_of(Path(folder), text).k._lowered
        llvm.parse_assembly(instructions(shape, builder.functions.trees)).verify()


@settings(max_examples=12)
@given(programs(), ARGUMENTS, st.integers(0, 1000))
def test_compiled_equals_generator(text: str, arguments: list[tuple[int, int]], salt: int) -> None:
    """The compiled function makes the requests of the generator, at the same places."""
    with tempfile.TemporaryDirectory() as folder:
        kernel = module_of(Path(folder), text).k
        for pair in arguments:
            expected, got = walks_of(kernel, kernel.step, pair, salt)
            assert got == expected


def test_programs_are_varied() -> None:
    """The random programs contain what they are meant to test."""
    seen: set[str] = set()

    @settings(max_examples=150, database=None, derandomize=True)
    @given(programs())
    def look(text: str) -> None:
        seen.update(word for word in WORDS if word in text.split("@kernel")[1])

    look()
    assert seen == WORDS


WORDS = {"yield from", "while", "for", "break", "continue", "return", "else", "mix(", "//", "TABLE", "sync='x'"}
