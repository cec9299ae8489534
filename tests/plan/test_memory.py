"""Eq. (8): what a device must hold, printed and corrected."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.support import cluster, model
from xccl_emu.papers.plan.cluster import load_cluster
from xccl_emu.papers.plan.costs import LITERAL, PlanSetting
from xccl_emu.papers.plan.grammar import LayerStrategy, StrategyBlock, strategies
from xccl_emu.papers.plan.model import load_model
from xccl_emu.papers.plan.strategies import memory

DEEPSEEK, QWEN = (load_model(name) for name in ("DeepSeek-R1", "Qwen3-235B-A22B"))
HYBRID = LayerStrategy(StrategyBlock(8, 4), StrategyBlock(8, 4))


def test_equation_8() -> None:
    """By hand: two layers of 20,480 weights of attention and 8 experts of 6,144; 3 requests of 10 tokens, TP=2 + DP=2.

    Corrected, a DP rank has two of the requests and a TP rank two of the four key heads of 8 elements; PP halves all.
    Printed, a device has the hidden states of all 30 tokens twice, and PP leaves weights as they are.
    """
    strategy = LayerStrategy(StrategyBlock(2, 2), StrategyBlock(1, 4), 2)
    need = memory(strategy, PlanSetting(model(), cluster(8), batch=3), 10)
    assert need.attention == 2 * 2 * 20480 / 2 / 2
    assert need.experts == 2 * 2 * 8 * 6144 / 4 / 2
    assert need.cache == 2 * (2 * 8 * 2) * (2 * 10) * 2 / 2
    printed = memory(strategy, PlanSetting(model(), cluster(8), batch=3, form=LITERAL), 10)
    assert printed.attention == 2 * need.attention
    assert printed.experts == 2 * need.experts
    assert printed.cache == 2 * (2 * 64) * (3 * 10) * 2 / 2
    assert printed.total == printed.attention + printed.experts + printed.cache


def test_parameters_of_the_models_are_those_that_their_names_and_papers_say() -> None:
    """671 B and 37 B active, 235 B and 22 B, if the embeddings are added that Eq. (8) leaves out."""
    for one, vocabulary, total, active in ((DEEPSEEK, 129280, 671, 37), (QWEN, 151936, 235, 22)):
        counts = [
            one.attention_parameters + one.expert_parameters(each) + 2 * vocabulary * one.hidden
            for each in (one.all_experts, one.active_experts)
        ]
        assert counts[0] == pytest.approx(total * 1e9, rel=0.001)
        assert counts[1] == pytest.approx(active * 1e9, rel=0.015)


def test_the_printed_cache_overstates_mla_and_gqa() -> None:
    """Elements of a token and layer: 2h as printed; what the attention keeps is a 25th for MLA, an 8th for GQA."""
    assert DEEPSEEK.attention.cached(8) == 576
    assert 2 * DEEPSEEK.hidden / 576 == pytest.approx(24.9, abs=0.1)
    assert QWEN.attention.cached(1) == 1024
    assert 2 * QWEN.hidden / 1024 == 8
    assert QWEN.attention.cached(4) == QWEN.attention.cached(32) == 256  # a head is not split


def test_as_printed_the_papers_own_strategy_does_not_fit() -> None:
    """DeepSeek-R1 and Qwen3 on four nodes of 64 GB: 159 GB and 117 GB as printed, 45 GB and 17 GB corrected."""
    where = load_cluster("910B")
    for one, printed, corrected in ((DEEPSEEK, 158.6, 45.1), (QWEN, 116.8, 16.7)):
        of = PlanSetting(one, where)
        assert memory(HYBRID, PlanSetting(one, where, form=LITERAL), 4096).total / 1e9 == pytest.approx(
            printed, abs=0.1
        )
        assert memory(HYBRID, of, 4096).total / 1e9 == pytest.approx(corrected, abs=0.1)


def test_a_cluster_computes_with_weights_no_narrower_than_it_can() -> None:
    """DeepSeek-R1 is published in FP8, which the 910B does not have."""
    assert PlanSetting(DEEPSEEK, load_cluster("910B")).weight_bytes == 2
    assert PlanSetting(DEEPSEEK, load_cluster("H20")).weight_bytes == 1


@given(st.sampled_from([*strategies(32, 8)]), st.integers(1, 64), st.integers(1, 8192))
def test_more_requests_or_longer_ones_never_need_less(strategy: LayerStrategy, batch: int, context: int) -> None:
    """And corrected is never more than printed."""
    where = load_cluster("910B")
    for one in (DEEPSEEK, QWEN):
        need = memory(strategy, PlanSetting(one, where, batch), context).total
        assert need <= memory(strategy, PlanSetting(one, where, batch + 1), context).total
        assert need <= memory(strategy, PlanSetting(one, where, batch), context + 1).total
        assert need <= memory(strategy, PlanSetting(one, where, batch, LITERAL), context).total
