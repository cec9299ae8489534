"""Every payload that is sent arrives, bit for bit, and nothing else is touched."""

import ast
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError, DeadlockError, ProtocolError
from xccl_emu.kernels import sendrecv as device
from xccl_emu.lang import Kernel, Site
from xccl_emu.machine.pod import ORDERS, POLICIES, Pod
from xccl_emu.machine.spec import CLOUDMATRIX384
from xccl_emu.protocols.sendrecv.rings import PATHS, split
from xccl_emu.protocols.sendrecv.session import SendRecv

from .sendrecv_support import Setting, both_ways, communicator, one_way, payload, place, settings_of_pods, sizes

KERNELS = [value for value in vars(device).values() if isinstance(value, Kernel)]


@dataclass(frozen=True)
class Transfer:
    source: int
    target: int
    nbytes: int
    cores: int
    path: str
    event_id: int


@st.composite
def rounds(draw, setting: Setting) -> list[list[Transfer]]:
    """Up to three runs, each with transfers of different pairs, as many as the dies have cores for."""
    dies = st.integers(0, setting.dies - 1)
    result = []
    for _ in range(draw(st.integers(1, 3))):
        free = [setting.cores] * setting.dies
        chosen: list[Transfer] = []
        for source, target in draw(st.lists(st.tuples(dies, dies), min_size=1, max_size=6, unique=True)):
            most = free[source] // 2 if source == target else min(free[source], free[target])
            if most == 0:
                continue
            cores = draw(st.integers(1, most))
            free[source] -= cores
            free[target] -= cores
            path, event = draw(st.sampled_from(PATHS)), draw(st.integers(-(2**63), 2**63 - 1))
            chosen.append(Transfer(source, target, draw(sizes), cores, path, event))
        result.append(chosen)
    return result


@given(st.data(), settings_of_pods)
def test_transfers_of_any_shape_arrive(data, setting: Setting) -> None:
    """Several pairs at once, both directions, the own die, again and again on the same rings: payloads arrive, no other
    byte of the app data areas changes, in every memory order and policy."""
    pod, comm = setting.make()
    for run in data.draw(rounds(setting)):
        sent = [place(pod, t.source, t.target, t.nbytes, seed) for seed, t in enumerate(run)]
        for t, s in zip(run, sent, strict=True):
            comm.transfer(s.source, s.target, event_id=t.event_id, cores=t.cores, path=t.path)
        comm.run()
        assert all(s.arrived() for s in sent)


@pytest.mark.nojit
@pytest.mark.boundscheck
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("policy", POLICIES)
def test_tiny_transfer_arrives(path: str, order: str, policy: str) -> None:
    """Two transfers in opposite directions that each go around their ring arrive, also with the JIT off."""
    comm = communicator(2, 4, order, policy)
    sent = both_ways(comm, 230, 97)
    for s in sent:
        comm.transfer(s.source, s.target, event_id=1, cores=2, path=path)
    comm.run()
    assert all(s.arrived() for s in sent)


@pytest.mark.nojit
def test_generators_do_too() -> None:
    """The undecorated kernels, run as plain generators for a debugger, do what the lowered ones do."""
    import numba

    if not numba.config.DISABLE_JIT:
        pytest.skip("plain generators run only with the JIT off")
    comm, sent = one_way(200, generators=True)
    assert sent.sent_by(comm)


@given(st.sampled_from(["mtu", "dma"]), st.sampled_from(["mtu", "dma"]), sizes, settings_of_pods)
def test_each_side_chooses_its_path(mine: str, theirs: str, nbytes: int, setting: Setting) -> None:
    """A sender by the DMA engine and a receiver through the data buffer understand each other, and the reverse."""
    pod, comm = setting.make()
    last = setting.dies - 1
    sent = place(pod, 0, last, nbytes)
    comm.send(sent.source, last, event_id=9, cores=1, path=mine)
    comm.recv(sent.target, 0, event_id=9, cores=1, path=theirs)
    comm.run()
    assert sent.arrived()


@pytest.mark.parametrize("path", PATHS)
def test_repeated_transfers_stay_on_one_ring(path: str) -> None:
    """Ten transfers on one pair, with changing paths and core counts between them, keep the counts right."""
    comm = communicator(rings={"slots": 3, "slot_bytes": 32})
    for i in range(10):
        sent = place(comm.pod, 0, 1, 1 + 61 * i, i)
        assert sent.sent_by(comm, event_id=i, cores=1 + i % 4, path=path if i % 3 else "mtu")


@pytest.mark.nojit
@pytest.mark.parametrize("path", PATHS)
def test_a_snapshot_of_the_pod_holds_the_rings(path: str) -> None:
    """Transfers after a restore arrive, whether the snapshot is older or newer than what the rings did last."""
    comm = communicator()
    snapshots = [comm.pod.snapshot()]
    for i in range(2):
        assert _arrives(comm, i, path)
        snapshots.append(comm.pod.snapshot())
    for i in (1, 2, 0, 2):
        comm.pod.restore(snapshots[i])
        assert _arrives(comm, 7, path)
        assert _arrives(comm, 8, "mtu")


