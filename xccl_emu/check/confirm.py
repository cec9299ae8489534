"""Second opinions on what is verified, within some seconds: searches that reduce less, and brute force.

A search with ``reduction="less"`` or ``"merged"`` shares code with the one that is doubted: it *agrees*, or does not.
Brute force (`check.certify`) reduces nothing and shares nothing: it alone *confirms*, the configuration itself or,
where that does not end in time, a smaller one of the same case that the search verifies too.  It begins at the least
sizes and goes up as long as there is time.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from xccl_emu.check.certify import by_brute_force, contradiction
from xccl_emu.check.faults import adds_nothing, parse
from xccl_emu.check.shrink import with_violation
from xccl_emu.check.trial import Checkable, Resizable
from xccl_emu.check.verdict import (
    BRUTE_FORCE,
    SEARCH,
    UNFINISHED,
    UNSUPPORTED,
    VERIFIED,
    VIOLATION,
    Confirmation,
    Opinion,
    Verdict,
    Violation,
)
from xccl_emu.machine.clock import working_seconds

Ask = Callable[[Checkable, str, float], Verdict]
"""Asks what the verdict answers of a configuration, by a reduction or by `BRUTE_FORCE`, within some seconds."""

_WEAKER = {"full": ("less", "merged"), "less": ("merged",), "merged": ()}
_SHARE_OF_SEARCH, _SHARE_OF_BRUTE_FORCE = 0.25, 0.5
"""What one question may take of the time that is left: one does not end, and others may."""
_MAX_STATES = 100_000_000
_DRAWN_SECONDS = 2.0
"""For how long schedules are drawn that show what brute force has found."""

_NO_SMALLER, _NO_TIME = "no smaller configuration fits", "no time was left for a smaller one"

Explored = Callable[[int, int, float], None]
"""Called by brute force now and then: states, transitions and seconds so far."""
Sizes = Mapping[str, int]


def opinions(
    checkable: Checkable, verdict: Verdict, ask: Ask, *, seconds: float, reduction: str, progress: Explored | None
) -> Iterator[Opinion]:
    """Opinions on a verdict that `reduction` led to, one after the other; the last one if it contradicts.

    There is nothing to ask of what is not verified: a violation has a schedule that replays, and anything else claims
    nothing of every schedule.
    """
    if verdict.verdict != VERIFIED:
        return
    asked = _Asked(checkable, verdict, ask, progress, working_seconds() + seconds)
    for one in asked.all(_WEAKER[reduction]):
        yield one
        if one.contradicts:
            return


def confirmed(
    checkable: Checkable, verdict: Verdict, given: Sequence[Opinion], seconds: float,
    interrupted_seconds: float | None = None,
) -> Verdict:
    """The verdict with the opinions that were given on it within these seconds; another one if they contradict it."""
    if verdict.verdict != VERIFIED:
        return verdict
    verdict = replace(verdict, confirmation=Confirmation(seconds, tuple(given), interrupted_seconds))
    against = next((one for one in given if one.contradicts), None)
    if against is None:
        return verdict
    reason = contradiction(verdict, against.words())
    if against.violation is not None and not against.smaller:
        return replace(with_violation(checkable, verdict, against.violation), reason=reason, reach=None)
    return replace(verdict, verdict=UNFINISHED, reason=f"{reason}; no schedule of it is known", reach=None)


@dataclass
class _Asked:
    """What is asked of one verdict, and until when."""

    checkable: Checkable
    verdict: Verdict
    ask: Ask
    progress: Explored | None
    until: float
    late: bool = False
    """Whether a search of a smaller configuration has not ended in time."""

    def all(self, reductions: Sequence[str]) -> Iterator[Opinion]:
        """Everybody's opinion, as long as there is time."""
        found = None
        for by in reductions:
            started = working_seconds()
            found = self.ask(self.checkable, by, self._share(_SHARE_OF_SEARCH))
            yield _of(by, found, {}, working_seconds() - started)
        case = self.checkable if isinstance(self.checkable, Resizable) else None
        if case is None or found is None or found.verdict == VERIFIED:  # else brute force has more states still
            itself = self._brute_force(self.checkable, self.verdict, {})
            yield itself
            if itself.verdict != UNFINISHED:
                return
        if case is not None:
            yield from self._smaller(case)

    @cached_property
    def _launched(self) -> set[str]:
        return _kernels(self.checkable, self.verdict)

    def _share(self, share: float) -> float:
        return max(share * (self.until - working_seconds()), 0.01)

    # ---- brute force

    def _brute_force(self, checkable: Checkable, verdict: Verdict, sizes: Sizes) -> Opinion:
        """Return what brute force says of a configuration that the search has verified."""
        started = working_seconds()
        seconds = self._share(_SHARE_OF_BRUTE_FORCE)
        found = by_brute_force(checkable, verdict, seconds, _MAX_STATES, self.progress)
        wrong = VIOLATION if found.disagreement else VERIFIED if found.complete else UNFINISHED
        opinion = Opinion(BRUTE_FORCE, wrong, sizes, found.states, 0.0, found.disagreement or found.too_large)
        if wrong == VERIFIED and _adds(checkable, verdict):
            broken = self.ask(checkable, BRUTE_FORCE, self._share(_SHARE_OF_BRUTE_FORCE))
            opinion = _of(BRUTE_FORCE, replace(broken, states=broken.states + found.states), sizes, 0.0)
        if opinion.contradicts and opinion.violation is None:
            opinion = replace(opinion, violation=_drawn(checkable, verdict))
        return replace(opinion, seconds=working_seconds() - started)

    # ---- smaller configurations

    def _smaller(self, case: Resizable) -> Iterator[Opinion]:
        """Brute force on the least sizes, then on larger ones, as long as they end: each size in its turn."""
        steps = {name: _steps(values) for name, values in case.lesser().items()}
        sizes = yield from self._least(case, steps)
        if not sizes:
            yield Opinion(BRUTE_FORCE, UNFINISHED, {}, 0, 0.0, _NO_TIME if self.late else _NO_SMALLER)
            return
        least = self._of_smaller(case, sizes)
        yield least
        waiting = [*sizes] if least.verdict == VERIFIED else []
        while waiting and working_seconds() < self.until:
            name = waiting.pop(0)
            larger = _larger(sizes, name, steps[name])
            grown = [self._of_smaller(case, larger)] if larger else []
            if grown and grown[0].by == BRUTE_FORCE and grown[0].verdict != UNFINISHED:
                yield grown[0]
                sizes = larger
                waiting += [name] if name in larger else []

    def _least(self, case: Resizable, steps: Mapping[str, Sequence[int]]) -> Generator[Opinion, None, dict[str, int]]:
        """The least sizes, found one after the other, that the search verifies with less to do.

        A number whose value changes nothing of that is no size, as the payload that a function is called with.
        """
        sizes, work = dict[str, int](), (self.verdict.states, self.verdict.actions)
        for name, values in steps.items():
            for value in values[:-1]:
                found = self._searched(case, {**sizes, name: value})
                self.late |= found.verdict == UNFINISHED
                if found.verdict == VIOLATION:
                    yield _of(SEARCH, found, {**sizes, name: value}, found.seconds)
                less = (found.states, found.actions)
                if found.verdict == VERIFIED and less < work:
                    sizes[name], work = value, less
                    break
        return sizes

    def _of_smaller(self, case: Resizable, sizes: Sizes) -> Opinion:
        """Return what brute force says of a smaller configuration, or the search if it has not verified it."""
        found = self._searched(case, sizes)
        if found.verdict != VERIFIED:
            return _of(SEARCH, found, sizes, found.seconds)
        return self._brute_force(case.resized(sizes), found, sizes)

    def _searched(self, case: Resizable, sizes: Sizes) -> Verdict:
        """Return what the search says of a smaller configuration; one that is refused, by any error, is unsupported.

        So is one that launches other kernels: what makes the difference is a choice, and no size.
        """
        try:
            smaller = case.resized(sizes)
            if _kernels(smaller, self.verdict) != self._launched:
                return replace(self.verdict, verdict=UNSUPPORTED, reason="it launches other kernels")
            return self.ask(smaller, "full", self._share(_SHARE_OF_SEARCH))
        except Exception as error:  # of a user's file, that has not been asked for these sizes
            return replace(self.verdict, verdict=UNSUPPORTED, reason=str(error))


