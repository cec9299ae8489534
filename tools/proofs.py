"""Write the table of docs/records/proofs.md: every configuration of a shipped protocol that is proved."""

import sys
from collections.abc import Sequence

from pages import ROOT, between, command, rows, table
from synchronizations import certified

from xccl_emu.protocol import Case
from xccl_emu.protocol.registry import proofs

PAGE = ROOT / "docs" / "records" / "proofs.md"
COLUMNS = ("configuration", "verdict", "states", "transitions", "certificate")


def row(name: str, case: Case) -> tuple[str, ...]:
    """A line of the table."""
    verdict = certified(case, seconds=300)
    assert verdict.certificate is not None
    covers = verdict.certificate.covers() if verdict.certificate.agrees else verdict.certificate.disagreement
    return name, verdict.verdict, f"{verdict.states:,}", f"{verdict.transitions:,}", covers


def page(text: str, check: bool = False, asked: Sequence[str] = ()) -> str:
    """The page with the rows of some protocols, or all, made again."""
    cases = proofs()
    again = [name for name in cases if not asked or name.partition(":")[0] in asked]
    return between(text, "proofs", table(COLUMNS, rows(text, "proofs", cases, again, lambda n: row(n, cases[n]))))


if __name__ == "__main__":
    sys.exit(command(__doc__, PAGE, page, sorted({name.partition(":")[0] for name in proofs()})))
