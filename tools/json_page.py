"""Write the tables of docs/records/json.md: the words of every command's ``--json``, from `xccl_emu.cli.schema`."""

import sys
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints, is_typeddict

from pages import ROOT, between, command, table

from xccl_emu.cli.schema.benches import Rows
from xccl_emu.cli.schema.commands import COMMANDS
from xccl_emu.cli.schema.runs import Program, Verdict
from xccl_emu.cli.schema.words import Envelope

PAGE = ROOT / "docs" / "records" / "json.md"
BASES = (Envelope, Verdict, Rows, Program)
"""Records whose words all others have, and more."""
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", NoneType: "null", Any: "any"}


def records(kind: Any) -> Iterator[Any]:
    """The records that a type is made of, outer ones first."""
    if is_typeddict(kind):
        yield kind
        for each in get_type_hints(kind, include_extras=True).values():
            yield from records(each)
    elif get_origin(kind) is not None:
        for each in get_args(kind):
            yield from records(each)


def type_text(kind: Any) -> str:
    """A type, as JSON has it."""
    if is_typeddict(kind):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return type_text(parts[0])
    if origin is UnionType:
        return " or ".join(map(type_text, parts))
    if origin is list:
        return f"array of {type_text(parts[0])}"
    return f"object of {type_text(parts[1])}" if origin is dict else _TYPES[kind]


def part(title: str, kind: Any) -> Iterator[str]:
    """A heading, what the record is, and a line for each of its words, except for the words of every object."""
    own = get_type_hints(kind, include_extras=True)
    bases = [base for base in BASES if base is not kind and get_type_hints(base).keys() <= own.keys()]
    own = {name: each for name, each in own.items() if not any(name in get_type_hints(base) for base in bases)}
    yield f"## {title}"
    more = ", ".join(type_text(base) for base in bases if base is not Envelope)
    about = [] if kind in (Envelope, *COMMANDS.values()) else [kind.__doc__]
    if about or more:
        yield " ".join([*about, *([f"All of {more}, and:"] if more else [])])
    rows = ((f"`{name}`", type_text(each), says(each)) for name, each in own.items())
    yield table(("word", "type", "what it says"), rows)


def says(kind: Any) -> str:
    """The text of a word; for one that has no text of its own the text of its record."""
    texts = getattr(kind, "__metadata__", None) or [each.__doc__.rstrip(".") for each in records(kind)]
    return texts[0][:1].lower() + texts[0][1:]


def page(text: str, check: bool = False) -> str:
    """The page with its tables made again."""
    inner = dict.fromkeys(record for kind in COMMANDS.values() for record in [*records(kind)][1:])
    inner = {Rows: None, Verdict: None} | inner
    parts = [("Every object", Envelope), *COMMANDS.items(), *((kind.__name__, kind) for kind in inner)]
    return between(text, "json", *(line for title, kind in parts for line in part(title, kind)))


if __name__ == "__main__":
    sys.exit(command(__doc__, PAGE, page))
