"""What pipes and DMA descriptors do, one piece of an instruction at a time."""

from collections.abc import Iterator

from .program import DMA, MTU_IN, MTU_OUT, SCALAR, VECTOR, Op, Program
from .state import BITS_64, Broken, Read, State, Told, consume, fill, set_event, take_off, write_of


def parts_of(program: Program, op: Op) -> tuple[tuple[int, int], ...]:
    """The pieces of an instruction of a pipe, in memory."""
    if op.kind in ("in", "out", "signal", "put"):
        return tuple(program.pieces(op.addr, op.nbytes))
    return ((op.addr, op.addr + op.nbytes),)


def mtu_in(program: Program, state: State, core: int) -> Iterator[State | Broken]:
    """Transfers between two flags overtake each other, but for those that share a unit or bytes of the data buffer."""
    queue, ops = state.queues[4 * core + MTU_IN], program.cores[core].ops
    for k, (number, left) in enumerate(queue):
        if ops[number].kind != "in":
            if k == 0:
                yield from head(program, state, core, MTU_IN)
            return
        if any(_overlap(program, ops[earlier], ops[number]) for earlier, _ in queue[:k]):
            continue
        for first, behind in left:
            after, op = state.copy(), ops[number]
            at = list(program.pieces(op.addr, op.nbytes)).index((first, behind))
            after.told.append(
                Read(core, MTU_IN, number, at, first, behind, op.named, tentative=op.tentative, copies=True)
            )
            fill(after, core, MTU_IN, number, at, op.ub + first - op.addr, bytes(state.memory[first:behind]))
            rest = tuple(piece for piece in left if piece != (first, behind))
            after.queues[4 * core + MTU_IN] = queue[:k] + (((number, rest),) if rest else ()) + queue[k + 1 :]
            yield after


def _overlap(program: Program, one: Op, other: Op) -> bool:
    def meet(first: int, last: int, first_other: int, last_other: int) -> bool:
        return first <= last_other and first_other <= last

    ends = (one.addr + one.nbytes - 1, other.addr + other.nbytes - 1)
    units = (one.addr // program.unit, ends[0] // program.unit, other.addr // program.unit, ends[1] // program.unit)
    return meet(*units) or meet(one.ub, one.ub + one.nbytes - 1, other.ub, other.ub + other.nbytes - 1)


def head(program: Program, state: State, core: int, pipe: int) -> Iterator[State | Broken]:
    """The first instruction of a pipe, or its next piece."""
    queue = state.queues[4 * core + pipe]
    (number, left), after = queue[0], state.copy()
    op, (first, behind) = program.cores[core].ops[number], left[0]
    rest = left[1:]
    after.told.append(Told("begin", core, pipe, number))
    if op.kind == "set":
        broken = set_event(after, core, (op.addr, op.ub, op.value))
        if broken:
            yield broken
            return
    elif op.kind == "wait":
        if consume(after, core, (op.addr, op.ub, op.value)) is None:
            return
    elif op.kind == "fence":
        after.kernels[core] = after.kernels[core]._replace(fences=after.kernels[core].fences + 1)
        after.told.append(Told("fence", core))
    elif op.kind == "copy":
        fill(after, core, VECTOR, number, 1, op.ub, _row(after, core, number, 0, op))
    elif op.kind == "sum":
        rows = _row(after, core, number, 0, op), _row(after, core, number, 2, op._replace(addr=op.other))
        fill(after, core, VECTOR, number, 1, op.ub, _sums(*rows))
    elif op.kind == "signal" and first < 0:
        data = (op.told & BITS_64).to_bytes(8, "little")
        signal = {"adds": op.test == "add", "part": "signal"}
        take_off(program, after, write_of(program, after, core, MTU_OUT, number, 99, op.other, data, **signal))
    else:
        _out(program, after, core, op, number, (first, behind))
        if op.kind == "signal" and not rest:
            rest = ((-1, -1),)
    after.queues[4 * core + pipe] = (((number, rest),) if rest else ()) + queue[1:]
    yield after


def _row(state: State, core: int, number: int, at: int, op: Op) -> bytes:
    """Bytes of the data buffer that the vector pipe reads."""
    behind = op.addr + op.nbytes
    state.told.append(Read(core, VECTOR, number, at, op.addr, behind, False, buffer=core))
    return bytes(state.buffers[core][op.addr : behind])


def _sums(one: bytes, other: bytes) -> bytes:
    """Integers of 4 bytes added, without what does not fit."""
    ends = range(0, len(one), 4)
    sums = [int.from_bytes(one[k : k + 4], "little") + int.from_bytes(other[k : k + 4], "little") for k in ends]
    return b"".join((each % (1 << 32)).to_bytes(4, "little") for each in sums)


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
        where, copies = (op.ub + at, op.ub + at + behind - first), op.test != "add" or op.kind != "out"
        state.told.append(Read(core, MTU_OUT, number, at, *where, False, buffer=core, copies=copies))
    part = "payload" if op.kind == "signal" else ""
    row = op.kind == "out" and op.test == "add"
    more = {"adds": op.kind == "add" or row, "part": "row" if row else part}
    take_off(program, state, write_of(program, state, core, MTU_OUT, number, at, first, data, **more))


def descriptors(program: Program, state: State, core: int) -> Iterator[State | Broken]:
    """A DMA reads and writes its pieces in any order; its event is set when all of them are visible."""
    for k, (number, left) in enumerate(state.descriptors[core]):
        op = program.cores[core].ops[number]
        engine, others = DMA + op.value, state.descriptors[core][:k] + state.descriptors[core][k + 1 :]
        for first, behind in left:
            after = state.copy()
            at, data = first - op.addr, bytes(state.memory[first:behind])
            after.told.append(Read(core, engine, number, at, first, behind, False, copies=True))
            write = write_of(program, after, core, engine, number, at, op.other + at, data, fences=0)
            take_off(program, after, write, once=False)
            rest = tuple(piece for piece in left if piece != (first, behind))
            after.descriptors[core] = tuple(sorted((*others, (number, rest))))
            yield after
        if not left and all((write.core, write.engine) != (core, engine) for write in state.flight):
            after = state.copy()
            after.descriptors[core] = others
            after.told.append(Told("done", core, engine))
            yield set_event(after, core, (DMA, SCALAR, op.value)) or after
