"""Write the table of docs/records/native.md: what a judge, threads and a GPU show of each missing synchronization."""

import csv
import sys
from collections.abc import Collection

from pages import ROOT, Remade, between, command, rows, table

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VIOLATION
from xccl_emu.native import Native
from xccl_emu.native.runs import repeat
from xccl_emu.protocol.registry import make

PAGE = ROOT / "docs" / "records" / "native.md"
DATA = PAGE.with_name("native_h200.csv")
COLUMNS = ("protocol: without", "judge", "threads", "H200")
SOON, RUNS, SECONDS = 8, 200, 0.3
NOT_MEASURED = ("all-gather-by-cores", "dispatch")
"""Cases that the H200 has not run as they are: their column says so."""


def measured() -> dict[str, tuple[int, int]]:
    """Runs and wrong runs of the GPU, by the name of the row."""
    with DATA.open(newline="") as file:
        return {_named(r["protocol"], r["without"]): (int(r["runs"]), int(r["wrong"])) for r in csv.DictReader(file)}


def every() -> tuple[str, ...]:
    """Return the names of all rows."""
    more = (_named(case, sync) for case in NOT_MEASURED for sync in ("", *make(case).syncs))
    return (*measured(), *more)


def _named(protocol: str, without: str) -> str:
    return f"{protocol}: {without or 'all there'}"


def row(name: str) -> tuple[str, ...]:
    """A line of the table."""
    protocol, _, sync = name.partition(": ")
    without = [] if sync == "all there" else [sync]
    verdict = check(make(protocol), without=without, max_states=300_000)
    kind = verdict.violation.kind if verdict.verdict == VIOLATION and verdict.violation else verdict.verdict
    judge = f"{kind}, {verdict.states:,}" if verdict.states else kind
    n, bad = _runs(protocol, without)
    of_gpu, wrong = measured().get(name, (0, 0))
    return name, judge, f"{bad:,} of {n:,}", f"{wrong:,} of {of_gpu:,}" if of_gpu else "not run"


def _runs(protocol: str, without: Collection[str]) -> tuple[int, int]:
    done = repeat(make(protocol).build("relaxed", without), Native(seed=1, seconds=SECONDS), SOON)
    if done.n_bad == SOON:
        return SOON, SOON
    more = repeat(make(protocol).build("relaxed", without), Native(seed=100, seconds=SECONDS), RUNS - SOON)
    return RUNS, done.n_bad + more.n_bad


def page(text: str, check: bool, asked: Collection[str], by: Remade) -> str:
    """The page with the rows of some names, or all, made again."""
    return between(text, "native", table(COLUMNS, rows(text, "native", every(), asked or every(), row, by)))


if __name__ == "__main__":
    sys.exit(command(__doc__, PAGE, page, every()))
