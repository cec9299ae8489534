"""Serving from arrival to last token: no request is lost or served twice, times and policies are as they must be."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli_support import as_json, printed, refusal
from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.prefill import Leader, Prompt
from xccl_emu.papers.bench.serve import FULL, POLICIES, Colocated, OperatorTimes, ServedRequests, ServingPod
from xccl_emu.papers.bench.serve_whole import (
    BENCH,
    Paces,
    ServedWhole,
    WholeDeployment,
    rows_of,
    serve_whole,
    simulate,
)
from xccl_emu.papers.bench.setting import DEFAULT

TOKENS = np.array([256.0, 4096.0, 65_536.0])
QUICK = Paces(
    Colocated(OperatorTimes(np.array([8.0, 32.0]), np.array([200.0, 400.0]))), OperatorTimes(TOKENS, TOKENS / 1000),
    OperatorTimes(TOKENS, TOKENS / 2000), True, 10.0, 10_000.0,
)  # fmt: skip
SMALL = ServingPod(groups=8, batch=3, kv_tokens=80_000, layers=3, experts=8, top_k=3)

deployments = st.builds(
    WholeDeployment, st.integers(1, 3), st.integers(1, 2), st.sampled_from(["ub", "vpc"]), st.just(SMALL)
)  # fmt: skip
workloads = st.builds(
    ServedRequests, steps=st.integers(1, 60), rate=st.sampled_from([1.0, 20.0, 200.0]), prompt=st.integers(1, 3000),
    output=st.integers(1, 40), rebalance=st.sampled_from([0, 7]), stall=st.sampled_from([0.0, 0.1]),
)  # fmt: skip
policies = st.sampled_from([*POLICIES])


def times_of(ran: ServedWhole) -> list[tuple[float, ...]]:
    """What each request got when."""
    return [(one.arrived_ms, one.first_ms, one.joined_ms, one.ended_ms) for one in ran.counted]


@settings(max_examples=40, deadline=None)
@given(deployments, workloads, policies, st.integers(0, 5), st.data())
def test_every_request_is_served_once(
    of: WholeDeployment, load: ServedRequests, policy: str, seed: int, data: st.DataObject
) -> None:
    """Whichever die stops when: each that counts ends after its first token, and none is lost or has two places."""
    load = replace(load, lost_at=data.draw(st.integers(-1, load.steps - 1)))
    ran = simulate(of, load, QUICK, policy, seed)
    finished = [number for one in ran.decodes for number in one.served.finished]
    assert ran.wrong == 0
    assert len(finished) == len(set(finished))
    assert {one.number for one in ran.counted} <= set(finished)
    for one in ran.decodes:
        assert (one.reserved > 0).sum(axis=1).max() <= SMALL.batch
        assert one.used.sum(axis=1).max() <= one.reserved.sum(axis=1).max() <= SMALL.kv_tokens
    lost = sum(one.lost_tokens for one in ran.decodes)
    assert ran.front.recomputed <= lost
    assert (lost > 0) <= (load.lost_at >= 0)


@settings(max_examples=25, deadline=None)
@given(deployments, workloads, policies, st.integers(0, 5))
def test_no_time_is_shorter_than_its_parts(of: WholeDeployment, load: ServedRequests, policy: str, seed: int) -> None:
    """The first token takes prefill's own time at least, and the cache comes later by at least its way."""
    ran = simulate(of, load, QUICK, policy, seed)
    for one in ran.counted:
        assert one.first_ms - one.arrived_ms >= 1000 * one.prompt / QUICK.tokens_a_second
        assert one.joined_ms >= one.first_ms + QUICK.cache_ms.at(one.prompt) * (1 - 1e-12)
        assert one.ended_ms > one.joined_ms
    assert min(ran.front.moves_ms, default=1.0) > 0


def test_a_seed_says_all() -> None:
    """The same seed has the same times, another one others; and both policies serve the same requests."""
    load = ServedRequests(60, 200.0, 2000, 30)
    of = WholeDeployment(1, 1, "ub", SMALL)
    runs = [simulate(of, load, QUICK, "least-kv", seed) for seed in (3, 3, 4)]
    assert times_of(runs[0]) == times_of(runs[1]) != times_of(runs[2])
    asked = [[(one.prompt, one.output) for one in simulate(of, load, QUICK, name, 3).front.requests[:20]]
             for name in POLICIES]  # fmt: skip
    assert asked[0] == asked[1]


