"""Asynchronous send and receive: passes that never wait, and who refills the ring."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError, DeadlockError
from xccl_emu.kernels import sendrecv as device

from .sendrecv_support import Setting, communicator, one_way, place, settings_of_pods, sizes

PASSES = (device.isend, device.irecv)


def test_passes_never_poll() -> None:
    """None of the asynchronous kernels contains a poll, and each has other requests."""
    assert all(kernel.sites for kernel in PASSES)
    assert [site.text for kernel in PASSES for site in kernel.sites if site.operation.startswith("poll")] == []


@given(
    settings_of_pods,
    sizes,
    st.integers(1, 3),
    st.tuples(st.sampled_from(["mtu", "dma"]), st.sampled_from(["mtu", "dma"])),
    st.lists(st.booleans(), max_size=40),
)
def test_tests_in_any_sequence(
    setting: Setting, nbytes: int, cores: int, paths: tuple[str, str], turns: list[bool]
) -> None:
    """Whatever sequence of tests of the two sides is drawn, waits behind it complete both, and the payload arrives."""
    pod, comm = setting.make()
    last, cores = setting.dies - 1, min(cores, setting.cores // 2)
    sent = place(pod, 0, last, nbytes)
    mine = comm.isend(sent.source, last, event_id=4, cores=cores, path=paths[0])
    theirs = comm.irecv(sent.target, 0, event_id=4, cores=cores, path=paths[1])
    for turn in turns:
        (mine if turn else theirs).test()
    theirs.wait()
    assert sent.arrived()
    mine.wait()
    assert mine.done
    assert comm.handles == []


@pytest.mark.nojit
@pytest.mark.boundscheck
@pytest.mark.parametrize("path", ["mtu", "dma"])
def test_sides_take_turns_around_the_ring(path: str) -> None:
    """A sender fills the ring and gets no further until the receiver's pass; each side's test does its own part."""
    comm, sent = one_way(100, order="sc", policy="round-robin")
    mine = comm.isend(sent.source, 1, event_id=1, cores=1, path=path)
    theirs = comm.irecv(sent.target, 0, event_id=1, cores=1, path=path)
    seen = []
    for handle in (theirs, mine, mine, theirs, theirs, mine, theirs, mine):
        seen.append((handle.test(), handle.progress))
    assert seen == [
        (False, [0]), (False, [2]), (False, [2]), (False, [2]), (False, [2]), (False, [4]), (True, [4]), (True, [5]),
    ]  # fmt: skip
    assert sent.arrived()


def test_wait_without_the_other_side() -> None:
    """A wait whose other side is missing says so, loses nothing, and completes when the other side has started, also on
    a ring that was used before."""
    comm, before = one_way(100)
    assert before.sent_by(comm)
    sent = place(comm.pod, 0, 1, 1000)
    mine = comm.isend(sent.source, 1, event_id=1)
    with pytest.raises(DeadlockError, match=r"send of 1000 bytes from die 0 to die 1.*\[2, 2\] chunks"):
        mine.wait()
    assert sent.untouched()
    theirs = comm.irecv(sent.target, 0, event_id=1)
    mine.wait()
    assert theirs.test()
    assert sent.arrived()


@given(settings_of_pods, sizes, sizes)
def test_many_handles_at_once(setting: Setting, there: int, back: int) -> None:
    """Both directions at once, and again on the same rings with synchronous transfers in between."""
    pod, comm = setting.make()
    last = setting.dies - 1
    for turn in range(2):
        sent = [place(pod, 0, last, there, turn)] + ([place(pod, last, 0, back, turn)] if last else [])
        handles = []
        for s in sent:
            handles += [comm.isend(s.source, s.target.die, event_id=turn, cores=1)]
            handles += [comm.irecv(s.target, s.source.die, event_id=turn, cores=1)]
        for handle in handles:
            handle.wait()
        assert all(s.arrived() for s in sent)
        assert place(pod, 0, last, back, 7).sent_by(comm, event_id=turn, cores=1)


def test_a_run_leaves_handles_alone() -> None:
    """`run` carries out the synchronous calls only; an asynchronous one of another pair goes on afterwards."""
    comm, later = one_way(dies=3)
    now = place(comm.pod, 0, 2, 300, 1)
    mine, theirs = comm.isend(later.source, 1, event_id=1), comm.irecv(later.target, 0, event_id=1)
    mine.test()
    assert now.sent_by(comm, event_id=2)
    assert later.untouched()
    theirs.wait()
    assert later.arrived()
    assert mine in comm.handles


@pytest.mark.nojit
@pytest.mark.parametrize("path", ["mtu", "dma"])
def test_handles_go_on_from_a_snapshot(path: str) -> None:
    """Two handles that are taken back to a snapshot of the pod go on from there, as often as one likes."""
    comm, sent = one_way()
    mine = comm.isend(sent.source, 1, event_id=1, cores=2, path=path)
    theirs = comm.irecv(sent.target, 0, event_id=1, cores=2, path=path)
    mine.test()
    snapshot = comm.pod.snapshot()
    for _ in range(2):
        theirs.test()
        mine.test()
        comm.pod.restore(snapshot)
    assert sent.untouched()
    mine.wait()
    assert theirs.done
    assert sent.arrived()


def test_a_handle_cannot_go_back_before_its_call() -> None:
    """A handle whose pod was restored to a time before its call says so, moves nothing, and is dropped by reset."""
    comm = communicator()
    pod = comm.pod
    for _ in range(2):
        old = pod.snapshot()
        sent = place(pod, 0, 1, 300)
        assert sent.sent_by(comm)
        mine = comm.isend(sent.source, 1, event_id=1)
        mine.test()
        pod.restore(old)
        before = pod.digest()
        with pytest.raises(ConfigError, match=r"send of 300 bytes.*restored to a time when the call was not open"):
            mine.wait()
        assert pod.digest() == before
        comm.reset()
        assert place(pod, 0, 1, 300).sent_by(comm)
