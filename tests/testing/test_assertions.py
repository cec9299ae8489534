"""The assertions, and what their errors carry."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError, ReplayError
from xccl_emu.check import verdict as kinds
from xccl_emu.testing import (
    NotVerified,
    ProtocolViolation,
    Verdict,
    assert_no_violation,
    assert_verified,
    check,
    replay,
    save_witness,
    syncs,
    witness_text,
)

from .cases import telling


@settings(max_examples=10)
@given(st.integers(1, 1 << 40), st.sampled_from(("sc", "fifo", "relaxed")))
def test_what_is_right_is_verified(value: int, order: str) -> None:
    """The verdict comes back, of the configuration and order that were asked for."""
    verdict = assert_verified(telling(value), order=order)
    assert (verdict.verdict, verdict.configuration, verdict.order) == (kinds.VERIFIED, {"value": value}, order)


@pytest.mark.parametrize("checkable", [3, None, telling, "sendrecv"])
def test_what_is_no_case_is_refused(checkable: Any) -> None:
    """A protocol that was not called, and anything else; the error says how a case is made."""
    with pytest.raises(ConfigError, match=r"must be a case: a protocol called with its sizes, as in NAME\(dies=2\)"):
        check(checkable)


def test_a_violation_is_raised_with_its_table() -> None:
    """The text is the verdict and the witness, without colours; the verdict goes with it."""
    with pytest.raises(ProtocolViolation) as caught:
        assert_verified(telling(), without=["word before flag"])
    text, verdict = str(caught.value), caught.value.verdict
    assert text.startswith("violation: ")
    assert "telling value=7; order relaxed; exhaustive; without word before flag" in text
    assert "die1.word" in text
    assert "SWITCHED OFF: quiet (word before flag)" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 120
    assert verdict.violation is not None
    assert verdict.without == ("word before flag",)


def test_sampled_schedules_find_it_too() -> None:
    """The policies in turn, by seed; and where they find nothing that is said, and is no proof."""
    with pytest.raises(ProtocolViolation, match="portfolio; seed 3; without word before flag"):
        assert_no_violation(telling(), without=["word before flag"], seed=3)
    assert assert_no_violation(telling(), schedules=20).verdict == kinds.NO_VIOLATION
    with pytest.raises(NotVerified, match=kinds.NO_VIOLATION):
        assert_verified(telling(), policy="portfolio", schedules=20)


@pytest.mark.parametrize("assertion", [assert_verified, assert_no_violation])
def test_an_unfinished_search_is_no_proof(assertion: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that met its limit, or cannot be done, fails either assertion, and not as a violation."""
    for what in (kinds.UNFINISHED, kinds.UNSUPPORTED):
        given_up = Verdict(what, "telling", {}, "relaxed", "exhaustive", 0, reason="too large")
        monkeypatch.setattr("xccl_emu.testing.assertions.check", lambda *_, _v=given_up, **__: _v)
        with pytest.raises(NotVerified, match=f"{what} .*too large") as caught:
            assertion(telling())  # type: ignore[operator]
        assert not isinstance(caught.value, ProtocolViolation)


def test_a_saved_witness_replays(tmp_path: object) -> None:
    """The file shows the same violation again on the case it is of, and is refused on any other."""
    case = telling()
    verdict = check(case, without=["word before flag"])
    path = save_witness(case, verdict, f"{tmp_path}/new/folder/w.json")
    shown = replay(case, path)
    assert (shown.kind, shown.message) == (verdict.violation.kind, verdict.violation.message)
    assert shown.actions.tolist() == verdict.violation.actions.tolist()
    with pytest.raises(ReplayError, match="value=7, not 8"):
        replay(telling(8), path)


def test_a_verdict_without_violation_has_no_witness(tmp_path: object) -> None:
    """It can neither be printed nor saved."""
    verdict = check(telling())
    with pytest.raises(ConfigError, match="no violation to show"):
        witness_text(telling(), verdict)
    with pytest.raises(ConfigError, match="no violation to show"):
        save_witness(telling(), verdict, f"{tmp_path}/w.json")


def test_each_synchronization_of_the_case_is_needed() -> None:
    """`syncs` names all of them, in the order of the sources, and without any the case is wrong."""
    assert syncs(telling()) == ("word before flag", "flag", "flag seen")
    for name in syncs(telling()):
        assert check(telling(), without=[name]).verdict == kinds.VIOLATION
