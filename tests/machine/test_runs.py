"""Launches, policies, schedules, snapshots and reports of a pod."""

import resource
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.errors import (
    AccessError,
    CapacityError,
    ConfigError,
    DeadlockError,
    KernelError,
    ProtocolError,
    ReplayError,
    RunError,
    XcclEmuError,
)
from xccl_emu.lang import (
    add,
    atomic_add,
    dma,
    fail,
    fence,
    kernel,
    load,
    mtu_in,
    mtu_out,
    poll_eq,
    poll_ge,
    poll_ne,
    set_flag,
    store,
    ub_load,
    ub_store,
    wait_flag,
)
from xccl_emu.lang.kernel import Kernel
from xccl_emu.lang.requests import DMA, MTU_IN, MTU_OUT, OP_LOAD, SCALAR, VECTOR
from xccl_emu.machine.explore import explore
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.schedule import Schedule
from xccl_emu.machine.spec import CLOUDMATRIX384, PodSpec, small_pod

from .support import ORDERS, issue, issue_args, issue_on, tiny_pod

POLICIES = ("round-robin", "random")


@kernel
def ring(mine, right, left_flag, right_flag, rounds):
    """Pass a block of 64 bytes to the right neighbour in each round, adding 1 to its first word."""
    for i in range(rounds):
        yield mtu_in(mine, 0, 64)
        yield set_flag(MTU_IN, SCALAR, 0)
        yield wait_flag(MTU_IN, SCALAR, 0)
        word = yield ub_load(0, 8)
        yield ub_store(0, word + 1, 8)
        yield mtu_out(0, right + 64 * (i & 1), 64)
        yield fence(sync="publish")
        yield store(right_flag, i + 1)
        yield poll_ge(left_flag, i + 1, step=3, sync="arrival")
        mine = right - right + mine
    return rounds


@kernel
def broken(flag, how):
    """End in a deadlock (0), a bad address (1), a protocol error (2) or an event set twice by a pipe (3)."""
    yield store(flag + 32, 7)
    yield fence()
    if how == 0:
        yield poll_eq(flag + 32, 8, step=4)
    elif how == 1:
        yield mtu_in(-64, 0, 32)
    elif how == 2:
        yield fail(17, 4)
    else:
        yield set_flag(VECTOR, MTU_OUT, 1)
        yield set_flag(VECTOR, MTU_OUT, 1)
        yield poll_eq(flag, 1)


@kernel
def finish_early(flag):
    """Work whose first request can be switched off by name."""
    yield poll_eq(flag, 1, sync="first")
    yield store(flag, 9)


@kernel
def wait_for(flag, value):
    """Wait for a value that nobody may ever write."""
    yield poll_eq(flag, value)


@kernel
def copy_far(source, target, nbytes):
    """Copy by DMA, then add 1 to a word behind the copy."""
    yield dma(source, target, nbytes, 0)
    yield wait_flag(DMA, SCALAR, 0)
    yield add(target + nbytes, 1)


BROKEN: dict[int, type[RunError]] = {0: DeadlockError, 1: AccessError, 2: ProtocolError, 3: RunError}


def ring_pod(dies: int, order: str, policy: str, seed: int = 0, record: bool = False, rounds: int = 3) -> Pod:
    """A pod with the ring launched."""
    pod = Pod(small_pod(dies), order=order, policy=policy, seed=seed, record=record)
    launch_ring(pod, rounds)
    return pod


def launch_ring(pod: Pod, rounds: int = 3) -> None:
    """Launch the ring on every die."""
    dies = pod.spec.n_dies
    for die in range(dies):
        right = (die + 1) % dies
        pod.memory[pod.meta(die, 512)] = die
        args = {
            "mine": pod.meta(die, 512),
            "right": pod.meta(right, 64),
            "left_flag": pod.meta(die),
            "right_flag": pod.meta(right),
            "rounds": rounds,
        }
        pod.launch(ring, die, [0], args, [pod.grant_meta("rw")])


