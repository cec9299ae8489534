"""Write docs/records/benchmarks.md, and five rows of it in README.md: emulated times with the published ones.

    python tools/benchmarks.py                 run `xccl-emu bench` all and a few more, and write both
    python tools/benchmarks.py serve ...       only the tables of some, and leave the scoreboard as it is
    python tools/benchmarks.py --from FILE...  take results from files instead, as the command printed them (--json)
    python tools/benchmarks.py --check         end with 1 if README's rows differ from docs/records/benchmarks.md
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from pages import ROOT, between, part_of
from pages import table as table_of

from xccl_emu.base.words import words_of
from xccl_emu.papers.bench.result import HEADS, ONCE, Result, board, score
from xccl_emu.papers.plan.published import COMPUTED

PAGE, README = ROOT / "docs" / "records" / "benchmarks.md", ROOT / "README.md"
SENSITIVITY = "sensitivity"
"""The bench whose rows are a table of constants and results, with a heading of its own in the page."""
IN_README = (
    "dispatch EP16 latency", "dispatch EP32 latency", "combine EP32 latency", "dispatch EP128 latency",
    "combine EP128 latency",
)  # fmt: skip
"""Rows of Table 7 that README shows: none was fitted to, and the one with the largest error is among them."""
ON_THE_BOARD = (ONCE, COMPUTED)
"""Names of baselines that the page has on its scoreboard alone; docs/records/mixserve.md has rows of equations."""
APART = ["serve", "--domains", "3"]
WHOLE = [
    "serve", "--prefill", "4", "--rate", "20", "--prompt", "13000", "--output", "2100", "--balance",
    "least-kv,round-robin",
]  # fmt: skip
BANDED = ("fused", "hixl", "hccl", "deepep")
"""Benches whose rows have intervals in the page."""
COMMANDS = (
    ["all", "--no-data"], ["tables"], ["pool"], ["serve"], APART, ["prefill"], WHOLE, [SENSITIVITY],
    *([name, "--no-data", "--band"] for name in BANDED),
    ["deepep", "--fabric", "examples/fabrics/h800.toml", "--no-data", "--band"],
)  # fmt: skip


def results(paths: Sequence[Path], names: Collection[str] = ()) -> list[Result]:
    """Rows of all benches, or some: out of files, or by running them; a row that comes again stays where it was."""
    texts = [path.read_text(encoding="utf-8") for path in paths] or [run(command) for command in commands(names)]
    rows = [result_of(row) for text in texts for row in json.loads(text)["results"]]
    return [*{row.key: row for row in rows}.values()]


def commands(names: Collection[str]) -> list[Sequence[str]]:
    """Commands that make the tables of these benches, by default all."""
    listed = {command[0] for command in COMMANDS}
    others = [[name, "--no-data"] for name in names if name not in listed]
    return [*(command for command in COMMANDS if not names or command[0] in names), *others]


def run(arguments: Sequence[str]) -> str:
    """Return what a bench prints as JSON."""
    command = [sys.executable, "-m", "xccl_emu", "bench", *arguments, "--json"]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def result_of(row: Mapping[str, Any]) -> Result:
    """A row of that JSON: what follows from the others is left out, what is in no JSON is as it is by default."""
    kept = {field.name for field in fields(Result)}
    words = {word.path: row[name] for name, word in words_of(Result).items() if name in row}
    return Result(**{path: value for path, value in words.items() if path in kept})


def number(value: float | None) -> str:
    """Return a number with the digits that a reader compares."""
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def error(row: Result) -> str:
    """Signed percent; or whether a bound or an exact value holds."""
    if row.error_percent is not None and row.role != "exact":
        return f"{row.error_percent:+.1f}%"
    return {True: "holds", False: "MISSED", None: ""}[row.met]


def with_band(row: Result, n_extra: int) -> str:
    """A row of a table with ``n_extra`` columns of what others measured, and then its interval."""
    band = "" if row.low is None else f"{number(row.low)} to {number(row.high)}"
    return f"{line(row)}{' |' * (n_extra - len(row.extra))} {band} |"


def line(row: Result) -> str:
    """A row of a table."""
    relation = "" if row.relation == "=" else f"{row.relation} "
    published = relation + number(row.published) if row.published is not None else ""
    ours = (row.what, published, number(row.emulated), row.unit, row.role, error(row))
    cells = (*ours, *map(number, row.extra.values()))
    return f"| {' | '.join(cells)} |"


def table(rows: Sequence[Result]) -> str:
    """A table of rows, with a column for what each of others measured."""
    extra = dict.fromkeys(name for row in rows for name in row.extra)
    banded = any(row.low is not None for row in rows)
    names = ("published", "emulated", "unit", "role", "error", *extra, *(["80% interval"] if banded else []))
    lines = (with_band(row, len(extra)) if banded else line(row) for row in rows)
    return "\n".join([f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|", *lines])


def scored(rows: Sequence[Result]) -> Iterator[str]:
    """Mean and largest error of fit rows and of check rows, apart."""
    for role in ("fit", "check"):
        if (one := score(rows, role)) and one.n_rows:
            worst = f"{one.max_percent:+.1f}% ({one.worst.partition(': ')[2]})"
            known = [row.inside for row in rows if row.role == role and row.inside is not None]
            inside = f"; {sum(known)} of {len(known)} in their intervals" if known else ""
            yield f"{one.n_rows} {role} rows: MAPE {one.mape_percent:.1f}%, largest {worst}{inside}."


def section(name: str, rows: Sequence[Result]) -> str:
    """The section of one bench."""
    own = [row for row in rows if row.bench == name]
    kinds = dict.fromkeys(row.kind for row in own if row.kind)
    lines = [f"Latencies: {'; '.join(kinds)}.", ""] if kinds else []
    return "\n".join([f"## {name}", "", *lines, table(own), "", *scored(own), ""])


def sensitivity(rows: Sequence[Result]) -> Iterator[str]:
    """A table of constants and results."""
    names = list(dict.fromkeys(str(row.configuration["result"]) for row in rows))
    yield f"| constant | from | to | {' | '.join(names)} |"
    yield f"|---|---|---|{'---|' * len(names)}"
    for constant in dict.fromkeys(str(row.configuration["constant"]) for row in rows):
        yield _moves(constant, names, [row for row in rows if row.configuration["constant"] == constant])
    yield ""


def _moves(constant: str, names: Sequence[str], rows: Sequence[Result]) -> str:
    """A constant's line: the two ends, and what each does to each result."""
    ends = sorted({row.configuration["value"] for row in rows})
    low_high = [*(end if isinstance(end, str) else number(float(end)) for end in ends), "-"][:2]
    found = {(row.configuration["result"], row.configuration["value"]): float(row.emulated or 0) for row in rows}
    cells = (" / ".join(f"{found[name, end]:+.1f}" for end in ends) for name in names)
    return f"| `{constant}` | {' | '.join([*low_high, *cells])} |"


