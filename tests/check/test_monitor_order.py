"""What orders two accesses, one small program for each way: nothing is found with it, a race without it.

The programs are those of the litmus suite whose asked outcome a protocol relies on being forbidden, with polls where
these read flags: message passing, acknowledgement, barriers by counter and by group, relays.
"""

from collections.abc import Sequence

import pytest

from xccl_emu.check.verdict import DATA_RACE, TORN_METADATA, UNWRITTEN_READ
from xccl_emu.lang import (
    DMA,
    MTU_IN,
    MTU_OUT,
    SCALAR,
    VECTOR,
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
    poll_ge,
    put,
    quiet,
    set_flag,
    store,
    ub_load,
    ub_store,
    v_copy,
    v_fill,
    wait_flag,
)
from xccl_emu.machine.pod import Pod

from .monitor_support import ORDERS, Side, anything, app, kind_of, make_pod, trial_of

RELAXED, WEAK = ("relaxed",), ("fifo", "relaxed")


@kernel
def tell(data, flag):
    """Write data, then a flag."""
    yield store(data, 7)
    yield quiet(sync="quiet")
    yield store(flag, 1, sync="flag")


@kernel
def tell_pieces(data, flag):
    """Write two pieces from the data buffer, then a field."""
    yield v_fill(0, 64, 5)
    yield set_flag(VECTOR, MTU_OUT, 0, sync="filled")
    yield wait_flag(VECTOR, MTU_OUT, 0, sync="filled")
    yield mtu_out(0, data, 64)
    yield quiet(sync="quiet")
    yield put(flag, 1, 2, 3, 4, sync="flag")


@kernel
def hear(data, flag):
    """Wait for a flag, then read data."""
    yield poll_eq(flag, 1, sync="wait")
    yield load(data)


@kernel
def hear_pieces(data, flag):
    """Wait for a field, read the rest of it plainly, then pull two pieces and use them."""
    yield poll_eq(flag, 1, sync="wait")
    yield load(flag + 24)
    yield mtu_in(data, 0, 64)
    yield set_flag(MTU_IN, SCALAR, 0, sync="pulled")
    yield wait_flag(MTU_IN, SCALAR, 0, sync="pulled")
    yield ub_load(32)


@kernel
def tell_twice(data, flag, ack):
    """Write data a second time when the first is acknowledged."""
    yield store(data, 1)
    yield quiet()
    yield store(flag, 1)
    yield poll_eq(ack, 1, sync="free")
    yield store(data, 2)


@kernel
def acknowledge(data, flag, ack):
    """Read data, then say so."""
    yield poll_eq(flag, 1)
    yield load(data)
    yield store(ack, 1)


@kernel
def acknowledge_early(data, flag, ack):
    """Say that data is read, then read it."""
    yield poll_eq(flag, 1)
    yield store(ack, 1)
    yield load(data)


@kernel
def acknowledge_pulled(data, flag, ack):
    """Pull data, then say so by a put that waits for nothing but the pull."""
    yield poll_eq(flag, 1)
    yield mtu_in(data, 0, 32)
    yield set_flag(MTU_IN, MTU_OUT, 3, sync="pulled")
    yield wait_flag(MTU_IN, MTU_OUT, 3, sync="pulled")
    yield put(ack, 1)


@kernel
def count_in(mine, other, counter):
    """Barrier by a counter: write, count, wait for the other, read what it wrote."""
    yield store(mine, 3)
    yield quiet(sync="quiet")
    yield atomic_add(counter, 1, sync="count")
    yield poll_ge(counter, 2, sync="all in")
    yield load(other)


@kernel
def meet(mine, other):
    """Barrier of a group: write, meet, read what the other wrote."""
    yield store(mine, 3)
    yield quiet(sync="quiet")
    phase = yield arrive(sync="meet")
    yield await_group(phase, sync="meet")
    yield load(other)


@kernel
def relay(flag, next_flag):
    """Hand a flag on."""
    yield poll_eq(flag, 1)
    yield store(next_flag, 1)


@kernel
def tell_by_adding(data, counter):
    """Write data, then add to a counter by mtu-out."""
    yield store(data, 7)
    yield quiet(sync="quiet")
    yield add(counter, 1)


@kernel
def hear_two(one, other, counter):
    """Wait for two additions, then read what both wrote."""
    yield poll_ge(counter, 2)
    yield load(one)
    yield load(other)


@kernel
def tell_by_dma(source, data, flag):
    """Copy by DMA, then a flag."""
    yield dma(source, data, 64, 0)
    yield wait_flag(DMA, SCALAR, 0, sync="copied")
    yield store(flag, 1)


