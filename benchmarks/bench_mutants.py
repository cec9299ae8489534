"""What finds each planted bug, after how many states or schedules; ``--out docs/records/mutants.md`` makes that page.

With ``--group`` only one table is made again, and takes its place among those that are there.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from check.mutants import SCHEDULES, Mutant
from check.planted import MODULES

from xccl_emu.check.check import check
from xccl_emu.check.verdict import Verdict

COLUMNS = ("bug", "configuration", "found by search", "states", "found by portfolio", "schedules", "policy", "seconds")


@dataclass(frozen=True)
class Line:
    """What was found of one bug."""

    mutant: Mutant
    searched: Verdict
    drawn: Verdict

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of the table's line."""
        search, draw = self.searched.violation, self.drawn.violation
        return (
            self.mutant.name,
            " ".join(f"{k}={v}" for k, v in self.mutant.scenario.configuration.items()),
            search.kind if search else self.searched.verdict,
            f"{self.searched.states:,}",
            draw.kind if draw else self.drawn.verdict,
            f"{self.drawn.schedules:,}",
            draw.found_by.partition(",")[0] if draw else "",
            f"{self.searched.seconds:.2f}",
        )


def look(mutant: Mutant) -> Line:
    """Search twice, because the first time compiles, and draw schedules."""
    check(mutant.planted)
    return Line(mutant, check(mutant.planted), check(mutant.planted, policy="portfolio", schedules=SCHEDULES))


def section(name: str, group: Iterable[Line]) -> str:
    """A table under its heading."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *(line.cells for line in group)]
    return f"## {name.capitalize()}\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def page(groups: Mapping[str, Sequence[Line]], before: str) -> str:
    """The page with a table for each group: new tables, and the others as the page had them."""
    head, *parts = before.split("\n## ")
    kept = {part.partition("\n")[0].lower(): f"## {part}" for part in parts}
    parts = [section(name, groups[name]) if name in groups else kept.get(name.lower(), "") for name in MODULES]
    return "\n".join([head, *(part.rstrip("\n") + "\n" for part in parts if part)])


def main() -> None:
    """Look for all of them and print what was found."""
    flags = argparse.ArgumentParser(description="What finds each planted bug.")
    flags.add_argument("--only", default="", help="part of a name")
    flags.add_argument("--out", type=Path, help="page whose tables are written, as Markdown")
    flags.add_argument("--group", choices=list(MODULES), help="only this one")
    given = flags.parse_args()
    table, groups = Table(*COLUMNS), {}
    for name in [given.group] if given.group else MODULES:
        chosen = [m for m in (*MODULES[name].KNOWN, *MODULES[name].OWN) if given.only in m.name]
        groups[name] = [look(mutant) for mutant in chosen]
        for line in groups[name]:
            table.add_row(*line.cells)
    Console(width=200).print(table)
    if given.out is not None:
        given.out.write_text(page(groups, given.out.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
