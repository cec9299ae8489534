"""put_signal: a write with notify, on the machine, to the judges, under faults and in virtual time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.notify import Notify
from xccl_emu.base.errors import AccessError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import NO_VIOLATION, VERIFIED, VIOLATION
from xccl_emu.check.weakest import weakest
from xccl_emu.check.witness.tracer import steps
from xccl_emu.lang import (
    MTU_IN,
    MTU_OUT,
    SIGNAL_ADD,
    SIGNAL_SET,
    fence,
    kernel,
    mtu_in,
    mtu_out,
    poll_ge,
    put,
    put_signal,
    set_flag,
    ub_store,
    wait_flag,
)
from xccl_emu.machine import Pod, small_pod
from xccl_emu.machine.pod import Grant
from xccl_emu.testing import Bench, protocol, syncs
from xccl_emu.timing.run import VirtualTime

from .support import ORDERS

NBYTES = 96
BY_SIGNAL, BY_FENCE, BY_NOTHING = range(3)
"""How the flag comes behind the data: as a signal, behind a fence, or behind nothing."""


@kernel
def send(data, inbox, nbytes, flag, how, by):
    """Copy bytes to an inbox and tell so."""
    yield mtu_in(data, 0, nbytes)
    yield set_flag(MTU_IN, MTU_OUT, 0)
    yield wait_flag(MTU_IN, MTU_OUT, 0)
    if by == 0:
        yield put_signal(0, inbox, nbytes, flag, 1, how, sync="tail")
    else:
        yield mtu_out(0, inbox, nbytes)
        if by == 1:
            yield fence()
        yield put(flag, 1)


@kernel
def receive(inbox, nbytes, flag, result):
    """Wait to be told, and copy the inbox out."""
    yield poll_ge(flag, 1, sync="tail in")
    yield mtu_in(inbox, 0, nbytes)
    yield set_flag(MTU_IN, MTU_OUT, 0)
    yield wait_flag(MTU_IN, MTU_OUT, 0)
    yield mtu_out(0, result, nbytes)


@kernel
def ask(ub, target, nbytes, signal, value, how):
    """One request."""
    yield ub_store(0, 7, 8)
    yield put_signal(ub, target, nbytes, signal, value, how)


def launched(pod: Pod, source: int, result: int, by: int, how: int, nbytes: int = NBYTES) -> None:
    """A sender on die 0 and a receiver on die 1."""
    every = [Grant(die, 0, pod.spec.die_bytes, "rw") for die in range(2)]
    to = {"inbox": pod.managed(1), "nbytes": nbytes, "flag": pod.meta(1)}
    pod.launch(send, 0, [0], {**to, "data": source, "how": how, "by": by}, every)
    pod.launch(receive, 1, [0], {**to, "result": result}, every)


@protocol
def told(bench: Bench, by: int = BY_SIGNAL, how: int = SIGNAL_SET) -> None:
    """Bytes that come to die 1, which is told of them."""
    pod = bench.pod(small_pod(2, app_bytes=128, meta_bytes=64, managed_bytes=128, ub_bytes=128))
    data = np.arange(1, NBYTES + 1).astype(np.uint8)
    source, result = bench.filled(0, data, "data"), bench.wanted(1, data, "result", owners=(1, 0))
    bench.tolerates("stop", "cut", "stall")
    launched(pod, source.address, result.address, by, how)


@pytest.mark.nojit
@settings(max_examples=25)
@given(
    st.sampled_from(ORDERS), st.integers(1, 200), st.sampled_from([4, 8, 32, 64, 128]), st.integers(0, 99),
    st.sampled_from([SIGNAL_SET, SIGNAL_ADD]),
)  # fmt: skip
def test_who_sees_the_signal_has_the_bytes(order: str, nbytes: int, atomic: int, seed: int, how: int) -> None:
    """Who sees a signal has the bytes: any size, in units of any size, under every order, drawn at random."""
    spec = small_pod(2, app_bytes=256, meta_bytes=128, managed_bytes=256, ub_bytes=256, atomic_bytes=atomic)
    pod = Pod(spec, order=order, policy="random", seed=seed)
    data = np.random.default_rng(seed).integers(1, 256, nbytes).astype(np.uint8)
    source, result = pod.put(0, data), pod.alloc(1, nbytes)
    launched(pod, source.address, result.address, BY_SIGNAL, how, nbytes)
    pod.run()
    assert (pod.memory[result.address : result.address + nbytes] == data).all()


REFUSED = {
    "no bytes": ((0, 0, 0, 64, 1, SIGNAL_SET), "size"),
    "behind the buffer": ((60, 0, 8, 64, 1, SIGNAL_SET), "data buffer"),
    "not aligned": ((0, 0, 8, 68, 1, SIGNAL_SET), "must be a multiple of 8"),
    "no such how": ((0, 0, 8, 64, 1, 3), "how=3: a signal sets"),
    "a word in the managed area": ((0, 0, 8, 128, 1, SIGNAL_SET), "must be a word of the meta"),
    "a word of another die": ((0, 256, 8, 64, 1, SIGNAL_ADD), "must be a word of the meta"),
    "in what is copied": ((0, 64, 8, 64, 1, SIGNAL_SET), "must be a word of the meta"),
    "outside of all grants": ((0, 0, 8, 512 + 64, 1, SIGNAL_SET), "not permitted"),
}


@pytest.mark.nojit
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, order: str) -> None:
    """A signal that is not a word of the target's metadata area, or is part of what is copied, ends the run, and memory
    is as it was."""
    operands, reason = REFUSED[name]
    pod = Pod(small_pod(2, app_bytes=64, meta_bytes=64, managed_bytes=128, ub_bytes=64), order=order)
    assert (pod.spec.die_bytes, pod.meta(0), pod.managed(0)) == (256, 64, 128)
    args = dict(zip(("ub", "target", "nbytes", "signal", "value", "how"), operands, strict=True))
    pod.launch(ask, 0, [0], args, [Grant(die, 0, 256, "rw") for die in range(2)])
    with pytest.raises(AccessError, match=reason):
        pod.run()
    assert not pod.memory[:512].any()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("how", [SIGNAL_SET, SIGNAL_ADD])
def test_a_signal_takes_the_place_of_a_fence(order: str, how: int) -> None:
    """With it, or with a fence, all is verified in every order, by brute force too; with neither only where writes keep
    their order. Without its name the request is not made at all, and the receiver waits."""
    verdict = check(told(how=how), order=order, certify=1.0)
    assert (verdict.verdict, verdict.certificate.disagreement) == (VERIFIED, "")
    assert check(told(how=how), order=order, policy="random", schedules=100).verdict == NO_VIOLATION
    assert check(told(by=BY_FENCE), order=order).verdict == VERIFIED
    kept = order in ("sc", "fifo")
    assert check(told(by=BY_NOTHING), order=order).verdict == (VERIFIED if kept else VIOLATION)
    for off in ("tail", "tail in"):
        assert check(told(how=how), order=order, without=off).verdict == VIOLATION


def test_it_needs_no_order() -> None:
    """A signalling request may ask for no order, as may the writes that it needs, and is verified."""
    found = {one.site.operation: one.weakest for one in weakest(told(), max_states=10_000)}
    assert found == {"put_signal": "no-order", "mtu_out": "no-order", "put": "no-order"}


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["stop:die0", "cut:0-1", "stall:0-1"])
def test_what_breaks_keeps_the_signal_back(fault: str) -> None:
    """A die that stops, a link that is cut or stalls keeps bytes and signal back, never the bytes alone."""
    verdict = check(told(), order="relaxed", fault=fault, policy="exhaustive")
    assert verdict.verdict == VERIFIED


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["duplicate:0-1", "corrupt:0-1"])
def test_what_comes_twice_or_wrong(fault: str) -> None:
    """Bytes or a signal that come twice do no harm here, where nothing is used again; a bit that flips does."""
    verdict = check(told(), order="relaxed", fault=fault, schedules=300)
    assert verdict.verdict == (NO_VIOLATION if fault.startswith("dup") else VIOLATION)


@pytest.mark.parametrize("order", ORDERS)
def test_a_story_tells_of_the_signal(order: str) -> None:
    """A run that is told step by step has the bytes and the signal as steps of their own."""
    trial = told(how=SIGNAL_ADD).build(order)
    trial.pod.record = True
    trial.pod.run()
    again = steps(told(how=SIGNAL_ADD).build(order), trial.pod.schedule.actions.tolist())
    actions = [step.action for step in again.steps]
    assert actions.index("put_signal 96 B") < actions.index("signal, adds")


def _latency_us(by: int, nbytes: int) -> float:
    """Return the time of a whole run in virtual time."""
    policy = VirtualTime()
    pod = Pod(small_pod(2, app_bytes=4096, meta_bytes=64, managed_bytes=4096, ub_bytes=4096), policy=policy)
    data = np.arange(nbytes).astype(np.uint8)
    source, result = pod.put(0, data), pod.alloc(1, nbytes)
    launched(pod, source.address, result.address, by, SIGNAL_SET, nbytes)
    pod.run()
    assert (pod.memory[result.address : result.address + nbytes] == data).all()
    return policy.timing.latency_us


@pytest.mark.parametrize("nbytes", [64, 4096])
def test_in_virtual_time_a_signal_saves_the_start_of_a_second_request(nbytes: int) -> None:
    """It comes behind its bytes, and earlier than a flag behind a fence, which starts anew."""
    by_signal, by_fence = _latency_us(BY_SIGNAL, nbytes), _latency_us(BY_FENCE, nbytes)
    assert 0 < by_fence - by_signal < 0.2


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("by", ["signal", "fence"])
def test_a_ring_whose_tails_are_signals(order: str, by: str) -> None:
    """The example is verified in every order, with slots that are used again, and so it is behind fences."""
    for chunks, slots in ((3, 2), (3, 1)):
        assert check(Notify(by=by, chunks=chunks, slots=slots), order=order).verdict == VERIFIED


def test_what_the_ring_needs() -> None:
    """Each synchronization of it is needed, and no order of its requests is."""
    case = Notify()
    assert {name: check(case, without=[name]).verdict for name in syncs(case)} == dict.fromkeys(syncs(case), VIOLATION)
    assert {one.weakest for one in weakest(case, max_states=10_000)} == {"no-order"}
