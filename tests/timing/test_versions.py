"""What a word holds when: polls and loads in time see the value that is visible then, not what memory holds already."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.lang import add, kernel, load, mtu_out, poll_eq, poll_ge, poll_ne, put, ub_store
from xccl_emu.machine.pod import Launch, Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.protocols.sendrecv.session import SendRecv
from xccl_emu.timing.costs import Costs
from xccl_emu.timing.device.granules import begin_of
from xccl_emu.timing.run import VirtualTime
from xccl_emu.timing.topologies import CLOUDMATRIX384

from .support import timed_pod

ISSUE_US, POLL_US, LOAD_US = 0.001, 0.1, 0.01
LEFT_US = 0.02 + 32 * 0.1 / 1000
"""What a field takes on the pipe from die 0 to die 3, of its node."""
LATENCY_US = 4.0


@kernel
def count_up(flag, times):
    """Write 1, 2, 3 and so on into one word."""
    for i in range(times):
        yield put(flag, i + 1)


@kernel
def add_one(flag):
    """Add to a word."""
    yield add(flag, 1)


@kernel
def poll_once(flag, how, value):
    """Wait until a word is at least, or is, or is not, a value; returns it."""
    seen = 0
    if how == 0:
        seen = yield poll_ge(flag, value, sync="flag")
    elif how == 1:
        seen = yield poll_eq(flag, value, sync="flag")
    else:
        seen = yield poll_ne(flag, value, sync="flag")
    return seen


@kernel
def look(flag):
    """Load a word that others write."""
    seen = yield load(flag, sync="flag")
    return seen


@kernel
def write_each(block, words, times):
    """Write many words, several times each."""
    for i in range(words):
        for n in range(times):
            yield put(block + i * 32, n + 1)


@kernel
def write_as_part(flag):
    """Write a word as part of a larger transfer."""
    yield ub_store(0, 7, nbytes=8)
    yield mtu_out(0, flag, 64)


def counted(times: int, start_us: float) -> tuple[Pod, VirtualTime, int]:
    """A core of die 0 that counts up in a word of die 3, whose core starts at some time; and where the word is."""
    pod, policy = timed_pod(4, start_us={3: start_us})
    flag = pod.meta(3)
    pod.launch(count_up, 0, [0], {"flag": flag, "times": times}, [pod.grant_meta("w", 3)])
    return pod, policy, flag


def reader(pod: Pod, flag: int, how: int, value: int) -> Launch:
    """A core of die 3 that polls a word."""
    args = {"flag": flag, "how": how, "value": value}
    return pod.launch(poll_once, 3, [0], args, [pod.grant_meta("r", 3)])


def arrival_us(count: int) -> float:
    """When the word of `counted` becomes ``count``: fields leave one after the other, each takes the latency."""
    return ISSUE_US + count * LEFT_US + LATENCY_US


@pytest.mark.nojit
@pytest.mark.parametrize("start_us", [0.0, 4.0])
@pytest.mark.parametrize(("how", "value", "seen"), [(0, 1, 1), (0, 3, 3), (1, 2, 2), (2, 0, 1)])
def test_a_poll_goes_on_with_the_first_write_that_suffices(start_us: float, how: int, value: int, seen: int) -> None:
    """It returns what that one wrote, as soon as that has arrived, though memory holds a later one's word by then."""
    pod, policy, flag = counted(5, start_us)
    launch = reader(pod, flag, how, value)
    pod.run()
    assert launch.results[0] == seen
    assert policy.timing.finished_us[3] == pytest.approx(arrival_us(seen) + POLL_US, abs=1e-5)


@pytest.mark.nojit
@pytest.mark.parametrize("seen", [0, 1, 2, 4, 5])
def test_a_load_sees_the_value_of_its_time(seen: int) -> None:
    """One between two arrivals takes what arrived first, and waits for nothing."""
    start_us = arrival_us(seen) + LEFT_US / 2
    pod, policy, flag = counted(5, start_us)
    launch = pod.launch(look, 3, [0], {"flag": flag}, [pod.grant_meta("r", 3)])
    pod.run()
    assert launch.results[0] == seen
    assert policy.timing.finished_us[3] == pytest.approx(start_us + ISSUE_US + LOAD_US, abs=1e-5)


