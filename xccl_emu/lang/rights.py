"""Annotations of parameters and fields: records, and what a kernel may do with the memory at an address.

    class Inbox(NamedTuple):
        rows: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
        tail: xl.Updates
        nbytes: int

For a type checker all of them are ``int``.  A launch grants what they say (`machine.launch.granted`).  Where kernels
with different rights share a record, each takes a class of its own, which derives from the record and annotates again
what this kernel touches; subroutines take the record:

    class Takes(Inbox):
        tail: xl.Reads

A record is a class made with `typing.NamedTuple`, given as the annotation of a parameter.  In plain Python the
parameter is an instance; lowered, each field is a register of its own, and a subroutine that is passed the record reads
the same registers.  So a field costs no more than a plain parameter does.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import FunctionType, UnionType
from typing import (
    Annotated,
    Any,
    NamedTuple,
    TypeAlias,
    TypeGuard,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from xccl_emu.base.errors import KernelError


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


T = TypeVar("T")
Word: TypeAlias = tuple[str, str | None]
"""An integer that a kernel takes: its parameter, and its field if that is a record."""


class Whose(Enum):
    """On which dies something may be touched."""

    GIVEN = "on the die of the address, or those that the launch names: what it names there"
    OWN = "on the die that runs the kernel: all of it"
    ANYWHERE = "on every die: what the launch names there"


class Touch(NamedTuple):
    """What a kernel may do with something, and where."""

    rights: str
    """As a grant has them: ``"r"``, ``"w"`` or ``"rw"``, with ``"f"`` for windows of flags."""
    whose: Whose = Whose.GIVEN


Reads: TypeAlias = Annotated[int, Touch("r")]
Writes: TypeAlias = Annotated[int, Touch("w")]
Updates: TypeAlias = Annotated[int, Touch("rw")]
"""Both: what an atomic changes, too."""
Own = Annotated[T, Whose.OWN]
"""``Own[Reads]``: on the die that runs the kernel, all of it."""
Anywhere = Annotated[T, Whose.ANYWHERE]
"""``Anywhere[Writes]``: on every die, what the launch names there."""


def touches_of(
    function: FunctionType, records: Mapping[str, type], words: Sequence[Word]
) -> dict[Word, tuple[Touch, ...]]:
    """Return what a kernel may do with the integers that it takes, where its annotations say so.

    Raises KernelError for an annotation in quotes that names nothing, and for one of a field that there is not.
    """
    code = function.__code__
    where = f"{code.co_filename}:{code.co_firstlineno}: {function.__name__!r}"
    try:
        said: dict[Word, Any] = {(name, None): of for name, of in _hints(function) if name not in records}
        said |= {(name, field): of for name, kind in records.items() for field, of in _hints(kind)}
    except (AttributeError, NameError) as error:
        raise KernelError(f"{where}: an annotation: {error}") from error
    found = {word: touches for word, of in said.items() if (touches := tuple(_touches(of)))}
    for name, field in found:
        if (name, field) not in words:
            raise KernelError(f"{where}: {records[name].__name__}.{field}: the record has no field of this name")
    return {word: found[word] for word in words if word in found}


def _hints(annotated: Any) -> Any:
    return get_type_hints(annotated, include_extras=True).items()


def _touches(annotation: Any) -> Iterator[Touch]:
    if get_origin(annotation) in (Union, UnionType):
        for each in get_args(annotation):
            yield from _touches(each)
        return
    marks = getattr(annotation, "__metadata__", ())
    whose = next((mark for mark in marks if isinstance(mark, Whose)), Whose.GIVEN)
    yield from (mark._replace(whose=whose) for mark in marks if isinstance(mark, Touch))
