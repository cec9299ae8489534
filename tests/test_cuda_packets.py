"""Packets and poison in CUDA C++: what says that data are there comes with them, if 16 bytes are written at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.foreign_support import ROOT, has_clang
from xccl_emu import lang
from xccl_emu.check.check import check
from xccl_emu.check.verdict import NO_VIOLATION, VERIFIED, VIOLATION
from xccl_emu.cli.check_job import stronger
from xccl_emu.doors.cuda import launch
from xccl_emu.machine import small_pod
from xccl_emu.protocol import Bench, registry
from xccl_emu.protocol.case import Case
from xccl_emu.timing.run import VirtualTime

pytestmark = pytest.mark.skipif(not has_clang(), reason="no clang: kernels in CUDA C++ are not compiled here")

EXAMPLE = f"{ROOT}/examples/cuda/packets.py"
Packets: Any = type(registry.make(f"{EXAMPLE}:Packets"))
Poisoned: Any = type(registry.make(f"{EXAMPLE}:Poisoned"))
SOURCE: Path = Packets.source
WHOLE, PARTS = {"vectors": "whole", "reads": "acquire"}, {"vectors": "parts", "reads": "acquire"}
RELAXED = {"reads": "relaxed"}


def edited(of: Any, folder: Path, *edits: tuple[str, str], **more: Any) -> Case:
    """A case of the example with edits of its source, each of a text that is there once."""
    text = SOURCE.read_text()
    for was, becomes in edits:
        assert text.count(was) == 1
        text = text.replace(was, becomes)
    file = folder / "packets.cu"
    file.write_text(text)
    case: Case = type("Edited", (of,), {"source": file, "__annotations__": {}})(**more)
    return case


# ---- what it does, and what it rests on


@pytest.mark.parametrize("of", [Packets, Poisoned])
@pytest.mark.parametrize("order", ["sc", "relaxed", "unordered"])
def test_runs_end_with_the_sum(of: Any, order: str) -> None:
    """Three ranks of two threads, three calls: each word is NumPy's, and the reason says what it rests on."""
    case = of(ranks=3, threads=2, packets=2, calls=3).with_pod_options(**WHOLE)
    found = check(case, order=order, policy="random", schedules=3)
    assert (found.verdict, found.reason) == (NO_VIOLATION, f"{launch.READ_AS}; {launch.ACQUIRING}; {launch.RELIES_ON}")


@pytest.mark.parametrize("of", [Packets, Poisoned])
def test_it_ends_in_virtual_time(of: Any) -> None:
    """Whoever polls packets sees those of its time, and goes on."""
    trial = of(calls=2).with_pod_options(**WHOLE).build("sc")
    trial.pod.policy = VirtualTime()
    trial.pod.run()
    found = [trial.pod.span(each.address, len(each.data)).tobytes() for each in trial.expected]
    assert found == [each.data for each in trial.expected]


@pytest.mark.slow
@pytest.mark.parametrize(("of", "calls"), [(Packets, 3), (Poisoned, 2)])
def test_it_is_verified_if_16_bytes_are_whole(of: Any, calls: int) -> None:
    """Two ranks, every schedule."""
    assert check(of(calls=calls).with_pod_options(**WHOLE)).verdict == VERIFIED


def test_by_elements_a_packet_is_torn() -> None:
    """PTX's reading: both flags are there, and data next to them were read before."""
    found = check(Packets(calls=1)).violation
    assert found is not None
    assert found.kind == "wrong bits"


def test_a_check_leaves_the_reading_open() -> None:
    """What polls a vector is judged both ways, and what does not is not."""
    case = Packets(calls=1)
    assert case.build("relaxed").open_readings == {"vectors", "reads"}
    both = stronger(case, {"vectors", "reads"}, check)
    assert both is not None
    assert (both.read, both.verdict.verdict) == (WHOLE, VERIFIED)


@pytest.mark.parametrize("case", [
    Packets().with_pod_options(**WHOLE | RELAXED), Poisoned().with_pod_options(**WHOLE | RELAXED),
    Poisoned().with_pod_options(**PARTS | RELAXED),
], ids=["packets, whole", "poison, whole", "poison, by elements"])  # fmt: skip
def test_data_next_to_their_flag_need_no_acquire(case: Case) -> None:
    """What a relaxed read has seen it has seen; to overwrite it races with nobody, and a fence is in the example."""
    assert check(case, policy="portfolio", schedules=200).verdict == NO_VIOLATION


# ---- planted bugs, in the reading in which 16 bytes are whole

