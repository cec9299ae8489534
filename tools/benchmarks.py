"""Write docs/benchmarks.md, and the table in README.md: what the benches emulate beside what was published.

    python tools/benchmarks.py                 run `xccl-emu bench` all, eplb and sensitivity, and write both
    python tools/benchmarks.py --from FILE...  take results from files instead, as the command printed them (--json)
    python tools/benchmarks.py --check         end with 1 if README's table is not that of docs/benchmarks.md
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from xccl_emu.bench.result import Result, score

ROOT = Path(__file__).parent.parent
PAGE, README = ROOT / "docs" / "benchmarks.md", ROOT / "README.md"
BEGIN, END = "<!-- benchmarks: written by tools/benchmarks.py -->", "<!-- benchmarks end -->"
COMMANDS = (["all", "--no-data"], ["eplb", "--no-data"], ["sensitivity"])

HEAD = """# What was published, and what the emulator says

Every row is made by running kernels in virtual time. `input` rows were put in as constants, three constants are fitted
to the `fit` rows (`xccl_emu/timing/fitted.toml` has the report), `check` rows were never fitted to, `shown` rows are
not scored, `exact` ones must come out exactly. Errors are signed: above 0 if the emulated value is larger.

Written by `make docs`; `xccl-emu bench NAME` shows each part.
"""

MISSES = """## What misses, and why, as far as it is understood

- **512 KB on 2 cores** (Figure 5), from the start of `send` to its end, with the launch. Each core moves four chunks of
  64 KB. Since a fence orders each tail behind its chunk, the latency of a write is paid once. What is left: the
  launch, 3.7 us; one chunk's way through four pipes before all of them are busy; and 256 KB at the rate of a core,
  which is assumed. With cores at the fast end of what is plausible it holds within a node, and nearly so between.
- **A2E, E2A** go in 2 and in 4 parts, of which a trampoline forwards one while the next arrives; nothing was published
  of parts, and they were not chosen by the numbers. A trampoline sends back its own experts' rows through the port by
  which it forwards, 1,344 rows or 143 us in all, so parts cannot hide all of the way there behind the way back. A2E is
  the mean of expert dies, which wait for the last attention die; it moves with the spread of arrivals.
- **By URMA** both take far longer than through the data buffers: a descriptor for each message and each row, all
  started by one engine a die, one after the other. That is right for HIXL's copies of megabytes, and too slow for
  messages of 7.5 KB if a die has more than one such engine. The paper employs URMA; what a descriptor takes there was
  not published.
- **TPOT** is of three layers that are run; attention and experts take as long as published, whatever is assumed here.
- **Least dispatch of Figure 20.** With two tokens a request and a redundant expert on every die its wire takes about
  50 us of the published 185. The least of a die's layers is that of a rank that came last, or nearly, so arrivals
  explain nothing of it: what is missing is in neither the protocol's steps nor the waiting. Figure 6 has dispatch as
  the faster operator at such batches, as here.
- **Means and greatest of Figure 20.** Ranks arrive apart by the one spread that Table 7 was fitted to. In an iteration
  attention, experts and the launch leave them further apart, the greatest by a millisecond; no published number says
  how far, so nothing is put in for it. The same holds for the share of the iteration.
- **HIXL's blocks of 1 and 2 MiB**: start-up is one constant for both directions and distances; the published rows want
  0.2 us within a node and up to 1 us between nodes.
"""

SENSITIVITY = """## sensitivity

