"""The front door: check a protocol in one configuration and return a verdict."""

import math
import numbers
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import CapacityError, ConfigError, ReplayError
from xccl_emu.base.options import items, one_of, whole
from xccl_emu.check import confirm
from xccl_emu.check.certify import certify as certified
from xccl_emu.check.faults import Fault, adds_nothing, check_fits, parse
from xccl_emu.check.reach import MemoryUse, reach_of
from xccl_emu.check.shrink import WITNESS_SECONDS, with_violation
from xccl_emu.check.trial import Checkable, Trial
from xccl_emu.check.verdict import (
    ALL,
    BRUTE_FORCE,
    NO_VIOLATION,
    SEARCH,
    SHARED,
    UNFINISHED,
    UNSUPPORTED,
    VERIFIED,
    VIOLATION,
    Opinion,
    Recovery,
    Verdict,
    Violation,
)
from xccl_emu.machine.clock import working_seconds
from xccl_emu.machine.state import ORDERS

Progress = Callable[[str, int, int, float], None]
"""Called now and then with what goes on, states or schedules, transitions or actions, seconds."""

POLICIES = ("exhaustive", "portfolio", "random", "pct", "weights", "eager", "late", "lifo", "skew")
REDUCTIONS = ("full", "less", "merged")
WEAKER = "relaxed"
"""The order searched first where a verdict under one of `STRONGER` is wanted: it allows every run of these."""
STRONGER = ("sc", "fifo")
MAX_STATES = 50_000_000
_SECONDS_LEAST = 0.01
_DRAWN_AFTER = 1000
"""Schedules that are drawn where a die begins again, since brute force judges no races."""
MOST_SCHEDULES = (1 << 63) - 1
IF_ALL_ACQUIRE = "verified if every read of a flag acquires; drawn schedules alone say what is so where some do not"
"""Said of a search where some do not."""


@dataclass(frozen=True)
class _Options:
    """How far a check goes, and how it searches."""

    schedules: int | None
    seconds: float | None
    max_states: int
    progress: Progress | None
    breadth_first: bool
    reduction: str
    max_bytes: int | None = None
    hands_over: bool = True
    """Whether a verdict may be one under a weaker order (`_exhaustive`)."""
    as_found: bool = False
    """Whether a violation is left as the search found it."""
    witness_seconds: float = WITNESS_SECONDS
    """How long the schedule that shows a violation is made shorter, at most."""

    @property
    def inform(self) -> Callable[[int, int, float], None] | None:
        """Return what a search calls now and then with states, transitions and seconds so far."""
        return self.progress and partial(self.progress, "states")