def test_another_communicator_goes_on_with_the_rings() -> None:
    """A communicator made anew over the same rings goes on where the first one stopped, also where that one failed."""
    pod = communicator().pod
    for i in range(3):
        comm = SendRecv(pod, slots=2, slot_bytes=32)
        assert _arrives(comm, i, "mtu")
        comm.send(place(pod, 0, 1, 300).source, 1, event_id=1, cores=1)
        with pytest.raises(DeadlockError):
            comm.run()
        pod.clear()


def _arrives(comm: SendRecv, seed: int, path: str) -> bool:
    return place(comm.pod, 0, 1, 200 + 30 * seed, seed).sent_by(comm, event_id=seed, path=path)


def test_memory_is_as_documented() -> None:
    """After one transfer and the next, slots, tail fields and ack fields hold what the kernel's table says."""
    comm = communicator(rings={"slots": 4, "slot_bytes": 64}, order="sc", policy="round-robin")
    pod, layout = comm.pod, comm.layout
    first, second = payload(192), payload(128, 1)
    for data, event in ((first, 5), (second, 6)):
        comm.transfer(pod.put(0, data), pod.alloc(1, data.size), event_id=event, cores=1)
        comm.run()
    ring = layout.ring(0, 1, 0)
    slots = pod.memory[ring : ring + 256]
    assert np.array_equal(slots, np.concatenate([second[64:], first[64:], second[:64]]))
    fields = [pod.memory[a : a + 32].view(np.int64).tolist() for a in (layout.tail(0, 1, 0), layout.ack(0, 1, 0))]
    assert fields == [[6, 1, 5, 128 * device.SHAPE_UNIT + 1], [6, 1, 5, ring]]


def test_zero_copy_leaves_the_rings_alone() -> None:
    """A zero-copy transfer writes nothing to the managed data areas, and gives the address of the ring back."""
    comm, sent = one_way(3000, {})
    assert sent.sent_by(comm, path="zero-copy")
    managed = comm.pod.managed(1)
    assert not comm.pod.memory[managed : managed + comm.pod.spec.managed_bytes].any()
    ack = comm.layout.ack(0, 1, 1)
    assert comm.pod.memory[ack + 24 : ack + 32].view(np.int64)[0] == comm.layout.ring(0, 1, 1)


@pytest.mark.parametrize(("path", "moved"), [("mtu", (2, 2, 0)), ("dma", (0, 0, 2)), ("zero-copy", (1, 1, 0))])
def test_bytes_go_through_the_right_pipes(path: str, moved: tuple[int, int, int]) -> None:
    """The DMA path bypasses the data buffers, and zero-copy moves each byte once instead of twice."""
    comm, sent = one_way(4096, {})
    comm.transfer(sent.source, sent.target, event_id=1, path=path)
    by_pipe = comm.run().bytes_by_pipe
    fields = by_pipe["mtu-out"] % 4096
    assert (by_pipe["mtu-in"], by_pipe["mtu-out"] - fields, by_pipe["dma"]) == tuple(4096 * n for n in moved)


def test_kernels_name_all_eight_steps() -> None:
    """Send and receive name the steps 1 to 8 between them, and no request in any kernel is without a step."""
    assert {site.step for k in (device.send, device.recv) for site in k.sites if site.step} == set(range(1, 9))
    assert [site.text for k in KERNELS for site in k.sites if site.step == 0] == []


def test_kernels_name_every_synchronization() -> None:
    """Each quiet, fence, flag, poll, addition and put of a field can be switched off by name, and a name means one
    thing in all kernels: requests of one operation on one field, or the two sides of an event between two pipes."""
    kinds = ("quiet", "fence", "set_flag", "wait_flag", "poll", "put", "add")
    unnamed = [site.text for k in KERNELS for site in k.sites if site.operation.startswith(kinds) and not site.sync]
    assert unnamed == []
    named = [site for k in KERNELS for site in k.sites if site.sync]
    meanings = {name: {_meaning(site) for site in named if site.sync == name} for name in {s.sync for s in named}}
    assert {name: of for name, of in meanings.items() if len(of) != 1} == {}


def _meaning(site: Site) -> tuple[str, ...]:
    """The operation of a request and what it acts on, as its source says it."""
    request = ast.parse(site.text.partition("yield ")[2], mode="eval").body
    assert isinstance(request, ast.Call)
    arguments = [ast.unparse(argument) for argument in request.args]
    if site.operation in ("set_flag", "wait_flag"):
        return ("event", *arguments[:2])
    return (site.operation, *arguments[:1])