def page(text: str, rows: Sequence[Result], names: Collection[str] = ()) -> str:
    """The page with the tables of these rows, and with the others as they were if only ``names`` are asked."""
    made = dict.fromkeys(row.bench for row in rows if row.bench != SENSITIVITY and row.baseline not in ON_THE_BOARD)
    sections = {name: section(name, rows) for name in made}
    if names:
        kept = text.partition("<!-- benchmarks: ")[2].partition("<!-- benchmarks end")[0].split("\n## ")[1:]
        sections = {each.partition("\n")[0]: f"## {each}" for each in kept} | sections
    else:
        text = between(text, "scoreboard", table_of(HEADS, board(rows)))
    text = between(text, "benchmarks", *sections.values())
    moved = [row for row in rows if row.bench == SENSITIVITY]
    return between(text, SENSITIVITY, "\n".join(sensitivity(moved))) if moved else text


def summary(text: str) -> str:
    """Return README's part: rows of Table 7 in the page, without the baseline."""
    rows = [line.split("|") for line in part_of(text, "fused").splitlines() if line.startswith("|")]
    chosen = ["|".join([*row[:7], ""]) for name in IN_README for row in rows if row[1].strip() == name]
    return "\n".join([table([]), *chosen])


def with_summary(readme: str, text: str) -> str:
    """Return README with its part made again."""
    return between(readme, "benchmarks", summary(text))


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="benches whose tables are made again; by default all")
    parser.add_argument("--from", dest="paths", type=Path, nargs="+", default=[], metavar="FILE", help="their results")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args()
    readme = README.read_text(encoding="utf-8")
    if options.check:
        return 0 if with_summary(readme, PAGE.read_text(encoding="utf-8")) == readme else 1
    text = page(PAGE.read_text(encoding="utf-8"), results(options.paths, options.names), options.names)
    PAGE.write_text(text, encoding="utf-8")
    README.write_text(with_summary(readme, text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