def check(
    checkable: Checkable,
    *,
    order: str = "relaxed",
    policy: str | None = None,
    schedules: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    without: Collection[str] | str = (),
    fault: str = "",
    max_states: int = MAX_STATES,
    max_bytes: int | None = None,
    progress: Progress | None = None,
    breadth_first: bool = False,
    reduction: str = "full",
    certify: float | None = None,
    confirm_seconds: float | None = None,
    witness_seconds: float = WITNESS_SECONDS,
) -> Verdict:
    """Check a protocol; every schedule with policy ``"exhaustive"``, else as many as the limits allow.

    Parameters
    ----------
    checkable: builds the pod to be checked, again for each part of the check.
    order: memory order, ``"sc"``, ``"fifo"``, ``"relaxed"`` or ``"unordered"``.
    policy: ``"exhaustive"``, or how schedules are drawn; None for the former, and with a fault for ``"portfolio"``.
    schedules, seconds: limits; an exhaustive search that meets one is unfinished.  Seconds of compiling do not count.
    seed: of drawn schedules.
    without: names of synchronizations to switch off, or one name.
    fault: what breaks in the hardware (`xccl_emu.check.faults`); empty for nothing.
    max_states: limit of an exhaustive search.
    max_bytes: limit of what it keeps of states; None for half of the memory that is free.
    progress: called now and then with how far it is.
    breadth_first: search for a violation with the fewest transitions.
    reduction: ``"full"``; ``"less"`` to explore fields and when transfers are read; or ``"merged"`` to search with what
        is local merged and nothing else.
    certify: seconds to spend on the same question once more, by roads that share nothing with the search
        (`xccl_emu.check.certify`).
    confirm_seconds: how long to ask for second opinions on what is verified (`opinions`); None for not at all.
    witness_seconds: how long the schedule that shows a violation is made shorter, at most.

    Raises ConfigError for an unknown order, policy, reduction, fault or synchronization, a limit that is not positive,
    and whatever building the pod raises.
    """
    if isinstance(checkable, type) or not all(hasattr(checkable, name) for name in ("name", "configuration", "build")):
        case = "a case: a protocol called with its sizes, as in NAME(dies=2)"
        raise ConfigError("checkable", checkable, f"must be {case}")
    broken = not isinstance(fault, str) or fault != ""
    policy = ("portfolio" if broken else "exhaustive") if policy is None else policy
    for name, value, known in (
        ("order", order, ORDERS), ("policy", policy, POLICIES), ("reduction", reduction, REDUCTIONS)
    ):  # fmt: skip
        one_of(name, value, known)
    _check_limits(
        schedules=schedules, seconds=seconds, max_states=max_states, max_bytes=max_bytes, certify=certify,
        confirm_seconds=confirm_seconds, witness_seconds=witness_seconds,
    )  # fmt: skip
    if broken:
        parse(fault)
        if certify is not None:
            raise ConfigError("certify", certify, "cannot be combined with a fault; faults give no proof")
    started = working_seconds()
    names = _names(without)
    seed, sizes = whole("seed", seed), dict(checkable.configuration)
    verdict = Verdict("", checkable.name, sizes, order, policy, seed, names, fault)
    options = _Options(
        schedules, seconds, max_states, progress, breadth_first, reduction, max_bytes, witness_seconds=witness_seconds
    )
    judge = _sampled if policy != "exhaustive" else _faulty if fault else _exhaustive
    verdict = _with_memory(judge(verdict, checkable, options), checkable)
    if verdict.verdict == VERIFIED and verdict.if_all_acquire:
        verdict = _drawn_too(verdict, checkable, replace(options, seconds=_left(options, started)))
    verdict = replace(verdict, seconds=working_seconds() - started)
    verdict = verdict if certify is None else certified(checkable, verdict, seconds=certify)
    if confirm_seconds is None:
        return verdict
    given = opinions(checkable, verdict, seconds=confirm_seconds, reduction=reduction, max_bytes=max_bytes)
    return confirm.confirmed(checkable, verdict, list(given), confirm_seconds)


def _with_memory(verdict: Verdict, checkable: Checkable) -> Verdict:
    """The verdict, which draws runs and says what memory they used when it is asked."""
    if verdict.reach is None or verdict.verdict != VERIFIED:
        return verdict
    look = partial(_memory_of, checkable, verdict.order, verdict.without)
    return replace(verdict, reach=replace(verdict.reach, look=look))


def _memory_of(checkable: Checkable, order: str, without: Collection[str]) -> MemoryUse:
    from xccl_emu.check.drawn import memory_of

    return memory_of(checkable, order, without)


