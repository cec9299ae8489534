"""Small runs of the workloads that benches time: what they move is right, and the numbers are of what they say."""

from dataclasses import replace

import numpy as np
import pytest

from tests.refused import refuses
from xccl_emu.papers.bench import a2e, a2e_domains, published, sendrecv, serve_apart
from xccl_emu.papers.bench.a2e_call import A2EDeployment, Call1, time_call
from xccl_emu.papers.bench.congestion import congestion
from xccl_emu.papers.bench.dispatch import claims, dispatch, iteration, of_a_die, rows_beside
from xccl_emu.papers.bench.layers import Layer, time_layer
from xccl_emu.papers.bench.links import hixl
from xccl_emu.papers.bench.operators import hccl
from xccl_emu.papers.bench.phases import SWITCHES, ablation
from xccl_emu.papers.bench.result import payload_gb_s
from xccl_emu.papers.bench.sendrecv import Sweep
from xccl_emu.papers.bench.setting import DEFAULT, Setting

PUBLISHED = published.rows("tpot")
SMALL = Layer(ranks=4, tokens=2, hidden=64, experts=8, top_k=2, cores=2)


def test_send_and_receive_by_size_and_cores() -> None:
    """Every size on every number of cores; more bytes take longer, more cores less, and no byte is wrong."""
    results = sendrecv.measure(Sweep(sizes=(1 << 10, 1 << 20), cores=(2, 8), to=("node",), iterations=2))
    times = [float(result.emulated or 0) for result in results]
    assert [result.configuration["bytes"] for result in results] == [1 << 10, 1 << 20] * 2
    assert times[0] < times[3] < times[1]
    assert [result.wrong for result in results] == [0] * 4
    assert payload_gb_s(results[1]) == pytest.approx((1 << 20) / times[1] / 1000)


def test_both_claims_of_figure_5_are_measured() -> None:
    """Both bounds, within a node and between nodes, from transfers of their sizes."""
    rows = list(sendrecv.claims())
    assert [row.what.split(",")[-1].strip() for row in rows] == ["node", "node", "pod", "pod"]
    assert [row.relation for row in rows] == ["<", ">"] * 2
    assert all(row.met is not None and not row.wrong for row in rows)


def test_what_no_paper_says_of_a_send_is_shown_in_other_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Smaller slots and faster cores take less time for the small payload than the default, and no byte is wrong."""
    monkeypatch.setattr(sendrecv, "LARGE_BYTES", 1 << 20)
    rows = {row.what: row for row in sendrecv.rows_beside()}
    (_, _, usual, _) = sendrecv.claims()
    for name in ("slots of 32 KB", "cores of 60 GB/s"):
        small = rows[f"512 KB on 2 cores, pod, {name}"]
        assert float(small.emulated or 0) < float(usual.emulated or 0)
        assert rows[f"9 MB on 48 cores, times faster than on 2, pod, {name}"].unit == "x"
    assert len(rows) == 2 * len(sendrecv.OTHERS)
    assert not any(row.wrong for row in rows.values())


@refuses(
    Sweep,
    ({"cores": (2, 49)}, "cores=49: must be 1 to 48"),
    ({"to": ("moon",)}, "to='moon': must be one of sibling, node, pod"),
    ({"iterations": 0}, "iterations=0: must be a whole number, 1 to 1000"),
    ({"warmup": -1}, "warmup=-1: must be a whole number, 0 to 1000"),
)
def test_a_sweep_that_cannot_be() -> None:
    """Cores, places and counts out of range are refused before anything runs."""


@pytest.mark.parametrize("protocol", ["dispatch", "fused"])
def test_a_layer_is_held_against_the_oracle(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that is right has no wrong elements; one whose output was changed behind its back has."""
    right = time_layer(DEFAULT, SMALL, protocol)
    assert (right.wrong_rows, right.wrong_sums) == (0, 0)
    from xccl_emu.protocols.experts.group import ExpertGroup

    output = ExpertGroup.output
    monkeypatch.setattr(ExpertGroup, "output", lambda group, rank: -output(group, rank))
    changed = time_layer(DEFAULT, SMALL, protocol)
    assert changed.wrong_rows == 0
    assert changed.wrong_sums


