"""Launching a kernel: which cores run it, with what arguments, and what they may touch.

Arguments are numbers, and an `Address` knows what it is of.  So a launch grants what the kernel's annotations say of
it (`granted`), or what it is given by hand: a list of `Grant`.
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from xccl_emu.base.errors import ConfigError
from xccl_emu.lang.rights import Touch, Whose
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.limits import GRANTS

if TYPE_CHECKING:
    from xccl_emu.lang import Kernel
    from xccl_emu.machine.spec import PodSpec

_INT64 = 1 << 63
_RIGHTS = {"r": ms.READ, "w": ms.WRITE, "f": ms.FLAGS}

_Range = tuple[int | None, int, int]
"""A die, or any for None; first byte, and the one after the last."""


@dataclass(frozen=True)
class Extent:
    """What an address is of, in global addresses, and how much of it the kernels of a launch may touch."""

    whole: tuple[range, ...] = (range(0),)
    """All of it, on one die."""
    step: int = 1
    """From one element to the next; elements of a buffer are bytes."""
    parts: tuple[range, ...] = ()
    """What of it."""
    dies: tuple[int, ...] = ()
    """On which dies."""
    users: Sequence[int] | None = None
    """Dies that have an equal share each of every part, in this order, if it is shared out."""
    rights: str = "rwf"
    """All that they may do, whatever else they do elsewhere."""

    def of(self, die: int) -> Iterable[range]:
        """Return what a kernel on this die may touch; ConfigError if it has no share."""
        if self.users is None:
            return self.parts
        if die not in self.users:
            raise ConfigError("die", die, f"has no share: it is shared out among {[*self.users]}")
        n, i = len(self.users), self.users.index(die)
        return [part[i * (len(part) // n) : (i + 1) * (len(part) // n)] for part in self.parts]


class Address(int):
    """A global address that knows what it is of, and so what a launch is to grant where the kernel takes it.

    `Region.at` and `Buffer.address` are such, and so is their sum with a number: an address in the same.
    """

    extent: Extent

    def __new__(cls, address: int, extent: Extent = Extent()) -> Self:
        """An address of something."""
        made = super().__new__(cls, address)
        made.extent = extent
        return made

    @classmethod
    def of(cls, address: int, die: int, *whole: range, step: int = 1) -> Self:
        """Return an address of something that is on a die, in one piece or several."""
        return cls(address, Extent(whole, step, whole, (die,)))

    def __add__(self, more: int) -> Self:
        """Return an address in the same thing."""
        added = int.__add__(self, more)
        return type(self)(added, self.extent) if isinstance(more, int) else added

    __radd__ = __add__

    def only(self, *elements: int | range) -> Self:
        """Return the same address, with leave for these elements alone; a range of them is one piece."""
        ranges = (each if isinstance(each, range) else range(each, each + 1) for each in elements)
        return self._but(parts=tuple(map(self._span, ranges)))

    def within(self, elements: range) -> Self:
        """Return the same address, as if there were no other elements, on the die that runs the kernel neither."""
        whole = (self._span(elements),)
        return self._but(whole=whole, parts=whole)

    def on(self, *dies: int) -> Self:
        """Return the same address, with leave for the same place on these dies in place of the address's own."""
        return self._but(dies=dies)

    def limited(self, rights: str) -> Self:
        """Return the same address, with leave for no more than these rights: ``"r"``, ``"w"`` or none."""
        return self._but(rights=rights)

    def shared(self, dies: Sequence[int]) -> Self:
        """Return the same address, with leave for an equal share for the kernels of each of these dies, in order."""
        return self._but(users=dies)

    def _span(self, elements: range) -> range:
        first, step = self.extent.whole[0].start, self.extent.step
        return range(first + elements.start * step, first + elements.stop * step)

    def _but(self, **changed: Any) -> Self:
        return type(self)(self, replace(self.extent, **changed))


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


def granted(kernel: "Kernel", die: int, args: Mapping[str, Any], die_bytes: int) -> list[Grant]:
    """Return what a kernel on a die may touch: what its annotations say, of what its arguments are addresses of.

    Where a core has no room for so much, grants of ranges that touch each other are one, so that one access may go
    across; what has no room even then `check_grants` refuses.  For a plain 0 nothing is granted: there is none.
    ConfigError for another number that is no `Address` where the kernel touches what it is of, and for a kernel whose
    annotations say nothing.
    """
    if not kernel.touches:
        must = "annotate its parameters (`xl.Reads`, ...), or give grants"
        raise ConfigError(f"kernel {kernel.name}: says nothing of what it touches: {must}")
    found: dict[_Range, str] = {}
    for (name, part), touches in kernel.touches.items():
        given = args[name] if part is None else getattr(args[name], part)
        for value in given if isinstance(given, Sequence | np.ndarray) else [given]:
            if not isinstance(value, Address) and value != 0:
                what = name if part is None else f"{name}.{part}"
                must = "an address from a buffer or a region (`region.at(die)`), or give grants"
                raise ConfigError(f"kernel {kernel.name}: argument {what}={value!r} is touched: must be {must}")
            for touch in touches if isinstance(value, Address) else ():
                for where in _places(value.extent, touch, die, die_bytes):
                    _join(found, where, {*touch.rights} & {*value.extent.rights})
    grants = [Grant(*where, rights) for where, rights in found.items() if rights]
    return grants if len(grants) <= ms.MAX_WINDOWS else merged(grants)