@pytest.mark.parametrize("path", ["mtu", "dma"])
@pytest.mark.parametrize(("chunks", "ack_each", "acks"), [(4, False, 1), (4, True, 4), (5, False, 5)])
def test_a_payload_that_fits_the_ring_is_acknowledged_once(path: str, chunks: int, ack_each: bool, acks: int) -> None:
    """A larger one chunk by chunk, and so is any on request; a tail comes for each chunk."""
    comm, sent = one_way(64 * chunks, dict(slots=4, slot_bytes=64, ack_each=ack_each), policy="round-robin")
    comm.transfer(sent.source, sent.target, event_id=1, cores=1, path=path)
    instructions = comm.run().instructions
    assert (instructions["put"], instructions.get("add", 0)) == (chunks + 1, acks - 1)
    assert sent.arrived()


@pytest.mark.parametrize("order", ["sc", "relaxed"])
def test_slots_larger_than_half_a_data_buffer_are_for_dma(order: str) -> None:
    """The DMA engine takes slots of any size; through the data buffer such a ring cannot be used, which is refused."""
    comm, sent = one_way(5000, dict(slots=3, slot_bytes=1024, channels_max=1), order=order, ub_bytes=512)
    with pytest.raises(ConfigError, match="path='mtu': must be one of dma, zero-copy"):
        comm.transfer(sent.source, sent.target, event_id=1, cores=1)
    assert sent.sent_by(comm, cores=1, path="dma")


@pytest.mark.parametrize("given", [-1, 1, 7])
def test_a_tail_of_another_chunk_is_an_error(given: int) -> None:
    """The receiver checks the chunk ID: a field whose count is right and whose ID is not ends the run."""
    comm, sent = one_way(64, dict(slots=2, slot_bytes=64), policy="round-robin")
    comm.recv(sent.target, 0, event_id=1, cores=1)
    comm.launch()
    tail = comm.layout.tail(0, 1, 0)
    comm.pod.memory[tail : tail + 32].view(np.int64)[:] = 1, given, 1, 64 * device.SHAPE_UNIT + 1
    with pytest.raises(ProtocolError) as caught:
        comm.pod.run()
    assert (caught.value.code, caught.value.value) == (device.WRONG_CHUNK, given)
    assert sent.untouched()


def test_plain_loads_cannot_meet_a_put() -> None:
    """Every load of a field is named but those of the offer: the next put of that field waits for the sender's tail."""
    plain = {(k.name, site.text) for k in KERNELS for site in k.sites if site.operation == "load" and not site.sync}
    assert {name for name, _ in plain} == {"send_zero_copy"}
    assert all("ack + " in text for _, text in plain)


@given(sizes, st.integers(1, 48))
def test_split_covers_the_payload(nbytes: int, channels: int) -> None:
    """The channels' parts follow each other, begin at whole granules, differ by at most one granule, and cover every
    byte."""
    parts = split(nbytes, channels)
    ends = [part.start + part.nbytes for part in parts]
    assert [part.start for part in parts] == [0, *ends[:-1]]
    assert ends[-1] == nbytes
    assert all(part.start % 32 == 0 for part in parts if part.nbytes)
    granules = [-(-part.nbytes // 32) for part in parts]
    assert max(granules) - min(granules) <= 1


@pytest.mark.parametrize("path", ["mtu", "dma"])
def test_far_dies_with_all_cores_and_more_than_the_ring(path: str) -> None:
    """On the real pod 48 cores a side move a payload larger than the ring of the pair, between the outermost dies."""
    pod = Pod(CLOUDMATRIX384)
    comm = SendRecv(pod)
    data = payload(48 * comm.layout.channel_bytes + 12345)
    target = pod.alloc(767, data.size)
    comm.transfer(pod.put(0, data), target, event_id=1, cores=48, path=path)
    comm.run()
    assert np.array_equal(pod.view(target), data)


def permute_pod(cores: int, nbytes: int, order: str, path: str) -> None:
    """Every die of the pod sends to one and receives from another, all at once, twice."""
    pod = Pod(CLOUDMATRIX384, order=order)
    comm = SendRecv(pod)
    for seed in range(2):
        targets = np.random.default_rng(seed).permutation(768).tolist()
        sent = [place(pod, die, target, nbytes, die) for die, target in enumerate(targets)]
        for s in sent:
            comm.transfer(s.source, s.target, event_id=seed, cores=cores, path=path)
        comm.run()
        assert all(s.arrived() for s in sent)


@pytest.mark.parametrize("path", PATHS)
def test_all_dies_at_once(path: str) -> None:
    """On the pod's 768 dies a random permutation of transfers, 2 cores a side, arrives under relaxed order."""
    permute_pod(2, 20_000, "relaxed", path)


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_all_cores_at_once(order: str) -> None:
    """The same with all 36,864 cores of the pod: 24 send and 24 receive on each die."""
    permute_pod(24, 200_000, order, "mtu")
