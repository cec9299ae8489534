"""The rows of a sum by the vector pipe: each is read, so it races with what no event orders; every judge says so."""

import pytest

from xccl_emu.check.check import check
from xccl_emu.check.sampling.sample import sample
from xccl_emu.check.verdict import DATA_RACE, VERIFIED
from xccl_emu.guards.campaign.programs import ORDERS

from .traps import OK, RACES, Trap

PULL, TELL = "in 0.0 0 2", "set 2 3 0; wait 2 3 0; out 0.4 8 2; quiet"
PULLED, MADE = "set 1 2 1; wait 1 2 1", "set 2 1 1; wait 2 1 1"
ROWS = {"first": "v_add 32 8 2", "second": "v_add 4 8 2", "both": "v_add 0 8 2"}


def ends(trap: Trap, order: str) -> int:
    """In how many ways memory is left, by brute force."""
    explored = trap.small().naive(order)
    assert explored.complete
    return len(explored.outcomes)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_pulled_before_the_sum_by_its_event_alone(row: str, order: str) -> None:
    """mtu-in writes what is summed: a race, and two ends, but for the event between them."""
    for between, allowed in (("", RACES), (PULLED, OK)):
        trap = Trap(row, "; ".join(part for part in (PULL, between, ROWS[row], TELL) if part), allowed, memory={0: 3})
        found, drawn = check(trap, order=order), sample(trap.build(order), schedules=200).violation
        assert found.verdict == VERIFIED if between else found.violation.kind == DATA_RACE
        assert drawn is None if between else drawn.kind == DATA_RACE
        assert ends(trap, order) == (1 if between else 2)


@pytest.mark.parametrize("order", ORDERS)
def test_a_row_is_written_out_and_summed_in_any_order(order: str) -> None:
    """mtu-out and a sum both read the second row: no race, unless the sum is made in its place."""
    apart = Trap("apart", "ub_store 3 0; out 0.0 0 2; v_add 4 8 2; quiet", OK)
    in_place = Trap("in place", "ub_store 3 0; ub_store 1 4; out 0.0 0 2; v_add 4 0 2; quiet", RACES)
    assert check(apart, order=order).verdict == VERIFIED
    assert check(in_place, order=order).violation.kind == DATA_RACE
    assert (ends(apart, order), ends(in_place, order)) == (1, 2)
