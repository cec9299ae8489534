"""What the tests of witnesses share: kernels that do everything, runs of them, and a judge without a monitor."""

import io
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from rich.console import Console

from xccl_emu.base.errors import DeadlockError, ReplayError, RunError
from xccl_emu.check.sampling.sample import replay
from xccl_emu.check.trial import Checkable, Trial
from xccl_emu.check.verdict import AREA_VIOLATION, DEADLOCK, WRONG_BITS, Violation
from xccl_emu.check.witness.render import print_witness
from xccl_emu.check.witness.trace import RunTrace
from xccl_emu.check.witness.tracer import steps
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
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.schedule import Schedule
from xccl_emu.machine.spec import small_pod
from xccl_emu.testing import Bench, protocol


@kernel
def use_everything(own, other, me):
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
def hand_on(data, flag, target, rounds):
    """Die 0 writes two granules and a flag, again and again; nothing tells it when they have been read."""
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


@protocol
def everything(bench: Bench, dies: int = 2) -> None:
    """`use_everything` on a core of each of two dies, or on two cores of one."""
    pod = bench.pod(small_pod(dies, 2, app_bytes=0, meta_bytes=1024, managed_bytes=0, ub_bytes=256, flight_granules=16))
    areas = [pod.meta(0, 32), pod.meta(dies - 1, 512)]
    for me in range(2):
        args = {"own": areas[me], "other": areas[1 - me], "me": me}
        pod.launch(use_everything, me % dies, [me], args, [pod.grant_meta("rw")])
        bench.label(f"area{me}", areas[me], 256)


@protocol
def relay(bench: Bench, rounds: int = 1, forbidden: int = 0) -> None:
    """`hand_on` and `follow`: right for one round, wrong for more, for one without its quiet, and if the last
    ``forbidden`` bytes of the target may not be written."""
    pod = bench.pod(small_pod(2, app_bytes=512, meta_bytes=32, managed_bytes=64, ub_bytes=128, flight_granules=16))
    data = np.repeat(np.arange(1, rounds + 1, dtype=np.uint8), 64)
    target = bench.wanted(1, data, owners="die1")
    args = {"data": pod.managed(1), "flag": pod.meta(1), "target": target.address, "rounds": rounds}
    room = pod.grant(target, "w")
    grants = [pod.grant_meta("rw", 1), pod.grant_managed("rw", 1), replace(room, end=room.end - forbidden)]
    for die, each in enumerate((hand_on, follow)):
        pod.launch(each, die, [0], args, grants)
    bench.label("die1.meta.flag", pod.meta(1), 32)
    bench.label("die1.data", pod.managed(1), 64)


def random_actions(trial: Trial, seed: int) -> NDArray[np.int64]:
    """The schedule of a random run, whether it ends well or in an error; the trial is used up."""
    pod = trial.pod
    pod.policy, pod.record = "random", True
    pod.state[ms.RANDOM_1], pod.state[ms.RANDOM_2] = seed + 1, seed + 1
    with suppress(RunError):
        pod.run()
    return pod.schedule.actions


Run = tuple[Checkable, str, int]
RUNS = st.tuples(
    st.builds(everything, st.integers(1, 2)), st.sampled_from(("sc", "fifo", "relaxed")), st.integers(0, 1 << 20)
)
"""What `stepped` takes: what runs, in which order, and a seed."""


def stepped(
    checkable: Checkable, order: str, seed: int, without: Collection[str] = ()
) -> tuple[RunTrace, Pod, NDArray[np.int64]]:
    """A random run, step by step, the pod behind it, and its actions."""
    actions = random_actions(checkable.build(order, without), seed)
    trial = checkable.build(order, without)
    return steps(trial, actions.tolist()), trial.pod, actions


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
    wrong = trial.wrong_bytes()
    return Violation(WRONG_BITS, f"wrong bits in {[*wrong]}", actions, "", 0) if wrong else None


def some_violation(checkable: Checkable, order: str, without: Collection[str] = ()) -> Violation:
    """The first violation that random runs find."""
    for seed in range(300):
        actions = random_actions(checkable.build(order, without), seed)
        found = judge(checkable.build(order, without), actions)
        if found is not None:
            return found
    raise AssertionError(f"no violation of {checkable} under {order} without {without}")


def printed(trial: Trial, violation: Violation, width: int = 120) -> tuple[str, RunTrace]:
    """The table of a violation, and its steps."""
    out = io.StringIO()
    trace = print_witness(Console(file=out, width=width), trial, violation)
    return out.getvalue(), trace


def shows_again(trial: Trial, violation: Violation, actions: NDArray[np.int64] | None = None) -> bool:
    """Does a replay, of these actions if they are given, show the same as was found?"""
    again = replay(trial, violation.actions if actions is None else actions, violation.loop)
    return again is not None and (again.kind, again.message) == (violation.kind, violation.message)
