"""A protocol in one configuration, and how its sizes are declared."""

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

import numpy as np

from xccl_emu.check.trial import Checkable, Trial
from xccl_emu.errors import ConfigError
from xccl_emu.lang import Kernel
from xccl_emu.protocol.bench import Bench

SIZE_MAX = 1 << 16
"""Of a size that says nothing else: what is larger is a mistake, and would take the memory of this machine."""


@dataclass(frozen=True)
class Size:
    """What is known of one size or choice of a protocol."""

    name: str
    default: int | str
    help: str = ""
    least: int | None = None
    most: int | None = None
    choices: tuple[int | str, ...] = ()

    def checked(self, value: Any) -> int | str:
        """The value as reports and replay files have it; ConfigError if it is none, or out of range."""
        if isinstance(value, np.integer) or (isinstance(value, bool) and self.least is None):
            value = int(value)
        if isinstance(value, bool):
            raise ConfigError(f"{self.name}={value!r}: must be a whole number")
        if not isinstance(value, int | str):
            raise ConfigError(f"{self.name}={value!r}: must be a whole number or a string")
        if self.choices and value not in self.choices:
            raise ConfigError(f"{self.name}={value!r}: must be one of {', '.join(map(str, self.choices))}")
        if self.least is not None or self.most is not None:
            self._check_range(value)
        return value

    def _check_range(self, value: int | str) -> None:
        least, most = self.least, self.most
        if isinstance(value, str):
            raise ConfigError(f"{self.name}={value!r}: must be a whole number")
        if least is not None and value < least:
            raise ConfigError(f"{self.name}={value}: must be at least {least}")
        if most is not None and value > most:
            raise ConfigError(f"{self.name}={value}: must be at most {most}")


def size(default: int, help: str = "", *, least: int = 1, most: int = SIZE_MAX) -> Any:
    """A field of a case that is a whole number in a range."""
    return field(default=default, metadata={"help": help, "least": least, "most": most})


def choice(default: int | str, help: str = "", *, of: Collection[int | str]) -> Any:
    """A field of a case that is one of several values; a switch is one of 0 and 1."""
    return field(default=default, metadata={"help": help, "choices": tuple(of)})


class Case:
    """A protocol in one configuration: derive a frozen dataclass from it, with `size` and `choice` for its fields.

    What is wrong with the values of the fields is a ConfigError as soon as the case is made; a case that has more to
    say of them does so in ``__post_init__``, after ``super().__post_init__()``.
    """

    def __post_init__(self) -> None:
        for each in self.sizes():
            object.__setattr__(self, each.name, each.checked(getattr(self, each.name)))

    def lay_out(self, bench: Bench) -> None:
        """Make the pod, put data in, say what must be there in the end, and launch the kernels.

        It is called anew for each part of a check, and must do the same each time.
        """
        raise NotImplementedError(f"{type(self).__name__}.lay_out")

    @classmethod
    def sizes(cls) -> tuple[Size, ...]:
        """What can be chosen, in the order in which reports print it."""
        return tuple(Size(each.name, each.default, **each.metadata) for each in fields(cls))  # type: ignore[arg-type]

    @classmethod
    def proofs(cls) -> "Mapping[str, Case]":
        """Configurations that are to be verified under every schedule, by what is particular; one of default sizes."""
        return {"default sizes": cls()}

    @property
    def name(self) -> str:
        """As reports have it."""
        return type(self).__name__

    @property
    def configuration(self) -> Mapping[str, int | str]:
        """Every size, those at their default too."""
        return {each.name: getattr(self, each.name) for each in self.sizes()}

    @property
    def payload_bytes(self) -> int | None:
        """Of the call, for bandwidths; None if it has no such number."""
        return None

    @property
    def bus_factor(self) -> float:
        """By what the bandwidth of the algorithm is multiplied to give that of the bus, as nccl-tests define it."""
        return 1.0

    @property
    def syncs(self) -> tuple[str, ...]:
        """Names of the synchronizations in the kernels that it launches."""
        return syncs(self)

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """A fresh pod with the kernels launched; raises what `lay_out` raises."""
        bench = Bench(order, without)
        self.lay_out(bench)
        return bench.trial()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.configuration.items())})"


Build = Callable[..., None]
"""``build(bench, **sizes)``."""


@dataclass(frozen=True)
class FunctionCase(Case):
    """A protocol function with its sizes."""

    title: str
    values: Mapping[str, int | str]
    function: Build = field(repr=False)

    def __post_init__(self) -> None:
        """The sizes are checked where the function is called."""

    @property
    def name(self) -> str:
        """That of the function."""
        return self.title

    @property
    def configuration(self) -> Mapping[str, int | str]:
        """Every size, in the order of the function's parameters."""
        return self.values

    def lay_out(self, bench: Bench) -> None:
        """Call the function."""
        self.function(bench, **self.values)

    __str__ = Case.__str__


def protocol(function: Build) -> Callable[..., Case]:
    """Make a protocol of a function ``f(bench, size=default, ...)``; called with sizes alone it gives a `Case`.

    The function makes a pod (`Bench.pod`), puts data in, says what must be there in the end, and launches kernels.  It
    is called anew for each part of a check and must do the same each time.  Sizes are whole numbers or strings, so that
    a replay file can keep them; ConfigError for anything else, and for a size the function does not have.
    """
    signature = inspect.signature(function)
    named = signature.replace(parameters=list(signature.parameters.values())[1:])

    @functools.wraps(function)
    def case(*args: int | str, **given: int | str) -> Case:
        try:
            bound = named.bind(*args, **given)
        except TypeError as error:
            raise ConfigError(f"{function.__name__}: {error}") from error
        bound.apply_defaults()
        values = {name: Size(name, value).checked(value) for name, value in bound.arguments.items()}
        return FunctionCase(function.__name__, values, function)

    case.makes_case = True  # type: ignore[attr-defined]
    return case


def sizes_of(made: Any) -> tuple[Size, ...]:
    """The sizes of a class derived from `Case`, of another dataclass, or of a protocol function."""
    if isinstance(made, type) and issubclass(made, Case):
        return made.sizes()
    if isinstance(made, type):
        return tuple(Size(each.name, cast(int | str, each.default)) for each in fields(made))
    parameters = list(inspect.signature(made.__wrapped__).parameters.values())[1:]
    return tuple(Size(each.name, "" if each.default is each.empty else each.default) for each in parameters)


def syncs(checkable: Checkable, order: str = "relaxed") -> tuple[str, ...]:
    """Names of the synchronizations in the kernels that it launches, each once, in the order of their sources."""
    return names_of_syncs(checkable.build(order).pod.kernels)


def names_of_syncs(kernels: Iterable[Kernel]) -> tuple[str, ...]:
    """Names of all synchronizations in the kernels, each once, in the order of their sources."""
    return tuple(dict.fromkeys(site.sync for kernel in kernels for site in kernel.sites if site.sync))
