"""The model beside the emulator's brute force and its searches."""

from collections.abc import Iterator
from typing import NamedTuple

from xccl_emu.campaign import judge
from xccl_emu.campaign.generate import Case
from xccl_emu.campaign.programs import Small
from xccl_emu.check import verdict as kinds

from . import spec
from .program import Program
from .races import Race
from .translate import said

EVENTS = ("quiet", "deadlock")


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


def compare(small: Small, order: str, limits: Limits = Limits()) -> Compared:
    """What all say of a program under an order; raises `translate.Unknown` where the model has no word for it."""
    program = said(small, order)
    found = spec.explore(program, limits.model)
    if not found.complete:
        return Compared(order, False, kinds.UNFINISHED, 0, ())
    naive = small.naive(order, limits.brute)
    differences = list(_of_outcomes(small, order, found, naive)) if naive.complete else []
    race, complete = spec.find_race(program, limits.model)
    if race:
        verdict = "race" if race.one else "unwritten"
    elif found.errors or found.deadlock:
        verdict = "error" if found.errors else "deadlock"
    else:
        verdict = kinds.VERIFIED if complete else kinds.UNFINISHED
    searched = 0
    if verdict != kinds.UNFINISHED:
        for name in judge.SEARCHES:
            budget = judge.Budget(states=limits.search, seconds=limits.seconds)
            said_so = judge.verdict_of(judge.searched(small.trial(order, None), name, budget))
            if said_so == kinds.UNFINISHED:
                continue
            searched += 1
            if (said_so == kinds.VERIFIED) != (verdict == kinds.VERIFIED):
                differences.append(f"model {verdict}, {name} {said_so}{_told(program, race)}")
    return Compared(order, naive.complete, verdict, searched, tuple(differences))


def _told(program: Program, race: Race | None) -> str:
    """The two accesses of a race, for whoever looks at a difference."""
    if race is None:
        return ""
    sides = [access for access in race if access is not None]
    return "; ".join(["", *(f"{a.engine} {'writes' if a.writes else 'reads'} {a.first}..{a.behind}" for a in sides)])


def _of_outcomes(small: Small, order: str, found: spec.Found, naive: object) -> Iterator[str]:
    """What the model and brute force do not both have."""
    ranges = small.observed(small.pod(order))
    n = small.n_words()
    ends = {
        tuple(int.from_bytes(end[at : at + 8], "little", signed=True) for first, size in ranges for at in range(first, first + size, 8))
        for end in found.outcomes
    }  # fmt: skip
    theirs = {words[:n] for words in naive.outcomes}  # type: ignore[attr-defined]
    if ends != theirs:
        yield f"outcomes: model alone {len(ends - theirs)}, brute force alone {len(theirs - ends)}, both {len(ends & theirs)}"
    if found.deadlock != bool(naive.deadlocks):  # type: ignore[attr-defined]
        yield f"deadlock: model {found.deadlock}, brute force {naive.deadlocks}"  # type: ignore[attr-defined]
    if bool(found.errors) != bool(naive.errors):  # type: ignore[attr-defined]
        yield f"errors: model {sorted(found.errors)}, brute force {sorted(naive.errors)}"  # type: ignore[attr-defined]