def opinions(
    checkable: Checkable, verdict: Verdict, *, seconds: float, reduction: str = "full", max_bytes: int | None = None,
    progress: Progress | None = None,
) -> Iterator[Opinion]:  # fmt: skip
    """Second opinions on a verdict that is verified, as they come, within some seconds (`xccl_emu.check.confirm`).

    The same is searched with less of reductions, under the very order; then brute force is asked, of the configuration
    itself, and if it does not end of smaller ones, as far as the case says what its sizes are.
    """

    def named(by: str) -> Progress | None:
        return progress and (lambda what, *done: progress(f"{what} by {by}", *done))

    reduced = verdict.fault if verdict.fault.startswith("stop") else ""  # any other is brute force already, or nothing

    def ask(one: Checkable, by: str, seconds: float) -> Verdict:
        blank = Verdict("", one.name, dict(one.configuration), verdict.order, "exhaustive", verdict.seed,
                        verdict.without, reduced)  # fmt: skip
        options = _Options(None, seconds, MAX_STATES, named(by), False, by, max_bytes, by == "full", True)
        if by == BRUTE_FORCE:
            return _by_brute_force(replace(blank, verdict=VERIFIED), one, parse(reduced), options)
        return (_faulty if reduced else _exhaustive)(blank, one, options)

    explored = progress and partial(progress, f"states by {BRUTE_FORCE}")
    return confirm.opinions(checkable, verdict, ask, seconds=seconds, reduction=reduction, progress=explored)


def _names(without: Collection[str] | str) -> tuple[str, ...]:
    """Names that are switched off, in order; ConfigError for what is no name."""
    names = items(without)
    if not all(isinstance(name, str) for name in names):
        raise ConfigError("without", without, "must be names of synchronizations")
    return tuple(sorted(names))



def _check_limits(**limits: float | None) -> None:
    """ConfigError for a limit that is not positive."""
    for name, limit in limits.items():
        if limit is None:
            continue
        if isinstance(limit, bool) or not isinstance(limit, numbers.Real) or not limit > 0:
            raise ConfigError(name, limit, "must be a number, and positive")
        if name in ("schedules", "max_states", "max_bytes") and whole(name, limit) > MOST_SCHEDULES:
            raise ConfigError(name, limit, f"must be a whole number, 1 to {MOST_SCHEDULES}")


def _left(options: _Options, started: float) -> float | None:
    """Return what is left of the seconds of a check; None where there is no limit."""
    if options.seconds is None:
        return None
    return max(options.seconds - (working_seconds() - started), min(options.seconds, _SECONDS_LEAST))


def _faulty(verdict: Verdict, checkable: Checkable, options: _Options) -> Verdict:
    """Every schedule with a fault at any moment: that without it, and then what the fault may add.

    A run under ``stop`` or ``cut`` is the beginning of one without a fault, and under ``stall`` it is one: they add
    nothing to what has been judged, unless cores may not wait for ever.
    """
    started, trial = working_seconds(), checkable.build(verdict.order, verdict.without)
    fault = parse(verdict.fault, trial.pod.spec)
    if why := check_fits(fault, trial.pod.spec, verdict.order):
        return replace(verdict, verdict=UNSUPPORTED, reason=why)
    without = _exhaustive(verdict, checkable, options)
    if without.verdict != VERIFIED:
        return replace(without, reason="; ".join(filter(None, (without.reason, "without the fault"))))
    if adds_nothing(fault, trial.may_wait(fault)):
        one = "a schedule" if fault.kind == "stall" else "the beginning of a schedule"
        why = f"a run under {fault.kind} is {one} without it, and all of these are right"
        return replace(without, reason=why if fault.kind == "stall" else f"{why}; after it cores may wait for ever")
    left = _left(options, started)
    if fault.at is not None:
        why = f"a search takes every moment: leave out the @{fault.at}, or draw schedules"
        return replace(without, verdict=UNSUPPORTED, reason=why)
    judge = _without_die if fault.kind == "stop" else _by_brute_force
    return judge(without, checkable, fault, replace(options, seconds=left))


