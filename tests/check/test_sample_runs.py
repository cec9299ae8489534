"""Policies, limits, replay: what a sampled schedule is, that it comes again, and that the machine takes it too."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.base.errors import ReplayError
from xccl_emu.check.check import check
from xccl_emu.check.faults import parse
from xccl_emu.check.sampling import watch
from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.sampling.sample import POLICIES, PORTFOLIO, Sampled, monitor_of, replay, sample, share
from xccl_emu.check.sampling.watch import Monitor
from xccl_emu.check.trial import Trial
from xccl_emu.check.verdict import UNFINISHED
from xccl_emu.lang import kernel, quiet, store
from xccl_emu.machine.device.layout import ACTORS_PER_CORE, CHOICE_ALL, CHOICE_BITS
from xccl_emu.machine.schedule import Schedule
from xccl_emu.protocols.sendrecv.case import SendRecvCase

from .monitor_support import ORDERS, app, make_pod, trial_of
from .traps import NAMED
from .witness_support import shows_again

SMALL = SendRecvCase(slots=2, chunks=3, granules=2)


@kernel
def write_granules(target, n):
    """Write one word in each of some granules, then quiet."""
    for i in range(n):
        yield store(target + 32 * i, i + 1)
    yield quiet()


def _same(one: Sampled, other: Sampled) -> bool:
    if one.violation is None or other.violation is None:
        return (one.schedules, one.actions) == (other.schedules, other.actions) and one.violation is other.violation
    return one.violation.message == other.violation.message and np.array_equal(
        one.violation.actions, other.violation.actions
    )


def _one(trial: Trial, policy: str, seed: int = 0, number: int = 0) -> list[tuple[int, int]]:
    """The actions of one schedule, as (actor, choice)."""
    monitor = monitor_of(trial)
    assert monitor.runs(ml.POLICIES.index(policy), seed, number, number + 1) == ml.RUN_DONE
    return [(int(a) >> CHOICE_BITS, int(a) & CHOICE_ALL) for a in monitor.log[: int(monitor.m[ml.TAKEN])]]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("without", [(), ("slot free",)])
def test_equal_seeds_give_equal_results(policy: str, without: tuple[str, ...]) -> None:
    """On a pod made anew the same seed finds the same schedule, or takes as many actions; another seed, others."""
    trials = [SMALL.build("relaxed", without) for _ in range(3)]
    one, other, third = (sample(t, policy, seed=s, schedules=40) for t, s in zip(trials, (3, 3, 4), strict=True))
    assert _same(one, other)
    assert (one.violation is None) == (not without)
    if policy != "portfolio" and without:
        assert not np.array_equal(one.violation.actions, third.violation.actions)


@pytest.mark.parametrize("policy", ml.POLICIES)
def test_a_schedule_comes_again_by_its_number(policy: str) -> None:
    """Number 7 is the same whether or not those before it are run."""
    trial = SMALL.build("relaxed")
    monitor = monitor_of(trial)
    monitor.runs(ml.POLICIES.index(policy), 5, 0, 8)
    last = [int(a) for a in monitor.log[: int(monitor.m[ml.TAKEN])]]
    again = _one(SMALL.build("relaxed"), policy, 5, 7)
    assert [actor << CHOICE_BITS | choice for actor, choice in again] == last
    assert _one(trial, policy, 5, 6) != again


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("policy", ml.POLICIES)
def test_the_machine_takes_what_a_policy_took(policy: str, order: str) -> None:
    """Every schedule of a policy is one of the machine, which replays it to the expected bytes."""
    trial = SMALL.build(order)
    actions = np.array([a << CHOICE_BITS | c for a, c in _one(trial, policy, 1, 2)], np.int64)
    trial.pod.replay(Schedule(actions, trial.pod.fingerprint()))
    for expected in trial.expected:
        start = expected.address
        assert bytes(trial.pod.memory[start : start + len(expected.data)]) == expected.data


@settings(max_examples=25)
@given(
    st.builds(
        SendRecvCase, slots=st.integers(1, 3), chunks=st.integers(1, 5), granules=st.integers(1, 3),
        path=st.sampled_from(["mtu", "dma", "zero-copy"]),
    ),
    st.sampled_from(ORDERS),
    st.sampled_from(["round-robin", "random"]),
    st.integers(0, 1000),
)  # fmt: skip
def test_schedules_of_the_machine_are_replayed(check: SendRecvCase, order: str, policy: str, seed: int) -> None:
    """What the machine recorded passes under watch, whole transfers and when writes become visible included; so do its
    beginnings."""
    ran = check.build(order)
    ran.pod.record, ran.pod.policy = True, policy
    ran.pod.run()
    actions = ran.pod.schedule.actions
    trial = check.build(order)
    assert replay(trial, actions) is None
    cut = seed % len(actions)
    assert replay(trial, actions[:cut]) is None


def test_an_action_that_is_not_enabled() -> None:
    """A schedule that does not fit is refused, by the number of its first action that cannot be taken."""
    trial = SMALL.build("relaxed")
    actions = np.array([a << CHOICE_BITS | c for a, c in _one(trial, "random")], np.int64)
    for bad in (4 << CHOICE_BITS, -1, 1 << 40, actions[0] | 3):
        spoilt = actions.copy()
        spoilt[5] = bad
        with pytest.raises(ReplayError, match="action 5 of it is not enabled"):
            replay(trial, spoilt)
    assert replay(trial, actions) is None


def test_a_replay_stops_at_the_violation() -> None:
    """What is behind the action that shows it is left out."""
    trial = SMALL.build("relaxed", ["slot free"])
    violation = sample(trial).violation
    longer = np.concatenate([violation.actions, violation.actions])
    again = replay(SMALL.build("relaxed", ["slot free"]), longer)
    assert (again.kind, again.message) == (violation.kind, violation.message)
    assert np.array_equal(again.actions, violation.actions)


def _performed(policy: str) -> tuple[list[int], list[int]]:
    """For six stores and a quiet: after how many stores each write becomes visible, and which place it then has."""
    pod = make_pod(dies=1, cores=1)
    actions = _one(trial_of(pod, [(write_granules, 0, 0, {"target": app(pod), "n": 6})]), policy)
    stores, when, which = 0, [], []
    for actor, choice in actions:
        if actor == ACTORS_PER_CORE:
            when.append(stores)
            which.append(choice)
        else:
            stores = min(stores + 1, 6)
    return when, which


def test_the_extremes_of_when_writes_become_visible() -> None:
    """Eager: each write at once. Late: none before all are issued. Last in, first out: the youngest first."""
    assert _performed("eager") == ([1, 2, 3, 4, 5, 6], [0] * 6)
    assert _performed("late")[0] == [6] * 6
    assert _performed("lifo") == ([6] * 6, [5, 4, 3, 2, 1, 0])


def test_limits_and_progress() -> None:
    """Schedules are as many as asked for, in turn over the policies; seconds end it; both are told on the way."""
    trial = SMALL.build("relaxed")
    told: list[tuple[int, int]] = []
    result = sample(trial, schedules=100, progress=lambda done, actions: told.append((done, actions)))
    assert result.schedules == sum(result.by_policy.values()) == 100
    assert sorted(result.by_policy) == sorted(PORTFOLIO)
    assert told == sorted(told)
    assert told[-1] == (100, result.actions)
    result = sample(trial, "pct", seconds=0.05)
    assert result.by_policy.keys() == {"pct"}
    assert result.schedules > 0
    assert result.seconds < 20


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled code comes back behind every action."""
    monkeypatch.setattr(watch, "_PIECE_FIRST", 1)
    monkeypatch.setattr(watch, "_PIECE_MAX", 1)


