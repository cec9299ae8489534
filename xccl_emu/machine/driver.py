"""Driving a run: a policy called slice by slice, its log collected, its end turned into statistics or an error.

It has the compiled side, policies by name and kernels by handle, so it is imported only when something runs.
"""

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numba import config
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError, KernelArithmeticError, ReplayError, XcclEmuError
from xccl_emu.lang import Kernel
from xccl_emu.lang.requests import OPERATIONS, VECTOR
from xccl_emu.machine import report
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.actions import start
from xccl_emu.machine.device.policies import replay, round_robin, uniform_random
from xccl_emu.machine.device.single import action
from xccl_emu.machine.device.words import handle_of
from xccl_emu.machine.stats import PIPE_NAMES, RunStats

if TYPE_CHECKING:
    from xccl_emu.machine.pod import Pod

Progress = Callable[[int], None]
_SLICE_ACTIONS = 1 << 18  # then Python has a look: progress, Ctrl-C
_LOG_ACTIONS = 1 << 20
_NO_LOG = np.zeros(0, np.int64)
_POLICIES: dict[str, Callable[..., int]] = {"round-robin": round_robin, "random": uniform_random, "replay": replay}


def policy(name: str) -> Callable[..., int]:
    """The compiled policy of that name."""
    return _POLICIES[name]


def drive(pod: "Pod", policy_name: str, progress: Progress | None) -> tuple[int, float, NDArray[np.int64]]:
    """Run what is launched by a policy of the machine; how it ended, seconds, and the actions if the pod records."""
    take, st = policy(policy_name), pod.state
    _prepare(pod, policy_name)
    log = np.zeros(_LOG_ACTIONS, np.int64) if pod.record else _NO_LOG
    logged = [_NO_LOG]
    started = time.perf_counter()
    ended = ms.ENDED_PAUSED
    while ended in (ms.ENDED_PAUSED, ms.ENDED_LOG_FULL):
        ended = _call(pod, take, log)
        logged.append(log[: st[ms.LOG_COUNT]].copy())
        st[ms.LOG_COUNT] = 0
        if progress is not None:
            progress(int(st[ms.ACTIONS]))
    return ended, time.perf_counter() - started, np.concatenate(logged)


def drive_replay(pod: "Pod", actions: NDArray[np.int64]) -> tuple[int, float]:
    """Run what is launched by recorded actions; returns how it ended, and seconds."""
    st = pod.state
    _prepare(pod, "replay")
    started = time.perf_counter()
    ended = _call(pod, replay, actions)
    while ended == ms.ENDED_PAUSED and st[ms.CURSOR] < len(actions):
        ended = _call(pod, replay, actions)
    return ended, time.perf_counter() - started


def _call(pod: "Pod", take: Callable[..., int], log: NDArray[np.int64]) -> int:
    """One slice of a run, the first requests of the kernels before it."""
    with arithmetic_of(pod.kernels):
        start(pod.state)
        return take(pod.memory, pod.state, log, _SLICE_ACTIONS)


def check_steppable(pod: "Pod") -> None:
    """Raises ConfigError for a pod that is not ready to run, or of plain generators: their locals are not its state."""
    if pod.generators:
        raise ConfigError("generators", True, "the locals of plain generators are not in the state of the pod")
    pod.check_runnable()


def begin(pod: "Pod") -> None:
    """Bring every launched kernel to its first request, as a run would, for callers that go on action by action.

    Raises as `check_steppable`.
    """
    check_steppable(pod)
    begin_run(pod)


def begin_run(pod: "Pod") -> None:
    """Begin, as `begin` does, within a run that `Pod.run` has begun."""
    _link(pod, handles(pod.kernels), _action())
    with arithmetic_of(pod.kernels):
        start(pod.state)


def _link(pod: "Pod", steps: list[int], act: int) -> None:
    pod.state[ms.STEP_TABLE : ms.STEP_TABLE + len(steps)] = steps
    pod.state[ms.ACT] = act
    pod.activate()


@functools.cache
def _action() -> int:
    """`single.action`, which takes a while to say where it is."""
    return action()


def handles(kernels: Sequence[Kernel], generators: bool = False) -> list[int]:
    """Return the numbers by which the machine finds the kernels' step functions (`words.call_step`)."""
    if generators and not config.DISABLE_JIT:
        raise ConfigError("generators", True, "kernels run as plain generators only with NUMBA_DISABLE_JIT=1")
    return [handle_of(kernel.plain_step() if generators else kernel.entry) for kernel in kernels]


@contextmanager
def arithmetic_of(kernels: Sequence[Kernel]) -> Iterator[None]:
    """Raises KernelArithmeticError where a kernel's arithmetic fails (only a plain generator has more than 64 bits)."""
    try:
        yield
    except XcclEmuError:  # some are ValueErrors too
        raise
    except (ZeroDivisionError, OverflowError, ValueError) as error:
        names = ", ".join(kernel.name for kernel in kernels)
        what = "a division by zero, a bad shift count, or a value that is no 64-bit integer"
        message = f"arithmetic of a kernel failed ({error}): {what}; those that run are {names}"
        raise KernelArithmeticError(message) from error


def _prepare(pod: "Pod", policy_name: str) -> None:
    """Have everything compiled before the clock starts: a policy with no active core has nothing to do."""
    numbers = handles(pod.kernels, pod.generators)
    policy(policy_name)(pod.memory, pod.state, _NO_LOG, 0)
    contained = policy_name == "round-robin" and not pod.state[ms.DRAWS_ANSWERS]  # it calls nobody
    _link(pod, numbers, 0 if contained else _action())


def outcome(pod: "Pod", ended: int, seconds: float) -> RunStats:
    """Return what a run or replay did, or raise the error that it ended with."""
    raise_for(pod, ended)
    return _statistics(pod.state, seconds)


def _statistics(st: NDArray[np.int64], seconds: float) -> RunStats:
    """Return what the counters of a state array say about the run that is over."""
    counts = {name: int(st[ms.COUNT_BY_OP + i]) for i, name in enumerate(OPERATIONS)}
    return RunStats(
        seconds,
        int(st[ms.ACTIONS]),
        {name: count for name, count in counts.items() if count},
        {name: int(st[ms.BYTES_BY_PIPE + i]) for i, name in enumerate(PIPE_NAMES) if i != VECTOR},
        int(st[ms.BYTES_BY_PIPE + VECTOR]),
    )


def raise_for(pod: "Pod", ended: int) -> None:
    """Raise the error that a run or replay ended with, if it did."""
    if ended == ms.ENDED_ERROR:
        raise report.violation(pod)
    if ended == ms.ENDED_DEADLOCK:
        raise report.deadlock(pod)
    if ended == ms.ENDED_NOT_ENABLED:
        where = int(pod.state[ms.CURSOR])
        raise ReplayError(f"the schedule does not fit: action {where} of it is not enabled")
    if ended == ms.ENDED_PAUSED:
        raise ReplayError("the schedule ends before the run does: it was recorded on a run that failed or was cut")