def _without_die(verdict: Verdict, checkable: Checkable, fault: Fault, options: _Options) -> Verdict:
    """The verdict on all runs in which a die stops, and no other core may wait for ever."""
    from xccl_emu.check.search.recovery import FOR_EVER, WithoutDie
    from xccl_emu.check.search.setup import Setup

    trial = checkable.build(verdict.order, verdict.without)
    search = WithoutDie(
        Setup(trial, full=options.reduction != "merged", most=options.reduction == "full"), fault.source,
        max_states=options.max_states, max_bytes=options.max_bytes, seconds=options.seconds, progress=options.inform,
    )  # fmt: skip
    found = search.run()
    verdict = replace(
        verdict, states=found.states, transitions=found.transitions, collision=found.states**2 / 2.0**65, reach=None
    )
    if found.violation:
        return _shown_after_fault(verdict, checkable, options, found.actions, found.loop, SEARCH)
    if found.reason:
        return replace(verdict, verdict=UNFINISHED, reason=f"{found.reason}; verified without the fault")
    steps = None if search.steps == FOR_EVER else search.steps
    reason = f"all states without the fault, and in each the stop of {trial.pod.spec.home(fault.source)}"
    return replace(verdict, recovery=Recovery(steps, SHARED), reason=reason)


def _shown_after_fault(
    verdict: Verdict, checkable: Checkable, options: _Options, actions: NDArray[np.int64], loop: int, found_by: str
) -> Verdict:
    """The verdict with a violation after a fault, as the replay of a schedule shows it."""
    from xccl_emu.check.sampling.sample import replay

    try:
        shown = replay(checkable.build(verdict.order, verdict.without), actions, loop)
    except ReplayError:
        shown = None
    if shown is None:
        why = f"{found_by} has found something that the replay of its schedule does not show: please report this"
        return replace(verdict, verdict=UNFINISHED, reason=why)
    shown = replace(shown, found_by=found_by, found_after=verdict.states)
    return with_violation(checkable, replace(verdict, reason=""), shown, most=options.witness_seconds)


def _by_brute_force(verdict: Verdict, checkable: Checkable, fault: Fault, options: _Options) -> Verdict:
    """The verdict on all runs in which a fault happens."""
    from xccl_emu.check.sampling.sample import sample
    from xccl_emu.check.search.every_fault import FaultySearch

    trial = checkable.build(verdict.order, verdict.without)
    found = FaultySearch(
        trial, fault, max_states=options.max_states, max_bytes=options.max_bytes, seconds=options.seconds,
        progress=options.inform,
    ).run()  # fmt: skip
    verdict = replace(verdict, states=found.states, transitions=found.transitions, collision=0.0)
    if found.actions is not None:
        return _shown_after_fault(verdict, checkable, options, found.actions, found.loop, BRUTE_FORCE)
    if found.reason:
        return replace(verdict, verdict=UNFINISHED, reason=f"{found.reason}; verified without the fault")
    reason = f"brute force, the fault at every moment: of its ends {found.ends}"
    if fault.kind == "revive":  # a die that begins again goes other ways, and no race on them was looked for
        trial = checkable.build(verdict.order, verdict.without)
        drawn = sample(trial, seed=verdict.seed, schedules=_DRAWN_AFTER, seconds=options.seconds, fault=fault)
        if drawn.violation is not None:
            return with_violation(checkable, verdict, drawn.violation, most=options.witness_seconds)
        reason += f"; no race in {drawn.faults:,} schedules that are drawn with it"
    recovery = None if found.steps is None else Recovery(None if found.steps < 0 else found.steps, ALL)
    return replace(verdict, recovery=recovery, reason=reason, reach=None)


def _exhaustive(verdict: Verdict, checkable: Checkable, options: _Options) -> Verdict:
    """Search under the order that is asked for, but first under a weaker one, which has fewer states to look at.

    `relaxed` allows every run that `fifo` or `sc` allows of the same program, with less of it in order: what is right
    and without a race there is so under them; but for livelock, where that is only known if no state can be
    reached from itself.  Its search is reduced most, since it need not know when a write becomes visible.
    """
    started, orders = working_seconds(), [verdict.order]
    if verdict.order in STRONGER and options.reduction != "merged" and options.hands_over:
        orders.insert(0, WEAKER)
    for order in orders:
        left = _left(options, started)
        given = left if left is None or order == orders[-1] else left / 2
        trial = checkable.build(order, verdict.without)
        again = partial(checkable.build, order, verdict.without)
        searched, cycles = _searched(replace(verdict, order=order), trial, again, replace(options, seconds=given))
        if order == verdict.order or searched.verdict != VERIFIED or cycles:
            continue
        if trial.is_built_as(checkable.build(verdict.order, verdict.without)):
            also = f"verified under {order}, which allows every run that {verdict.order} allows"
            reason = f"{searched.reason}; {also}" if searched.reason else also
            return replace(searched, order=verdict.order, reason=reason)
    if searched.violation is not None and not options.as_found:
        left, found = _left(options, started), replace(searched, order=verdict.order)
        return with_violation(checkable, found, searched.violation, left, options.witness_seconds)
    return searched