@pytest.mark.parametrize("fault", ["", "stop:die1"])
@pytest.mark.parametrize("policy", ["portfolio", "skew"])
def test_a_schedule_in_pieces_is_the_same(policy: str, fault: str, request: pytest.FixtureRequest) -> None:
    """Where each schedule pauses behind each of its actions, all is as in one piece: actions, faults, what is found."""
    broken = parse(fault) if fault else None

    def sampled(without: tuple[str, ...]) -> Sampled:
        return sample(SMALL.build("relaxed", without), policy, schedules=12, fault=broken)

    whole = [sampled(()), sampled(("slot free",))]
    request.getfixturevalue("one_by_one")
    pieces = [sampled(()), sampled(("slot free",))]
    assert all(_same(one, other) for one, other in zip(whole, pieces, strict=True))
    assert [one.ended for one in whole] == [one.ended for one in pieces]
    assert whole[1].violation is not None or fault


@pytest.mark.usefixtures("one_by_one")
def test_a_schedule_under_way_is_given_up_in_time() -> None:
    """It does not count, and the pod is as it was; a check without a single schedule is unfinished, and says why."""
    trial = SMALL.build("relaxed")
    result = sample(trial, "late", seconds=1e-9)
    assert (result.schedules, result.violation) == (0, None)
    assert _same(sample(trial, "late", schedules=3), sample(SMALL.build("relaxed"), "late", schedules=3))
    verdict = check(SMALL, policy="late", seconds=1e-9)
    assert (verdict.verdict, verdict.reason) == (UNFINISHED, "more than 1e-09 seconds")


