"""What ``xccl-emu corpus`` does and prints."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import typer
from rich.table import Table

from xccl_emu.check.check import check
from xccl_emu.check.verdict import NO_VIOLATION, UNFINISHED, VERIFIED, VIOLATION
from xccl_emu.cli import ending
from xccl_emu.cli.cases import check_seconds
from xccl_emu.cli.console import stdout_console
from xccl_emu.cli.corpus import CorpusOptions
from xccl_emu.cli.schema import print_json
from xccl_emu.cli.shown import counting, right
from xccl_emu.protocol.corpus import CASES, Member, members
from xccl_emu.sizes import some

SEQUENCES = 200
"""Sequences drawn for a case that is fuzzed."""


@dataclass(frozen=True)
class Outcome:
    """What a tool says of one case."""

    verdict: str
    kind: str
    """Kind of the violation; empty if there is none."""
    seconds: float
    refuted: bool
    clean: bool
    """As right as this tool can say: verified, or nothing found by all that it was asked to try."""
    states: int = 0
    sequences: int = 0
    """How much was looked at, by `check` or by `fuzz`."""


@dataclass(frozen=True)
class Result:
    """A member, and what was found."""

    member: Member
    broken: Outcome
    mended: Outcome

    @property
    def right(self) -> bool:
        """Return True if it is as its page says."""
        return self.broken.refuted and self.broken.kind == self.member.finding and self.mended.clean

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it."""
        found = {"broken": asdict(self.broken), "mended": asdict(self.mended)}
        page = {"sources": self.member.sources, "tool": self.member.tool, "shown_by": self.member.shown_by}
        return {"member": self.member.name, **page, "expected": self.member.finding, **found, "right": self.right}


Tool = Callable[[Member, str, float], Outcome]


def _check(member: Member, case: str, seconds: float) -> Outcome:
    """Every schedule of the case."""
    verdict = check(member.case(case), seconds=seconds, **member.options)
    finding = verdict.violation.kind if verdict.violation is not None else ""
    said = verdict.verdict
    return Outcome(said, finding, verdict.seconds, said == VIOLATION, said == VERIFIED, states=verdict.states)


def _fuzz(member: Member, case: str, seconds: float) -> Outcome:
    """Sequences of calls, one after the other, so that the same number finds the same."""
    from xccl_emu.fuzz.run import FuzzPlan, fuzz

    plan = FuzzPlan(f"{member.file}:{case}", examples=SEQUENCES)
    summary = fuzz(plan, 1, seconds=seconds)
    ending.raise_by(ending.BY_SIGNAL.get(summary.stopped, 0))
    found = [one.verdict.violation.kind for one in summary.findings if one.verdict.violation is not None]
    said = VIOLATION if found else UNFINISHED if summary.stopped else NO_VIOLATION
    kind, clean = found[0] if found else "", said == NO_VIOLATION
    return Outcome(said, kind, summary.seconds, bool(found), clean, sequences=summary.sequences)


TOOLS: Mapping[str, Tool] = {"check": _check, "fuzz": _fuzz}
"""Who finds bugs, by the name that members give."""


def act(options: CorpusOptions, members: list[str] | None, as_json: bool) -> None:
    """Run the command; raises ``typer.Exit`` with its code."""
    results = find(tuple(members or ()), options.seconds, quiet=as_json)
    show(results, as_json)
    raise typer.Exit(0 if all(result.right for result in results) else 1)


def find(names: tuple[str, ...], seconds: float, quiet: bool = True) -> list[Result]:
    """Return what each member comes to; ConfigError for a name that none has, and for a limit that is not positive."""
    check_seconds(seconds)
    all_of_them, results = members(names), list[Result]()
    with counting("corpus", len(all_of_them), quiet) as count:
        for i, member in enumerate(all_of_them):
            count(i, member.name)
            results.append(Result(member, *(TOOLS[member.tool](member, case, seconds) for case in CASES)))
    return results


def show(results: Sequence[Result], as_json: bool) -> None:
    """Print them."""
    if as_json:
        return print_json("corpus", {"results": [result.to_json() for result in results]})
    console = stdout_console()
    console.print(_table(results))
    wrong = [result.member.name for result in results if not result.right]
    says = f"not as its page says: {', '.join(wrong)}" if wrong else "all are as their pages say"
    console.print(says, highlight=False)


def _table(results: Sequence[Result]) -> Table:
    table = Table(
        "member", "by", "expected", "broken", *right("looked at"), "mended", *right("looked at", "seconds"),
        title="bugs that were found in the wild", title_style="",
    )  # fmt: skip
    for result in results:
        broken, mended = result.broken, result.mended
        style = "green" if result.right else "bold red"
        seconds = f"{broken.seconds + mended.seconds:.1f}"
        table.add_row(
            result.member.name, result.member.tool, result.member.finding, f"[{style}]{finding_text(broken)}[/]",
            looked_at(broken), f"[{style}]{finding_text(mended)}[/]", looked_at(mended), seconds,
        )  # fmt: skip
    return table


def finding_text(outcome: Outcome) -> str:
    """Return what was found, or the verdict if nothing was."""
    return outcome.kind or outcome.verdict


def looked_at(outcome: Outcome) -> str:
    """Return the number of states or sequences, with its unit."""
    return some(outcome.sequences, "sequences") if outcome.sequences else some(outcome.states, "states")
