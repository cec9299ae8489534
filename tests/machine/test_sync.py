"""Events, quiets, barriers, atomics, DMA and the order of writes, each shown over every schedule of a tiny pod.

Most are small programs (`xccl_emu.guards.campaign.programs`), of which brute force goes through every schedule.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.base.errors import DeadlockError, RunError
from xccl_emu.guards.campaign.programs import Small
from xccl_emu.lang import add, atomic_add, dma, kernel, load, store, wait_flag
from xccl_emu.lang.requests import DMA, MTU_IN, MTU_OUT, SCALAR, VECTOR
from xccl_emu.machine.device.layout import ATOMIC_SHIFT, HEADER_WORDS
from xccl_emu.machine.device.pipes import n_subtransfers, subtransfer
from xccl_emu.machine.explore import explore
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod

from .support import ORDERS, small, tiny_pod

FLAG, OTHER, RESULT = 32, 64, 128
SEEN = "seen"


def ends(given: Small, order: str, *words: int | str) -> set[tuple[int, ...]]:
    """What can stand in words of die 0 at the end, or what the last core can have read (`SEEN`), as octal digits."""
    found = given.naive(order)
    assert found.complete
    assert not found.errors
    assert not found.deadlocks
    last = given.n_dies * (8 + 4 * given.cores_per_die) - 4
    return {tuple(end[last if word == SEEN else word] for word in words) for end in found.outcomes}


WRITES = {
    "store": "store 1.0 1", "put": "put 1.0 1", "add": "add 1.0 1", "mtu_out": "ub_store 1; out 1.0",
    "dma": "dma 0.4 1.0",
}  # fmt: skip


def seen(order: str, how: str, without: tuple[str, ...] = ()) -> set[tuple[int, ...]]:
    """What a consumer can see: the other side writes in one of the ways there are, quiets, and raises a flag."""
    taken = "; wait 4" if how == "dma" else ""
    told = f"{WRITES[how]}; quiet; store 1.4 1{taken}"
    return ends(small(f"{told} | eq 1.4 1; load 1.0", memory={4: 1}, without=without), order, SEEN)


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("order", ORDERS)
def test_a_quiet_publishes_every_kind_of_write(order: str, how: str) -> None:
    """After a quiet and a flag the reader sees what was written, by whatever instruction, in every order."""
    assert seen(order, how) == {(1,)}


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("without", ["quiet", "eq"])
def test_without_the_quiet_or_the_poll_old_data_is_seen(how: str, without: str) -> None:
    """A named synchronization can be switched off, and under `relaxed` both are needed."""
    assert seen("relaxed", how, (without,)) == {(0,), (1,)}


def test_fifo_keeps_a_flag_behind_data_for_the_same_die() -> None:
    """Under `fifo` a store overtakes no store to the same die, but it can overtake what mtu-out has not begun."""
    assert seen("fifo", "store", ("quiet",)) == {(1,)}
    assert seen("sc", "store", ("quiet",)) == {(1,)}
    assert seen("fifo", "put", ("quiet",)) == {(0,), (1,)}  # mtu-out may start after the scalar store


@pytest.mark.parametrize("pipe", [SCALAR, MTU_IN, VECTOR, MTU_OUT])
def test_an_event_set_twice_is_a_violation_in_every_schedule_that_does_it(pipe: int) -> None:
    """Setting an event that is still set is an error that names the set_flag; consumed in between, it is none."""
    twice = small(f"set {pipe} 0 5; set {pipe} 0 5; load 0.0; load 0.0; wait {pipe} 0 5")
    found = twice.naive("sc")
    assert any("set while it is still set" in text for text in found.errors)
    for text in found.errors:  # the wait may come between the two; then the second event is left
        assert "at its end" in text or "yield lang.set_flag(" in text
        assert ("at its end" in text) == ("nothing has waited for it" in text)
    assert not found.outcomes
    with pytest.raises(RunError, match=r"event 5 from .* to scalar is set while it is still set"):
        twice.pod("sc").run()
    ends(small(f"set {pipe} 0 5; wait {pipe} 0 5; set {pipe} 0 5; wait {pipe} 0 5"), "sc")


@pytest.mark.parametrize("order", ORDERS)
def test_events_order_the_pipes(order: str) -> None:
    """Through one buffer three times, with both events that it takes: each word is read before it is written out, and
    written out before the next is read."""
    turns = (f"in 0.{i}; set 1 3; wait 1 3; out 0.{4 + i}; set 3 1 1; wait 3 1 1" for i in range(3))
    assert ends(small("; ".join(turns), memory={0: 1, 1: 2, 2: 3}), order, 4, 5, 6) == {(1, 2, 3)}


def test_without_events_pipes_are_unordered() -> None:
    """Mtu-out may run before mtu-in that was queued first: the old bytes of the buffer go out."""
    assert ends(small("in 0.0; out 0.4", memory={0: 1}), "sc", 4) == {(0,), (1,)}


def test_a_wait_consumes_its_event() -> None:
    """The second wait for an event that was set once blocks for ever, and the report says on which."""
    with pytest.raises(DeadlockError, match="waits for event 15 of vector, which is not set"):
        small("set 2 0 15; wait 2 0 15; wait 2 0 15").pod("sc").run()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("wait", "left"), [("set 3 0; wait 3 0; ", {(1,)}), ("", {(1,), (2,)})])
def test_a_flag_of_mtu_out_says_that_the_bytes_have_left(order: str, wait: str, left: set[tuple[int, ...]]) -> None:
    """After the flag the buffer may be used again; without it the new bytes may go out."""
    assert ends(small(f"ub_store 1; out 0.0; {wait}ub_store 2"), order, 0) == left


def _neighbours(order: str, without: tuple[str, ...] = ()) -> set[tuple[int, ...]]:
    """What one of two cores reads: in two rounds they write, quiet, meet, read what the other wrote, and meet again."""
    turn = "store 0.{} {}; quiet; arrive; await; load 0.{}; arrive; await"
    texts = ("; ".join(turn.format(mine, i + 1, 4 - mine) for i in range(2)) for mine in (0, 4))
    return ends(small(" | ".join(texts), cores_per_die=2, without=without), order, SEEN)


@pytest.mark.parametrize("order", ORDERS)
def test_quiet_and_barrier_make_a_die_agree(order: str) -> None:
    """A quiet on each core and a barrier: all see what the others have written, over two phases."""
    assert _neighbours(order) == {(0o12,)}


def test_a_barrier_without_quiets_is_not_enough() -> None:
    """A barrier alone does not drain writes, and quiets alone do not wait for the others."""
    assert _neighbours("sc", ("quiet",)) == {(0o12,)}
    assert _neighbours("relaxed", ("quiet",)) > {(0o12,)}


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
    pod = Pod(small_pod(2, app_bytes=1 << 16, flight_granules=8), order="relaxed")
    source, target = pod.put(0, np.ones(1 << 15, np.uint8)), pod.alloc(1, 1 << 15)
    args = {"one": source.address, "two": source.address, "target": target.address, "nbytes": 1 << 15}
    pod.launch(two_dmas, 0, [0], args, [pod.grant(source, "r"), pod.grant(target, "rw")])
    pod.run()
    assert pod.view(target).all()


@pytest.mark.parametrize("word", [0, 1])
def test_dma_reads_no_two_granules_at_once(word: int) -> None:
    """Two words in different granules of the source are read in any order, also where they go to one target granule."""
    copied = small(f"dma 1.3 0.{word} 3; wait 4 0 3 | store 1.3 1; store 1.4 1")
    assert ends(copied, "sc", word, word + 1) == {(0, 0), (0, 1), (1, 0), (1, 1)}


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 3000))
def test_subtransfers_divide_a_transfer(source: int, target: int, nbytes: int) -> None:
    """Sub-transfers follow each other from first to last byte, and one of a short transfer lies in one granule each
    side."""
    state = np.zeros(HEADER_WORDS, np.int64)
    state[ATOMIC_SHIFT] = 5
    n = n_subtransfers(state, source, target, nbytes)
    subtransfers = [subtransfer(state, source, target, nbytes, g) for g in range(n)]
    assert 1 <= n <= 62
    assert [end for _, end in subtransfers] == [start for start, _ in subtransfers[1:]] + [nbytes]
    assert subtransfers[0][0] == 0
    assert all(start < end for start, end in subtransfers)
    if nbytes < 32 * 30:
        for start, end in subtransfers:
            assert (source + start) // 32 == (source + end - 1) // 32
            assert (target + start) // 32 == (target + end - 1) // 32


def test_a_granule_is_atomic_and_a_larger_transfer_tears() -> None:
    """A reader sees any combination of old and new of two granules; within one granule never a part."""
    filled, read = ("; ".join(f"{each} {i}" for i in range(8)) for each in ("ub_store 1", "ub_load 0"))
    both = small(f"{filled}; out 1.0 0 4 | in 1.0 0 4; set 1 0; wait 1 0; {read}")
    assert ends(both, "relaxed", SEEN) == {(0,), (0o11110000,), (0o1111,), (0o11111111,)}


@kernel
def one_word(program, base):
    """Stores (bit 0 of each 11-bit item) and loads in one granule; returns a hash of what was loaded."""
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
    st.sampled_from([order for order in ORDERS if order != "unordered"]),
    st.integers(0, 1000),
)
def test_a_core_sees_its_own_stores_of_any_width(
    items: list[tuple[bool, int, bool, int]], order: str, seed: int
) -> None:
    """Loads of 4 and 8 bytes over own stores of 4 and 8 bytes in flight give what plain memory would give, under the
    orders that keep writes to one cell."""
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
