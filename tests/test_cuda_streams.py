"""Kernels in CUDA C++ that a rank runs one after the other, and two readings of what the end of one publishes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.foreign_support import has_clang
from xccl_emu.base.errors import ConfigError, KernelError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import NO_VIOLATION, VERIFIED, VIOLATION
from xccl_emu.cli.check_job import stronger
from xccl_emu.doors import cuda
from xccl_emu.doors.cuda import launch
from xccl_emu.lang.in_turn import in_turn
from xccl_emu.protocol import Bench, Regions
from xccl_emu.protocol.case import Case
from xccl_emu.protocol.streams import Streams
from xccl_emu.timing.run import VirtualTime
from xccl_emu.timing.spans import spans

pytestmark = pytest.mark.skipif(not has_clang(), reason="no clang: kernels in CUDA C++ are not compiled here")

SOURCE = Path(__file__).with_name("cuda_sources") / "streams.cu"
SHARED = SOURCE.with_name("streams_shared.cu")
PUBLISHES, LOCAL = {"boundary": "publishes"}, {"boundary": "local"}
WIDE, NARROW = {"scopes": "wide"}, {"scopes": "narrow"}
ACQUIRE = {"reads": "acquire"}
APP_BYTES = 1 << 12
ENDS = "end of a kernel"


@dataclass(frozen=True)
class Handed(Case):
    """Rank 0 writes words in one kernel, a thread each, and sets a flag on rank 1 in the next one."""

    threads: ClassVar[int] = 2
    """All threads of rank 0."""
    blocks: ClassVar[int] = 1
    home: ClassVar[int] = 0
    """The rank that has the words."""
    flag_home: ClassVar[int] = 1
    first: ClassVar[str] = "fill"
    middle: ClassVar[str] = ""
    second: ClassVar[str] = "say"
    takes: ClassVar[tuple[str, ...]] = ("take",)
    """What rank 1 runs."""
    source: ClassVar[Path] = SOURCE
    """Has what rank 0 runs."""
    defines: ClassVar[Mapping[str, str]] = {}

    def lay_out(self, bench: Bench) -> None:
        """Rank 1 has one thread."""
        regions, each = Regions(2), self.threads // self.blocks
        words, flag = regions.managed("words", 32), regions.meta("flag")
        gpus = cuda.gpus(bench, regions, self.blocks, each, app_bytes=APP_BYTES, shared_bytes=64, streams=True)
        out = bench.wanted(1, np.arange(7, 7 + self.threads, dtype=np.int32), "out")
        args: dict[str, Any] = {"words": words.at(self.home), "flag": flag.at(self.flag_home), "n": self.threads}
        grants, streams = [words.grant(None, "rw"), flag.grant(None, "rw")], gpus.streams()
        for name in filter(None, (self.first, self.middle, self.second)):
            kernel = cuda.cuda_kernel(self.source, name, defines=self.defines)
            gpus.launch(kernel, 0, args, grants, self.blocks, each, after=streams)
        leave = [*grants, gpus.pod.grant(out, "rw")]
        for name in self.takes:
            kernel = cuda.cuda_kernel(SOURCE, name, defines=self.defines)
            gpus.launch(kernel, 1, {**args, "out": out.address}, leave, after=streams)
        streams.put()


def handed(**members: Any) -> Case:
    """A case with other kernels, threads or macros."""
    case: Case = type("Variant", (Handed,), {**members, "__annotations__": {}})()
    return case.with_pod_options(**ACQUIRE)


@pytest.mark.parametrize("scopes", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("home", [0, 1])
def test_a_flag_of_the_next_kernel_needs_an_end_that_publishes(home: int, scopes: Mapping[str, str]) -> None:
    """By a relaxed store: verified if the end of a kernel publishes, a data race if not, wherever the words are."""
    found = [check(handed(home=home).with_pod_options(**scopes, **reading)) for reading in (PUBLISHES, LOCAL)]
    assert [each.verdict for each in found] == [VERIFIED, VIOLATION]
    assert found[1].violation is not None
    assert found[1].violation.kind == "data race"
    assert f"streams.cu:{_line('words[me()] =')}" in found[1].violation.message
    assert launch.PUBLISHES in found[0].reason
    assert launch.PUBLISHES not in found[1].reason


@pytest.mark.parametrize("scopes", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("reading", [PUBLISHES, LOCAL], ids=["publishes", "local"])
def test_a_release_of_the_next_kernel_covers_what_the_block_wrote_before(
    reading: Mapping[str, str], scopes: Mapping[str, str]
) -> None:
    """Also what other threads wrote to another rank, which has kernels of another block: so no end needs to publish."""
    for members in ({}, {"takes": ("idle", "take")}):
        case = handed(home=1, defines={"SAY": '"st.release.sys.u32"'}, **members)
        assert check(case.with_pod_options(**scopes, **reading)).verdict == VERIFIED


RELEASES = {"defines": {"SAY": '"st.release.sys.u32"'}}
KERNELS = {
    "a flag before the end": ({"first": "fill_and_say", "second": "nothing"}, VIOLATION, VIOLATION),
    "a fence before the end": ({"first": "fill_and_fence"}, VERIFIED, VERIFIED),
    "words by atomics": ({"first": "swap_in"}, VERIFIED, VIOLATION),
    "words by atomics that are read by volatile loads": (
        {"first": "swap_in", "takes": ("take_volatile",)}, VERIFIED, VERIFIED
    ),
    "words of another thread that are read by volatile loads": (
        {"first": "fill_all", "takes": ("take_volatile",)}, VERIFIED, VIOLATION
    ),
    "the same, and a release": ({"first": "fill_all", "takes": ("take_volatile",), **RELEASES}, VERIFIED, VERIFIED),
    "words by atomics, and a release": ({"first": "swap_in", **RELEASES}, VERIFIED, VERIFIED),
    "a word that all add to, and a release": ({"first": "fill_and_count", **RELEASES}, VERIFIED, VERIFIED),
    "a flag in its own memory before another kernel": (
        {"first": "fill_and_fence", "middle": "say", "second": "nothing", "flag_home": 0}, VERIFIED, VERIFIED
    ),
    "the same without a fence": (
        {"middle": "say", "second": "nothing", "flag_home": 0}, VERIFIED, VIOLATION
    ),
    "another thread's word over, and a release": ({"middle": "fill_other", **RELEASES}, VERIFIED, VERIFIED),
    "another thread's word in the next kernel": ({"second": "add_other"}, VERIFIED, VERIFIED),
    "words of another thread that are told of": ({"first": "fill_all", "second": "see"}, VERIFIED, VIOLATION),
    "the same, told of behind a fence": ({"first": "fill_all", "second": "see_and_fence"}, VERIFIED, VERIFIED),
    "the same behind a fence": ({"first": "fill_and_fence", "second": "add_other"}, VERIFIED, VERIFIED),
    "its own word in the next kernel": ({"second": "add_own"}, VERIFIED, VERIFIED),
    "a shared variable of each kernel": (
        {"first": "fill_shared", "second": "say_shared", "source": SHARED}, VERIFIED, VERIFIED,
    ),
}  # fmt: skip


GRIDS = st.sampled_from([(1, 2), (1, 3), (2, 1), (2, 2), (3, 1)])
"""Blocks, and threads of each."""


@settings(max_examples=10, deadline=None)
@given(grid=GRIDS, first=st.sampled_from(["fill", "fill_all"]), is_released=st.booleans())
def test_what_a_grid_wrote_is_for_its_rank(grid: tuple[int, int], first: str, is_released: bool) -> None:
    """Whichever of its threads wrote, thread 0 sees it in the next kernel; another rank needs a release to be told."""
    members = {"blocks": grid[0], "threads": grid[0] * grid[1], "first": first, "second": "see"}
    case = handed(**members, **(RELEASES if is_released else {})).with_pod_options(**WIDE)
    assert check(case.with_pod_options(**PUBLISHES)).verdict == VERIFIED
    assert check(case.with_pod_options(**LOCAL)).verdict == (VERIFIED if is_released else VIOLATION)


@pytest.mark.parametrize("how", KERNELS)
def test_what_an_end_orders(how: str) -> None:
    """In both readings, with narrow scopes: a rank sees what its threads wrote, and others what was published."""
    members, publishes, local = KERNELS[how]
    case = handed(**members).with_pod_options(**NARROW)
    assert check(case.with_pod_options(**PUBLISHES)).verdict == publishes
    assert check(case.with_pod_options(**LOCAL)).verdict == local


def test_words_of_another_thread_are_apart_for_other_ranks() -> None:
    """The violation is between who wrote them and the rank that was told, in its view of the memory; not its teller."""
    found = check(handed(first="fill_all", second="see").with_pod_options(**NARROW, **LOCAL)).violation
    assert found is not None
    assert "nothing orders two accesses at die0's memory as others see it" in found.message
    assert "by die 0 core 1, kernel fill_all_then_see" in found.message
    assert "by die 1 core 0, kernel take" in found.message


def test_an_end_that_publishes_acquires() -> None:
    """Rank 1 awaits the flag in one kernel, by a read that does not acquire, and reads the words in the next one."""
    case = handed(takes=("hear", "read")).with_pod_options(reads="relaxed", **WIDE)
    assert check(case.with_pod_options(**PUBLISHES)).verdict == NO_VIOLATION
    later = handed(takes=("hear", "read"), first="fill_and_fence").with_pod_options(reads="relaxed", **WIDE)
    assert check(later.with_pod_options(**LOCAL)).verdict == VIOLATION


def test_a_check_says_both_of_the_end_of_a_kernel() -> None:
    """In one line; where no kernel follows another nothing is open."""
    case = handed().with_pod_options(**WIDE)
    assert case.build("relaxed").open_readings == {"boundary"}
    both = stronger(case, {"boundary"}, check)
    assert both is not None
    assert both.words(check(case)).startswith("verified if the end of a kernel publishes to all ranks; data race in ")
    alone = handed(first="fill_and_say", second="").with_pod_options(**WIDE)
    assert alone.build("relaxed").open_readings == set()


def test_an_end_is_cut_by_its_name() -> None:
    """Then it publishes nothing, and the words may not be there."""
    case = handed().with_pod_options(**WIDE, **PUBLISHES)
    assert check(case, without=[ENDS]).verdict == VIOLATION


@pytest.mark.parametrize("order", ["sc", "fifo", "relaxed", "unordered"])
def test_launches_come_in_turn(order: str) -> None:
    """Each goes on with what those before it left, the same kernel twice too; in virtual time they have one span."""
    bench = Bench(order, (), {**WIDE, **LOCAL})
    gpus = cuda.gpus(bench, Regions(1), 1, 3, app_bytes=APP_BYTES, streams=True)
    out = bench.filled(0, np.ones(3, np.int32), "out")
    streams = gpus.streams()
    for name, by in (("add", 2), ("multiply", 5), ("add", 4)):
        args = {"words": out.address, "by": by}
        gpus.launch(cuda.cuda_kernel(SOURCE, name), 0, args, [gpus.pod.grant(out, "rw")], block=3, after=streams)
    streams.put()
    clock = VirtualTime(log=True)
    if order == "sc":
        gpus.pod.policy = clock
    gpus.pod.run()
    assert gpus.pod.span(out.address, 12).view(np.int32).tolist() == [19, 19, 19]
    if order == "sc":
        found = spans(clock.timing, np.arange(len(clock.timing.records)))
        assert {(each.kind, each.name) for each in found} == {("kernel", "add_then_multiply_then_add")}


def test_what_is_in_no_stream_is_refused() -> None:
    """Other blocks, other threads, kernels beside streams, too many ranks, and streams that say nothing of an end."""
    bench = Bench("sc", ())
    gpus = cuda.gpus(bench, Regions(1), 2, 2, app_bytes=APP_BYTES, streams=True)
    kernel, streams, args = cuda.cuda_kernel(SOURCE, "nothing"), gpus.streams(), {"words": 0, "flag": 0, "n": 0}
    with pytest.raises(ConfigError, match="after=None: must be `Gpus"):
        gpus.launch(kernel, 0, args, [])
    with pytest.raises(ConfigError, match="ranks=17: must be 16 at most"):
        cuda.gpus(Bench("sc", ()), Regions(17), 1, 1, app_bytes=APP_BYTES, streams=True)
    gpus.launch(kernel, 0, args, [], block=2, after=streams)
    with pytest.raises(ConfigError, match="block=1: must be 2, as before in its stream"):
        gpus.launch(kernel, 0, args, [], block=1, after=streams)
    with pytest.raises(ConfigError, match="grid=2: must be 1, as before in its stream"):
        gpus.launch(kernel, 0, args, [], grid=2, block=2, after=streams)
    with pytest.raises(KernelError, match="all in CUDA C\\+\\+, with one set of defines"):
        in_turn((kernel, kernel))
    assert Streams.table_bytes(3, kernel) > 0


def _line(text: str) -> int:
    return next(i for i, line in enumerate(SOURCE.read_text().splitlines(), 1) if text in line)