def test_an_operator_is_told_by_its_mean_rank() -> None:
    """What is reported for it is the mean over ranks, from the own start to the own end, and one launch."""
    timed = time_layer(DEFAULT, SMALL)
    (dispatched, combined) = dispatch(ranks=4, batches=(2,), cores=2)
    spread = timed.dispatch.starts_us
    assert spread.std() > 0
    assert (timed.dispatch.ends_us > spread).all()
    shape = replace(SMALL, hidden=7168, experts=256, top_k=8)
    timed = time_layer(DEFAULT, shape)
    assert dispatched.emulated == timed.dispatch.us.mean() + DEFAULT.costs.launch_us
    assert combined.emulated == timed.combine.us.mean() + DEFAULT.costs.launch_us


def test_an_iteration_is_told_by_a_die() -> None:
    """Least, mean and greatest of layers that are drawn for a die; the share of the iteration follows from means."""
    rows = {row.what: float(row.emulated or 0) for row in iteration(DEFAULT, SMALL, 2)}
    for name in ("dispatch", "combine"):
        assert 0 < rows[f"{name} min"] <= rows[f"{name} avg"] <= rows[f"{name} max"]
    both = rows["dispatch avg"] + rows["combine avg"]
    assert rows["both, share of the iteration"] == pytest.approx(100 * 61 * both / 93_000)


def test_an_iteration_in_other_ways() -> None:
    """Counting in scalar loops makes the least dispatch take longer, and leaves combine as it is."""
    many = replace(SMALL, tokens=32)
    others = {"": many, "x": replace(many, counting="scalar")}
    rows = {row.what: float(row.emulated or 0) for row in rows_beside(others=others)}
    assert rows["dispatch min x"] > 1.05 * rows["dispatch min "]
    assert rows["combine min x"] == pytest.approx(rows["combine min "], rel=0.01)


def test_a_die_has_as_many_layers_as_an_iteration() -> None:
    """With more layers than it has, the least is that of groups of 58, not of all; the mean is that of all."""
    us = np.arange(116.0 * 4).reshape(4, 116)
    found = of_a_die(us, 0)
    assert found["avg"] == us.mean()
    assert 0 < found["min"] < 116 * 4 / 20
    assert us.max() * 0.95 < found["max"] < us.max()


def test_replicas_even_out_the_loads() -> None:
    """In the deployment of Figure 20 each die has a slot for a replica, and the hottest die no more than twice the mean
    of dies of routed experts; layers differ."""
    layer = Layer(ranks=288, tokens=120, replicas=288)
    loads = []
    for number in range(2):
        placement, routed = layer.placed(0, number)
        assert (placement.local_experts, placement.n_slots, placement.n_replicas) == (2, 576, 288)
        loads.append(placement.rank_loads(routed))
    assert (loads[0] != loads[1]).any()
    assert loads[0].max() < 2 * loads[0].mean()


def test_figure_6_is_judged_by_the_ratio() -> None:
    """The first bound is for the smallest ratio of small batches, the second for the largest of those above 32."""
    small, large = claims({1: 3.0, 16: 1.2, 32: 1.1, 33: 0.7, 64: 0.9})
    assert (small.emulated, small.relation, small.met) == (1.2, ">", True)
    assert (large.emulated, large.relation, large.met) == (0.9, "<", True)


def test_figure_6_is_that_of_its_setting() -> None:
    """Other ranks, batches or cores give latencies and no claim; both operators of each batch are compared."""
    rows = dispatch(ranks=4, batches=(1, 2), cores=2)
    assert [row.what for row in rows] == [f"{name}, batch {n}" for n in (1, 2) for name in ("dispatch", "combine")]
    assert [row.wrong for row in rows] == [0] * 4


def test_ablation_compares_with_the_whole() -> None:
    """Each switch has a time and its ratio to that of the same operator with all optimizations on."""
    rows = ablation(DEFAULT, SMALL)
    us = {row.what: float(row.emulated or 0) for row in rows if row.unit == "us"}
    ratios = [row for row in rows if row.unit == "x"]
    assert len(us) == 2 * len(SWITCHES) + 4  # and with and without the pipeline on few cores
    assert len(ratios) == 2 * len(SWITCHES)
    for row in ratios:
        name = row.what.removesuffix(", over all on")
        few = " on 1 cores" if name.endswith("cores") else ""
        assert row.emulated == us[name] / us[f"{name.split(',')[0]}, all on{few}"]
    assert {row.wrong for row in rows if row.unit == "us"} == {0}


