"""What no run needed: polls that are granted at once, what no run comes to, and memory that is hardly used."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.machine.support import small
from xccl_emu.check.check import check
from xccl_emu.check.reach import MemoryUse, Reach, reach_of
from xccl_emu.check.sampling.sample import sample
from xccl_emu.guards.campaign import judge
from xccl_emu.guards.campaign.programs import ORDERS, Small
from xccl_emu.lang import kernel, poll_ge, store
from xccl_emu.machine import small_pod
from xccl_emu.machine.explore import Explored
from xccl_emu.protocol import Regions
from xccl_emu.protocol.registry import make
from xccl_emu.testing import Bench, protocol

MODES = ("full", "merged", "breadth first")
_STATES = 4_000


def searched(one: Small, order: str, mode: str) -> Reach | None:
    """What a search says no run needs; None if it proves nothing."""
    trial = one.trial(order, None)
    found = judge.searched(trial, mode, judge.JudgeBudget(seconds=60))
    return reach_of(trial.pod, found.sites) if found.complete else None


def by_brute_force(one: Small, order: str, naive: Explored) -> Reach:
    """What brute force says of the same."""
    return reach_of(one.pod(order), naive.sites)


def idle(reach: Reach | None) -> set[str]:
    """Operations that never waited."""
    assert reach is not None
    return {place.site.operation for place in reach.never_waited}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("programs", "more", "expected"),
    [
        ("ge 1.4 0; store 0.4 1 | ge 0.4 1", {}, set()),
        ("store 1.4 1 | ge 1.4 1", {}, set()),
        ("store 1.4 1 | ge 1.4 0", {}, {"poll_ge"}),
        ("store 1.4 2; quiet; store 1.4 3 | eq 1.4 3", {"memory": {0o14: 1}}, set()),
        ("store 1.4 2 | ge 1.4 1", {"memory": {0o14: 1}}, {"poll_ge"}),
        ("store 1.4 2 | ne 1.4 1", {"memory": {0o14: 1}}, set()),
        ("eq 1.4 1; store 1.4 2 | eq 1.4 2; store 1.4 1", {"memory": {0o14: 1}}, set()),
        ("store 1.0 2; ge 1.0 2; load 1.0", {}, {"poll_ge"}),
        ("put 1.0 2; eq 1.0 2", {}, set()),
        ("in 1.0 0 2; set 1 0 1; wait 1 0 1; ub_load 0 0", {}, set()),
        ("in 1.0 0 2; set 1 0 1; quiet; wait 1 0 1; ub_load 0 0", {}, {"wait_flag"}),
        ("in 1.0 0 2; set 1 3 1; wait 1 3 1; out 0.0 0 2; quiet", {}, set()),
        ("set 0 3 1; wait 0 3 1; out 0.0 0 2; quiet", {}, {"wait_flag"}),
        ("arrive; await", {}, {"await_group"}),
    ],
)
def test_what_never_waits_is_told(order: str, mode: str, programs: str, more: dict, expected: set[str]) -> None:
    """A poll that its first value grants never waits; one that needs a write may, though the search has it at once."""
    one = small(programs, dies=2, **more)
    found = idle(searched(one, order, mode))
    assert found == expected == idle(by_brute_force(one, order, one.naive(order)))


def test_what_only_a_quiet_says_is_not_told_of_writes_that_are_made_at_once() -> None:
    """A core's own write that the search has at once: its poll behind a quiet never waits, and that is not said."""
    one = small("put 1.0 2; quiet; eq 1.0 2", dies=2)
    assert idle(by_brute_force(one, "relaxed", one.naive("relaxed"))) == idle(searched(one, "relaxed", "merged"))
    assert idle(searched(one, "relaxed", "full")) == set()


