"""Eq. (7): the wait of an M/M/1 queue, and in which units."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.papers.plan.costs import CORRECTED, LITERAL
from xccl_emu.papers.plan.strategies import Load, load


def test_equation_7() -> None:
    """One arrives and two can be served a second: half busy, and a wait of λ / (μ (μ − λ)) = 1 / (2 · 1) s."""
    assert Load(1, 2).utilization == 0.5
    assert Load(1, 2).wait_s == pytest.approx(0.5)


def test_at_capacity_it_is_saturated() -> None:
    """From ρ = 1 on there is no wait that is long enough."""
    assert not Load(1.999, 2).saturated
    assert Load(2, 2).saturated
    assert Load(2, 2).wait_s == math.inf


@given(st.floats(0.01, 0.98), st.floats(1.001, 1.02), st.floats(0.1, 1e6))
def test_the_wait_grows_with_the_rate_and_without_bound(part: float, more: float, services: float) -> None:
    """The nearer to capacity, the longer."""
    assert Load(part * services, services).wait_s < Load(part * more * services, services).wait_s
    assert Load((1 - 1e-9) * services, services).wait_s > 1e8 / services


def test_tokens_of_one_request_against_a_batch() -> None:
    """Two requests a second of 200 tokens: printed, 400 tokens a second at 100 iterations a second are four times too
    much; corrected, batches of 16 requests that take 0.4 + 200 × 0.01 s serve 16 / 2.4 requests a second."""
    printed = load(2, 16, 200, 0.4, 0.01, LITERAL)
    assert (printed.utilization, printed.unit, printed.saturated) == (pytest.approx(4), "tokens", True)
    corrected = load(2, 16, 200, 0.4, 0.01, CORRECTED)
    assert (corrected.utilization, corrected.unit) == (pytest.approx(0.3), "requests")
    assert corrected.wait_s == pytest.approx(0.3 / (16 / 2.4 * 0.7))
