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

- **Figure 5**, from the start of `send` to its end, with the launch. Its two claims pull against each other. Between
  nodes 512 KB on 2 cores spend 3.7 us on the launch and 6.6 us on latencies that follow each other, so that in 20 us a
  core must move 27 GB/s through four pipes with no time to fill them; and if 2 cores are to take 2.5 times as long for
  9 MB as 48 do, a core may move 22 GB/s at most. What a core moves and how large a slot is are in no paper, and were
  not chosen by these rows. The rows beside them vary both: smaller slots fill the pipes sooner, and acknowledged one by
  one they hold 9 MB up; faster cores help the first claim and hurt the second; with slots of 32 KB and the fastest
  cores that are plausible the first holds and the second nearly does. About 2% are chance: a port serves who comes
  first, so a tail may wait for another core's chunk, 0.5 us.
- **A2E, E2A** were measured in a deployment of three domains at work (xDeepServe 3.3: "a single deployment with three
  DP domains", a global batch of 46,080, "high concurrency"), so the rows are of the run of `tpot`, in which six calls a
  layer come evenly. That one domain at a time interacts with the experts (5.2) cannot be said of whole calls: six of
  172 and 193 us take 2.2 ms, a layer takes 1.4 (7.1). It holds of each stream of an expert die; so the way back of one
  call shares ports with the way there of the next. A call of one domain alone, which has the expert dies for itself,
  takes 146 and 187 us. E2A ends with the sums; those of a microbatch are on 24 of a die's 48 cores, a choice of ours,
  and take about 16 us. Batches go in 2 and in 4 parts, of which a trampoline forwards one while the next arrives;
  nothing was published of parts, and they were not chosen by the numbers. A trampoline sends back its own experts' rows
  through the port by which it forwards, 1,344 rows or 143 us in all, so parts cannot hide all of the way there behind
  the way back. A2E is the mean of expert dies, which wait for the last attention die; it moves with the spread of
  arrivals, and with what a transfer costs a pipe (`mtu_start_ns`: up to 17% of a call alone).
- **By URMA** both take far longer than through the data buffers: a descriptor for each message and each row, all
  started by one engine a die, one after the other, and each core waits for one before the next. That is what HIXL's
  copies of megabytes say, and 864 messages of a die at 0.74 us each take longer than the published 172 us. The papers
  speak of "the DMA engine" and of "DMA engines", and give no number. Two engines or eight are shown beside it; eight
  do not suffice while a core has one descriptor under way. So where 172 us were measured by URMA, a die started
  several descriptors at once, and a core did not wait for each.
- **TPOT** is of two layers that are run, domains a third of an attention apart; attention and experts take as long as
  published, whatever is assumed here.
- **Least dispatch and combine of Figure 20.** With two tokens a request and a redundant expert on every die the wire of
  dispatch takes about 50 us of the published 185. The least of a die's layers is that of a rank that came last, or
  nearly, so arrivals explain nothing of it. What does is what no paper says: how many cores the operators have, 48
  here, and how places are counted, here by an instruction of the vector pipe that is ours. With 16 cores, as many as a
  stream of decode has in CloudMatrix384 4.2.3, and counting in loops of the scalar unit, both are within about 10%: the
  rows beside them. The defaults stay as they are, since no `fit` row asks for others.
- **Means and greatest of Figure 20.** Ranks arrive apart by the one spread that Table 7 was fitted to. In an iteration
  attention, experts and the launch leave them further apart, the greatest by a millisecond; no published number says
  how far, so nothing is put in for it. The same holds for the share of the iteration.
- **EPLB** is of a layer of experts: dispatch, computing that takes as long for each row as published for a balanced
  batch, and combine. The published saving is of the forward pass, with attention, whose part is not told; so ours is
  larger. On loads measured of DeepSeek-V3 (`--routing`, layer 30) the hottest die has 9.1 times the mean, 1.4 with
  replicas.
- **HIXL's blocks of 1 and 2 MiB**: start-up is one constant for both directions and distances; the published rows want
  0.2 us within a node and up to 1 us between nodes.
- **HCCL's all-gather of 8.8 and 40 MB** takes half as long as ours. It comes to 204 GB/s of the bus, and a die's ports
  carry 137 GB/s: what it sends must also go over the package's link to the sibling, which passes its share on. Our
  all-gather writes to each die by itself; it reaches 100 GB/s, and that was not changed for these rows.
"""

SENSITIVITY = """## sensitivity

How many percent a result moves when one constant that no published row determines is set to the ends of its plausible
range, and all others are left alone. The default is between the two; a dash says that it is the end itself. At the end
what no paper says of the kernels: 16 cores a die in place of 48 (for A2E an attention die's; send/recv has its two),
and counting in loops of the scalar unit in place of an instruction of the vector pipe (the fused operators and pull).
A2E and E2A are those of one domain alone.
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
    ends = sorted({row.configuration["value"] for row in rows})
    low_high = [*(end if isinstance(end, str) else number(float(end)) for end in ends), "-"][:2]
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