def test_barriers_of_two_and_what_is_never_reached() -> None:
    """Whoever comes first waits; a poll that is passed over is reached by no run, one in a rare branch by some."""
    both = searched(small("arrive; await | arrive; await", cores_per_die=2), "relaxed", "full")
    assert idle(both) == set()
    passed = small("store 1.0 5 | load_named 1.0; skip_unless 0 0 1; ge 1.0 0")
    assert "ge" not in searched(passed, "relaxed", "full").unreached()
    assert {"eq", "spin", "await"} <= set(searched(passed, "relaxed", "full").unreached())


# ---- random programs

WORDS = st.sampled_from(["0.0", "0.4", "1.0", "1.1", "1.4"])
SIMPLE = st.builds(
    "{} {} {}".format, st.sampled_from(["store", "put", "add", "ge", "ge", "eq", "ne", "atomic"]), WORDS,
    st.integers(0, 2),
)  # fmt: skip
BLOCKS = st.sampled_from([
    "quiet", "fence", "ge 1.4 1", "in 1.0 0 2; set 1 0 1; wait 1 0 1", "in 0.0 0 0; set 1 3 2; wait 1 3 2; out 1.4 0 0",
    "in 0.0 0 0; set 1 0 3; quiet; wait 1 0 3", "set 0 3 0; wait 0 3 0; put 1.4 1",
    "out 1.0 0 0; set 3 0 4; wait 3 0 4",
    "dma 0.0 1.4 0; wait 4 0 0", "arrive; await",
])  # fmt: skip
PROGRAM = st.lists(SIMPLE | BLOCKS, min_size=1, max_size=4).map("; ".join)
CONFIGURATIONS = st.builds(
    lambda programs, memory, cores: small(" | ".join(programs), memory=memory, cores_per_die=cores, dies=2),
    st.lists(PROGRAM, min_size=1, max_size=3),
    st.dictionaries(st.sampled_from([0o00, 0o04, 0o10, 0o14]), st.integers(1, 2)),
    st.sampled_from([1, 1, 2]),
)


def compare(one: Small, order: str, modes: Sequence[str] = MODES) -> int:
    """Hold what searches say against brute force; how many places never wait."""
    naive, told = one.naive(order, _STATES), 0
    if not naive.complete or naive.deadlocks or naive.errors:
        return 0
    true = by_brute_force(one, order, naive)
    for mode in modes:
        reach = searched(one, order, mode)
        if reach is not None:
            assert set(reach.never_waited) <= set(true.never_waited), mode
            assert reach.never_reached == true.never_reached, mode
            told += len(reach.never_waited)
    drawn = sample(one.trial(order, None), schedules=12)
    if drawn.violation is None:
        waited = {place.site for place in drawn.reach.places if place.reached and place.may_wait}
        assert not waited & {place.site for place in true.never_waited}
        assert {place.site for place in true.never_reached} <= {place.site for place in drawn.reach.never_reached}
    return told


@settings(deadline=None)
@given(one=CONFIGURATIONS, order=st.sampled_from(ORDERS))
def test_brute_force_never_waits_there(one: Small, order: str) -> None:
    """What a search calls granted at once is so in every state of the machine, and it reaches what the machine does."""
    compare(one, order)


@pytest.mark.slow
@settings(deadline=None, max_examples=1_000)
@given(one=CONFIGURATIONS, order=st.sampled_from(ORDERS))
def test_brute_force_never_waits_there_in_many_programs(one: Small, order: str) -> None:
    """The same of more programs."""
    compare(one, order)


@kernel
def once(flag, times):
    """Wait first thing, if at all; the return that follows stands at no line."""
    for _ in range(times):
        yield poll_ge(flag, 0, sync="first line")


@protocol
def first_line(bench: Bench, times: int = 1) -> None:
    """One core that waits for nothing."""
    pod = bench.pod(small_pod(1, app_bytes=64, meta_bytes=64, managed_bytes=0))
    pod.launch(once, 0, [0], {"flag": pod.meta(0), "times": times}, [pod.grant_meta("rw", 0)])


