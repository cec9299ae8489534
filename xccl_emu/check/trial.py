"""What is checked: one configuration, launched and ready to run, and what must be true at its end."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.faults import Fault
from xccl_emu.machine.pod import Buffer, Pod

_BYTE = np.dtype(np.uint8)
RESULTS_MAX = 256
"""Different contents that one predicate may call right, within one search."""
JUDGED_BYTES_MAX = 1 << 14
"""Bytes that one predicate may judge."""


@dataclass(frozen=True, eq=False)
class Judge:
    """A predicate over the bytes of some ranges together, and what it has called right so far.

    A judge compares bytes with these contents, and asks the predicate where none is met.
    """

    name: str
    ranges: tuple[tuple[int, int], ...]
    """Global address and bytes of each."""
    right: Callable[..., bool | str]
    """Takes an array of uint8 for each range; True, or False or a text that says what is wrong."""
    accepted: list[bytes] = field(default_factory=list)

    def wrong(self, content: bytes) -> str:
        """Return what the predicate says against some bytes, empty if they are right; ConfigError if it fails."""
        raw, at, arrays = np.frombuffer(content, np.uint8), 0, list[NDArray[np.uint8]]()
        for _, nbytes in self.ranges:
            arrays.append(raw[at : at + nbytes])
            at += nbytes
        try:
            said = self.right(*arrays)
        except Exception as error:
            raise ConfigError(f"{self.name}: its predicate raises {type(error).__name__}: {error}") from error
        if not isinstance(said, bool | np.bool_ | str):
            raise ConfigError(f"{self.name}: its predicate returns {said!r}: must be True, False or a text")
        return said if isinstance(said, str) else "" if said else "its predicate is not met"


@dataclass(frozen=True)
class Expected:
    """Bytes that must be in memory when their owners have returned."""

    name: str
    """For reports, for example ``"output of rank 1"``."""
    address: int
    """Global address of the first byte."""
    data: bytes
    cores: tuple[int, ...] = ()
    """Global numbers of the cores that own them: once these have returned the bytes must be there,
    whatever goes on elsewhere.  None listed: all cores, so the bytes are judged when all kernels are done."""
    by_default: bool = False
    """Whether nobody named these owners."""
    dtype: np.dtype[Any] = _BYTE
    """Reports read the bytes as values of this type."""
    shape: tuple[int, ...] = ()
    """Shape of the array that the bytes are; empty for a row of values."""
    judge: Judge | None = None
    """A predicate says which bytes are right, in place of ``data``; it may be of several ranges."""

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Global address and bytes of each range."""
        return ((self.address, len(self.data)),) if self.judge is None else self.judge.ranges

    @property
    def contents(self) -> Sequence[bytes]:
        """Contents of all ranges together that are known to be right."""
        return (self.data,) if self.judge is None else self.judge.accepted

    def there(self, memory: NDArray[np.uint8]) -> bytes:
        """Return the bytes that are there, of all ranges together."""
        return b"".join(memory[address : address + nbytes].tobytes() for address, nbytes in self.ranges)

    def learns(self, memory: NDArray[np.uint8]) -> bool:
        """Ask the predicate of bytes that are not known to be right: if they are, they are known from now on."""
        if self.judge is None or self.judge.wrong(content := self.there(memory)):
            return False
        self.judge.accepted.append(content)
        return True

    @property
    def too_many(self) -> str:
        """Why a check cannot go on: the predicate has called too many contents right; empty if it can."""
        if len(self.contents) <= RESULTS_MAX:
            return ""
        return f"{self.name} has more than {RESULTS_MAX} different contents that are right"


@dataclass(frozen=True)
class Label:
    """A name for a range of memory, for reports, for example ``die1.meta.tail[0→1]``."""

    name: str
    address: int
    nbytes: int


