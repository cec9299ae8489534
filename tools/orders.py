"""Write the table of docs/records/orders.md: what a search finds of each shipped protocol under each memory order."""

import sys
from collections.abc import Sequence

from pages import ROOT, Remade, between, command, rows, table

from xccl_emu.check.check import check
from xccl_emu.machine.state import ORDERS
from xccl_emu.protocol.registry import known, make, names

PAGE = ROOT / "docs" / "records" / "orders.md"
COLUMNS = ("protocol", *(f"`{order}`" for order in ORDERS))
STATES_MAX = 5_000_000


def found(name: str, order: str) -> str:
    """Verdict and states of a protocol in the sizes of docs/records/synchronizations.md."""
    verdict = check(make(name, **known(name).preset.each_sync), order=order, max_states=STATES_MAX)
    kind = "" if verdict.violation is None else f": {verdict.violation.kind}"
    return f"{verdict.verdict}{kind}, {verdict.states:,}"


def row(name: str) -> tuple[str, ...]:
    """A line of the table."""
    return name, *(found(name, order) for order in ORDERS)


def page(text: str, check: bool, asked: Sequence[str], by: Remade) -> str:
    """The page with the rows of some protocols, or all, made again."""
    return between(text, "orders", table(COLUMNS, rows(text, "orders", names(), asked or names(), row, by)))


if __name__ == "__main__":
    sys.exit(command(__doc__, PAGE, page, names()))
