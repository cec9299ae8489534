"""Certificates: a verdict reached once more by brute force and sampled schedules, or contradicted by them."""

from dataclasses import replace

import pytest

from tests.testing.cases import telling
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.certify import certify
from xccl_emu.check.check import check
from xccl_emu.check.reach import Reach
from xccl_emu.check.verdict import UNFINISHED, VERIFIED, VIOLATION, WRONG_BITS, Verdict

from .traps import OK, Trap


def meeting(wanted: int = 1, word: int = 5) -> Trap:
    """Die 0 writes a word and a flag; die 1 waits for the flag."""
    return Trap("meeting", f"store 1.4 5; quiet; store 1.0 1; quiet | ge 1.0 {wanted}", OK, {0o14: word}, owners=(1,))


FORGED = Verdict(VERIFIED, "meeting", {}, "relaxed", "exhaustive", 0)
"""A verdict that nobody has reached."""


def test_a_right_verdict_is_certified_in_full() -> None:
    """Brute force visits every state of a small protocol, schedules are sampled, and both agree."""
    verdict = check(telling(), certify=2.0)
    assert (verdict.verdict, verdict.reason) == (VERIFIED, "")
    certificate = verdict.certificate
    assert certificate.agrees
    assert certificate.complete
    assert certificate.states > verdict.states
    assert certificate.schedules > 100
    assert verdict.to_json()["certificate"]["agrees"] is True
    assert certificate.covers() == "brute force in full, sampled schedules"
    assert certificate.words().startswith("agrees; brute force every state, ")


def test_a_violation_is_certified_by_its_replay() -> None:
    """Its schedule shows it again; one that does not is said to disagree."""
    verdict = check(telling(), without=["word before flag"], certify=1.0)
    assert verdict.verdict == VIOLATION
    assert verdict.certificate.replayed
    cut = replace(verdict.violation, actions=verdict.violation.actions[:1])
    again = certify(telling(), replace(verdict, violation=cut), seconds=1.0).certificate
    assert not again.agrees


@pytest.mark.parametrize(("sizes", "kind"), [({"wanted": 2}, "deadlock"), ({"word": 6}, WRONG_BITS)])
def test_a_wrong_verdict_is_contradicted(sizes: dict[str, int], kind: str) -> None:
    """A forged "verified" becomes the violation that sampled schedules show, and says what the search had said."""
    case = meeting(**sizes)
    verdict = certify(case, FORGED, seconds=1.0)
    assert verdict.verdict == VIOLATION
    assert verdict.violation.kind == kind
    assert verdict.reason.startswith("CONTRADICTED: the exhaustive search had said verified, but brute force: ")
    assert "please report this" in verdict.reason


@pytest.mark.parametrize(("sizes", "told"), [({"wanted": 2}, "deadlock in"), ({"word": 6}, "12 is wrong at")])
def test_what_brute_force_alone_finds_is_not_verified(
    sizes: dict[str, int], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a schedule that shows it the verdict is "unfinished", and what was found stands in its reason."""
    from xccl_emu.check.sampling import sample as sampling

    nothing = sampling.Sampled("portfolio", 0, 7, 70, 0.1, {}, None)
    monkeypatch.setattr(sampling, "sample", lambda *_, **__: nothing)
    case = meeting(**sizes)
    verdict = certify(case, FORGED, seconds=1.0)
    assert verdict.verdict == UNFINISHED
    assert told in verdict.reason
    assert "no schedule of it is known" in verdict.reason
    assert not verdict.certificate.agrees
    assert verdict.certificate.schedules == 7


def test_a_poll_that_waits_and_was_said_not_to_contradicts() -> None:
    """Brute force sees where cores wait, too."""
    case = meeting()
    reach = check(case).reach
    assert not reach.never_waited
    forged = replace(FORGED, reach=Reach(tuple(replace(place, may_wait=False) for place in reach.places)))
    verdict = certify(case, forged, seconds=1.0)
    assert verdict.verdict == UNFINISHED
    assert "waits, which was said never to" in verdict.reason
    assert verdict.reach is None


def test_limits_of_brute_force_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that is too large for it, and a search that was not finished."""
    with monkeypatch.context() as small:
        small.setattr("xccl_emu.machine.explore._STATE_WORDS_MAX", 100)
        large = certify(meeting(), FORGED, seconds=0.1).certificate
    assert "too large for brute force" in large.words()
    assert large.covers() == "no brute force: too large, sampled schedules"
    part = certify(meeting(), FORGED, seconds=0.1, max_states=3).certificate
    assert not part.complete
    assert "brute force a part" in part.words()
    assert part.agrees


def test_bad_limits_are_refused() -> None:
    """They are positive, and a verdict under a fault is no proof."""
    for limits in ({"seconds": 0.0}, {"max_states": 0}):
        with pytest.raises(ConfigError, match="must be positive"):
            certify(meeting(), FORGED, **limits)
    with pytest.raises(ConfigError, match="certify=0: must be a number, and positive"):
        check(meeting(), certify=0)
    with pytest.raises(ConfigError, match="cannot be combined with a fault"):
        check(meeting(), certify=1.0, fault="stop:die1")
    with pytest.raises(ConfigError, match="one under fault"):
        certify(meeting(), replace(FORGED, fault="stop:die1"))