How many percent a result moves when one constant that no published row determines is set to the ends of its plausible
range, and all others are left alone. The default is between the two; a dash says that it is the end itself.
"""


def results(paths: Sequence[Path]) -> list[Result]:
    """Rows of all benches: out of files, or by running them."""
    texts = [path.read_text(encoding="utf-8") for path in paths] or [run(command) for command in COMMANDS]
    return [result_of(row) for text in texts for row in json.loads(text)["results"]]


def run(arguments: Sequence[str]) -> str:
    """What a bench prints as JSON."""
    command = [sys.executable, "-m", "xccl_emu", "bench", *arguments, "--json"]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def result_of(row: Mapping[str, Any]) -> Result:
    """A row of that JSON; what follows from the others is left out."""
    return Result(**{field.name: row[field.name] for field in fields(Result)})


def number(value: float | None) -> str:
    """With the digits that a reader compares."""
    if value is None:
        return ""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def error(row: Result) -> str:
    """Signed percent; or whether a bound or an exact value holds."""
    if row.error_percent is not None and row.role != "exact":
        return f"{row.error_percent:+.1f}%"
    return {True: "holds", False: "MISSED", None: ""}[row.met]


def line(row: Result) -> str:
    """A row of a table."""
    relation = "" if row.relation == "=" else f"{row.relation} "
    published = relation + number(row.published) if row.published is not None else ""
    ours = (row.what, published, number(row.emulated), row.unit, row.role, error(row))
    cells = (*ours, *map(number, row.beside.values()))
    return f"| {' | '.join(cells)} |"


def table(rows: Sequence[Result]) -> str:
    """A table of rows, with a column for what each of others measured."""
    beside = dict.fromkeys(name for row in rows for name in row.beside)
    names = ("published", "emulated", "unit", "role", "error", *beside)
    return "\n".join([f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|", *map(line, rows)])


def scored(rows: Sequence[Result]) -> Iterator[str]:
    """Mean and largest error of fit rows and of check rows, apart."""
    for role in ("fit", "check"):
        if one := score(rows, role):
            worst = f"{one.max_percent:+.1f}% ({one.worst.partition(': ')[2]})"
            yield f"{one.n_rows} {role} rows: MAPE {one.mape_percent:.1f}%, largest {worst}."


def section(name: str, rows: Sequence[Result]) -> str:
    """One bench."""
    told = [row for row in rows if row.bench == name]
    if name == "sensitivity":
        return "\n".join([SENSITIVITY, *sensitivity(told)])
    kinds = dict.fromkeys(row.kind for row in told if row.kind)
    lines = [f"Latencies: {'; '.join(kinds)}.", ""] if kinds else []
    return "\n".join([f"## {name}", "", *lines, table(told), "", *scored(told), ""])


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
    ends = sorted({float(row.configuration["value"]) for row in rows})
    low_high = [number(end) for end in ends] if len(ends) == 2 else [number(ends[0]), "-"]
    found = {(row.configuration["result"], row.configuration["value"]): float(row.emulated or 0) for row in rows}
    cells = (" / ".join(f"{found[name, end]:+.1f}" for end in ends) for name in names)
    return f"| `{constant}` | {' | '.join([*low_high, *cells])} |"


def page(rows: Sequence[Result]) -> str:
    """The whole page."""
    names = list(dict.fromkeys(row.bench for row in rows))
    return "\n".join([HEAD, MISSES, *(section(name, rows) for name in names)])


def summary(text: str) -> str:
    """README's part: the rows of the page that are fitted or checked, without the baselines."""
    chosen: list[str] = []
    for part in text.split("\n## ")[1:]:
        if not part.startswith("fused, "):
            rows = [line for line in part.splitlines() if line.startswith("|")]
            cells = [row.split("|") for row in rows]
            chosen += ["|".join([*each[:7], ""]) for each in cells if each[5] in (" fit ", " check ")]
    return "\n".join([BEGIN, "", *table([]).splitlines(), *chosen, "", END])


def with_summary(readme: str, text: str) -> str:
    """README with its part made anew."""
    before, rest = readme.split(BEGIN)
    return before + summary(text) + rest.split(END)[1]


def main() -> int:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="paths", type=Path, nargs="+", default=[], metavar="FILE", help="their results")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args()
    readme = README.read_text(encoding="utf-8")
    if options.check:
        return 0 if with_summary(readme, PAGE.read_text(encoding="utf-8")) == readme else 1
    text = page(results(options.paths))
    PAGE.write_text(text, encoding="utf-8")
    README.write_text(with_summary(readme, text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