@pytest.mark.nojit
@pytest.mark.parametrize(("value", "arrived_us"), [(1, 1.0 + 0.001 + 0.02 + 32 * 0.1 / 1000 + 4), (2, 6.037)])
def test_what_is_added_counts_when_it_arrives(value: int, arrived_us: float) -> None:
    """One in another node adds first and one in the same node later: the later one arrives first, and counts as 1."""
    pod, policy = timed_pod(6, start_us={0: 1.0})
    flag = pod.meta(3)
    for die in (4, 0):
        pod.launch(add_one, die, [0], {"flag": flag}, [pod.grant_meta("w", 3)])
    launch = reader(pod, flag, 0, value)
    pod.run()
    assert launch.results[0] == value
    assert policy.timing.finished_us[3] == pytest.approx(arrived_us + POLL_US, abs=1e-5)


@pytest.mark.nojit
def test_what_a_larger_transfer_writes_is_visible_at_once() -> None:
    """It has no version: a poll goes on by what memory holds, also where the word was written by itself before."""
    pod, _, flag = counted(2, 4.5)
    block = pod.grant_meta("w", 3)
    pod.launch(write_as_part, 1, [0], {"flag": flag}, [block])
    launch = reader(pod, flag, 0, 7)
    pod.run()
    assert launch.results[0] == 7


def test_versions_that_nobody_can_see_are_forgotten() -> None:
    """A word may be written more often than there is room for versions, and a poll still sees the first that it may."""
    pod, policy, flag = counted(100_000, 0.0)
    launch = reader(pod, flag, 0, 75_000)
    pod.run()
    assert launch.results[0] == 75_000
    assert policy.timing.finished_us[3] == pytest.approx(arrival_us(75_000) + POLL_US, abs=1e-5)


def test_versions_of_words_that_are_written_no_more_are_forgotten_too() -> None:
    """More words may be written than there is room for versions, if not all of the writes are on their way at once."""
    pod, policy = timed_pod(1)
    block = pod.alloc(0, 6000 * 32)
    args = {"block": block.address, "words": 6000, "times": 12}
    pod.launch(write_each, 0, [0], args, [pod.grant(block, "rw")])
    pod.run()
    assert policy.timing.latency_us > 0
    view = pod.view(block).view("int64").reshape(6000, 4)
    assert (view[:, 0] == 12).all()


PAIR = small_pod(4, 1, app_bytes=1 << 23, managed_bytes=1 << 23, meta_bytes=1 << 16, ub_bytes=1 << 17)
CHEAPER = ("issue_cycles", "load_ns", "poll_ns", "quiet_ns", "event_ns", "mtu_start_ns")


def taken_us(nbytes: int, slots: int, ack_each: bool, **costs: float) -> float:
    """Until one core has sent a payload to one core of the same node through slots of 64 KB."""
    policy = VirtualTime(CLOUDMATRIX384, replace(Costs(), **costs), data=False)
    pod = Pod(PAIR, policy=policy)
    comm = SendRecv(pod, slots=slots, slot_bytes=1 << 16, ack_each=ack_each)
    comm.transfer(pod.alloc(0, nbytes), pod.alloc(2, nbytes), event_id=1, cores=1)
    comm.run()
    return policy.timing.latency_us


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 4_000_000), st.integers(1, 10), st.booleans(), st.sampled_from(CHEAPER), st.floats(0, 1),
)  # fmt: skip
def test_neither_less_cost_nor_one_more_slot_makes_a_transfer_slower(
    nbytes: int, slots: int, ack_each: bool, name: str, factor: float
) -> None:
    """Each step of the two cores begins when those that it needs have ended, so what takes less time lets none begin
    later, and a slot more only takes a wait away; but for one thing, the memory where copies of both meet (0.1%)."""
    usual = taken_us(nbytes, slots, ack_each)
    assert taken_us(nbytes, slots, ack_each, **{name: getattr(Costs(), name) * factor}) <= 1.001 * usual
    assert taken_us(nbytes, slots + 1, ack_each) <= 1.001 * usual


@pytest.mark.parametrize("dies", [2, 8, 16, 97, 384, 768])
def test_granules_of_dies_do_not_meet(dies: int) -> None:
    """Each die has near half of its even share of the table for itself, wherever its words are: no long search."""
    slots = 1 << 21
    begins = sorted(begin_of(die, slots) for die in range(dies))
    gaps = [after - before for before, after in itertools.pairwise([*begins, begins[0] + slots])]
    assert min(gaps) > 0.44 * slots / dies
