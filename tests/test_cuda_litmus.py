"""The litmus operator in CUDA C++: outcomes of the one in Ascend C, and what PTX allows that the machine does not."""

import re

import pytest

from tests.foreign_support import has_clang
from xccl_emu.doors import cuda
from xccl_emu.doors.ascendc import litmus
from xccl_emu.doors.ascendc.litmus import LitmusTest, Outcome
from xccl_emu.machine import explore
from xccl_emu.protocol import Bench, Regions

needs_clang = pytest.mark.skipif(not has_clang(), reason="no clang: kernels in CUDA C++ are not compiled here")
BUFFERS = (*litmus.CELLS, "seen")


def operator(more: str = "", fence: str = "acq_rel") -> cuda.CudaKernel:
    """The kernel; scopes are those of all ranks, since each thread is one."""
    defines = {"SCOPE": "sys", "FENCE": fence, "MORE_PROGRAMS": more}
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
