"""Write the table of docs/records/proofs.md: every configuration of a shipped protocol that is proved."""

import sys
from collections.abc import Sequence
from functools import cache

from pages import ROOT, Remade, between, command, rows, table
from synchronizations import certified

from xccl_emu.protocol.registry import proofs

PAGE = ROOT / "docs" / "records" / "proofs.md"
cases = cache(proofs)
"""All of them, once in each process."""
COLUMNS = ("configuration", "verdict", "states", "transitions", "certificate")


def row(name: str) -> tuple[str, ...]:
    """A line of the table."""
    verdict = certified(cases()[name], seconds=300)
    assert verdict.certificate is not None
    covers = verdict.certificate.covers() if verdict.certificate.agrees else verdict.certificate.disagreement
    return name, verdict.verdict, f"{verdict.states:,}", f"{verdict.transitions:,}", covers


def page(text: str, check: bool, asked: Sequence[str], by: Remade) -> str:
    """The page with the rows of some protocols, or all, made again."""
    again = [name for name in cases() if not asked or name.partition(":")[0] in asked]
    return between(text, "proofs", table(COLUMNS, rows(text, "proofs", cases(), again, row, by)))


if __name__ == "__main__":
    sys.exit(command(__doc__, PAGE, page, sorted({name.partition(":")[0] for name in cases()})))
