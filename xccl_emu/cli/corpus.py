"""``xccl-emu corpus``: bugs that were found in the wild, each found here, and proved to be mended."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import typer

from xccl_emu.base.jobs import Job, Stopped, collect
from xccl_emu.base.options import Spread, option
from xccl_emu.base.sizes import some
from xccl_emu.cli.app import JSON, App, command_of, print_json, words
from xccl_emu.cli.cases import check_seconds
from xccl_emu.cli.shown import counting, right, stdout_console, table

if TYPE_CHECKING:
    from rich.table import Table

    from xccl_emu.protocol.corpus import Member, Outcome, Result

SEQUENCES = 200
"""Sequences drawn for a case that is fuzzed."""


@dataclass(frozen=True)
class CorpusOptions(Spread):
    """Check that each known bug is found and its fix proved: all members of the corpus, or named ones.

    A member is a bug of a published library, written again as a broken and a mended case. Each is looked at by the
    command that finds it; the broken one must be refuted as its page says, the mended one verified.

    \b
      xccl-emu corpus
      xccl-emu corpus credit_in_flight --json
      xccl-emu check credit_in_flight:Broken

    Exit code: 0 if all are as their pages say, 1 if one is not, 3 if one could not be looked at; the others are shown.
    Ctrl-C and SIGTERM end it with 130 and 143, and what is done is shown.
    """

    seconds: float = option(60.0, "Most seconds of each case.")


Tool = Callable[["Member", str, float], "Outcome"]


def _check(member: "Member", case: str, seconds: float) -> "Outcome":
    """Every schedule of the case."""
    from xccl_emu.check.check import check
    from xccl_emu.check.verdict import VERIFIED, VIOLATION
    from xccl_emu.protocol.corpus import Outcome

    verdict = check(member.case(case), seconds=seconds, **member.options)
    finding = verdict.violation.kind if verdict.violation is not None else ""
    said = verdict.verdict
    return Outcome(said, finding, verdict.seconds, said == VIOLATION, said == VERIFIED, states=verdict.states)


def _fuzz(member: "Member", case: str, seconds: float) -> "Outcome":
    """Sequences of calls, one after the other, so that the same number finds the same."""
    from xccl_emu.check.verdict import NO_VIOLATION, UNFINISHED, VIOLATION
    from xccl_emu.fuzz.run import FuzzPlan, fuzz
    from xccl_emu.protocol.corpus import Outcome

    plan = FuzzPlan(f"{member.file}:{case}", examples=SEQUENCES)
    summary = fuzz(plan, 1, seconds=seconds)
    if summary.ended is not None:
        summary.ended.end()
    found = [one.verdict.violation.kind for one in summary.findings if one.verdict.violation is not None]
    said = VIOLATION if found else UNFINISHED if summary.stopped else NO_VIOLATION
    kind, clean = found[0] if found else "", said == NO_VIOLATION
    return Outcome(said, kind, summary.seconds, bool(found), clean, sequences=summary.sequences)


TOOLS: Mapping[str, Tool] = {"check": _check, "fuzz": _fuzz}
"""Who finds bugs, by the name that members give."""


def act(options: CorpusOptions, members: list[str] | None, as_json: bool) -> None:
    """Run the command; raises ``typer.Exit`` with its code."""
    results, stopped = find(tuple(members or ()), options.seconds, as_json, options.processes, options.dask)
    show(results, as_json)
    if stopped is not None:
        stopped.end()
    raise typer.Exit(0 if all(result.right for result in results) else 1)


def find(
    names: tuple[str, ...], seconds: float, quiet: bool = True, workers: int = 1, dask: str | None = None
) -> "tuple[list[Result], Stopped | None]":
    """Return what each member comes to, and what has kept some from being looked at, which are unfinished.

    Raises ConfigError for a name that none has, and for a limit that is not positive.
    """
    from xccl_emu.check.verdict import UNFINISHED
    from xccl_emu.protocol.corpus import CASES, Outcome, Result, members

    check_seconds(seconds)
    all_of_them, unseen = members(names), Outcome(UNFINISHED, "", 0.0, False, False)
    jobs = [Job(member.name, partial(_look_at, member, seconds)) for member in all_of_them]
    with counting("corpus", len(jobs), quiet) as count:
        found = collect(jobs, lambda one, ended: count(ended, one.job.name), workers=workers, dask=dask)
    unseen_members = {n: Result(member, *[unseen] * len(CASES)) for n, member in enumerate(all_of_them)}
    return [*(unseen_members | found.done).values()], found.stopped


def _look_at(member: "Member", seconds: float) -> "Result":
    """Look at both cases of a member, in any process."""
    from xccl_emu.protocol.corpus import CASES, Result

    return Result(member, *(TOOLS[member.tool](member, case, seconds) for case in CASES))


def show(results: Sequence["Result"], as_json: bool) -> None:
    """Print them."""
    from xccl_emu.protocol.corpus import FoundMembers

    if as_json:
        return print_json("corpus", FoundMembers(results))
    console = stdout_console()
    console.print(_table(results))
    wrong = [result.member.name for result in results if not result.right]
    says = f"not as its page says: {', '.join(wrong)}" if wrong else "all are as their pages say"
    console.print(says, highlight=False)


def _table(results: Sequence["Result"]) -> "Table":
    shown = table(
        "member", "by", "expected", "broken", *right("looked at"), "mended", *right("looked at", "seconds"),
        title="bugs that were found in the wild", title_style="",
    )  # fmt: skip
    for result in results:
        broken, mended = result.broken, result.mended
        style = "green" if result.right else "bold red"
        seconds = f"{broken.seconds + mended.seconds:.1f}"
        shown.add_row(
            result.member.name, result.member.tool, result.member.finding, f"[{style}]{finding_text(broken)}[/]",
            looked_at(broken), f"[{style}]{finding_text(mended)}[/]", looked_at(mended), seconds,
        )  # fmt: skip
    return shown


def finding_text(outcome: "Outcome") -> str:
    """Return what was found, or the verdict if nothing was."""
    return outcome.kind or outcome.verdict


def looked_at(outcome: "Outcome") -> str:
    """Return the number of states or sequences, with its unit."""
    return some(outcome.sequences, "sequences") if outcome.sequences else some(outcome.states, "states")


_MEMBERS = words("members", "MEMBER", "Names of folders [default: all].")
app = App.of(command_of(CorpusOptions, act, JSON, first=(_MEMBERS,)))
