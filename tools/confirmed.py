"""Write the second table of docs/records/proofs.md: who confirms the verdict on each shipped case, at which sizes."""

import sys
from collections.abc import Sequence

from pages import ROOT, Remade, between, command, rows, table

from xccl_emu.check.check import check
from xccl_emu.check.verdict import BRUTE_FORCE, Confirmation
from xccl_emu.protocol.registry import make, names

PAGE = ROOT / "docs" / "records" / "proofs.md"
COLUMNS = ("case", "agreed by", "confirmed by brute force", "states of that")
SECONDS = 8.0


def row(name: str) -> tuple[str, ...]:
    """A line of the table: a case at its usual sizes."""
    verdict = check(make(name), seconds=120, confirm_seconds=SECONDS)
    found = verdict.confirmation
    if found is None:
        return name, verdict.verdict, "", ""
    agreed = ", ".join(f"{one.by} ({one.states:,})" for one in found.agreed)
    against = found.contradicted
    return name, agreed, *((f"CONTRADICTED by {against.words()}", "") if against is not None else brute_force(found))


def brute_force(found: Confirmation) -> tuple[str, str]:
    """Return the sizes at which it has ended, with how many states, and the least sizes at which it has not."""
    one = found.confirmed
    if one is not None:
        return one.at().removeprefix(" at ") or "itself", f"{one.states:,}"
    tried = [each for each in found.opinions if each.by == BRUTE_FORCE]
    return "not in time" + (tried[-1].at() if tried else ""), ""


def page(text: str, check: bool, asked: Sequence[str], by: Remade) -> str:
    """The page with the rows of some cases, or all, made again."""
    return between(text, "confirmed", table(COLUMNS, rows(text, "confirmed", names(), asked, row, by)))


if __name__ == "__main__":
    sys.exit(command(__doc__, PAGE, page, names()))
