"""What is refused or goes wrong: a clear error, the target as it was, and rings that work again after `reset`."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.base.errors import (
    CapacityError,
    ConfigError,
    DeadlockError,
    EventMismatchError,
    PayloadMismatchError,
    ProtocolError,
)
from xccl_emu.kernels import sendrecv as device
from xccl_emu.lang import fail, kernel
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.protocols.sendrecv.rings import PATHS
from xccl_emu.protocols.sendrecv.session import SendRecv

from .sendrecv_support import Sent, Setting, both_ways, communicator, make_pod, one_way, place, settings_of_pods, sizes


def works(comm: SendRecv) -> bool:
    """Whether transfers in both directions arrive, on every path and around the ring."""
    pod, last = comm.pod, comm.pod.spec.n_dies - 1
    for path in PATHS:
        sent = [place(pod, 0, last, 700, 5), place(pod, last, 0, 700, 6)][: 2 if last else 1]
        for s in sent:
            comm.transfer(s.source, s.target, event_id=77, cores=1, path=path)
        comm.run()
        if not all(s.arrived() for s in sent):
            return False
    return True


def recovers(comm: SendRecv) -> bool:
    """Whether they do after a reset."""
    comm.reset()
    return works(comm)


# ---- errors of a run


@given(settings_of_pods, sizes, st.integers(0, 3), st.sampled_from(PATHS))
def test_wrong_event_id(setting: Setting, nbytes: int, others: int, path: str) -> None:
    """A wrong event ID stops the run before anything reaches the target, however often the pair was used before."""
    pod, comm = setting.make()
    last = setting.dies - 1
    for i in range(others):
        assert place(pod, 0, last, 150, i).sent_by(comm, event_id=5, cores=1)
    sent = place(pod, 0, last, nbytes)
    comm.transfer(sent.source, sent.target, event_id=5, recv_event_id=6, cores=1, path=path)
    with pytest.raises(EventMismatchError, match=r"event ID [56]: the other side has event ID [56]"):
        comm.run()
    assert sent.untouched()
    with pytest.raises(ConfigError, match=r"call reset\(\)"):
        comm.transfer(sent.source, sent.target, event_id=5, cores=1)
    assert recovers(comm)


@pytest.mark.nojit
@pytest.mark.parametrize("path", PATHS)
def test_wrong_event_id_is_explained(path: str) -> None:
    """The message names both event IDs, the dies, the kernel's line and the paper's step."""
    comm, sent = one_way(100, {})
    comm.transfer(sent.source, sent.target, event_id=-5, recv_event_id=8, path=path)
    with pytest.raises(EventMismatchError) as caught:
        comm.run()
    text = str(caught.value)
    assert "100 bytes from die 0 to die 1" in text
    assert ("event ID 8: the other side has event ID -5" in text) != (path == "zero-copy")
    assert "step 5" in text or path == "zero-copy"
    assert "kernels/sendrecv.py:" in text
    assert (caught.value.code, caught.value.value) == (device.WRONG_EVENT, 8 if path == "zero-copy" else -5)
    assert recovers(comm)


def test_wrong_event_id_asynchronously() -> None:
    """An asynchronous receiver stops at a wrong event ID too; reset drops both handles, and they say so."""
    comm, sent = one_way()
    mine, theirs = comm.isend(sent.source, 1, event_id=1), comm.irecv(sent.target, 0, event_id=2)
    with pytest.raises(EventMismatchError):
        theirs.wait()
    assert sent.untouched()
    comm.reset()
    for call in (mine.test, mine.wait, theirs.test):
        with pytest.raises(ConfigError, match=r"dropped by reset\(\)"):
            call()
    assert works(comm)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("nbytes", "cores"), [(299, 2), (301, 2), (30, 2), (5000, 2), (300, 1), (300, 3), (300, 4)])
def test_sides_disagree_on_the_payload(path: str, nbytes: int, cores: int) -> None:
    """Another size or number of cores on the sender's side stops the run before anything reaches the target."""
    comm, sent = one_way()
    comm.send(comm.pod.put(0, np.ones(nbytes, np.uint8)), 1, event_id=1, cores=cores, path=path)
    comm.recv(sent.target, 0, event_id=1, cores=2, path=path)
    with pytest.raises(PayloadMismatchError, match=rf"({nbytes}|300) bytes on ({cores}|2) cores"):
        comm.run()
    assert sent.untouched()
    assert recovers(comm)


@kernel
def failing(code, value):
    """A kernel of somebody else, with codes of its own."""
    yield fail(code, value)