HALVES = (
    'asm volatile(PUT " [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(data.x), "r"(flag), "r"(data.y), "r"(flag)',
    'asm volatile("st.volatile.v2.u32 [%0], {%1, %3}; st.volatile.v2.u32 [%0+8], {%2, %3};"\n'
    '::"l"(at), "r"(data.x), "r"(data.y), "r"(flag)',
)
"""Two stores of 8 bytes, each with its flag."""
ONE_FLAG = ("while (first != flag || second != flag)", "while (first != flag)")
SAME_FLAG = [("in[own], call);", "in[own], 1);"), ("* packets + i, call);", "* packets + i, 1);")]
EACH_WORD = " || data.y == POISON || data.z == POISON || data.w == POISON"
CLEAN = "put(ranks.packets[rank] + (next"
BUGS: Mapping[str, tuple[Any, list[tuple[str, str]], int, str, str]] = {
    "halves with one flag": (Packets, [HALVES, ONE_FLAG], 1, VIOLATION, VIOLATION),
    "halves with both": (Packets, [HALVES], 1, VERIFIED, VIOLATION),
    "one flag of a whole packet": (Packets, [ONE_FLAG], 1, VERIFIED, VIOLATION),
    "the same flag in each call": (Packets, SAME_FLAG, 3, VIOLATION, VIOLATION),
    "one slot": (Packets, [("call % SLOTS * N, own", "0, own")], 2, VIOLATION, VIOLATION),
    "poison in each word": (Poisoned, [], 1, VERIFIED, VERIFIED),
    "poison in one word": (Poisoned, [(EACH_WORD, "")], 1, VERIFIED, VIOLATION),
    "no poison for later calls": (Poisoned, [(CLEAN, f"if (0) {CLEAN}")], 3, VIOLATION, VIOLATION),
    "poison that comes late": (Poisoned, [("            __threadfence_system();\n", "")], 2, VIOLATION, VIOLATION),
}  # fmt: skip
"""Edits of the source, how many calls, and what becomes of it whole and by elements."""


@pytest.mark.slow
@pytest.mark.parametrize("edit", BUGS)
def test_each_edit_is_judged_in_both_readings(edit: str, tmp_path: Path) -> None:
    """What is wrong with 16 bytes at once is a bug of the protocol; what is wrong by elements alone rests on them."""
    of, edits, calls, whole, parts = BUGS[edit]
    case = edited(of, tmp_path, *edits, calls=calls)
    found = [check(case.with_pod_options(**reading)).verdict for reading in (WHOLE, PARTS)]
    assert found == [whole, parts]


# ---- the same in Python


@lang.kernel
def reduced(own, out, mine, theirs, calls):
    """Packets of {data, flag, data, flag}, in slots that take turns; the sum of two ranks."""
    for call in range(1, calls + 1):
        slot = call % 2 * 32
        for half in range(2):
            word = yield lang.load(own + 4 * half, 4)
            yield lang.ub_store(8 * half, word)
            yield lang.ub_store(8 * half + 4, call)
            yield lang.ub_store(32 + 4 * half, word)
        yield lang.mtu_out(0, theirs + slot, 16)
        yield lang.poll_line_eq(mine + slot, 16, 16, 0b1010, call << 32, sync="packet in")
        for half in range(2):
            word = yield lang.ub_load(16 + 8 * half)
            here = yield lang.ub_load(32 + 4 * half)
            yield lang.store(out + 4 * half, word + here, 4)
        yield lang.quiet()
        own += 8
        out += 8


@dataclass(frozen=True)
class Twin(Case):
    """Two ranks; each sends what it has to the other."""

    calls: int = 2
    atomic_bytes: ClassVar[int] = 32

    def lay_out(self, bench: Bench) -> None:
        """As `Packets`, but that nobody sends to itself."""
        data = np.arange(1, 1 + 4 * self.calls, dtype=np.uint32).reshape(2, self.calls, 2)
        spec = small_pod(2, app_bytes=32 * self.calls, meta_bytes=0, managed_bytes=64, atomic_bytes=self.atomic_bytes)
        pod = bench.pod(spec)
        for rank in range(2):
            bench.fill(pod.managed(rank), np.zeros(16, np.uint32))
        for rank in range(2):
            own, out = bench.filled(rank, data[rank]), bench.wanted(rank, data.sum(0, np.uint32), "out")
            args = {
                "own": own.address, "out": out.address, "mine": pod.managed(rank), "theirs": pod.managed(1 - rank),
                "calls": self.calls,
            }  # fmt: skip
            grants = [pod.grant(own, "r"), pod.grant(out, "w"), pod.grant_managed("rw")]
            pod.launch(reduced, rank, [0], args, grants)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [32, 4])
def test_its_twin_in_python_has_the_same_verdicts(unit: int) -> None:
    """A pod whose units are of 4 bytes is what CUDA C++ is by elements."""
    case = type("OfUnits", (Twin,), {"atomic_bytes": unit, "__annotations__": {}})()
    reading = WHOLE if unit == 32 else PARTS
    found = check(case).verdict, check(Packets(calls=2).with_pod_options(**reading)).verdict
    assert found == (2 * (VERIFIED,) if unit == 32 else 2 * (VIOLATION,))
