"""Arithmetic that fails in a kernel under some schedules is a violation like any other: a kind, a line, a witness."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli_support import as_json, python
from xccl_emu.check.check import check
from xccl_emu.check.search.exhaustive import Search
from xccl_emu.check.search.setup import Setup
from xccl_emu.check.verdict import ARITHMETIC, VERIFIED
from xccl_emu.guards.campaign.judge import SEARCHES
from xccl_emu.lang import kernel, load, poll_ge, put, quiet, store
from xccl_emu.machine.explore import explore
from xccl_emu.protocol import Bench, Case, Regions, choice
from xccl_emu.testing import replay, save_witness, witness_text

TABLE = (1, 2)
NAMES = ("division", "modulo", "shift", "index", "step", "helper", "loop", "test", "request", "early", "off")
HOW = {name: number for number, name in enumerate(NAMES)}


def _share(left: int) -> int:
    return 12 // left


@kernel
def tell(flag):
    """Two flags one after the other, so that the second may be there early."""
    yield put(flag, 1, sync="first")
    yield put(flag, 2, sync="second")


@kernel
def divide(flag, own, how):
    """Fail in some way, if the second flag is there."""
    yield poll_ge(flag, 1, sync="arrived")
    seen = yield load(flag, sync="looked at")
    left = 2 - seen
    share = 0
    if how == 0:
        share = 12 // left
    if how == 1:
        share = 12 % left
    if how == 2:
        share = 1 << (left - 1)
    if how == 3:
        share = TABLE[2 - left]
    if how == 4:
        share = len(range(0, 9, left))
    if how == 5:
        share = _share(left)
    if how == 6:
        for i in range(3):
            share += i
            share += 12 // left
    if how == 7:
        while share < 12 // left:
            yield quiet(sync="one more")
            share += 6
    if how == 9:
        share = 12 // seen
    if how == 8:
        yield store(own, 12 // left, sync="stored")
    yield store(own, share, sync="stored")


LINES = {
    "division": "share = 12 // left", "modulo": "share = 12 % left", "shift": "share = 1 << (left - 1)",
    "index": "share = TABLE[2 - left]", "step": "share = len(range(0, 9, left))", "helper": "share = _share(left)",
    "loop": "share += 12 // left", "test": "while share < 12 // left:",
    "request": 'yield store(own, 12 // left, sync="stored")',
}  # fmt: skip


@dataclass(frozen=True)
class Sharing(Case):
    """A core divides by what another one has left."""

    how: str = choice("off", "It fails.", of=HOW)

    def lay_out(self, bench: Bench) -> None:
        """A flag and a word on die 1."""
        regions = Regions(2)
        flag, own = regions.meta("flag"), regions.meta("own")
        pod = bench.pod(regions.tight_pod(app_bytes=64, ub_bytes=32))
        regions.place(bench, pod)
        pod.launch(tell, 0, [0], {"flag": flag.at(1)}, [flag.grant(1, "w", 0)])
        pod.launch(
            divide, 1, [0], {"flag": flag.at(1), "own": own.at(1), "how": HOW[self.how]},
            [flag.grant(1, "r"), own.grant(1, "rw")],
        )  # fmt: skip


def _at(how: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("def divide"))
    (number,) = (n for n, line in enumerate(lines[first:first + 35], first + 1) if line.strip() == LINES[how])
    return f"die 1 core 0, kernel divide ({__file__}:{number}) `{LINES[how]}`: arithmetic failed: "


@pytest.mark.parametrize("how", LINES)
def test_every_judge_finds_the_line(how: str, tmp_path: Path) -> None:
    """Search, with all reductions, with one, and breadth first; sampling; brute force; and the file replays."""
    case, at = Sharing(how), _at(how)
    assert any(error.startswith(at) for error in explore(case.build("relaxed").pod).errors)
    for name in SEARCHES:
        trial = case.build("relaxed")
        found = Search(
            Setup(trial, full=name != "merged"), max_states=10_000, seconds=20.0, progress=None,
            breadth_first=name == "breadth first",
        ).run()  # fmt: skip
        assert (found.kind, found.message.startswith(at)) == (ARITHMETIC, True)
    for policy in ("exhaustive", "portfolio"):
        verdict = check(case, policy=policy, schedules=200)
        assert verdict.violation is not None
        assert (verdict.violation.kind, verdict.violation.message[: len(at)]) == (ARITHMETIC, at)
        again = replay(case, save_witness(case, verdict, tmp_path / f"{policy}.json"))
        assert again is not None
        assert (again.kind, again.message) == (ARITHMETIC, verdict.violation.message)
        assert "arithmetic failed" in witness_text(case, verdict)
    assert all(site.operation != "arithmetic" for site in divide.sites)


def test_what_does_not_fail_is_verified() -> None:
    """A possible division by zero that never happens is no violation, under any order, with a certificate."""
    for order in ("sc", "fifo", "relaxed", "unordered"):
        assert check(Sharing(), order=order).verdict == VERIFIED


def test_each_sync_tells_of_it() -> None:
    """A wait is needed if without it a division fails, and the result says why."""
    each = as_json("check", f"{__file__}:Sharing", "--how", "early", "--each-sync")["each_sync"]
    (arrived,) = (one for one in each if one["sync"] == "arrived")
    assert (arrived["finding"], arrived["violation"]["kind"]) == ("needed", ARITHMETIC)


def test_with_the_jit_off_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Line and kind, by plain Python."""
    script = """
import tests.check.test_arithmetic as it
for how in it.LINES:
    found = it.check(it.Sharing(how)).violation
    assert (found.kind, found.message.startswith(it._at(how))) == (it.ARITHMETIC, True), found.message
"""
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    done = python(script)
    assert done.returncode == 0, done.stderr
