"""Every planted bug gives a violation with a witness that replays; without it the same configuration is verified."""

import pytest

from xccl_emu.check.check import check
from xccl_emu.check.sampling.sample import replay
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.protocol import Case
from xccl_emu.protocol.registry import proofs
from xccl_emu.protocols.sendrecv.case import SendRecvCase

from . import mutants_collectives, mutants_ring
from .mutants import SCHEDULES, Edit, Mutant, Planted, changed_text, name_of, text_of
from .planted import MODULES

MUTANTS = tuple(m for module in MODULES.values() for m in (*module.KNOWN, *module.OWN))
SECONDS_MAX = 30
"""In which a search is to find a bug; here it may compile for as long as it likes."""


def _parameters(mutants: tuple[Mutant, ...]) -> list[object]:
    """Quick ones always, the others with the slow tests: each compiles a kernel of its own."""
    return [pytest.param(m, id=m.name, marks=() if m.quick else pytest.mark.slow) for m in mutants]


_VERDICTS = dict.fromkeys(map(repr, proofs().values()), VERIFIED)
"""By configuration; what ships is verified in `tests/cases/test_verified.py`."""


def _verdict_without_bug(scenario: Case) -> str:
    if repr(scenario) not in _VERDICTS:
        _VERDICTS[repr(scenario)] = check(scenario).verdict
    return _VERDICTS[repr(scenario)]


@pytest.mark.parametrize("mutant", _parameters(MUTANTS))
def test_planted_bug_is_found_and_its_witness_replays(mutant: Mutant) -> None:
    """Unplanted it is verified; planted, the search and a portfolio find it, and what they found happens again."""
    expected = [[e.name for e in case.build("relaxed").expected] for case in (mutant.unplanted, mutant.planted)]
    assert expected[0] == expected[1]
    assert _verdict_without_bug(mutant.unplanted) == VERIFIED
    searched = check(mutant.planted, seconds=SECONDS_MAX)
    drawn = check(mutant.planted, policy="portfolio", schedules=SCHEDULES)
    for verdict in (searched, drawn):
        assert (verdict.verdict, verdict.reason) == (VIOLATION, "")
        assert verdict.violation.kind in mutant.kinds
        again = replay(mutant.planted.build("relaxed"), verdict.violation.actions, verdict.violation.loop)
        assert again.kind in mutant.kinds


@pytest.mark.slow
@pytest.mark.parametrize("mutant", mutants_collectives.HARMLESS, ids=str)
def test_a_change_that_is_none_is_verified(mutant: Mutant) -> None:
    """What looks like a bug and is none in its configuration is right in every schedule of it."""
    assert check(mutant.planted, seconds=SECONDS_MAX).verdict == VERIFIED


def test_names_tell_bugs_apart() -> None:
    """Each has a name of its own, and there are as many of each kind of protocol as are known to be needed."""
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)
    assert sum(len(module.KNOWN) for module in MODULES.values()) >= 15
    assert sum(len(module.OWN) for module in MODULES.values()) >= 8


def test_every_planted_bug_fits_the_kernels() -> None:
    """What a bug changes stands in the kernels as they are, and gives Python: it is seen without the slow tests."""
    for mutant in (*MUTANTS, *mutants_collectives.HARMLESS):
        edits = mutant.base + mutant.edits
        for module in {edit.module for edit in edits}:
            changed = changed_text(module, edits)
            assert changed != text_of(name_of(module)), mutant.name
            compile(changed, mutant.name, "exec")


def test_edit_that_fits_nowhere_or_twice_is_refused() -> None:
    """A change of a kernel that no longer has the place, or has it twice, does not pass for a planted bug."""
    scenario = SendRecvCase(slots=2, chunks=3, granules=2)
    for old in ("no such line", "yield put("):
        with pytest.raises(AssertionError, match="times"):
            Planted(scenario, (Edit("sendrecv", old, ""),)).build("relaxed")


def test_planting_leaves_the_shipped_kernels_alone() -> None:
    """While a changed kernel is launched in one trial, the next trial has the shipped one again."""
    scenario = SendRecvCase(slots=2, chunks=3, granules=2)
    shipped = scenario.build("relaxed").pod.fingerprint()
    assert mutants_ring.KNOWN[0].planted.build("relaxed").pod.fingerprint() != shipped
    assert scenario.build("relaxed").pod.fingerprint() == shipped
