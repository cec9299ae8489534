"""Races by definition (docs/machine.md): happens-before, what is visible for certain, and conflicts, of one execution.

Sets of accesses are bits of an integer.  Each engine has what happens before whatever it does next, and which writes
of these are visible for certain.
"""

from collections.abc import Callable
from typing import NamedTuple

from .program import DMA, MTU_IN, MTU_OUT, SCALAR, Program, Write, lands_first
from .state import Filled, Happening, Landed, Read, Told, Wrote

Engine = tuple[int, int]
_READ_IN = -1
"""Engine with what a core's mtu-in has done since its last flag: transfers behind that may have overtaken it."""


class Known(NamedTuple):
    """What happens before something, and which writes are visible then."""

    before: int = 0
    visible: int = 0

    def __or__(self, other: "Known") -> "Known":
        return Known(self.before | other.before, self.visible | other.visible)


class Access(NamedTuple):
    """An access that was made, with what happens before it."""

    bit: int
    engine: Engine
    first: int
    behind: int
    buffer: int
    """The core whose data buffer it is of; -1: memory."""
    syncs: bool
    """Does a read synchronize, or is a write made at once?"""
    known: Known
    write: Write | None = None
    """In memory."""
    writes: bool = False
    adds: bool = False
    """Does it read, too, what it writes?"""
    releases: bool = False
    """Does who sees it know what its engine has done?"""
    stores: bool = False
    """Does it see the core's own scalar stores in flight?"""
    padding: frozenset[int] = frozenset()
    """Bytes of a copy in memory that come from where nobody has written."""


class Race(NamedTuple):
    """Two accesses that nothing orders, or (alone) a use of what nobody has written."""

    one: Access | None
    other: Access
    validated: bool = False
    """Or a tentative read that met a write, and is validated."""


class Names:
    """Each access of a program, and its bit: the same in all executions, and another one once its core began again."""

    def __init__(self) -> None:
        """No access yet."""
        self.bits: dict[tuple[object, ...], int] = {}

    def bit(self, *name: object) -> int:
        """The bit of an access."""
        return self.bits.setdefault(name, 1 << len(self.bits))


