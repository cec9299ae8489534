"""What the tests of virtual time share: a fabric with round numbers, and kernels of a few instructions."""

from collections.abc import Collection

import numpy as np

from xccl_emu.lang import (
    DMA,
    MTU_IN,
    MTU_OUT,
    SCALAR,
    arrive,
    await_group,
    dma,
    fence,
    kernel,
    mtu_in,
    mtu_out,
    poll_ge,
    put,
    quiet,
    set_flag,
    store,
    wait_flag,
)
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.protocols.sendrecv.session import SendRecv
from xccl_emu.timing.costs import Costs
from xccl_emu.timing.fabric import Fabric, Path, Rate
from xccl_emu.timing.run import VirtualTime

ROUND = Fabric(
    name="round numbers",
    dies_per_chip=2,
    chips_per_node=2,
    ordered=True,
    paths=(
        Path("local", read=Rate(0.1, 1000.0), write=Rate(0.2, 1000.0)),
        Path("package", read=Rate(1.0, 100.0), write=Rate(2.0, 50.0)),
        Path("node", read=Rate(3.0, 20.0), write=Rate(4.0, 10.0)),
        Path("pod", read=Rate(5.0, 4.0), write=Rate(6.0, 2.0)),
    ),
)
"""Dies 0 and 1 share a chip, 0 to 3 a node."""

SPEC = small_pod(4, 3, app_bytes=1 << 20, managed_bytes=1 << 20, meta_bytes=1 << 16, ub_bytes=1 << 15)

COSTS = Costs(
    clock_ns=1.0, issue_cycles=1, load_ns=10, poll_ns=100, quiet_ns=50, fence_ns=0, ack_share=0, event_ns=5,
    launch_us=0.0, mtu_start_ns=20, core_gb_s=1000.0, vector_start_ns=10, vector_gelem_s=1.0,
    dma_start_us=7.0, dma_issue_ns=30, dma_less_us=0, dma_gb_s=1000.0,
)  # fmt: skip


@kernel
def write_far(target, nbytes, flag):
    """Write a block and, when it is visible, a flag."""
    yield mtu_out(0, target, nbytes, step=1, sync="data")
    yield quiet(step=2, sync="visible")
    yield put(flag, 1, step=3, sync="flag")


@kernel
def write_fenced(target, nbytes, flag, by_store):
    """Write a block and, behind a fence, a flag."""
    yield mtu_out(0, target, nbytes, step=1, sync="data")
    yield fence(step=2, sync="data before flag")
    if by_store:
        yield store(flag, 1, step=3, sync="flag")
    else:
        yield put(flag, 1, step=3, sync="flag")


@kernel
def wait_for(flag, source, nbytes):
    """Wait for a flag, then read a block."""
    yield poll_ge(flag, 1, step=4, sync="flag")
    yield mtu_in(source, 0, nbytes, step=5)
    yield set_flag(MTU_IN, SCALAR, 0, sync="read")
    yield wait_flag(MTU_IN, SCALAR, 0, sync="read")


@kernel
def copy_by_dma(source, target, nbytes):
    """Ring the DMA engine and wait."""
    yield dma(source, target, nbytes, 3)
    yield wait_flag(DMA, SCALAR, 3, sync="copied")


@kernel
def write_often(target, nbytes, times):
    """Write the same block several times."""
    for _ in range(times):
        yield mtu_out(0, target, nbytes)
    yield set_flag(MTU_OUT, SCALAR, 0, sync="left")
    yield wait_flag(MTU_OUT, SCALAR, 0, sync="left")


@kernel
def meet():
    """Meet the other cores of the group, twice."""
    phase = yield arrive()
    yield await_group(phase)
    phase = yield arrive()
    yield await_group(phase)


def timed_pod(dies: int, cores: int = 1, **options: object) -> tuple[Pod, VirtualTime]:
    """A pod whose runs are timed, by `ROUND` and `COSTS`, with a log."""
    policy = VirtualTime(ROUND, COSTS, log=True, **options)  # type: ignore[arg-type]
    return Pod(small_pod(dies, cores), policy=policy), policy


def transfer(
    nbytes: int, cores: int, log: bool | list[int] = False, far: bool = True, sites: Collection[str] = ()
) -> tuple[VirtualTime, Pod]:
    """A payload from die 0 to die 3 or 1, whose bytes are checked."""
    policy = VirtualTime(ROUND, COSTS, log=log, sites=sites)
    pod = Pod(SPEC, policy=policy)
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, dtype=np.uint8)
    target = pod.alloc(3 if far else 1, nbytes)
    comm = SendRecv(pod)
    comm.transfer(pod.put(0, data), target, event_id=1, cores=cores)
    comm.run()
    assert (pod.view(target) == data).all()
    return policy, pod
