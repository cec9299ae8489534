"""Exchanges (one core sends and receives in turn), and several payloads back to back in one run."""

import gc
import weakref
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.base.errors import CapacityError, ConfigError, DeadlockError, EventMismatchError, PayloadMismatchError
from xccl_emu.kernels import sendrecv as device
from xccl_emu.machine.pod import ORDERS, POLICIES, Buffer
from xccl_emu.protocol import Bench
from xccl_emu.protocol.streams import Streams
from xccl_emu.protocols.sendrecv.session import SendRecv

from .sendrecv_support import Sent, Setting, both_ways, communicator, one_way, place, settings_of_pods, sizes
from .test_sendrecv_errors import recovers


@dataclass(frozen=True)
class Turn:
    """One turn of the wheel: what each die sends to the die behind it."""

    nbytes: list[int]
    cores: int
    path: str


def queue_ring(comm: SendRecv, sent: list[Sent], cores: int, path: str, event: int = 0) -> None:
    """Each die's exchange: to the die that its payload is for, from the die before it."""
    for s, before in zip(sent, [sent[-1], *sent[:-1]], strict=True):
        comm.exchange(
            s.source, s.target.die, before.target, before.source.die, event_id=event + s.source.die,
            recv_event_id=event + before.source.die, cores=cores, path=path,
        )  # fmt: skip


@st.composite
def turns(draw, setting: Setting) -> list[Turn]:
    """Up to three turns with payloads of any sizes."""
    one = st.builds(
        Turn,
        st.lists(sizes, min_size=setting.dies, max_size=setting.dies),
        st.integers(1, setting.cores),
        st.sampled_from(["mtu", "dma"]),
    )
    return draw(st.lists(one, min_size=1, max_size=3))


@given(st.data(), settings_of_pods)
def test_payloads_go_around_a_ring_of_dies(data, setting: Setting) -> None:
    """Every die sends to the next and receives from the one before on the same cores, payloads of different sizes and
    larger than the ring among them, again and again: they arrive, and no other byte of the app data areas changes.  One
    die alone exchanges with itself, two with each other."""
    pod, comm = setting.make()
    for i, turn in enumerate(data.draw(turns(setting))):
        sent = [place(pod, die, (die + 1) % setting.dies, n, i) for die, n in enumerate(turn.nbytes)]
        queue_ring(comm, sent, turn.cores, turn.path, i)
        comm.run()
        assert all(s.arrived() for s in sent)


