"""How a run that goes wrong ends: the error, what it says, and what the pod is worth afterwards."""

import re

import pytest

from xccl_emu.base.errors import ConfigError, DeadlockError, KernelArithmeticError, ProtocolError, RunError
from xccl_emu.lang import (
    atomic_add,
    dma,
    fail,
    kernel,
    load,
    mtu_in,
    poll_eq,
    poll_ne,
    quiet,
    set_flag,
    store,
    wait_flag,
)
from xccl_emu.lang.requests import DMA, MTU_IN, MTU_OUT, OP_LOAD, SCALAR
from xccl_emu.machine.explore import explore
from xccl_emu.machine.pod import POLICIES, Pod
from xccl_emu.machine.spec import small_pod

from .kernels import BROKEN, broken, finish_early, launch_ring, ring, wait_for
from .support import issue_on, tiny_pod


def test_a_deadlock_report_says_who_waits_for_what() -> None:
    """It names core, kernel, line, step, address by area, the value seen, the one wanted, and the last writer."""
    pod = tiny_pod(2)
    pod.launch(broken, 0, [0], {"flag": pod.meta(1), "how": 0}, [pod.grant_meta("rw")])
    pod.launch(wait_for, 1, [0], {"flag": pod.meta(1, 64), "value": 5}, [pod.grant_meta("r")])
    with pytest.raises(DeadlockError) as caught:
        pod.run()
    text = str(caught.value)
    code = broken.generator.__code__
    file, line = code.co_filename, code.co_firstlineno
    assert "2 of 2 cores are blocked" in text
    assert f"die 0 core 0, kernel broken ({file}:{line + 6}, step 4) `yield poll_eq(flag + 32, 8, " in text
    assert f"polls die1.meta+0x20 (address {pod.meta(1, 32):#x}): saw 7, wants == 8;" in text
    assert "last written by die 0 core 0" in text
    assert "die 1 core 0, kernel wait_for" in text
    assert "saw 0, wants == 5; no write there is visible" in text


def test_a_report_does_not_take_a_writer_of_an_earlier_run_for_one_of_this() -> None:
    """What an earlier run wrote is not blamed on a line of the kernel that runs now."""
    pod = tiny_pod(1)
    pod.launch(ring, 0, [0], dict.fromkeys(("mine", "right"), pod.meta(0, 64)) | dict.fromkeys(
        ("left_flag", "right_flag"), pod.meta(0)) | {"rounds": 1}, [pod.grant_meta("rw")])
    pod.run()
    pod.launch(wait_for, 0, [0], {"flag": pod.meta(0), "value": 5}, [pod.grant_meta("r")])
    with pytest.raises(DeadlockError, match="saw 1, wants == 5; no write there is visible"):
        pod.run()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_failed_pod_wants_clear_and_then_works_again(policy: str) -> None:
    """After a failure every launch and run is refused until clear(), which drops what was queued and in flight."""
    pod = tiny_pod(1, "relaxed", policy=policy)
    for how, error in BROKEN.items():
        pod.launch(broken, 0, [0], {"flag": pod.meta(0), "how": how}, [pod.grant_meta("rw")])
        with pytest.raises(error):
            pod.run()
        for refused in (pod.run, lambda: issue_on(pod, OP_LOAD, pod.meta(0), 8)):
            with pytest.raises(ConfigError, match="call clear"):
                refused()
        pod.clear()
        assert issue_on(pod, OP_LOAD, pod.meta(0, 32), 8) == 7
    assert not pod.state[pod.core_base(0) : pod.core_base(0) + 512].any()


def test_a_return_drains_even_when_the_first_synchronization_is_switched_off() -> None:
    """Whatever is switched off, a kernel has returned only when its writes are visible."""
    for seed in range(20):
        pod = tiny_pod(1, "relaxed", policy="random", seed=seed, without=["first"])
        pod.launch(finish_early, 0, [0], {"flag": pod.meta(0)}, [pod.grant_meta("rw")])
        pod.run()
        assert pod.memory[pod.meta(0)] == 9