@given(st.lists(st.integers(1, 1000), max_size=40), st.integers(1, 9))
def test_least_kv_is_within_a_request_of_even(needs: list[int], groups: int) -> None:
    """Its fullest group never has more than the mean and one request; for equal requests round-robin has the same."""
    fullest = {}
    for name, make in POLICIES.items():
        choose, kv = make(), np.zeros(groups, np.int64)
        for need in needs:
            kv[choose(kv, np.zeros(groups, np.int64), 1, 10**9, need)] += need
        fullest[name] = int(kv.max())
    assert fullest["least-kv"] <= sum(needs) / groups + max(needs, default=0)
    if len(set(needs)) <= 1:
        assert fullest["least-kv"] == fullest["round-robin"]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 4)), min_size=1), st.integers(1, 60))
def test_round_robin_goes_round_those_with_room(groups: list[tuple[int, int]], need: int) -> None:
    """Every group with room once, in order, before any a second time; none where all are full."""
    kv, running = (np.array(column) for column in zip(*groups, strict=True))
    room = [i for i, (used, n) in enumerate(groups) if n < 4 and used + need <= 100]
    choose = POLICIES["round-robin"]()
    assert [choose(kv, running, 4, 100, need) for _ in range(2 * len(room) or 1)] == (2 * room or [FULL])


@pytest.mark.parametrize("seed", range(3))
def test_least_kv_serves_faster_than_round_robin(seed: int) -> None:
    """Prompts of many lengths on a busy pod: caches are more even, and a token takes less."""
    of = WholeDeployment(4, 1, "ub", replace(SMALL, groups=16, layers=61, batch=60, kv_tokens=400_000))
    load = ServedRequests(400, 20.0, 8000, 400)
    least, turns = (
        {row.what.partition(",")[0]: row.emulated or 0.0 for row in rows_of(ran, name)}
        for name in POLICIES
        for ran in [simulate(of, load, QUICK, name, seed)]
    )
    assert least["fullest cache over the mean"] < turns["fullest cache over the mean"]
    assert least["TPOT"] < turns["TPOT"]


def test_a_lost_die_has_its_caches_computed_again() -> None:
    """All that it had, and nothing else; the requests end all the same."""
    load = ServedRequests(80, 200.0, 2000, 60, lost_at=50)
    ran = simulate(WholeDeployment(2, 1, "ub", SMALL), load, QUICK, "least-kv", 0)
    (decode,) = ran.decodes
    assert decode.lost_requests > 0
    assert ran.front.recomputed == decode.lost_tokens > decode.lost_requests
    assert not decode.alive[0]


def test_ports_are_shared_by_a_node_or_not() -> None:
    """Caches from one die go one after the other, on a plane of the node's those of all its dies too."""
    load = ServedRequests(40, 200.0, 3000, 30)
    alone, shared = (
        np.mean(simulate(WholeDeployment(1, 1, "ub", SMALL), load, replace(QUICK, node_shares=shares, port_ms=slow),
                         "least-kv", 0).front.moves_ms)
        for shares in (False, True) for slow in [OperatorTimes(TOKENS, TOKENS / 20)]
    )  # fmt: skip
    assert shared > alone


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20), st.integers(1, 4))
def test_a_leader_deals_each_prompt_once(times: list[float], groups: int) -> None:
    """In steps one after the other, none before it has come."""
    leader = Leader(groups, 10.0, 1000.0)
    for number, ms in enumerate(sorted(times)):
        leader.come(Prompt(number, ms, 10.0))
    leader.step_before(math.inf)
    steps = sorted({prompt.ends_ms: prompt for prompt in leader.dealt})
    assert sorted(prompt.number for prompt in leader.dealt) == [*range(len(times))]
    assert all(prompt.arrived_ms + prompt.tokens <= prompt.ends_ms for prompt in leader.dealt)
    assert all(0 <= prompt.group < groups for prompt in leader.dealt)
    assert all(later - sooner >= 10.0 for sooner, later in pairwise(steps))
    assert not leader.pending


