"""Lines of 16 bytes that a scalar unit reads and writes at once: litmus tests in C, in each order, and refusals."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.foreign_support import needs_compiler, written
from xccl_emu.base.errors import AccessError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import NO_VIOLATION, VERIFIED, VIOLATION
from xccl_emu.lang import kernel, load_line, store_line
from xccl_emu.machine import Pod, small_pod
from xccl_emu.protocol import Bench
from xccl_emu.testing import protocol

from .support import ORDERS

GIVE = "xccl_store_line(line, 7, 1);"
HALVES = "xccl_store(line, 7, 8); xccl_store(line + 8, 1, 8);"
TAKE = 'do { low = xccl_load_line(line, .sync = "line"); high = xccl_high(); } while (high != 1);'
LOADS = 'low = xccl_load(line, 8, .sync = "low"); high = xccl_load(line + 8, 8, .sync = "high");'
WORDS = f"do {{ {LOADS} }} while (high != 1);"


def message(folder: Path, give: str, take: str) -> Any:
    """A case: one die gives a word and a flag in a line, another awaits the flag and keeps the word."""
    give = written(folder, f"XCCL_KERNEL void give(int64_t line) {{ {give} }}", "give")
    body = f"{{ int64_t low, high; {take} xccl_store(out, low, 8); }}"
    take = written(folder, f"XCCL_KERNEL void take(int64_t line, int64_t out) {body}", "take")

    @protocol
    def case(bench: Bench) -> None:
        pod = bench.pod(small_pod(2, app_bytes=32, meta_bytes=32, managed_bytes=0))
        out = bench.wanted(1, np.array([7]), "out")
        pod.launch(give, 0, [0], {"line": pod.meta(0)}, [pod.grant_meta("rw", 0)])
        args = {"line": pod.meta(0), "out": out.address}
        pod.launch(take, 1, [0], args, [pod.grant_meta("rw", 0), pod.grant(out, "w")])

    return case()


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_who_sees_the_flag_of_a_line_sees_its_word(order: str, tmp_path: Path) -> None:
    """A word and a flag that are written and read at once are one: by search, by brute force, and in drawn runs."""
    case = message(tmp_path, GIVE, TAKE)
    found = check(case, order=order, certify=1.0)
    assert (found.verdict, found.certificate and found.certificate.disagreement) == (VERIFIED, "")
    assert check(case, order=order, policy="random", schedules=20).verdict == NO_VIOLATION


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("give", "take", "wrong_in"),
    [(GIVE, WORDS, ORDERS), (HALVES, TAKE, ("unordered",))],
    ids=["read by halves", "written by halves"],
)
def test_halves_come_apart(give: str, take: str, wrong_in: tuple[str, ...], tmp_path: Path) -> None:
    """Halves that are read one after the other show an old word by a new flag; so do halves that change places."""
    case = message(tmp_path, give, take)
    found = {order: check(case, order=order).verdict for order in ORDERS}
    assert found == {order: VIOLATION if order in wrong_in else VERIFIED for order in ORDERS}


@needs_compiler
@pytest.mark.nojit
@pytest.mark.parametrize("order", ORDERS)
def test_a_core_sees_its_own_lines_and_words_in_flight(order: str, tmp_path: Path) -> None:
    """The youngest bytes are seen of a line, and of what is stored over parts of it."""
    body = """xccl_store_line(line, 5, 6); xccl_store(line + 8, 9, 8); xccl_store(line + 4, 3, 4);
    int64_t low = xccl_load_line(line), high = xccl_high();
    return low == (5 | 3ll << 32) && high == 9 && xccl_load(line + 8, 8) == 9;"""
    own = written(tmp_path, f"XCCL_KERNEL int64_t own(int64_t line) {{ {body} }}", "own")
    pod = Pod(small_pod(1, app_bytes=0, meta_bytes=32, managed_bytes=0), order=order)
    launch = pod.launch(own, 0, [0], {"line": pod.meta(0)}, [pod.grant_meta("rw", 0)])
    pod.run()
    assert launch.results == [1]


@kernel
def give_back(line):
    """Read a line and write it again."""
    low = yield load_line(line)
    yield store_line(line, low, low)


@pytest.mark.nojit
@pytest.mark.parametrize("size", [{"scalar_cache": 2}, {"atomic_bytes": 8}], ids=str)
def test_a_line_is_refused_where_it_is_not_whole(size: Mapping[str, int]) -> None:
    """Lines pass no cache, and 16 bytes have to become visible at once."""
    pod = Pod(small_pod(1, app_bytes=0, meta_bytes=64, managed_bytes=0).with_(**size))
    pod.launch(give_back, 0, [0], {"line": pod.meta(0)}, [pod.grant_meta("rw", 0)])
    with pytest.raises(AccessError, match=r"load_line: size out of range \(16, 8\)"):
        pod.run()