@pytest.mark.nojit
@pytest.mark.parametrize("code", [1, 2, 3])
def test_another_kernel_fails_in_the_same_run(code: int) -> None:
    """The failure of a kernel that is not of this protocol comes through as it is, whatever its code."""
    comm, sent = one_way(300, {}, policy="round-robin")
    comm.transfer(sent.source, sent.target, event_id=1)
    comm.pod.launch(failing, 0, [3], {"code": code, "value": 77}, [])
    with pytest.raises(ProtocolError, match=rf"kernel failing .* code {code}, value 77") as caught:
        comm.run()
    assert type(caught.value) is ProtocolError
    assert recovers(comm)


@pytest.mark.nojit
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("side", "die"), [("send", 0), ("receive", 1)])
def test_the_other_side_never_comes(side: str, die: int, path: str) -> None:
    """One side alone is a deadlock that names the call and where it waits; its target is unchanged, and reset makes the
    ring usable."""
    comm, sent = one_way()
    call = {"send": (comm.send, sent.source, 1), "receive": (comm.recv, sent.target, 0)}[side]
    call[0](*call[1:], event_id=1, path=path)
    with pytest.raises(DeadlockError) as caught:
        comm.run()
    other = {"send": "recv", "receive": "send"}[side]
    missing = f"no matching {other} was posted for the {side} of 300 bytes from die 0 to die 1, event ID 1"
    assert missing in str(caught.value)
    assert f"polls die{die}.meta+" in str(caught.value)
    assert sent.untouched()
    assert recovers(comm)


def test_other_pairs_survive_a_reset() -> None:
    """After one pair has failed and reset, every pair works, whatever its counts were before."""
    comm, bad = one_way(500, dies=3)
    good = place(comm.pod, 1, 2, 500)
    assert good.sent_by(comm)
    comm.send(bad.source, 1, event_id=1)
    comm.transfer(good.source, good.target, event_id=1)
    with pytest.raises(DeadlockError):
        comm.run()
    assert recovers(comm)
    comm.transfer(good.source, good.target, event_id=1)
    assert bad.sent_by(comm)


# ---- what is refused before anything moves


def _transfer(comm: SendRecv, s: Sent, **changes: object) -> None:
    comm.transfer(**{"source": s.source, "target": s.target, "event_id": 1} | changes)  # type: ignore[arg-type]


def _part(buffer: Buffer, start: int, nbytes: int) -> Buffer:
    return Buffer(buffer.die, buffer.address + start, nbytes)


