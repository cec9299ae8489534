"""All judges agree on a thousand random programs, half of them in the slow tests."""

import pytest

from xccl_emu.guards.campaign.run import CampaignPlan, judge_all

SEED, CHUNK, CHUNKS = 2026, 50, 20


@pytest.mark.parametrize("chunk", [pytest.param(i, marks=[pytest.mark.slow] * (i >= 10)) for i in range(CHUNKS)])
def test_judges_agree(chunk: int) -> None:
    """What one search verifies, no other search, brute force or schedule refutes; and every witness replays."""
    summary = judge_all(CampaignPlan(CHUNK, SEED, chunk * CHUNK))
    wrong = [(finding.number, each) for finding in summary.findings for each in finding.contradictions]
    assert not [f"--seed {SEED} --first {number} --programs 1: {each.order}: {each.kind}" for number, each in wrong]
