"""States of the machine, and what changes them: writes, data buffers, events.

What happens is noted in the words of docs/machine.md, for whoever watches (`races`).
"""

from typing import NamedTuple

from .program import DMA, MTU_IN, SCALAR, Op, Program, Write

BITS_64 = (1 << 64) - 1


class Read(NamedTuple):
    """Bytes were read; those of a core's data buffer where ``buffer`` is its number."""

    core: int
    engine: int
    op: int
    piece: int
    first: int
    behind: int
    named: bool
    buffer: int = -1
    stores: bool = False
    """Did it see the core's own scalar stores in flight?"""
    tentative: bool = False
    copies: bool = False
    """Does the same step write them elsewhere as they are?"""


class Wrote(NamedTuple):
    """A write took off; where ``swapped`` is False it is a swap that failed."""

    write: Write
    once: bool
    swapped: bool = True


class Filled(NamedTuple):
    """Bytes of a data buffer were written."""

    core: int
    engine: int
    op: int
    piece: int
    first: int
    behind: int


class Landed(NamedTuple):
    """A write became visible."""

    write: Write


class Told(NamedTuple):
    """What orders: ``issue``, ``begin`` (an instruction), ``quiet``, ``fence``, ``fenced`` (what is behind it),
    ``set``, ``waited``, ``done`` (a DMA), ``arrive``, ``await``; ``evict`` and ``return`` of a line of a cache;
    ``validated`` a tentative read; ``again``: all cores of the core's die begin again.
    """

    what: str
    core: int
    engine: int = 0
    op: int = 0
    event: tuple[int, int, int] = (0, 0, 0)


Happening = Read | Wrote | Filled | Landed | Told


GIVEN_UP = "a kernel gives up, as its program declares"
"""Ends a run, and is no error."""


class Broken(NamedTuple):
    """The machine refuses what was tried, or the kernel fails; such a run ends here."""

    why: str


class Kernel(NamedTuple):
    """What a scalar unit remembers."""

    pc: int = 0
    last: int = 0
    seen: int = 0
    phase: int = 0
    arrived: int = 0
    fences: int = 0
    left: tuple[tuple[int, int], ...] = ()
    """Units of a line that are still to be read."""
    held: tuple[int, int] = (0, 0)
    """Bytes of the data buffer that were read tentatively and are not validated, as (first, behind)."""
    tries: tuple[int, ...] = ()
    """The instructions that read these."""
    met: bool = False
    """Has a write become visible while one of them could be made, or was?"""


Entry = tuple[int, tuple[tuple[int, int], ...]]
"""In a pipe: the instruction, and the pieces that are left."""


class State:
    """One state; a step changes a copy."""

    __slots__ = ("buffers", "caches", "descriptors", "events", "flight", "kernels", "memory", "queues", "told")

    def __init__(self, program: Program) -> None:
        """The state before anything has happened."""
        n = len(program.cores)
        self.memory = bytearray(program.dies * program.die_bytes)
        for addr, value in program.memory:
            self.memory[addr : addr + 8] = (value & BITS_64).to_bytes(8, "little")
        self.buffers = [bytes(program.ub_bytes)] * n
        self.caches: list[tuple[tuple[int, bytes, bool], ...]] = [()] * n
        self.kernels = [settled(program.cores[c].ops, Kernel()) for c in range(n)]
        self.queues: list[tuple[Entry, ...]] = [()] * 4 * n
        self.descriptors: list[tuple[Entry, ...]] = [()] * n
        self.events: frozenset[tuple[int, int, int, int]] = frozenset()
        self.flight: tuple[Write, ...] = ()
        self.told: list[Happening] = []

    def copy(self) -> "State":
        """Another one that is equal, to which nothing has happened yet."""
        other = State.__new__(State)
        other.memory, other.events, other.flight = bytearray(self.memory), self.events, self.flight
        other.buffers, other.kernels = list(self.buffers), list(self.kernels)
        other.queues, other.descriptors, other.told = list(self.queues), list(self.descriptors), []
        other.caches = list(self.caches)
        return other

    def key(self, order: str) -> tuple[object, ...]:
        """Equal for states with one future: writes in flight are compared by who may be ordered with whom."""
        if order == "fifo":
            flight = sorted(self.flight, key=lambda write: (write.die, write.home))
        else:
            flight = sorted(self.flight, key=lambda write: (write.core, write.engine if write.engine >= DMA else 0))
        return (
            bytes(self.memory), tuple(self.buffers), tuple(self.kernels), tuple(self.queues), tuple(self.descriptors),
            self.events, tuple(flight), tuple(self.caches),
        )  # fmt: skip


