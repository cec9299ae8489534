"""Programs as plain data, for the model: what the cores of a small pod do, and where memory is.

These modules but `translate`, `draw` and `compare` are the model: `program`, `state`, `pipes`, `cache`, `scalar`,
`machine`, `races`, `spec`.  They are written from the pages on orders, races and caches in docs, and what
ARCHITECTURE.md says of the machine, and import nothing of the project.
"""

from collections.abc import Iterator
from typing import NamedTuple

SCALAR, MTU_IN, VECTOR, MTU_OUT, DMA = range(5)
"""Engines of a core; DMA descriptor e is engine `DMA` + e."""
ORDERS = ("sc", "fifo", "relaxed", "unordered")
LINE = 64
"""Bytes of a line of a scalar unit's cache."""


class Op(NamedTuple):
    """One instruction; what its operands mean depends on its kind."""

    kind: str
    """load, store, atomic, swap, poll, line, quiet, fence, in, out, put, add, signal, set, wait, ub_load, ub_store,
    copy, sum, dma, arrive, await, skip, fail, dcci, choose, any or validate."""
    addr: int = 0
    """Bytes in memory; of a copy or a sum the source in the data buffer; of `set` and `wait` the pipe that sets."""
    value: int = 0
    """What is stored, added, compared with; an event's number; how many instructions are skipped; how many answers."""
    nbytes: int = 8
    ub: int = 0
    """Bytes in the data buffer; of `set` and `wait` the pipe that waits."""
    other: int = 0
    """The target of a DMA, the signal's address, the second row of a sum, what a swap expects, or what `skip` and
    `fail` compare with."""
    told: int = 0
    """What a signal sets its word to, or adds."""
    words: tuple[int, ...] = ()
    """What a put writes."""
    test: str = ""
    """eq, ne or ge of a poll; add or set of a signal; add of a transfer out; eq or ne of a skip; is the
    code of a `fail` declared?"""
    mask: int = -1
    """The bits of a poll; the flags of a line."""
    asks: str = ""
    """no-order, relaxed, strong."""
    named: bool = False
    """Does a load or transfer in synchronize?"""
    takes: bool = False
    """Does the kernel keep the value?"""
    tentative: bool = False
    """May what is read meet a write?"""
    shows: bool = False
    """Whether it is part of what the core tells at its end."""
    conditions: tuple[tuple[int, str, int], ...] = ()
    """What ``any`` waits for: address, eq, ne or ge, and value of each."""
    computed: str = ""
    """``seen``: stores what the core has to tell; ``last``: loads from a place that depends on the last value."""


class Core(NamedTuple):
    """A core: where it is, and what it does."""

    die: int
    ops: tuple[Op, ...]
    group: int
    """Cores of one group meet at barriers."""


class Program(NamedTuple):
    """Cores, memory, and the order under which they run."""

    cores: tuple[Core, ...]
    dies: int
    die_bytes: int
    meta: tuple[int, int]
    """First byte of a die's metadata area, and the byte behind it."""
    ub_bytes: int
    order: str
    unit: int = 32
    """Bytes that become visible, and are read, at once."""
    memory: tuple[tuple[int, int], ...] = ()
    """Words of 8 bytes that are not 0 at first, as (address, value)."""
    filled: tuple[tuple[int, int], ...] = ()
    """Ranges outside of metadata that the host has written, as (first, behind)."""
    fresh: bool = False
    """Has nobody written the data buffers?"""
    lines: int = 0
    """Lines of a scalar unit's cache; 0: it has none."""
    places: bool = False
    """May writes of a core change places, by the order or by what some request asks for?"""

    def die_of(self, addr: int) -> int:
        """The die with this byte."""
        return addr // self.die_bytes

    def is_meta(self, first: int, behind: int) -> bool:
        """Return whether all these bytes are in a metadata area."""
        low, high = self.meta
        return low <= first % self.die_bytes and first % self.die_bytes + behind - first <= high

    def pieces(self, addr: int, nbytes: int) -> Iterator[tuple[int, int]]:
        """A range cut where units begin, as (first, behind)."""
        at = addr
        while at < addr + nbytes:
            behind = min(addr + nbytes, (at // self.unit + 1) * self.unit)
            yield at, behind
            at = behind


class Write(NamedTuple):
    """A write that has taken off: at most a unit, but for additions and signals, which are always whole."""

    core: int
    engine: int
    op: int
    piece: int
    die: int
    """Die of the core."""
    home: int
    """The die with the bytes."""
    addr: int
    data: bytes
    adds: bool
    fences: int
    """How many fences its core has passed before it."""
    asks: str
    part: str = ""
    """``payload`` or ``signal`` of a request that signals; ``row`` of a copy that adds integers of 4 bytes."""

    @property
    def behind(self) -> int:
        """The first byte behind it."""
        return self.addr + len(self.data)


def lands_first(program: Program, older: Write, younger: Write) -> bool:
    """Must the older of two writes become visible first?

    docs/machine.md says when; under `sc` nothing is in flight.
    """
    if younger.part == "signal" and older[:3] == younger[:3]:
        return True
    if older.home == younger.home and program.order in ("sc", "fifo"):
        return older.die == younger.die
    if older.core != younger.core:
        return False
    same_unit = older.addr // program.unit <= (younger.behind - 1) // program.unit
    same_unit = same_unit and younger.addr // program.unit <= (older.behind - 1) // program.unit
    if older.engine >= DMA or younger.engine >= DMA:
        return program.order == "relaxed" and same_unit and older.engine == younger.engine
    if older.home == younger.home and older.fences < younger.fences:
        return True
    if "no-order" in (older.asks, younger.asks):
        return False
    strong = younger.asks == "strong" and older.home == younger.home
    return strong or (program.order == "relaxed" and same_unit)
