"""Indicators of III-B5, what cannot be, and what is best."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.support import cluster, model
from tests.refused import refuses
from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.plan.cluster import load_cluster
from xccl_emu.papers.plan.costs import CORRECTED, LITERAL, PlanSetting, literal_but_for
from xccl_emu.papers.plan.grammar import LayerStrategy, StrategyBlock, parse
from xccl_emu.papers.plan.model import load_model
from xccl_emu.papers.plan.strategies import ORDERS, Estimate, RequestStream, deciding, ms, plan, reason, terms_s

PAPER = PlanSetting(load_model("DeepSeek-R1"), load_cluster("910B"))
HYBRID = parse("TP=8 + DP=4, TP=8 + EP=4", 32, 8)


def seconds(of: Estimate, phase: str) -> float:
    """Return the sum of all terms of a phase."""
    return sum(term.seconds for term in getattr(of, phase))


def synchronous(of: Estimate) -> Estimate:
    """The same strategy where nothing overlaps."""
    return replace(of, setting=replace(of.setting, overlapped=False))


def test_equations_9_to_11() -> None:
    """TTFT is the wait and a prefill of L_in, ITL a decode of one token; throughput is a full batch's, or as printed
    that of one request and its wait."""
    one = Estimate(HYBRID, PAPER, RequestStream(rate=1.0))
    assert one.prefill_s == pytest.approx(seconds(one, "prefill"))
    assert one.itl_s == pytest.approx(seconds(one, "decode"))
    assert one.ttft_s == pytest.approx(one.load.wait_s + one.prefill_s)
    busy = one.prefill_s + 200 * one.itl_s
    assert one.throughput == pytest.approx(16 * 420 / busy)
    printed = replace(one, setting=replace(PAPER, form=replace(CORRECTED, eq11=True)))
    assert printed.throughput == pytest.approx(420 / (one.load.wait_s + busy))


def test_a_saturated_server_has_no_ttft_and_as_printed_no_throughput() -> None:
    """At a hundred requests a second; what it takes without the wait is still known."""
    one = Estimate(HYBRID, PAPER, RequestStream(rate=100.0))
    assert one.load.saturated
    assert one.ttft_s == math.inf
    assert math.isfinite(one.prefill_s)
    assert one.throughput > 0
    assert replace(one, setting=replace(PAPER, form=replace(CORRECTED, eq11=True))).throughput == 0


@pytest.mark.parametrize(
    ("attention", "experts", "stages", "batch", "message"),
    [
        (StrategyBlock(1, 8), StrategyBlock(8, 1), 1, 4, "DP=8 exceeds the 4 requests of the batch"),
        (StrategyBlock(1, 1), StrategyBlock(1, 1), 8, 4, "PP=8 exceeds the 2 layers"),
        (StrategyBlock(32, 1), StrategyBlock(32, 1), 1, 32, "TP=32 does not divide the 16 attention heads"),
        (StrategyBlock(8, 4), StrategyBlock(1, 32), 1, 32, "EP=32 does not divide the 8 routed experts"),
        (StrategyBlock(16, 4), StrategyBlock(64, 1), 1, 64, "TP=64 does not divide the 32 inner elements of an expert"),
        (
            StrategyBlock(1, 1),
            StrategyBlock(1, 1),
            1,
            1,
            "does not fit: weights 0.0 GB + cache 8.6 GB = 8.6 GB, and a device has 1 GB",
        ),
    ],
)
def test_what_cannot_be_says_why(
    attention: StrategyBlock, experts: StrategyBlock, stages: int, batch: int, message: str
) -> None:
    """By degree and count, or by the sum of memory."""
    strategy = LayerStrategy(attention, experts, stages)
    context = 1 << 25 if batch == 1 else 4096
    assert Estimate(
        strategy, PlanSetting(model(), cluster(64), batch), RequestStream(context=context)
    ).refusal.startswith(message)


def test_every_strategy_is_ranked_or_refused() -> None:
    """185 of them, best first, none twice."""
    found = plan(PAPER, RequestStream())
    every = [one.strategy for one in (*found.ranked, *found.refused)]
    assert len(every) == len(set(every)) == 185
    assert not any(one.refusal for one in found.ranked)
    assert all(one.refusal for one in found.refused)
    for by, value in (("throughput", "throughput"), ("ttft", "ttft_s"), ("itl", "itl_s")):
        values = [getattr(one, value) for one in plan(PAPER, RequestStream(), by).ranked]
        assert values == sorted(values, reverse=by == "throughput") or values == pytest.approx(
            sorted(values, reverse=by == "throughput"), rel=1e-9
        )


@pytest.mark.parametrize(
    ("where", "name", "best"),
    [
        ("910B", "DeepSeek-R1", "TP=8 + DP=4, TP=8 + EP=4"),
        ("910B", "Qwen3-235B-A22B", "TP=8 + DP=4, TP=8 + EP=4"),
        ("H20", "DeepSeek-R1", "TP=8 + DP=2, TP=4 + EP=4"),
        ("H20", "Qwen3-235B-A22B", "TP=8 + DP=2, TP=4 + EP=4"),
    ],
)
@pytest.mark.parametrize("by", ["throughput", "ttft"])
def test_the_best_is_what_the_paper_measured_to_be_best(where: str, name: str, best: str, by: str) -> None:
    """The best of all strategies is the measured one: d_DP = d_EP on the 910B, d_DP < d_EP on the H20."""
    found = plan(PlanSetting(load_model(name), load_cluster(where)), RequestStream(), by)
    assert str(found.ranked[0].strategy) == best


def test_as_printed_nothing_fits_and_with_8_corrected_another_is_best() -> None:
    """On the paper's cluster; DP of single requests, which (4) divides by once more, and no A2A."""
    assert plan(replace(PAPER, form=LITERAL), RequestStream()).ranked == []
    assert (
        str(plan(replace(PAPER, form=literal_but_for(("8",))), RequestStream()).ranked[0].strategy)
        == "TP=2 + DP=16, TP=32"
    )