# ---- policies


@settings(max_examples=30)
@given(st.integers(1, 5), st.sampled_from(ORDERS), st.integers(0, 2**63))
def test_every_policy_order_and_seed_leaves_the_same_bytes(dies: int, order: str, seed: int) -> None:
    """A correct protocol ends with the same digest however it is scheduled."""
    expected = ring_pod(dies, "sc", "round-robin")
    expected.run()
    for policy in POLICIES:
        pod = ring_pod(dies, order, policy, seed)
        pod.run()
        assert pod.digest() == expected.digest()


@pytest.mark.nojit
@pytest.mark.parametrize("policy", POLICIES)
def test_a_seed_determines_the_run(policy: str) -> None:
    """The same seed gives the same schedule; for the random policy another seed gives another one."""
    pods = [ring_pod(3, "relaxed", policy, seed, record=True) for seed in (5, 5, 6)]
    for pod in pods:
        pod.run()
    one, same, other = (pod.schedule.pairs() for pod in pods)
    assert one == same
    assert (one != other) == (policy == "random")


def test_progress_and_statistics() -> None:
    """A run reports what it did: actions, granted requests by name, bytes by pipe, and progress on the way."""
    seen: list[int] = []
    pod = ring_pod(2, "relaxed", "round-robin")
    stats = pod.run(progress=seen.append)
    assert seen[-1] == stats.actions > 0
    assert stats.instructions["mtu_in"] == stats.instructions["mtu_out"] == 6
    assert stats.instructions["return"] == 2
    assert stats.bytes_by_pipe == {"scalar": 6 * 8, "mtu-in": 6 * 64, "mtu-out": 6 * 64, "dma": 0}
    assert stats.vector_elements == 0
    assert pod.active_cores() == []


def test_a_run_without_launches_is_over_at_once() -> None:
    """Nothing launched: nothing happens, in both policies."""
    for policy in POLICIES:
        assert tiny_pod(1, policy=policy).run().actions == 0


# ---- schedules


@pytest.mark.nojit
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_schedule_replays_to_the_same_bytes(order: str, policy: str, tmp_path: Path) -> None:
    """Recorded, saved, loaded and replayed on a new pod, a run takes the same actions to the same digest."""
    pod = ring_pod(3, order, policy, seed=11, record=True)
    actions = pod.run().actions
    pod.schedule.save(tmp_path / "run.npz")
    again = ring_pod(3, order, "round-robin")
    assert again.replay(Schedule.load(tmp_path / "run.npz")).actions == actions == len(pod.schedule)
    assert again.digest() == pod.digest()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("how", BROKEN)
def test_a_schedule_that_ends_badly_replays_to_the_same_end(how: int, policy: str) -> None:
    """A run that ends in a deadlock or a violation is recorded too, and its replay ends with the same message."""
    pod = tiny_pod(1, "relaxed", policy=policy, seed=3, record=True)
    args = {"flag": pod.meta(0), "how": how}
    pod.launch(broken, 0, [0], args, [pod.grant_meta("rw")])
    with pytest.raises(BROKEN[how]) as first:
        pod.run()
    digest = pod.digest()
    again = tiny_pod(1, "relaxed")
    again.launch(broken, 0, [0], args, [again.grant_meta("rw")])
    with pytest.raises(BROKEN[how]) as second:
        again.replay(pod.schedule)
    assert str(first.value) == str(second.value)
    assert again.digest() == digest


def test_a_schedule_that_does_not_fit_is_refused() -> None:
    """A schedule of other launches, one cut short, and one with an impossible action are ReplayErrors."""
    pod = ring_pod(2, "relaxed", "random", record=True)
    pod.run()
    schedule = pod.schedule
    with pytest.raises(ReplayError, match="another pod"):
        ring_pod(3, "relaxed", "random").replay(schedule)
    with pytest.raises(ReplayError, match="another pod"):
        ring_pod(2, "relaxed", "random", rounds=4).replay(schedule)
    for actions in (schedule.actions[:-1], schedule.actions[:0], schedule.actions[::-1], schedule.actions * 0 - 1):
        with pytest.raises(ReplayError, match=r"does not fit|ends before the run"):
            ring_pod(2, "relaxed", "random").replay(Schedule(np.ascontiguousarray(actions), schedule.fingerprint))


