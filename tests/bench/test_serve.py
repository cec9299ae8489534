"""Decode and prefill under arrivals: no request is lost or served twice, and policies keep what they promise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli_support import as_json
from xccl_emu import routing
from xccl_emu.bench.prefill import Executors, first_tokens_ms
from xccl_emu.bench.scheduling import FULL, least_used, longest_first
from xccl_emu.bench.serve import Deployment, Operators, Workload, hottest, simulate
from xccl_emu.bench.setting import DEFAULT
from xccl_emu.errors import ConfigError

QUICK = Operators(np.array([8.0, 32.0]), np.array([200.0, 400.0]))
SMALL = Deployment(groups=9, batch=4, kv_tokens=400, layers=3, experts=8, top_k=3)

workloads = st.builds(
    Workload, steps=st.integers(1, 60), rate=st.sampled_from([0.0, 20.0, 2000.0]), prompt=st.integers(1, 80),
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
def test_no_request_is_lost_or_served_twice(workload: Workload, seed: int, data: st.DataObject) -> None:
    """In every step, whichever die stops when; and no group has more requests or tokens than it has room for."""
    lost_at = data.draw(st.integers(-1, workload.steps - 1))
    decode = simulate(SMALL, Workload(**{**vars(workload), "lost_at": lost_at}), QUICK, DEFAULT)
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
    usual, late = (simulate(SMALL, Workload(5, stall=stall), QUICK, DEFAULT).served.ms for stall in (0.0, 1.0))
    assert late - usual == pytest.approx(5 * 100.0)
    lost = simulate(SMALL, Workload(5, lost_at=2), QUICK, DEFAULT).served.step_ms
    assert lost[2] > 2 * lost[1] * 0.99


def test_an_idle_executor_takes_what_a_prompt_takes() -> None:
    """With hardly any arrivals a request waits for nobody; with more than can be computed, waiting grows."""
    idle, busy = (
        first_tokens_ms(Executors(rate=rate, requests=400), 10.0, 10_000, 0).mean() for rate in (0.01, 100.0)
    )
    assert idle == pytest.approx(1300, rel=0.1)
    assert busy > 2 * idle


def test_a_loss_behind_the_end_is_refused() -> None:
    """The error has the step and the number of steps."""
    with pytest.raises(ConfigError, match="lost_at=5: must be below steps=5"):
        simulate(SMALL, Workload(5, lost_at=5), QUICK, DEFAULT)


def test_the_command_runs_the_operators() -> None:
    """On eight dies, with the rows of a pod; nothing is compared with what was published of 288."""
    told = as_json("bench", "serve", "--ranks", "9", "--batch", "4", "--steps", "20", "--no-data")
    rows = {row["what"]: row for row in told["results"]}
    assert rows["step"]["emulated"] > 7
    assert rows["TPOT"]["published"] is None
    assert told["wrong"] == 0
