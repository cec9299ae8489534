"""The exhaustive search against the naive one on small programs drawn at random."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.machine.explore import Explored

from .search_random import small_configuration, small_order
from .search_support import Small, disagreements

STATES_MAX = 20_000
"""Of the naive search; what is larger is only searched until then."""


def judged(small: Small, order: str, most: int, monitor: bool = False) -> list[str]:
    """Disagreements with some of the naive search's ends as the expected one."""
    naive = small.naive(order, STATES_MAX)
    return [
        wrong for outcome in ends(small, naive)[:most] for wrong in disagreements(small, order, naive, outcome, monitor)
    ]


def ends(small: Small, naive: Explored) -> list[tuple[int, ...] | None]:
    """What memory can be like at the end; None if there is no end."""
    return [*sorted({words[: small.n_words()] for words in naive.outcomes})] or [None]


@given(st.randoms(use_true_random=False))
def test_both_searches_say_what_the_naive_one_says(rng: Random) -> None:
    """Full and merged searches verify what has one end and nothing wrong, find what is wrong, and it replays."""
    small, order = small_configuration(rng), small_order(rng)
    assert not judged(small, order, 1), f"{order}\n{small}"


@pytest.mark.slow
@settings(max_examples=1500)
@given(st.randoms(use_true_random=False))
def test_both_searches_say_what_the_naive_one_says_whatever_is_expected(rng: Random) -> None:
    """So they do whichever end is the expected one; and the monitor of sampled runs sees a reported race too."""
    small, order = small_configuration(rng), small_order(rng)
    assert not judged(small, order, 6, monitor=True), f"{order}\n{small}"
