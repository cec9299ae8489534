"""Going on with fewer ranks: whichever rank is lost, dead or alive, the others end with the rows of all experts."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.check import mutants_membership as mutants
from tests.check.mutants import Planted
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.trial import Expected, Judge, Trial
from xccl_emu.check.verdict import DEADLOCK, VERIFIED, VIOLATION, WRONG_BITS
from xccl_emu.protocols.serving.membership import Membership


@given(st.integers(2, 6), st.integers(1, 4), st.integers(0, 6), st.integers(0, 1), st.integers(1, 3), st.integers(0, 9))
def test_rows_are_there_whoever_is_lost(
    ranks: int, iterations: int, lost: int, spares: int, granules: int, seed: int
) -> None:
    """For drawn sizes, on some drawn schedules: alive when it is given up, or stopped at a drawn moment."""
    case = Membership(ranks, iterations, min(lost, ranks), spares, granules, seed)
    assert check(case, policy="random", schedules=3).violation is None
    if lost < ranks:
        assert check(case, policy="random", schedules=3, fault=f"stop:die{lost}").violation is None


@pytest.mark.parametrize("lost", range(3))
def test_any_one_of_three_dies_stops_and_the_others_finish(lost: int) -> None:
    """At every moment, in every schedule: the others return with all experts' rows, the lost one's of its heir."""
    found = check(Membership(lost=lost), fault=f"stop:die{lost}", policy="exhaustive")
    assert (found.verdict, found.recovery is None) == (VERIFIED, False)


def test_any_one_of_eight_dies_stops() -> None:
    """Sampled: each in turn, with two iterations."""
    for lost in range(8):
        found = check(Membership(8, 2, lost), fault=f"stop:die{lost}", schedules=30, seed=lost)
        assert (found.violation, found.ended["blocked"]) == (None, 0)
        assert found.ended["right"] > 0


@pytest.mark.parametrize("order", ["sc", "fifo", "unordered"])
def test_two_ranks_under_other_orders(order: str) -> None:
    """One of two is left, under every memory order."""
    found = check(Membership(2, 2, 1), order=order, fault="stop:die1", policy="exhaustive")
    assert found.verdict == VERIFIED


def test_a_rank_that_nobody_may_give_up_is_waited_for() -> None:
    """Without a suspicion the others wait for ever, as the case says that they may."""
    found = check(Membership(lost=3), fault="stop:die1", schedules=40)
    assert found.violation is None
    assert found.ended["blocked"] > 0


WAITS = mutants.of(mutants.WORD_IN, mutants.WORD_IN.replace("(g.epoch + 1)", "(g.epoch + 2)"))


def test_some_bugs_show_only_where_a_die_stops() -> None:
    """Who waits for rows does not hear of a loss: that is right as long as the lost rank is alive and sends its own."""
    planted = Planted(Membership(), (WAITS,))
    assert check(planted).verdict == VERIFIED
    assert check(planted, fault="stop:die2", policy="exhaustive").violation.kind == DEADLOCK


TIMED = Membership(2, lost=2, timed=1)


@pytest.mark.slow
@pytest.mark.parametrize("die", range(3))
@pytest.mark.parametrize("lost", [1, 2])
def test_the_supervisor_or_a_rank_stops_and_the_others_say_so(lost: int, die: int) -> None:
    """At every moment: each of the others returns, with its rows as far as it says, or says for whom it has waited."""
    found = check(Membership(2, lost=lost, timed=1), fault=f"stop:die{die}", policy="exhaustive")
    assert (found.verdict, found.recovery is None) == (VERIFIED, False)


def test_where_no_time_out_passes_all_are_through() -> None:
    """In every schedule all have all rows, and nobody has waited in vain: so they do not give up always."""
    assert check(Planted(mutants.THROUGH_ALL, mutants.IN_TIME)).verdict == VERIFIED


@pytest.mark.parametrize("die", [0, 3, 4])
def test_the_supervisor_of_four_stops(die: int) -> None:
    """Sampled, with two iterations and a rank that may be given up: nobody waits for ever."""
    found = check(Membership(4, 2, 3, timed=1), fault=f"stop:die{die}", schedules=30)
    assert (found.violation, found.ended["blocked"]) == (None, 0)
    assert found.ended["right"] > 0


def test_without_a_time_out_all_wait_for_the_supervisor() -> None:
    """A rank that never gives the supervisor up is right while it lives, and waits for ever when it stops."""
    waits = mutants.of("        came -= late\n", "        came -= late * (rank < g.ranks)\n")
    found = check(Planted(TIMED, (waits,)), fault="stop:die2", schedules=40)
    assert found.violation.kind == "livelock"


@pytest.mark.slow
@pytest.mark.parametrize("iterations", [1, 2])
@pytest.mark.parametrize("joins", [1, 2])
def test_a_rank_that_joins_may_stop_at_any_moment(joins: int, iterations: int) -> None:
    """Before it asks, before it has answered the word that takes it in, or later: the other has the rows of both."""
    found = check(Membership(2, iterations, 1, joins=joins), fault="stop:die1", policy="exhaustive")
    assert (found.verdict, found.recovery is None) == (VERIFIED, False)


@dataclass(frozen=True)
class NobodyJoins(Membership):
    """The same, in which the rank that asks is to have no rows."""

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """Expect that it says so."""
        return mutants.ends_with(super().build(order, without), {f"die{self.lost}.said": (0, 0)})


@pytest.mark.parametrize("joins", [1, 2])
def test_a_rank_that_joins_gets_rows(joins: int) -> None:
    """In some schedule it ends with those of an iteration; in none where the supervisor answers nobody."""
    case = NobodyJoins(2, 1, 1, joins=joins)
    found = check(case).violation
    assert found.kind == WRONG_BITS
    assert "die1.said" in found.message
    assert check(Planted(case, (mutants.NOBODY_JOINS,))).verdict == VERIFIED


# ---- its die begins again


AGAIN = Membership(2, 1, 1, joins=3)


@dataclass(frozen=True)
class NobodyReturns(Membership):
    """The same, in which a rank whose die began again is to have no rows."""

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """Judge what it says by its lives."""
        trial = super().build(order, without)
        at = {label.name: label.address for label in trial.labels}
        ranges = ((at[f"die{self.lost}.lives"], 8), (at[f"die{self.lost}.said"], 16))
        judge = Judge("said", ranges, lambda lives, said: lives.view(np.int64)[0] < 2 or not said.any())
        return replace(trial, expected=(*trial.expected, Expected("said", ranges[0][0], b"", judge=judge)))


@pytest.mark.parametrize(("ranks", "iterations"), [(2, 1), (2, 2), (3, 2)])
def test_a_die_begins_again_and_its_rank_comes_back_or_stays_out(ranks: int, iterations: int) -> None:
    """On drawn schedules of every policy: the others have all rows, it has those that it says, and all return."""
    found = check(Membership(ranks, iterations, 1, joins=3), fault="revive:die1", schedules=300)
    assert found.violation is None
    assert found.ended["blocked"] == 0
    assert found.ended["right"] > 20


def test_where_nothing_breaks_a_rank_of_several_lives_is_as_any() -> None:
    """In every schedule, given up at any moment or not."""
    assert check(AGAIN).verdict == VERIFIED


def test_a_rank_whose_die_began_again_is_a_member_again() -> None:
    """In some schedule it ends with rows; in none where the supervisor answers nobody."""
    case = NobodyReturns(2, 1, 1, joins=3)
    found = check(case, fault="revive:die1", schedules=2000).violation
    assert found is not None
    assert found.kind == WRONG_BITS
    alone = Planted(case, (mutants.NOBODY_JOINS,))
    assert check(alone, fault="revive:die1", schedules=300).violation is None


@pytest.mark.parametrize("bug", mutants.LIVES)
def test_bugs_of_who_begins_again(bug: str) -> None:
    """Right where nothing breaks, and not where its die begins again."""
    planted = Planted(AGAIN, mutants.LIVES[bug])
    assert check(planted, policy="portfolio", schedules=100).violation is None
    assert check(planted, fault="revive:die1", schedules=3000).violation is not None


@given(st.integers(2, 5), st.integers(1, 4), st.integers(0, 4), st.integers(1, 2), st.integers(1, 2), st.booleans())
def test_rows_are_there_whoever_joins(
    ranks: int, iterations: int, lost: int, joins: int, granules: int, stops: bool
) -> None:
    """For drawn sizes, on some drawn schedules, whether it stops or not."""
    case = Membership(ranks, iterations, min(lost, ranks - 1), 1, granules, joins=joins)
    fault = f"stop:die{case.lost}" if stops else ""
    assert check(case, policy="random", schedules=3, fault=fault).violation is None


@pytest.mark.parametrize("order", ["sc", "fifo", "unordered"])
@pytest.mark.parametrize("joins", [1, 2])
def test_a_rank_joins_under_other_orders(joins: int, order: str) -> None:
    """One of two, under every memory order."""
    assert check(Membership(2, 1, 1, joins=joins), order=order).verdict == VERIFIED


def test_words_of_two_epochs_keep_their_order_by_a_fence() -> None:
    """Else, under `unordered`, the word that takes a rank in may land on the one of its next loss, and stay."""
    found = check(Membership(2, 1, 1, joins=1), order="unordered", without=["older word first"])
    assert found.violation.kind in (DEADLOCK, WRONG_BITS)


NEEDED = (
    "header empty", "row in buffer", "rows before fields", "field", "rows sent", "field in", "row read", "row copied",
    "done", "done in", "end", "end in", "word", "ready", "ready in",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("without", NEEDED)
def test_what_it_needs_is_needed(without: str) -> None:
    """Without it a schedule shows what goes wrong."""
    assert check(Membership(), without=[without]).verdict == VIOLATION


def test_no_such_rank() -> None:
    """The error says which ranks there are."""
    with pytest.raises(ConfigError, match=r"lost=4: must be a rank, 0 to 2, or 3 for none"):
        Membership(lost=4)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"lost": 3}, "joins=1: must be 0 with lost=3, which is no rank that could join"),
        ({"timed": 1}, "joins=1: must be 0 with timed=1: who joins has no time-outs"),
    ],
)
def test_nobody_joins_who_was_never_lost(sizes: Mapping[str, int], says: str) -> None:
    """Nor where waits have time-outs of their own; the error says which of the two it is."""
    with pytest.raises(ConfigError, match=says):
        Membership(joins=1, **sizes)