def search_once(
    checkable: Checkable, order: str, without: Collection[str] = (), *, seconds: float | None = None,
    max_states: int = MAX_STATES, max_bytes: int | None = None, progress: Progress | None = None,
) -> Verdict:  # fmt: skip
    """One exhaustive search under an order; the schedule of a violation as it was found, not made short."""
    verdict = Verdict("", checkable.name, dict(checkable.configuration), order, "exhaustive", 0, _names(without))
    options = _Options(None, seconds, max_states, progress, False, "full", max_bytes)
    again = partial(checkable.build, order, verdict.without)
    return _searched(verdict, again(), again, options)[0]


def _searched(
    verdict: Verdict, trial: Trial, again: Callable[[], Trial], options: _Options
) -> tuple[Verdict, bool]:  # fmt: skip
    """The verdict of one search, the schedule of a violation as it was found; whether its states have a cycle.

    If it takes long some schedules are drawn too, of the trial once ``again``.
    """
    from xccl_emu.check.messages import due
    from xccl_emu.check.sampling.sample import first_drawn
    from xccl_emu.check.search.device.checker_state import ASIDE_MAX
    from xccl_emu.check.search.exhaustive import Search
    from xccl_emu.check.search.setup import Setup
    from xccl_emu.check.shrink import shown

    try:
        setup = Setup(trial, full=options.reduction != "merged", most=options.reduction == "full")
    except CapacityError as error:
        return replace(verdict, verdict=UNSUPPORTED, reason=str(error)), False
    aside: dict[tuple[int, ...], str] = {}
    drawn: list[Violation] = []
    until = math.inf if options.seconds is None else working_seconds() + options.seconds

    def draw() -> bool:
        drawn.extend(filter(None, [first_drawn(again(), seed=verdict.seed, until=until)]))
        return bool(drawn)

    while True:
        found = Search(
            setup, max_states=options.max_states, max_bytes=options.max_bytes, seconds=options.seconds,
            progress=options.inform, breadth_first=options.breadth_first, aside=list(aside),
            draw=None if aside else draw,
        ).run()  # fmt: skip
        verdict = replace(
            verdict, states=found.states, transitions=found.transitions, actions=found.actions_taken,
            bounds=setup.bounds(), collision=found.states**2 / 2.0**65, due=due(trial),
        )  # fmt: skip
        if drawn:
            return replace(verdict, verdict=VIOLATION, violation=drawn[0]), found.cycles
        if not found.signature:
            break
        if (violation := shown(trial, found, verdict.seed, options.witness_seconds)) is not None:
            return replace(verdict, verdict=VIOLATION, violation=violation), found.cycles
        if found.signature in aside or len(aside) == ASIDE_MAX:
            break
        aside[found.signature] = found.message or found.reason
    if aside:
        report = f"no schedule shows what the search has found, please report this: {'; '.join(aside.values())}"
        found.reason = f"{found.reason}; {report}" if found.reason else report
    if found.reason:
        return replace(verdict, verdict=UNFINISHED, reason=found.reason), found.cycles
    reason, reach = _resting_on(found.rests_on(), trial), reach_of(trial.pod, found.sites)
    loose = trial.pod.has_loose_reads()
    return replace(verdict, verdict=VERIFIED, reason=reason, reach=reach, if_all_acquire=loose), found.cycles


