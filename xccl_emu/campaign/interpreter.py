"""The one kernel that interprets small programs, so that nothing has to be compiled for a new one.

Each kind of instruction has a site of its own, so a load with a name and one without are distinct.
"""

from typing import NamedTuple

from xccl_emu.lang import (
    CMP_GE,
    DMA,
    MTU_IN,
    SCALAR,
    add,
    arrive,
    atomic_add,
    await_group,
    choose,
    compare_swap,
    dcci,
    dma,
    fail,
    fence,
    kernel,
    load,
    maps,
    mtu_add,
    mtu_in,
    mtu_out,
    poll_any,
    poll_eq,
    poll_ge,
    poll_line_eq,
    poll_line_ne,
    poll_ne,
    put,
    put_signal,
    quiet,
    set_flag,
    store,
    ub_load,
    ub_store,
    v_copy,
    v_map,
    validate,
    wait_flag,
)

OPERATIONS = (
    "end", "load", "load_named", "store", "store_seen", "atomic", "atomic_taken", "ge", "eq", "ne", "ge_taken",
    "ne_taken", "quiet", "put", "add", "in", "out", "set", "wait", "ub_load", "ub_store", "dma", "arrive", "await",
    "skip_unless", "spin", "spin_plain", "fail_unless", "v_copy", "store4", "load4", "load_at", "skip_if",
    "dma_data", "put_one", "eq_taken", "store_named", "put_named", "fence", "swap", "line", "line_ne",
    "signal", "dcci", "part_ge", "part_eq", "part_ne", "outs", "puts", "stores", "signals", "dmas", "choose",
    "any", "v_add", "tentative", "validate", "spin_in",
    "add_out",
)  # fmt: skip
"""The instructions of a program, by their code."""
_SUM = maps.function("add", maps.INT32)
_NBYTES = int.from_bytes((8, 16, 32, 40, 64, 4, 20, 28), "little")
"""Sizes of transfers, by the last operand; plus 8 in that operand they begin 4 bytes later in memory."""
_MASKS = int.from_bytes((255, 1, 2, 3), "little")
"""Bits of a word that is polled in part, by what is above the lowest two bits of the last operand."""
REGISTERS = 6
IN_REGISTER = 3
SIZE_MAX = REGISTERS * IN_REGISTER
OPERATION_BITS, A_BITS, B_BITS, C_BITS = 6, 6, 5, 4
BITS = 21
"""Widths of an instruction: its operation and three operands."""
_SEEN = sum(
    1 << OPERATIONS.index(name)
    for name in (
        "load", "load_named", "atomic_taken", "ge_taken", "ne_taken", "eq_taken", "ub_load", "load4", "load_at", "swap",
        "part_ge", "part_eq", "part_ne", "choose", "any",
    )
)  # fmt: skip
"""Instructions that read what the program stores at its end, a bit for each."""


class WordAreas(NamedTuple):
    """Where words lie."""

    home: int
    """Address of die 0's metadata area."""
    stride: int
    """Bytes from a die to the next."""
    data: int
    """Bytes from metadata to managed data."""
    edge: int
    """Address used in place of a fourth die: the first words of die 1, after die 0's managed data."""
    cpu: int
    """Bytes from these words to a CPU's memory."""


