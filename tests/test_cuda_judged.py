"""Kernels in CUDA C++ under the judge: an all-reduce against an oracle, planted bugs, and both readings of scopes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.cuda_support import line_of
from tests.foreign_support import ROOT, has_clang
from xccl_emu.check.check import IF_ALL_ACQUIRE, check
from xccl_emu.check.verdict import NO_VIOLATION, VERIFIED, VIOLATION
from xccl_emu.cli.check_job import stronger
from xccl_emu.doors import cuda
from xccl_emu.doors.cuda import launch
from xccl_emu.protocol import Bench, Regions, registry
from xccl_emu.protocol.case import Case

pytestmark = pytest.mark.skipif(not has_clang(), reason="no clang: kernels in CUDA C++ are not compiled here")

EXAMPLE = f"{ROOT}/examples/cuda/all_reduce.py"
AllReduce: Any = type(registry.make(f"{EXAMPLE}:AllReduce"))
Relaxed: Any = type(registry.make(f"{EXAMPLE}:Relaxed"))
SOURCE: Path = AllReduce.source
WIDE, NARROW = {"scopes": "wide"}, {"scopes": "narrow"}
ACQUIRE = {"reads": "acquire"}


@pytest.mark.parametrize("order", ["sc", "relaxed", "unordered"])
@pytest.mark.parametrize(("ranks", "threads", "elements"), [(2, 2, 5), (3, 4, 2)])
def test_an_all_reduce_is_the_sum_in_order_of_the_ranks(order: str, ranks: int, threads: int, elements: int) -> None:
    """Runs in turn end with every byte as NumPy has it, in both readings."""
    for reading in (WIDE, NARROW):
        case = AllReduce(ranks=ranks, threads=threads, elements=elements).with_pod_options(**reading)
        found = check(case, order=order, policy="random", schedules=3)
        assert (found.verdict, found.reason) == (NO_VIOLATION, launch.READ_AS)


@pytest.mark.slow
@pytest.mark.parametrize("reading", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_all_reduce_is_verified_under_every_schedule(reading: Mapping[str, str]) -> None:
    """Two ranks of two threads, whatever order writes become visible in."""
    found = check(AllReduce().with_pod_options(**reading))
    assert (found.verdict, found.reason) == (VERIFIED, launch.READ_AS)


def test_a_flag_without_release_is_refuted_at_lines_of_the_source() -> None:
    """What the other thread of the block has written may not be there; only the narrow reading sees it."""
    found = check(Relaxed()).violation
    assert found is not None
    assert found.kind == "data race"
    for what in ("buffer[i] = in[i];", "sum += ranks.buffers[peer][j];"):
        assert f"all_reduce.cu:{line_of(SOURCE, what)}" in found.message
    assert check(Relaxed().with_pod_options(**WIDE)).verdict == VERIFIED


@pytest.mark.slow
def test_a_release_that_is_cut_is_a_release_that_is_missing() -> None:
    """By its name, which has the line, a run switches it off."""
    name = f"st.release.sys, line {line_of(SOURCE, 'asm volatile(RELEASE')}"
    assert check(AllReduce(), without=[name]).verdict == VIOLATION


BUGS = {
    "no barrier before the flags": ("    __syncthreads();\n    if", "    if"),
    "no barrier after them": ("        }\n    }\n    __syncthreads();", "        }\n    }"),
    "a flag that nobody awaits": ("while (look(", "if (look("),
    "a flag of a neighbour": ("arrived[threadIdx.x]) != call", "arrived[0]) != call"),
    "a flag to oneself": ("ranks.signals[threadIdx.x]->", "ranks.signals[rank]->"),
    "an element too few": ("i < elements; i += blockDim.x) {\n        //", "i < elements - 1; i++) {\n        //"),
    "a sum of one rank twice": ("ranks.buffers[peer][j]", "ranks.buffers[peer & 0][j]"),
    "a plain load of the flag": ("ld.acquire.sys.global.u32", "ld.global.u32"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_each_planted_bug_is_found(bug: str, tmp_path: Path) -> None:
    """One edit of the source, in the reading that is the harder one to be caught in."""
    was, becomes = BUGS[bug]
    text = SOURCE.read_text()
    assert text.count(was) == 1
    file = tmp_path / "all_reduce.cu"
    file.write_text(text.replace(was, becomes))
    case = type("Mutant", (AllReduce,), {"source": file, "__annotations__": {}})()
    assert check(case.with_pod_options(**WIDE)).verdict == VIOLATION


# ---- a message between two ranks, in the ways in which CUDA says that it is there


@dataclass(frozen=True)
class Message(Case):
    """Rank 0 writes a word and says so to rank 1, which reads it."""

    source: ClassVar[Path] = Path()
    home: ClassVar[int] = 0
    """The rank that has the word."""
    threads: ClassVar[int] = 1
    """Threads of rank 0."""

    def lay_out(self, bench: Bench) -> None:
        """One block of rank 0, and one thread of rank 1."""
        regions = Regions(2)
        word, flag = regions.managed("word", 32), regions.meta("flag")
        gpus = cuda.gpus(bench, regions, 1, self.threads, app_bytes=64)
        out = bench.wanted(1, np.array([7], np.int32), "out")
        args: dict[str, Any] = {"word": word.at(self.home), "flag": flag.at(1)}
        grants = [word.grant(None, "rw"), flag.grant(None, "rw")]
        gpus.launch(cuda.cuda_kernel(self.source, "give"), 0, args, grants, block=self.threads)
        take, leave = cuda.cuda_kernel(self.source, "take"), [*grants, gpus.pod.grant(out, "w")]
        gpus.launch(take, 1, {**args, "out": out.address}, leave)


TELL = {
    "fence and volatile": ("__threadfence_system(); *(volatile unsigned *)flag = 1;", VERIFIED),
    "release by atomic_ref": (
        "cuda::atomic_ref<unsigned> f(*flag); f.store(1, cuda::std::memory_order_release);", VERIFIED,
    ),
    "an addition after a fence": ("__threadfence_system(); atomicAdd_system(flag, 1u);", VERIFIED),
    "a reduction that releases": (
        'asm volatile("red.release.sys.global.add.u32 [%0], %1;" :: "l"(flag), "r"(1));', VERIFIED,
    ),
    "volatile alone": ("*(volatile unsigned *)flag = 1;", VIOLATION),
    "relaxed by atomic_ref": (
        "cuda::atomic_ref<unsigned> f(*flag); f.store(1, cuda::std::memory_order_relaxed);", VIOLATION,
    ),
    "an addition": ("atomicAdd_system(flag, 1u);", VIOLATION),
    "a fence for the GPU": ("__threadfence(); *(volatile unsigned *)flag = 1;", VIOLATION),
    "a fence for the block": ("__threadfence_block(); *(volatile unsigned *)flag = 1;", VIOLATION),
}  # fmt: skip


@pytest.mark.parametrize("how", TELL)
def test_what_releases_is_enough_and_what_does_not_is_not(how: str, tmp_path: Path) -> None:
    """A word and a flag, across ranks."""
    tell, wanted = TELL[how]
    hear = "cuda::atomic_ref<unsigned> f(*flag); while (f.load(cuda::std::memory_order_acquire) != 1) {}"
    assert check(_message(tmp_path, tell, hear).with_pod_options(**ACQUIRE)).verdict == wanted


def test_a_fence_that_is_too_small_is_seen_in_the_narrow_reading_alone(tmp_path: Path) -> None:
    """What orders for a GPU orders for all ranks in the wide one."""
    hear = "while (*(volatile unsigned *)flag != 1) {}"
    case = _message(tmp_path, TELL["a fence for the GPU"][0], hear).with_pod_options(**ACQUIRE)
    assert case.build("relaxed").open_readings == {"scopes"}
    assert check(case.with_pod_options(**WIDE)).verdict == VERIFIED
    assert check(case).verdict == VIOLATION


def test_a_kernel_without_smaller_scopes_leaves_no_reading_open(tmp_path: Path) -> None:
    """Then a check has one verdict; a fence for a block opens both, and a relaxed read another."""
    hear = "cuda::atomic_ref<unsigned> f(*flag); while (f.load(cuda::std::memory_order_acquire) != 1) {}"
    assert _message(tmp_path, TELL["fence and volatile"][0], hear).build("relaxed").open_readings == set()
    block = _message(tmp_path, TELL["a fence for the block"][0], hear)
    assert block.build("relaxed").open_readings == {"scopes"}
    relaxed = _message(tmp_path, TELL["fence and volatile"][0], "while (*(volatile unsigned *)flag != 1) {}")
    assert relaxed.build("relaxed").open_readings == {"reads"}


ACQ = "cuda::atomic_ref<unsigned> f(*flag); while (f.load(cuda::std::memory_order_acquire) != 1) {}"
VOLATILE, ADDS = "while (*(volatile unsigned *)flag != 1) {}", "while (atomicAdd_system(flag, 0u) != 1) {}"
HEAR = {
    "an acquire": (ACQ, VERIFIED), "volatile": (VOLATILE, VIOLATION), "an atomic": (ADDS, VIOLATION),
    "relaxed": (ACQ.replace("acquire", "relaxed"), VIOLATION),
    "volatile, then a fence": (f"{VOLATILE} __threadfence_system();", NO_VIOLATION),
    "an atomic, then a fence": (f"{ADDS} __threadfence_system();", NO_VIOLATION),
    "a fence before": (f"__threadfence_system(); {VOLATILE}", VIOLATION),
    "volatile, then a release": (
        f'{VOLATILE} asm volatile("st.release.sys.u32 [%0], %1;" :: "l"(flag), "r"(2) : "memory");', VIOLATION,
    ),
    "volatile, then a barrier": (f"{VOLATILE} __syncthreads();", VIOLATION),
}  # fmt: skip


@pytest.mark.parametrize("how", HEAR)
def test_a_reader_that_does_not_acquire_races_unless_a_fence_follows(how: str, tmp_path: Path) -> None:
    """As PTX says: a fence makes an earlier relaxed read acquire, and no release or barrier does."""
    hear, wanted = HEAR[how]
    case = _message(tmp_path, TELL["fence and volatile"][0], hear)
    found = check(case.with_pod_options(reads="relaxed", scopes="wide"))
    assert found.verdict == wanted
    if found.violation is not None:
        assert found.violation.kind == "data race"
        assert f"read that does not acquire: die 1 core 0, kernel take ({case.source}:3" in found.violation.message
    assert check(case.with_pod_options(**ACQUIRE, **WIDE)).verdict == VERIFIED


def test_an_all_reduce_that_does_not_acquire_is_found(tmp_path: Path) -> None:
    """One word of the example, `ld.acquire` made `ld.relaxed`."""
    file = tmp_path / "all_reduce.cu"
    file.write_text(SOURCE.read_text().replace("ld.acquire", "ld.relaxed"))
    edited = type("Edited", (AllReduce,), {"source": file, "__annotations__": {}})().with_pod_options(**WIDE)
    found = [check(case, policy="random", schedules=50) for case in (edited, AllReduce().with_pod_options(**WIDE))]
    assert [each.verdict for each in found] == [VIOLATION, NO_VIOLATION]
    assert found[0].violation is not None
    assert f"all_reduce.cu:{line_of(file, 'ld.relaxed')}" in found[0].violation.message


def test_a_check_says_both_of_a_reader_that_does_not_acquire(tmp_path: Path) -> None:
    """In one line: the search has all reads acquire, schedules that are drawn after it have not."""
    case = _message(tmp_path, TELL["fence and volatile"][0], VOLATILE)
    both = stronger(case, case.build("relaxed").open_readings, check)
    assert both is not None
    found = check(case)
    assert both.words(found).startswith("verified if relaxed reads acquire; data race in ")
    assert (found.policy, found.states > 0, found.reason) == ("exhaustive", True, IF_ALL_ACQUIRE)


PART = "if (threadIdx.x < 2) __syncwarp(3)"


@pytest.mark.parametrize(
    ("meet", "reading", "wanted"),
    [
        ("__syncthreads()", WIDE, VERIFIED), ("__syncthreads()", NARROW, VERIFIED), ("__syncwarp()", WIDE, VERIFIED),
        ("__syncwarp()", NARROW, VERIFIED), ("(void)0", WIDE, VIOLATION),
        ("__syncwarp(); __syncthreads(); __syncwarp()", NARROW, VERIFIED), (PART, WIDE, VERIFIED),
        (PART, NARROW, VIOLATION),
    ],
)  # fmt: skip
def test_a_release_covers_writes_before_a_barrier(
    meet: str, reading: Mapping[str, str], wanted: str, tmp_path: Path
) -> None:
    """What another thread wrote to another rank; in the narrow reading not if a part of a warp met, unlike PTX."""
    write = f"if (threadIdx.x == 1) *word = 7; {meet}; if (threadIdx.x) return;"
    hear = "while (*(volatile unsigned *)flag != 1) {}"
    case = _message(tmp_path, TELL["release by atomic_ref"][0], hear, write)
    more = type("More", (type(case),), {"threads": 2 + (meet == PART), "home": 1})()
    assert check(more.with_pod_options(**ACQUIRE, **reading)).verdict == wanted


def _message(folder: Path, tell: str, hear: str, write: str = "*word = 7;") -> Case:
    file = folder / "message.cu"
    file.write_text(
        "#include <cuda/atomic>\n"
        f"__global__ void give(int *word, unsigned *flag) {{ {write} {tell} }}\n"
        f"__global__ void take(int *word, unsigned *flag, int *out) {{ {hear} *out = *word; }}\n"
    )
    return type("Message", (Message,), {"source": file, "__annotations__": {}})()
