"""The one kernel that interprets small programs, so that nothing has to be compiled for a new one.

Each kind of instruction has a site of its own, so a load with a name and one without are distinct.
"""

from typing import NamedTuple

from xccl_emu import lang
from xccl_emu.lang import kernel, maps

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
ALPHABET = (
    "put 0.0 1",
    "put 0.1 1",
    "put_one 0.0 2",
    "put 1.0 1",
    "store 0.0 1",
    "store4 0.0 3 8",
    "store m0.0 5",
    "out 0.0 3",
    "out m0.0 1",
    "add 0.0 1",
    "add_out 0.0 0",
    "add_out 0.0 3 5",
    "atomic_taken 0.0 1",
    "swap 0.0 0 2",
    "signal 0.0",
    "signal 0.0 0 8",
    "dma 1.4 0.0; wait 4",
    "dma 0.0 1.4; wait 4",
    "load_named 0.0",
    "load 0.0",
    "load m0.0",
    "in 0.0 8; set 1; wait 1; ub_load 0 8",
    "in m0.0 8; set 1; wait 1; ub_load 0 8",
    "tentative 0.0 8; set 1; wait 1; validate 0 8; ub_load 0 8",
    "eq 0.0 0",
    "eq 0.0 1",
    "ne 0.0 0",
    "ge 0.0 1",
    "any 0.0 0.1 5",
    "part_ge 0.0 1 2",
    "fence",
    "quiet",
)
"""Requests of the smallest programs, with what it takes to see what they read.  Most are about word 0.0, others about
one next to it, data, or another die."""
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
            last = yield lang.load(word)
        elif op == 2:
            last = yield lang.load(word, sync="load")
        elif op == 3:
            yield lang.store(word, b)
        elif op == 4:
            yield lang.store(word, seen)
        elif op == 5:
            yield lang.atomic_add(word, b)
        elif op == 6:
            last = yield lang.atomic_add(word, b, sync="atomic")
        elif op == 7:
            yield lang.poll_ge(word, b, sync="ge")
        elif op == 8:
            yield lang.poll_eq(word, b, sync="eq")
        elif op == 9:
            yield lang.poll_ne(word, b, sync="ne")
        elif op == 10:
            last = yield lang.poll_ge(word, b)
        elif op == 11:
            last = yield lang.poll_ne(word, b)
        elif op == 12:
            yield lang.quiet(sync="quiet")
        elif op == 13:
            yield lang.put(word & ~31, b, c, b + 1, c + 1)
        elif op == 14:
            yield lang.add(word, b, sync="add")
        elif op == 15:
            yield lang.mtu_in(word + (c >> 3) * 4, b * 8, nbytes)
        elif op == 16:
            yield lang.mtu_out(b * 8, word + (c >> 3) * 4, nbytes)
        elif op == 17:
            yield lang.set_flag(a & 3, b & 3, c)
        elif op == 18:
            yield lang.wait_flag(a & 7, b & 3, c)
        elif op == 19:
            last = yield lang.ub_load(b * 8, 8)
        elif op == 20:
            yield lang.ub_store(b * 8, a, 8)
        elif op == 21 or op == 33:
            yield lang.dma(word + (c >> 3) * 4, target, nbytes, c & 7)
        elif op == 22:
            phase = yield lang.arrive()
        elif op == 23:
            yield lang.await_group(phase, sync="await")
        elif op == 24 or op == 32:
            if (last == b) == (op == 32):
                skipped = c
        elif op == 25:
            last = yield lang.load(word, sync="spin")
            while last != b:
                last = yield lang.load(word, sync="spin again")
        elif op == 26:
            last = yield lang.load(word)
            while last != b:
                last = yield lang.load(word)
        elif op == 27:
            if last != b:
                yield lang.fail(a, last)
        elif op == 28:
            yield lang.v_copy(a * 8, b * 8, nbytes)
        elif op == 57:
            last = b + 1
            while last != b:
                yield lang.mtu_in(word, 312, 8)
                yield lang.set_flag(lang.MTU_IN, lang.SCALAR, 15)
                yield lang.wait_flag(lang.MTU_IN, lang.SCALAR, 15)
                last = yield lang.ub_load(312, 8)
        elif op == 54:
            yield lang.v_map((a & 7) * 8, b * 8, nbytes >> 2, _SUM, (a >> 3) * 8)
        elif op == 29:
            yield lang.store(word + (c >> 3) * 4, b, 4)
        elif op == 30:
            last = yield lang.load(word + (c >> 3) * 4, 4)
        elif op == 31:
            last = yield lang.load(word + (last & 3) * 8)
        elif op == 34:
            yield lang.put(
                word & ~31,
                b * ((a & 3) == 0) + c * ((a & 3) == 3),
                b * ((a & 3) == 1) + c * ((a & 3) == 0),
                b * ((a & 3) == 2) + c * ((a & 3) == 1),
                b * ((a & 3) == 3) + c * ((a & 3) == 2),
            )
        elif op == 35:
            last = yield lang.poll_eq(word, b)
        elif op == 36:
            yield lang.store(word, b, sync="store")
        elif op == 37:
            yield lang.put(word & ~31, b, c, b + 1, c + 1, sync="put")
        elif op == 38:
            yield lang.fence(sync="fence")
        elif op == 39:
            last = yield lang.compare_swap(word, b, c, sync="swap")
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
                yield lang.poll_line_eq(word, 192, 16 << (c & 3), flags, b, sync="line")
            else:
                yield lang.poll_line_ne(word, 192, 16 << (c & 3), flags, b, sync="line")
        elif op == 42:
            word = areas.home + (a >> 3 & 3) * areas.stride + (a & 7) * 8
            there = word + areas.data + ((b & 7) - (a & 7)) * 8
            yield lang.put_signal((b & 7) * 8, there, nbytes, word, (b >> 3) + 1, 1 + (c >> 3), sync="signal")
        elif op == 44:
            last = yield lang.poll_ge(word, b, 1 << (c & 3), _MASKS >> (c >> 2) * 8 & 255, sync="part")
        elif op == 45:
            last = yield lang.poll_eq(word, b, 1 << (c & 3), _MASKS >> (c >> 2) * 8 & 255, sync="part")
        elif op == 46:
            last = yield lang.poll_ne(word, b, 1 << (c & 3), _MASKS >> (c >> 2) * 8 & 255, sync="part")
        elif op == 43:
            yield lang.dcci(word, sync="dcci")
        elif op == 47:
            for k in range((c & 3) + 1):
                yield lang.mtu_out((b & 7) * 8 + 32 * k, (word & ~31) + 32 * k, 32)
        elif op == 48:
            for k in range((c & 1) + 1):
                yield lang.put((word & ~31) + 32 * k, b, b + k, b, b)
        elif op == 49:
            for k in range((c & 3) + 1):
                yield lang.store(word + 8 * k, b)
        elif op == 50:
            word = areas.home + (a & 7) * 8
            for k in range(2):
                flag = word + k * areas.stride
                yield lang.put_signal(32 * k, areas.edge + 32 * k - 32, 32, flag, b, 1 + (c >> 3), sync="signal")
        elif op == 51:
            n = (2 << (c & 3)) - 7 * (c & 3 == 3)
            for k in range(n):
                if k > 7 and c < 8:
                    yield lang.wait_flag(lang.DMA, lang.SCALAR, k & 7)
                yield lang.dma(word, target + ((b + k & 7) - (b & 7)) * 8, 8, k - 8 * (k > 7 and c < 8))
            if c & 4:
                for k in range(n - (n > 8 and c < 8)):
                    yield lang.wait_flag(lang.DMA, lang.SCALAR, k)
        elif op == 52:
            last = yield lang.choose(2 + (c & 1), sync="choose")
        elif op == 53:
            last = yield lang.poll_any(
                (word, (c & 1) * lang.CMP_GE, 1 + (c >> 1 & 1)),
                (target, (c >> 2 & 1) * lang.CMP_GE, 1 + (c >> 3)),
                sync="any",
            )
        elif op == 55:
            yield lang.mtu_in(word + (c >> 3) * 4, b * 8, nbytes, tentative=1)
        elif op == 56:
            yield lang.validate(b * 8, nbytes)
        elif op == 58:
            yield lang.mtu_add(b * 8, word + (c >> 3) * 4, nbytes)
        if _SEEN >> op & 1:
            seen = seen * 8 + last
    yield lang.store(result, seen)