@kernel
def read_back(data, how):
    """Write and read the same bytes on one core, by different pipes."""
    if how == 0:  # a scalar load sees the own store
        yield store(data, 1)
        yield load(data)
    elif how == 1:
        yield store(data, 1)
        yield quiet(sync="quiet")
        yield mtu_in(data, 0, 32)
    elif how == 2:
        yield put(data, 1)
        yield quiet(sync="quiet")
        yield load(data)
    elif how == 3:
        yield put(data, 1)
        yield quiet(sync="quiet")
        yield store(data, 2)


@kernel
def in_buffer(data, how):
    """Use the same bytes of the data buffer by different pipes."""
    if how == 0:  # transfers that overlap keep their order
        yield mtu_in(data, 0, 32)
        yield mtu_in(data + 32, 0, 32)
    elif how == 1:
        yield mtu_in(data, 0, 32)
        yield set_flag(MTU_IN, VECTOR, 0, sync="flag")
        yield wait_flag(MTU_IN, VECTOR, 0, sync="flag")
        yield v_copy(0, 64, 32)
    elif how == 2:
        yield ub_store(0, 5)
        yield ub_store(4, 5)
        yield mtu_out(0, data, 8)
        yield set_flag(MTU_OUT, SCALAR, 0, sync="flag")
        yield wait_flag(MTU_OUT, SCALAR, 0, sync="flag")
        yield ub_store(0, 6)


@kernel
def write_word(word, value):
    """Write one word, twice."""
    yield store(word, value)
    yield store(word, value + 1)


@kernel
def look(field):
    """Read a field by a synchronizing load."""
    yield load(field, sync="look")


def _sides(pod: Pod, name: str) -> Sequence[Side]:
    data, flag, ack = app(pod, 1), pod.meta(1), pod.meta(0)
    pair = {"data": data, "flag": flag}
    both = pair | {"ack": ack}
    words = ({"mine": data, "other": data + 32}, {"mine": data + 32, "other": data})
    programs: dict[str, Sequence[Side]] = {
        "message": [(tell, 0, 0, pair), (hear, 1, 0, pair)],
        "pieces": [(tell_pieces, 0, 0, pair), (hear_pieces, 1, 0, pair)],
        "acknowledged": [(tell_twice, 0, 0, both), (acknowledge, 1, 0, both)],
        "acknowledged pull": [(tell_twice, 0, 0, both), (acknowledge_pulled, 1, 0, both)],
        "counter": [(count_in, i, 0, words[i] | {"counter": flag}) for i in range(2)],
        "relay": [
            (tell, 0, 0, pair),
            (relay, 1, 0, {"flag": flag, "next_flag": ack}),
            (hear, 1, 1, {"data": data, "flag": ack}),
        ],
        "additions": [
            (tell_by_adding, 0, 0, {"data": data, "counter": flag}),
            (tell_by_adding, 0, 1, {"data": data + 32, "counter": flag}),
            (hear_two, 1, 0, {"one": data, "other": data + 32, "counter": flag}),
        ],
        "dma": [(tell_by_dma, 0, 0, pair | {"source": app(pod)}), (hear, 1, 0, pair)],
    }
    return programs[name]


ORDERED = [
    ("message", "quiet", RELAXED),  # flag and data on one die: fifo keeps them in order
    ("message", "wait", ORDERS),
    ("pieces", "quiet", RELAXED),
    ("pieces", "filled", ORDERS),
    ("pieces", "pulled", ORDERS),
    ("acknowledged", "free", ORDERS),
    ("acknowledged pull", "pulled", ORDERS),
    ("counter", "quiet", RELAXED),
    ("counter", "all in", ORDERS),
    ("additions", "quiet", RELAXED),
    ("dma", "copied", ORDERS),
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", sorted({row[0] for row in ORDERED} | {"relay"}))
def test_nothing_is_found_where_all_is_ordered(name: str, order: str) -> None:
    """Polled flags, acknowledgements, counters, relays and DMA are no false alarm, in any memory order."""
    pod = make_pod(order=order)
    assert kind_of(trial_of(pod, _sides(pod, name))) is None


@pytest.mark.parametrize(("name", "sync", "orders"), ORDERED, ids=lambda value: str(value))
@pytest.mark.parametrize("order", ORDERS)
def test_a_race_is_found_without_it(name: str, sync: str, orders: Sequence[str], order: str) -> None:
    """With that synchronization switched off nothing orders some access, except where the memory order still does."""
    pod = make_pod(order=order, without=[sync])
    kind = kind_of(trial_of(pod, _sides(pod, name)))
    assert kind in ((DATA_RACE, UNWRITTEN_READ) if order in orders else (None,))


@pytest.mark.parametrize("order", ORDERS)
def test_an_acknowledgement_before_the_read_is_a_race(order: str) -> None:
    """Litmus ACKearly: the sender may overwrite what is being read."""
    pod = make_pod(order=order)
    arguments = {"data": app(pod, 1), "flag": pod.meta(1), "ack": pod.meta(0)}
    sides = [(tell_twice, 0, 0, arguments), (acknowledge_early, 1, 0, arguments)]
    assert kind_of(trial_of(pod, sides)) == DATA_RACE


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("without", "orders"), [((), ()), (("quiet",), WEAK), (("meet",), ORDERS)])
def test_a_barrier_orders_what_is_visible(without: Sequence[str], orders: Sequence[str], order: str) -> None:
    """A group's barrier joins its cores; what one of them wrote before is visible to the others by its quiet alone."""
    pod = make_pod(order=order, without=without)
    data = app(pod)
    pod.launch(meet, 0, [0, 1], {"mine": [data, data + 32], "other": [data + 32, data]}, anything(pod))
    assert kind_of(trial_of(pod, [])) == (DATA_RACE if order in orders else None)


