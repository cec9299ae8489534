"""What single instructions take, worked out by hand."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from xccl_emu.base.errors import ConfigError, DeadlockError
from xccl_emu.lang import Kernel
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.timing.critical import breakdown, critical_path
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.run import VirtualTime

from .support import COSTS, ROUND, copy_by_dma, meet, timed_pod, wait_for, write_far, write_fenced, write_often

WRITE_US, READ_US = (0.2, 2.0, 4.0, 6.0), (0.1, 1.0, 3.0, 5.0)
WRITE_NS_A_BYTE = (0.001, 0.02, 0.1, 0.5)
TARGETS = pytest.mark.parametrize(("path", "target"), [(0, 0), (1, 1), (2, 3), (3, 5)])


def launch_write(pod: Pod, die: int, nbytes: int, kernel: Kernel = write_far, **more: int) -> Buffer:
    """Die 0 writes a block to a die, and a flag."""
    block = pod.alloc(die, nbytes)
    args = {"target": block.address, "nbytes": nbytes, "flag": pod.meta(die), **more}
    pod.launch(kernel, 0, [0], args, [pod.grant(block, "w"), pod.grant_meta("w", die)])
    return block


def launch_wait(pod: Pod, block: Buffer) -> None:
    """The block's die waits for its flag, and reads it."""
    args = {"flag": pod.meta(block.die), "source": block.address, "nbytes": block.nbytes}
    pod.launch(wait_for, block.die, [0], args, [pod.grant(block, "r"), pod.grant_meta("r", block.die)])


def launch_often(pod: Pod, die: int, target: int, nbytes: int, times: int) -> None:
    """A die writes to a block of another one, again and again."""
    block = pod.alloc(target, nbytes)
    args = {"target": block.address, "nbytes": nbytes, "times": times}
    pod.launch(write_often, die, [0], args, [pod.grant(block, "w")])


@pytest.mark.nojit
@TARGETS
def test_a_write_and_its_quiet(path: int, target: int) -> None:
    """A write is visible after its start, its bytes at the path's rate, and the path's latency; then the quiet ends."""
    pod, policy = timed_pod(6)
    launch_write(pod, target, 1024)
    pod.run()
    issue, start = 0.001, 0.02
    wire = max(1024 * WRITE_NS_A_BYTE[path], 1024 / 1000) / 1000
    visible = issue + start + wire + WRITE_US[path]
    flag_gone = visible + 0.05 + issue + start + max(32 * WRITE_NS_A_BYTE[path], 0.032) / 1000
    returned = flag_gone + WRITE_US[path]  # a kernel returns when all it wrote is visible
    assert policy.timing.latency_us == pytest.approx(returned, abs=1e-5)


@pytest.mark.nojit
@TARGETS
@pytest.mark.parametrize("by_store", [0, 1])
def test_a_flag_behind_a_fence_pays_the_latency_once(path: int, target: int, by_store: int) -> None:
    """Nothing waits for the block: the flag leaves right behind it, by mtu-out or by a store, and arrives behind it."""
    pod, policy = timed_pod(6)
    launch_write(pod, target, 1024, write_fenced, by_store=by_store)
    pod.run()
    issue, start, access = 0.001, 0.02, 0.01
    left = issue + start + max(1024 * WRITE_NS_A_BYTE[path], 1024 / 1000) / 1000
    flag_left = issue + access if by_store else start + max(32 * WRITE_NS_A_BYTE[path], 0.032) / 1000
    assert policy.timing.latency_us == pytest.approx(left + flag_left + WRITE_US[path], abs=1e-5)


@pytest.mark.nojit
@TARGETS
@pytest.mark.parametrize("kernel", [write_far, write_fenced])
def test_acknowledgements_are_waited_for(path: int, target: int, kernel: Kernel) -> None:
    """A quiet, a fence where writes have no order, and a return wait for the way back, of half the latency here."""
    costs = replace(COSTS, ack_share=0.5, fence_ns=30)
    pod = Pod(small_pod(6), policy=VirtualTime(replace(ROUND, ordered=False), costs, log=True))
    launch_write(pod, target, 1024, kernel, **({"by_store": 0} if kernel is write_fenced else {}))
    pod.run()
    issue, start, back = 0.001, 0.02, 1.5 * WRITE_US[path]
    acked = issue + start + max(1024 * WRITE_NS_A_BYTE[path], 1024 / 1000) / 1000 + back
    then = 0.03 if kernel is write_fenced else 0.05 + issue
    flag_left = start + max(32 * WRITE_NS_A_BYTE[path], 0.032) / 1000
    assert pod.policy.timing.latency_us == pytest.approx(acked + then + flag_left + back, abs=1e-5)


@pytest.mark.nojit
def test_a_poll_sees_a_flag_when_it_is_visible() -> None:
    """A poller goes on a poll's time after the flag is visible, although the machine had it earlier; then it reads."""
    pod, policy = timed_pod(6)
    launch_wait(pod, launch_write(pod, 5, 64))
    pod.run()
    writer, reader = (policy.timing.finished_us[core] for core in (0, 5))
    issue, start, event = 0.001, 0.02, 0.005
    read = issue + start + 0.000064 + READ_US[0]  # set_flag and wait_flag are issued meanwhile
    assert reader == pytest.approx(writer + 0.1 + read + issue + event, abs=1e-5)


