"""``xccl-emu check``: is a protocol right under every schedule and memory order, and if not, which one breaks it?

Progress is shown on stderr, the verdict and a witness or a table on stdout.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from xccl_emu.base.errors import OutputError
from xccl_emu.base.output import write_text
from xccl_emu.base.sizes import some
from xccl_emu.cli import ending
from xccl_emu.cli.app import JSON, SET, WORDS, App, command_of, print_json
from xccl_emu.cli.cases import ANY_SIZE, named
from xccl_emu.cli.check_options import CheckOptions
from xccl_emu.cli.files import writing
from xccl_emu.cli.priced import draw_prices, price_cells, price_lines
from xccl_emu.cli.shown import file_of, right, spinner, stdout_console, table

if TYPE_CHECKING:
    from rich.table import Table

    from xccl_emu.check.check import Progress
    from xccl_emu.check.verdict import ProfiledSite, Verdict, Violation
    from xccl_emu.check.weakest import Weakest
    from xccl_emu.cli.check_job import RequestResult, Result, SyncResult

_STYLES = {"verified": "bold green", "no violation found": "green", "violation": "bold red", "needed": "green"}
_REACH = (
    "redundant: nothing goes wrong without it in this very configuration. With more ranks, cores or rounds it may be"
    " needed: ask again with larger sizes before removing it"
)
_FIRST_LINE_S = 2.0
_IDLE = "here nobody ever had to wait for it"
_AS_DATA = "its result is used as data: without it, the word that is there"
_FEW = 4
_ONE_AT_A_TIME = (
    "one at a time: two requests that can each be weaker need not both be. Of this very configuration, as all verdicts"
)


def _confirmations(result: "Result") -> Iterator[str]:
    """Yield a line of second opinions for each reading that is verified."""
    if result.verdict.confirmation is not None:
        yield result.verdict.confirmation.words()
    if result.stronger is not None and result.stronger.verdict.confirmation is not None:
        yield f"if {result.stronger.condition}: {result.stronger.verdict.confirmation.words()}"


def _side_by_side(result: "Result") -> Iterator[str]:
    """Yield the line that says what the judge needed, and what runs on real memory showed."""
    if result.on_real is not None:
        found = result.verdict.violation
        judge = _found(found) if found else f"{result.verdict.verdict}, {some(result.verdict.states, 'states')}"
        yield f"side by side: the judge: {judge}; {result.on_real.shown()}"


def act(options: CheckOptions, words: list[str] | None, more: list[str] | None, as_json: bool) -> None:
    """Run the command; raises ``typer.Exit`` with its code, and OutputError if a file cannot be written."""
    from xccl_emu.cli.check_job import CheckJob

    with ticking(quiet=as_json) as (progress, note):
        job = CheckJob(named(options, words, more), progress, note if as_json or sys.stderr.isatty() else ending.say)
        result = job.run()
    if not as_json:
        print_and_draw(result)
    with ticking("confirming", quiet=as_json) as (progress, note):
        confirmed = result if result.ended else job.side_by_side(job.confirm(result, progress), note)
    if as_json or confirmed.contradicted:
        print_and_draw(confirmed, as_json)
    else:
        for line in (*_confirmations(confirmed), *_side_by_side(confirmed)):
            stdout_console().print(line, highlight=False)
    if confirmed.unsaved:
        raise OutputError(confirmed.unsaved)
    if confirmed.ended is not None:
        confirmed.ended.end()
    raise typer.Exit(confirmed.exit_code)


def print_and_draw(result: "Result", as_json: bool = False) -> None:
    """Print what was found and write the pages that were asked for, also for who does not read the table to its end."""
    try:
        if as_json:
            print_json("check", result)
        else:
            show(result)
    finally:
        draw(result)


@contextmanager
def ticking(name: str = "checking", quiet: bool = False) -> "Iterator[tuple[Progress, Callable[[str], None]]]":
    """Says on stderr how far a check is: states or schedules so far, and how fast; or, on a terminal, any text.

    Where that is no terminal it is a line after two seconds, and each time that twice as many have passed.
    """
    started, due_s = time.monotonic(), _FIRST_LINE_S
    with spinner(name, quiet) as note:

        def report(what: str, done: int, moves: int, seconds: float) -> None:
            of = "transitions" if what.startswith("states") else "actions"
            text = f"{done:,} {what}, {moves:,} {of}, {moves / 1e6 / max(seconds, 1e-9):.1f} M/s"
            note(text)
            nonlocal due_s
            if not quiet and not sys.stderr.isatty() and time.monotonic() - started >= due_s:
                due_s = 2 * (time.monotonic() - started)
                ending.say(f"{name}: {text}")

        yield report, note


def show(result: "Result") -> None:
    """Print a result for people."""
    from xccl_emu.check.reach import without_requests
    from xccl_emu.check.witness.render import print_others, print_witness

    console = stdout_console()
    if result.verdict.violation is not None:
        print_witness(console, result.fresh(), result.verdict.violation)
        print_others(console, result.verdict.others)
        console.print()
    console.print(verdict_table(result.verdict))
    if result.stronger is not None:
        console.print(result.stronger.words(result.verdict), highlight=False)
    if result.each is not None:
        console.print(sync_table(result.each))
        if any(one.finding == "redundant" for one in result.each):
            console.print(_REACH, highlight=False)
        if result.unreached:
            console.print(f"never reached here: {', '.join(result.unreached)}", highlight=False)
        if silent := [name for name, matters in without_requests(result.fresh().pod).items() if not matters]:
            console.print(f"without effect here: {', '.join(silent)}", highlight=False)
    if result.weakest is not None:
        console.print(weakest_table(result.weakest))
        console.print(_ONE_AT_A_TIME, highlight=False)
    for line in price_lines(result):
        console.print(line, highlight=False)
    if result.unjudged:
        console.print(f"rank: outputs are not judged, because {result.unjudged}", highlight=False)
    if result.invariance is not None:
        console.print(result.invariance.words(result.verdict), highlight=False)
    if result.profile is not None:
        console.print(profile_table(result.profile))
    if result.replay_file is not None and result.verdict.policy != "replay":
        again = f"show it again: xccl-emu check --replay {result.replay_file}{file_of(result.options.protocol or '')}"
        console.print(again, highlight=False, markup=False, soft_wrap=True)


def draw(result: "Result") -> None:
    """Write what was found in the forms that were asked for; OutputError if a file cannot be written."""
    from xccl_emu.check.witness import picture
    from xccl_emu.check.witness.exported import mermaid, perfetto, sarif
    from xccl_emu.check.witness.highlight import marks
    from xccl_emu.check.witness.render import rows
    from xccl_emu.check.witness.tracer import steps

    violation, options = result.verdict.violation, result.options
    if options.plot is not None and result.each is not None:
        draw_prices(result, options.plot)
    if options.sarif is not None:
        with writing("--sarif", options.sarif):
            write_text(options.sarif, json.dumps(sarif(result.verdict, result.origin), indent=2, ensure_ascii=False))
    forms = {name: path for name in ("chart", "trace", "svg", "html") if (path := getattr(options, name)) is not None}
    if violation is None or not forms:
        return
    trace = steps(result.fresh(), violation.actions.tolist())
    marked = marks(trace, violation)
    drawn: dict[str, Callable[[], str]] = {
        "chart": lambda: _chart(mermaid(trace, marked), forms["chart"], _title(result.verdict, violation)),
        "trace": lambda: json.dumps(perfetto(trace, marked), ensure_ascii=False),
        "svg": lambda: picture.svg(trace, rows(trace, marked)),
        "html": lambda: picture.page(result.fresh, violation, _title(result.verdict, violation)),
    }
    for name, path in forms.items():
        with writing(f"--{name}", path):
            write_text(path, drawn[name]())


def _chart(text: str, path: Path, title: str) -> str:
    """The chart; in a file of Markdown with its title, and a fence by which it is drawn."""
    return f"## {title}\n\n```mermaid\n{text}```\n" if path.suffix == ".md" else text


def _title(verdict: "Verdict", violation: "Violation") -> str:
    sizes = ", ".join(f"{name} {value}" for name, value in verdict.configuration.items())
    without = f", without {', '.join(verdict.without)}" if verdict.without else ""
    return f"{violation.kind}: {verdict.protocol} ({sizes}) under {verdict.order}{without}"


def verdict_table(verdict: "Verdict") -> "Table":
    """A verdict: what was checked, how, and how much of it."""
    title = f"{verdict.protocol} under {verdict.order}: [{_STYLES.get(verdict.verdict, 'yellow')}]{verdict.verdict}[/]"
    shown = table(title=title, title_style="", show_header=False)
    shown.add_column("what", no_wrap=True)
    shown.add_column("", overflow="fold")
    for name, value in _rows(verdict):
        if value:
            shown.add_row(name, value)
    return shown


def _found(found: "Violation") -> str:
    """Return what was found, how, and after how much."""
    from xccl_emu.check.verdict import BRUTE_FORCE, SEARCH

    if not found.found_after:
        return f"{found.kind}; by {found.found_by}"
    unit = "states" if found.found_by in (SEARCH, BRUTE_FORCE) else "schedules"
    return f"{found.kind}; by {found.found_by}, after {some(found.found_after, unit)}"


def _rows(verdict: "Verdict") -> list[tuple[str, str]]:
    found = verdict.violation
    per_us = verdict.transitions / max(verdict.seconds, 1e-9) / 1e6
    rate = f" ({per_us:.1f} M/s)" if per_us >= 0.1 else ""
    return [
        ("configuration", ", ".join(f"{name} {value}" for name, value in verdict.configuration.items())),
        ("without", ", ".join(verdict.without)),
        ("fault", verdict.fault),
        ("violation", _found(found) if found else ""),
        ("policy", verdict.policy),
        ("states", f"{verdict.states:,}" if verdict.states else ""),
        ("transitions", f"{verdict.transitions:,}{rate}" if verdict.transitions else ""),
        ("schedules", f"{verdict.schedules:,}, seed {verdict.seed}" if verdict.schedules else ""),
        ("actions", f"{verdict.actions:,}" if verdict.actions else ""),
        ("seconds", f"{verdict.seconds:.2f}" if verdict.policy != "replay" and verdict.seconds else ""),
        ("bytes due when", _due(verdict) if verdict.due else ""),
        ("machine", ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in verdict.bounds.items())),
        ("a state missed", _missed(verdict)),
        ("certificate", verdict.certificate.words() if verdict.certificate is not None else ""),
        ("recovers", verdict.recovery.words() if verdict.recovery is not None else ""),
        *_reach_rows(verdict),
        ("rests on" if verdict.verdict == "verified" else "because", verdict.reason),
    ]


def _missed(verdict: "Verdict") -> str:
    """Return how probable it is that a state was taken for another one, where the verdict rests on all of them."""
    rests = verdict.verdict == "verified" and verdict.collision
    return f"with a probability below {verdict.collision:.1g}: two states with one fingerprint" if rests else ""


def _due(verdict: "Verdict") -> str:
    """Return what made the expected bytes due: the first few, and how many more."""
    lines = [f"{when}: {_few(names, ', ')}" for when, names in verdict.due.items()]
    return f"{_few(lines, '; ')} (from then on they must be right)"


def _few(names: Sequence[str], between: str) -> str:
    """The first of some names, and how many more there are."""
    more = [f"{len(names) - _FEW} more"] if len(names) > _FEW else []
    return between.join([*names[:_FEW], *more])


def _reach_rows(verdict: "Verdict") -> list[tuple[str, str]]:
    """Return what no run needed: a larger configuration may need it, and show that it is wrong."""
    from xccl_emu.check.verdict import VERIFIED

    if verdict.reach is None:
        return []
    drawn = "" if verdict.verdict == VERIFIED else "in these schedules: "
    idle = "; ".join(place.words() for place in verdict.reach.never_waited)
    unreached = ", ".join(verdict.reach.unreached())
    once, far = (", ".join(names) for names in (verdict.reach.used_once, verdict.reach.far_from_wrap))
    return [
        ("never waited", idle and drawn + idle),
        ("never reached", unreached and drawn + unreached),
        ("used once", once and f"in the runs drawn, no slot was used twice: {once}"),
        ("far from wrap", far and f"in the runs drawn, 4-byte counters near neither 2^31 nor 2^32: {far}"),
    ]


def weakest_table(results: "tuple[RequestResult, ...]") -> "Table":
    """One line a request: what it asks for, the weakest that will do, and what goes wrong with less or more costs."""
    shown = table(title="the weakest that will do", title_style="")
    priced = any(one.price is not None for one in results)
    last = ("costs, us", "80%") if priced else ("states",)
    for name in ("kernel", "request", "asks for", "weakest", "with less", "judged again", *last):
        shown.add_column(name, justify="right" if name in last else "left", overflow="fold")
    for result in results:
        one = result.found
        where = f"{one.site.operation} {one.site.file.rpartition('/')[2]}:{one.site.line}"
        where += "".join(f" < {line}" for _, line in one.site.callers[::-1])
        less = ", ".join(f"{to}: {kind}" for to, kind in one.refuted.items())
        named = f"{where} ({one.site.sync})" if one.site.sync else where
        weakest = one.weakest if one.reached else f"{one.weakest} (a run does not come to it)"
        cells = price_cells(result.price) if priced else (f"{one.states:,}",)
        shown.add_row(one.kernel, named, one.asks, weakest, less or one.unfinished, _again(one), *cells)
    return shown


def profile_table(found: "tuple[ProfiledSite, ...]") -> "Table":
    """One line a request: the states that it makes, and what is kept at it."""
    shown = table(title="what makes states", title_style="")
    for name in ("kernel", "request", "first reached by it", "alike at it, but for", "what the core keeps"):
        shown.add_column(name, justify="right" if "it" in name.split() else "left", overflow="fold")
    for one in found:
        shown.add_row(one.kernel, one.request, f"{one.states:,}", f"{one.alike:,}", ", ".join(one.kept))
    return shown


def _again(one: "Weakest") -> str:
    """Return how the answer on a request was judged again: what suffices, was taken back or does not show again."""
    again = [each.again(to) for to, each in one.certificates.items() if to == one.weakest]
    others = {to: each for to, each in one.certificates.items() if to != one.weakest and not each.agrees}
    return "; ".join([*again, *(each.again(to) for to, each in others.items())])


def _why(one: "SyncResult") -> str:
    """Why it is what it is, where no violation says so."""
    if one.finding == "unfinished":
        return one.verdict.reason
    return _IDLE if one.idle else ""


def sync_table(each: "tuple[SyncResult, ...]") -> "Table":
    """One line a synchronization: is it needed, how that shows, and what it took to find out or what it costs; no
    column is empty."""
    from rich.box import HORIZONTALS

    priced = any(one.price is not None for one in each)
    last = ("costs, us", "80%") if priced else ("witness", "states", "schedules", "seconds")
    columns: list[Any] = ["synchronization", "step", "it is", *right(*last)]
    cells = [(*_sync_cells(one), *(price_cells(one.price) if priced else _found_cells(one.verdict))) for one in each]
    used = [i for i in range(len(columns)) if any(row[i] for row in cells)]
    narrow: dict[str, Any] = {"box": HORIZONTALS, "show_edge": False, "pad_edge": False, "padding": (0, 1, 0, 0)}
    shown = table(*(columns[i] for i in used), title="without each synchronization", title_style="", **narrow)
    for row in cells:
        shown.add_row(*(row[i] for i in used))
    return shown


def _sync_cells(one: "SyncResult") -> tuple[str, ...]:
    verdict, found = one.verdict, one.verdict.violation
    certificate = verdict.certificate
    omitted = certificate is None or (one.price is not None and certificate.agrees)
    again = "" if certificate is None or omitted else f"judged again: {certificate.again('redundant')}"
    why = "; ".join(filter(None, (found.kind if found else _why(one), _AS_DATA if one.as_data else "", again)))
    it_is = f"[{_STYLES.get(one.finding, 'yellow')}]{one.finding}[/]{why and f': {why}'}"
    return one.sync, ", ".join(map(str, one.steps)), it_is


def _found_cells(verdict: "Verdict") -> tuple[str, ...]:
    return (
        f"{len(verdict.violation.actions)} steps" if verdict.violation else "",
        f"{verdict.states:,}" if verdict.states else "",
        f"{verdict.schedules:,}" if verdict.schedules else "", f"{verdict.seconds:.1f}",
    )  # fmt: skip


app = App.of(
    command_of(CheckOptions, act, SET, JSON, first=(WORDS,)),
    no_args_is_help=True, context_settings=ANY_SIZE,
)  # fmt: skip
