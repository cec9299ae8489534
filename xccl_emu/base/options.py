"""What users choose, as fields of a dataclass: sizes of a protocol and options of a command, each written once."""

import difflib
import operator
import os
from collections.abc import Collection, Iterable
from dataclasses import Field, dataclass, field
from numbers import Integral
from typing import Annotated, Any

from xccl_emu.base import words as w
from xccl_emu.base.errors import ConfigError

SWITCH = (0, 1)


def meant(given: object, known: Iterable[object]) -> str:
    """Ask, at the end of an error about a word that is not known, for those that are like it; empty if none is."""
    near = difflib.get_close_matches(given, [*map(str, known)]) if isinstance(given, str) else []
    return f"; did you mean {' or '.join(near)}?" if near else ""


def must_be_one_of(given: object, known: Collection[object]) -> str:
    """Say which words are known, and which of them may be meant by another one."""
    return f"must be one of {', '.join(map(str, known))}{meant(given, known)}"


def whole(name: str, value: Any) -> int:
    """The value as a Python integer (a NumPy one would overflow in addresses); ConfigError if it is none."""
    try:
        return operator.index(value)
    except TypeError as error:
        raise ConfigError(name, value, "must be a whole number") from error


def items(value: Any) -> list[Any]:
    """Return the items of a collection; a text, and what has none (an array of no dimension, too), is itself one."""
    try:
        return [value] if isinstance(value, str) else list(value)
    except TypeError:
        return [value]


def one_of(name: str, value: Any, known: Collection[str]) -> str:
    """The value, which is one of some names; ConfigError for anything else, also for what cannot be compared."""
    if isinstance(value, str) and value in known:
        return value
    raise ConfigError(name, value, must_be_one_of(value, known))


class NoSuchSize(ConfigError):
    """A protocol has no size of that name, but others; it asks for what is like it among these."""

    def __init__(self, argument: str, value: object = None, must: str = "", known: Collection[str] = ()) -> None:
        super().__init__(argument, value, must + meant(argument, known))
        self._plain, self._known = must, known

    def among(self, options: Iterable[str]) -> str:
        """Say what must be, and ask for options of a command too."""
        return self._plain + meant(self.argument, dict.fromkeys([*self._known, *options]))


@dataclass(frozen=True)
class Option(w.Printed):
    """What is known of one size or choice of a protocol, or one option of a command."""

    name: Annotated[str, "name of the size, in `configuration` too"]
    default: Annotated[int | str, "value if none is given"]
    help: Annotated[str, "what it is"] = ""
    least: Annotated[int | None, "smallest value"] = None
    most: Annotated[int | None, "largest value"] = None
    choices: Annotated[tuple[int | str, ...], "all values; empty if a range says them"] = ()
    advanced: Annotated[bool, "whether reports omit it while it has its default"] = False
    """Most users do not need such a size."""
    also: Annotated[str, "another name on the command line; `ON/OFF` for a switch"] = ""
    """A switch may have one name, for ``--NAME`` and ``--no-NAME``, or both, ``ON/OFF``."""
    each_call: Annotated[bool, "whether calls of one communicator may differ in it"] = False
    """`Case.lay_out_calls` lays such calls out."""
    examples: Annotated[tuple[int | str, ...], "values that `fuzz` tries first"] = ()
    """Values that are worth a try where nobody chooses; none named: those that its choices or its range say."""
    named: tuple[str, ...] = ()
    """Its names as a command's option, where they differ from the field's; of a switch such as ``--on/--off``."""
    metavar: str | None = None
    """The placeholder for its value in a command's help, where that is not N, X, FILE or its name."""
    argument: bool = False
    """Whether a command takes it as an argument, not as an option."""

    @classmethod
    def of(cls, each: "Field[Any]") -> "Option":
        """Return what a field says of itself."""
        return cls(each.name, each.default, **each.metadata)  # type: ignore[arg-type]

    @property
    def is_switch(self) -> bool:
        """Return whether it is on or off, and nothing else."""
        return self.choices == SWITCH

    def checked(self, value: Any) -> int | str:
        """The value as reports and replay files have it; ConfigError if it is none, or out of range."""
        if isinstance(value, Integral) and (self.least is None or not isinstance(value, bool)):
            value = int(value)
        if self.choices:
            if not isinstance(value, int | str) or value not in self.choices:
                known = [each for each in self.choices if each != ""]
                must = "must be 0 or 1" if self.is_switch else must_be_one_of(value, known)
                raise ConfigError(self.name, value, must)
        elif self.least is not None:
            self._must(isinstance(value, int) and not isinstance(value, bool), value, "a whole number")
            self._must(value >= self.least, value, f"at least {self.least}")
            self._must(self.most is None or value <= self.most, value, f"at most {self.most}")
        else:
            self._must(isinstance(value, int | str), value, "a whole number or a string")
        checked: int | str = value
        return checked

    def even(self, value: int | str) -> int | str:
        """The number that a text repeats, as in "2,2"; any other value as it is."""
        numbers = {*str(value).split(",")} if isinstance(self.default, int) else set()
        return int(numbers.pop()) if len(numbers) == 1 and str(value).replace(",", "").isdecimal() else value

    def below(self, value: int | str) -> range:
        """Values from the least up to this one; none where a smaller one is no smaller configuration: of a choice, a
        text, and a number that may be of any size, such as a seed.  0 is not among them: it is none of a thing, or
        leaves a number to the case."""
        if not isinstance(value, int) or self.choices or (self.least is not None and self.most is None):
            return range(0)
        return range(max(1, self.least or 0), value + 1)

    def _must(self, right: bool, value: Any, be: str) -> None:
        if not right:
            raise ConfigError(self.name, value, f"must be {be}")


def option(default: Any, help: str = "", **more: Any) -> Any:
    """A field that users choose; ``more``: fields of `Option` of those names."""
    return field(default=default, metadata={"help": help, **more})


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """The model's options of every command that reports times."""

    fabric: str = option(
        "cloudmatrix384", "FILE.toml, or cloudmatrix384, atlas-800t-a2, atlas-900-a3, h20, h100, h800 or mi300x.",
        metavar="FABRIC",
    )  # fmt: skip
    cost: tuple[str, ...] = option(
        (), "A constant of the model, such as poll_ns=100; more than once for several.", metavar="NAME=VALUE"
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The options of every command that runs many jobs (`xccl_emu.base.jobs`): where it does."""

    workers: int | None = option(
        None, "Processes; 1 is this one, so that a kill ends the command [default: one for each core]", least=1
    )  # fmt: skip
    dask: str | None = option(None, 'On the cluster of this Dask scheduler, or "local".', metavar="ADDRESS")

    @property
    def processes(self) -> int:
        """Return the number of processes that was asked for, or of cores."""
        return self.workers or len(os.sched_getaffinity(0))
