"""Words of results: what ``--json`` prints, the page about it and CSV are made of the fields of dataclasses.

A field or a property is a word if its type is annotated with what it says, such as ``states: Annotated[int, "states
that were searched"]``; without a text it is not printed.  A unit is the end of a name: ``latency_us``.  Below are also
the words that several results use, so that they say the same everywhere.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import get_annotations
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, get_args


@dataclass(frozen=True)
class As:
    """A word is printed so, where it differs from the attribute that it is made of."""

    name: str = ""
    """Another name."""
    digits: int | None = None
    """Digits after the point."""
    inline: bool = False
    """The words of the record, in place of the record."""
    text: bool = False
    """The text of the object, in place of the object."""


INLINE = As(inline=True)


class Word(NamedTuple):
    """A word of a record."""

    path: str
    """The attribute, after those that it is inside of: ``verdict.states``."""
    kind: Any
    """Its type, as the field or the property has it."""
    says: str
    printed: As = As()

    def of(self, record: Any) -> Any:
        """Its value in JSON's own types."""
        value = attrgetter(self.path)(record)
        if self.printed.text:
            return str(value)
        return _plain(value) if self.printed.digits is None else round(value, self.printed.digits)


class Printed:
    """A result that is printed; derive a dataclass, and annotate its fields and properties."""

    RECORD: ClassVar[str] = ""
    """Name on the page, if it is not the name of the class."""
    FIRST: ClassVar[tuple[str, ...]] = ()
    """The words that are printed first; then follow the other fields, and the other properties."""

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it."""
        record: Any = type(self)
        return {name: word.of(self) for name, word in words_of(record).items()}


def _plain(value: Any) -> Any:
    """A value of JSON's own types."""
    if isinstance(value, Printed):
        return value.to_json()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


@cache
def words_of(record: Any) -> Mapping[str, Word]:
    """Return the words of a record by name, in the order in which they are printed; none of any other class."""
    if not issubclass(record, Printed):
        return {}
    bases = record.__mro__[::-1]
    hints = {name: hint for each in bases for name, hint in get_annotations(each).items()} | {
        name: get_annotations(it.fget).get("return")
        for each in bases for name, it in vars(each).items() if isinstance(it, property) and it.fget is not None
    }  # fmt: skip
    found = dict(word for attribute, hint in hints.items() for word in _words(attribute, hint))
    return {name: found[name] for name in (*record.FIRST, *(name for name in found if name not in record.FIRST))}


def _words(attribute: str, hint: Any) -> Iterator[tuple[str, Word]]:
    """Yield the word of an attribute, the words of a record that is printed in line, or none."""
    kind, marks = get_args(hint)[:1], getattr(hint, "__metadata__", ())
    printed = next((mark for mark in marks[::-1] if isinstance(mark, As)), As())
    if printed.inline:
        for name, word in words_of(kind[0]).items():
            yield name, word._replace(path=f"{attribute}.{word.path}")
    elif texts := [mark for mark in marks if isinstance(mark, str)]:
        yield printed.name or attribute, Word(attribute, str if printed.text else kind[0], texts[-1], printed)


# ---- words that several results use

CONFIGURATION = "sizes and choices of what was run, by name"
Configuration = Annotated[Mapping[str, int | str], CONFIGURATION]
Protocol = Annotated[str, "name of the protocol"]
About = Annotated[str, "a sentence on the protocol"]
Order = Annotated[str, "memory order: `sc`, `fifo`, `relaxed` or `unordered`"]
Policy = Annotated[str, "who chooses the next step"]
Seed = Annotated[int, "seed of all that is drawn"]
WRONG = (
    "how much differs from what must be there: elements, or bytes where `wrong_bytes` has any; null if nothing was"
    " compared"
)
Wrong = Annotated[int | None, WRONG]
WrongBytes = Annotated[dict[str, int], "wrong bytes of each buffer that has any"]
Seconds = Annotated[float, "wall time"]
Stopped = Annotated[str, "why it came to no end; empty if it did"]
Killed = Annotated[bool, "whether a worker was killed"]
States = Annotated[int, "states that were searched"]
Schedules = Annotated[int, "schedules that were drawn"]
ReplayFile = Annotated[Path | None, "file that shows the violation again"]
Kernel = Annotated[str, "name of the kernel"]
File = Annotated[str, "file of the source, or the one that was written"]
Line = Annotated[int, "line of the source"]
Operation = Annotated[str, "operation of the request"]
Sync = Annotated[str, "name of the synchronization; empty for none"]
Callers = Annotated[tuple[tuple[str, int], ...], "where the subroutine was called: file and line, the innermost last"]
Kind = Annotated[str, "kind of the violation; of a row: whose latency it is"]
Fault = Annotated[str, "what broke; empty for nothing"]
