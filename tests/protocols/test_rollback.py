"""Rollback of an iteration: whenever it is aborted, every rank returns with the rows of a run without an abort."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.protocols.rollback import Rollback


@given(
    st.integers(2, 5), st.integers(1, 5), st.integers(0, 3), st.integers(0, 2), st.integers(1, 3), st.integers(0, 9),
    st.integers(0, 3),
)  # fmt: skip
def test_rows_and_tokens_are_those_of_a_run_without_aborts(
    ranks: int, iterations: int, aborts: int, failures: int, granules: int, seed: int, prompt: int
) -> None:
    """Bit for bit, caches too, for drawn sizes and numbers of aborts and failures, on some drawn schedules."""
    case = Rollback(ranks, iterations, aborts, failures, granules, seed, prompt)
    assert check(case, policy="random", schedules=3).violation is None


NEEDED = (
    "header empty", "row in buffer", "rows before fields", "field", "rows sent", "field in", "row read", "done",
    "done in", "end", "end in", "abort in", "ready", "ready in",
)  # fmt: skip


@pytest.mark.parametrize("without", NEEDED)
def test_what_it_needs_is_needed(without: str) -> None:
    """Without it a schedule shows what goes wrong; "abort in" needs iterations that really go wrong."""
    assert check(Rollback(failures=1, prompt=0), without=[without]).verdict == VIOLATION


@pytest.mark.parametrize("without", ["entry in cache", "cache in buffer"])
def test_what_a_cache_needs_is_needed(without: str) -> None:
    """Ranks that decode need these too; their quiet makes "rows sent" redundant."""
    assert check(Rollback(iterations=1), without=[without]).verdict == VIOLATION


@pytest.mark.slow
@pytest.mark.parametrize("order", ["sc", "fifo", "unordered"])
def test_proved_under_other_orders(order: str) -> None:
    """An abort at any moment of two iterations is survived under every memory order."""
    assert check(Rollback(), order=order).verdict == VERIFIED


@pytest.mark.slow
def test_three_ranks_are_proved() -> None:
    """With three ranks too, where one can hear of an abort that another has not heard of yet."""
    assert check(Rollback(ranks=3, iterations=1)).verdict == VERIFIED


def test_tokens_by_hand() -> None:
    """Two ranks have one entry each: a token is 1 and a remainder of the own tokens and the other's last one."""
    case = Rollback(iterations=1)
    tokens = case.decoded()
    for own, other in ((tokens[0], tokens[1]), (tokens[1], tokens[0])):
        first, last, sampled = own.tolist()
        assert sampled == 1 + (5 * (3 * first + last) + int(other[1])) % (1 << 15)


def test_ranks_a_long_way_apart_in_epochs() -> None:
    """Epochs and iterations share a word, and neither runs into the other: many aborts, many iterations."""
    assert check(Rollback(3, 40, 12, 2), policy="portfolio", schedules=20).violation is None


def test_many_ranks() -> None:
    """What a core may touch does not grow with the number of ranks, so there may be as many as a pod has dies for."""
    assert check(Rollback(64, 2, 2), policy="random", schedules=2).violation is None


@pytest.mark.parametrize("without", ["older ready first", "older abort first"])
def test_epochs_in_one_word_are_in_order(without: str) -> None:
    """Where memory keeps no order, a fence between what is told of two epochs is needed, and enough."""
    case = Rollback(iterations=1, aborts=2)
    assert check(case, order="unordered").verdict == VERIFIED
    assert check(case, order="unordered", without=[without]).verdict == VIOLATION
