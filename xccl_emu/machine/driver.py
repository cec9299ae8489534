"""Driving a run: a policy called slice by slice, its log collected, its end turned into statistics or an error."""

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError, ReplayError
from xccl_emu.machine import compiled, report
from xccl_emu.machine.device import layout as ms

if TYPE_CHECKING:
    from xccl_emu.machine.pod import Pod

Progress = Callable[[int], None]
_SLICE_ACTIONS = 1 << 18  # then Python has a look: progress, Ctrl-C
_LOG_ACTIONS = 1 << 20
_NO_LOG = np.zeros(0, np.int64)


def drive(pod: "Pod", policy_name: str, progress: Progress | None) -> tuple[int, float, NDArray[np.int64]]:
    """Run what is launched by a policy of the machine; how it ended, seconds, and the actions if the pod records."""
    policy, st = compiled.policy(policy_name), pod.state
    _prepare(pod, policy_name)
    log = np.zeros(_LOG_ACTIONS, np.int64) if pod.record else _NO_LOG
    logged = [_NO_LOG]
    started = time.perf_counter()
    ended = ms.ENDED_PAUSED
    while ended in (ms.ENDED_PAUSED, ms.ENDED_LOG_FULL):
        ended = _call(pod, policy, log)
        logged.append(log[: st[ms.LOG_COUNT]].copy())
        st[ms.LOG_COUNT] = 0
        if progress is not None:
            progress(int(st[ms.ACTIONS]))
    return ended, time.perf_counter() - started, np.concatenate(logged)


def drive_replay(pod: "Pod", actions: NDArray[np.int64]) -> tuple[int, float]:
    """Run what is launched by recorded actions; returns how it ended, and seconds."""
    replay, st = compiled.policy("replay"), pod.state
    _prepare(pod, "replay")
    started = time.perf_counter()
    ended = _call(pod, replay, actions)
    while ended == ms.ENDED_PAUSED and st[ms.CURSOR] < len(actions):
        ended = _call(pod, replay, actions)
    return ended, time.perf_counter() - started


def _call(pod: "Pod", policy: Callable[..., int], log: NDArray[np.int64]) -> int:
    """One slice of a run, the first requests of the kernels before it."""
    with compiled.arithmetic_of(pod.kernels):
        compiled.start()(pod.state)
        return policy(pod.memory, pod.state, log, _SLICE_ACTIONS)


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
    _link(pod, compiled.handles(pod.kernels), _action())
    with compiled.arithmetic_of(pod.kernels):
        compiled.start()(pod.state)


def _link(pod: "Pod", handles: list[int], action: int) -> None:
    pod.state[ms.STEP_TABLE : ms.STEP_TABLE + len(handles)] = handles
    pod.state[ms.ACT] = action
    pod.activate()


@functools.cache
def _action() -> int:
    """`compiled.action`, which takes a while to say where it is."""
    return compiled.action()


def _prepare(pod: "Pod", policy_name: str) -> None:
    """Have everything compiled before the clock starts: a policy with no active core has nothing to do."""
    handles = compiled.handles(pod.kernels, pod.generators)
    compiled.policy(policy_name)(pod.memory, pod.state, _NO_LOG, 0)
    contained = policy_name == "round-robin" and not pod.state[ms.DRAWS_ANSWERS]  # it calls nobody
    _link(pod, handles, 0 if contained else _action())


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