OUTSIDE, OVERLAP = (ConfigError, "inside of the app data area"), (ConfigError, "overlaps")
REFUSED: dict[str, tuple[Callable[[SendRecv, Sent], object], type[ConfigError], str]] = {
    "too many cores": (lambda c, s: _transfer(c, s, cores=5), CapacityError, "cores=5: must be 1 to 4"),
    "no cores": (lambda c, s: _transfer(c, s, cores=0), CapacityError, "cores=0: must be 1 to 4"),
    "unknown path": (
        lambda c, s: _transfer(c, s, path="pigeon"), ConfigError, "path='pigeon': must be one of mtu, dma, zero-copy"
    ),
    "event ID too large": (
        lambda c, s: _transfer(c, s, event_id=1 << 63), ConfigError, "event_id=9223372036854775808: must be a whole"
    ),
    "receiver's event ID too small": (
        lambda c, s: _transfer(c, s, recv_event_id=-(1 << 63) - 1), ConfigError, "must be a whole"
    ),
    "does not fit": (
        lambda c, s: _transfer(c, s, target=_part(s.target, 0, 299)), CapacityError,
        "a payload of 300 bytes does not fit its 299 bytes",
    ),
    "nothing to send": (
        lambda c, s: c.send(_part(s.source, 0, 0), 1, event_id=1), ConfigError, "must be at least 1 byte"
    ),
    "source outside of the app data area": (lambda c, s: c.send(Buffer(0, s.pod.meta(0), 8), 1, event_id=1), *OUTSIDE),
    "target outside of the app data area": (
        lambda c, s: c.recv(Buffer(1, s.pod.meta(1) - 4, 8), 0, event_id=1), *OUTSIDE
    ),
    "buffer of another die": (lambda c, s: c.send(Buffer(1, s.source.address, 8), 0, event_id=1), *OUTSIDE),
    "no such target die": (lambda c, s: c.send(s.source, 2, event_id=1), ConfigError, "target die 2: the pod has dies"),
    "no such source die": (lambda c, s: c.recv(s.target, -1, event_id=1), ConfigError, "source die -1: the pod has"),
    "pair is busy": (
        lambda c, s: [_transfer(c, s, cores=1), c.send(_part(s.source, 0, 8), 1, event_id=2, cores=1)],
        ConfigError, "there is already a send of 300 bytes from die 0 to die 1",
    ),
    "source and target overlap": (
        lambda c, s: c.transfer(_part(s.around, 40, 100), _part(s.around, 139, 100), event_id=1), *OVERLAP
    ),
    "two targets overlap": (
        lambda c, s: [_transfer(c, s, cores=1), c.recv(_part(s.around, 339, 20), 1, event_id=1, cores=1)], *OVERLAP
    ),
    "target overlaps another's source": (
        lambda c, s: [_transfer(c, s, cores=1), c.recv(_part(s.source, 299, 1), 1, event_id=1, cores=1)], *OVERLAP
    ),
    "source overlaps another's target": (
        lambda c, s: [_transfer(c, s, cores=1), c.send(_part(s.around, 30, 11), 0, event_id=1, cores=1)], *OVERLAP
    ),
    "the die's cores are taken": (
        lambda c, s: [_transfer(c, s, cores=3), c.send(_part(s.source, 0, 300), 0, event_id=1, cores=2)],
        CapacityError, "cores=2: only 1 of die 0 are left",
    ),
    "one side is zero-copy": (
        lambda c, s: [c.send(s.source, 1, event_id=1, path="zero-copy"), c.recv(s.target, 0, event_id=1, path="dma")],
        ConfigError, "path='dma': the other side has 'zero-copy'",
    ),
    "asynchronous zero-copy, whose sender waits for an address": (
        lambda c, s: c.isend(s.source, 1, event_id=1, path="zero-copy"), ConfigError,
        "path='zero-copy': must be one of mtu, dma",
    ),
    "one side is asynchronous": (
        lambda c, s: [c.send(s.source, 1, event_id=1), c.irecv(s.target, 0, event_id=1)],
        ConfigError, "one side is asynchronous and the other is not",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refused_before_anything_moves(what: str) -> None:
    """The call is refused with its argument named, nothing has moved, and after reset the same rings work."""
    queue, kind, message = REFUSED[what]
    comm, sent = one_way(300, {})
    before = comm.pod.digest()
    with pytest.raises(kind, match=message):
        queue(comm, sent)
    assert comm.pod.digest() == before
    assert recovers(comm)


def test_refused_call_leaves_the_others_queued() -> None:
    """What was queued before a refused call runs; of a refused transfer neither side stays behind."""
    comm = communicator(rings={})
    good, bad = both_ways(comm, 300, 300)
    comm.transfer(good.source, good.target, event_id=1)
    with pytest.raises(ConfigError, match="overlaps"):
        comm.transfer(bad.source, _part(good.source, 0, 300), event_id=1)
    comm.run()
    assert good.arrived()
    assert bad.sent_by(comm)


def test_buffers_that_touch_are_fine() -> None:
    """Two transfers out of one source, and targets side by side, do not overlap."""
    pod = make_pod(3)
    comm = SendRecv(pod)
    source = pod.put(0, np.arange(100, dtype=np.uint8))
    room = pod.alloc(1, 200)
    comm.transfer(source, _part(room, 0, 100), event_id=1)
    comm.transfer(source, pod.alloc(2, 100), event_id=1)
    comm.transfer(pod.put(2, np.arange(100, dtype=np.uint8)), _part(room, 100, 100), event_id=1)
    comm.run()
    assert np.array_equal(pod.view(room), np.tile(np.arange(100, dtype=np.uint8), 2))


# ---- layout


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"slots": 0}, ConfigError, "slots=0: must be at least 1"),
        ({"slot_bytes": 0}, CapacityError, "slot_bytes=0: must be a multiple of 32 up to"),
        ({"slot_bytes": 40}, CapacityError, "slot_bytes=40: must be a multiple of 32"),
        ({"slot_bytes": 1 << 20}, CapacityError, "slot_bytes=1048576: .* rings of 4 slots"),
        ({"slots": 1000}, CapacityError, "slots=1000: the managed area has room for [0-9]+, of 32 bytes"),
        ({"channels_max": 5}, CapacityError, "channels_max=5: must be 1 to 4"),
        ({"channels_max": 0}, CapacityError, "channels_max=0: must be 1 to 4"),
        ({"managed_offset": 16}, ConfigError, "managed_offset=16: must be a multiple of 32"),
        ({"field_offset": -32}, ConfigError, "field_offset=-32: must be a multiple of 32 and not negative"),
        ({"managed_offset": 65536}, CapacityError, "slots=4: the managed area has room from 65536 on for 0"),
        ({"field_offset": 4096}, CapacityError, "fields end at 4608, the area at 4096"),
    ],
)
def test_layout_that_does_not_fit(arguments: dict[str, int], kind: type[ConfigError], message: str) -> None:
    """Rings and fields that do not fit their areas, or sizes without sense, are refused with the limit named."""
    with pytest.raises(kind, match=message):
        SendRecv(make_pod(), **arguments)  # type: ignore[arg-type]


