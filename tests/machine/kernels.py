"""Kernels and pods that several tests of the machine run."""



from xccl_emu.base.errors import AccessError, DeadlockError, ProtocolError, RunError
from xccl_emu.lang import (
    add,
    dma,
    fail,
    kernel,
    mtu_in,
    mtu_out,
    poll_eq,
    poll_ge,
    quiet,
    set_flag,
    store,
    ub_load,
    ub_store,
    wait_flag,
)
from xccl_emu.lang.requests import DMA, MTU_IN, MTU_OUT, SCALAR, VECTOR
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod


@kernel
def ring(mine, right, left_flag, right_flag, rounds):
    """Pass a block of 64 bytes to the right neighbour in each round, adding 1 to its first word."""
    for i in range(rounds):
        yield mtu_in(mine, 0, 64)
        yield set_flag(MTU_IN, SCALAR, 0)
        yield wait_flag(MTU_IN, SCALAR, 0)
        word = yield ub_load(0, 8)
        yield ub_store(0, word + 1, 8)
        yield mtu_out(0, right + 64 * (i & 1), 64)
        yield quiet(sync="publish")
        yield store(right_flag, i + 1)
        yield poll_ge(left_flag, i + 1, step=3, sync="arrival")
        mine = right - right + mine
    return rounds


@kernel
def broken(flag, how):
    """End in a deadlock (0), a bad address (1), a protocol error (2) or an event set twice by a pipe (3)."""
    yield store(flag + 32, 7)
    yield quiet()
    if how == 0:
        yield poll_eq(flag + 32, 8, step=4)
    elif how == 1:
        yield mtu_in(-64, 0, 32)
    elif how == 2:
        yield fail(17, 4)
    else:
        yield set_flag(VECTOR, MTU_OUT, 1)
        yield set_flag(VECTOR, MTU_OUT, 1)
        yield poll_eq(flag, 1)


@kernel
def finish_early(flag):
    """Work whose first request can be switched off by name."""
    yield poll_eq(flag, 1, sync="first")
    yield store(flag, 9)


@kernel
def wait_for(flag, value):
    """Wait for a value that nobody may ever write."""
    yield poll_eq(flag, value)


@kernel
def copy_far(source, target, nbytes):
    """Copy by DMA, then add 1 to a word behind the copy."""
    yield dma(source, target, nbytes, 0)
    yield wait_flag(DMA, SCALAR, 0)
    yield add(target + nbytes, 1)


BROKEN: dict[int, type[RunError]] = {0: DeadlockError, 1: AccessError, 2: ProtocolError, 3: RunError}


def ring_pod(dies: int, order: str, policy: str, seed: int = 0, record: bool = False, rounds: int = 3) -> Pod:
    """A pod with the ring launched."""
    pod = Pod(small_pod(dies), order=order, policy=policy, seed=seed, record=record)
    launch_ring(pod, rounds)
    return pod


def launch_ring(pod: Pod, rounds: int = 3) -> None:
    """Launch the ring on every die."""
    dies = pod.spec.n_dies
    for die in range(dies):
        right = (die + 1) % dies
        pod.memory[pod.meta(die, 512)] = die
        args = {
            "mine": pod.meta(die, 512),
            "right": pod.meta(right, 64),
            "left_flag": pod.meta(die),
            "right_flag": pod.meta(right),
            "rounds": rounds,
        }
        pod.launch(ring, die, [0], args, [pod.grant_meta("rw")])


def launch_changed(pod: Pod, **changes: object) -> None:
    """Launch `wait_for` on two cores of die 0, with some of the arguments of the launch changed."""
    call: dict[str, object] = {
        "kernel": wait_for,
        "die": 0,
        "cores": [0, 1],
        "args": {"flag": pod.meta(0), "value": 0},
        "grants": [pod.grant_meta("r")],
    }
    pod.launch(**(call | changes))  # type: ignore[arg-type]
