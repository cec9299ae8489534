"""What scalar units do: one request after the other, each when it can be granted."""

import itertools
from collections.abc import Iterator

from . import cache
from .pipes import parts_of
from .program import DMA, LINE, MTU_IN, MTU_OUT, SCALAR, VECTOR, Op, Program, lands_first
from .state import (
    BITS_64,
    GIVEN_UP,
    Broken,
    Read,
    State,
    Told,
    Wrote,
    consume,
    fill,
    is_idle,
    land,
    look,
    set_event,
    settled,
    take_off,
    write_of,
)


def requests(program: Program, state: State, core: int) -> Iterator[State | Broken]:
    """What the request that a kernel stands at leads to, if it is granted."""
    op, number = program.cores[core].ops[state.kernels[core].pc], state.kernels[core].pc
    after = state.copy()
    if op.kind in ("in", "out", "put", "add", "signal", "copy", "sum", "fence") or (
        op.kind in ("set", "wait") and (op.addr if op.kind == "set" else op.ub) != SCALAR
    ):
        pipe = {"in": MTU_IN, "copy": VECTOR, "sum": VECTOR}.get(op.kind, MTU_OUT)
        pipe = op.addr if op.kind == "set" else op.ub if op.kind == "wait" else pipe
        after.queues[4 * core + pipe] += ((number, parts_of(program, op)),)
        after.told.append(Told("issue", core, pipe, number))
        yield _hold(after, core, op, number) or _go_on(program, after, core, 0)
    elif op.kind == "fail":
        yield Broken(GIVEN_UP if op.test == "declared" else "fail")
    elif op.kind == "choose":
        yield from (_go_on(program, state.copy(), core, answer) for answer in range(op.value))
    elif op.kind == "any":
        yield from _any(program, state, core, op, number)
    elif op.kind == "line":
        yield from _line(program, state, core, op)
    elif op.kind == "validate":
        yield _validate(after, core, op, number) or _go_on(program, after, core, 0)
    elif op.kind == "set":
        yield set_event(after, core, (SCALAR, op.ub, op.value)) or _go_on(program, after, core, 0)
    elif op.kind == "ub_load" and (broken := _hold(after, core, op, number)):
        yield broken
    else:
        value = _GRANTED[op.kind](program, after, core, op, number)
        if value is not None:
            yield _go_on(program, after, core, value)


_USED = Broken("bytes that were read tentatively are used before they are validated")


def _hold(state: State, core: int, op: Op, number: int) -> Broken | None:
    """What an instruction makes of the bytes that were read tentatively, as it is issued."""
    kernel = state.kernels[core]
    first, behind = kernel.held
    reads = [op.ub] * (op.kind in ("out", "signal", "ub_load")) + [op.addr] * (op.kind in ("copy", "sum"))
    reads += [op.other] * (op.kind == "sum")
    if any(at < behind and first < at + op.nbytes for at in reads):
        return _USED
    if op.kind not in ("in", "copy", "sum") or not (op.tentative or behind):
        return None
    end = op.ub + op.nbytes
    if (op.ub <= first and behind <= end) or not behind:  # all anew
        held, tries, met = ((op.ub, end), (number,), False) if op.tentative else ((0, 0), (), False)
    elif not op.tentative:
        return None
    elif op.ub > behind or end < first:
        return Broken("a tentative read apart from what is held")
    else:
        held, tries, met = (min(op.ub, first), max(end, behind)), (*kernel.tries, number), kernel.met
    state.kernels[core] = kernel._replace(held=held, tries=tries, met=met)
    return None


