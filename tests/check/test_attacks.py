"""Every judge says of each attack what is right, under each order."""

import pytest

from xccl_emu.check import verdict as kinds
from xccl_emu.check.check import check

from .attacks import ATTACKS, Attack

ORDERS = ("sc", "fifo", "relaxed", "unordered")
WAYS = {
    "full": {},
    "merged": {"reduction": "merged"},
    "breadth first": {"breadth_first": True},
    "portfolio": {"policy": "portfolio", "schedules": 400},
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_every_judge_judges_an_attack_rightly(attack: Attack, order: str) -> None:
    """What is wrong under an order is refuted in one of its ways by each judge, and the rest is verified."""
    for name in attack.judges:
        verdict = check(attack.case, order=order, max_states=100_000, **WAYS[name])
        found = verdict.violation.kind if verdict.violation else verdict.verdict
        if order in attack.wrong_under:
            assert found in attack.ways, (name, verdict.reason)
        else:
            assert found in (kinds.VERIFIED, kinds.NO_VIOLATION), (name, verdict.reason)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_certificates_agree(attack: Attack) -> None:
    """Brute force and drawn schedules say the same, and what is found replays."""
    verdict = check(attack.case, order="relaxed", certify=0.5)
    assert verdict.certificate.agrees, verdict.reason
    assert (verdict.violation is not None) == ("relaxed" in attack.wrong_under)
