"""How the tests ask the exhaustive search about a small program (`xccl_emu.campaign.programs`)."""

from xccl_emu.campaign.judge import Budget, searched
from xccl_emu.campaign.programs import Small
from xccl_emu.check.search.exhaustive import Found

LARGE = Budget(states=1_000_000, brute=200_000, seconds=60)


def search(small: Small, order: str, full: bool) -> Found:
    """What the full or the merged search finds."""
    return searched(small.trial(order, None), "full" if full else "merged", LARGE)
