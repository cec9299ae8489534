"""Assertions about protocols, for any test runner."""

from typing import Any

from xccl_emu.check.check import check
from xccl_emu.check.trial import Checkable
from xccl_emu.check.verdict import VERIFIED, VIOLATION, Verdict
from xccl_emu.testing import witnesses


class NotVerified(AssertionError):
    """A check did not come to the verdict that was asserted; ``verdict`` is the one it came to."""

    def __init__(self, text: str, verdict: Verdict) -> None:
        super().__init__(text)
        self.verdict = verdict


class ProtocolViolation(NotVerified):
    """A check has found a violation; the text is the verdict and the run that leads there, as a table.

    ``shown_elsewhere`` leaves the table out, for a runner that shows ``witness`` by itself.
    """

    def __init__(self, checkable: Checkable, verdict: Verdict) -> None:
        assert verdict.violation is not None
        super().__init__(witnesses.headline(verdict), verdict)
        self.checkable = checkable
        self.witness = witnesses.witness_text(checkable, verdict)
        self.line = witnesses.witness_line(checkable, verdict)
        self.shown_elsewhere = False

    def __str__(self) -> str:
        headline = str(self.args[0])
        return headline if self.shown_elsewhere else f"{headline}\n\n{self.witness}"


def assert_verified(checkable: Checkable, **options: Any) -> Verdict:
    """Check every schedule (`check` with its options) and return the verdict, which is ``"verified"``.

    Raises ProtocolViolation for a violation, NotVerified if the search met a limit or cannot be done.
    """
    __tracebackhide__ = True
    return _judged(checkable, check(checkable, **options), VERIFIED)


def assert_no_violation(checkable: Checkable, **options: Any) -> Verdict:
    """Check some schedules, by all sampling policies in turn unless ``policy`` says otherwise; return the verdict.

    For configurations that are too large for `assert_verified`.  Raises as that does.
    """
    __tracebackhide__ = True
    return _judged(checkable, check(checkable, **({"policy": "portfolio"} | options)))


def _judged(checkable: Checkable, verdict: Verdict, wanted: str = "") -> Verdict:
    """The verdict, if it is good enough."""
    __tracebackhide__ = True
    if verdict.verdict == VIOLATION:
        raise ProtocolViolation(checkable, verdict)
    if not verdict.ok or (wanted and verdict.verdict != wanted):
        raise NotVerified(witnesses.headline(verdict), verdict)
    return verdict
