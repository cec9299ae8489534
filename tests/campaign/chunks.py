"""A thousand programs in chunks; two files judge half of them each, so that two processes share them."""

from xccl_emu.campaign.run import Plan, judge_all

SEED, CHUNK, CHUNKS = 2026, 50, 10


def contradictions(first: int) -> list[str]:
    """What judges contradict each other on, in a chunk."""
    summary = judge_all(Plan(CHUNK, SEED, first))
    wrong = [(finding.number, each) for finding in summary.findings for each in finding.contradictions]
    return [f"--seed {SEED} --first {number} --programs 1: {each.order}: {each.kind}" for number, each in wrong]
