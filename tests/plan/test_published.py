"""What the paper measured beside what the equations say."""

from dataclasses import replace

import pytest

from xccl_emu.papers.bench.published import rows
from xccl_emu.papers.plan.cluster import load_cluster
from xccl_emu.papers.plan.costs import PlanSetting
from xccl_emu.papers.plan.model import load_model
from xccl_emu.papers.plan.published import RANGES, baselines, cases, compared, measured
from xccl_emu.papers.plan.strategies import RequestStream

PAPER = PlanSetting(load_model("DeepSeek-R1"), load_cluster("910B"))


def test_strategies_are_those_of_table_ii_and_of_the_three_cases() -> None:
    """For four nodes of eight as the paper writes them."""
    assert [str(one) for one in baselines(4, 8).values()] == [
        "TP=8, TP=8 [PP=4]", "TP=8 + DP=4, EP=32", "TP=4 + DP=8, EP=32"
    ]  # fmt: skip
    assert [str(one) for one in cases(4, 8).values()] == [
        "TP=8 + DP=4, TP=8 + EP=4", "TP=4 + DP=8, TP=8 + EP=4", "TP=8 + DP=4, TP=4 + EP=8"
    ]  # fmt: skip


def test_every_published_row_has_a_computed_one() -> None:
    """Both models on both clusters, and the ranges, have a computed row for each published one, with its error."""
    results = compared(PAPER, RequestStream())
    names = {row.measurement for row in _all()}
    assert [(one.bench.split(",")[0], one.what) for one in results] == [(row.measurement, row.what) for row in _all()]
    assert len(names) == 5
    assert all((one.error_percent is None) != (one.met is None) for one in results)


def _all() -> list:  # type: ignore[type-arg]
    order = [
        f"mixserve {model} on {where}" for where in ("910B", "H20") for model in ("DeepSeek-R1", "Qwen3-235B-A22B")
    ]
    return [row for name in (*order, RANGES) for row in rows(name)]


def test_published_ratios_follow_from_published_numbers() -> None:
    """ITL and throughput of the text are those of the two sides that it gives."""
    for name in ("DeepSeek-R1 on 910B", "Qwen3-235B-A22B on 910B", "DeepSeek-R1 on H20", "Qwen3-235B-A22B on H20"):
        of = {row.what: row.value for row in rows(f"mixserve {name}")}
        gained = 100 * (of["throughput"] / of["throughput of TP+PP"] - 1)
        assert gained == pytest.approx(of["throughput gained over TP+PP"], abs=0.06)
        if "ITL" in of:
            assert of["ITL of TP+PP"] / of["ITL"] == pytest.approx(of["ITL, times faster than TP+PP"], abs=0.006)


def test_the_three_cases_are_in_the_order_that_was_measured() -> None:
    """All sixteen claims of which case is best hold: d_DP = d_EP on the 910B, d_DP < d_EP on the H20."""
    claims = [one for one in compared(PAPER, RequestStream()) if one.what.startswith("d_DP") and one.met is not None]
    assert len(claims) == 16
    assert [one.what for one in claims if not one.met] == []


def test_ep_is_slower_than_tp_by_12_and_faster_as_measured_if_copies_are_dropped() -> None:
    """Figure 3 has TP worse than EP over 32 devices; Eq. (12) has it the other way round."""
    for dropping in (False, True):
        of = replace(PAPER, dropping=dropping)
        found = [one for one in compared(of, RequestStream()) if one.what.startswith("experts by TP=32")]
        assert [one.met for one in found] == [dropping, dropping]


def test_terms_that_decide_between_the_cases() -> None:
    """On the 910B twice the DP reads twice the weights of attention, and twice the EP adds up two groups; on the H20 a
    smaller TP group has fewer rounds over its port, which A2A then hides."""
    ascend = measured(PAPER, RequestStream())
    assert "compute decides" in ascend.note("d_DP > d_EP", "d_DP = d_EP", "throughput")
    assert "output RS decides" in ascend.note("d_DP < d_EP", "d_DP = d_EP", "ttft")
    nvidia = measured(PlanSetting(load_model("DeepSeek-R1"), load_cluster("H20")), RequestStream())
    assert "expert AG+RS decides" in nvidia.note("d_DP = d_EP", "d_DP < d_EP", "ttft")