@pytest.mark.parametrize("order", ORDERS)
def test_fifo_orders_writes_to_one_die_only(order: str) -> None:
    """Data on one die and its flag on another need a quiet under `fifo` too."""
    pod = make_pod(order=order, without=["quiet"])
    arguments = {"data": app(pod, 0), "flag": pod.meta(1)}
    kind = kind_of(trial_of(pod, [(tell, 0, 0, arguments), (hear, 1, 0, arguments)]))
    assert kind == (None if order == "sc" else DATA_RACE)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("how", range(4))
def test_a_core_reads_back_its_own_write(how: int, order: str) -> None:
    """A scalar load sees own stores; mtu-in, and whatever follows mtu-out, needs the quiet, under `sc` mtu-out too."""
    pod = make_pod(order=order)
    assert kind_of(trial_of(pod, [(read_back, 0, 0, {"data": app(pod), "how": how})])) is None
    if how:
        pod = make_pod(order=order, without=["quiet"])
        fine = order == "sc" and how == 1
        kind = kind_of(trial_of(pod, [(read_back, 0, 0, {"data": app(pod), "how": how})]))
        assert kind == (None if fine else DATA_RACE)


@pytest.mark.parametrize("how", range(3))
def test_pipes_share_the_data_buffer_by_flags(how: int) -> None:
    """Between pipes a flag orders accesses to the data buffer; in one pipe, and behind an issue, nothing is needed."""
    pod = make_pod()
    assert kind_of(trial_of(pod, [(in_buffer, 0, 0, {"data": app(pod), "how": how})])) is None
    if how:
        pod = make_pod(without=["flag"])
        # what the vector pipe reads too early was never written at all if it is the first to come
        assert kind_of(trial_of(pod, [(in_buffer, 0, 0, {"data": app(pod), "how": how})])) is not None


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("distance", "kind"), [(8, None), (0, DATA_RACE)])
def test_two_cores_may_write_different_words_of_a_piece(distance: int, kind: str | None, order: str) -> None:
    """Conflicts are told apart by bytes, not by pieces."""
    pod = make_pod(order=order)
    words = (app(pod), app(pod) + distance)
    sides = [(write_word, die, 0, {"word": words[die], "value": die}) for die in range(2)]
    assert kind_of(trial_of(pod, sides)) == kind


@pytest.mark.parametrize("order", ORDERS)
def test_two_cores_may_write_a_flag(order: str) -> None:
    """Stores to a word that somebody polls are synchronization; that nothing orders them is no race."""
    pod = make_pod(order=order)
    flag = pod.meta(0)
    sides = [(write_word, die, 0, {"word": flag, "value": 1}) for die in range(2)]
    assert kind_of(trial_of(pod, [*sides, (relay, 0, 1, {"flag": flag, "next_flag": pod.meta(1)})])) != DATA_RACE


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("without", "kind"), [((), None), (("look",), TORN_METADATA)])
def test_a_plain_read_of_a_field_may_tear(without: Sequence[str], kind: str | None, order: str) -> None:
    """A load that synchronizes may meet the put of its field; a plain one may not."""
    pod = make_pod(order=order, without=without)
    sides = [(look, 1, 0, {"field": pod.meta(0)}), (tell, 0, 0, {"data": app(pod), "flag": pod.meta(0)})]
    assert kind_of(trial_of(pod, sides)) == kind
