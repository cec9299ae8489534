"""What finds each planted bug, after how many states or schedules; ``--out docs/mutants.md`` writes the table there."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from check import mutants_moe, mutants_own, mutants_ring
from check.mutants import Mutant

from xccl_emu.check.check import check
from xccl_emu.check.verdict import Verdict

MODULES = {"send and receive": mutants_ring, "dispatch and combine": mutants_moe, "small protocols": mutants_own}
COLUMNS = ("bug", "configuration", "found by search", "states", "found by portfolio", "schedules", "policy", "seconds")
HEAD = """\
# Planted bugs

Each bug is a change of a kernel's text, launched in place of the kernel. Without it the configuration is verified
exhaustively under `relaxed`; with it the search and a portfolio of schedules (seed 0) find a violation whose witness
replays (`tests/check/test_mutants.py`). Seconds are those of the search with a compiled kernel.

Made by `benchmarks/bench_mutants.py --out docs/mutants.md`.
"""


@dataclass(frozen=True)
class Line:
    """What was found of one bug."""

    mutant: Mutant
    searched: Verdict
    drawn: Verdict

    @property
    def cells(self) -> tuple[str, ...]:
        """As the table has it."""
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
    return Line(mutant, check(mutant.planted), check(mutant.planted, policy="portfolio", schedules=mutant.schedules))


def markdown(lines: Iterable[tuple[str, Sequence[Line]]]) -> str:
    """A page with a table for each group."""
    parts = [HEAD]
    for name, group in lines:
        rows = [COLUMNS, ("---",) * len(COLUMNS), *(line.cells for line in group)]
        parts.append(f"## {name.capitalize()}\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows))
    return "\n".join(parts)


def main() -> None:
    """Look for all of them and print what was found."""
    flags = argparse.ArgumentParser(description="What finds each planted bug.")
    flags.add_argument("--only", default="", help="part of a name")
    flags.add_argument("--out", type=Path, help="write the table there, as Markdown")
    given = flags.parse_args()
    table, groups = Table(*COLUMNS), []
    for name, module in MODULES.items():
        chosen = [m for m in (*module.KNOWN, *module.OWN) if given.only in m.name]
        groups.append((name, [look(mutant) for mutant in chosen]))
        for line in groups[-1][1]:
            table.add_row(*line.cells)
    Console(width=200).print(table)
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(markdown(groups), encoding="utf-8")


if __name__ == "__main__":
    main()