@pytest.mark.nojit
@pytest.mark.boundscheck
@pytest.mark.parametrize("path", ["mtu", "dma"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("policy", POLICIES)
def test_tiny_exchange(path: str, order: str, policy: str) -> None:
    """Seven chunks one way and three the other through rings of two slots, on one core a die, also with the JIT off."""
    comm = communicator(2, 1, order, policy, ub_bytes=64)
    sent = both_ways(comm, 200, 90)
    queue_ring(comm, sent, 1, path)
    comm.run()
    assert all(s.arrived() for s in sent)


@given(settings_of_pods, sizes, sizes, st.lists(st.sampled_from(["mtu", "dma"]), min_size=3, max_size=3))
def test_an_exchange_meets_a_send_and_a_receive(setting: Setting, there: int, back: int, paths: list[str]) -> None:
    """The other sides of an exchange may have cores and paths of their own."""
    if setting.dies == 1:
        return
    comm = setting.make()[1]
    sent = both_ways(comm, there, back)
    comm.exchange(sent[0].source, 1, sent[1].target, 1, event_id=1, recv_event_id=2, cores=1, path=paths[0])
    comm.send(sent[1].source, 0, event_id=2, cores=1, path=paths[1])
    comm.recv(sent[0].target, 0, event_id=1, cores=1, path=paths[2])
    comm.run()
    assert all(s.arrived() for s in sent)


@given(settings_of_pods, st.integers(1, 700), st.integers(1, 4), st.sampled_from(["mtu", "dma"]), st.integers(1, 3))
def test_payloads_back_to_back(setting: Setting, nbytes: int, rounds: int, path: str, cores: int) -> None:
    """Several payloads of any size in one run arrive, both ways at once, in launches one behind the other."""
    pod, comm = setting.make()
    last = setting.dies - 1
    cores = min(cores, setting.cores // 2)
    ways = [(0, last), (last, 0)][: 2 if last else 1]
    sent = [place(pod, *way, nbytes, 2 * r + i) for r in range(rounds) for i, way in enumerate(ways)]
    streams = Streams(Bench.around(pod), pod)
    for r in range(rounds):
        for s in sent[r * len(ways) : (r + 1) * len(ways)]:
            comm.transfer(s.source, s.target, event_id=3 + r, cores=cores, path=path)
        comm.launch(streams)
    streams.put()
    pod.run()
    assert all(s.arrived() for s in sent)


@pytest.mark.nojit
@pytest.mark.parametrize("path", ["mtu", "dma"])
def test_launched_calls_run_to_their_end(path: str) -> None:
    """`launch` puts sync and asynchronous calls on cores, those that began too, and the pod's own run completes them;
    the communicator then waits for its reset."""
    comm, sent = one_way(dies=3, cores=2, ub_bytes=64)
    plain = place(comm.pod, 1, 2, 90, 1)
    mine = comm.isend(sent.source, 1, event_id=1, cores=1, path=path)
    mine.test()
    comm.irecv(sent.target, 0, event_id=1, cores=1, path=path)
    comm.transfer(plain.source, plain.target, event_id=2, cores=1, path=path)
    comm.launch()
    comm.pod.run()
    assert sent.arrived()
    assert plain.arrived()
    with pytest.raises(ConfigError, match=r"call reset\(\)"):
        comm.launch()
    comm.reset()
    assert place(comm.pod, 0, 1, 300, 3).sent_by(comm, event_id=4, cores=1)


def test_nothing_keeps_a_pod_alive() -> None:
    """A pod goes when the last name for it goes, without the garbage collector: two of 48 TiB fit the address space."""
    gc.disable()
    try:
        comm, sent = one_way(100)
        assert sent.sent_by(comm)
        gone = weakref.ref(comm.pod)
        del comm, sent
        assert gone() is None
    finally:
        gc.enable()


# ---- errors


@pytest.mark.nojit
@pytest.mark.parametrize("path", ["mtu", "dma"])
def test_wrong_event_id_of_an_exchange(path: str) -> None:
    """A wrong event ID stops the run, names the receive that saw it, and leaves its target as it was."""
    comm = communicator()
    sent = both_ways(comm)
    for own, other, expected in ((sent[0], sent[1], 1), (sent[1], sent[0], 9)):
        die = other.source.die
        comm.exchange(own.source, die, other.target, die, event_id=own.source.die, recv_event_id=expected, path=path)
    with pytest.raises(EventMismatchError, match=r"receive of 300 bytes.*event ID 9: the other side has event ID 0"):
        comm.run()
    assert sent[0].untouched()
    assert recovers(comm)


def test_payloads_of_an_exchange_do_not_fit() -> None:
    """A payload of another size than the exchange expects stops the run before anything reaches its target."""
    comm = communicator()
    sent = both_ways(comm)
    comm.exchange(sent[0].source, 1, sent[1].target, 1, event_id=1)
    comm.recv(sent[0].target, 0, event_id=1)
    comm.send(Buffer(1, sent[1].source.address, 199), 0, event_id=1)
    with pytest.raises(PayloadMismatchError, match=r"receive of 200 bytes.*the other side has 199 bytes on 2 cores"):
        comm.run()
    assert sent[1].untouched()
    assert recovers(comm)


def test_the_other_die_never_comes() -> None:
    """An exchange alone is a deadlock that names both of its sides."""
    comm = communicator()
    sent = both_ways(comm)
    comm.exchange(sent[0].source, 1, sent[1].target, 1, event_id=1)
    with pytest.raises(DeadlockError) as caught:
        comm.run()
    missing = (
        "no matching recv was posted for the send of 300 bytes from die 0 to die 1",
        "no matching send was posted for the receive of 200 bytes from die 1 to die 0",
    )
    for what in missing:
        assert what in str(caught.value)
    assert recovers(comm)


def test_all_out_before_anything_in_would_fill_the_rings() -> None:
    """What the exchange avoids: both dies send more chunks than slots on their only core before they receive."""
    comm = communicator(2, 1, ub_bytes=64)
    for s in both_ways(comm, 96, 96):
        comm.send(s.source, s.target.die, event_id=1, cores=1)
    with pytest.raises(DeadlockError, match="slot free"):
        comm.run()


def test_refused_exchanges_leave_nothing_queued() -> None:
    """Buffers on two dies, zero-copy, a busy pair, an overlap, too many cores: refused by name, neither side stays."""
    comm = communicator(rings={})
    s, back = both_ways(comm, 300, 300)
    refused: list[tuple[dict[str, object], type[ConfigError], str]] = [
        ({"target": s.target}, ConfigError, "target: must be on the die of the source, 0, and is on die 1"),
        ({"path": "zero-copy"}, ConfigError, "path='zero-copy': must be one of mtu, dma"),
        ({"target": s.source}, ConfigError, "overlaps"),
        ({"cores": 5}, CapacityError, "cores=5"),
        ({"source_die": 7}, ConfigError, "source die 7"),
        ({"recv_event_id": "x"}, ConfigError, "event_id='x': must be a whole number"),
        ({"target": Buffer(0, comm.pod.meta(0), 8)}, ConfigError, "inside of the app data area"),
    ]
    right = {"source": s.source, "target_die": 1, "target": back.target, "source_die": 1, "event_id": 1}
    for change, kind, message in refused:
        with pytest.raises(kind, match=message):
            comm.exchange(**right | change)
        assert comm.run().actions == 0
    comm.exchange(s.source, 1, back.target, 1, event_id=1, cores=3)
    with pytest.raises(ConfigError, match="there is already a send of 300 bytes from die 0 to die 1"):
        comm.exchange(s.source, 1, back.target, 1, event_id=1)
    with pytest.raises(CapacityError, match="cores=2: only 1 of die 0 are left"):
        comm.send(s.source, 0, event_id=1)
    comm.exchange(back.source, 0, s.target, 0, event_id=1, cores=3)
    comm.run()
    assert s.arrived()
    assert back.arrived()


# ---- what the kernels are made of


def test_an_exchange_is_made_of_the_parts_of_send_and_receive() -> None:
    """Every request of the exchange but its own three is a line of a subroutine that send or recv uses too."""
    lines = {(site.file, site.line) for kernel in (device.send, device.recv) for site in kernel.sites}
    own = [site.sync for site in device.exchange.sites if (site.file, site.line) not in lines]
    assert own == ["ack line", "ring address", "all acknowledged"]


def test_each_channel_may_touch_its_own_part_alone() -> None:
    """No two channels of a side may touch a byte in common, and each may write only its field, and its slots or
    target."""
    comm, sent = one_way(32 * 11, ub_bytes=64)
    comm.transfer(sent.source, sent.target, event_id=1, cores=3)
    comm.launch()
    per_core = [comm.pod.grants_of(core) for core in comm.pod.active_cores()]
    for side in (per_core[: len(per_core) // 2], per_core[len(per_core) // 2 :]):
        windows = [(grant.die, grant.start, grant.end) for grants in side for grant in grants]
        for i, (die, start, end) in enumerate(windows):
            assert all(d != die or e <= start or end <= s for d, s, e in windows[i + 1 :])
    nbytes = [sum(g.end - g.start for g in grants if "w" in g.rights) for grants in per_core]
    parts = [128, 128, 96]
    assert nbytes == [32 + 64] * len(parts) + [32 + part for part in parts]
