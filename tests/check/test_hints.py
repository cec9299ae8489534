"""What messages of races say to whoever forgot a name."""

import pytest

from xccl_emu.check.check import check
from xccl_emu.check.verdict import UNFINISHED
from xccl_emu.testing import witness_text

from .traps import RACES, WRONG, Trap

SPINNING = Trap("spinning", "store 1.0 1; quiet | spin_plain 1.0 1", RACES)
WRITING = Trap("writing", "store m1.0 1; quiet | store m1.0 1; quiet; store m1.0 2", RACES)
ALONE = Trap("alone", "| spin_plain 1.0 1", WRONG)


@pytest.mark.parametrize("policy", ["exhaustive", "portfolio"])
def test_a_spin_on_an_unnamed_load_is_told_to_name_it(policy: str) -> None:
    """The race of a plain load with a write of a flag says, in message and table, what a load that waits wants."""
    verdict = check(SPINNING, policy=policy, schedules=200)
    assert "load(word)` waits for a flag, it wants a name: load(..., sync=" in verdict.violation.message
    assert "it wants a name" in witness_text(SPINNING, verdict)


def test_other_races_get_no_hint() -> None:
    """Two writes that meet wait for nothing."""
    assert "wants a name" not in check(WRITING, policy="portfolio", schedules=200).violation.message


def test_a_kernel_that_does_not_end_is_told_with_its_loop() -> None:
    """What goes round and round by itself leaves the search unfinished, which says where."""
    verdict = check(ALONE)
    assert verdict.verdict == UNFINISHED
    assert "does not come to an end by itself" in verdict.reason
    assert "last = yield load(word)" in verdict.reason
