"""Published measurements that are made again: `xccl-emu bench`, a module for each paper.

A module has options, and nothing that takes time to import; `xccl_emu.papers.bench` has how a measurement is made.
"""

import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import Modelled, option

if TYPE_CHECKING:
    from xccl_emu.papers.bench.result import Result
    from xccl_emu.papers.bench.setting import Setting


@dataclass(frozen=True)
class Suite:
    """How a measurement takes part where all are made."""

    place: int
    """Among those that are shown."""
    turn: int
    """Among those that are begun: the long ones first, so that no process works alone at the end."""
    gb: float
    """Most memory that it was measured to take, in 10^9 bytes."""
    gb_without_data: float

    def bytes_needed(self, data: bool) -> int:
        """Memory, with payload or without."""
        return round(1e9 * (self.gb if data else self.gb_without_data))


@dataclass(frozen=True)
class Measurement(Modelled):
    """What all of them are asked."""

    name: ClassVar[str] = ""
    """Name of the command."""
    module: ClassVar[str] = ""
    """Module of `xccl_emu.papers.bench` that has the function of this name, if it is not called so."""
    suite: ClassVar[Suite | None] = None
    own_fabric: ClassVar[bool] = False
    """Whether it is made on the fabric of its paper, whatever ``--fabric`` says."""

    seed: int = option(0, "Seed of payloads and routings.", least=0)
    no_data: bool = option(
        False, "Move no payload and check nothing: the same times, faster.", named=("--no-data",)
    )  # fmt: skip

    def rows(self, setting: "Setting") -> "Iterable[Result]":
        """Make it: by the function of `xccl_emu.papers.bench` that has its name; a list, or rows as they come."""
        where = import_module(f"xccl_emu.papers.bench.{self.module or self.name}")
        made: Iterable[Result] = getattr(where, self.name)(setting)
        return made

    def rows_in_suite(self, setting: "Setting") -> "Iterable[Result]":
        """Make it, and what it brings with it."""
        return self.rows(setting)


@dataclass(frozen=True)
class Swept(Measurement):
    """A measurement of a layer, at every EP degree with every batch if that is asked for."""

    sweep: tuple[str, ...] = option(
        (), "Every point of ep=8:768 batch=1:128 (default: 128).", metavar="AXIS=FROM:TO"
    )  # fmt: skip
    axes: tuple[str, ...] = option((), "More axes of --sweep.", metavar="[AXIS=FROM:TO]...", argument=True)
    dask: str | None = option(None, "Sweep on this Dask scheduler's cluster, or: local", metavar="ADDRESS")

    @property
    def cores_used(self) -> int:
        """On each die, in a sweep."""
        return 48

    @property
    def words(self) -> list[str]:
        """The axes of a sweep, none if it is none; ConfigError for options that do not go together."""
        if not self.sweep:
            if self.axes or self.dask:
                raise ConfigError(f"{self.axes[0] if self.axes else f'--dask {self.dask}'}: needs --sweep")
            return []
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in type(self).__annotations__ and each.name != "cores" and value != each.default:
                raise ConfigError(f"--{each.name} {value}: cannot be combined with --sweep (axes: ep, batch)")
        return [*self.sweep, *self.axes]


def found() -> Mapping[str, type[Measurement]]:
    """Every measurement that there is, by name."""
    modules = [import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__)]
    kinds = [kind for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    return {kind.name: kind for kind in kinds if issubclass(kind, Measurement) and kind.name}