def _validate(state: State, core: int, op: Op, number: int) -> Broken | None:
    """What was read tentatively is right; not if a write met it."""
    kernel = state.kernels[core]
    here = slice(op.ub, op.ub + op.nbytes)
    state.told.append(Read(core, SCALAR, number, 0, here.start, here.stop, False, buffer=core))
    fill(state, core, SCALAR, number, 1, op.ub, state.buffers[core][here])
    if kernel.held[1]:
        if not (op.ub <= kernel.held[0] and kernel.held[1] <= here.stop):
            return Broken("not all that was read tentatively is validated")
        if any(entry[0] in kernel.tries for entry in state.queues[4 * core + MTU_IN]):
            return Broken("validated before it is read")
        if kernel.met:
            return Broken(MET)
    state.told += [Told("validated", core, op=each) for each in kernel.tries]
    state.kernels[core] = kernel._replace(held=(0, 0), tries=(), met=False)
    return None


MET = "what a write met is validated"


def _go_on(program: Program, state: State, core: int, value: int) -> State:
    kernel, ops = state.kernels[core], program.cores[core].ops
    op = ops[kernel.pc]
    last = value if op.takes else kernel.last
    seen = _signed(kernel.seen * 8 + last, 8) if op.shows else kernel.seen
    state.kernels[core] = settled(ops, kernel._replace(pc=kernel.pc + 1, last=last, seen=seen))
    return state


def _signed(value: int, nbytes: int) -> int:
    return int.from_bytes((value & ((1 << 8 * nbytes) - 1)).to_bytes(nbytes, "little"), "little", signed=True)


def _load(program: Program, state: State, core: int, op: Op, number: int) -> int | None:
    addr = op.addr + (state.kernels[core].last & 3) * 8 if op.computed else op.addr
    state.told.append(Read(core, SCALAR, number, 0, addr, addr + op.nbytes, op.named, stores=True))
    seen = (cache.through if program.lines else _past)(program, state, core, addr, op.nbytes)
    return None if seen is None else int.from_bytes(seen[:8], "little", signed=True)


def _past(program: Program, state: State, core: int, addr: int, nbytes: int) -> bytes:
    return look(state, core, addr, nbytes)


def _poll(program: Program, state: State, core: int, op: Op, number: int) -> int | None:
    seen = (
        bytes(state.memory[op.addr : op.addr + op.nbytes]) if program.lines else look(state, core, op.addr, op.nbytes)
    )
    word = int.from_bytes(seen, "little", signed=True)
    bits, value = word & op.mask, op.value & op.mask
    wanted = _is_wanted(op.test, bits, value)
    state.told.append(Read(core, SCALAR, number, 0, op.addr, op.addr + op.nbytes, True, stores=True))
    return word if wanted else None


def _is_wanted(test: str, bits: int, value: int) -> bool:
    return {"eq": bits == value, "ne": bits != value, "ge": bits >= value}[test]


def _any(program: Program, state: State, core: int, op: Op, number: int) -> Iterator[State]:
    """Each word that is as its condition says may be the one that is seen."""
    for k, (addr, test, value) in enumerate(op.conditions):
        after = state.copy()
        seen = bytes(after.memory[addr : addr + 8]) if program.lines else look(after, core, addr, 8)
        after.told.append(Read(core, SCALAR, number, k, addr, addr + 8, True, stores=True))
        if _is_wanted(test, int.from_bytes(seen, "little", signed=True), value):
            yield _go_on(program, after, core, k)


def _behind_fence(state: State, core: int, ops: tuple[Op, ...]) -> bool:
    """Has mtu-out come to each fence that the core has issued?"""
    return all(ops[number].kind != "fence" for number, _ in state.queues[4 * core + MTU_OUT])


def _store(program: Program, state: State, core: int, op: Op, number: int) -> int | None:
    value = state.kernels[core].seen if op.computed else op.value
    data = (value & ((1 << 8 * op.nbytes) - 1)).to_bytes(op.nbytes, "little")
    if program.lines:
        return None if cache.through(program, state, core, op.addr, op.nbytes, data) is None else 0
    if not _behind_fence(state, core, program.cores[core].ops):
        return None
    state.told.append(Told("fenced", core))
    pieces = [(op.addr, op.addr + op.nbytes)] if program.order == "sc" else program.pieces(op.addr, op.nbytes)
    for k, (first, behind) in enumerate(pieces):
        part = data[first - op.addr : behind - op.addr]
        take_off(program, state, write_of(program, state, core, SCALAR, number, k, first, part))
    return 0


