"""Dumps of flag words: what is in one, by layout, and how it is read.

A dump is one file of NumPy's ``.npz``, or several with some of the ranks each.  Arrays of a rank have its number before
their name, as in ``rank3/signals``; the others are the same in all files.  docs/records/doors.md has the arrays, and a
script that writes them.
"""

import lzma
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.doors.torch.gate import Form, Row

_WHOLE = "int64 int32 uint64 uint32"
_OF_RANK = re.compile(r"rank(0|[1-9]\d{0,8})/(.+)", re.DOTALL)
BUFFERS = 2
"""Buffers of words, which calls take in turn; each cleans the next one."""


class Signal(NamedTuple):
    """What a kind of call leaves in a word of each rank that it sends to; 0 is a word that is awaited."""

    call: str
    name: str
    axes: tuple[str, str]
    """In which order words lie: by ``source``, the rank that sends it, and by that ``expert`` of a rank."""
    least: int
    most: int
    at_source: bool
    """Whether experts are the source's; else they are the receiver's."""

    def may_be(self, words: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Say of each word whether it is one."""
        return (self.least <= words) & (words <= self.most)


class Layout(NamedTuple):
    """The arrays of a dump, and the words in them."""

    common: Form
    of_rank: Form
    signals: tuple[Signal, ...]


LAYOUTS = {
    "deepep-ll": Layout(
        Form(
            (
                Row("num_ranks", (), _WHOLE, gaps=True), Row("num_experts", (), _WHOLE, gaps=True),
                Row("num_max_dispatch_tokens_per_rank", (), _WHOLE, optional=True, gaps=True),
            ),
            (
                "1 <= num_ranks <= 4096", "1 <= num_experts <= 65536", "num_experts % num_ranks == 0",
                "1 <= num_max_dispatch_tokens_per_rank < 2147483648",
            ),
        ),
        Form(
            (
                Row("signals", (str(BUFFERS), "num_experts"), "int32", gaps=True),
                Row("calls", (), _WHOLE, optional=True, gaps=True),
                Row("mask", ("num_ranks",), "int32", optional=True, gaps=True),
            ),
            ("0 <= calls",),
        ),
        (
            Signal("dispatch", "count", ("expert", "source"), -(1 << 31), -1, at_source=False),
            Signal("combine", "flag", ("source", "expert"), 1, 1, at_source=True),
        ),
    )
}  # fmt: skip
"""``deepep-ll``: low-latency mode of [DeepEP]'s legacy Buffer (its csrc/legacy/config.hpp has the places)."""


@dataclass
class Dump:
    """What was read: [buffers, experts] words of ranks, and what else they say."""

    layout: Layout
    common: Mapping[str, int] = field(default_factory=dict)
    ranks: dict[int, Mapping[str, NDArray[Any]]] = field(default_factory=dict)

    @property
    def n_ranks(self) -> int:
        """Return how many ranks there are, with a dump or without."""
        return self.common["num_ranks"]

    @property
    def local(self) -> int:
        """Return the experts of a rank."""
        return self.common["num_experts"] // self.n_ranks

    def placed(self, words: NDArray[Any], signal: Signal) -> NDArray[Any]:
        """[source, expert] view of a buffer of words."""
        sizes = {"source": self.n_ranks, "expert": self.local}
        grid = words.reshape([sizes[axis] for axis in signal.axes])
        return grid if signal.axes[0] == "source" else grid.T


def read(paths: Sequence[Path], layout: Layout) -> Dump:
    """Read a dump; ConfigError, by file and array, for one that is none, or whose files do not fit each other."""
    dump = Dump(layout)
    for path in paths:
        arrays, parts = _arrays(path), dict[int, dict[str, Any]]()
        for name in [name for name in arrays if _OF_RANK.fullmatch(name)]:
            rank, own = _OF_RANK.fullmatch(name).groups()  # type: ignore[union-attr]
            parts.setdefault(int(rank), {})[own] = arrays.pop(name)
        numbers = _numbers(arrays)
        layout.common.check(str(path), arrays, numbers)
        other = [name for name in {**dump.common, **numbers} if dump.common.get(name) != numbers.get(name)]
        if dump.common and other:
            name = other[0]
            ranks = f"{name} is {numbers.get(name)} here, and {dump.common.get(name)} in {paths[0]}"
            raise ConfigError(f"{path}: {ranks}; all ranks must call with the same")
        dump.common = numbers
        for number, own in parts.items():
            if number >= dump.n_ranks:
                raise ConfigError(f"{path}: rank{number}: must be a rank of num_ranks={dump.n_ranks}, from 0 on")
            if number in dump.ranks:
                raise ConfigError(f"{path}: rank{number}: must be in one of the files only")
            layout.of_rank.check(f"{path}: rank{number}", own, numbers | _numbers(own))
            dump.ranks[number] = own
    if not dump.ranks:
        names = f"rank0/{layout.of_rank.rows[0].name}"
        raise ConfigError(f"{paths[0]}: has no rank; its arrays must have names such as {names}")
    return dump


def _numbers(arrays: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """Return the arrays that are one whole number."""
    return {name: int(each) for name, each in arrays.items() if each.shape == () and each.dtype.kind in "iu"}


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of a file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as loaded:
            return {name: loaded[name] for name in loaded.files}
    except (
        OSError, ValueError, EOFError, LookupError, AttributeError, TypeError, NotImplementedError, RuntimeError,
        MemoryError, lzma.LZMAError, zipfile.BadZipFile, zlib.error,
    ) as error:  # fmt: skip
        why = error.strerror if isinstance(error, OSError) and error.strerror else f"{type(error).__name__}: {error}"
        raise ConfigError(f"{path}: must be a file that numpy.savez wrote ({why})") from error