@settings(max_examples=60)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30), st.integers(0, 200))
def test_any_actions_are_taken_or_refused(garbage: list[int], keep: int) -> None:
    """A schedule of arbitrary numbers behind a valid beginning never crashes: it fits or is a ReplayError."""
    pod = ring_pod(2, "relaxed", "random", record=True)
    pod.run()
    actions = np.concatenate([pod.schedule.actions[:keep], np.array(garbage, np.int64)])
    again = ring_pod(2, "relaxed", "random")
    try:
        again.replay(Schedule(actions, pod.schedule.fingerprint))
    except ReplayError:
        again.clear()
    else:
        assert again.digest() == pod.digest()


@given(st.data())
def test_damaged_schedule_files_are_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """A file cut short or with a byte changed loads as what was saved or is a ReplayError, nothing else."""
    path = tmp_path_factory.mktemp("schedules") / "s.npz"
    saved = Schedule(np.arange(50, dtype=np.int64), "abc")
    saved.save(path)
    raw = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
    else:
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(raw)
    try:
        loaded = Schedule.load(path)
    except ReplayError:
        return
    assert (loaded.actions == saved.actions).all()
    assert loaded.fingerprint == "abc"


def test_other_files_are_no_schedules(tmp_path: Path) -> None:
    """A missing file, a text and an array of another kind are ReplayErrors."""
    (tmp_path / "text").write_text("not a schedule")
    np.savez(tmp_path / "other.npz", header=np.array("{}"), actions=np.zeros(3))
    np.save(tmp_path / "plain.npy", np.zeros(3))
    for name in ("missing", "text", "other.npz", "plain.npy"):
        with pytest.raises(ReplayError, match="schedule file"):
            Schedule.load(tmp_path / name)


def test_a_schedule_knows_the_names_of_synchronizations() -> None:
    """A kernel that differs in the name of a synchronization alone is another kernel for a replay."""
    pods = [tiny_pod(1), tiny_pod(1)]
    kernels = [Kernel(wait_for.generator), Kernel(wait_for.generator)]
    kernels[1]._result = replace(wait_for._result, sites=tuple(replace(s, sync="x") for s in wait_for.sites))
    for pod, one in zip(pods, kernels, strict=True):
        _launch(pod, kernel=one, cores=[0])
    assert pods[0].fingerprint() != pods[1].fingerprint()


def test_no_schedule_without_recording() -> None:
    """Asking for a schedule that was not recorded says how to record one."""
    with pytest.raises(ConfigError, match="record=True"):
        _ = tiny_pod(1).schedule


# ---- the pod as a value


def test_a_snapshot_brings_everything_back() -> None:
    """After a restore memory is as at the snapshot, and the same run from there has the same result."""
    pod = ring_pod(3, "relaxed", "random", seed=4)
    pod.run()
    before, saved = pod.digest(), pod.snapshot()
    launch_ring(pod, 2)
    pod.run()
    first = pod.digest()
    assert first != before
    pod.restore(saved)
    assert pod.digest() == before
    launch_ring(pod, 2)
    pod.run()
    assert pod.digest() == first


def test_snapshots_of_other_or_large_pods_are_refused() -> None:
    """A snapshot fits only a pod that is made and switched alike, and only small pods have one."""
    renamed = Pod(tiny_pod(2).spec.with_(name="b"))
    for other in (tiny_pod(1), tiny_pod(2, "relaxed"), tiny_pod(2, without=["a"]), renamed):
        with pytest.raises(ConfigError, match="taken of another pod"):
            tiny_pod(2).restore(other.snapshot())
    tiny_pod(2, policy="random").restore(tiny_pod(2).snapshot())
    large = Pod(CLOUDMATRIX384)
    for take in (large.snapshot, large.digest):
        with pytest.raises(CapacityError, match="take a smaller one"):
            take()