def test_dma() -> None:
    """A copy takes ringing, two round trips, and bytes; its event says that it is visible."""
    pod, policy = timed_pod(6)
    source, target = pod.alloc(0, 4096), pod.alloc(4, 4096)
    pod.view(source)[:] = np.arange(4096) % 251
    args = {"source": source.address, "target": target.address, "nbytes": 4096}
    pod.launch(copy_by_dma, 0, [0], args, [pod.grant(source, "r"), pod.grant(target, "w")])
    pod.run()
    expected = 0.03 + 2 * 5.0 + 4096 * 0.5 / 1000 + 0.001 + 0.005
    assert policy.timing.latency_us == pytest.approx(expected, abs=1e-5)
    assert (pod.view(target) == pod.view(source)).all()


@pytest.mark.parametrize("senders", [1, 2, 3])
def test_senders_to_one_die_share_its_ingress(senders: int) -> None:
    """Writes of several dies to one take as many times as long as those of one."""
    pod, policy = timed_pod(8)
    for die in range(senders):
        launch_often(pod, die, 7, 2048, 4)
    pod.run()
    wire = senders * 4 * 2048 * 0.5 / 1000
    assert policy.timing.latency_us == pytest.approx(wire + 6.0, rel=0.01)


def test_barrier() -> None:
    """All cores of a group leave a barrier together, its cost after the last one came."""
    pod, policy = timed_pod(1, 3, start_us={1: 5.0})
    pod.launch(meet, 0, range(3), {}, [])
    pod.run()
    once = 0.001 + COSTS.barrier_us(WRITE_US[0]) + 0.001
    assert policy.timing.finished_us == {core: pytest.approx(5.0 + 2 * once, abs=1e-5) for core in range(3)}


def test_a_core_alone_has_nobody_to_wait_for() -> None:
    """A barrier of one core takes no more than its instructions."""
    pod, policy = timed_pod(1, 1)
    pod.launch(meet, 0, [0], {}, [])
    pod.run()
    assert policy.timing.latency_us == pytest.approx(2 * 0.002, abs=1e-5)


def test_critical_path_adds_up() -> None:
    """The parts of the critical path follow each other without a gap from 0 to the end, and name what they wait for."""
    pod, policy = timed_pod(6, start_us={0: 2.0})
    launch_wait(pod, launch_write(pod, 5, 64))
    pod.run()
    parts = critical_path(policy.timing)
    assert parts[0].start_us == 0.0
    assert parts[-1].end_us == policy.timing.latency_us
    assert all(one.end_us == other.start_us for one, other in itertools.pairwise(parts))
    spent = breakdown(policy.timing)
    assert sum(spent.values()) == pytest.approx(policy.timing.latency_us)
    assert spent["skew"] == 2.0
    assert spent["polling"] == pytest.approx(0.1)
    assert spent["quiet"] == pytest.approx(0.05)
    assert spent["latency"] == pytest.approx(6.0 + 6.0 + 0.1)  # data, flag, and the read in the end


def test_deadlock_is_reported() -> None:
    """A run in which nobody can go on ends with the machine's deadlock report, not with a time."""
    pod, policy = timed_pod(2)
    launch_wait(pod, pod.alloc(1, 64))
    with pytest.raises(DeadlockError, match="wants >= 1"):
        pod.run()
    with pytest.raises(ConfigError, match="nothing was run yet"):
        _ = policy.timing


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"order": "relaxed"}, "order='relaxed'"),
        ({"record": True}, "record=True"),
    ],
)
def test_what_cannot_be_timed(options: dict[str, object], reason: str) -> None:
    """A weak memory order or a recorded schedule is refused."""
    pod = Pod(small_pod(1), policy=VirtualTime(ROUND, COSTS), **options)  # type: ignore[arg-type]
    launch_often(pod, 0, 0, 32, 1)
    with pytest.raises(ConfigError, match=reason):
        pod.run()


def test_a_fabric_has_so_many_dies() -> None:
    """A die beyond the fabric's last node cannot be timed: nothing is known of its links."""
    policy = VirtualTime(replace(ROUND, nodes=1), COSTS)
    pod = Pod(small_pod(64), policy=policy)
    launch_often(pod, 63, 63, 32, 1)
    with pytest.raises(ConfigError, match="die 63 takes part"):
        pod.run()


def test_log_holds_every_action() -> None:
    """Each action of the machine is one record with times that do not run backwards."""
    pod, policy = timed_pod(1)
    launch_often(pod, 0, 0, 32, 20)
    pod.run()
    records = policy.timing.records
    # 20 writes, a flag set and awaited, and the return, on the scalar unit; 20 writes and a flag on mtu-out
    assert len(records) == 20 + 3 + 20 + 1
    assert (records[:, tl.RECORD_END] >= records[:, tl.RECORD_START]).all()
    assert (records[:, tl.RECORD_VISIBLE] >= records[:, tl.RECORD_END]).all()
