"""Records: parameters of a kernel or subroutine that are several named integers at once.

A record is a class made with `typing.NamedTuple`, given as the annotation of a parameter.  In plain Python the
parameter is an instance; lowered, each field is a register of its own, and a subroutine that is passed the record reads
the same registers.  So a field costs no more than a plain parameter does.  A class that derives from a record has its
fields, and says what one kernel does with them (`rights`).
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeGuard


@dataclass(frozen=True)
class Record:
    """What a record parameter is bound to in lowered code: one expression for each field."""

    kind: type
    fields: Mapping[str, ast.expr]


def is_record(kind: object) -> TypeGuard[type]:
    """Return whether a class was made with NamedTuple."""
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def fields_of(kind: type) -> tuple[str, ...]:
    """Names of a record's fields, in order."""
    names: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]
    return names


def made_by_namedtuple(kind: type) -> type:
    """Return the class that NamedTuple made, of a record or of one that derives from it."""
    return next(base for base in reversed(kind.__mro__) if is_record(base))


def records_of(function: FunctionType) -> dict[str, type]:
    """The record class of each parameter that has one."""
    found = {name: _resolved(given, function) for name, given in function.__annotations__.items() if name != "return"}
    return {name: kind for name, kind in found.items() if is_record(kind)}


def _resolved(annotation: object, function: FunctionType) -> object:
    """An annotation that is a name in quotes (or in a module with postponed annotations) as what it names."""
    return function.__globals__.get(annotation) if isinstance(annotation, str) else annotation


def words_of(parameters: Sequence[str], records: Mapping[str, type]) -> Iterator[tuple[str, str | None]]:
    """Each integer that a call of a kernel takes: its parameter, and its field if that is a record."""
    for name in parameters:
        if name in records:
            yield from ((name, field) for field in fields_of(records[name]))
        else:
            yield name, None


def assembled(parameters: Sequence[str], records: Mapping[str, type], words: Sequence[int]) -> list[Any]:
    """The arguments of the plain generator, made of one integer for each word."""
    rest = iter(words)
    return [
        records[name](*(next(rest) for _ in fields_of(records[name]))) if name in records else next(rest)
        for name in parameters
    ]
