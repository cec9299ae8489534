"""Livelocks as schedules that replay: actions that lead to a state, and others that lead from it back to it."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from xccl_emu.base.errors import ReplayError
from xccl_emu.check.certify import certify
from xccl_emu.check.check import check
from xccl_emu.check.sampling.sample import replay
from xccl_emu.check.search import livelock
from xccl_emu.check.search.device import edge
from xccl_emu.check.shrink import with_violation
from xccl_emu.check.verdict import LIVELOCK, UNFINISHED, VIOLATION, Verdict, Violation
from xccl_emu.check.witness.exported import mermaid
from xccl_emu.check.witness.highlight import LOOP, marks
from xccl_emu.check.witness.replay_file import Witness
from xccl_emu.check.witness.replayer import Replayer
from xccl_emu.lang import kernel, load, store
from xccl_emu.machine.device.layout import ACTORS_PER_CORE, CHOICE_BITS
from xccl_emu.machine.explore import standing
from xccl_emu.testing import Bench, protocol

from .small import on_dies
from .witness_support import printed

CORES = 2
PERFORM = CORES * ACTORS_PER_CORE << CHOICE_BITS
"""Die 0 makes its oldest write visible."""
SPIN = ACTORS_PER_CORE << CHOICE_BITS
"""The scalar unit of the core on die 1."""


@kernel
def set_twice(word):
    """Set a word to what the other side waits for, and then to something else."""
    yield store(word, 1)
    yield store(word, 2)


@kernel
def look_twice(word):
    """Wait for the first value, by two loads in turn."""
    seen = 0
    while seen != 1:
        seen = yield load(word, sync="a look")
        if seen != 1:
            seen = yield load(word, sync="another look")


@protocol
def spin(bench: Bench) -> None:
    """Die 1 spins on a word of its own, which die 0 sets."""
    on_dies(bench, {0: set_twice, 1: look_twice})


def found() -> Violation:
    """Die 0 does all that it can, then die 1 spins until it is where it was before."""
    player, taken = Replayer(spin().build("relaxed").pod), []
    while any(player.take(code) and not taken.append(code) for code in (0, PERFORM)):
        pass
    seen: dict[tuple[int, int], int] = {}
    while (state := standing(player.pod)) not in seen:
        seen[state] = len(taken)
        assert player.take(SPIN)
        taken.append(SPIN)
    return Violation(LIVELOCK, "", np.array(taken, np.int64), "by hand", 1, len(taken) - seen[state])


VIOLATION_FOUND = Verdict(VIOLATION, "spin", {}, "relaxed", "exhaustive", 0)


def test_a_loop_that_leads_back_is_a_livelock() -> None:
    """The replay names who is not done and what is asked for in the loop, each once; the trial is put back."""
    by_hand, trial = found(), spin().build("relaxed")
    assert by_hand.loop == 2
    for _ in range(2):
        shown = replay(trial, by_hand.actions, by_hand.loop)
        assert (shown.kind, shown.loop, len(shown.actions)) == (LIVELOCK, by_hand.loop, len(by_hand.actions))
    headline, *lines = shown.message.splitlines()
    assert headline == "livelock: these 2 steps lead back to the same state, and can go on for ever"
    assert [line.split(":")[0] for line in lines] == ["  not done", "  in the loop", "  in the loop"]
    assert all("die 1 core 0" in line for line in lines)
    assert sorted(line.split("sync ")[1].split(")")[0] for line in lines[1:]) == ["'a look'", "'another look'"]


@pytest.mark.parametrize("change", ["no loop", "one less", "one more", "without the end"])
def test_what_does_not_lead_back_is_none(change: str) -> None:
    """A loop of another length, or a schedule that ends elsewhere, shows nothing."""
    by_hand = found()
    actions: NDArray[np.int64] = by_hand.actions[:-1] if change == "without the end" else by_hand.actions
    loop = {"no loop": 0, "one less": by_hand.loop - 1, "one more": by_hand.loop + 1}.get(change, by_hand.loop)
    assert replay(spin().build("relaxed"), actions, loop) is None


def test_the_replay_file_keeps_the_loop(tmp_path: Path) -> None:
    """It is read back and shows the livelock again; an old file has none, a damaged one is refused."""
    by_hand, path = found(), tmp_path / "w.json"
    Witness.of(spin(), by_hand, "relaxed").save(path)
    witness = Witness.load(path)
    assert witness.loop == witness.violation().loop == by_hand.loop
    assert replay(witness.trial(spin()), witness.actions, witness.loop) is not None
    text = path.read_text()
    path.write_text(text.replace(f'  "loop": {by_hand.loop},\n', ""))
    assert Witness.load(path).loop == 0
    for bad in ("-1", "true", "100000", '"1"'):
        path.write_text(text.replace(f'"loop": {by_hand.loop}', f'"loop": {bad}'))
        with pytest.raises(ReplayError, match=r"loop=.* damaged"):
            Witness.load(path)


def test_table_and_chart_show_the_loop_once() -> None:
    """A mark stands where it begins."""
    by_hand = found()
    violation = replay(spin().build("relaxed"), by_hand.actions, by_hand.loop)
    text, trace = printed(spin().build("relaxed"), violation, 160)
    first = len(trace.steps) - violation.loop + 1
    assert len(trace.steps) == len(by_hand.actions)
    assert marks(trace, violation) == {first: LOOP}
    assert f"{LOOP}  step {first}: from here round and round, {violation.loop} steps" in text
    assert "not done: die 1 core 0" in text
    chart = mermaid(trace, marks(trace, violation)).splitlines()
    assert chart.count("    loop from here round and round") == 1
    assert chart[-1] == "    end"


def test_a_livelock_is_shown_as_its_replay_tells_it_and_certified() -> None:
    """What the front door makes of one that a search has found: message and loop are those of the replay."""
    by_hand = found()
    seen = replay(spin().build("relaxed"), by_hand.actions, by_hand.loop)
    verdict = with_violation(spin(), VIOLATION_FOUND, seen)
    violation = verdict.violation
    assert (violation.kind, violation.loop) == (LIVELOCK, by_hand.loop)
    assert violation.message.startswith(f"livelock: these {by_hand.loop} steps")
    assert verdict.to_json()["violation"]["loop"] == by_hand.loop
    certificate = certify(spin(), verdict, seconds=1.0).certificate
    assert certificate.replayed


@given(st.integers(1, 8), st.lists(st.tuples(st.integers(0, 7), st.integers(-1, 7)), max_size=24))
def test_what_comes_to_an_end_is_what_walks_back_from_the_ends_find(n: int, pairs: list[tuple[int, int]]) -> None:
    """Transitions may come in any order: the same states as by going back from each end, state by state."""
    pairs = [(one % n, other % n if other >= 0 else other) for one, other in pairs]
    edges = np.array([(*pair, 0, 0) for pair in pairs], np.int64).reshape(-1, edge.WORDS)
    ending = {one for one, other in pairs if other < 0}
    for _ in range(n):
        ending |= {one for one, other in pairs if other in ending}
    assert set(np.flatnonzero(livelock.reaches_end(n, edges)).tolist()) == ending


def test_searches_that_disagree_about_ends_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where depth first a state has no way to an end, and breadth first each has one, nothing is verified."""
    assert check(spin(), order="relaxed").verdict == VIOLATION
    monkeypatch.setattr(livelock, "reaches_end", lambda n, edges: np.ones(n, np.bool_))
    told = check(spin(), order="relaxed")
    assert (told.verdict, "breadth first each has one: please report this" in told.reason) == (UNFINISHED, True)
