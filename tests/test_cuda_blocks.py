"""What threads of a block do together in CUDA C++: shared memory, and instructions of warps."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.cuda_support import SOURCES, line_of, source
from tests.foreign_support import has_clang
from xccl_emu.base.errors import AccessError, ConfigError, DeadlockError, KernelError, ProtocolError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import NO_VIOLATION, VERIFIED, VIOLATION
from xccl_emu.doors import cuda
from xccl_emu.protocol import Bench, Regions
from xccl_emu.protocol.case import Case, size

pytestmark = pytest.mark.skipif(not has_clang(), reason="no clang: kernels in CUDA C++ are not compiled here")

BLOCKS = SOURCES / "blocks.cu"
READINGS = [{"scopes": "wide"}, {"scopes": "narrow"}]


def run(
    kernel: cuda.CudaKernel, threads: int, each: int, grid: int = 1, shared_bytes: int = 32, shared: int = 0,
    **read: str,
) -> Any:  # fmt: skip
    """What threads of one rank leave, ``each`` words of 4 bytes of each; thread i reads i + 1."""
    bench = Bench("relaxed", (), read)
    gpus = cuda.gpus(bench, Regions(1), grid, threads, 8 * each * threads + 96, shared_bytes)
    given = bench.filled(0, np.arange(1, threads + 1, dtype=np.int32))
    out = bench.filled(0, np.zeros((threads, each), np.int32))
    grants = [gpus.pod.grant(given, "r"), gpus.pod.grant(out, "rw")]
    gpus.launch(kernel, 0, {"in": given.address, "out": out.address}, grants, grid, threads, shared)
    gpus.pod.run()
    return gpus.pod.span(out.address, out.nbytes).view(np.int32).reshape(threads, each).tolist()


@dataclass(frozen=True)
class Turned(Case):
    """Threads of a block write, meet, and read what others have written."""

    threads: int = size(2, "Threads of the block.", most=4)
    name: ClassVar[str] = "turned"
    defines: ClassVar[Mapping[str, str]] = {}

    def lay_out(self, bench: Bench) -> None:
        """One rank."""
        given = np.arange(1, self.threads + 1, dtype=np.int32)
        right = 2 * given[::-1] + self.threads if self.name != "summed" else np.full_like(given, given.sum())
        gpus = cuda.gpus(bench, Regions(1), 1, self.threads, 128, shared_bytes=20)
        own, out = bench.filled(0, given, "in"), bench.wanted(0, right.astype(np.int32), "out")
        kernel = cuda.cuda_kernel(BLOCKS, self.name, defines=self.defines)
        grants = [gpus.pod.grant(own, "r"), gpus.pod.grant(out, "w")]
        shared = 4 * self.threads if self.name == "opened" else 0
        gpus.launch(kernel, 0, {"in": own.address, "out": out.address}, grants, block=self.threads, shared=shared)


def variant(name: str = "turned", meet: str = "__syncthreads()") -> Case:
    """A case of another kernel, or with another way to meet."""
    members = {"name": name, "defines": {"MEET": meet}, "__annotations__": {}}
    case: Case = type("Variant", (Turned,), members)()
    return case


# ---- shared memory


@pytest.mark.slow
@pytest.mark.parametrize("meet", ["__syncthreads()", "__syncwarp()"])
@pytest.mark.parametrize("reading", READINGS, ids=["wide", "narrow"])
def test_a_barrier_orders_shared_memory(reading: Mapping[str, str], meet: str) -> None:
    """Every schedule of two threads is right, also where a barrier is for the block alone: so is this memory."""
    assert check(variant(meet=meet).with_pod_options(**reading)).verdict == VERIFIED


@pytest.mark.parametrize("reading", READINGS, ids=["wide", "narrow"])
@pytest.mark.parametrize(
    ("name", "kind", "lines"),
    [
        ("turned", "read of never-written memory", ["out[me] = held[blockDim.x - 1 - me] + count;"]),
        ("cleared", "data race", ["out[me] = held[blockDim.x - 1 - me] + blockDim.x;", "held[me] = 0;"]),
    ],
)
def test_a_barrier_that_is_missing_is_found(name: str, kind: str, lines: list[str], reading: Mapping[str, str]) -> None:
    """What is not there yet is read, or written while it is read, with the lines of the source."""
    found = check(variant(name, meet="(void)0").with_pod_options(**reading)).violation
    assert found is not None
    assert found.kind == kind
    assert all(f"blocks.cu:{line_of(BLOCKS, what)}" in found.message for what in lines)


@pytest.mark.nojit
def test_each_block_has_shared_memory_of_its_own(tmp_path: Path) -> None:
    """Two blocks count in a variable of the same name, and both count from nothing."""
    body = """__shared__ int count; if (threadIdx.x == 0) count = 0; __syncthreads();
    atomicAdd(&count, 1); __syncthreads(); out[blockIdx.x] = count;"""
    kernel = cuda.cuda_kernel(source(tmp_path, body), "k")
    assert kernel.shared_bytes() == 4
    assert run(kernel, 2, 1, grid=2) == [[2], [2]]


@pytest.mark.nojit
def test_room_for_shared_memory_is_asked_for(tmp_path: Path) -> None:
    """Less than the kernel has is refused by its launch, and an access after it by the machine."""
    kernel = cuda.cuda_kernel(BLOCKS, "turned")
    with pytest.raises(ConfigError, match="shared_bytes=16: turned shares 20 in a block"):
        run(kernel, 2, 1, shared_bytes=16)
    beyond = cuda.cuda_kernel(source(tmp_path, "__shared__ int held[8]; held[in[0] + 7] = 1;"), "k")
    with pytest.raises(AccessError, match=r"store of 4 bytes at .* is not permitted"):
        run(beyond, 1, 1)


def test_what_is_not_there_of_blocks_is_the_compiler_s_error(tmp_path: Path) -> None:
    """Other instructions of warps: with the line of the source."""
    with pytest.raises(KernelError, match=r"k\.cu:3:\d+: error: .*__match_any_sync"):
        _ = cuda.cuda_kernel(source(tmp_path, "out[0] = __match_any_sync(~0u, 1);"), "k").sites


OPEN = """__shared__ char one; extern __shared__ int held[]; extern __shared__ double same[];
one = 1; held[threadIdx.x] = in[threadIdx.x]; __syncthreads();
out[threadIdx.x] = held[%s] + ((const char *)same == (const char *)held);"""
"""A kernel for two threads, with an index of what a launch shares."""


@pytest.mark.nojit
def test_a_launch_says_how_much_more_is_shared(tmp_path: Path) -> None:
    """All such variables are in one place, after the others, and each block has its own."""
    kernel = cuda.cuda_kernel(source(tmp_path, OPEN % "1 - threadIdx.x"), "k")
    assert run(kernel, 2, 1, shared_bytes=24, shared=8) == [[3], [2]]
    assert run(kernel, 2, 1, grid=2, shared_bytes=24, shared=8) == [[3], [2]]
    for shared, says in ((0, "shared=0: must be the bytes"), (12, "shared_bytes=24: k shares 28 in a block")):
        with pytest.raises(ConfigError, match=says):
            run(kernel, 2, 1, shared_bytes=24, shared=shared)


@pytest.mark.nojit
@pytest.mark.parametrize("shared", [8, 12])
def test_what_is_beyond_a_launch_s_words_is_refused(shared: int, tmp_path: Path) -> None:
    """Also where the pod has more; words are of 8 bytes."""
    kernel = cuda.cuda_kernel(source(tmp_path, OPEN % ((shared + 4) // 8 * 2)), "k")
    with pytest.raises(AccessError, match=r"4 bytes at .* is not permitted"):
        run(kernel, 2, 1, shared_bytes=64, shared=shared)


@pytest.mark.parametrize("meet", ["__syncthreads()", "(void)0"])
def test_races_in_what_a_launch_shares_are_found(meet: str) -> None:
    """With a barrier every schedule is right, and without it a thread reads what is not there."""
    found = check(variant("opened", meet))
    assert found.verdict == (VERIFIED if meet == "__syncthreads()" else VIOLATION)
    if found.violation:
        assert f"blocks.cu:{line_of(BLOCKS, 'out[me] = more[')}" in found.violation.message


# ---- warps


@pytest.mark.nojit
@pytest.mark.parametrize("reading", READINGS, ids=["wide", "narrow"])
def test_shuffles_and_votes_are_ptx_s(reading: Mapping[str, str]) -> None:
    """Four lanes have 1 to 4: by place, by exclusive or, down, up, in halves, in 8 bytes; ballot, any, all."""
    rows = np.array(run(cuda.cuda_kernel(BLOCKS, "shuffled"), 4, 9, **reading))
    assert rows[:, :6].T.tolist() == [[2] * 4, [2, 1, 4, 3], [3, 4, 3, 4], [1, 1, 2, 3], [2, 2, 4, 4], [3, 4, 1, 2]]
    assert rows[:, 6:].tolist() == [[0b1100, 1, 0]] * 4


@pytest.mark.slow
def test_a_sum_by_shuffles_is_verified() -> None:
    """Two lanes, every schedule; more in drawn ones."""
    case = variant("summed")
    assert check(case).verdict == VERIFIED
    four = type("Four", (type(case),), {"__annotations__": {}})(threads=4)
    assert check(four, policy="random", schedules=3).verdict == NO_VIOLATION


@pytest.mark.nojit
def test_a_meeting_is_of_all_lanes(tmp_path: Path) -> None:
    """A mask that leaves a thread out stops the run, and a lane that does not come lets the others wait."""
    part = cuda.cuda_kernel(source(tmp_path, "out[threadIdx.x] = __shfl_sync(1, in[0], 0);"), "k")
    with pytest.raises(ProtocolError, match=r"k\.cu:3.*code 52481, value 1"):
        run(part, 2, 1)
    late = cuda.cuda_kernel(source(tmp_path, "if (threadIdx.x) __syncwarp();"), "k")
    with pytest.raises(DeadlockError, match="poll"):
        run(late, 2, 1)


@pytest.mark.nojit
def test_warps_of_a_block_meet_apart(tmp_path: Path) -> None:
    """33 threads: the last is a warp of its own, and waits for nobody."""
    body = "if (threadIdx.x == 32) out[0] = __shfl_sync(~0u, in[32], 0) + __ballot_sync(~0u, 1);"
    assert run(cuda.cuda_kernel(source(tmp_path, body), "k"), 33, 1)[0] == [34]
