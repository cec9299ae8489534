"""The model beside the emulator's brute force and its searches."""

from collections.abc import Iterator
from typing import NamedTuple

from xccl_emu.check import verdict as kinds
from xccl_emu.check.sampling import sample
from xccl_emu.guards.campaign import judge
from xccl_emu.guards.campaign.programs import Small
from xccl_emu.machine.explore import Explored

from . import scalar, spec
from .program import Program
from .races import Race
from .translate import said


class Compared(NamedTuple):
    """What was compared of a program under an order, and what differs."""

    order: str
    outcomes: bool
    """Did model and brute force both come to their end?"""
    verdict: str
    """The model's: ``verified``, what is wrong, or ``unfinished``."""
    searched: int
    """Searches that came to a verdict beside it."""
    differences: tuple[str, ...]


class Limits(NamedTuple):
    """How many states each may visit."""

    model: int = 4_000
    brute: int = 4_000
    search: int = 20_000
    seconds: float = 5.0


LIMITS = Limits()


def compare(small: Small, order: str, limits: Limits = LIMITS) -> Compared:
    """What all say of a program under an order; raises `translate.Unknown` where the model has no word for it."""
    program = said(small, order)
    found = spec.explore(program, limits.model)
    if not found.complete:
        return Compared(order, False, kinds.UNFINISHED, 0, ())
    naive = small.naive(order, limits.brute)
    differences = list(_of_outcomes(small, found, naive)) if naive.complete else []
    verdict, race = _verdict(program, found, limits)
    if verdict in ("undefined", kinds.VERIFIED) and (verdict == "undefined") != (scalar.MET in found.errors):
        differences.append(f"by happens-before {verdict}; as writes become visible {sorted(found.errors)}")
    searched = 0
    for name in judge.SEARCHES if verdict != kinds.UNFINISHED else ():
        budget = judge.JudgeBudget(states=limits.search, seconds=limits.seconds)
        theirs = judge.verdict_of(judge.searched(small.trial(order, None), name, budget))
        searched += theirs != kinds.UNFINISHED
        if theirs != kinds.UNFINISHED and (theirs == kinds.VERIFIED) != (verdict == kinds.VERIFIED):
            differences.append(f"model {verdict}, {name} {theirs}{_told(race)}")
    return Compared(order, naive.complete, verdict, searched, tuple(differences))


def compare_drawn(small: Small, order: str, limits: Limits, schedules: int) -> Compared:
    """What model and drawn schedules say of a program in which not every read acquires; for searches they do.

    That none of the schedules has the race of the model is a difference too, so they must be many.
    """
    program = said(small, order)
    found = spec.explore(program, limits.model)
    verdict, race = _verdict(program, found, limits) if found.complete else (kinds.UNFINISHED, None)
    if verdict == kinds.UNFINISHED:
        return Compared(order, False, verdict, 0, ())
    drawn = sample.sample(small.trial(order, None), schedules=schedules).violation
    agree = (drawn is None) == (verdict == kinds.VERIFIED)
    said_of_it = "nothing" if drawn is None else f"{drawn.kind}: {drawn.message}"
    return Compared(order, True, verdict, 1, () if agree else (f"model {verdict}{_told(race)}; drawn {said_of_it}",))


def _verdict(program: Program, found: spec.Found, limits: Limits) -> tuple[str, Race | None]:
    """What the model says of a program, where nothing is expected at its end."""
    if program.lines:  # what a line that is written back releases the pages do not say
        return kinds.UNFINISHED, None
    race, complete = spec.find_race(program, limits.model)
    if race:
        return "race" if race.one else "undefined" if race.validated else "unwritten", race
    if found.errors or found.deadlock:
        return "error" if found.errors else "deadlock", None
    return kinds.VERIFIED if complete else kinds.UNFINISHED, None


def _told(race: Race | None) -> str:
    """The two accesses of a race, for whoever looks at a difference."""
    if race is None:
        return ""
    sides = [access for access in race[:2] if access is not None]
    return "; ".join(["", *(f"{a.engine} {'writes' if a.writes else 'reads'} {a.first}..{a.behind}" for a in sides)])


def _of_outcomes(small: Small, found: spec.Found, naive: Explored) -> Iterator[str]:
    """What the model and brute force do not both have."""
    ranges = small.observed(small.pod("sc"))
    n = small.n_words()
    places = [at for first, size in ranges for at in range(first, first + size, 8)]
    ours = {tuple(int.from_bytes(end[at : at + 8], "little", signed=True) for at in places) for end in found.outcomes}
    theirs = {words[:n] for words in naive.outcomes}
    if ours != theirs:
        alone = f"model alone {len(ours - theirs)}, brute force alone {len(theirs - ours)}"
        yield f"outcomes: {alone}, both {len(ours & theirs)}"
    if found.deadlock != bool(naive.deadlocks):
        yield f"deadlock: model {found.deadlock}, brute force {naive.deadlocks}"
    if bool(found.errors) != bool(naive.errors):
        yield f"errors: model {sorted(found.errors)}, brute force {sorted(naive.errors)}"
