"""What a bench prints: a table for each measurement and the scores, or JSON; and its rows as CSV."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.table import Table

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.output import write_text
from xccl_emu.base.words import words_of
from xccl_emu.cli.app import print_json
from xccl_emu.cli.files import check_file, writing
from xccl_emu.cli.shown import right, stdout_console
from xccl_emu.papers.bench.result import (
    EMULATED,
    HEADS,
    Result,
    RoleScore,
    Rows,
    board,
    payload_gb_s,
    scores,
    total_wrong,
)
from xccl_emu.papers.cli.perf import lines


def show(found: Rows, as_json: bool, command: str) -> None:
    """Print results of a command to stdout; JSON with what is said about the run."""
    if as_json:
        return print_json(command, found)
    console, results = stdout_console(), found.results
    for _, group in groupby(results, lambda result: result.bench):
        rows = list(group)
        transfers = [result for result in rows if "bytes" in result.configuration]
        collectives = [result for result in rows if "redop" in result.configuration]
        cases = [result for result in rows if result.swept is not None and result not in [*transfers, *collectives]]
        others = [result for result in rows if result not in [*transfers, *collectives, *cases]]
        for _, some in groupby(collectives, lambda result: result.configuration["ranks"]):
            print(*lines([*some]), sep="\n")
        if transfers:
            console.print(_transfers(transfers))
        if cases:
            console.print(_cases(cases))
        if others:
            console.print(_table(others))
    if len(boarded := [*board(results)]) > 1:
        console.print(_board(boarded))
    for line in _closing(results):
        console.print(line, highlight=False)


def _board(rows: Sequence[tuple[str, ...]]) -> Table:
    """All check rows by table: how far the model is off, and a line without an emulator."""
    table = Table(HEADS[0], *right(*HEADS[1:]), title="scoreboard: mean absolute errors of check rows")
    for cells in rows:
        table.add_row(*cells)
    return table


def check_csv(path: Path | None) -> None:
    """Raises ConfigError, before anything runs, if the file cannot be written or would need what is not installed."""
    check_file("--csv", path)
    if path is not None and path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise ConfigError(f"--csv {path}: Parquet needs pyarrow; install xccl_emu[parquet], or end with .csv")


def write_csv(results: Sequence[Result], path: Path) -> None:
    """Write one line for each row, its configuration as ``name=value`` words; or Parquet, by the name of the file.

    Raises OutputError if the file cannot be written.
    """
    if path.suffix == ".parquet":
        return _write_parquet(results, path)
    lines = [_in_words(result) for result in results]
    names = list(words_of(Result))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names)
    writer.writeheader()
    writer.writerows(lines)
    with writing("--csv", path):
        write_text(path, text.getvalue())


def _write_parquet(results: Sequence[Result], path: Path) -> None:
    """Write the rows as Parquet."""
    import pyarrow as pa
    from pyarrow import parquet

    lines = [_in_words(result) for result in results]
    with writing("--csv", path):
        parquet.write_table(pa.Table.from_pylist(lines), path)


def _in_words(result: Result) -> dict[str, Any]:
    """A row whose configuration and extra numbers are ``name=value`` words."""
    return result.to_json() | {"configuration": words(result.configuration), "beside": words(result.extra)}


def words(named: Mapping[str, object]) -> str:
    """Return words such as ``ranks=8 cores=48``."""
    return " ".join(f"{name}={value}" for name, value in named.items())


def _table(results: Sequence[Result]) -> Table:
    """The rows of one bench; what was published comes first."""
    sources = dict.fromkeys(result.source for result in results if result.source)
    extra = list(dict.fromkeys(name for result in results for name in result.extra))
    numbers = right("published", "computed" if results[0].baseline else "emulated")
    bands = right("80 %") if any(result.low is not None for result in results) else []
    table = Table("what", *numbers, "unit", *right("error"), "role", *bands, *right(*extra))
    table.title = f"{results[0].bench}: {'; '.join(sources)}" if sources else results[0].bench
    notes = list(dict.fromkeys(result.note for result in results if result.note))
    for result in results:
        others = (number(result.extra[name]) if name in result.extra else "" for name in extra)
        table.add_row(*_cells(result, notes), *([_band(result)] if bands else []), *others)
    kinds = [f"of {kind}" for kind in dict.fromkeys(result.kind for result in results if result.kind)]
    table.caption = "\n".join([*kinds, *(f"({i}) {note}" for i, note in enumerate(notes, start=1))]) or None
    table.caption_justify = "left"
    return table


def _transfers(results: Sequence[Result]) -> Table:
    """Transfers as nccl-tests show them; between two dies the bandwidths of bus and algorithm are the same."""
    numbers = right("size, B", "cores", "to", "time, us", "algbw, GB/s", "busbw, GB/s", "#wrong")
    table = Table(*numbers, title=f"{results[0].bench}: transfers")
    for result in results:
        of, gb_s = result.configuration, f"{payload_gb_s(result):.2f}"
        time = f"{result.emulated or 0:.2f}"
        table.add_row(f"{of['bytes']}", f"{of['cores']}", f"{of['to']}", time, gb_s, gb_s, _count(result.wrong))
    return table


def _cases(results: Sequence[Result]) -> Table:
    """A case at its sizes: those that differ are columns, the others stand above."""
    swept = results[0].swept or ()
    fixed = {name: results[0].size(name) for name in results[0].configuration if name not in swept}
    extra = list(results[0].extra)
    table = Table(*right(*swept, "latency, us", *(", ".join(name.rsplit(" ", 1)) for name in extra), "#wrong"))
    table.title = f"{results[0].bench}: {words(fixed)}"
    for result in results:
        sizes = (str(result.size(name)) for name in swept)
        table.add_row(*sizes, number(result.emulated or 0), *map(number, result.extra.values()), _count(result.wrong))
    return table


def _cells(result: Result, notes: list[str]) -> Iterator[str]:
    bound = "" if result.relation == "=" else f"{result.relation} "
    yield f"{result.what} ({notes.index(result.note) + 1})" if result.note else result.what
    yield "" if result.published is None else bound + number(result.published)
    yield "-" if result.emulated is None else number(result.emulated)
    yield result.unit
    yield _error(result)
    yield result.role


def _band(result: Result) -> str:
    return "" if result.low is None or result.high is None else f"{number(result.low)} to {number(result.high)}"


def _error(result: Result) -> str:
    if result.wrong:
        return f"[red]{result.wrong} wrong[/]"
    if result.met is not None:
        words = ("exact", "differs") if result.role == "exact" else ("holds", "does not hold")
        return f"[green]{words[0]}[/]" if result.met else f"[red]{words[1]}[/]"
    return "" if result.error_percent is None else f"{result.error_percent:+.1f} %"


def row_text(result: Result) -> str:
    """A row as a line, such as ``fused: dispatch EP8 latency 115 us, published 116 us``."""
    value = result.note if result.emulated is None else f"{number(result.emulated)} {result.unit}"
    against = "" if result.published is None else f", published {number(result.published)} {result.unit}"
    return f"{result.bench}: {result.what}: {value}{against}"


def number(value: float) -> str:
    """Three or four figures, and all of a whole number."""
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _closing(results: Sequence[Result]) -> Iterator[str]:
    for one in scores(results):
        if one.n_rows:
            yield score_text(one)
    bounds = [result.met for result in results if result.relation != "="]
    if bounds:
        yield f"bounds: {sum(map(bool, bounds))} of {len(bounds)} hold"
    yield f"#wrong {_count(total_wrong(result.wrong for result in results))}"


def _count(wrong: int | None) -> str:
    """Wrong elements, as nccl-tests have it."""
    return "N/A" if wrong is None else str(wrong)


def score_text(one: RoleScore) -> str:
    """Return text such as ``check rows: MAPE 3.1 % of 6, worst +5.0 % (fused: ...)``."""
    kind = f"{one.role} rows" if one.of == EMULATED else f"{one.role} rows, {one.of}"
    inside = "" if one.inside is None else f", {one.inside} of {one.n_rows} in their 80 % intervals"
    worst = f"worst {one.max_percent:+.1f} % ({one.worst})"
    return f"{kind}: MAPE {one.mape_percent:.1f} % of {one.n_rows}, {worst}{inside}"
