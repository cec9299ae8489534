"""Launching a kernel: which cores run it, with what arguments, and what they may touch."""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from xccl_emu.errors import ConfigError
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.limits import GRANTS

if TYPE_CHECKING:
    from xccl_emu.lang import Kernel

_INT64 = 1 << 63
_RIGHTS = {"r": ms.READ, "w": ms.WRITE, "f": ms.FLAGS}


@dataclass(frozen=True)
class Grant:
    """A permission: bytes ``start`` to ``end`` (offsets in a die's memory) of one die, or of any (``die=None``)."""

    die: int | None
    start: int
    end: int
    rights: str
    """``"r"``, ``"w"`` or ``"rw"``; an ``"f"`` with the ``"r"`` says that flags are there: loads and mtu-in that
    read whole in it synchronize, as a poll does."""

    def __str__(self) -> str:
        die = "any die" if self.die is None else f"die {self.die}"
        return f"{self.rights} {die} {self.start:#x}-{self.end:#x}"

    def __post_init__(self) -> None:
        """Raises ConfigError for what is no range, and for rights that there are not."""
        if not all(isinstance(end, int) for end in (self.start, self.end)):
            raise ConfigError(f"start={self.start!r}, end={self.end!r}: must be whole numbers")
        letters = set(self.rights) if isinstance(self.rights, str) else set()
        if not letters or not letters <= set(_RIGHTS) or ("f" in letters and "r" not in letters):
            raise ConfigError("rights", self.rights, "must be 'r', 'w' or 'rw', or have 'f' with 'r'")

    def words(self) -> tuple[int, int, int, int]:
        """Return it as the machine keeps it: die or ANY_DIE, start, end, rights."""
        rights = sum(_RIGHTS[letter] for letter in {*self.rights})
        return (ms.ANY_DIE if self.die is None else self.die, self.start, self.end, rights)


@dataclass(frozen=True, eq=False)
class Launch:
    """A kernel on some cores of one die; they form a group for barriers."""

    kernel: "Kernel"
    die: int
    cores: tuple[int, ...]
    """Numbers of the cores on their die."""
    args: tuple[tuple[int, ...], ...]
    """[cores][words]: an integer for each parameter, and for each field of one that is a record."""
    grants: tuple[Grant, ...]
    results: list[int] = field(default_factory=list)
    """What the kernel returned on each core; filled when the run is over."""


def bind_arguments(
    kernel: "Kernel", n_cores: int, args: Mapping[str, int | Sequence[int]]
) -> tuple[tuple[int, ...], ...]:
    """Arguments in order of the parameters, for each core; a sequence gives each core its own value.

    A record is given as an instance of its class, with a number or a sequence in each field.

    Raises ConfigError for a missing or unknown name, a sequence of the wrong length, or a value that is no int64 or
    not the record that is wanted.
    """
    if not isinstance(args, Mapping):
        raise ConfigError(f"kernel {kernel.name}: args={args!r} must be arguments by their names")
    if set(args) != set(kernel.params):
        missing, unknown = sorted(set(kernel.params) - set(args)), sorted(map(str, set(args) - set(kernel.params)))
        raise ConfigError(f"kernel {kernel.name}: arguments missing: {missing}, unknown: {unknown}")
    for name, kind in kernel.records.items():
        if not isinstance(args[name], kind):
            raise ConfigError(f"kernel {kernel.name}: argument {name}={args[name]!r} must be a {kind.__name__}")
    columns = [
        _column(kernel.name, name, args[name], n_cores)
        if field is None
        else _column(kernel.name, f"{name}.{field}", getattr(args[name], field), n_cores)
        for name, field in kernel.words
    ]
    return tuple(zip(*columns, strict=True)) if columns else ((),) * n_cores


def _column(kernel: str, name: str, value: int | Sequence[int], n_cores: int) -> list[int]:
    listed = value.tolist() if isinstance(value, np.ndarray) else value
    values, wanted, times = (list(listed), n_cores, 1) if isinstance(listed, Sequence) else ([listed], 1, n_cores)
    if len(values) != wanted:
        raise ConfigError(f"kernel {kernel}: argument {name} has {len(values)} values for {n_cores} cores")
    for item in values:
        if not _is_int64(item):
            raise ConfigError(f"kernel {kernel}: argument {name}={item!r} must be a 64-bit integer")
    return [int(item) for item in values] * times


def _is_int64(item: object) -> bool:
    try:
        return -_INT64 <= operator.index(item) < _INT64  # type: ignore[arg-type]
    except TypeError:
        return False


def check_grants(grants: Sequence[Grant], n_dies: int, die_bytes: int, whose: str) -> None:
    """Raises ConfigError for more grants than a core holds, or one that lies outside of the pod."""
    if not isinstance(grants, Sequence) or not all(isinstance(grant, Grant) for grant in grants):
        raise ConfigError("grants", grants, "must be a list of grants, as Pod.grant gives them")
    if len(grants) > ms.MAX_WINDOWS:
        raise ConfigError(GRANTS.said(f"{whose}: {len(grants)} grants"))
    for grant in grants:
        grant.words()  # refuses unknown rights
        die_ok = grant.die is None or 0 <= grant.die < n_dies
        if not die_ok or not 0 <= grant.start <= grant.end <= die_bytes:
            raise ConfigError(f"{grant}: lies outside of the pod ({n_dies} dies of {die_bytes} bytes)")