@pytest.mark.parametrize("policy", ["exhaustive", "portfolio"])
def test_a_return_is_no_place(policy: str) -> None:
    """The first request of a kernel is not taken to be reached, or waited at, because the kernel returns."""
    reach = check(first_line(), policy=policy, schedules=5, certify=0.1).reach
    assert [place.site.sync for place in reach.never_waited] == ["first line"]
    assert reach.idle("first line")
    assert reach.to_json()["never_waited"][0]["operation"] == "poll_ge"
    none = check(first_line(times=0), policy=policy, schedules=5)
    assert none.to_json()["reach"]["never_reached"][0]["sync"] == "first line"
    assert none.reach.unreached() == ("first line",)


@pytest.mark.parametrize(("chunks", "once"), [(2, ("ring",)), (3, ())])
@pytest.mark.parametrize("order", ["relaxed", "sc"])
def test_a_ring_that_nobody_goes_round_was_used_once(order: str, chunks: int, once: tuple[str, ...]) -> None:
    """Two chunks in two slots: no slot was used twice.  The third one comes to the first slot again."""
    reach = check(make("sendrecv", slots=2, chunks=chunks, granules=1), order=order).reach
    assert reach.used_once == once
    assert reach.far_from_wrap == ()


@kernel
def rings(bell, once, times, start):
    """Count a bell of 4 bytes up from ``start``, or write there that it rings."""
    for i in range(times):
        yield store(bell, 1 if once else start + i + 1, 4, sync="bell")


@kernel
def hears(bell, once, times, start):
    """Wait until it was rung as often."""
    yield poll_ge(bell, 1 if once else start + times, 4, sync="bell rang")


@protocol
def bell(bench: Bench, once: int = 0, times: int = 2, start: int = 0) -> None:
    """Die 0 rings a bell on die 1."""
    regions = Regions(2)
    rung = regions.meta("bell")
    pod = bench.pod(regions.tight_pod(app_bytes=64, ub_bytes=64))
    regions.place(bench, pod)
    bench.fill(rung.at(1), np.array([start], np.int32))
    given = {"bell": rung.at(1), "once": once, "times": times, "start": start}
    pod.launch(rings, 0, [0], given, [rung.grant(1, "w")])
    pod.launch(hears, 1, [0], given, [rung.grant(1, "r")])


@pytest.mark.parametrize(
    ("sizes", "far"),
    [({}, ("bell",)), ({"start": 2**31 - 10}, ()), ({"start": -10}, ()), ({"start": 2**30}, ("bell",)),
     ({"once": 1}, ()), ({"times": 1}, ())],
)  # fmt: skip
def test_counters_of_4_bytes_may_be_far_from_their_wrap(sizes: dict[str, int], far: tuple[str, ...]) -> None:
    """One that counts from 0 is, one near 2^31 or 2^32 is not, and one that has one value counts nothing."""
    verdict = check(bell(**sizes))
    assert verdict.verdict == "verified"
    assert verdict.reach.far_from_wrap == far
    assert verdict.to_json()["reach"]["far_from_wrap"] == list(far)
    assert verdict.reach.used_once == ()


def test_memory_is_looked_at_when_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check draws no run for it; who asks twice draws once; of drawn schedules and violations nothing is said."""
    asked = list[str]()
    monkeypatch.setattr("xccl_emu.check.drawn.memory_of", lambda one, *_: asked.append(one.name) or MemoryUse(("it",)))
    verdict = check(bell())
    assert not asked
    assert verdict.reach.used_once == ("it",)
    assert verdict.reach.far_from_wrap == ()
    assert asked == ["bell"]
    assert check(bell(), policy="portfolio", schedules=3).reach.used_once == ()
    assert check(bell(start=2**31 - 2)).reach is None
    assert asked == ["bell"]


def test_runs_that_are_too_long_say_nothing_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is not over when its number of actions is used up is none to judge memory by."""
    monkeypatch.setattr("xccl_emu.check.drawn._TRIES", 5)
    assert check(bell(times=4)).reach.far_from_wrap == ()