def _kernels(checkable: Checkable, verdict: Verdict) -> set[str]:
    """Return the names of the kernels that a configuration launches."""
    return {kernel.name for kernel in checkable.build(verdict.order, verdict.without).pod.kernels}


def _steps(values: Sequence[int]) -> list[int]:
    """Values on the way from the first to the last, each twice as far from the first as the one before."""
    far = [0, *(1 << n for n in range(len(values).bit_length()))]
    return [values[n] for n in far if n < len(values) - 1] + [values[-1]]


def _larger(sizes: Sizes, name: str, steps: Sequence[int]) -> dict[str, int]:
    """The same sizes, but one of them a step nearer to the case's own; without it, if it is the case's own."""
    following = steps[steps.index(sizes[name]) + 1]
    return {each: following if each == name else value for each, value in sizes.items()
            if each != name or following != steps[-1]}  # fmt: skip


def _of(by: str, found: Verdict, sizes: Sizes, seconds: float) -> Opinion:
    """A verdict as an opinion."""
    said = found.verdict if found.verdict in (VERIFIED, VIOLATION) else UNFINISHED
    why = found.reason if said == UNFINISHED else "" if found.violation is None else found.violation.kind
    return Opinion(by, said, sizes, found.states, seconds, why, found.violation)


def _adds(checkable: Checkable, verdict: Verdict) -> bool:
    """Return whether a search by reductions has judged what a fault adds, as it does if a die stops."""
    if not verdict.fault.startswith("stop"):
        return False
    trial = checkable.build(verdict.order, verdict.without)
    fault = parse(verdict.fault, trial.pod.spec)
    return not adds_nothing(fault, trial.may_wait(fault))


def _drawn(checkable: Checkable, verdict: Verdict) -> Violation | None:
    """A schedule that shows what brute force has found, if one is drawn soon."""
    from xccl_emu.check.sampling.sample import sample

    trial = checkable.build(verdict.order, verdict.without)
    return sample(trial, seed=verdict.seed, seconds=_DRAWN_SECONDS).violation
