"""Litmus programs on the machine: one small interpreting kernel for each thread, explored, and the outcomes by name.

Each thread runs on a core of its own die and gets its program as two integers, so that nothing but the program itself
touches memory. What it read it keeps in a register and returns when all its operations are issued; a return waits
until everything is visible, so it hides no outcome. Each address has a 32-byte granule of its own.
"""

import itertools
from collections.abc import Mapping, Sequence

from xccl_emu.lang import (
    atomic_add,
    compare_swap,
    fence,
    kernel,
    load,
    mtu_in,
    put,
    put_signal,
    quiet,
    store,
    ub_load,
    ub_store,
)
from xccl_emu.machine.explore import Explored, explore
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod

from .model import Outcome, Program
from .suite import Litmus, Op

READ, QUIET, FENCE, STORE, PUT, ADD, SWAP, SIGNAL, PULL, AWAIT_PULL = 1, 2, 3, 4, 8, 12, 16, 20, 24, 25
KINDS = {"r": READ, "f": QUIET, "s": FENCE, "w": STORE, "u": ADD, "c": SWAP}
ASKED = ("", "no-order", "relaxed", "strong")
"""What a write or atomic may ask for: the kinds behind its own, in this order."""
OP_BITS, OPS_A_WORD = 19, 3
PENDING = 255  # no value of a program; stands in the data buffer until a read has completed


@kernel
def interpret(program, rest, pulled, home, dies, stride):
    """Run operations of 19 bits: kind (5), address (2), value (4), slot (3); a signal's address (2), value (2) and
    whether it adds (1). Returns slots of 8 bits."""
    seen, copies = 0, 0
    while program > 0:
        kind, value, slot = program & 31, program >> 7 & 15, program >> 11 & 7
        where, other = program >> 5 & 3, program >> 14 & 3
        address = home + (dies >> 2 * where & 3) * stride + where * 32
        signal = home + (dies >> 2 * other & 3) * stride + other * 32
        told, how = program >> 16 & 3, 1 + (program >> 18 & 1)
        program = program >> 19
        if program == 0:
            program, rest = rest, 0
        word = 0
        if kind == READ:
            word = yield load(address)
        elif kind == QUIET:
            yield quiet()
        elif kind == FENCE:
            yield fence()
        elif kind == STORE:
            yield store(address, value)
        elif kind == STORE + 1:
            yield store(address, value, order="no-order")
        elif kind == STORE + 2:
            yield store(address, value, order="relaxed")
        elif kind == STORE + 3:
            yield store(address, value, order="strong")
        elif kind == PUT:
            yield put(address, value)
        elif kind == PUT + 1:
            yield put(address, value, order="no-order")
        elif kind == PUT + 2:
            yield put(address, value, order="relaxed")
        elif kind == PUT + 3:
            yield put(address, value, order="strong")
        elif kind == ADD:
            word = yield atomic_add(address, value)
        elif kind == ADD + 1:
            word = yield atomic_add(address, value, order="no-order")
        elif kind == ADD + 2:
            word = yield atomic_add(address, value, order="relaxed")
        elif kind == ADD + 3:
            word = yield atomic_add(address, value, order="strong")
        elif kind == SWAP:
            word = yield compare_swap(address, value & 3, value >> 2)
        elif kind == SWAP + 1:
            word = yield compare_swap(address, value & 3, value >> 2, order="no-order")
        elif kind == SWAP + 2:
            word = yield compare_swap(address, value & 3, value >> 2, order="relaxed")
        elif kind == SWAP + 3:
            word = yield compare_swap(address, value & 3, value >> 2, order="strong")
        elif kind == PULL:
            yield ub_store(8 * slot, PENDING, 8)
            yield mtu_in(address, 8 * slot, 8)
        elif kind == AWAIT_PULL:  # not by an event: a flag would keep the reads behind it from overtaking
            there = PENDING
            while there == PENDING:
                there = yield ub_load(8 * slot, 8)
        else:
            yield ub_store(8 * copies, value, 8)
            if kind == SIGNAL:
                yield put_signal(8 * copies, address, 8, signal, told, how)
            elif kind == SIGNAL + 1:
                yield put_signal(8 * copies, address, 8, signal, told, how, order="no-order")
            elif kind == SIGNAL + 2:
                yield put_signal(8 * copies, address, 8, signal, told, how, order="relaxed")
            else:
                yield put_signal(8 * copies, address, 8, signal, told, how, order="strong")
            copies += 1
        seen |= word << 8 * slot
    if pulled > 0:
        yield quiet()
        for i in range(5):
            if pulled >> i & 1:
                word = yield ub_load(8 * i, 8)
                seen |= word << 8 * i
    return seen


