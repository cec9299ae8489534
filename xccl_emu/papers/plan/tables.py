"""Records of numbers from TOML: a field that is missing, unknown, of another type or absurd is refused by name."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from importlib.resources import files
from typing import Any, TypeVar

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.output import read_bytes

Record = TypeVar("Record")


@dataclass(frozen=True)
class NumberRange:
    """What a number may be; whole where ``whole``."""

    least: float
    most: float
    whole: bool
    what: str

    def check(self, name: str, value: object) -> None:
        """Raises ConfigError unless ``value`` is a number within it."""
        right = isinstance(value, int if self.whole else int | float) and not isinstance(value, bool)
        if not right or not self.least <= value <= self.most or not math.isfinite(value):  # type: ignore[operator, arg-type]
            kind = "a whole number" if self.whole else "a number"
            raise ConfigError(name, value, f"must be {kind}, {self.least:g} to {self.most:g} ({self.what})")


def whole(what: str, least: int, most: int, default: Any = MISSING) -> Any:
    """A field that holds a whole number."""
    return field(default=default, metadata={"range": NumberRange(least, most, True, what)})


def number(what: str, least: float, most: float, default: Any = MISSING) -> Any:
    """A field that holds a number."""
    return field(default=default, metadata={"range": NumberRange(least, most, False, what)})


def check_numbers(record: Any) -> None:
    """Raises ConfigError for the first number of a record that is out of its range, or a name that is no text."""
    for each in fields(record):
        if each.name == "name" and not isinstance(record.name, str):
            raise ConfigError("name", record.name, "must be a text")
        if "range" in each.metadata:
            each.metadata["range"].check(each.name, getattr(record, each.name))


def check_names(kind: type, table: object, where: str) -> Mapping[str, Any]:
    """The table itself; ConfigError if it is none, or has other fields than ``kind``."""
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: must be a table with {', '.join(each.name for each in fields(kind))}")
    known = {each.name: each for each in fields(kind)}
    for name in table:
        if name not in known:
            raise ConfigError(f"{where}: {name}={table[name]!r}: no such field; there are {', '.join(known)}")
    for name, each in known.items():
        if name not in table and each.default is MISSING:
            raise ConfigError(f"{where}: {name} is missing: {_wanted(each)}")
    return table


def record(kind: type[Record], table: object, where: str) -> Record:
    """A record of plain fields from a table; ConfigError, saying where, if it cannot be made."""
    try:
        return kind(**check_names(kind, table, where))
    except ConfigError as error:
        message = str(error)
        raise ConfigError(message if message.startswith(where) else f"{where}: {message}") from error


def load(name_or_path: str, known: Mapping[str, str], option: str) -> tuple[Mapping[str, Any], str]:
    """The tables of a shipped file, by its name, or of a user's, by its path; and what to call it in errors.

    known: names of shipped files in ``data/``, without suffix, by the names that users give.
    Raises ConfigError if there is no such file, or it is no TOML.
    """
    if name_or_path in known:
        text = files("xccl_emu.papers.plan").joinpath("data", f"{known[name_or_path]}.toml").read_text("utf-8")
        return tomllib.loads(text), name_or_path
    if not name_or_path.endswith(".toml"):
        names = f"{', '.join(known)}, or " if known else ""
        raise ConfigError(option, name_or_path, f"must be {names}a file that ends with .toml")
    try:
        return tomllib.loads(read_bytes(name_or_path).decode("utf-8")), name_or_path
    except OSError as error:
        raise ConfigError(option, name_or_path, f"cannot be read ({error.strerror})") from error
    except ValueError as error:  # of TOML, of UTF-8, of a path
        raise ConfigError(option, name_or_path, f"is no TOML ({error})") from error


def _wanted(each: "Field[Any]") -> str:
    if "range" not in each.metadata:
        return "must be given"
    of: NumberRange = each.metadata["range"]
    return f"{of.what}, {of.least:g} to {of.most:g}"
