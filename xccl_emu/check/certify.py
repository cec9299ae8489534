"""A verdict, reached once more by roads that share nothing with the search: brute force, and sampled schedules.

A search reduces, and a mistake in a reduction makes a wrong protocol "verified".  The brute-force search of
`machine.explore` reduces nothing, and the monitor of sampled schedules judges actions of the machine itself.  They
say less (see `Certificate`), but depend on nothing else.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import CapacityError, ConfigError
from xccl_emu.base.sizes import some
from xccl_emu.check.reach import reach_of
from xccl_emu.check.shrink import with_violation
from xccl_emu.check.trial import Checkable, Trial
from xccl_emu.check.verdict import UNFINISHED, VERIFIED, Certificate, Verdict, Violation
from xccl_emu.machine.clock import working_seconds

SECONDS, ADVICE_SECONDS = 30.0, 2.0
"""Seconds of a certificate by default, and of each for advice (redundant, may be weaker), where there are many."""
MAX_STATES = 1_000_000
"""States that brute force visits by default."""
_SHARE_OF_BRUTE_FORCE = 0.5
_BYTES_MAX = 1 << 29
_REPORT = "please report this as a bug of xccl_emu"


def certify(
    checkable: Checkable, verdict: Verdict, *,
    seconds: float = SECONDS, max_states: int = MAX_STATES, schedules: int | None = None,
) -> Verdict:  # fmt: skip
    """The verdict with a certificate; another verdict if the certificate contradicts it.

    Up to half of the time goes to brute force, what is then left, at least half, to sampled schedules, at most
    ``schedules`` of them.  If these show a violation, that is the verdict; if brute force alone finds something,
    nothing is verified any more.  Of a violation it is seen whether its schedule replays.  Raises ConfigError for
    limits that are not positive and for a verdict under a fault.
    """
    from xccl_emu.check.sampling.sample import sample

    for name, limit in (("seconds", seconds), ("max_states", max_states)):
        if not limit > 0:
            raise ConfigError(name, limit, "must be positive")
    if verdict.fault:
        raise ConfigError(f"verdict: is one under fault {verdict.fault!r}, and brute force knows nothing of faults")
    if verdict.violation is not None:
        return replace(verdict, certificate=_of_violation(checkable, verdict))
    started = working_seconds()
    brute = by_brute_force(checkable, verdict, _SHARE_OF_BRUTE_FORCE * seconds, max_states)
    left = max(seconds - (working_seconds() - started), (1 - _SHARE_OF_BRUTE_FORCE) * seconds)
    trial = checkable.build(verdict.order, verdict.without)
    sampled = sample(trial, seed=verdict.seed, seconds=left, schedules=schedules)
    certificate = replace(brute, schedules=sampled.schedules, seconds=working_seconds() - started)
    return _with_certificate(checkable, verdict, certificate, sampled.violation)


def _of_violation(checkable: Checkable, verdict: Verdict) -> Certificate:
    """Does its schedule show it again?"""
    from xccl_emu.check.sampling.sample import replay

    assert verdict.violation is not None
    started = working_seconds()
    violation = verdict.violation
    shown = replay(checkable.build(verdict.order, verdict.without), violation.actions, violation.loop)
    why = "" if shown is not None else "the schedule of the violation shows nothing when it is replayed"
    return Certificate(replayed=not why, seconds=working_seconds() - started, disagreement=why)


def by_brute_force(
    checkable: Checkable, verdict: Verdict, seconds: float, max_states: int,
    progress: Callable[[int, int, float], None] | None = None,
) -> Certificate:  # fmt: skip
    """Return what the brute-force search says of a verdict, within its limits; it knows nothing of faults."""
    from xccl_emu.machine.explore import explore

    trial = checkable.build(verdict.order, verdict.without)
    ranges = [_rounded(*each) for expected in trial.expected for each in expected.ranges]
    proof = verdict.verdict == VERIFIED
    try:
        found = explore(trial.pod, ranges, max_states, seconds, _BYTES_MAX, progress, trial.gives_up)
    except CapacityError as error:
        return Certificate(too_large=f"too large for brute force ({error})", of_proof=proof)
    wrong = [f"a run ends in an error: {message}" for message in sorted(found.errors)[:1]]
    wrong += [f"deadlock in {some(found.deadlocks, 'states')}"] if found.deadlocks else []
    wrong += [f"{words} waits, which was said never to" for words in _waiting(trial, verdict, found.sites)][:1]
    wrong += [text for outcome in sorted(found.outcomes) for text in _wrong_bytes(trial, ranges, outcome)][:1]
    disagreement = "; ".join(f"brute force: {text}" for text in wrong)
    return Certificate(found.states, found.complete, disagreement=disagreement, of_proof=proof)


def _waiting(trial: Trial, verdict: Verdict, sites: NDArray[np.int64]) -> list[str]:
    """Places that are said never to have been waited at, and where brute force has seen a core wait."""
    waiting = {place for place in reach_of(trial.pod, sites).places if place.reached and place.may_wait}
    claimed = () if verdict.reach is None else verdict.reach.never_waited
    return [place.words() for place in claimed if replace(place, may_wait=True) in waiting]


def _rounded(address: int, nbytes: int) -> tuple[int, int]:
    """A range, rounded outwards to words."""
    start = address // 8 * 8
    return start, -(-(address + nbytes) // 8) * 8 - start


def _wrong_bytes(trial: Trial, ranges: list[tuple[int, int]], outcome: tuple[int, ...]) -> Iterator[str]:
    """Say what is not as expected where a run ended with these words."""
    from xccl_emu.check.messages import wrong_byte

    words, at, rounded = np.array(outcome, np.int64), 0, iter(ranges)
    for expected in trial.expected:
        parts = []
        for address, nbytes in expected.ranges:
            start, size = next(rounded)
            parts.append(words[at : at + size // 8].view(np.uint8)[address - start :][:nbytes])
            at += size // 8
        if text := wrong_byte(trial.pod, expected, np.concatenate(parts))[1]:
            yield f"at the end of a run {text}"


def _with_certificate(
    checkable: Checkable, verdict: Verdict, certificate: Certificate, found: Violation | None
) -> Verdict:
    """The verdict with what brute force has said, and what sampled schedules have found."""
    if found is None:
        return _unless_contradicted(replace(verdict, certificate=certificate))
    both = "; ".join(text for text in (certificate.disagreement, f"sampled schedules: {found.kind}") if text)
    shown = with_violation(checkable, verdict, found)
    reason = contradiction(verdict, both)
    return replace(shown, reason=reason, certificate=replace(certificate, disagreement=both), reach=None)


def _unless_contradicted(verdict: Verdict) -> Verdict:
    """The verdict, if its certificate lets it stand."""
    assert verdict.certificate is not None
    if verdict.certificate.agrees:
        return verdict
    reason = contradiction(verdict, verdict.certificate.disagreement)
    return replace(verdict, verdict=UNFINISHED, reason=f"{reason}; no schedule of it is known", reach=None)


def contradiction(verdict: Verdict, found: str) -> str:
    """Say that something was found that the verdict did not say; loudly, if it had been a proof."""
    if verdict.verdict == VERIFIED:
        return f"CONTRADICTED: the exhaustive search had said verified, but {found}; {_REPORT}"
    return f"found for its certificate: {found} (before: {verdict.verdict})"
