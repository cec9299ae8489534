"""Eqs. (1)-(6), (12) and (13) against numbers computed by hand, and what must hold of them for any numbers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plan.support import cluster, model
from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.plan.cluster import Link, load_cluster
from xccl_emu.papers.plan.costs import (
    CORRECTED,
    LITERAL,
    Form,
    PlanSetting,
    all_reduce_s,
    all_to_all_s,
    communication,
    compute_s,
    exchange_s,
    literal_but_for,
    scatter_s,
    service,
    stages_s,
)
from xccl_emu.papers.plan.grammar import LayerStrategy, StrategyBlock, parse, strategies
from xccl_emu.papers.plan.model import load_model
from xccl_emu.papers.plan.published import cases

PORT, MESH = Link(1.0, 1), Link(1.0, 1, mesh=True)
"""A byte takes a nanosecond."""


def ns(seconds: float) -> float:
    """Nanoseconds."""
    return pytest.approx(seconds * 1e9)  # type: ignore[no-any-return]


def test_equation_1() -> None:
    """Reduce-scatter of 800 bytes over 8 ranks: shares of 100 to each of 7, at once or one by one; printed, at once."""
    assert ns(scatter_s(800, 8, MESH)) == 100
    assert ns(scatter_s(800, 8, PORT)) == 700
    assert ns(scatter_s(800, 8, PORT, LITERAL)) == 100
    assert scatter_s(800, 1, PORT) == 0


def test_equation_2() -> None:
    """All-reduce of 800 bytes over 8 ranks: twice Eq. (1); as printed each half gets 100 bytes as its size."""
    assert ns(all_reduce_s(800, 8, MESH)) == 200
    assert ns(all_reduce_s(800, 8, MESH, Form(eq2=True))) == 25
    assert ns(all_reduce_s(800, 8, PORT, Form(eq2=True))) == 175


def test_equation_3() -> None:
    """All-to-all of 800 bytes of each of 8 ranks: seven rounds of 100, on any link; what starts a round is in each."""
    assert ns(all_to_all_s(800, 8, MESH)) == 700
    assert ns(all_to_all_s(800, 8, replace(MESH, start_us=1.0))) == 7700
    assert all_to_all_s(800, 1, MESH) == 0


def test_a_link_that_counts_both_ways_has_half() -> None:
    """HCCS and NVLink are printed so."""
    assert ns(Link(1.0, 2).seconds(100)) == 200


def test_equation_4() -> None:
    """A layer has 20,480 weights of attention and 6,144 of each of 8 experts; two requests with four tokens each.

    By hand, TP=2 + DP=2 and EP=4 at 1 TFLOP/s: 2 × 4 × (1 × 10,240 + 2 × 12,288 / 4) = 131,072 operations; printed,
    2 × 69,632 / 4 × 1 × 4 = 139,264.  At one token weights are read: 2 × (10,240 + 49,152 · (1 − (3/4)²) / 4) bytes.
    """
    setting = PlanSetting(model(), cluster(4), batch=2)
    strategy = LayerStrategy(StrategyBlock(2, 2), StrategyBlock(1, 4))
    assert setting.model.attention.parameters(64) == 2 * 64 * 8 * (16 + 4) == 20480
    fast = replace(setting, cluster=cluster(4, hbm_gb_s=1e6))
    assert compute_s(strategy, fast, 4) * 1e12 == pytest.approx(131_072)
    assert compute_s(strategy, replace(setting, form=LITERAL), 4) * 1e12 == pytest.approx(139_264)
    read = 2 * (10240 + 49152 * 7 / 16 / 4)
    slow = replace(setting, cluster=cluster(4, hbm_gb_s=1))
    assert ns(compute_s(strategy, slow, 1)) == read


def state(of: PlanSetting, requests: float) -> float:
    """Bytes of the hidden states of requests with three tokens: 3 × 64 elements of two bytes."""
    return requests * 3 * 64 * 2


@pytest.mark.parametrize(
    ("attention", "experts", "requests", "degree"),
    [
        (StrategyBlock(4, 2), StrategyBlock(4, 2), 4, 2),
        (StrategyBlock(2, 4), StrategyBlock(4, 2), 2, 2),
        (StrategyBlock(4, 2), StrategyBlock(2, 4), 2, 2),
    ],
    ids=["d_DP = d_EP", "d_DP > d_EP", "d_DP < d_EP"],
)
def test_equation_5(attention: StrategyBlock, experts: StrategyBlock, requests: int, degree: int) -> None:
    """Each of the three cases with eight requests: b/d_DP or b/d_EP of them, in groups of the smaller degree.

    Printed it is shared by the experts' TP group (13); corrected, by those who hold the same tokens, so all cases send
    one share of all copies.
    """
    setting = PlanSetting(model(), cluster(8), batch=8, form=LITERAL)
    copies = 2 * state(setting, requests)
    strategy = LayerStrategy(attention, experts)
    assert ns(exchange_s(strategy, setting, 3)) == copies / experts.tensor / degree * (degree - 1)
    share = 2 * state(setting, 8) / 8
    assert ns(exchange_s(strategy, replace(setting, form=CORRECTED), 3)) == share / degree * (degree - 1)


def test_equation_6() -> None:
    """Two layers' terms, and a step between two stages within a node, or between nodes."""
    slow = Link(0.5, 1)
    setting = PlanSetting(model(), cluster(4, 2, inter=slow), batch=2)
    strategy = LayerStrategy(StrategyBlock(4, 1), StrategyBlock(4, 1), 2)
    layer = compute_s(strategy, setting, 3) + sum(term.seconds for term in communication(strategy, setting, 3))
    total = sum(term.seconds for term in service(strategy, setting, 3))
    assert ns(total) == (2 * layer + stages_s(strategy, setting, 3)) * 1e9
    assert ns(stages_s(strategy, setting, 3)) == 2 * state(setting, 2)
    assert ns(stages_s(LayerStrategy(StrategyBlock(2, 1), StrategyBlock(2, 1), 4), setting, 3)) == (2 + 1 + 1) * state(
        setting, 2
    )