def encode(
    ops: Sequence[Op], asks: Sequence[str], signals: Sequence[bool], addresses: Sequence[str], puts: str, pulls: bool
) -> tuple[dict[str, int], list[str]]:
    """A thread as arguments of `interpret`, and the register of each slot.

    As in the model: an address that the thread has written is read by a scalar load, and a write waits for the
    thread's reads of its address.  ``puts`` says of each write in turn whether mtu-out makes it (y) or a store.
    """
    words, registers, written = list[int](), list[str](), list[str]()
    pending, pulled, how = dict[str, int](), 0, itertools.cycle(puts)
    for k, (op, order) in enumerate(zip(ops, asks, strict=True)):
        if any(signals[k : k + 1]):  # is encoded with what it is the signal of
            continue
        kind, slot = KINDS[op[0]] + ASKED.index(order), len(registers)
        if op[0] == "w" and next(how) == "y":
            kind += PUT - STORE
        if op[0] == "r" and pulls and op[1] not in written:
            kind, pending[op[1]], pulled = PULL, slot, pulled | 1 << slot
        elif op[0] == "f":
            pending.clear()
        elif op[0] in "wuc":
            written.append(op[1])
            if op[1] in pending:
                words.append(AWAIT_PULL | pending.pop(op[1]) << 11)
        if any(signals[k + 1 : k + 2]):
            adds, there, value = ops[k + 1]
            kind = SIGNAL + ASKED.index(order) | addresses.index(there) << 14 | value << 16 | (adds == "a") << 18
        words.append(kind | (addresses.index(op[1]) if len(op) > 1 else 0) << 5 | _value(op) << 7 | slot << 11)
        registers += [op[2]] if op[0] in "ruc" else []
    assert len(words) <= 2 * OPS_A_WORD
    assert len(registers) <= 5
    halves = words[:OPS_A_WORD], words[OPS_A_WORD:]
    program, rest = (sum(word << OP_BITS * i for i, word in enumerate(half)) for half in halves)
    return {"program": program, "rest": rest, "pulled": pulled}, registers


def _value(op: Op) -> int:
    """What an operation writes or adds; of a swap what it expects too."""
    if op[0] == "c":
        return op[3] | op[4] << 2
    return op[-1] if op[0] in "wu" else 0


def run(
    program: Program, order: str, home: Mapping[str, int], asks: Sequence[Sequence[str]] = (),
    signals: Sequence[Sequence[bool]] = (), puts: str = "n", pulls: bool = False,
) -> tuple[set[Outcome], Explored]:  # fmt: skip
    """All outcomes on the machine, named as the models name them, with each address on the die that ``home`` says.

    ``asks`` and ``signals`` as in `axioms.allowed`; with ``pulls`` reads are asynchronous.
    """
    addresses = sorted({op[1] for ops in program for op in ops if op[0] not in ("f", "s")})
    dies = max(len(program), 1 + max(home.values()))
    spec = small_pod(dies, app_bytes=0, meta_bytes=128, managed_bytes=0, ub_bytes=64, flight_granules=8)
    pod = Pod(spec, order=order)
    homes, names, slots = [home[address] for address in addresses], list[str](), list[int]()
    where = {"home": pod.meta(0), "stride": spec.die_bytes, "dies": sum(die << 2 * i for i, die in enumerate(homes))}
    for thread, ops in enumerate(program):
        asked = asks[thread] if asks else [""] * len(ops)
        args, registers = encode(ops, asked, signals[thread] if signals else [], addresses, puts, pulls)
        names += [f"{thread}:{register}" for register in registers]
        slots.append(len(registers))
        pod.launch(interpret, thread, [0], args | where, [pod.grant_meta("rw")])
    found = explore(pod, [(pod.meta(die) + 32 * i, 8) for i, die in enumerate(homes)])
    outcomes = set[Outcome]()
    for words in found.outcomes:
        results = words[len(addresses) :]
        read = [seen >> 8 * i & 255 for seen, n in zip(results, slots, strict=True) for i in range(n)]
        outcomes.add(frozenset(zip([*addresses, *names], [*words[: len(addresses)], *read], strict=True)))
    return outcomes, found


def run_test(test: Litmus, order: str, puts: str = "n") -> tuple[set[Outcome], Explored]:
    """All outcomes of a row of a table."""
    return run(test.program, order, test.home, test.asks, test.signals, puts)


def whole(found: Explored) -> bool:
    """Return whether everything is explored, and ends well."""
    return found.complete and not found.errors and not found.deadlocks


def reached(asked: Mapping[str, int], outcomes: set[Outcome]) -> bool:
    """Has an outcome all that is asked for?"""
    return any(asked.items() <= outcome for outcome in outcomes)