@pytest.mark.nojit
def test_switching_off_a_synchronization_by_name() -> None:
    """Without the wait for arrival the ring does not wait for what nobody will ever write."""
    stuck = Pod(small_pod(1), without=["arrival"])
    stuck.launch(ring, 0, [0], dict.fromkeys(("mine", "right"), stuck.meta(0, 64)) | {
        "left_flag": stuck.meta(0, 1024), "right_flag": stuck.meta(0), "rounds": 1}, [stuck.grant_meta("rw")])
    stuck.run()  # with it, nobody would raise the flag at 1024


def test_a_name_that_no_kernel_has_cannot_be_switched_off() -> None:
    """A misspelt name is refused, with the known ones, and one of a later kernel can be given before that one runs."""
    pod = Pod(small_pod(3), without=["arival"])
    launch_ring(pod)
    with pytest.raises(ConfigError, match=r"without=\['arival'\]: no kernel .* they have \['arrival', 'publish'\]"):
        pod.run()
    with pytest.raises(ConfigError, match="arival"):
        explore(pod)
    pod.without = ["arrival"]
    pod.run()
    pod.without = ["arrival", "first"]
    pod.launch(finish_early, 0, [0], {"flag": pod.meta(0, 512)}, [pod.grant_meta("rw")])
    pod.run()
    assert pod.memory[pod.meta(0, 512)] == 9
    with pytest.raises(ConfigError, match="must be a list of names"):
        pod.without = "first"


@kernel
def seen_by_poll_ne(flag):
    """Wait until a word is no longer 7."""
    seen = yield poll_ne(flag, 7, sync="change")
    return seen


@pytest.mark.parametrize("there", [7, 9])
def test_a_poll_that_is_switched_off_returns_the_word_that_is_there(there: int) -> None:
    """Switched off, a poll waits for nothing and returns what a load would, whatever it is compared with."""
    pod = tiny_pod(1, without=["change"])
    pod.memory[pod.meta(0)] = there
    launch = pod.launch(seen_by_poll_ne, 0, [0], {"flag": pod.meta(0)}, [pod.grant_meta("r")])
    pod.run()
    assert launch.results == [there]


def test_polls_move_no_bytes_and_blocked_requests_are_counted_once() -> None:
    """Scalar bytes are what loads, stores and atomics moved, of their true size, however often they had to wait."""
    pod = Pod(small_pod(2, flight_granules=1), order="fifo", policy="random")
    pod.launch(many_sizes, 0, [0], {"place": pod.meta(1)}, [pod.grant_meta("rw")])
    stats = pod.run()
    assert stats.bytes_by_pipe["scalar"] == 4 * (4 + 8) + 4 + 8


@kernel
def many_sizes(place):
    """Four stores of each size, more than fit into flight, a poll, an atomic that waits for them, a load."""
    for i in range(4):
        yield store(place + 64 + 8 * i, 1, 4)
        yield store(place + 128 + 8 * i, 1)
    yield atomic_add(place, 1)
    yield poll_eq(place, 1)
    yield load(place, 4)


@kernel
def leaves_event(pipe):
    """Set event 7 for mtu-out and never wait for it."""
    yield set_flag(pipe, MTU_OUT, 7)


@pytest.mark.nojit
@pytest.mark.parametrize("policy", POLICIES)
def test_an_event_that_is_left_is_a_violation(policy: str) -> None:
    """A kernel that returns with an event still set ends the run, naming core, kernel and event; clear() drops it."""
    pod = tiny_pod(2, policy=policy, record=True)
    pod.launch(leaves_event, 1, [0], {"pipe": MTU_IN}, [])
    found = explore(pod)
    text = "die 1 core 0, kernel leaves_event at its end: event 7 from mtu-in to mtu-out is still set"
    assert not found.outcomes
    assert len(found.errors) == 1
    assert text in next(iter(found.errors))
    with pytest.raises(RunError, match=text):
        pod.run()
    again = tiny_pod(2)
    again.launch(leaves_event, 1, [0], {"pipe": MTU_IN}, [])
    with pytest.raises(RunError, match=text):
        again.replay(pod.schedule)
    pod.clear()
    pod.launch(finish_early, 1, [0], {"flag": pod.meta(1)}, [pod.grant_meta("rw")])
    pod.memory[pod.meta(1)] = 1
    pod.run()