PAPER = PlanSetting(model(), cluster(4, 2), batch=2)
"""n_proc = 4, n_node = 2, so that d_DP = 2 and each DP rank has b = 1 request: the b of (12) and (13)."""
B = 3 * 64 * 2
"""b·s·h in bytes."""


def terms(strategy: LayerStrategy, of: PlanSetting) -> dict[str, float]:
    """Terms that take time, in ns."""
    return {term.name: term.seconds * 1e9 for term in communication(strategy, of, 3) if term.seconds}


def test_equation_12() -> None:
    """Experts without TP: one AR over n_proc, and A2A of all copies between n_node, whether printed or corrected."""
    strategy = LayerStrategy(StrategyBlock(4, 2), StrategyBlock(1, 8))
    exchange = 2 * B / 2
    printed = {"attention AR": 2 * B / 4 / 4, "A2A dispatch": exchange, "A2A combine": exchange}
    assert terms(strategy, replace(PAPER, form=LITERAL)) == pytest.approx(printed)
    corrected = {**printed, "attention AR": 2 * 3 * B / 4}
    assert terms(strategy, PAPER) == pytest.approx(corrected)


def test_equation_12_within_a_node_counts_all_ranks() -> None:
    """There is no n_node to count then: A2A goes around all of the group."""
    within = replace(PAPER, cluster=cluster(8))
    assert terms(LayerStrategy(StrategyBlock(4, 2), StrategyBlock(1, 8)), within)["A2A combine"] == pytest.approx(
        2 * B / 8 * 7
    )