def _atomic(program: Program, state: State, core: int, op: Op, number: int) -> int | None:
    if not _behind_fence(state, core, program.cores[core].ops):
        return None
    write = write_of(program, state, core, SCALAR, number, 0, op.addr, bytes(8), adds=True)
    if any(lands_first(program, older, write) for older in state.flight):
        return None
    state.told.append(Told("fenced", core))
    old = _signed(int.from_bytes(state.memory[op.addr : op.addr + 8], "little"), 8)
    new = old + op.value if op.kind == "atomic" else op.value if old == op.other else old
    swapped = op.kind == "atomic" or old == op.other
    write = write._replace(data=(new - old & BITS_64).to_bytes(8, "little"))
    state.told.append(Read(core, SCALAR, number, 0, op.addr, op.addr + 8, True))
    state.told.append(Wrote(write, True, swapped))
    land(program, state, write)
    return old


def _dcci(program: Program, state: State, core: int, op: Op, number: int) -> int | None:
    first = op.addr // LINE * LINE
    if cache.is_changed(state, core, first) and not _behind_fence(state, core, program.cores[core].ops):
        return None
    cache.drop(program, state, core, first)
    return 0


def _quiet(program: Program, state: State, core: int, op: Op, number: int) -> int | None:
    state.told.append(Told("quiet", core, op=number))
    return 0 if is_idle(state, core) else None


def _wait(program: Program, state: State, core: int, op: Op, number: int) -> int | None:
    return consume(state, core, (op.addr, SCALAR, op.value))


def _ub_load(program: Program, state: State, core: int, op: Op, number: int) -> int:
    state.told.append(Read(core, SCALAR, number, 0, op.ub, op.ub + op.nbytes, False, buffer=core))
    return int.from_bytes(state.buffers[core][op.ub : op.ub + op.nbytes], "little", signed=True)


def _ub_store(program: Program, state: State, core: int, op: Op, number: int) -> int:
    fill(state, core, SCALAR, number, 0, op.ub, (op.value & BITS_64).to_bytes(8, "little")[: op.nbytes])
    return 0


def _dma(program: Program, state: State, core: int, op: Op, number: int) -> int:
    cuts = {first for first, _ in program.pieces(op.addr, op.nbytes)}
    cuts |= {first - op.other + op.addr for first, _ in program.pieces(op.other, op.nbytes)}
    edges = [*sorted(cuts), op.addr + op.nbytes]
    state.descriptors[core] += ((number, tuple(itertools.pairwise(edges))),)
    state.told.append(Told("issue", core, DMA + op.value, number))
    return 0


def _arrive(program: Program, state: State, core: int, op: Op, number: int) -> int:
    kernel = state.kernels[core]
    state.kernels[core] = kernel._replace(phase=kernel.arrived, arrived=kernel.arrived + 1)
    state.told.append(Told("arrive", core, op=kernel.arrived))
    return 0


def _await(program: Program, state: State, core: int, op: Op, number: int) -> int | None:
    phase, here = state.kernels[core].phase, program.cores[core].group
    state.told.append(Told("await", core, op=phase))
    group = [kernel for kernel, at in zip(state.kernels, program.cores, strict=True) if at.group == here]
    return 0 if all(kernel.arrived > phase for kernel in group) else None


_GRANTED = {
    "load": _load, "poll": _poll, "store": _store, "atomic": _atomic, "swap": _atomic, "quiet": _quiet, "wait": _wait,
    "ub_load": _ub_load, "ub_store": _ub_store, "dma": _dma, "dcci": _dcci, "arrive": _arrive, "await": _await,
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
            fill(after, core, SCALAR, number, at, op.ub + piece[0] - op.addr, bytes(state.memory[slice(*piece)]))
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