@pytest.mark.parametrize("changed", [{}, {"plane": "rdma"}, {"prefill": 3}, {"decode": 2}])
def test_what_is_published_is_shown_of_its_deployment(changed: dict[str, int | str]) -> None:
    """TTFT and TPOT have published numbers at any rate and plane, not with other instances; none without requests."""
    ran = simulate(WholeDeployment(**changed), ServedRequests(8, 0.001, 13_000, 2100), QUICK, "least-kv", 0)
    rows = {row.what: row.published for row in rows_of(ran, "least-kv") if row.published is not None}
    assert not ran.counted
    assert {row.emulated for row in rows_of(ran, "least-kv") if row.what.startswith("T")} == {None}
    alike = {"TTFT, least-kv": 900, "TPOT, least-kv": 34.8}
    assert rows == ({} if {"prefill", "decode"} & {*changed} else alike)
    assert {row.role for row in published.rows(BENCH)} == {"shown"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--plane", "ub", "--prefill", "4"), "--rate 0.0: must be above 0 with prefill"),
        (("--prefill", "4", "--rate", "1", "--plane", "sky"), "--plane sky: must be one of ub, rdma, vpc"),
        (("--prefill", "4", "--rate", "1", "--balance", "a"), "--balance a: must be one of least-kv, round-robin"),
        (("--prefill", "4", "--rate", "1", "--prompt", "70000"), "--prompt 70000: must be at most 65536 with prefill"),
        (("--prefill", "4", "--rate", "1", "--domains", "3"), "--domains 3: cannot be combined with --prefill"),
        (("--prefill", "22"), "--prefill 22: needs 832 dies with decode, a pod has 768"),
        (("--prefill", "4", "--rate", "inf"), "--rate"),
        (("--stall", "1", "--stall-ms", "inf"), "--stall-ms"),
        (("--prefill", "4", "--rate", "1", "--lost", "experts"), "--lost experts: needs --domains"),
        (("--expert-dies", "10"), "--expert-dies 10: needs --domains"),
        (("--decode", "2"), "--decode 2: needs --prefill"),
        (("--plane", "vpc"), "--plane vpc: needs --prefill"),
        (("--balance", "round-robin"), "--balance round-robin: needs --prefill"),
    ],
)
def test_what_makes_no_sense_is_refused(words: tuple[str, ...], said: str) -> None:
    """With the option and its value, before anything runs."""
    assert said in refusal("bench", "serve", *words)


def test_answers_that_no_group_has_room_for_are_refused() -> None:
    """Before kernels run, since such a request would wait for ever."""
    load = ServedRequests(10, 1.0, 100, 20_000)
    with pytest.raises(ConfigError, match="output=20000: caches of 95536 tokens, a group has room for 80000"):
        next(serve_whole(DEFAULT, WholeDeployment(1, 1, "ub", SMALL), load, ["least-kv"]))


@pytest.mark.slow
def test_the_command_serves_from_arrival_to_last_token(tmp_path: Path) -> None:
    """On eight dies: rows of each policy as text, JSON, CSV and a plot, with nothing lost."""
    words = ("bench", "serve", "--prefill", "1", "--ranks", "8", "--rate", "5", "--prompt", "2000", "--output", "20",
             "--steps", "40", "--balance", "least-kv,round-robin")  # fmt: skip
    shown = as_json(*words, "--csv", str(tmp_path / "rows.csv"), "--plot", str(tmp_path / "rows.png"))
    names = [row["what"] for row in shown["results"]]
    assert {f"{what}, {policy}" for what in ("TTFT", "TPOT") for policy in POLICIES} <= {*names}
    assert shown["wrong"] == 0
    assert (tmp_path / "rows.csv").read_text().count("\n") == len(names) + 1
    assert (tmp_path / "rows.png").stat().st_size > 0
    assert "TPOT, round-robin" in printed(*words, "--plane", "vpc")


def test_a_rate_at_which_nobody_arrives_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no time to report, and a table of dashes would not say why."""
    monkeypatch.setattr(Paces, "run", lambda *_: QUICK)
    load = ServedRequests(8, 0.001, 13_000, 2100)
    with pytest.raises(ConfigError, match=r"rate=0\.001: must be more: nobody arrives in 8 steps"):
        [*serve_whole(DEFAULT, WholeDeployment(), load, ["least-kv"])]