def test_two_communicators_share_a_pod() -> None:
    """A second communicator behind the first, with offsets from its layout, has rings and fields of its own."""
    pod = make_pod()
    one = SendRecv(pod, slots=2, slot_bytes=64)
    two = SendRecv(pod, managed_offset=one.layout.managed_end, field_offset=one.layout.meta_end)
    first, second = place(pod, 0, 1, 900), place(pod, 0, 1, 900, 1)
    assert first.sent_by(one)
    two.send(second.source, 1, event_id=2)
    with pytest.raises(DeadlockError):
        two.run()
    two.reset()
    assert works(one)
    assert works(two)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_no_two_fields_or_rings_overlap(dies: int, cores: int, slots: int) -> None:
    """Every field, and every slot of every channel of every pair, has bytes of its own inside its area."""
    pod = Pod(small_pod(dies, cores))
    layout = SendRecv(pod, slots=slots, slot_bytes=64).layout
    channels = [(s, t, channel) for s in range(dies) for t in range(dies) for channel in range(cores)]
    fields = [place(*channel) for place in (layout.tail, layout.ack) for channel in channels]
    assert len(set(fields)) == len(fields)
    assert all(0 <= f % pod.spec.die_bytes - pod.spec.meta_start < pod.spec.meta_bytes for f in fields)
    slot_starts = [layout.ring(*channel) + slot * 64 for channel in channels for slot in range(slots)]
    assert len(set(slot_starts)) == len(slot_starts)
    assert all(pod.spec.managed_start <= a % pod.spec.die_bytes <= pod.spec.die_bytes - 64 for a in slot_starts)
    for source, target, channel in channels:
        assert layout.ack(source, target, channel) // pod.spec.die_bytes == source
        assert layout.tail(source, target, channel) // pod.spec.die_bytes == target


NO_NUMBERS = (1.0, "1", None, True, np.float64(1), [1], np.array([1, 2]), 1j)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
@pytest.mark.parametrize("name", ["cores", "event_id", "target_die"])
@pytest.mark.parametrize("call", ["send", "isend", "exchange", "transfer"])
def test_what_is_no_number_is_refused_at_once(call: str, name: str, value: object) -> None:
    """When the call is queued, by its name; nothing stays open, so that the next run is as if it had not been."""
    comm, sent = one_way(64, {})
    arguments: dict[str, object] = {"source": sent.source, "target_die": 1, "event_id": 1, "cores": 1}
    if call == "exchange":
        arguments |= {"target": comm.pod.alloc(0, 8), "source_die": 1}
    if call == "transfer":
        del arguments["target_die"]
        arguments["target"] = sent.target
        name = "recv_event_id" if name == "target_die" else name
    if name == "recv_event_id" and value is None:  # the same as the sender's
        return
    with pytest.raises(ConfigError, match=r"must be a whole number"):
        getattr(comm, call)(**arguments | {name: value})
    assert comm.handles == []
    assert comm.run().actions == 0
    comm.send(sent.source, 1, event_id=1, cores=1)  # the pair is free


@pytest.mark.parametrize("of", [np.int8, np.uint8, np.int64, np.uint64])
def test_numpy_integers_are_integers(of: Callable[[int], object]) -> None:
    """Small and unsigned ones too, in every place; what comes of them is Python's, which does not overflow."""
    pod = make_pod()
    comm = SendRecv(pod, slots=of(4), slot_bytes=of(64), channels_max=of(3))  # type: ignore[arg-type]
    sent = place(pod, of(0), of(1), 3000)  # type: ignore[arg-type]
    assert sent.sent_by(comm, event_id=of(127), cores=of(3))
    mine = comm.isend(sent.source, of(1), event_id=of(1), cores=of(2))  # type: ignore[arg-type]
    comm.irecv(sent.target, of(0), event_id=of(1), cores=of(2)).wait()  # type: ignore[arg-type]
    assert mine.test()


@pytest.mark.parametrize("given", [None, 5, "target", (0, 0, 8), np.zeros(4)], ids=repr)
def test_what_is_no_buffer_is_refused(given: object) -> None:
    """By every call that takes one, and by the pod."""
    pod = make_pod()
    comm = SendRecv(pod)
    source = pod.alloc(0, 8)
    calls: list[Callable[[], object]] = [
        lambda: comm.transfer(given, source, event_id=1), lambda: comm.transfer(source, given, event_id=1),
        lambda: comm.send(given, 1, event_id=1), lambda: comm.irecv(given, 1, event_id=1), lambda: pod.view(given),
        lambda: comm.exchange(source, 1, given, 1, event_id=1), lambda: pod.grant(given, "r"),
    ]  # type: ignore[arg-type]  # fmt: skip
    for call in calls:
        with pytest.raises(ConfigError, match="must be a Buffer"):
            call()