def _sampled(verdict: Verdict, checkable: Checkable, options: _Options) -> Verdict:
    from xccl_emu.check.messages import due, too_long
    from xccl_emu.check.sampling.sample import sample

    trial = checkable.build(verdict.order, verdict.without)
    fault = parse(verdict.fault, trial.pod.spec) if verdict.fault else None
    if fault is not None and (why := check_fits(fault, trial.pod.spec, verdict.order)):
        return replace(verdict, verdict=UNSUPPORTED, reason=why)
    started, progress = working_seconds(), options.progress
    inform = None
    if progress is not None:
        inform = lambda done, actions: progress("schedules", done, actions, working_seconds() - started)  # noqa: E731
    policy = "portfolio" if verdict.policy == "exhaustive" else verdict.policy
    try:
        sampled = sample(
            trial, policy, seed=verdict.seed, schedules=options.schedules, seconds=options.seconds, fault=fault,
            progress=inform,
        )  # fmt: skip
    except CapacityError as error:
        return replace(verdict, policy=policy, verdict=UNSUPPORTED, reason=str(error))
    verdict = replace(
        verdict, policy=policy, schedules=sampled.schedules, actions=sampled.actions, due=due(trial)
    )
    if fault is not None:
        verdict = replace(verdict, ended=sampled.ended, declared=sampled.declared)
        verdict = replace(verdict, reason=_about_fault(verdict, fault, trial, sampled.faults))
    if sampled.violation is not None:
        left = _left(options, started)
        return with_violation(checkable, verdict, sampled.violation, left, options.witness_seconds)
    if not sampled.schedules:
        return replace(verdict, verdict=UNFINISHED, reason=too_long(options.seconds or 0.0))
    reason = _resting_on(verdict.reason, trial)
    return replace(verdict, verdict=NO_VIOLATION, reach=sampled.reach, reason=reason)


def _drawn_too(verdict: Verdict, checkable: Checkable, options: _Options) -> Verdict:
    """The verdict of a search, and of schedules in which not every read of a flag acquires."""
    options = replace(options, schedules=options.schedules or _DRAWN_AFTER)
    drawn = _sampled(replace(verdict, reason=""), checkable, options)
    return replace(drawn, policy=verdict.policy, reason="; ".join(filter(None, (IF_ALL_ACQUIRE, drawn.reason))))


def _resting_on(reason: str | None, trial: Trial) -> str:
    """Return the reason with what the trial assumes of its kernels."""
    return "; ".join(filter(None, (reason, *trial.assumed)))


def _about_fault(verdict: Verdict, fault: Fault, trial: Trial, times: int) -> str:
    """Say how often it came to the fault, how runs ended then, and what the protocol tolerates."""
    came = f"it came to the fault in {times:,} of {verdict.schedules:,} schedules"
    often = f"of {verdict.schedules:,} schedules" if fault.kind == "stall" else came
    blocking = "" if trial.may_wait(fault) else ", and no core waits for ever"
    if fault.kind in trial.tolerated:
        says = f"tolerates {fault.kind}: it takes no wrong bits for right{blocking}"
    else:
        says = f"does not tolerate {fault.kind}{blocking and ', but no core may wait for ever'}"
    return f"{often}: {_endings(verdict)}; {verdict.protocol} {says}"


def _endings(verdict: Verdict) -> str:
    """Say how runs ended in which something broke."""
    n = {name: f"{count:,}" for name, count in verdict.ended.items()}
    codes = ", ".join(f"{name}: {count:,}" for name, count in verdict.declared.items())
    said = [f"{n['right']} ended right", f"{n['declared error']} in a declared error{codes and f' ({codes})'}"]
    said.append(f"{n['blocked']} blocked")
    if verdict.ended["refused by the machine"]:
        said.append(f"{n['refused by the machine']} were refused by the machine")
    if verdict.ended["given up at the link"]:
        said.append(f"{n['given up at the link']} waited for writes alone that the machine gives up at the link")
    return ", ".join(said)
