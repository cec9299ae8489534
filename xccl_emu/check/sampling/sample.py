"""Sampled runs of a trial: many schedules by a policy, each under watch; and the replay of a schedule.

For configurations too large to search.  That nothing is found proves nothing; what is found is a schedule that shows
it.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import KernelError, ReplayError
from xccl_emu.base.options import one_of
from xccl_emu.check import messages, verdict
from xccl_emu.check.faults import Fault
from xccl_emu.check.reach import Reach, reach_of
from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.sampling.watch import Monitor
from xccl_emu.check.trial import Trial
from xccl_emu.check.verdict import LIVELOCK, Violation
from xccl_emu.lang.requests import SCALAR
from xccl_emu.machine import report
from xccl_emu.machine.clock import working_seconds
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.layout import CAME, MAY_WAIT
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.stats import PIPE_NAMES

POLICIES = ("portfolio", *ml.POLICIES)
PORTFOLIO = ("eager", "late", "lifo", "pct", "weights", "random")
"""The order in which a portfolio goes round; first the named extremes of when writes become visible."""
OF_CALLS = (*PORTFOLIO, "skew")
"""Policies for sequences of calls: their hosts launch apart, too."""

PCT_DEPTH = 3
SCHEDULES_DEFAULT = 1000
_FIRST_ROUNDS, _FURTHER_ACTIONS = 4, 1 << 18
"""Limits of the search for more violations: first rounds through the portfolio, and actions of a run."""
_SLICE_SECONDS = 0.5
_LOOP_SHOWN = 200  # actions of a loop that a message looks at
_Seen = TypeVar("_Seen")


@dataclass(frozen=True)
class Sampled:
    """What sampling came to."""

    policy: str
    seed: int
    schedules: int
    """Runs that were taken to their end, or to a violation."""
    actions: int
    seconds: float
    by_policy: dict[str, int]
    """Schedules of each policy."""
    violation: Violation | None
    faults: int = 0
    """Schedules in which something broke."""
    ended: Mapping[str, int] = field(default_factory=dict)
    """Under a fault: how many of these schedules (or of all, with a stalled link) ended how (`Verdict.ended`)."""
    declared: Mapping[str, int] = field(default_factory=dict)
    """How many in which declared error (`Verdict.declared`)."""
    reach: Reach | None = None
    """What these schedules came to, and waited at."""


def sample(
    trial: Trial,
    policy: str = "portfolio",
    *,
    seed: int = 0,
    schedules: int | None = None,
    seconds: float | None = None,
    fault: Fault | None = None,
    progress: Callable[[int, int], None] | None = None,
    at_once: int = 1,
    monitor: Monitor | None = None,
) -> Sampled:
    """Run ``schedules`` schedules of a policy, or until ``seconds`` are over or one finds something.

    A schedule that is under way when they are over is given up, and does not count.
    Without either limit there are `SCHEDULES_DEFAULT`.  ``portfolio`` takes all policies in turn, in slices that grow.
    The same seed gives the same schedules: number n of a policy depends on the trial, the seed and n alone.
    With a ``fault`` something breaks in each of them, if it comes to that.
    ``progress`` is called now and then with the schedules and actions so far: first after ``at_once`` schedules, then
    less and less often, as time allows.  ``monitor`` is the trial's, for a caller that wants its last schedule
    (`Monitor.taken`).

    Raises ConfigError for an unknown policy or a pod that is not ready to run, KernelError where the arithmetic of a
    kernel fails.
    """
    one_of("policy", policy, POLICIES)
    monitor = monitor or monitor_of(trial)
    monitor.sites &= ~(CAME | MAY_WAIT)
    if schedules is None and seconds is None:
        schedules = SCHEDULES_DEFAULT
    job = _Job(monitor, seed, schedules, seconds, fault, progress, at_once)
    names = PORTFOLIO if policy == "portfolio" else (policy,)
    turn = 0
    while job.goes_on():
        job.slice(names[turn % len(names)], 1 + turn // len(names) if len(names) > 1 else 1)
        turn += 1
    total = sum(job.done.values())
    ended, declared = ({}, {}) if fault is None else _ended(trial, job.endings)
    return Sampled(
        policy, seed, total, job.actions, job.elapsed(), dict(job.done), job.violation, job.faults, ended,
        declared, reach_of(trial.pod, monitor.sites),
    )  # fmt: skip


def _ended(trial: Trial, endings: NDArray[np.int64]) -> tuple[dict[str, int], dict[str, int]]:
    """Count each end, in words; and each declared error by code and meaning."""
    from xccl_emu.check.sampling.device import breaks

    by_code = [int(count) for count in endings[breaks.ENDED_DECLARED :]]
    ended = {
        "right": int(endings[breaks.ENDED_RIGHT]),
        "declared error": sum(by_code),
        "blocked": int(endings[breaks.ENDED_BLOCKED]),
        "refused by the machine": int(endings[breaks.ENDED_REFUSED]),
        "given up at the link": int(endings[breaks.ENDED_GIVEN_UP]),
    }
    names = [f"{code} ({meaning})" for code, meaning in trial.stops.items()]
    return ended, {name: count for name, count in zip(names, by_code, strict=True) if count}


def replay(trial: Trial, actions: NDArray[np.int64], loop: int = 0) -> Violation | None:
    """Take the actions of a schedule one by one under watch; the violation of the first that shows one, or of the end.

    If the last ``loop`` actions lead back to the state before them, that is a livelock.  None if nothing is wrong: the
    run is over and its bytes are as expected, or could go on where the schedule ends.  The trial is as it was before.
    Raises ReplayError for an action that is not enabled.
    """
    monitor = monitor_of(trial)
    found = _violation(monitor, actions, "replay", 0)
    return found if found is not None or not loop else _round(monitor, np.asarray(actions, np.int64), loop)


def first_drawn(trial: Trial, *, seed: int = 0, until: float = math.inf) -> Violation | None:
    """Return what the first schedules of the portfolio show, `_FIRST_ROUNDS` of each policy; ``until`` as in `further`.

    No livelock: that a drawn run has no end is a guess by its length, and the search is still to give its answer.
    """
    shown = further(trial, seed=seed, rounds=_FIRST_ROUNDS, until=until)
    return next((each for each in shown if each.kind != LIVELOCK), None)


def further(trial: Trial, *, seed: int = 0, rounds: int = 32, until: float = math.inf) -> Iterator[Violation]:
    """Look for what else goes wrong, once something has, in the first schedules of all policies; yield each violation.

    Its end is counted in schedules and actions, so the same trial and seed give the same.  ``found_after`` is the
    number of these schedules.  A kernel whose arithmetic fails ends it, and ``until``, by `working_seconds`.
    """
    monitor, schedules, actions = monitor_of(trial), 0, 0
    for number in range(rounds):
        for policy in PORTFOLIO:
            try:
                code = monitor.runs(ml.POLICIES.index(policy), seed, number, number + 1, PCT_DEPTH, until=until)
            except KernelError:
                return
            if code == ml.RUN_PAUSED:
                return
            schedules, actions = schedules + 1, actions + int(monitor.m[ml.TAKEN])
            if code != ml.RUN_DONE:
                found = _violation(monitor, monitor.taken, f"{policy}, seed {seed}, schedule {number}", schedules)
                assert found is not None, "a replay finds what the run has found"
                yield found
        if actions > _FURTHER_ACTIONS:
            return


def share(trial: Trial, policy: str, *, seed: int = 0, schedules: int = 1000, races: bool = True) -> float:
    """The share of single schedules of a policy that find something, to compare policies.

    Without ``races`` unordered accesses alone do not count, only what goes wrong by them.
    """
    monitor = monitor_of(trial)
    found, number = 0, 0
    while number < schedules:
        code = monitor.runs(ml.POLICIES.index(policy), seed, number, schedules, PCT_DEPTH, races)
        found += code != ml.RUN_DONE
        number = int(monitor.m[ml.NEXT_NUMBER]) + (code != ml.RUN_DONE)
    return found / schedules


@functools.lru_cache(maxsize=4)
def monitor_of(trial: Trial) -> Monitor:
    """The monitor of a trial; kept for some, so that many replays of one trial learn about it once."""
    return Monitor(trial)


class _Job:
    """Sampling under way."""

    def __init__(
        self,
        monitor: Monitor,
        seed: int,
        schedules: int | None,
        seconds: float | None,
        fault: Fault | None,
        progress: Callable[[int, int], None] | None,
        at_once: int,
    ) -> None:
        self._monitor, self._seed, self._fault, self._progress = monitor, seed, fault, progress
        self._most, self._cut = schedules, False
        self._started = working_seconds()
        self._until = math.inf if seconds is None else self._started + seconds
        self._at_once = at_once
        self.done: dict[str, int] = {}
        self.actions = self.faults = 0
        self.endings: NDArray[np.int64] = np.zeros(1, np.int64)
        self.violation: Violation | None = None

    def elapsed(self) -> float:
        """Seconds since the start."""
        return working_seconds() - self._started

    def goes_on(self) -> bool:
        """Return whether there is more to do."""
        total = sum(self.done.values())
        in_time = total == 0 or working_seconds() < self._until
        return self.violation is None and not self._cut and in_time and (self._most is None or total < self._most)

    def slice(self, policy: str, least: int) -> None:
        """Some schedules of a policy: at least ``least``, else as many as fit into a slice of time."""
        total, first = sum(self.done.values()), self.done.get(policy, 0)
        count = max(least, self._at_once)
        if self._most is not None:
            count = min(count, self._most - total)
        started = working_seconds()
        which, end = ml.POLICIES.index(policy), first + count
        code = self._monitor.runs(which, self._seed, first, end, PCT_DEPTH, fault=self._fault, until=self._until)
        m, self._cut = self._monitor.m, code == ml.RUN_PAUSED
        self.done[policy] = first + int(m[ml.SCHEDULES])
        self.actions += int(m[ml.TOTAL])
        self.faults += int(m[ml.FAULTS])
        self.endings = self.endings + self._monitor.endings
        if code not in (ml.RUN_DONE, ml.RUN_PAUSED):
            found_by = f"{policy}, seed {self._seed}, schedule {int(m[ml.NEXT_NUMBER])}"
            self.violation = _violation(self._monitor, self._monitor.taken, found_by, total + int(m[ml.SCHEDULES]))
            assert self.violation is not None, "a replay finds what the run has found"
        elif working_seconds() - started < _SLICE_SECONDS / 2:
            self._at_once = min(2 * self._at_once, 1 << 20)
        if self._progress is not None:
            self._progress(sum(self.done.values()), self.actions)


def _round(monitor: Monitor, actions: NDArray[np.int64], loop: int) -> Violation | None:
    """A livelock, if the last actions lead back to the state before them."""
    from xccl_emu.machine.explore import standing

    first = len(actions) - loop
    before = _where(monitor, actions[:first], standing)
    if before != _where(monitor, actions, standing):
        return None
    shown = range(first, min(first + _LOOP_SHOWN, len(actions)))
    sites = [_where(monitor, actions[:n], asks(int(actions[n]))) for n in shown]
    message = _where(monitor, actions, functools.partial(describe_round, loop=loop, sites=sites))
    return Violation(LIVELOCK, message, actions.copy(), "replay", 0, loop)


def _where(monitor: Monitor, actions: NDArray[np.int64], look: Callable[[Pod], _Seen]) -> _Seen:
    """Replay the actions, then return what ``look`` sees of the pod."""
    try:
        monitor.replay(actions, stop=True)
        return look(monitor.trial.pod)
    finally:
        monitor.close()


def _violation(monitor: Monitor, actions: NDArray[np.int64], found_by: str, found_after: int) -> Violation | None:
    """Replay, and say what was found."""
    code = ml.BAD_ACTION
    try:
        code = monitor.replay(actions)
        taken = int(monitor.m[ml.TAKEN])
        if code == ml.BAD_ACTION:
            raise ReplayError(f"the schedule does not fit: action {taken} of it is not enabled")
        if code in (ml.RUN_DONE, ml.RUN_CUT):
            return None
        kind, message = describe(monitor, code)
        return Violation(kind, message, actions[:taken].copy(), found_by, found_after)
    finally:
        monitor.close()


# ---- what the monitor has found, in words


def describe(monitor: Monitor, code: int) -> tuple[str, str]:
    """Kind and message of what the last replay has found; the pod must still be as it left it."""
    pod, m = monitor.trial.pod, monitor.m
    if code == ml.FOUND_ERROR:
        error, given = int(pod.state[ms.ERROR]), int(pod.state[ms.ERROR_A])
        meaning = monitor.trial.stops.get(given, "") if error == ms.ERR_FAIL else ""
        message = str(report.violation(pod)) + (f" ({meaning})" if meaning else "")
        return messages.error_kind(pod), message
    if code == ml.FOUND_DEADLOCK:
        return verdict.DEADLOCK, str(report.deadlock(pod))
    if code == ml.FOUND_LIVELOCK:
        return verdict.LIVELOCK, _livelock(monitor)
    if code == ml.FOUND_WRONG:
        return verdict.WRONG_BITS, messages.wrong_bits(monitor.trial, monitor.trial.expected[int(m[ml.V_SITE])])
    if code == ml.FOUND_SET_AGAIN:
        return verdict.BAD_INSTRUCTION, _set_again(monitor)
    place = report.symbolic_byte(pod, int(m[ml.V_AT]))
    if code == ml.FOUND_UNWRITTEN:
        who = _who(monitor, ml.V_CORE)
        return verdict.UNWRITTEN_READ, f"read of memory that was never written, at {place}: {who}"
    assert code == ml.FOUND_RACE
    now, before = _who(monitor, ml.V_CORE), _who(monitor, ml.V_CORE_2)
    both_write = bool(m[ml.V_FLAGS] & m[ml.V_FLAGS_2] & 1)
    hint = messages.hint(pod, [_core_and_site(monitor, first) for first in (ml.V_CORE, ml.V_CORE_2)])
    if m[ml.V_SEEN]:
        reader = report.where(pod, _core_and_site(monitor, ml.V_CORE)[0], int(m[ml.V_SEEN]) - 1)
        hint += f"\n  the first was seen by a read that does not acquire: {reader}"
    kind = messages.race_kind(pod, int(m[ml.V_AT]), both_write)
    return kind, f"nothing orders two accesses at {place}:\n  {before}\n  {now}{hint}"


def _set_again(monitor: Monitor) -> str:
    m, places = monitor.m, [_core_and_site(monitor, first) for first in (ml.V_CORE_2, ml.V_CORE)]
    before, now = (report.where(monitor.trial.pod, *place) for place in places)
    source, target = PIPE_NAMES[int(m[ml.V_ENGINE])], PIPE_NAMES[int(m[ml.V_ENGINE_2])]
    event = f"event {int(m[ml.V_AT])} from {source} to {target}"
    return f"{event} {messages.SET_AGAIN}:\n  wait by {before}\n  set by {now}"


def _who(monitor: Monitor, first: int) -> str:
    """Name the core, the engine and the instruction of an access; ``first`` is `V_CORE` or `V_CORE_2`."""
    engine, flags = int(monitor.m[first + 1]), int(monitor.m[first + 3])
    pipe = PIPE_NAMES[min(engine, ml.ENGINE_DMA)]
    where = report.where(monitor.trial.pod, *_core_and_site(monitor, first))
    return f"{'write' if flags & 1 else 'read'} ({pipe}) by {where}"


def _core_and_site(monitor: Monitor, first: int) -> tuple[int, int]:
    """Global number of a core and its instruction; ``first`` is `V_CORE` or `V_CORE_2`."""
    m = monitor.m
    return int(m[int(m[ml.CORE_NUMBER]) + int(m[first])]), int(m[first + 2])


def _livelock(monitor: Monitor) -> str:
    pod = monitor.trial.pod
    lines = [f"the run does not end: {int(monitor.m[ml.TAKEN])} actions, others take {monitor.limits.typical}"]
    return "\n".join([*lines, *(f"  {line}" for line in messages.not_done(pod))])


def asks(code: int) -> Callable[[Pod], str]:
    """Return a function that says what the core of the next action asks for; nothing for actions of pipes and dies."""
    core, pipe = divmod(code >> ms.CHOICE_BITS, ms.ACTORS_PER_CORE)
    return lambda pod: report.request(pod, core) if core < pod.spec.n_cores and pipe == SCALAR else ""


def describe_round(pod: Pod, loop: int, sites: Sequence[str]) -> str:
    """The message of a livelock, the pod standing at the end of a loop in which its cores asked for ``sites``."""
    steps = "this step leads" if loop == 1 else f"these {loop} steps lead"
    lines = [f"livelock: {steps} back to the same state, and can go on for ever"]
    lines += [f"  not done: {line}" for line in messages.not_done(pod)]
    lines += [f"  in the loop: {site}" for site in dict.fromkeys(sites) if site]
    return "\n".join(lines)