def test_a2e_and_e2a_are_parts_of_one_call() -> None:
    """A2E, computing and E2A follow each other, and nothing that a call brought is wrong."""
    small = A2EDeployment(attention=2, experts=4, tokens=3, hidden=64, cores=2, stream_cores=1)
    one = time_call(DEFAULT, small)
    assert (one.wrong_rows, one.wrong_sums) == (0, 0)
    assert min(one.a2e_us, one.compute_us, one.e2a_us) > 0
    ran = a2e_domains.Layers(run_us=3000, each_us=1400, layers=2, a2e_us=180, e2a_us=190)
    there, back, *alone = a2e.rows_of(one, ran, small)
    assert [(row.published, row.emulated) for row in (there, back)] == [(172, 180), (193, 190)]
    assert [row.emulated for row in alone] == [one.a2e_us, one.e2a_us, one.compute_us]
    assert {row.published for row in alone} == {None}


def test_congestion_costs_a_part_of_the_bandwidth() -> None:
    """A die has most of its path's bandwidth where messages are striped, and less where addresses decide on the way."""
    striped, drawn, hashed, both = (float(row.emulated or 0) for row in congestion(DEFAULT, [4]))
    assert 0.9 * 137 < striped < 137
    assert max(hashed, both) < 0.97 * striped
    assert drawn <= 1.01 * striped


def test_copies_by_dma_are_right() -> None:
    """Every byte of a row of HIXL's arrives, and start-up and latency keep it below the rate of the path."""
    (row,) = hixl(DEFAULT, published.rows("hixl")[3:4])
    assert row.wrong == 0
    assert 0.9 * 135 < float(row.emulated or 0) * 2**30 / 1e9 < 135


def test_all_gather_beside_what_hccl_takes() -> None:
    """Small shares arrive with every bit, by cores; larger ones move no payload, are read by DMA, and take longer in
    proportion."""
    three = [row for row in published.rows("hccl") if row.what.startswith(("74 ", "21.4 ", "40 "))]
    small, large, largest = hccl(DEFAULT, three)
    assert (small.wrong, large.wrong, largest.wrong) == (0, None, None)
    assert {row.role for row in (small, large, largest)} == {"check"}
    assert float(largest.emulated or 0) / float(large.emulated or 1) == pytest.approx(40 / 21.4, rel=0.03)
    forms = [row.configuration["collective"] for row in (small, large)]
    assert forms == ["all-gather-by-cores", "all-gather-by-reads"]


def test_the_budget_is_the_published_one() -> None:
    """With layers of two attentions, and a last way through the experts, it comes to what was published, as rounded."""
    given = {row.what: row.value for row in published.rows("tpot")}
    ran = a2e_domains.Layers(run_us=3 * 1400 + 480, each_us=1400, layers=3)
    ours = serve_apart.budget(given, ran)
    assert round(ours["forward"]) == given["forward"]
    assert round(ours["TPOT"]) == given["TPOT"]
    assert ours["tokens a second and chip, at 50 ms"] == pytest.approx(2400, rel=0.03)


@pytest.mark.parametrize("attention_us", [700, 100])
def test_layers_take_what_the_streams_let_them(attention_us: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way to the experts and back is hidden behind long attention; short one does not make layers as short."""
    given = [replace(row, value=attention_us / 1000) if "attention" in row.what else row for row in PUBLISHED]
    monkeypatch.setattr(a2e_domains.published, "rows", lambda *_: given)
    small = A2EDeployment(attention=2, experts=4, tokens=3, hidden=64, cores=4, stream_cores=2, e2a_parts=2)
    one = Call1(80, 30, 20, None, None)
    ran = a2e_domains.time_layers(one, DEFAULT, small, layers=2)
    both = 2 * attention_us
    assert ran.run_us > 2 * both
    if attention_us == 700:
        assert both < ran.each_us < 1.02 * both
        alone = time_call(DEFAULT, small)  # and so are calls where the others are far away
        assert (ran.a2e_us, ran.e2a_us) == pytest.approx((alone.a2e_us, alone.e2a_us), rel=0.2)
    else:
        assert ran.each_us > 1.5 * both


def test_no_data_has_the_same_times() -> None:
    """Without payload nothing is compared, and no time is another one."""
    without = Setting(data=False)
    sweep = Sweep(sizes=(1 << 16,), cores=(2,))
    bare, full = sendrecv.measure(sweep, without)[0], sendrecv.measure(sweep)[0]
    assert bare.emulated == full.emulated
    assert (bare.wrong, full.wrong) == (None, 0)
    ours, theirs = (iteration(setting, SMALL, 1) for setting in (without, DEFAULT))
    assert [row.emulated for row in ours] == [row.emulated for row in theirs]