def merged(grants: Sequence[Grant]) -> list[Grant]:
    """Merge grants of one range, and grants of ranges that touch each other: these may be touched in one access then.

    The bytes that may be touched stay the same.
    """
    rights: dict[_Range, str] = {}
    for each in grants:
        _join(rights, (each.die, each.start, each.end), each.rights)
    found = list[Grant]()
    for (die, start, end), letters in sorted(rights.items(), key=lambda item: (str(item[0][0]), *item[0][1:])):
        last = found[-1] if found else None
        if last is not None and (last.die, last.end, last.rights) == (die, start, letters):
            start = found.pop().start
        found.append(Grant(die, start, end, letters))
    return found


def _join(rights: dict[_Range, str], where: _Range, more: Iterable[str]) -> None:
    rights[where] = "".join(sorted({*rights.get(where, ""), *more}))


def _places(extent: Extent, touch: Touch, die: int, die_bytes: int) -> Iterator[_Range]:
    parts = extent.whole if touch.whose is Whose.OWN else extent.of(die)
    dies = {Whose.OWN: (die,), Whose.ANYWHERE: (None,)}.get(touch.whose, extent.dies)
    for start, nbytes in ((part.start % die_bytes, len(part)) for part in parts if part):
        yield from ((each, start, start + nbytes) for each in dies)


class Queue(ABC):
    """Launches that some cores make one after the other (`protocol.streams`)."""

    @abstractmethod
    def append(self, launch: "Launch") -> None:
        """Launch after what the cores run already."""


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

    @property
    def named(self) -> dict[str, Any]:
        """The arguments by their names, as it was given them."""
        columns: dict[str, list[list[int]]] = {}
        for (name, _), column in zip(self.kernel.words, zip(*self.args, strict=True), strict=True):
            columns.setdefault(name, []).append(list(column))
        records = self.kernel.records
        return {name: records[name](*words) if name in records else words[0] for name, words in columns.items()}


def bind_arguments(
    kernel: "Kernel", n_cores: int, args: Mapping[str, int | Sequence[int]]
) -> tuple[tuple[int, ...], ...]:
    """Arguments in order of the parameters, for each core; a sequence gives each core its own value.

    A record is given as an instance of its class, or of the one that it derives from, with a number or a sequence in
    each field.

    Raises ConfigError for a missing or unknown name, a sequence of the wrong length, or a value that is no int64 or
    not the record that is wanted.
    """
    if not isinstance(args, Mapping):
        raise ConfigError(f"kernel {kernel.name}: args={args!r} must be arguments by their names")
    if set(args) != set(kernel.params):
        missing, unknown = sorted(set(kernel.params) - set(args)), sorted(map(str, set(args) - set(kernel.params)))
        raise ConfigError(f"kernel {kernel.name}: arguments missing: {missing}, unknown: {unknown}")
    for name, kind in kernel.takes.items():
        if not isinstance(args[name], kind):
            must = kernel.records[name].__name__
            raise ConfigError(f"kernel {kernel.name}: argument {name}={args[name]!r} must be a {must}")
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


def check_grants(grants: Sequence[Grant], spec: "PodSpec", kernel: "Kernel", die: int) -> None:
    """Raises ConfigError for more grants to a kernel than a core holds, or one that lies outside of the pod."""
    if not isinstance(grants, Sequence) or not all(isinstance(grant, Grant) for grant in grants):
        raise ConfigError("grants", grants, "must be a list of grants, as Pod.grant gives them")
    if len(grants) > ms.MAX_WINDOWS:
        whose = f"kernel {kernel.name} on {spec.home(die, ' ')}"
        raise ConfigError(GRANTS.said(f"{whose}: {len(grants)} grants"))
    n_dies, die_bytes = spec.n_homes, spec.die_bytes
    for grant in grants:
        grant.words()  # refuses unknown rights
        die_ok = grant.die is None or 0 <= grant.die < n_dies
        if not die_ok or not 0 <= grant.start <= grant.end <= die_bytes:
            raise ConfigError(f"{grant}: lies outside of the pod ({n_dies} dies of {die_bytes} bytes)")
