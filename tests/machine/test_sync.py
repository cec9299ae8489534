"""Events, quiets, barriers, atomics, DMA and the order of writes, each shown over every schedule of a tiny pod."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.errors import DeadlockError, RunError
from xccl_emu.lang import (
    add,
    arrive,
    atomic_add,
    await_group,
    dma,
    kernel,
    load,
    mtu_in,
    mtu_out,
    poll_eq,
    put,
    quiet,
    set_flag,
    store,
    ub_load,
    ub_store,
    wait_flag,
)
from xccl_emu.lang.requests import DMA, MTU_IN, MTU_OUT, OP_ADD, OP_DMA, OP_MTU_OUT, OP_PUT, OP_STORE, SCALAR, VECTOR
from xccl_emu.machine.device.pipes import grain, n_grains
from xccl_emu.machine.explore import explore
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod

from .support import ORDERS, tiny_pod

DATA, FLAG, OTHER, RESULT = 0, 32, 64, 128


@kernel
def publish(data, flag, how, event_free):
    """Write 1 by one of the ways to write, quiet, raise a flag."""
    if how == OP_STORE:
        yield store(data, 1)
    elif how == OP_PUT:
        yield put(data, 1)
    elif how == OP_ADD:
        yield add(data, 1)
    elif how == OP_MTU_OUT:
        yield ub_store(0, 1, 8)
        yield mtu_out(0, data, 8)
    else:
        yield store(event_free, 1)
        yield quiet()
        yield dma(event_free, data, 8, 0)
    yield quiet(sync="quiet")
    yield store(flag, 1)
    if how == OP_DMA:
        yield wait_flag(DMA, SCALAR, 0)


@kernel
def consume(data, flag):
    """Wait for the flag, read the data."""
    yield poll_eq(flag, 1, sync="poll")
    value = yield load(data)
    return value


def _publish_consume(order: str, how: int, without: tuple[str, ...]) -> set[int]:
    """What the consumer can see."""
    pod = tiny_pod(2, order, without=without)
    data, flag, free = pod.meta(1, DATA), pod.meta(1, FLAG), pod.meta(0, OTHER)
    pod.launch(publish, 0, [0], {"data": data, "flag": flag, "how": how, "event_free": free}, [pod.grant_meta("rw")])
    pod.launch(consume, 1, [0], {"data": data, "flag": flag}, [pod.grant_meta("r")])
    found = explore(pod)
    assert found.complete
    assert not found.errors
    return {values[1] for values in found.outcomes}


WRITES = {"store": OP_STORE, "put": OP_PUT, "add": OP_ADD, "mtu_out": OP_MTU_OUT, "dma": OP_DMA}


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("order", ORDERS)
def test_a_quiet_publishes_every_kind_of_write(order: str, how: str) -> None:
    """After a quiet and a flag the reader sees what was written, by whatever instruction, in every order."""
    assert _publish_consume(order, WRITES[how], ()) == {1}


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("without", ["quiet", "poll"])
def test_without_the_quiet_or_the_poll_old_data_is_seen(how: str, without: str) -> None:
    """A named synchronization can be switched off, and under `relaxed` both are needed."""
    assert _publish_consume("relaxed", WRITES[how], (without,)) == {0, 1}


def test_fifo_keeps_a_flag_behind_data_for_the_same_die() -> None:
    """Under `fifo` a store overtakes no store to the same die, but it can overtake what mtu-out has not begun."""
    assert _publish_consume("fifo", OP_STORE, ("quiet",)) == {1}
    assert _publish_consume("sc", OP_STORE, ("quiet",)) == {1}
    assert _publish_consume("fifo", OP_PUT, ("quiet",)) == {0, 1}  # mtu-out may start after the scalar store


@kernel
def set_twice(pipe, between, address):
    """Set an event twice, consuming it in between or not, and go on with something else."""
    yield set_flag(pipe, SCALAR, 5)
    if between > 0:
        yield wait_flag(pipe, SCALAR, 5)
    yield set_flag(pipe, SCALAR, 5)
    yield load(address)
    yield load(address)
    yield wait_flag(pipe, SCALAR, 5)


@pytest.mark.parametrize("pipe", [SCALAR, MTU_IN, VECTOR, MTU_OUT])
def test_an_event_set_twice_is_a_violation_in_every_schedule_that_does_it(pipe: int) -> None:
    """Setting an event that is still set is an error that names the set_flag; consumed in between, it is none."""
    pod = tiny_pod(1)
    args = {"pipe": pipe, "between": 0, "address": pod.meta(0)}
    pod.launch(set_twice, 0, [0], args, [pod.grant_meta("r")])
    found = explore(pod)
    assert found.errors
    assert any("set while it is still set" in text for text in found.errors)
    for text in found.errors:  # the wait may come between the two; then the second event is left
        assert "at its end" in text or "yield set_flag(pipe, SCALAR, 5)" in text
        assert ("at its end" in text) == ("nothing has waited for it" in text)
    assert not found.outcomes
    with pytest.raises(RunError, match=r"event 5 from .* to scalar is set while it is still set"):
        pod.run()
    pod.clear()
    pod.launch(set_twice, 0, [0], args | {"between": 1}, [pod.grant_meta("r")])
    found = explore(pod)
    assert not found.errors
    assert not found.deadlocks


@kernel
def ping_pong(source, target, n):
    """Through one buffer: read in, wait, write out, wait, n times; the second wait is the one that ping-pong needs."""
    for i in range(n):
        yield mtu_in(source + 8 * i, 0, 8)
        yield set_flag(MTU_IN, MTU_OUT, 0)
        yield wait_flag(MTU_IN, MTU_OUT, 0, sync="read")
        yield mtu_out(0, target + 8 * i, 8)
        yield set_flag(MTU_OUT, MTU_IN, 1)
        yield wait_flag(MTU_OUT, MTU_IN, 1, sync="left")


def _ping_pong(order: str) -> tuple[set[tuple[int, ...]], bool]:
    pod = tiny_pod(1, order)
    for i in range(3):
        pod.memory[pod.meta(0, 8 * i)] = i + 1
    args = {"source": pod.meta(0), "target": pod.meta(0, RESULT), "n": 3}
    pod.launch(ping_pong, 0, [0], args, [pod.grant_meta("rw")])
    found = explore(pod, [(pod.meta(0, RESULT), 24)])
    return {outcome[:3] for outcome in found.outcomes}, bool(found.deadlocks or found.errors)


@pytest.mark.parametrize("order", ORDERS)
def test_events_order_the_pipes(order: str) -> None:
    """With both events each word is read before it is written out, and written out before the next is read."""
    assert _ping_pong(order) == ({(1, 2, 3)}, False)


@kernel
def unordered(source, target):
    """Read in and write out without an event."""
    yield mtu_in(source, 0, 8)
    yield mtu_out(0, target, 8)


def test_without_events_pipes_are_unordered() -> None:
    """Mtu-out may run before mtu-in that was queued first: the old bytes of the buffer go out."""
    pod = tiny_pod(1)
    pod.memory[pod.meta(0)] = 1
    pod.launch(unordered, 0, [0], {"source": pod.meta(0), "target": pod.meta(0, RESULT)}, [pod.grant_meta("rw")])
    assert {outcome[0] for outcome in explore(pod, [(pod.meta(0, RESULT), 8)]).outcomes} == {0, 1}


@kernel
def wait_twice(event):
    """Consume an event twice that is set once."""
    yield set_flag(VECTOR, SCALAR, event)
    yield wait_flag(VECTOR, SCALAR, event)
    yield wait_flag(VECTOR, SCALAR, event)


def test_a_wait_consumes_its_event() -> None:
    """The second wait for an event that was set once blocks for ever, and the report says on which."""
    pod = tiny_pod(1)
    pod.launch(wait_twice, 0, [0], {"event": 31}, [])
    with pytest.raises(DeadlockError, match="waits for event 31 of vector, which is not set"):
        pod.run()


@kernel
def leave_buffer(target, wait):
    """Overwrite the data buffer after mtu-out was queued, with or without waiting until the bytes have left."""
    yield ub_store(0, 1, 8)
    yield mtu_out(0, target, 8)
    if wait > 0:
        yield set_flag(MTU_OUT, SCALAR, 0)
        yield wait_flag(MTU_OUT, SCALAR, 0)
    yield ub_store(0, 2, 8)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("wait", "seen"), [(1, {1}), (0, {1, 2})])
def test_a_flag_of_mtu_out_says_that_the_bytes_have_left(order: str, wait: int, seen: set[int]) -> None:
    """After the flag the buffer may be used again; without it the new bytes may go out."""
    pod = tiny_pod(1, order)
    pod.launch(leave_buffer, 0, [0], {"target": pod.meta(0), "wait": wait}, [pod.grant_meta("rw")])
    assert {outcome[0] for outcome in explore(pod, [(pod.meta(0), 8)]).outcomes} == seen


@kernel
def neighbours(mine, other, rounds, results):
    """In each round write, quiet, meet, read what the other has written, meet again."""
    total = 0
    for i in range(rounds):
        yield store(mine, i + 1)
        yield quiet(sync="quiet")
        phase = yield arrive()
        yield await_group(phase, sync="barrier")
        value = yield load(other)
        total = total * 10 + value
        phase = yield arrive()
        yield await_group(phase)
    return total


def _neighbours(order: str, without: tuple[str, ...]) -> set[int]:
    pod = tiny_pod(1, order, cores=2, without=without)
    places = [pod.meta(0, DATA), pod.meta(0, OTHER)]
    args = {"mine": places, "other": places[::-1], "rounds": 2, "results": 0}
    pod.launch(neighbours, 0, [0, 1], args, [pod.grant_meta("rw")])
    found = explore(pod)
    assert found.complete
    assert not found.deadlocks
    return {value for outcome in found.outcomes for value in outcome}


@pytest.mark.parametrize("order", ORDERS)
def test_quiet_and_barrier_make_a_die_agree(order: str) -> None:
    """A quiet on each core and a barrier: all see what the others have written, over two phases."""
    assert _neighbours(order, ()) == {12}


def test_a_barrier_without_quiets_is_not_enough() -> None:
    """A barrier alone does not drain writes, and quiets alone do not wait for the others."""
    assert _neighbours("sc", ("quiet",)) == {12}
    assert _neighbours("relaxed", ("quiet",)) > {12}


@kernel
def tickets(counter, times, seen):
    """Draw tickets and note each old value."""
    for i in range(times):
        old = yield atomic_add(counter, 1)
        yield store(seen + 8 * i, old + 1)
        yield add(counter + 32, 3)


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(1, 6), st.sampled_from(ORDERS), st.integers(0, 2**40))
def test_atomics_lose_nothing(dies: int, times: int, order: str, seed: int) -> None:
    """Every ticket is drawn once, and additions by mtu-out all arrive, whatever the order and the seed."""
    pod = Pod(small_pod(dies, 2), order=order, policy="random", seed=seed)
    for die in range(dies):
        seen = [pod.meta(die, 512), pod.meta(die, 1024)]
        args = {"counter": pod.meta(0), "times": times, "seen": seen}
        pod.launch(tickets, die, [0, 1], args, [pod.grant_meta("rw")])
    pod.run()
    drawn = [pod.memory[pod.meta(d, at) :][: 8 * times].view(np.int64) for d in range(dies) for at in (512, 1024)]
    assert sorted(np.concatenate(drawn).tolist()) == list(range(1, 2 * dies * times + 1))
    assert pod.memory[pod.meta(0) :][:40].view(np.int64)[[0, 4]].tolist() == [2 * dies * times, 6 * dies * times]


@kernel
def two_dmas(one, two, target, nbytes):
    """Copy two sources to one target, each with an event of its own."""
    yield dma(one, target, nbytes, 3)
    yield dma(two, target, nbytes, 4)
    yield wait_flag(DMA, SCALAR, 4)
    yield wait_flag(DMA, SCALAR, 3)
    value = yield load(target)
    return value


@pytest.mark.parametrize("order", ["sc", "relaxed"])
def test_dma_descriptors_are_independent_and_complete_when_visible(order: str) -> None:
    """Two copies to one place end in any order; once both events are set one of the two is there, never neither."""
    pod = tiny_pod(1, order)
    pod.memory[pod.meta(0, OTHER)], pod.memory[pod.meta(0, FLAG)] = 1, 2
    args = {"one": pod.meta(0, OTHER), "two": pod.meta(0, FLAG), "target": pod.meta(0, RESULT), "nbytes": 8}
    pod.launch(two_dmas, 0, [0], args, [pod.grant_meta("rw")])
    assert {outcome for outcome in explore(pod).outcomes} == {(1,), (2,)}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("policy", ["round-robin", "random"])
@pytest.mark.parametrize("nbytes", [1, 31, 33, 2000, 100_000])
def test_dma_copies_any_size(order: str, policy: str, nbytes: int) -> None:
    """A copy at odd addresses moves exactly its bytes."""
    pod = Pod(small_pod(2, app_bytes=1 << 18), order=order, policy=policy)
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes + 32).astype(np.uint8)
    source, target = pod.put(0, data), pod.alloc(1, nbytes + 32)
    args = {"one": source.address + 7, "two": source.address + 7, "target": target.address + 8, "nbytes": nbytes}
    pod.launch(two_dmas, 0, [0], args, [pod.grant(source, "r"), pod.grant(target, "rw")])
    pod.run()
    expected = np.zeros(nbytes + 32, np.uint8)
    expected[8 : 8 + nbytes] = data[7 : 7 + nbytes]
    assert (pod.view(target)[: nbytes + 32] == expected).all()


def test_dma_copies_more_than_62_times_what_a_die_holds_in_flight() -> None:
    """DMA has no limit of size, however few writes a die may have in flight."""
    pod = Pod(small_pod(2, app_bytes=1 << 16, flight_pieces=8), order="relaxed")
    source, target = pod.put(0, np.ones(1 << 15, np.uint8)), pod.alloc(1, 1 << 15)
    args = {"one": source.address, "two": source.address, "target": target.address, "nbytes": 1 << 15}
    pod.launch(two_dmas, 0, [0], args, [pod.grant(source, "r"), pod.grant(target, "rw")])
    pod.run()
    assert pod.view(target).all()


@kernel
def copy_unaligned(source, target):
    """Copy 40 bytes by DMA."""
    yield dma(source, target, 40, 0)
    yield wait_flag(DMA, SCALAR, 0)


@kernel
def write_two(first, second):
    """Write two words."""
    yield store(first, 1)
    yield store(second, 1)


@pytest.mark.parametrize("shift", [0, 8])
def test_dma_reads_no_two_pieces_at_once(shift: int) -> None:
    """Two words in different pieces of the source are read in any order, also where they go to one target piece."""
    pod = tiny_pod(2)
    first, second, target = pod.meta(1, 24), pod.meta(1, 32), pod.meta(0, shift)
    pod.launch(copy_unaligned, 0, [0], {"source": first, "target": target}, [pod.grant_meta("rw")])
    pod.launch(write_two, 1, [0], {"first": first, "second": second}, [pod.grant_meta("rw")])
    found = explore(pod, [(target, 16)])
    assert {outcome[:2] for outcome in found.outcomes} == {(0, 0), (0, 1), (1, 0), (1, 1)}


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 3000))
def test_grains_divide_a_transfer(source: int, target: int, nbytes: int) -> None:
    """Grains follow each other from first to last byte, and a grain of a short transfer lies in one piece each side."""
    n = n_grains(source, target, nbytes)
    grains = [grain(source, target, nbytes, g) for g in range(n)]
    assert 1 <= n <= 62
    assert [end for _, end in grains] == [start for start, _ in grains[1:]] + [nbytes]
    assert grains[0][0] == 0
    assert all(start < end for start, end in grains)
    if nbytes < 32 * 30:
        for start, end in grains:
            assert (source + start) // 32 == (source + end - 1) // 32
            assert (target + start) // 32 == (target + end - 1) // 32


@kernel
def write_all(target, nbytes):
    """Fill the buffer with ones and write it."""
    for i in range(8):
        yield ub_store(8 * i, 1, 8)
    yield mtu_out(0, target, nbytes)


@kernel
def read_all(source, nbytes):
    """Read to the buffer at once and return its words as digits."""
    yield mtu_in(source, 0, nbytes)
    yield set_flag(MTU_IN, SCALAR, 0)
    yield wait_flag(MTU_IN, SCALAR, 0)
    seen = 0
    for i in range(8):
        word = yield ub_load(8 * i, 8)
        seen = seen * 2 + word
    return seen


def test_a_piece_is_atomic_and_a_larger_transfer_tears() -> None:
    """Of two pieces a reader sees any combination of old and new; within one piece never a part."""
    pod = tiny_pod(2, "relaxed")
    pod.launch(write_all, 0, [0], {"target": pod.meta(1), "nbytes": 64}, [pod.grant_meta("rw")])
    pod.launch(read_all, 1, [0], {"source": pod.meta(1), "nbytes": 64}, [pod.grant_meta("rw")])
    assert {outcome[1] for outcome in explore(pod).outcomes} == {0, 0xF0, 0x0F, 0xFF}


@kernel
def one_word(program, base):
    """Stores (bit 0 of each 11-bit item) and loads in one piece; returns a hash of what was loaded."""
    seen = 17
    while program > 0:
        address = base + (program >> 1 & 3) * 4
        value = (program >> 4 & 127) - 64
        if program & 1:
            if program >> 3 & 1:
                yield store(address, value, 4)
            else:
                yield store(address, value * 123456789123, 8)
        elif program >> 3 & 1:
            word = yield load(address, 4)
            seen = (seen * 31 + word) % 1000003
        else:
            word = yield load(address, 8)
            seen = (seen * 31 + word) % 1000003
        program = program >> 11
    return seen


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.booleans(), st.integers(1, 127)), min_size=1, max_size=5),
    st.sampled_from(ORDERS),
    st.integers(0, 1000),
)
def test_a_core_sees_its_own_stores_of_any_width(
    items: list[tuple[bool, int, bool, int]], order: str, seed: int
) -> None:
    """Loads of 4 and 8 bytes over own stores of 4 and 8 bytes in flight give what plain memory would give."""
    memory, seen, program = np.zeros(32, np.uint8), 17, 0
    for i, (is_store, place, narrow, value) in enumerate(items):
        if not narrow:
            place &= 2
        program |= (is_store | place << 1 | narrow << 3 | value << 4) << 11 * i
        word = memory[4 * place : 4 * place + (4 if narrow else 8)].view(np.int32 if narrow else np.int64)
        if is_store:
            word[0] = value - 64 if narrow else (value - 64) * 123456789123
        else:
            seen = (seen * 31 + int(word[0])) % 1000003
    pod = tiny_pod(1, order, policy="random", seed=seed)
    launch = pod.launch(one_word, 0, [0], {"program": program, "base": pod.meta(0)}, [pod.grant_meta("rw")])
    pod.run()
    assert launch.results == [seen]
    assert (pod.memory[pod.meta(0) :][:32] == memory).all()