@dataclass(frozen=True, eq=False)
class Trial:
    """A pod with kernels launched on it and not run, and what a check needs to know about it."""

    pod: Pod
    expected: tuple[Expected, ...]
    filled: tuple[Buffer, ...] = ()
    """Buffers that the host has filled; metadata areas count as filled (with zeros), anything else as not written."""
    labels: tuple[Label, ...] = ()
    stops: Mapping[int, str] = field(default_factory=dict)
    """Codes of `fail` that the protocol declares for faults, with what they mean; without a fault they are bugs."""
    gives_up: frozenset[int] = frozenset()
    """Codes of ``stops`` with which a run may end without a fault too; bytes that are not due before are not judged."""
    tolerated: frozenset[str] = frozenset()
    """Kinds of faults (`faults.KINDS`) under which it never takes wrong bits for right: it waits, or ends in one of
    ``stops``.  Under others a check runs too, and says that they are not tolerated."""
    may_block: bool = True
    """May cores wait without end after a fault?  If not, such a run is a violation: each must return, or end in one of
    ``stops``."""

    recovers: frozenset[int] = frozenset()
    """Any one of these dies may stop, or stop and begin again, and every core that has not stopped returns, whatever
    ``may_block`` says."""

    roles: Mapping[str, Collection[int]] = field(default_factory=dict)
    """Dies by what they do in the protocol, for statistics; none named: all do the same."""

    spoilt: tuple[tuple[int, int], ...] | None = None
    """For a pod that has run before, address and bytes of what holds nothing; all else on dies counts as filled, and
    ``filled`` is left empty.  For sampled schedules alone."""

    open_readings: frozenset[str] = frozenset()
    """What its kernels read in the weaker of two ways because nobody has chosen (`Bench.reading`)."""

    assumed: tuple[str, ...] = ()
    """What a verdict without a violation rests on, in words: where the machine orders more than the real one."""

    def __post_init__(self) -> None:
        self.pod.labels.add((label.name, label.address, label.nbytes) for label in self.labels)

    def is_built_as(self, other: "Trial") -> bool:
        """Do both ask the same of pods that are alike but for their memory orders?"""
        asked = (each.name for each in fields(self) if each.name != "pod")
        return all(getattr(self, name) == getattr(other, name) for name in asked) and self.pod.is_built_as(other.pod)

    def may_wait(self, fault: Fault) -> bool:
        """Return whether cores may wait without end after a fault."""
        return self.may_block and not (fault.kind in ("stop", "revive") and fault.source in self.recovers)

    def owners(self, expected: Expected) -> tuple[int, ...]:
        """Global numbers of the cores that own bytes."""
        return expected.cores or tuple(self.pod.active_cores())

    @property
    def too_many(self) -> str:
        """Why a search cannot go on, as `Expected.too_many`; empty if it can."""
        return next(filter(None, (each.too_many for each in self.expected)), "")

    def results(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Rows of what must be in memory, as compiled code compares it (`device.results`), and the bytes."""
        rows, data = list[tuple[int, ...]](), b""
        for number, each in enumerate(self.expected):
            at = 0
            for k, (address, nbytes) in enumerate(each.ranges):
                last = k + 1 == len(each.ranges)
                whole = (len(each.ranges), len(each.contents)) if last else (0, 0)
                rows.append((address, nbytes, len(data), *whole, number))
                data += b"".join(content[at : at + nbytes] for content in each.contents)
                at += nbytes
        return np.array(rows, np.int64).reshape(-1, 6), np.frombuffer(data, np.uint8)

    def wrong_bytes(self) -> dict[str, int]:
        """Count the bytes that are not as expected now, of each expected range that has any."""
        memory, wrong = self.pod.memory, dict[str, int]()
        for each in self.expected:
            there = each.there(memory)
            if each.judge is None:
                differ = int(np.count_nonzero(np.frombuffer(there, np.uint8) != np.frombuffer(each.data, np.uint8)))
            else:
                differ = len(there) if each.judge.wrong(there) else 0
            if differ:
                wrong[each.name] = wrong.get(each.name, 0) + differ
        return wrong


class Checkable(Protocol):
    """A protocol in one configuration: what `check` takes."""

    @property
    def name(self) -> str:
        """The name by which the command knows it."""

    @property
    def configuration(self) -> Mapping[str, int | str]:
        """Sizes and choices, in the order in which reports print them."""

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """Make a fresh pod of memory order ``order`` with some synchronizations switched off, kernels launched."""


@runtime_checkable
class Resizable(Protocol):
    """A checkable that also exists with smaller sizes."""

    def lesser(self) -> Mapping[str, Sequence[int]]:
        """Values from the least one up to its own, of each size that may be smaller."""

    def resized(self, sizes: Mapping[str, int]) -> Checkable:
        """The same with other sizes; ConfigError if that is refused."""