def test_equation_13_as_printed() -> None:
    """Synchronous: AR(bsh) + AG(bshk/n_proc) + 2 A2A(bshk/n_proc); fused, the halves hide behind A2A."""
    strategy, of = (
        LayerStrategy(StrategyBlock(4, 2), StrategyBlock(4, 2)),
        replace(PAPER, form=LITERAL, overlapped=False),
    )
    half, exchange = B / 4 / 4, 2 * B / 4 / 2
    want = {
        "A2A dispatch": exchange, "expert AG": 2 * B / 4 / 4,
        "expert RS": half, "A2A combine": exchange, "output AG": half,
    }  # fmt: skip
    assert terms(strategy, of) == pytest.approx(want)
    fused = {"A2A dispatch": exchange, "A2A combine": exchange, "output AG": half}
    assert terms(strategy, replace(of, overlapped=True)) == pytest.approx(fused)


def test_what_overlaps_takes_the_maximum() -> None:
    """Where RS and AG take longer than A2A, what is longer remains."""
    strategy, of = (
        LayerStrategy(StrategyBlock(4, 2), StrategyBlock(4, 2)),
        replace(PAPER, cluster=cluster(4, 2, inter=Link(100.0, 1))),
    )
    sync, fused = terms(strategy, replace(of, overlapped=False)), terms(strategy, of)
    for name, exchange in (("expert AG", "A2A dispatch"), ("expert RS", "A2A combine")):
        assert fused[name] + fused[exchange] == pytest.approx(max(sync[name], sync[exchange]))


def test_equation_5_without_experts_apart() -> None:
    """TP alone: two all-reduces of b·s·h, the second in its halves; DP ranks first give their tokens to each other."""
    alone = terms(LayerStrategy(StrategyBlock(8, 1), StrategyBlock(8, 1)), PAPER)
    each = 7 * 2 * B / 8
    assert alone == pytest.approx({"attention AR": 2 * each, "expert RS": each, "output AG": each})
    gathering = terms(LayerStrategy(StrategyBlock(4, 2), StrategyBlock(8, 1)), PAPER)
    assert gathering["expert AG"] == pytest.approx(each)
    printed = terms(
        LayerStrategy(StrategyBlock(4, 2), StrategyBlock(8, 1)), replace(PAPER, form=literal_but_for(("2",)))
    )
    assert "expert AG" not in printed


def test_batch_of_nothing_is_refused() -> None:
    """By name."""
    with pytest.raises(ConfigError, match="batch=0: must be at least 1"):
        PlanSetting(model(), cluster(), batch=0)


def test_forms_say_what_they_are() -> None:
    """By the numbers of equations; another number is refused."""
    assert (CORRECTED.text, LITERAL.text) == ("corrected", "literal")
    assert literal_but_for(("8", "2")).text == "literal but for (2), (8)"
    with pytest.raises(ConfigError, match="correct='3': must be one of 1, 2, 4, 7, 8, 11, 13"):
        literal_but_for(("3",))


SETTINGS = [
    PlanSetting(load_model(name), load_cluster(where), form=form)
    for name in ("DeepSeek-R1", "Qwen3-235B-A22B")
    for where in ("910B", "H20")
    for form in (CORRECTED, LITERAL)
]
ANY = st.sampled_from(SETTINGS).flatmap(
    lambda of: st.tuples(st.just(of), st.sampled_from([*strategies(of.cluster.devices, 8)]))
)


def total(strategy: LayerStrategy, of: PlanSetting, tokens: int) -> float:
    """Seconds of an iteration."""
    return sum(term.seconds for term in service(strategy, of, tokens))


@given(ANY, st.sampled_from(["intra", "inter"]), st.floats(1, 100), st.integers(1, 4096))
def test_more_bandwidth_is_never_slower(
    one: tuple[PlanSetting, LayerStrategy], link: str, times: float, tokens: int
) -> None:
    """More bandwidth of either kind of link makes no strategy slower."""
    of, strategy = one
    faster = replace(getattr(of.cluster, link), gb_s=times * getattr(of.cluster, link).gb_s)
    better = replace(of, cluster=replace(of.cluster, **{link: faster}))
    assert total(strategy, better, tokens) <= total(strategy, of, tokens) * (1 + 1e-12)


