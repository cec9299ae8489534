"""The machine as states and steps: what each core, pipe, descriptor and die may do next, one thing at a time.

A step tells what happened, in the words of docs/races.md, for whoever watches (`races`).
"""

from collections.abc import Iterator
from typing import NamedTuple

from .program import DMA, MTU_IN, MTU_OUT, SCALAR, VECTOR, Op, Program, Write, lands_first

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
    """What orders: ``issue``, ``begin`` (an instruction), ``quiet``, ``fence``, ``fenced`` (what is behind it), ``set``,
    ``waited``, ``done`` (a DMA), ``arrive``, ``await``.
    """

    what: str
    core: int
    engine: int = 0
    op: int = 0
    event: tuple[int, int, int] = (0, 0, 0)


Happening = Read | Wrote | Filled | Landed | Told


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


Entry = tuple[int, tuple[tuple[int, int], ...]]
"""In a pipe: the instruction, and the pieces that are left."""


class State:
    """One state; a step changes a copy."""

    __slots__ = ("buffers", "descriptors", "events", "flight", "kernels", "memory", "queues", "told")

    def __init__(self, program: Program) -> None:
        """The state before anything has happened."""
        n = len(program.cores)
        self.memory = bytearray(program.dies * program.die_bytes)
        for addr, value in program.memory:
            self.memory[addr : addr + 8] = (value & BITS_64).to_bytes(8, "little")
        self.buffers = [bytes(program.ub_bytes)] * n
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
        return other

    def key(self, order: str) -> tuple[object, ...]:
        """Equal for states with one future: writes in flight are compared by who may be ordered with whom."""
        if order == "fifo":
            flight = sorted(self.flight, key=lambda write: (write.die, write.home))
        else:
            flight = sorted(self.flight, key=lambda write: (write.core, write.engine if write.engine >= DMA else 0))
        return (
            bytes(self.memory), tuple(self.buffers), tuple(self.kernels), tuple(self.queues), tuple(self.descriptors),
            self.events, tuple(flight),
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
    """Is all done that a core has issued, and visible?"""
    queues = state.queues[4 * core : 4 * core + 4]
    return not any(queues) and not state.descriptors[core] and all(write.core != core for write in state.flight)


def returned(program: Program, state: State, core: int) -> bool:
    """Has a core come to its end?"""
    return state.kernels[core].pc == len(program.cores[core].ops) and is_idle(state, core)


def steps(program: Program, state: State) -> Iterator[State | Broken]:
    """Every state that one step leads to."""
    for core in range(len(program.cores)):
        if state.kernels[core].pc < len(program.cores[core].ops):
            yield from _scalar(program, state, core)
        yield from _mtu_in(program, state, core)
        for pipe in (VECTOR, MTU_OUT):
            if state.queues[4 * core + pipe]:
                yield from _head(program, state, core, pipe)
        yield from _descriptors(program, state, core)
    for i, write in enumerate(state.flight):
        if not any(lands_first(program, older, write) for older in state.flight[:i]):
            after = state.copy()
            after.flight = state.flight[:i] + state.flight[i + 1 :]
            _land(after, write)
            yield after


# ---- writes


def _land(state: State, write: Write) -> None:
    """A write becomes visible."""
    there = slice(write.addr, write.behind)
    data = write.data
    if write.adds:
        total = int.from_bytes(state.memory[there], "little") + int.from_bytes(data, "little")
        data = (total & BITS_64).to_bytes(8, "little")
    state.memory[there] = data
    state.told.append(Landed(write))


def _take_off(program: Program, state: State, write: Write, once: bool = True) -> None:
    """A write takes off; under `sc` it is visible at once."""
    state.told.append(Wrote(write, once))
    if program.order == "sc":
        _land(state, write)
    else:
        state.flight = (*state.flight, write)


def _write(
    program: Program, state: State, core: int, engine: int, op: int, piece: int, addr: int, data: bytes, **more: object
) -> Write:
    asks = program.cores[core].ops[op].asks if engine < DMA else ""
    die, fences = program.cores[core].die, state.kernels[core].fences
    fields = {"adds": False, "fences": fences, "asks": asks, **more}
    return Write(core, engine, op, piece, die, program.die_of(addr), addr, data, **fields)  # type: ignore[arg-type]


# ---- scalar units


def _scalar(program: Program, state: State, core: int) -> Iterator[State | Broken]:
    """What the request that a kernel stands at leads to, if it is granted."""
    op, number = program.cores[core].ops[state.kernels[core].pc], state.kernels[core].pc
    after = state.copy()
    if op.kind in ("in", "out", "put", "add", "signal", "copy", "fence") or (
        op.kind in ("set", "wait") and (op.addr if op.kind == "set" else op.ub) != SCALAR
    ):
        pipe = {"in": MTU_IN, "copy": VECTOR}.get(op.kind, MTU_OUT)
        pipe = op.addr if op.kind == "set" else op.ub if op.kind == "wait" else pipe
        after.queues[4 * core + pipe] += ((number, _parts(program, op)),)
        after.told.append(Told("issue", core, pipe, number))
        yield _go_on(program, after, core, 0)
    elif op.kind == "fail":
        yield Broken("fail")
    elif op.kind == "line":
        yield from _line(program, state, core, op)
    elif op.kind == "set":
        yield _set(after, core, (SCALAR, op.ub, op.value)) or _go_on(program, after, core, 0)
    else:
        value = _GRANTED[op.kind](program, after, core, op, number)
        if value is not None:
            yield _go_on(program, after, core, value)


def _go_on(program: Program, state: State, core: int, value: int) -> State:
    kernel, ops = state.kernels[core], program.cores[core].ops
    op = ops[kernel.pc]
    last = value if op.takes else kernel.last
    seen = _signed(kernel.seen * 8 + last, 8) if op.shows else kernel.seen
    state.kernels[core] = settled(ops, kernel._replace(pc=kernel.pc + 1, last=last, seen=seen))
    return state


def _signed(value: int, nbytes: int) -> int:
    return int.from_bytes((value & ((1 << 8 * nbytes) - 1)).to_bytes(nbytes, "little"), "little", signed=True)


def _look(state: State, core: int, addr: int, nbytes: int) -> int:
    """What a scalar load sees: memory, and over it the core's own scalar stores in flight, the youngest on top."""
    data = bytearray(state.memory[addr : addr + nbytes])
    for write in state.flight:
        if (write.core, write.engine, write.adds) == (core, SCALAR, False):
            for at in range(max(addr, write.addr), min(addr + nbytes, write.behind)):
                data[at - addr] = write.data[at - write.addr]
    return int.from_bytes(data, "little", signed=True)


def _load(program: Program, state: State, core: int, op: Op, number: int) -> int:
    addr = op.addr + (state.kernels[core].last & 3) * 8 if op.computed else op.addr
    state.told.append(Read(core, SCALAR, number, 0, addr, addr + op.nbytes, op.named, stores=True))
    return _look(state, core, addr, op.nbytes)


def _poll(program: Program, state: State, core: int, op: Op, number: int) -> int | None:
    word = _look(state, core, op.addr, op.nbytes)
    bits = word & op.mask
    wanted = {"eq": bits == op.value & op.mask, "ne": bits != op.value & op.mask, "ge": bits >= op.value}[op.test]
    state.told.append(Read(core, SCALAR, number, 0, op.addr, op.addr + op.nbytes, True, stores=True))
    return word if wanted else None


def _behind_fence(state: State, core: int, ops: tuple[Op, ...]) -> bool:
    """Has mtu-out come to each fence that the core has issued?"""
    return all(ops[number].kind != "fence" for number, _ in state.queues[4 * core + MTU_OUT])


def _store(program: Program, state: State, core: int, op: Op, number: int) -> int | None:
    if not _behind_fence(state, core, program.cores[core].ops):
        return None
    state.told.append(Told("fenced", core))
    value = state.kernels[core].seen if op.computed else op.value
    data = (value & ((1 << 8 * op.nbytes) - 1)).to_bytes(op.nbytes, "little")
    pieces = [(op.addr, op.addr + op.nbytes)] if program.order == "sc" else program.pieces(op.addr, op.nbytes)
    for k, (first, behind) in enumerate(pieces):
        part = data[first - op.addr : behind - op.addr]
        _take_off(program, state, _write(program, state, core, SCALAR, number, k, first, part))
    return 0


def _atomic(program: Program, state: State, core: int, op: Op, number: int) -> int | None:
    if not _behind_fence(state, core, program.cores[core].ops):
        return None
    write = _write(program, state, core, SCALAR, number, 0, op.addr, bytes(8), adds=True)
    if any(lands_first(program, older, write) for older in state.flight):
        return None
    state.told.append(Told("fenced", core))
    old = _signed(int.from_bytes(state.memory[op.addr : op.addr + 8], "little"), 8)
    new = old + op.value if op.kind == "atomic" else op.value if old == op.other else old
    swapped = op.kind == "atomic" or old == op.other
    write = write._replace(data=(new - old & BITS_64).to_bytes(8, "little"))
    state.told.append(Read(core, SCALAR, number, 0, op.addr, op.addr + 8, True))
    state.told.append(Wrote(write, True, swapped))
    _land(state, write)
    return old


def _quiet(program: Program, state: State, core: int, op: Op, number: int) -> int | None:
    state.told.append(Told("quiet", core))
    return 0 if is_idle(state, core) else None


def _wait(program: Program, state: State, core: int, op: Op, number: int) -> int | None:
    return _consume(state, core, (op.addr, SCALAR, op.value))


def _ub_load(program: Program, state: State, core: int, op: Op, number: int) -> int:
    state.told.append(Read(core, SCALAR, number, 0, op.ub, op.ub + op.nbytes, False, buffer=core))
    return int.from_bytes(state.buffers[core][op.ub : op.ub + op.nbytes], "little", signed=True)


def _ub_store(program: Program, state: State, core: int, op: Op, number: int) -> int:
    _fill(state, core, SCALAR, number, 0, op.ub, (op.value & BITS_64).to_bytes(8, "little")[: op.nbytes])
    return 0


def _dma(program: Program, state: State, core: int, op: Op, number: int) -> int:
    cuts = {first for first, _ in program.pieces(op.addr, op.nbytes)}
    cuts |= {first - op.other + op.addr for first, _ in program.pieces(op.other, op.nbytes)}
    edges = [*sorted(cuts), op.addr + op.nbytes]
    state.descriptors[core] += ((number, tuple(zip(edges, edges[1:], strict=False))),)
    state.told.append(Told("issue", core, DMA + op.value, number))
    return 0


def _arrive(program: Program, state: State, core: int, op: Op, number: int) -> int:
    kernel = state.kernels[core]
    state.kernels[core] = kernel._replace(phase=kernel.arrived, arrived=kernel.arrived + 1)
    state.told.append(Told("arrive", core, op=kernel.arrived))
    return 0


def _await(program: Program, state: State, core: int, op: Op, number: int) -> int | None:
    phase, die = state.kernels[core].phase, program.cores[core].die
    state.told.append(Told("await", core, op=phase))
    group = [kernel for kernel, at in zip(state.kernels, program.cores, strict=True) if at.die == die]
    return 0 if all(kernel.arrived > phase for kernel in group) else None


_GRANTED = {
    "load": _load, "poll": _poll, "store": _store, "atomic": _atomic, "swap": _atomic, "quiet": _quiet, "wait": _wait,
    "ub_load": _ub_load, "ub_store": _ub_store, "dma": _dma, "arrive": _arrive, "await": _await,
}  # fmt: skip
"""What a request does, and its value; None where it has to wait."""


def _line(program: Program, state: State, core: int, op: Op) -> Iterator[State]:
    """Each unit of a line is read when its own flags are in, in any order."""
    kernel = state.kernels[core]
    pieces = tuple(program.pieces(op.addr, op.nbytes))
    for piece in kernel.left or pieces:
        if _flags_are_in(state, op, piece):
            after = state.copy()
            number, at = kernel.pc, pieces.index(piece)
            after.told.append(Read(core, SCALAR, number, at, *piece, True))
            _fill(after, core, SCALAR, number, at, op.ub + piece[0] - op.addr, bytes(state.memory[slice(*piece)]))
            left = tuple(other for other in kernel.left or pieces if other != piece)
            after.kernels[core] = kernel._replace(left=left)
            yield after if left else _go_on(program, after, core, 0)


def _flags_are_in(state: State, op: Op, piece: tuple[int, int]) -> bool:
    for word in range((piece[0] - op.addr) // 4, (piece[1] - op.addr + 3) // 4):
        if op.mask >> word & 1:
            there = int.from_bytes(state.memory[op.addr + 4 * word : op.addr + 4 * word + 4], "little")
            if (there == op.value >> 32 * (word & 1) & 0xFFFFFFFF) != (op.test == "eq"):
                return False
    return True


# ---- pipes and descriptors


def _parts(program: Program, op: Op) -> tuple[tuple[int, int], ...]:
    """The pieces of an instruction of a pipe, in memory."""
    if op.kind in ("in", "out", "signal", "put"):
        return tuple(program.pieces(op.addr, op.nbytes))
    return ((op.addr, op.addr + op.nbytes),)


def _fill(state: State, core: int, engine: int, number: int, piece: int, ub: int, data: bytes) -> None:
    buffer = state.buffers[core]
    state.buffers[core] = buffer[:ub] + data + buffer[ub + len(data) :]
    state.told.append(Filled(core, engine, number, piece, ub, ub + len(data)))


def _set(state: State, core: int, event: tuple[int, int, int]) -> Broken | None:
    if (core, *event) in state.events:
        return Broken("an event is set while it is still set")
    state.events |= {(core, *event)}
    state.told.append(Told("set", core, event[0], event=event))
    return None


def _consume(state: State, core: int, event: tuple[int, int, int]) -> int | None:
    if (core, *event) not in state.events:
        return None
    state.events -= {(core, *event)}
    state.told.append(Told("waited", core, event[1], event=event))
    return 0


def _mtu_in(program: Program, state: State, core: int) -> Iterator[State | Broken]:
    """Transfers between two flags overtake each other, but for those that share a unit or bytes of the data buffer."""
    queue, ops = state.queues[4 * core + MTU_IN], program.cores[core].ops
    for k, (number, left) in enumerate(queue):
        if ops[number].kind != "in":
            if k == 0:
                yield from _head(program, state, core, MTU_IN)
            return
        if any(_overlap(program, ops[earlier], ops[number]) for earlier, _ in queue[:k]):
            continue
        for first, behind in left:
            after, op = state.copy(), ops[number]
            at = list(program.pieces(op.addr, op.nbytes)).index((first, behind))
            after.told.append(Read(core, MTU_IN, number, at, first, behind, False))
            _fill(after, core, MTU_IN, number, at, op.ub + first - op.addr, bytes(state.memory[first:behind]))
            rest = tuple(piece for piece in left if piece != (first, behind))
            after.queues[4 * core + MTU_IN] = queue[:k] + (((number, rest),) if rest else ()) + queue[k + 1 :]
            yield after


def _overlap(program: Program, one: Op, other: Op) -> bool:
    def meet(first: int, last: int, first_other: int, last_other: int) -> bool:
        return first <= last_other and first_other <= last

    ends = (one.addr + one.nbytes - 1, other.addr + other.nbytes - 1)
    units = (one.addr // program.unit, ends[0] // program.unit, other.addr // program.unit, ends[1] // program.unit)
    return meet(*units) or meet(one.ub, one.ub + one.nbytes - 1, other.ub, other.ub + other.nbytes - 1)


def _head(program: Program, state: State, core: int, pipe: int) -> Iterator[State | Broken]:
    """The first instruction of a pipe, or its next piece."""
    queue = state.queues[4 * core + pipe]
    (number, left), after = queue[0], state.copy()
    op, (first, behind) = program.cores[core].ops[number], left[0]
    rest = left[1:]
    after.told.append(Told("begin", core, pipe, number))
    if op.kind == "set":
        broken = _set(after, core, (op.addr, op.ub, op.value))
        if broken:
            yield broken
            return
    elif op.kind == "wait":
        if _consume(after, core, (op.addr, op.ub, op.value)) is None:
            return
    elif op.kind == "fence":
        after.kernels[core] = after.kernels[core]._replace(fences=after.kernels[core].fences + 1)
        after.told.append(Told("fence", core))
    elif op.kind == "copy":
        data = after.buffers[core][op.addr : op.addr + op.nbytes]
        after.told.append(Read(core, VECTOR, number, 0, op.addr, op.addr + op.nbytes, False, buffer=core))
        _fill(after, core, VECTOR, number, 1, op.ub, data)
    elif op.kind == "signal" and first < 0:
        data = (op.told & BITS_64).to_bytes(8, "little")
        signal = {"adds": op.test == "add", "part": "signal"}
        _take_off(program, after, _write(program, after, core, MTU_OUT, number, 99, op.other, data, **signal))
    else:
        _out(program, after, core, op, number, (first, behind))
        if op.kind == "signal" and not rest:
            rest = ((-1, -1),)
    after.queues[4 * core + pipe] = (((number, rest),) if rest else ()) + queue[1:]
    yield after


def _out(program: Program, state: State, core: int, op: Op, number: int, piece: tuple[int, int]) -> None:
    """A piece of what mtu-out writes takes off."""
    first, behind = piece
    at = first - op.addr
    if op.kind == "add":
        data = (op.value & BITS_64).to_bytes(8, "little")
    elif op.kind == "put":
        data = b"".join((word & BITS_64).to_bytes(8, "little") for word in op.words)[at : at + behind - first]
    else:
        data = state.buffers[core][op.ub + at : op.ub + at + behind - first]
        state.told.append(Read(core, MTU_OUT, number, at, op.ub + at, op.ub + at + behind - first, False, buffer=core))
    part = "payload" if op.kind == "signal" else ""
    more = {"adds": op.kind == "add", "part": part}
    _take_off(program, state, _write(program, state, core, MTU_OUT, number, at, first, data, **more))


def _descriptors(program: Program, state: State, core: int) -> Iterator[State | Broken]:
    """A DMA reads and writes its pieces in any order; its event is set when all of them are visible."""
    for k, (number, left) in enumerate(state.descriptors[core]):
        op = program.cores[core].ops[number]
        engine, others = DMA + op.value, state.descriptors[core][:k] + state.descriptors[core][k + 1 :]
        for first, behind in left:
            after = state.copy()
            at, data = first - op.addr, bytes(state.memory[first:behind])
            after.told.append(Read(core, engine, number, at, first, behind, False))
            write = _write(program, after, core, engine, number, at, op.other + at, data, fences=0)
            _take_off(program, after, write, once=False)
            rest = tuple(piece for piece in left if piece != (first, behind))
            after.descriptors[core] = tuple(sorted((*others, (number, rest))))
            yield after
        if not left and all((write.core, write.engine) != (core, engine) for write in state.flight):
            after = state.copy()
            after.descriptors[core] = others
            after.told.append(Told("done", core, engine))
            yield _set(after, core, (DMA, SCALAR, op.value)) or after
