"""Write docs/records/structure.md: check rows of virtual time before and after each change to the model's structure.

python tools/structure.py NAME [BENCH ...]     run the check rows (of some benches), as a column of this name
python tools/structure.py                      write the page again, of docs/records/structure.csv
"""

import csv
import sys
from collections.abc import Iterator, Sequence
from statistics import fmean

from pages import ROOT

from xccl_emu.papers import measurements
from xccl_emu.papers.bench.band import STRUCTURE_PERCENT
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.timing.topologies import model

CSV, PAGE = ROOT / "docs" / "records" / "structure.csv", ROOT / "docs" / "records" / "structure.md"
BENCHES = ("fused", "iteration", "hixl", "hccl", "deepep", "streams", "a2e", "kv", "unseen")
ROLES = ("check", "fit")
SHOWN = ("kv", "unseen")
"""Benches whose shown rows say nothing that a check row says in another unit, and are of nothing that is left out."""
INTRO = """# What each change to the structure of the model did

Errors in percent of rows that are checked, fitted to or (of some benches) shown: before, and after each change, in the
order in which they were made. A cell without a number was not run again; means take the number before it. Counting in
loops, with ranks that start together, was tried and taken back: of Table 7 and Figure 20 it has one and not the other.
That UB keeps the order of a core's writes, so that a fence waits for none (`ordered`), is an assumption, made after a
check row was seen: with fences that wait, 512 KB by two cores (Figure 5, below 20 us) took 44 us in place of 25. HCCL's
two rings are two queues of a core here; with one its large rows are 25% off.
Rows called unseen are of tables that the model was not made by (`bench unseen`); "all" is without them. 6 gives GPUs
the 128 cores that DeepEP uses of theirs, in place of a die's 48. 7 has ranks enter combine apart by the spread that
Table 7's dispatch was fitted to, where no barrier is before it. Neither was fitted to a row of a GPU: the newer table
of the H800 loses by both, its older one, all over RDMA, and the H100's gain. Table 7's own combine has no such spread:
with it EP8 would be 26% too slow. Why one machine has it and the other not is not known. Attention that reads weights,
and a request's cache for two tokens, once was tried and taken back: the gain of MTP came from 3.1 to 11.6% (18 shown),
and the check rows of `streams` from 19.9 to 60%, since the two microbatches then read weights twice.
`python tools/structure.py NAME` adds a column and writes this page.
"""
Table = dict[str, dict[str, str]]


def key_of(bench: str, machine: str, what: str) -> str:
    """A row's name in the table."""
    return f"{bench}{' on the H800' if machine == 'H800' else ''}: {what}"


def measured(benches: Sequence[str]) -> Iterator[tuple[str, str, float]]:
    """Name, role and error in percent of each row."""
    for name in benches:
        fabric, costs = model("h800" if name == "deepep" else "cloudmatrix384")
        for one in measurements.found()[name]().rows(Setting(fabric, costs, data=False)):
            roles = (*ROLES, "shown") if name in SHOWN else ROLES
            if one.role in roles and one.relation == "=" and not one.baseline and one.error_percent is not None:
                yield key_of(one.bench, one.machine, one.what), one.role, one.error_percent


def read() -> Table:
    """The table as it is: columns by row."""
    with CSV.open(encoding="utf-8", newline="") as file:
        return {row.pop("row"): row for row in csv.DictReader(file)}


def columns_of(table: Table) -> list[str]:
    """Names of the columns of errors."""
    return list(dict.fromkeys(name for row in table.values() for name in row if name != "role"))


def add(column: str, benches: Sequence[str]) -> None:
    """Run benches, and put errors into a column, and write the file."""
    found = [*measured(benches)]
    table = read() if CSV.exists() else {}
    for key, role, error in found:
        table.setdefault(key, {"role": role})[column] = f"{error:.2f}"
    with CSV.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["row", "role", *columns_of(table)], lineterminator="\n")
        writer.writeheader()
        writer.writerows({"row": key, **row} for key, row in table.items())


def page(table: Table) -> str:
    """The page: means of absolute errors by table, then every row."""
    columns = columns_of(table)
    rows: list[list[str]] = []
    last: dict[str, list[str]] = {}
    for key, row in table.items():
        filled: list[str] = []
        for column in columns:
            filled.append(row.get(column) or (filled[-1] if filled else ""))
        last[key] = filled
        shown = (f"{float(row[column]):+.1f}" if row.get(column) else "" for column in columns)
        rows.append([key, row["role"], *shown])
    groups: dict[str, list[list[str]]] = {}
    for key, filled in last.items():
        if table[key]["role"] == "check":
            groups.setdefault(key.split(":")[0], []).append(filled)
    for name, new in (("all", False), ("all unseen", True)):
        groups[name] = [row for of, group in groups.items() if of.startswith("unseen") == new for row in group]
    means = [
        [name, str(len(group)), *(mean(one) for one in zip(*group, strict=True))]
        for name, group in groups.items()
    ]
    others = sorted(abs(float(filled[-1])) for key, filled in last.items() if table[key]["role"] != "check")
    most = others[len(others) * 4 // 5]
    checked = [float(filled[-1]) / 100 for filled in groups["all"]]
    inside = sum(abs(1 / (1 + error) - 1) <= STRUCTURE_PERCENT / 100 for error in checked)
    calibrated = f"""Of the {len(others)} rows that are fitted to or shown eight of ten are off by at most {most:.1f}%.
Intervals have {STRUCTURE_PERCENT:g}% for the form (`STRUCTURE_PERCENT`); in this part alone, without what constants
add to it, are {inside} of the {len(checked)} check rows.
"""
    parts = [INTRO, grid(["check rows", "rows", *columns], means), calibrated, grid(["row", "role", *columns], rows)]
    return "\n".join(parts)


def mean(errors: Sequence[str]) -> str:
    """The mean of a column, nothing where a row has no number yet."""
    return f"{fmean(abs(float(each)) for each in errors):.1f}%" if all(errors) else ""


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(asked: Sequence[str]) -> None:
    """Add a column if one is named, and write the page."""
    if asked:
        add(asked[0], asked[1:] or BENCHES)
    PAGE.write_text(page(read()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