@pytest.mark.parametrize("path", ["mtu", "dma"])
@pytest.mark.parametrize("without", [(), ("slot free",)])
def test_what_was_not_learned_is_made_up_for(without: tuple[str, ...], path: str) -> None:
    """A monitor that begins with hardly any room, and knows of no synchronization and no DMA, comes to the same end."""
    case = SendRecvCase(slots=2, chunks=3, granules=2, path=path)
    usual, tight = (Monitor(case.build("relaxed", without)) for _ in range(2))
    assert usual.learn()
    assert tight.learn()
    assert (usual._rings > 0) == (path == "dma")
    tight._sync_max, tight._record_words, tight._undo_words, tight.known, tight._rings = 1, 8, 2, [], 0
    codes = [monitor.runs(ml.P_WEIGHTS, 0, 0, 5) for monitor in (usual, tight)]
    assert codes[0] == codes[1]
    assert (codes[0] == ml.RUN_DONE) == (not without)
    taken = [int(monitor.m[ml.TAKEN]) for monitor in (usual, tight)]
    assert np.array_equal(usual.log[: taken[0]], tight.log[: taken[1]])
    assert [int(n) for n in usual.m[[ml.SCHEDULES, ml.TOTAL]]] == [int(n) for n in tight.m[[ml.SCHEDULES, ml.TOTAL]]]


@pytest.mark.nojit
@pytest.mark.parametrize("order", ORDERS)
def test_a_small_program_in_plain_python_too(order: str) -> None:
    """A flag without a quiet is a race, or none under the orders that keep its writes, without the JIT as well."""
    trap = NAMED["data without a quiet"]
    trial = trap.build(order)
    violation = sample(trial, schedules=18).violation
    assert (violation is None) == (order not in ("relaxed", "unordered"))
    if violation is not None:
        assert violation.kind in trap.allows(order)
        assert shows_again(trial, violation)


def test_hosts_that_launch_apart_let_a_die_run_ahead() -> None:
    """A sender that waits for no slot overwrites one only when it is six chunks ahead: `skew` gets there most often."""
    trial = SendRecvCase(slots=6, chunks=12, granules=1).build("relaxed", ("slot free",))
    shares = {policy: share(trial, policy, schedules=300, races=False) for policy in POLICIES if policy != "portfolio"}
    assert max(shares, key=lambda policy: shares[policy]) == "skew", shares