def test_equals_are_in_the_order_that_is_easiest_to_implement() -> None:
    """Where links cost nothing, d_DP = d_EP is first."""
    free = replace(PAPER.cluster.intra, gb_s=1e6)
    of = replace(PAPER, cluster=replace(PAPER.cluster, intra=free, inter=free, hbm_gb_s=1e7))
    first = plan(of, RequestStream()).ranked[0].strategy
    assert first.attention.spread == first.experts.spread


def test_the_term_that_decides() -> None:
    """Experts without TP lose to the hybrid by A2A, stages by compute; of two that differ in one term it is this."""
    hybrid, spread, staged = (
        Estimate(parse(text, 32, 8), PAPER, RequestStream())
        for text in ("TP=8 + DP=4, TP=8 + EP=4", "TP=8 + DP=4, EP=32", "TP=8 [PP=4]")
    )
    assert deciding(spread, hybrid)[0] == "A2A"
    assert deciding(staged, hybrid)[0] == "compute"
    assert deciding(hybrid, hybrid) == ("", 0.0)
    assert "take the same time" in reason(hybrid, hybrid)
    name, seconds_more = deciding(synchronous(hybrid), hybrid, "ttft")
    assert name == "expert AG+RS"
    assert f"{name}: {ms(seconds_more)} of a prefill" in reason(hybrid, synchronous(hybrid), "ttft")
    assert sum(terms_s(hybrid).values()) == pytest.approx(hybrid.prefill_s + 200 * hybrid.itl_s)


@refuses(
    RequestStream,
    ({"rate": math.nan}, "rate=nan: must be a number above 0"),
    ({"rate": math.inf}, "rate=inf: must be"),
    ({"rate": 0.0}, "rate=0.0: must be"),
    ({"input": 0}, "input=0: must be at least 1"),
    ({"output": -1}, "output=-1: must be at least 1"),
    ({"context": 100}, "context=100: must be at least input . output, 420"),
)
def test_workloads_that_cannot_be() -> None:
    """Each by name and value."""


def test_another_order_is_refused() -> None:
    """With those that there are."""
    with pytest.raises(ConfigError, match="by='cost': must be one of throughput, ttft, itl"):
        plan(PAPER, RequestStream(), "cost")


@given(st.floats(1.0, 50.0), st.sampled_from(ORDERS))
def test_more_memory_refuses_no_more(times: float, by: str) -> None:
    """What can be with less can be with more, and the best is no worse."""
    found = plan(PAPER, RequestStream(), by)
    roomy = plan(replace(PAPER, cluster=replace(PAPER.cluster, memory_gb=64 * times)), RequestStream(), by)
    assert {one.strategy for one in found.ranked} <= {one.strategy for one in roomy.ranked}
    assert roomy.ranked[0].key(by) <= found.ranked[0].key(by)