@kernel
def interpret(p0, p1, p2, p3, p4, p5, areas: WordAreas, result):
    """Instructions of 21 bits, operation (6), a (6), b (5), c (4), three in a register; then store what was read."""
    seen, last, phase, skipped = 0, 0, 0, 0
    program = p0
    while program > 0:
        op = program & 63
        a = program >> 6 & 63
        b = program >> 12 & 31
        c = program >> 17 & 15
        program = program >> 21
        if program == 0:
            program = p1
            p1 = p2
            p2 = p3
            p3 = p4
            p4 = p5
            p5 = 0
        if skipped > 0:
            skipped -= 1
            continue
        word = areas.home + (a >> 5) * areas.data + (a >> 3 & 3) * areas.stride + (a & 7) * 8
        if a >> 3 & 3 == 3:
            word = areas.edge + (a >> 5) * areas.cpu + (a & 7) * 8
        target = areas.home + (op == 33) * areas.data + (b >> 3) * areas.stride + (b & 7) * 8
        if b >> 3 == 3:
            target = areas.edge + (op == 33) * areas.cpu + (b & 7) * 8
        nbytes = _NBYTES >> (c & 7) * 8 & 255
        if op == 1:
            last = yield load(word)
        elif op == 2:
            last = yield load(word, sync="load")
        elif op == 3:
            yield store(word, b)
        elif op == 4:
            yield store(word, seen)
        elif op == 5:
            yield atomic_add(word, b)
        elif op == 6:
            last = yield atomic_add(word, b, sync="atomic")
        elif op == 7:
            yield poll_ge(word, b, sync="ge")
        elif op == 8:
            yield poll_eq(word, b, sync="eq")
        elif op == 9:
            yield poll_ne(word, b, sync="ne")
        elif op == 10:
            last = yield poll_ge(word, b)
        elif op == 11:
            last = yield poll_ne(word, b)
        elif op == 12:
            yield quiet(sync="quiet")
        elif op == 13:
            yield put(word & ~31, b, c, b + 1, c + 1)
        elif op == 14:
            yield add(word, b, sync="add")
        elif op == 15:
            yield mtu_in(word + (c >> 3) * 4, b * 8, nbytes)
        elif op == 16:
            yield mtu_out(b * 8, word + (c >> 3) * 4, nbytes)
        elif op == 17:
            yield set_flag(a & 3, b & 3, c)
        elif op == 18:
            yield wait_flag(a & 7, b & 3, c)
        elif op == 19:
            last = yield ub_load(b * 8, 8)
        elif op == 20:
            yield ub_store(b * 8, a, 8)
        elif op == 21 or op == 33:
            yield dma(word + (c >> 3) * 4, target, nbytes, c & 7)
        elif op == 22:
            phase = yield arrive()
        elif op == 23:
            yield await_group(phase, sync="await")
        elif op == 24 or op == 32:
            if (last == b) == (op == 32):
                skipped = c
        elif op == 25:
            last = yield load(word, sync="spin")
            while last != b:
                last = yield load(word, sync="spin again")
        elif op == 26:
            last = yield load(word)
            while last != b:
                last = yield load(word)
        elif op == 27:
            if last != b:
                yield fail(a, last)
        elif op == 28:
            yield v_copy(a * 8, b * 8, nbytes)
        elif op == 57:
            last = b + 1
            while last != b:
                yield mtu_in(word, 312, 8)
                yield set_flag(MTU_IN, SCALAR, 15)
                yield wait_flag(MTU_IN, SCALAR, 15)
                last = yield ub_load(312, 8)
        elif op == 54:
            yield v_map((a & 7) * 8, b * 8, nbytes >> 2, _SUM, (a >> 3) * 8)
        elif op == 29:
            yield store(word + (c >> 3) * 4, b, 4)
        elif op == 30:
            last = yield load(word + (c >> 3) * 4, 4)
        elif op == 31:
            last = yield load(word + (last & 3) * 8)
        elif op == 34:
            yield put(
                word & ~31,
                b * ((a & 3) == 0) + c * ((a & 3) == 3),
                b * ((a & 3) == 1) + c * ((a & 3) == 0),
                b * ((a & 3) == 2) + c * ((a & 3) == 1),
                b * ((a & 3) == 3) + c * ((a & 3) == 2),
            )
        elif op == 35:
            last = yield poll_eq(word, b)
        elif op == 36:
            yield store(word, b, sync="store")
        elif op == 37:
            yield put(word & ~31, b, c, b + 1, c + 1, sync="put")
        elif op == 38:
            yield fence(sync="fence")
        elif op == 39:
            last = yield compare_swap(word, b, c, sync="swap")
        elif op == 40 or op == 41:
            flags = 1
            if c >> 2 == 1:
                flags = 1 << (4 << (c & 3)) - 4
            elif c >> 2 == 2:
                flags = 0x11111111
            elif c >> 2 == 3:
                flags = 0x01010101
            flags = flags & (1 << (4 << (c & 3))) - 1
            if op == 40:
                yield poll_line_eq(word, 192, 16 << (c & 3), flags, b, sync="line")
            else:
                yield poll_line_ne(word, 192, 16 << (c & 3), flags, b, sync="line")
        elif op == 42:
            word = areas.home + (a >> 3 & 3) * areas.stride + (a & 7) * 8
            there = word + areas.data + ((b & 7) - (a & 7)) * 8
            yield put_signal((b & 7) * 8, there, nbytes, word, (b >> 3) + 1, 1 + (c >> 3), sync="signal")
        elif op == 43:
            yield dcci(word, sync="dcci")
        elif op == 44:
            last = yield poll_ge(word, b, 1 << (c & 3), _MASKS >> (c >> 2) * 8 & 255, sync="part")
        elif op == 45:
            last = yield poll_eq(word, b, 1 << (c & 3), _MASKS >> (c >> 2) * 8 & 255, sync="part")
        elif op == 46:
            last = yield poll_ne(word, b, 1 << (c & 3), _MASKS >> (c >> 2) * 8 & 255, sync="part")
        elif op == 47:
            for k in range((c & 3) + 1):
                yield mtu_out((b & 7) * 8 + 32 * k, (word & ~31) + 32 * k, 32)
        elif op == 48:
            for k in range((c & 1) + 1):
                yield put((word & ~31) + 32 * k, b, b + k, b, b)
        elif op == 49:
            for k in range((c & 3) + 1):
                yield store(word + 8 * k, b)
        elif op == 50:
            word = areas.home + (a & 7) * 8
            for k in range(2):
                flag = word + k * areas.stride
                yield put_signal(32 * k, areas.edge + 32 * k - 32, 32, flag, b, 1 + (c >> 3), sync="signal")
        elif op == 51:
            n = (2 << (c & 3)) - 7 * (c & 3 == 3)
            for k in range(n):
                if k > 7 and c < 8:
                    yield wait_flag(DMA, SCALAR, k & 7)
                yield dma(word, target + ((b + k & 7) - (b & 7)) * 8, 8, k - 8 * (k > 7 and c < 8))
            if c & 4:
                for k in range(n - (n > 8 and c < 8)):
                    yield wait_flag(DMA, SCALAR, k)
        elif op == 52:
            last = yield choose(2 + (c & 1), sync="choose")
        elif op == 53:
            last = yield poll_any(
                (word, (c & 1) * CMP_GE, 1 + (c >> 1 & 1)), (target, (c >> 2 & 1) * CMP_GE, 1 + (c >> 3)), sync="any"
            )
        elif op == 55:
            yield mtu_in(word + (c >> 3) * 4, b * 8, nbytes, tentative=1)
        elif op == 56:
            yield validate(b * 8, nbytes)
        elif op == 58:
            yield mtu_add(b * 8, word + (c >> 3) * 4, nbytes)
        if _SEEN >> op & 1:
            seen = seen * 8 + last
    yield store(result, seen)
