"""What threads of a block do together in CUDA C++: shared memory, and instructions of warps."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@dataclass(frozen=True)
class Meetings(Case):
    """Three lanes meet by masks, one after the other, and each adds up what the next lane of each mask has brought."""

    masks: ClassVar[list[int]] = []
    name: ClassVar[str] = "met"

    def lay_out(self, bench: Bench) -> None:
        """One rank; a lane brings ten times the number of the meeting, and its own number."""
        right = np.zeros(3, np.int32)
        for i, mask in enumerate(self.masks):
            lanes = [lane for lane in range(3) if mask >> lane & 1]
            for lane, other in zip(lanes, lanes[1:] + lanes[:1], strict=True):
                right[lane] = right[lane] * 3 + 10 * i + other
        right = right if self.name == "met" else np.array([0, 7, 0], np.int32)
        gpus = cuda.gpus(bench, Regions(1), 1, 3, 128, shared_bytes=32)
        out = bench.wanted(0, right, "out")
        kernel = cuda.cuda_kernel(BLOCKS, self.name)
        masks = np.array(self.masks + [0] * (8 - len(self.masks)), np.int32)
        args = {"out": out.address, "masks": masks, "n": len(self.masks)}
        gpus.launch(kernel, 0, args, [gpus.pod.grant(out, "w")], block=3)


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
@pytest.mark.parametrize(
    "what",
    [
        "out[threadIdx.x] = __shfl_sync(1, in[0], 0);",
        "if (threadIdx.x == 0) out[0] = __shfl_sync(1, in[0], 1);",
        "if (threadIdx.x) __syncwarp(1);",
    ],
)
def test_a_mask_names_its_own_lane_and_those_of_which_it_reads(what: str, tmp_path: Path) -> None:
    """If not, the run stops at the line of the meeting."""
    with pytest.raises(ProtocolError, match=r"k\.cu:3.*code 52481, value 1"):
        run(cuda.cuda_kernel(source(tmp_path, what), "k"), 2, 1)


@pytest.mark.nojit
@pytest.mark.parametrize(
    "what",
    [
        "if (threadIdx.x) __syncwarp();",
        "if (threadIdx.x < 2) __syncwarp(threadIdx.x ? 3 : 7);",
        "if (threadIdx.x < 2) __syncwarp(threadIdx.x ? 3 : ~0u);",
        "if (threadIdx.x == 0) return; __syncwarp();",
    ],
)
def test_a_lane_that_does_not_come_lets_the_others_wait(what: str, tmp_path: Path) -> None:
    """Or one that comes with another mask, or has returned: for this one PTX would not wait."""
    with pytest.raises(DeadlockError, match="poll"):
        run(cuda.cuda_kernel(source(tmp_path, what), "k"), 3, 1)


@pytest.mark.nojit
def test_lanes_of_a_mask_meet_without_the_others(tmp_path: Path) -> None:
    """Shuffles and votes of lanes 0 and 2 in a loop, while lane 1 meets itself; then all meet."""
    body = """int me = threadIdx.x, sum = in[me], mask = me == 1 ? 2 : 5;
    for (int i = 0; i < 5; i++) sum += __shfl_xor_sync(mask, sum, me == 1 ? 0 : 2);
    out[2 * me] = sum; out[2 * me + 1] = __ballot_sync(mask, me) + 8 * __ballot_sync(~0u, me != 1);"""
    assert run(cuda.cuda_kernel(source(tmp_path, body), "k"), 3, 2) == [[64, 44], [64, 42], [64, 44]]


MEETINGS = st.lists(st.sampled_from([0b011, 0b101, 0b110, 0b111]), min_size=1, max_size=6)


@settings(max_examples=6, deadline=None)
@given(masks=MEETINGS, seed=st.integers(0, 1000))
def test_every_sequence_of_meetings_brings_what_was_brought(masks: list[int], seed: int) -> None:
    """Lanes run at different paces: each one of a mask gets the next one's word of this meeting, never another's."""
    case: Any = type("Drawn", (Meetings,), {"masks": masks, "__annotations__": {}})()
    found = check(case, order="relaxed", policy="random", schedules=5, seed=seed)
    assert found.verdict == NO_VIOLATION, found.violation


def test_lanes_of_masks_are_verified() -> None:
    """Three lanes in pairs, then all, then pairs: every schedule."""
    case: Any = type("Some", (Meetings,), {"masks": [0b011, 0b011, 0b111, 0b101], "__annotations__": {}})()
    assert check(case).verdict == VERIFIED


@pytest.mark.parametrize(("mask", "verdict"), [(0b011, VERIFIED), (0b101, VIOLATION)])
@pytest.mark.parametrize("reading", READINGS, ids=["wide", "narrow"])
def test_a_mask_orders_memory_of_its_lanes_alone(reading: Mapping[str, str], mask: int, verdict: str) -> None:
    """Lane 0 writes and lane 1 reads: they have met where a mask names both."""
    members = {"masks": [mask], "name": "handed", "__annotations__": {}}
    found = check(type("Handed", (Meetings,), members)().with_pod_options(**reading))
    assert found.verdict == verdict
    if found.violation:
        assert f"blocks.cu:{line_of(BLOCKS, 'out[1] = held[0]')}" in found.violation.message


@pytest.mark.nojit
def test_warps_of_a_block_meet_apart(tmp_path: Path) -> None:
    """33 threads: the last is a warp of its own, and waits for nobody."""
    body = "if (threadIdx.x == 32) out[0] = __shfl_sync(~0u, in[32], 0) + __ballot_sync(~0u, 1);"
    assert run(cuda.cuda_kernel(source(tmp_path, body), "k"), 33, 1)[0] == [34]