@given(ANY, st.integers(1, 2048), st.integers(1, 8))
def test_more_tokens_or_requests_never_take_less(
    one: tuple[PlanSetting, LayerStrategy], tokens: int, times: int
) -> None:
    """Every term grows with s and with b."""
    of, strategy = one
    assert total(strategy, of, tokens) <= total(strategy, of, tokens * times) * (1 + 1e-12)
    assert total(strategy, of, tokens) <= total(strategy, replace(of, batch=of.batch * times), tokens) * (1 + 1e-12)


@given(ANY, st.integers(1, 4096))
def test_overlap_saves_no_more_than_what_hides(one: tuple[PlanSetting, LayerStrategy], tokens: int) -> None:
    """Fused is never slower than synchronous, and never faster than without RS and AG of the experts."""
    of, strategy = one
    sync, fused = (
        {term.name: term.seconds for term in service(strategy, replace(of, overlapped=overlapped), tokens)}
        for overlapped in (False, True)
    )
    saved = sum(sync.values()) - sum(fused.values())
    assert -1e-12 <= saved <= sync["expert AG"] + sync["expert RS"] + 1e-12
    assert {name for name in sync if sync[name] != fused[name]} <= {"expert AG", "expert RS"}


@given(
    st.floats(1, 1e9),
    st.sampled_from([1, 2, 4, 8, 32]),
    st.sampled_from([PORT, MESH]),
    st.sampled_from([CORRECTED, LITERAL]),
)
def test_all_reduce_is_no_more_than_printed_once_more_divided(size: float, degree: int, link: Link, form: Form) -> None:
    """Eq. (2) as printed is the corrected one over the degree, whatever the rest."""
    corrected = all_reduce_s(size, degree, link, replace(form, eq2=False))
    assert all_reduce_s(size, degree, link, replace(form, eq2=True)) == pytest.approx(corrected / degree)


def test_all_cases_send_the_same_share_between_groups() -> None:
    """Once what is redundant was dropped, and parts are sent, no case of III-B3 saves any A2A: other terms decide."""
    of = PlanSetting(load_model("DeepSeek-R1"), load_cluster("910B"))
    exchanges = [exchange_s(one, of, 220) for one in cases(4, 8).values()]
    assert exchanges == pytest.approx([exchanges[0]] * 3)


def test_dropping_makes_experts_without_tp_as_fast_as_the_hybrid() -> None:
    """The hybrid's lead over EP is the copies that (12) does not drop, though (5) does: within 1% without them."""
    of = PlanSetting(load_model("DeepSeek-R1"), load_cluster("910B"))
    hybrid, spread = (parse(text, 32, 8) for text in ("TP=8 + DP=4, TP=8 + EP=4", "TP=8 + DP=4, EP=32"))
    assert total(spread, of, 220) > 3 * total(hybrid, of, 220)
    assert total(spread, replace(of, dropping=True), 220) == pytest.approx(total(hybrid, of, 220), rel=0.01)


def test_fused_takes_little_more_than_what_goes_between_nodes() -> None:
    """Figure 12, for DeepSeek-R1 on the 910B: 1.13 times as long as A2A; one after the other it is 2.04 times."""
    of, hybrid = PlanSetting(load_model("DeepSeek-R1"), load_cluster("910B")), parse("TP=8 + DP=4, TP=8 + EP=4", 32, 8)
    for overlapped, times in ((True, 1.13), (False, 2.04)):
        every = communication(hybrid, replace(of, overlapped=overlapped), 220)
        seconds = {term.name: term.seconds for term in every if term.name != "attention AR"}
        between = seconds["A2A dispatch"] + seconds["A2A combine"]
        assert sum(seconds.values()) / between == pytest.approx(times, abs=0.005)
