"""Decode and prefill under arrivals: no request is lost or served twice, and policies keep what they promise."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli_support import as_json, refusal
from xccl_emu import routing
from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.bench.prefill import Executors, first_tokens_ms
from xccl_emu.papers.bench.serve import (
    FULL,
    Colocated,
    OperatorTimes,
    ServedRequests,
    ServingPod,
    hottest,
    least_used,
    longest_first,
    simulate,
)
from xccl_emu.papers.bench.serve_apart import Apart, Turn, pipeline_us
from xccl_emu.papers.bench.setting import DEFAULT

ROOT = Path(__file__).parents[2]
ALONE, RUN = ("A2E of one domain alone", "E2A of one domain alone"), "a layer of all microbatches, run"
QUICK = Colocated(OperatorTimes(np.array([8.0, 32.0]), np.array([200.0, 400.0])))
SMALL = ServingPod(groups=9, batch=4, kv_tokens=400, layers=3, experts=8, top_k=3)

workloads = st.builds(
    ServedRequests, steps=st.integers(1, 60), rate=st.sampled_from([0.0, 20.0, 2000.0]), prompt=st.integers(1, 80),
    output=st.integers(1, 40), rebalance=st.sampled_from([0, 7]), stall=st.sampled_from([0.0, 0.1]),
    lost_at=st.just(-1),
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 4)), min_size=1), st.integers(1, 60))
def test_decode_takes_the_least_used_group_with_room(groups: list[tuple[int, int]], need: int) -> None:
    """Never a full one, nor one whose cache has no room; of the others none has less in use."""
    kv, running = (np.array(column) for column in zip(*groups, strict=True))
    chosen = least_used(kv, running, 4, 100, need)
    room = [i for i, (used, n) in enumerate(groups) if n < 4 and used + need <= 100]
    assert (chosen == FULL) == (not room)
    assert not room or (chosen in room and kv[chosen] == min(kv[i] for i in room))


@given(st.lists(st.integers(1, 1000)), st.integers(1, 9))
def test_prefill_deals_within_a_request_of_the_least(costs: list[int], groups: int) -> None:
    """Every request has a group, and no group has more than the least one by more than its own last request."""
    chosen = longest_first(costs, groups)
    loads = np.bincount(chosen, costs, groups) if costs else np.zeros(groups)
    assert loads.sum() == sum(costs)
    assert loads.max() - loads.min() <= max(costs, default=0)


@given(workloads, st.integers(0, 5), st.data())
def test_no_request_is_lost_or_served_twice(workload: ServedRequests, seed: int, data: st.DataObject) -> None:
    """In every step, whichever die stops when; and no group has more requests or tokens than it has room for."""
    lost_at = data.draw(st.integers(-1, workload.steps - 1))
    decode = simulate(SMALL, ServedRequests(**{**vars(workload), "lost_at": lost_at}), QUICK, DEFAULT)
    assert decode.check() == 0
    assert decode.alive.sum() == SMALL.groups - (lost_at >= 0)
    assert decode.used.sum(axis=1).max() <= decode.reserved.sum(axis=1).max() <= SMALL.kv_tokens
    assert not decode.left[~decode.alive].any()


@given(st.integers(1, 9), st.integers(0, 36), st.integers(1, 50))
def test_equal_requests_are_spread_within_one(groups: int, requests: int, need: int) -> None:
    """One after the other they come to the groups by turns, so that none has two more than another."""
    kv, running = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
    for _ in range(min(requests, 4 * groups)):
        chosen = least_used(kv, running, 4, 1000, need)
        kv[chosen] += need
        running[chosen] += 1
    assert running.sum() == min(requests, 4 * groups)
    assert running.max() - running.min() <= 1


def test_a_hot_expert_makes_its_die_hot_and_replicas_mend_it() -> None:
    """One of 16 experts with most choices: its die has most rows, and fewer when the expert has copies."""
    loads = np.where(np.arange(16) == 3, 40.0, 1.0)
    redundancy = routing.Redundancy(18, loads, slots_per_rank=1, top_k=2)
    plain, mended = routing.place_experts(18, 16), routing.place_experts(18, 16, redundancy=redundancy)
    shared = loads.sum() / 2 / plain.shared_ranks
    assert hottest(plain, loads, 2) == pytest.approx(max(40, shared) / ((loads.sum() * 1.5) / 18))
    assert hottest(mended, loads, 2) < hottest(plain, loads, 2)


def test_a_stall_and_a_loss_cost_what_they_take() -> None:
    """A group that is late holds up all, and a loss takes the step again and the weights of the lost experts."""
    usual, late = (simulate(SMALL, ServedRequests(5, stall=stall), QUICK, DEFAULT).served.ms for stall in (0.0, 1.0))
    assert late - usual == pytest.approx(5 * 100.0)
    lost = simulate(SMALL, ServedRequests(5, lost_at=2), QUICK, DEFAULT).served.step_ms
    assert lost[2] > 2 * lost[1] * 0.99


def test_an_idle_executor_takes_what_a_prompt_takes() -> None:
    """With hardly any arrivals a request waits for nobody; with more than can be computed, waiting grows."""
    idle, busy = (first_tokens_ms(Executors(rate=rate, requests=400), 10.0, 10_000, 0).mean() for rate in (0.01, 100.0))
    assert idle == pytest.approx(1300, rel=0.1)
    assert busy > 2 * idle


def test_a_loss_behind_the_end_is_refused() -> None:
    """The error has the step and the number of steps."""
    with pytest.raises(ConfigError, match="lost_at=5: must be below steps=5"):
        ServedRequests(5, lost_at=5)


def test_the_command_runs_the_operators() -> None:
    """On eight dies, with the rows of a pod; nothing is compared with what was published of 288."""
    told = as_json("bench", "serve", "--ranks", "9", "--batch", "4", "--steps", "20", "--no-data")
    rows = {row["what"]: row for row in told["results"]}
    assert rows["step"]["emulated"] > 7
    assert rows["TPOT"]["published"] is None
    assert told["wrong"] == 0


# ---- attention and experts apart

APART_QUICK = Apart(
    OperatorTimes(np.array([8.0, 32.0]), np.array([90.0, 110.0])), OperatorTimes(np.array([8.0]), np.array([50.0]))
)
SMALL_APART = replace(SMALL, groups=6, domains=3, expert_dies=9)
times = st.floats(0, 50)
turns = st.lists(st.builds(Turn, st.integers(0, 2), times, times, times, times), min_size=1, max_size=5)


def ends(turns: list[Turn], layers: int, begins: list[float]) -> float:
    """When the last call ends, by what each waits for: a stream has one call at a time, a die one microbatch."""

    @cache
    def end(layer: int, i: int, stage: str) -> float:
        waits = [begins[turns[i].domain]]
        before = [(layer, j) for j in range(i - 1, -1, -1)] + [(layer - 1, j) for j in range(len(turns) - 1, -1, -1)]
        same = [(n, j) for n, j in before if stage != "attention" or turns[j].domain == turns[i].domain]
        waits += [end(n, j, stage) for n, j in same if n >= 0]
        waits += [end(layer - 1, i, "e2a")] if stage == "attention" and layer else []
        behind = {"a2e": "attention", "experts": "a2e", "e2a": "experts"}.get(stage)
        waits += [end(layer, i, behind)] if behind else []
        return max(waits) + float(getattr(turns[i], stage))

    return max(end(layers - 1, i, "e2a") for i in range(len(turns)))


@given(turns, st.integers(1, 3), st.lists(times, min_size=3, max_size=3))
def test_a_pipeline_ends_when_what_it_waits_for_has(turns: list[Turn], layers: int, begins: list[float]) -> None:
    """As by the definition of each wait; never before a microbatch or a stream alone would, nor behind all in a row."""
    got = pipeline_us(turns, layers, begins)
    assert got == pytest.approx(ends(turns, layers, begins))
    each = [(one.attention, one.a2e, one.experts, one.e2a) for one in turns]
    alone = [*map(sum, each), *(sum(column) for column in [*zip(*each, strict=True)][1:])]
    assert layers * max(alone) <= got + 1e-6
    assert got <= layers * sum(map(sum, each)) + max(begins) + 1e-6


def test_a_layer_is_as_long_as_one_that_is_run() -> None:
    """As published, by calls that were run alone: within 2% of the layers that streams of kernels were run through."""
    page = (ROOT / "docs" / "records" / "benchmarks.md").read_text()
    ran = {cells[1].strip(): float(cells[3]) for line in page.splitlines() if (cells := line.split("|"))[3:] and
           cells[1].strip() in (*ALONE, RUN)}  # fmt: skip
    a2e, e2a = (ran[name] for name in ALONE)
    layers = [pipeline_us([Turn(i % 3, 700, a2e, 120, e2a) for i in range(6)], n, [0, 233, 467]) for n in (9, 10)]
    assert layers[1] - layers[0] == pytest.approx(1000 * ran[RUN], rel=0.02)


@settings(max_examples=30)
@given(workloads, st.sampled_from(["attention", "experts"]), st.data())
def test_no_request_is_lost_where_experts_are_apart(workload: ServedRequests, lost: str, data: st.DataObject) -> None:
    """Whichever kind of die stops when; a die of attention takes its requests with it, one of experts none."""
    lost_at = data.draw(st.integers(-1, workload.steps - 1))
    decode = simulate(SMALL_APART, replace(workload, lost_at=lost_at, lost=lost), APART_QUICK, DEFAULT)
    assert decode.check() == 0
    assert decode.alive.sum() == 6 - (lost_at >= 0 and lost == "attention")
    assert decode.used.sum(axis=1).max() <= SMALL_APART.kv_tokens


def test_what_a_loss_and_a_late_group_cost_apart() -> None:
    """Experts are computed by fewer dies for good, and their weights are read; a late group holds up the others."""
    usual = simulate(SMALL_APART, ServedRequests(6), APART_QUICK, DEFAULT).served
    lost = {kind: simulate(SMALL_APART, ServedRequests(6, lost_at=2, lost=kind), APART_QUICK, DEFAULT).served.step_ms
            for kind in ("attention", "experts")}  # fmt: skip
    assert lost["experts"][2] > lost["attention"][2] > 1.9 * usual.step_ms[2]
    assert lost["experts"][3] >= usual.step_ms[3]
    late = simulate(SMALL_APART, ServedRequests(6, stall=1.0), APART_QUICK, DEFAULT).served.ms
    assert late - usual.ms == pytest.approx(6 * 100.0)


def test_domains_of_two_sizes_and_odd_losses_are_refused() -> None:
    """With the option and its value."""
    for words, said in (
        (("--domains", "2", "--ranks", "9"), "--ranks 9: must be a multiple of --domains 2"),
        (
            ("--domains", "1", "--ranks", "9", "--expert-dies", "8"),
            "--expert-dies 8: must be at least the dies of a domain, 9",
        ),
        (("--lost", "host"), "--lost host: must be attention or experts"),
    ):
        assert said in refusal("bench", "serve", *words)


@pytest.mark.slow
def test_the_command_runs_domains() -> None:
    """Eight dies beside nine of experts, with nothing to compare."""
    words = ("--domains", "2", "--ranks", "8", "--expert-dies", "9", "--batch", "4", "--steps", "20", "--no-data")
    told = as_json("bench", "serve", *words)
    assert {row["bench"] for row in told["results"]} == {"serve apart"}
    assert told["wrong"] == 0
    assert all(row["published"] is None for row in told["results"])