def test_a_large_write_is_not_blamed_on_an_older_one() -> None:
    """Under `sc` up to 256 bytes are noted granule by granule; behind a larger copy the last writer is not known."""
    for nbytes, said in ((256, "last written by .*dma"), (288, "last writer not known")):
        pod = Pod(small_pod(2))
        flag = pod.meta(1, 224)
        args = {"flag": flag, "source": pod.meta(0), "target": pod.meta(1), "nbytes": nbytes}
        pod.launch(store_then_copy, 0, [0], args, [pod.grant_meta("rw")])
        with pytest.raises(DeadlockError, match=said):
            pod.run()
        pod.clear()
        pod.launch(store_then_copy, 0, [0], args | {"nbytes": -nbytes}, [pod.grant_meta("rw")])
        with pytest.raises(DeadlockError, match=r"last written by .*store"):  # the store is the younger one
            pod.run()


@kernel
def store_then_copy(flag, source, target, nbytes):
    """Write a word and copy over it, or, if ``nbytes`` is negative, the other way round; then wait for ever."""
    if nbytes > 0:
        yield store(flag, 5)
        yield quiet()
        yield dma(source, target, nbytes, 0)
    else:
        yield dma(source, target, -nbytes, 0)
        yield quiet()
        yield store(flag, 5)
    yield wait_flag(DMA, SCALAR, 0)
    yield poll_eq(flag, 77)


def test_a_deadlock_report_lists_every_core() -> None:
    """However many cores are blocked, each has its line."""
    pod = Pod(small_pod(5, 10))
    for die in range(5):
        pod.launch(wait_for, die, range(10), {"flag": pod.meta(die), "value": 1}, [pod.grant_meta("r")])
    with pytest.raises(DeadlockError) as caught:
        pod.run()
    for core in range(50):
        assert f"die {core // 10} core {core % 10}, kernel wait_for" in str(caught.value)


def test_nothing_becomes_visible_behind_a_violation() -> None:
    """When a write completes a DMA whose event is still set, what is in flight behind it stays there."""
    pod = Pod(small_pod(1), order="relaxed")
    pod.memory[pod.meta(0, 512) :][:32] = 3
    args = {"source": pod.meta(0, 512), "target": pod.meta(0), "nbytes": 32}
    pod.launch(two_copies_and_store, 0, [0], args, [pod.grant_meta("rw")])
    with pytest.raises(RunError, match=r"event 3 from dma to scalar is set while it is still set"):
        pod.run()
    assert pod.memory[pod.meta(0, 64)] == 3
    assert pod.memory[pod.meta(0, 128)] == 0


@kernel
def two_copies_and_store(source, target, nbytes):
    """Two DMA copies with one event, and a write that is in flight behind them."""
    yield dma(source, target, nbytes, 3)
    yield dma(source, target + 64, nbytes, 3)
    yield mtu_in(source, 0, nbytes)  # so that the copies take off first
    yield set_flag(MTU_IN, SCALAR, 0)
    yield wait_flag(MTU_IN, SCALAR, 0)
    yield store(target + 128, 1)
    yield poll_eq(source, 1)


@kernel
def shifts(by):
    """Shift by a number that the caller chose."""
    yield fail(1 << by)


@kernel
def overflows(value):
    """Make a number of more than 64 bits: of 3 << 21, 27 << 63."""
    yield fail(value * value * value)


@kernel
def divides(by):
    """Divide by a number that the caller chose."""
    yield fail(1 // by)


@pytest.mark.nojit
def test_arithmetic_that_fails_names_the_kernel() -> None:
    """A division by zero and a negative shift are told with core, kernel and line, compiled or not, by a run and by who
    explores all of them; a number that is too large wraps."""
    for bad, value in ((divides, 0), (shifts, -1), (shifts, 64)):
        told = rf"die 0 core 0, kernel {bad.name} \({re.escape(__file__)}:\d+\) `yield .*`: arithmetic failed: a "
        pod = tiny_pod(1)
        pod.launch(bad, 0, [0], dict.fromkeys(bad.params, value), [])
        (error,) = explore(pod).errors
        assert re.match(told, error)
        with pytest.raises(KernelArithmeticError, match=told):
            pod.run()
    pod = tiny_pod(1)
    pod.launch(overflows, 0, [0], {"value": 3 << 21}, [])
    with pytest.raises(ProtocolError) as caught:
        pod.run()
    assert caught.value.code == -(2**63)