def test_digest_sees_every_byte_of_every_die() -> None:
    """One changed byte changes the digest; a data buffer is no part of it."""
    pod = tiny_pod(2)
    empty = pod.digest()
    for address in (0, pod.spec.die_bytes - 1, pod.spec.die_bytes, 2 * pod.spec.die_bytes - 1):
        pod.memory[address] = 1
        assert pod.digest() != empty
        pod.memory[address] = 0
    pod.memory[2 * pod.spec.die_bytes] = 1
    assert pod.digest() == empty


# ---- what goes wrong


def test_a_deadlock_report_says_who_waits_for_what() -> None:
    """It names core, kernel, line, step, address by area, the value seen, the one wanted, and the last writer."""
    pod = tiny_pod(2)
    pod.launch(broken, 0, [0], {"flag": pod.meta(1), "how": 0}, [pod.grant_meta("rw")])
    pod.launch(wait_for, 1, [0], {"flag": pod.meta(1, 64), "value": 5}, [pod.grant_meta("r")])
    with pytest.raises(DeadlockError) as caught:
        pod.run()
    text = str(caught.value)
    line = broken.generator.__code__.co_firstlineno
    assert "2 of 2 cores are blocked" in text
    assert f"die 0 core 0, kernel broken ({__file__}:{line + 6}, step 4) `yield poll_eq(flag + 32, 8, " in text
    assert f"polls die1.meta+0x20 (address {pod.meta(1, 32):#x}): saw 7, wants == 8;" in text
    assert "last written by die 0 core 0" in text
    assert "die 1 core 0, kernel wait_for" in text
    assert "saw 0, wants == 5; no write there is known" in text


def test_a_report_does_not_take_a_writer_of_an_earlier_run_for_one_of_this() -> None:
    """What an earlier run wrote is not blamed on a line of the kernel that runs now."""
    pod = tiny_pod(1)
    pod.launch(ring, 0, [0], dict.fromkeys(("mine", "right"), pod.meta(0, 64)) | dict.fromkeys(
        ("left_flag", "right_flag"), pod.meta(0)) | {"rounds": 1}, [pod.grant_meta("rw")])
    pod.run()
    pod.launch(wait_for, 0, [0], {"flag": pod.meta(0), "value": 5}, [pod.grant_meta("r")])
    with pytest.raises(DeadlockError, match="saw 1, wants == 5; no write there is known"):
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


def test_a_poll_for_a_change_that_is_switched_off_returns_another_value() -> None:
    """Switched off, a poll returns what it could have seen: for poll_ne a value that differs from the one given."""
    pod = tiny_pod(1, without=["change"])
    launch = pod.launch(seen_by_poll_ne, 0, [0], {"flag": pod.meta(0)}, [pod.grant_meta("r")])
    pod.run()
    assert launch.results == [8]


def test_polls_move_no_bytes_and_blocked_requests_are_counted_once() -> None:
    """Scalar bytes are what loads, stores and atomics moved, of their true size, however often they had to wait."""
    pod = Pod(small_pod(2, flight_pieces=1), order="fifo", policy="random")
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
    """Under `sc` up to 256 bytes are noted piece by piece; behind a larger copy the last writer is not known."""
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
        yield fence()
        yield dma(source, target, nbytes, 0)
    else:
        yield dma(source, target, -nbytes, 0)
        yield fence()
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


def test_nothing_is_delivered_behind_a_violation() -> None:
    """When a delivery completes a DMA whose event is still set, what is in flight behind it stays there."""
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
    """Make a number of more than 64 bits."""
    yield fail(value * value * value)