def settled(ops: tuple[Op, ...], kernel: Kernel) -> Kernel:
    """A kernel that has run to its next request: what it decides by itself is no step."""
    pc, last = kernel.pc, kernel.last
    while pc < len(ops):
        op = ops[pc]
        if op.kind == "skip":
            pc += 1 + (op.value if (last == op.other) == (op.test == "eq") else 0)
        elif op.kind == "fail" and last == op.other:
            pc += 1
        else:
            break
    return kernel._replace(pc=min(pc, len(ops)))


def is_idle(state: State, core: int) -> bool:
    """Return whether all that a core has issued is done, and visible."""
    queues = state.queues[4 * core : 4 * core + 4]
    return not any(queues) and not state.descriptors[core] and all(write.core != core for write in state.flight)


def returned(program: Program, state: State, core: int) -> bool:
    """Has a core come to its end?"""
    at_end = state.kernels[core].pc == len(program.cores[core].ops)
    return at_end and is_idle(state, core) and not state.caches[core]


def begun_again(program: Program, state: State, die: int) -> State:
    """The state in which all cores of a die have begun again: what they had queued and in flight is lost."""
    after = state.copy()
    cores = [core for core, placed in enumerate(program.cores) if placed.die == die]
    for core in cores:
        after.kernels[core] = settled(program.cores[core].ops, Kernel())
        after.buffers[core], after.caches[core], after.descriptors[core] = bytes(program.ub_bytes), (), ()
        after.queues[4 * core : 4 * core + 4] = [()] * 4
    after.events = frozenset(event for event in state.events if event[0] not in cores)
    after.flight = tuple(write for write in state.flight if write.core not in cores)
    after.told = [Told("again", core) for core in cores[:1]]
    return after


def look(state: State, core: int, addr: int, nbytes: int) -> bytes:
    """What a scalar load sees: memory, and over it the core's own scalar stores in flight, the youngest on top."""
    data = bytearray(state.memory[addr : addr + nbytes])
    for write in state.flight:
        if (write.core, write.engine, write.adds) == (core, SCALAR, False):
            for at in range(max(addr, write.addr), min(addr + nbytes, write.behind)):
                data[at - addr] = write.data[at - write.addr]
    return bytes(data)


def land(program: Program, state: State, write: Write) -> None:
    """A write becomes visible."""
    for core, placed in enumerate(program.cores):
        kernel = state.kernels[core]
        for number, _ in state.queues[4 * core + MTU_IN]:
            op = placed.ops[number]
            if op.kind != "in":
                break
            if number in kernel.tries and op.addr < write.behind and write.addr < op.addr + op.nbytes:
                state.kernels[core] = kernel._replace(met=True)
    there = slice(write.addr, write.behind)
    data = write.data
    if write.part == "row":
        old, ends = state.memory[there], range(0, len(data), 4)
        sums = [int.from_bytes(old[k : k + 4], "little") + int.from_bytes(data[k : k + 4], "little") for k in ends]
        data = b"".join((each % (1 << 32)).to_bytes(4, "little") for each in sums)
    elif write.adds:
        total = int.from_bytes(state.memory[there], "little") + int.from_bytes(data, "little")
        data = (total & BITS_64).to_bytes(8, "little")
    state.memory[there] = data
    state.told.append(Landed(write))


def take_off(program: Program, state: State, write: Write, once: bool = True) -> None:
    """A write takes off; under `sc` it is visible at once."""
    state.told.append(Wrote(write, once))
    if program.order == "sc":
        land(program, state, write)
    else:
        state.flight = (*state.flight, write)


def write_of(
    program: Program, state: State, core: int, engine: int, op: int, piece: int, addr: int, data: bytes, **more: object
) -> Write:
    asks = program.cores[core].ops[op].asks if engine < DMA and more.get("part") != "line" else ""
    die, fences = program.cores[core].die, state.kernels[core].fences
    fields = {"adds": False, "fences": fences, "asks": asks, **more}
    return Write(core, engine, op, piece, die, program.die_of(addr), addr, data, **fields)  # type: ignore[arg-type]


def fill(state: State, core: int, engine: int, number: int, piece: int, ub: int, data: bytes) -> None:
    buffer = state.buffers[core]
    state.buffers[core] = buffer[:ub] + data + buffer[ub + len(data) :]
    state.told.append(Filled(core, engine, number, piece, ub, ub + len(data)))


def set_event(state: State, core: int, event: tuple[int, int, int]) -> Broken | None:
    if (core, *event) in state.events:
        return Broken("an event is set while it is still set")
    state.events |= {(core, *event)}
    state.told.append(Told("set", core, event[0], event=event))
    return None


def consume(state: State, core: int, event: tuple[int, int, int]) -> int | None:
    if (core, *event) not in state.events:
        return None
    state.events -= {(core, *event)}
    state.told.append(Told("waited", core, event[1], event=event))
    return 0
