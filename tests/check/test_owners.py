"""When expected bytes are judged: when their owners have returned, or when all kernels are done."""

import pytest

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, WRONG_BITS

from .traps import OK, WRONG, Trap

PUSHED = "put m1.0 7; quiet | store 1.4 1"
"""Die 0 writes a word to die 1, which runs something unrelated."""


@pytest.mark.parametrize("policy", ["exhaustive", "portfolio"])
@pytest.mark.parametrize(
    ("value", "owners", "told"),
    [
        (7, (), ""),
        (7, (0,), ""),
        (8, (), "judged when all kernels were done"),
        (7, (1,), "0x00 instead of 0x07, judged when its owner die1.core0 had returned"),
    ],
)
def test_bytes_are_judged_when_their_owners_have_returned(
    value: int, owners: tuple[int, ...], told: str, policy: str
) -> None:
    """Whatever goes on elsewhere; without owners it does not matter when the die returns that they are on."""
    pushed = Trap("pushed", PUSHED, WRONG if told else OK, {0o50: value}, owners)
    verdict = check(pushed, policy=policy, schedules=600)
    assert verdict.ok == (not told)
    assert (verdict.verdict == VERIFIED) == (not told and policy == "exhaustive")
    if told:
        assert verdict.violation.kind == WRONG_BITS
        assert told in verdict.violation.message
