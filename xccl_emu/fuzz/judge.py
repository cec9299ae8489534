"""One sequence judged: sampled schedules under the monitor, and if it is small every schedule."""

import functools
from dataclasses import dataclass, replace

from xccl_emu.base.errors import CapacityError
from xccl_emu.check.check import check
from xccl_emu.check.faults import adds_nothing, check_fits, parse
from xccl_emu.check.shrink import with_violation
from xccl_emu.check.verdict import VERIFIED, VIOLATION, Verdict, Violation
from xccl_emu.machine.clock import working_seconds
from xccl_emu.protocol.sequence import Sequence


@dataclass(frozen=True)
class SequenceBudget:
    """How much of a sequence is looked at."""

    order: str = "relaxed"
    without: tuple[str, ...] = ()
    """Synchronizations that are switched off."""
    schedules: int = 120
    """Schedules drawn, by all policies together."""
    states: int = 20_000
    """Most states of a search of every schedule; 0 for none."""
    calls_max: int = 6
    """Most calls of a sequence."""
    cores_max: int = 16
    """Most cores that run a kernel in it."""
    faults: tuple[str, ...] = ()
    """Kinds that break, or whole faults, one in a sequence; those that the protocol says it tolerates if none is
    named."""
    replays: int = 0
    """Replays in each sequence, of one call as a captured graph has it, on other data; 0 for sequences of any calls."""
    seconds: float | None = None
    """So long each process judges, without the time in which it starts and compiles; then it begins nothing new."""
    begun: float = 0.0
    """When all began, which separates this budget from an earlier one."""

    @property
    def spent(self) -> bool:
        """Return True if the time of this process is over, which begins when that is asked first."""
        return self.seconds is not None and working_seconds() - _first_asked(self.begun) > self.seconds


@functools.cache
def _first_asked(begun: float) -> float:
    return working_seconds()


@dataclass(frozen=True, eq=False)
class JudgedSequence:
    """What became of one sequence."""

    violation: Violation | None = None
    schedules: int = 0
    states: int = 0
    proved: bool = False
    """Was every schedule of its last stage covered?"""
    skipped: bool = False
    """Whether it was not judged: it exceeds the budget, cannot be built, or has a fault that does not fit."""


SKIPPED = JudgedSequence(skipped=True)


def judge(sequence: Sequence, fault: str, seed: int, budget: SequenceBudget) -> JudgedSequence:
    """Judge the last stage of a sequence, if a fault is named with that in it; raises what building the pod raises."""
    from xccl_emu.check.sampling.sample import OF_CALLS, sample  # compiled code is imported only when something runs

    trial = sequence.build(budget.order, budget.without)
    if len(trial.pod.active_cores()) > budget.cores_max:
        return SKIPPED
    broken = parse(fault, trial.pod.spec) if fault else None
    if broken is not None and check_fits(broken, trial.pod.spec, budget.order):
        return SKIPPED
    schedules = 0
    for policy in OF_CALLS:
        each = -(-budget.schedules // len(OF_CALLS))
        sampled = sample(trial, policy, seed=seed, schedules=each, fault=broken, at_once=each)
        schedules += sampled.schedules
        if sampled.violation is not None:
            return JudgedSequence(sampled.violation, schedules)
    if not budget.states or (broken is not None and adds_nothing(broken, trial.may_wait(broken))):
        return JudgedSequence(None, schedules)  # what has been searched without such a fault need not be searched again
    return _searched(sequence, fault, schedules, budget)


def _searched(sequence: Sequence, fault: str, schedules: int, budget: SequenceBudget) -> JudgedSequence:
    verdict = check(sequence, order=budget.order, without=budget.without, max_states=budget.states, fault=fault)
    return JudgedSequence(verdict.violation, schedules, verdict.states, verdict.verdict == VERIFIED)


def verdict_of(sequence: Sequence, fault: str, seed: int, budget: SequenceBudget, violation: Violation) -> Verdict:
    """Return a violation as a check reports it: the most informative one near it, by a schedule made short."""
    configuration = dict(sequence.configuration)
    verdict = Verdict(VIOLATION, sequence.name, configuration, budget.order, "fuzz", seed, budget.without, fault)
    try:
        return with_violation(sequence, verdict, violation)
    except CapacityError:  # its pod cannot be copied
        return replace(verdict, violation=violation)
