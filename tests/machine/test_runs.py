"""Policies, schedules and snapshots of a pod, and the pod at its true size."""

import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.base.errors import CapacityError, ConfigError, ReplayError
from xccl_emu.lang.kernel import Kernel
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.pod import POLICIES, Pod
from xccl_emu.machine.schedule import Schedule
from xccl_emu.machine.spec import CLOUDMATRIX384, PodSpec, small_pod

from .kernels import BROKEN, broken, copy_far, launch_changed, launch_ring, ring_pod, wait_for
from .support import ORDERS, tiny_pod

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
    kernels[1].sites = tuple(replace(site, sync="x") for site in wait_for.sites)
    for pod, one in zip(pods, kernels, strict=True):
        launch_changed(pod, kernel=one, cores=[0])
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


# ---- the pod at its true size


def test_the_whole_supernode_takes_little_memory() -> None:
    """On 768 dies of 64 GB a copy from the first die's end to the last one's commits only what it touches."""
    spec: PodSpec = CLOUDMATRIX384
    assert (spec.n_dies, spec.cores_per_die, spec.n_dies * spec.die_bytes) == (768, 48, 48 << 40)
    Pod(small_pod(1), order="relaxed", policy="random").run()  # what is compiled or loaded for a run does not count
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
