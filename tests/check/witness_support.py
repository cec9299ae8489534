"""What the tests of witnesses share: kernels that do everything, runs of them, and a judge without a monitor."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check.trial import Expected, Label, Trial
from xccl_emu.check.verdict import AREA_VIOLATION, DEADLOCK, WRONG_BITS, Violation
from xccl_emu.errors import DeadlockError, ReplayError, RunError
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
    poll_ge,
    put,
    quiet,
    set_flag,
    store,
    ub_load,
    ub_store,
    v_fill,
    wait_flag,
)
from xccl_emu.machine.device import layout as at
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.schedule import Schedule
from xccl_emu.machine.spec import small_pod


@kernel
def everything(own, other, me):
    """Uses every pipe, with another core that does the same; me is 0 or 1."""
    yield v_fill(0, 96, 7 + me)
    yield set_flag(VECTOR, MTU_OUT, 0, sync="filled")
    yield wait_flag(VECTOR, MTU_OUT, 0, sync="filled in")
    yield mtu_out(0, other + 80, 96, step=1)
    yield quiet(sync="data before flag")
    yield add(other, 1, step=2, sync="flag")
    yield poll_ge(own, 1, step=3, sync="flag in")
    yield mtu_in(own + 80, 96, 96, step=4)
    yield set_flag(MTU_IN, SCALAR, 1)
    yield wait_flag(MTU_IN, SCALAR, 1)
    seen = yield ub_load(96)
    yield ub_store(100, seen)
    yield dma(own + 84, own + 196, 40, 2, step=5)
    yield wait_flag(DMA, SCALAR, 2)
    yield store(own + 240, seen, 4)
    yield put(own + 32, 1, 1 << 40, 3)
    old = yield atomic_add(other + 8, 5)
    phase = yield arrive()
    yield await_group(phase)
    word = yield load(own + 240, 4)
    return word + old


@kernel
def relay(data, flag, target, rounds):
    """Die 0 writes two pieces and a flag, again and again; nothing tells it when they have been read."""
    for i in range(rounds):
        yield v_fill(0, 64, i + 1)
        yield set_flag(VECTOR, MTU_OUT, 0)
        yield wait_flag(VECTOR, MTU_OUT, 0)
        yield mtu_out(0, data, 64, step=1)
        yield quiet(step=2, sync="data before flag")
        yield put(flag, i + 1, step=2)


@kernel
def follow(data, flag, target, rounds):
    """Die 1 copies what each flag announces behind what it has."""
    for i in range(rounds):
        yield poll_ge(flag, i + 1, step=3, sync="flag in")
        yield mtu_in(data, 64 * (i % 2), 64, step=4)
        yield set_flag(MTU_IN, MTU_OUT, 0)
        yield wait_flag(MTU_IN, MTU_OUT, 0)
        yield mtu_out(64 * (i % 2), target + 64 * i, 64, step=5)
        yield quiet(sync="copied")


@dataclass(frozen=True)
class Everything:
    """`everything` on a core of each of two dies, or on two cores of one."""

    dies: int = 2
    name: str = "everything"
    configuration: Mapping[str, int | str] = field(default_factory=dict)

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """A fresh pod."""
        spec = small_pod(
            self.dies, 2, app_bytes=0, meta_bytes=1024, managed_bytes=0, ub_bytes=256, flight_pieces=16
        )
        pod = Pod(spec, order=order, without=without)
        areas = [pod.meta(0, 32), pod.meta(self.dies - 1, 512)]
        for me in range(2):
            args = {"own": areas[me], "other": areas[1 - me], "me": me}
            pod.launch(everything, me % self.dies, [me], args, [pod.grant_meta("rw")])
        labels = tuple(Label(f"area{me}", area, 256) for me, area in enumerate(areas))
        return Trial(pod, (), labels=labels)


@dataclass(frozen=True)
class Relay:
    """`relay` and `follow`: right for one round, wrong for more, and for one without its quiet."""

    rounds: int = 1
    forbidden: bool = False
    """The last bytes of the target may not be written."""

    @property
    def name(self) -> str:
        """For the file."""
        return "relay"

    @property
    def configuration(self) -> Mapping[str, int | str]:
        """For the file."""
        return {"rounds": self.rounds}

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """A fresh pod."""
        spec = small_pod(2, app_bytes=512, meta_bytes=32, managed_bytes=64, ub_bytes=128, flight_pieces=16)
        pod = Pod(spec, order=order, without=without)
        target = pod.alloc(1, 64 * self.rounds)
        args = {"data": pod.managed(1), "flag": pod.meta(1), "target": target.address, "rounds": self.rounds}
        grants = [pod.grant_meta("rw", 1), pod.grant_managed("rw", 1), self._room(pod, target)]
        for die, kernel_ in enumerate((relay, follow)):
            pod.launch(kernel_, die, [0], args, grants)
        data = b"".join(bytes([i + 1]) * 64 for i in range(self.rounds))
        labels = (Label("die1.meta.flag", pod.meta(1), 32), Label("die1.data", pod.managed(1), 64))
        return Trial(pod, (Expected("target", target.address, data, (1,)),), labels=labels)

    def _room(self, pod: Pod, target: Buffer) -> Grant:
        room = pod.grant(target, "w")
        return replace(room, end=room.end - self.forbidden)


def random_actions(trial: Trial, seed: int) -> NDArray[np.int64]:
    """The schedule of a random run, whether it ends well or in an error; the trial is used up."""
    pod = trial.pod
    pod.policy, pod.record = "random", True
    pod.state[at.RANDOM_1], pod.state[at.RANDOM_2] = seed + 1, seed + 1
    with suppress(RunError):
        pod.run()
    return pod.schedule.actions


def judge(trial: Trial, actions: NDArray[np.int64]) -> Violation | None:
    """What the machine itself notices, and wrong bits at the end."""
    pod = trial.pod
    try:
        pod.replay(Schedule(actions, pod.fingerprint()))
    except DeadlockError as error:
        return Violation(DEADLOCK, str(error), actions, "", 0)
    except ReplayError:
        return None
    except RunError as error:
        return Violation(AREA_VIOLATION, str(error), actions, "", 0)
    for expected in trial.expected:
        held = pod.memory[expected.address : expected.address + len(expected.data)].tobytes()
        if held != expected.data:
            return Violation(WRONG_BITS, f"wrong bits in {expected.name}", actions, "", 0)
    return None


def some_violation(checkable: Everything | Relay, order: str, without: Collection[str] = ()) -> Violation:
    """The first violation that random runs find."""
    for seed in range(300):
        actions = random_actions(checkable.build(order, without), seed)
        found = judge(checkable.build(order, without), actions)
        if found is not None:
            return found
    raise AssertionError(f"no violation of {checkable} under {order} without {without}")
