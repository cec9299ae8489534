"""Options of commands as fields of a dataclass: each is written once, with its default, help and range."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def option(
    default: Any,
    help: str,
    *,
    least: int | None = None,
    most: int | None = None,
    named: tuple[str, ...] = (),
    metavar: str | None = None,
    argument: bool = False,
) -> Any:
    """A field that is an option of a command, or one of its arguments.

    named: its names on the command line, where they differ from the field's; of a switch such as ``--on/--off``.
    metavar: the placeholder for its value in help, where that is not N, X, FILE or its name.
    """
    return field(default=default, metadata={"option": Option(help, least, most, named, metavar, argument)})


@dataclass(frozen=True)
class Option:
    """What a field says of its option."""

    help: str
    least: int | None
    most: int | None
    named: tuple[str, ...]
    metavar: str | None
    argument: bool

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> "Option | None":
        """Return the option of a field; None if it has none."""
        found: Option | None = metadata.get("option")
        return found


@dataclass(frozen=True, kw_only=True)
class Modelled:
    """The model's options of every command that reports times."""

    fabric: str = option(
        "cloudmatrix384", "FILE.toml, or cloudmatrix384, atlas-800t-a2, atlas-900-a3, h20 or h800.", metavar="FABRIC"
    )  # fmt: skip
    cost: tuple[str, ...] = option(
        (), "A constant of the model, such as poll_ns=100; more than once for several.", metavar="NAME=VALUE"
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The options of every command that runs many jobs (`xccl_emu.jobs`): where it does."""

    workers: int | None = option(None, "Processes [default: one for each core]", least=1)
    dask: str | None = option(None, 'On the cluster of this Dask scheduler, or "local".', metavar="ADDRESS")

    @property
    def processes(self) -> int:
        """Return the number of processes that was asked for, or of cores."""
        return self.workers or len(os.sched_getaffinity(0))