class History:
    """What has happened in one execution; `after` makes a longer one."""

    __slots__ = (
        "accesses", "again", "carried", "events", "known", "landed", "names", "padding", "program", "tried", "written",
    )  # fmt: skip

    def __init__(self, program: Program) -> None:
        """Nothing has happened."""
        self.program, self.names = program, Names()
        self.known: dict[object, Known] = {}
        self.accesses: tuple[Access, ...] = ()
        self.again = frozenset[int]()
        """Cores that have begun again."""
        self.landed: dict[int, int] = {}
        self.events: dict[object, Known] = {}
        self.tried: dict[tuple[int, int], Access] = {}
        self.padding = frozenset[int]()
        """Bytes of memory where padding is visible that nobody has written."""
        self.carried = frozenset[int]()
        """Which of the bytes that a copy reads in this step, from its first on, nobody has written."""
        low, high = program.meta
        filled = [(die * program.die_bytes + low, die * program.die_bytes + high) for die in range(program.dies)]
        self.written = frozenset(byte for first, behind in [*filled, *program.filled] for byte in range(first, behind))
        if not program.fresh:
            cores = range(len(program.cores))
            self.written |= {(core, byte) for core in cores for byte in range(program.ub_bytes)}

    def key(self) -> tuple[object, ...]:
        """Equal for histories that no later access tells apart."""
        return (
            frozenset(self.known.items()), frozenset(self.accesses), frozenset(self.landed.items()),
            frozenset(self.events.items()), self.written, self.padding,
        )  # fmt: skip

    def after(self, told: list[Happening]) -> "History | Race":
        """The history with more at its end, or the first race in it."""
        other = History.__new__(History)
        other.program, other.names, other.written = self.program, self.names, self.written
        other.tried, other.padding, other.carried = self.tried, self.padding, frozenset()
        other.known, other.landed, other.events = dict(self.known), dict(self.landed), dict(self.events)
        other.accesses, other.again = self.accesses, self.again
        for one in told:
            race = other._happens(one)
            if race:
                return race
        return other

    def _happens(self, one: Happening) -> Race | None:
        if isinstance(one, Read):
            return self._read(one)
        if isinstance(one, Wrote):
            return self._wrote(one)
        if isinstance(one, Filled):
            bit, engine = self._bit("fill", *one[:4]), (one.core, one.engine)
            known = self._begun(engine, one.op)
            access = Access(bit, engine, one.first, one.behind, one.core, False, known, writes=True)
            padding = {(one.core, one.first + k) for k in self.carried}
            used = not self.written.isdisjoint(padding)
            self.written |= {(one.core, byte) for byte in range(one.first, one.behind)} - padding
            return self._access(access) or (Race(None, access) if used else None)
        if isinstance(one, Landed):
            bit = self._bit_of(one.write)
            if race := self._lands(one.write, bit):
                return race
            for byte in range(one.write.addr, one.write.behind):
                self.landed[byte] = self.landed.get(byte, 0) | bit
            return None
        if one.what == "validated" and ("met", one.core, one.op) in self.events:
            return Race(None, self.tried[one.core, one.op], True)
        self._tell(one)
        return None

    def _lands(self, write: Write, bit: int) -> Race | None:
        """What a write that becomes visible makes of its bytes: written, or padding, which must not meet a use."""
        access = next(each for each in self.accesses if each.bit == bit and each.writes)
        sure = frozenset(range(write.addr, write.behind)) - access.padding
        if access.padding & self.written or ((write.adds or self.program.places) and sure & self.padding):
            return Race(None, access)
        self.written, self.padding = self.written | sure, self.padding - sure | access.padding
        return None

    def polled(self, core: int, number: int) -> Race | None:
        """Does a core wait at an instruction that polls padding?"""
        op = self.program.cores[core].ops[number]
        words = [(op.addr, op.nbytes)] if op.kind in ("poll", "line") else []
        words += [(address, 8) for address, _, _ in op.conditions] if op.kind == "any" else []
        for first, nbytes in words:
            if not self.padding.isdisjoint(range(first, first + nbytes)):
                bit = self._bit("polls", core, number)
                return Race(None, Access(bit, (core, SCALAR), first, first + nbytes, -1, True, Known()))
        return None

    # ---- accesses

    def _of(self, engine: object) -> Known:
        return self.known.get(engine, Known())

    def _begun(self, engine: Engine, op: int) -> Known:
        """What an instruction knows: a transfer in, which may be overtaken, not what those behind it know."""
        issued = self.events["issue", *engine, op] if engine[1] == MTU_IN else Known()
        return self._of(engine) | issued

    def _bit(self, what: str, core: int, *more: int) -> int:
        """The bit of an access of a core in its present life."""
        return self.names.bit(what, core, *more, core in self.again)

    def _bit_of(self, write: Write) -> int:
        return self._bit("write", *write[:4])

    def _access(self, access: Access) -> Race | None:
        """Note an access, or tell of a race with an earlier one."""
        for earlier in self.accesses:
            if _conflict(earlier, access) and not (self._ordered(earlier, access) or self._both_sync(earlier, access)):
                return Race(earlier, access)
        self.accesses = (*self.accesses, access)
        core, engine = access.engine
        behind = (core, _READ_IN if engine == MTU_IN else engine)
        self.known[behind] = self._of(behind) | Known(access.bit)
        return None

    def _read(self, one: Read) -> Race | None:
        engine = (one.core, one.engine)
        where = range(one.first, one.behind)
        named = [byte if one.buffer < 0 else (one.buffer, byte) for byte in where]
        bit = self._bit("read", *one[:4], one.buffer)
        known = self._begun(engine, one.op)
        access = Access(bit, engine, one.first, one.behind, one.buffer, one.named, known, stores=one.stores)
        if one.tentative:
            return self._try(access, one.op)
        race = self._access(access)
        missing = frozenset(k for k, byte in enumerate(named) if byte not in self.written)
        if one.copies and not one.named:
            self.carried = missing
        elif race is None and (not self.padding.isdisjoint(named) if one.named else missing):
            race = Race(None, access)
        if race is None and one.named:
            self._see(engine, where, self._acquires(one.core, one.op))
        return race

    def _acquires(self, core: int, number: int) -> bool:
        """Does a read acquire, or a quiet what reads before it have seen?"""
        return self.program.cores[core].ops[number].asks != "no-acquire"

    def _try(self, access: Access, op: int) -> None:
        """A tentative read: is a write there that nothing orders before it?  No look at a version tells of that one."""
        for byte in range(access.first, access.behind):
            landed = self.landed.get(byte, 0)
            if any(each.bit & landed and each.writes and not self._ordered(each, access) for each in self.accesses):
                self.events["met", access.engine[0], op] = Known()
                self.tried = {**self.tried, (access.engine[0], op): access}

    def _see(self, engine: Engine, where: range, acquires: bool) -> None:
        """A read that synchronizes sees the latest write of each byte, and so all that landed there before."""
        learns = engine if acquires else f"{engine[0]} has seen"
        seen = 0
        for byte in where:
            seen |= self.landed.get(byte, 0)
        for write in [access for access in self.accesses if access.bit & seen and access.writes]:
            told = Known(0, self._visible_behind(write))
            if write.releases and write.engine != engine:
                told |= Known(write.known.before | write.bit)
            self.known[learns] = self._of(learns) | told
            if not acquires:
                self.known[f"{engine[0]} saw"] = self._of(f"{engine[0]} saw") | Known(write.bit)

    def _wrote(self, one: Wrote) -> Race | None:
        write, engine = one.write, (one.write.core, one.write.engine)
        access = Access(
            self._bit_of(write), engine, write.addr, write.behind, -1, one.once, self._of(engine), write,
            writes=True, adds=write.adds, releases=one.once and one.swapped,
            padding=frozenset(write.addr + k for k in self.carried),
        )  # fmt: skip
        race = self._access(access)
        if race is None and write.adds and write.engine == SCALAR:  # it has waited for what lands before it
            self.known[engine] = self._of(engine) | Known(0, self._visible_behind(access))
        return race

    # ---- what orders

    def _tell(self, one: Told) -> None:
        core, scalar = one.core, (one.core, SCALAR)
        here = (core, one.engine)
        if one.what == "issue":
            self.events["issue", core, one.engine, one.op] = self._of(scalar)
            if one.engine >= DMA:
                self.known[here] = self._of(here) | self._of(scalar)
        elif one.what == "begin":
            behind = self._of((core, _READ_IN)) if one.engine == MTU_IN else Known()
            self.known[here] = self._of(here) | behind | self.events["issue", core, one.engine, one.op]
        elif one.what == "quiet":
            own = [known for engine, known in self.known.items() if isinstance(engine, tuple) and engine[0] == core]
            for known in own:
                self.known[scalar] = self._of(scalar) | known
            if self._acquires(core, one.op):
                self.known[scalar] = self._of(scalar) | self._of(f"{core} has seen")
            self._reveal(scalar, lambda access: access.engine[0] == core)
        elif one.what == "fence":
            self.events["fence", core] = self._of((core, MTU_OUT))
        elif one.what == "fenced":
            self.known[scalar] = self._of(scalar) | self.events.get(("fence", core), Known())
        elif one.what == "set":
            engine = (core, DMA + one.event[2]) if one.event[0] == DMA else (core, one.event[0])
            self.events["event", core, one.event] = self._of(engine)
        elif one.what == "waited":
            waits = (core, one.event[1])
            self.known[waits] = self._of(waits) | self.events["event", core, one.event]
        elif one.what == "done":
            self._reveal(here, lambda access: access.engine == here)
        elif one.what == "again":
            self._begin_again(self.program.cores[core].die)
        elif one.what == "arrive":
            self.events["arrived", core, one.op] = self._of(scalar)
        elif one.what == "await":
            for other, placed in enumerate(self.program.cores):
                if placed.group == self.program.cores[core].group:
                    self.known[scalar] = self._of(scalar) | self.events["arrived", other, one.op]

    def _begin_again(self, die: int) -> None:
        """All that the cores of a die have known and done happens before whatever they do next; what was in flight is
        lost, and in nobody's way.  Their data buffers are as at first."""
        cores = {core for core, placed in enumerate(self.program.cores) if placed.die == die}
        known = Known()
        for access in self.accesses:
            known |= Known(access.bit, access.bit) if access.engine[0] in cores else Known()
        for engine, each in self.known.items():
            known |= each if isinstance(engine, tuple) and engine[0] in cores else Known()
        self.known |= {(core, engine): known for core in cores for engine in range(_READ_IN, DMA)}
        self.known |= {f"{core} {what}": Known() for core in cores for what in ("has seen", "saw")}
        self.events = {name: each for name, each in self.events.items() if name[1] not in cores}
        self.written = frozenset(byte for byte in self.written if not isinstance(byte, tuple) or byte[0] not in cores)
        if not self.program.fresh:
            self.written |= {(core, byte) for core in cores for byte in range(self.program.ub_bytes)}
        self.again |= cores

    def _reveal(self, engine: Engine, own: Callable[[Access], bool]) -> None:
        """All writes of a core or descriptor are visible, and under `fifo` what its die wrote to those dies before."""
        for access in self.accesses:
            if access.write is not None and own(access):
                visible = access.bit
                if self.program.order == "fifo":
                    visible |= self._visible_behind(access)
                self.known[engine] = self._of(engine) | Known(0, visible)

    # ---- visible

    def _visible_behind(self, access: Access) -> int:
        """Writes that are visible for certain when this one is."""
        write, visible = access.write, access.bit | access.known.visible
        assert write is not None
        for other in self.accesses:
            if other.write is None or other.bit == access.bit or not other.bit & access.known.before:
                continue
            if lands_first(self.program, other.write, write):
                visible |= other.bit
                if other.write.part == "signal":  # and with a signal what it is the signal of
                    visible |= self._payload(other.write)
        if write.part == "signal":
            visible |= self._payload(write)
        return visible

    def _payload(self, signal: Write) -> int:
        """What a signal's request copies, and what that is sure to become visible behind."""
        visible = 0
        for access in self.accesses:
            copied = access.write
            if copied is not None and copied.part == "payload" and copied[:3] == signal[:3]:
                visible |= access.bit
                for other in self.accesses:
                    if other.write is not None and other.bit & access.known.before:
                        visible |= other.bit if lands_first(self.program, other.write, copied) else 0
        return visible

    # ---- pairs

    def _ordered(self, earlier: Access, later: Access) -> bool:
        known, order = later.known, self.program.order
        if earlier.write is not None and later.write is not None:
            visible = bool(earlier.bit & known.visible) or self._in_turn(earlier.write, later.write)
            return bool(earlier.bit & known.before) and visible
        if not earlier.bit & known.before:
            return False
        if earlier.write is None or later.writes or order == "sc" or earlier.bit & known.visible:
            return True
        if later.stores and earlier.engine == later.engine:
            return True
        return any(self._stands_for(earlier, other, later) for other in self.accesses)

    def _in_turn(self, earlier: Write, later: Write) -> bool:
        """Return whether it is enough that the one takes off before the other."""
        if self.program.order in ("sc", "fifo"):
            return self.program.order == "sc" or (earlier.die, earlier.home) == (later.die, later.home)
        unit = self.program.unit
        same_unit = earlier.addr // unit == later.addr // unit or (earlier.behind - 1) // unit == later.addr // unit
        return earlier.core == later.core and max(earlier.engine, later.engine) < DMA and same_unit

    def _stands_for(self, earlier: Access, other: Access, later: Access) -> bool:
        """Return whether what covers the earlier write is there in its place."""
        if other.write is None or not (other.first <= earlier.first and earlier.behind <= other.behind):
            return False
        if not (other.bit & later.known.before and earlier.bit & other.known.before):
            return False
        sure = bool(earlier.bit & self._visible_behind(other))
        return sure and (bool(other.bit & later.known.visible) or (later.stores and other.engine == later.engine))

    def _both_sync(self, one: Access, other: Access) -> bool:
        if not (one.syncs and other.syncs):
            return False
        if any(a.first <= byte < a.behind for a, b in ((one, other), (other, one)) for byte in b.padding):
            return False
        if one.adds or other.adds or not (one.writes and other.writes):
            return True
        if one.bit & self._of(f"{other.engine[0]} saw").before:
            return True
        return self.program.is_meta(one.first, one.behind) and self.program.is_meta(other.first, other.behind)


def _conflict(one: Access, other: Access) -> bool:
    if one.buffer != other.buffer or one.engine == other.engine or not (one.writes or other.writes):
        return False
    return one.first < other.behind and other.first < one.behind
