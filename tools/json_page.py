"""Write the tables of docs/records/json.md: the words of every command's ``--json``, by the records it is made of."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

from pages import ROOT, between, command, table

from xccl_emu.base.words import Printed, words_of
from xccl_emu.check.verdict import Verdict
from xccl_emu.cli import check_job, sizes, trace
from xccl_emu.cli.app import Envelope
from xccl_emu.doors.cli import litmus
from xccl_emu.doors.flags.waits import WaitGraph
from xccl_emu.fuzz.run import FuzzSummary
from xccl_emu.guards.campaign.run import CampaignSummary, ContradictedProgram
from xccl_emu.native.runs import RealRun
from xccl_emu.papers.bench.compare import Comparison
from xccl_emu.papers.bench.fit import FittedConstants
from xccl_emu.papers.bench.result import BenchRows, Rows
from xccl_emu.papers.cli import plan_show
from xccl_emu.papers.plan.published import PublishedRows
from xccl_emu.protocol.corpus import FoundMembers
from xccl_emu.protocol.pod_run import CaseRun
from xccl_emu.protocol.registry import Described, NamedProtocols

PAGE = ROOT / "docs" / "records" / "json.md"
COMMANDS: Mapping[str, type[Printed]] = {
    "list": NamedProtocols, "list PROTOCOL": Described, "run": CaseRun, "run --on": RealRun, "check": check_job.Result,
    "fuzz": FuzzSummary, "trace": trace.Result, "sizes": sizes.Sizes, "bench": BenchRows, "compare": Comparison, "plan":
    plan_show.PlanReport, "plan --published": PublishedRows, "fit": FittedConstants, "litmus": litmus.LitmusAllowed,
    "litmus --read": litmus.LitmusRead, "explain": WaitGraph, "corpus": FoundMembers, "campaign": CampaignSummary,
}  # fmt: skip
"""The records that commands print."""
BASES = (Envelope, Verdict, Rows, ContradictedProgram)
"""Records whose words all others have, and more."""
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", NoneType: "null", Any: "any", Path: "string"}


def is_record(kind: Any) -> bool:
    """Return whether a type has words."""
    return isinstance(kind, type) and issubclass(kind, Printed)


def records(kind: Any) -> Iterator[Any]:
    """The records that a type is made of, outer ones first."""
    if is_record(kind):
        yield kind
        for word in words_of(kind).values():
            yield from records(word.kind)
    for each in get_args(kind):
        yield from records(each)


def name_of(record: type[Printed]) -> str:
    """Return what the page calls a record."""
    return record.RECORD or record.__name__


def type_text(kind: Any) -> str:
    """A type, as JSON has it."""
    if is_record(kind):
        return f"[{name_of(kind)}](#{name_of(kind).lower()})"
    origin, parts = get_origin(kind), get_args(kind)
    if origin is None:
        return _TYPES[kind]
    if origin is Annotated:
        return type_text(parts[0])
    if issubclass(origin, Mapping):
        return f"object of {type_text(parts[-1])}"
    texts = " or ".join(dict.fromkeys(type_text(part) for part in parts if part is not ...))
    return f"array of {texts}" if issubclass(origin, Sequence) else texts


def part(title: str, kind: Any) -> Iterator[str]:
    """A heading, what the record is, and a line for each of its words, except for the words of every object."""
    own = words_of(kind)
    bases = [base for base in BASES if base is not kind and words_of(base).keys() <= own.keys()]
    own = {name: each for name, each in own.items() if not any(name in words_of(base) for base in bases)}
    yield f"## {title}"
    more = ", ".join(type_text(base) for base in bases if base is not Envelope)
    about = [] if kind in (Envelope, *COMMANDS.values()) else [about_of(kind)]
    if about or more:
        yield " ".join([*about, *([f"All of {more}, and:"] if more else [])])
    rows = ((f"`{name}`", type_text(each.kind), each.says) for name, each in own.items())
    yield table(("word", "type", "what it says"), rows)


def about_of(record: type) -> str:
    """The first paragraph of a record's docstring, in one line."""
    return " ".join((record.__doc__ or "").partition("\n\n")[0].replace("``", "`").split())


def page(text: str, check: bool = False) -> str:
    """The page with its tables made again."""
    inner = dict.fromkeys(record for kind in COMMANDS.values() for record in [*records(kind)][1:])
    inner = {Rows: None, Verdict: None} | inner
    parts = [("Every object", Envelope), *COMMANDS.items(), *((name_of(kind), kind) for kind in inner)]
    return between(text, "json", *(line for title, kind in parts for line in part(title, kind)))


if __name__ == "__main__":
    sys.exit(command(__doc__, PAGE, page))
