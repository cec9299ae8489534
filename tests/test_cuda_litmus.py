"""The litmus operator in CUDA C++: outcomes of the one in Ascend C, and what PTX allows that the machine does not."""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pytest

from tests.foreign_support import ROOT, has_clang
from xccl_emu.doors import cuda
from xccl_emu.doors.ascendc import litmus
from xccl_emu.doors.ascendc.litmus import LitmusTest, Outcome
from xccl_emu.machine import explore
from xccl_emu.protocol import Bench, Regions

needs_clang = pytest.mark.skipif(not has_clang(), reason="no clang: kernels in CUDA C++ are not compiled here")
BUFFERS = (*litmus.CELLS, "seen")


@functools.cache
def operator(more: Sequence[LitmusTest] = (), fence: str = "acq_rel", access: str = "relaxed.sys") -> cuda.CudaKernel:
    """The kernel, with more programs; scopes are those of all ranks, since each thread is one."""
    programs = " ".join(f"PROGRAM({each.name}, {each.text})" for each in more)
    defines = {"SCOPE": "sys", "FENCE": fence, "ACCESS": access, "MORE_PROGRAMS": programs}
    return cuda.cuda_kernel(litmus.OPERATORS / "litmus.cu", "litmus", defines=defines)


def allowed(kernel: cuda.CudaKernel, program: LitmusTest, order: str) -> frozenset[Outcome]:
    """All outcomes of a program, whose threads are blocks on ranks of their own, by an exhaustive search."""
    threads, bench = len(program.threads), Bench(order, ())
    regions = Regions(threads)
    held = {name: regions.meta(name, litmus.LINE_BYTES * litmus.THREADS_MOST) for name in BUFFERS}
    gpus = cuda.gpus(bench, regions, 1, 1, app_bytes=0)
    given = {name: region.at(0) for name, region in held.items()} | {"ready": 0, "noise": 0}
    given |= {"program": program.number, "threads": threads, "groups": 1, "rounds": 1}
    for rank in range(threads):
        leave = [region.grant(0, "rw") for region in held.values()]
        gpus.launch(kernel, rank, {**given, "first": rank}, leave)
    cells = [held[cell].at(0) for cell in litmus.CELLS]
    seen = [held["seen"].at(0) + rank * litmus.LINE_BYTES for rank in range(threads)]
    found = explore.explore(gpus.pod, [(address, 8) for address in (*cells, *seen)])
    assert found.complete
    assert not found.errors
    return frozenset(program.outcome(words[:3], words[3:]) for words in found.outcomes)


SOME = ("MP", "SB", "MP_f_po", "SB_f_f", "LB", "CoWR", "n6")
PLAIN = [
    pytest.param(name, marks=[] if name in SOME else pytest.mark.slow)
    for name, program in litmus.programs().items() if not re.search(r"[CP]\(|S", program.text)
]  # fmt: skip


@needs_clang
@pytest.mark.parametrize("name", PLAIN)
def test_it_has_the_outcomes_of_the_operator_in_ascend_c(name: str) -> None:
    """Where a fence waits until writes are visible; programs without copies and their barriers, under each order."""
    program = litmus.programs()[name]
    for order in litmus.ORDERS:
        assert allowed(operator(), program, order) == litmus.allowed(program, order, "visible"), order


# ---- published outcomes of PTX


class Published(NamedTuple):
    """A row of the page's table: tests of a program, an outcome, how it is compiled, and who allows the outcome."""

    tests: tuple[LitmusTest, ...]
    """The program, and the same with reads made later."""
    outcome: frozenset[str]
    fence: str
    access: str
    may: tuple[bool, ...]
    """PTX, the machine under `relaxed`, and the same with loads in flight."""


def published() -> Mapping[str, Published]:
    """The rows of the table in docs/records/cuda.md, by name; their tests have the numbers after the header's."""
    found, number = dict[str, Published](), len(litmus.programs())
    for name, text, outcome, fence, access, *may, _ in re.findall(
        r"^\| (\w+) " + r"\| `([^`]+)` " * 2 + r"\| (\S*) " + r"\| (\S+) " * 4 + r"\| (\w+)", PAGE, re.MULTILINE
    ):
        program = LitmusTest(f"ptx_{name}", number, text)
        tests = (program, *litmus.with_later_reads(program, number + 1))
        fence = fence.replace("-", "acq_rel")
        found[name] = Published(tests, frozenset(outcome.split()), fence, access, tuple(each == "yes" for each in may))
        number += len(tests)
    return found


PAGE = (ROOT / "docs" / "records" / "cuda.md").read_text("utf-8")
PUBLISHED = published()


@needs_clang
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_outcomes_of_ptx(name: str) -> None:
    """The page says of each whether the machine has it; none that PTX forbids is one, with loads in flight or not."""
    row = PUBLISHED[name]
    kernel = operator(tuple(test for each in PUBLISHED.values() for test in each.tests), row.fence, row.access)
    comes = [
        any(row.outcome <= {*litmus.text_of(each).split()} for each in allowed(kernel, test, "relaxed"))
        for test in row.tests
    ]  # fmt: skip
    assert (comes[0], any(comes)) == row.may[1:]
    assert row.may[0] or not any(comes)