@kernel
def divides(by):
    """Divide by a number that the caller chose."""
    yield fail(1 // by)


@pytest.mark.nojit
def test_arithmetic_that_fails_names_the_kernel() -> None:
    """A division by zero and, in plain Python, a negative shift or a number that is too large are KernelErrors."""
    plain = bool(numba.config.DISABLE_JIT)
    cases = [(divides, 0), *(((shifts, -1), (overflows, 1 << 40)) if plain else ())]
    for bad, value in cases:
        for go in (Pod.run, explore):
            pod = tiny_pod(1)
            pod.launch(bad, 0, [0], dict.fromkeys(bad.params, value), [])
            with pytest.raises(KernelError, match=f"those that run are {bad.name}"):
                go(pod)


# ---- launch validation


def _launch(pod: Pod, **changes: object) -> None:
    call: dict[str, object] = {
        "kernel": wait_for,
        "die": 0,
        "cores": [0, 1],
        "args": {"flag": pod.meta(0), "value": 0},
        "grants": [pod.grant_meta("r")],
    }
    pod.launch(**(call | changes))  # type: ignore[arg-type]


BAD_LAUNCHES = {
    "die=2": {"die": 2},
    "die=-1": {"die": -1},
    r"cores=\[\]": {"cores": []},
    r"cores=\[0, 0\]": {"cores": [0, 0]},
    r"cores=\[2\]": {"cores": [2]},
    r"cores=\[-1\]": {"cores": [-1]},
    r"missing: \['value'\]": {"args": {"flag": 0}},
    r"unknown: \['x'\]": {"args": {"flag": 0, "value": 0, "x": 1}},
    "has 3 values for 2 cores": {"args": {"flag": 0, "value": [1, 2, 3]}},
    "value=1.5 must be a 64-bit": {"args": {"flag": 0, "value": 1.5}},
    "value=9223372036854775808 must": {"args": {"flag": 0, "value": 1 << 63}},
    "value='a' must": {"args": {"flag": 0, "value": ["a", 1]}},
    "rights='x'": {"grants": [Grant(0, 0, 8, "x")]},
    "outside of the pod": {"grants": [Grant(2, 0, 8, "r")]},
    "outside of the pod ": {"grants": [Grant(None, 0, 1 << 40, "r")]},
    "lies outside": {"grants": [Grant(0, 8, 0, "r")]},
    "a core holds at most": {"grants": [Grant(0, 0, 8, "r")] * 1000},
}


@pytest.mark.parametrize("match", BAD_LAUNCHES)
def test_bad_launches_are_refused_and_leave_nothing(match: str) -> None:
    """Each mistake is a ConfigError that names it; nothing of it stays, the cores can be launched on."""
    pod = tiny_pod(2, cores=2)
    with pytest.raises(ConfigError, match=match):
        _launch(pod, **BAD_LAUNCHES[match])
    assert pod.active_cores() == []
    _launch(pod)
    with pytest.raises(ConfigError, match="core 0 of die 0 is taken"):
        _launch(pod)
    pod.run()


def test_offsets_outside_of_an_area_are_refused() -> None:
    """Addresses are made only of offsets in the area that is asked for, or of its end."""
    pod = Pod(small_pod(2))
    areas = {pod.address: pod.spec.die_bytes, pod.meta: pod.spec.meta_bytes, pod.managed: pod.spec.managed_bytes}
    for area, nbytes in areas.items():
        assert area(1, nbytes) - area(1, 0) == nbytes
        for offset in (-1, nbytes + 1):
            with pytest.raises(ConfigError, match=f"offset={offset}: .* has {nbytes} bytes"):
                area(1, offset)


def test_arguments_for_each_core_and_results() -> None:
    """Sequences and arrays give each core its own argument, and each core's result comes back in its place."""
    pod = tiny_pod(1, cores=4)
    pod.memory[pod.meta(0) :][:32].view(np.int64)[:] = [10, 11, 12, 13]
    for cores in ([0, 1, 2, 3], [3, 1]):
        addresses = np.array([pod.meta(0, 8 * c) for c in cores])
        args = issue_args(OP_LOAD, (0, 8)) | {"a": addresses}
        launch = pod.launch(issue, 0, cores, args, [pod.grant_meta("r")])
        pod.run()
        assert launch.results == [10 + c for c in cores]


def test_more_kernels_than_a_run_may_have_over_many_runs() -> None:
    """The limit of 16 different kernels holds for a run, not for the life of a pod."""
    pod = tiny_pod(1)
    for _ in range(20):
        _launch(pod, kernel=Kernel(wait_for.generator), cores=[0])
        pod.run()


@pytest.mark.parametrize(
    "changes",
    [
        {"die_bytes": 3000},
        {"nodes": 0},
        {"ub_bytes": 33},
        {"meta_bytes": -32},
        {"managed_bytes": 1 << 40},
        {"registers": 0},
    ],
)
def test_bad_specifications_are_refused(changes: dict[str, int]) -> None:
    """A pod's sizes are checked when they are given."""
    name = next(iter(changes))
    with pytest.raises(ConfigError, match="die_bytes" if name == "managed_bytes" else name):
        small_pod(2).with_(**changes)


def test_unknown_modes_and_full_areas_are_refused() -> None:
    """Order and policy are known names, and an app area has an end."""
    with pytest.raises(ConfigError, match="order='tso': must be one of sc, fifo, relaxed"):
        Pod(small_pod(1), order="tso")
    with pytest.raises(ConfigError, match="policy='fair'"):
        Pod(small_pod(1), policy="fair")
    pod = Pod(small_pod(1))
    mark = pod.mark_app()
    pod.alloc(0, pod.spec.app_bytes)
    with pytest.raises(CapacityError, match="has 0 left"):
        pod.alloc(0, 1)
    pod.release_app(mark)
    assert pod.put(0, np.arange(3)).address == 0
    with pytest.raises(XcclEmuError):
        pod.alloc(1, 8)


@given(st.integers(1, 6), st.integers(1, 3), st.integers(0, 300), st.integers(0, 9), st.integers(0, 300))
def test_small_pods_have_room_for_what_was_asked(dies: int, cores: int, app: int, meta: int, managed: int) -> None:
    """Areas follow each other without gaps, fill a die, and are at least as large as asked."""
    spec = small_pod(dies, cores, app_bytes=app, meta_bytes=32 * meta, managed_bytes=32 * managed)
    assert (spec.n_dies, spec.n_cores) == (dies, dies * cores)
    assert spec.app_bytes >= app
    assert spec.managed_start == spec.meta_start + 32 * meta
    assert spec.managed_start + 32 * managed == spec.die_bytes


# ---- the pod at its true size


def test_the_whole_supernode_takes_little_memory() -> None:
    """On 768 dies of 64 GB a copy from the first die's end to the last one's commits only what it touches."""
    spec: PodSpec = CLOUDMATRIX384
    assert (spec.n_dies, spec.n_cores, spec.n_dies * spec.die_bytes) == (768, 36_864, 48 << 40)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pod = Pod(spec, order="relaxed", policy="random")
    nbytes = 1 << 20
    data = np.random.default_rng(0).integers(0, 256, nbytes // 8).astype(np.int64)
    source, target = pod.put(0, data), pod.alloc(767, nbytes + 8)
    last = spec.die_bytes - nbytes - 8
    args = {"source": source.address, "target": pod.address(767, last), "nbytes": nbytes // 8}
    pod.launch(copy_far, 0, [47], args, [pod.grant(source, "r"), Grant(767, last, spec.die_bytes, "rw")])
    pod.run()
    end = pod.address(767, last)
    assert (pod.memory[end : end + nbytes // 8] == data.view(np.uint8)[: nbytes // 8]).all()
    assert pod.memory[end + nbytes // 8 :][:8].view(np.int64)[0] == 1
    assert target.die == 767
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
