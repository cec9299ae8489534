"""Write docs/benchmarks.md, and the table in README.md: what the benches emulate beside what was published.

    python tools/benchmarks.py                 run `xccl-emu bench all --no-data --json` and write both
    python tools/benchmarks.py --from FILE     take the results from FILE instead, as that command printed them
    python tools/benchmarks.py --check         end with 1 if README's table is not that of docs/benchmarks.md
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE, README = ROOT / "docs" / "benchmarks.md", ROOT / "README.md"
BEGIN, END = "<!-- benchmarks: written by tools/benchmarks.py -->", "<!-- benchmarks end -->"

HEAD = """# What was published, and what the emulator says

Every row is made by running kernels in virtual time. `input` rows were put in as constants, four constants are fitted
to the `fit` rows (`xccl_emu/timing/fitted.toml` has the report), `check` rows were never fitted to, `shown` rows are
not scored, `exact` ones must come out exactly. Errors are signed: above 0 if the emulated value is larger.

Written by `make docs`; `xccl-emu bench NAME` shows each part.
"""

Row = Mapping[str, Any]


def results(path: Path | None) -> Sequence[Row]:
    """Rows of all benches: out of a file, or by running them."""
    if path is not None:
        text = path.read_text(encoding="utf-8")
    else:
        command = [sys.executable, "-m", "xccl_emu", "bench", "all", "--no-data", "--json"]
        text = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    rows: Sequence[Row] = json.loads(text)["results"]
    return rows


def number(value: float | None) -> str:
    """With the digits that a reader compares."""
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def error(row: Row) -> str:
    """Signed percent; or whether a bound or an exact value holds."""
    if row["error_percent"] is not None and row["role"] != "exact":
        return f"{row['error_percent']:+.1f}%"
    return {True: "holds", False: "MISSED", None: ""}[row["met"]]


def line(row: Row) -> str:
    """A row of a table."""
    relation = "" if row["relation"] == "=" else f"{row['relation']} "
    published = relation + number(row["published"]) if row["published"] is not None else ""
    cells = (row["what"], published, number(row["emulated"]), row["unit"], row["role"], error(row))
    return f"| {' | '.join(cells)} |"


def table(rows: Sequence[Row]) -> str:
    """A table of rows."""
    head = ["| | published | emulated | unit | role | error |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *map(line, rows)])


def scored(rows: Sequence[Row]) -> Iterator[str]:
    """Mean and largest error of fit rows and of check rows, apart."""
    for role in ("fit", "check"):
        errors = {row["what"]: row["error_percent"] for row in rows if row["role"] == role}
        known = {what: percent for what, percent in errors.items() if percent is not None}
        if known:
            worst = max(known, key=lambda what: abs(known[what]))
            mape = sum(map(abs, known.values())) / len(known)
            yield f"{len(known)} {role} rows: MAPE {mape:.1f}%, largest {known[worst]:+.1f}% ({worst})."


def section(name: str, rows: Sequence[Row]) -> str:
    """One bench."""
    told = [row for row in rows if row["bench"] == name]
    return "\n".join([f"## {name}", "", table(told), "", *scored(told), ""])


def page(rows: Sequence[Row]) -> str:
    """The whole page."""
    names = list(dict.fromkeys(row["bench"] for row in rows))
    return "\n".join([HEAD, *(section(name, rows) for name in names)])


def summary(text: str) -> str:
    """README's part: the rows of the page that are fitted or checked, without the baselines."""
    chosen: list[str] = []
    for part in text.split("\n## ")[1:]:
        if not part.startswith("fused, "):
            rows = [line for line in part.splitlines() if line.startswith("|")]
            chosen += [line for line in rows if line.split("|")[5] in (" fit ", " check ")]
    return "\n".join([BEGIN, "", *table([]).splitlines(), *chosen, "", END])


def with_summary(readme: str, text: str) -> str:
    """README with its part made anew."""
    before, rest = readme.split(BEGIN)
    return before + summary(text) + rest.split(END)[1]


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="path", type=Path, metavar="FILE", help="results instead of a run")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args()
    readme = README.read_text(encoding="utf-8")
    if options.check:
        return 0 if with_summary(readme, PAGE.read_text(encoding="utf-8")) == readme else 1
    text = page(results(options.path))
    PAGE.write_text(text, encoding="utf-8")
    README.write_text(with_summary(readme, text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
