"""The one kernel that interprets small programs, so that nothing has to be compiled for a new one.

It is made of `INSTRUCTIONS`: each has sites of its own, so a load with a name and one without are distinct.
"""

from textwrap import indent
from typing import NamedTuple

from xccl_emu import lang
from xccl_emu.lang import maps
from xccl_emu.lang.kernel import kernel_of

_SHIFTED = "word + (c >> 3) * 4"
_DMA = f"yield lang.dma({_SHIFTED}, target, nbytes, c & 7)"
_LINE = "word, 192, 16 << (c & 3), _flags(c), b, sync='line'"
_PART = "word, b, 1 << (c & 3), _MASKS >> (c >> 2) * 8 & 255, sync='part'"
INSTRUCTIONS = {
    "end": "pass",
    "load": "last = yield lang.load(word)",
    "load_named": "last = yield lang.load(word, sync='load')",
    "store": "yield lang.store(word, b)",
    "store_seen": "yield lang.store(word, seen)",
    "atomic": "yield lang.atomic_add(word, b)",
    "atomic_taken": "last = yield lang.atomic_add(word, b, sync='atomic')",
    "ge": "yield lang.poll_ge(word, b, sync='ge')",
    "eq": "yield lang.poll_eq(word, b, sync='eq')",
    "ne": "yield lang.poll_ne(word, b, sync='ne')",
    "ge_taken": "last = yield lang.poll_ge(word, b)",
    "ne_taken": "last = yield lang.poll_ne(word, b)",
    "quiet": "yield lang.quiet(sync='quiet')",
    "put": "yield lang.put(word & ~31, b, c, b + 1, c + 1)",
    "add": "yield lang.add(word, b, sync='add')",
    "in": f"yield lang.mtu_in({_SHIFTED}, b * 8, nbytes)",
    "out": f"yield lang.mtu_out(b * 8, {_SHIFTED}, nbytes)",
    "dma": _DMA,
    "ub_load": "last = yield lang.ub_load(b * 8, 8)",
    "ub_store": "yield lang.ub_store(b * 8, a, 8)",
    "arrive": "phase = yield lang.arrive()",
    "await": "yield lang.await_group(phase, sync='await')",
    "skip_unless": "skipped = c * (last != b)",
    "skip_if": "skipped = c * (last == b)",
    "spin": """last = yield lang.load(word, sync='spin')
while last != b:
    last = yield lang.load(word, sync='spin again')""",
    "spin_plain": """last = yield lang.load(word)
while last != b:
    last = yield lang.load(word)""",
    "fail_unless": """if last != b:
    yield lang.fail(a, last)""",
    "v_copy": "yield lang.v_copy(a * 8, b * 8, nbytes)",
    "v_add": "yield lang.v_map((a & 7) * 8, b * 8, nbytes >> 2, _SUM, (a >> 3) * 8)",
    "set": "yield lang.set_flag(a & 3, b & 3, c)",
    "wait": "yield lang.wait_flag(a & 7, b & 3, c)",
    "spin_in": """last = b + 1
while last != b:
    yield lang.mtu_in(word, 312, 8)
    yield lang.set_flag(lang.MTU_IN, lang.SCALAR, 15)
    yield lang.wait_flag(lang.MTU_IN, lang.SCALAR, 15)
    last = yield lang.ub_load(312, 8)""",
    "store4": f"yield lang.store({_SHIFTED}, b, 4)",
    "load4": f"last = yield lang.load({_SHIFTED}, 4)",
    "load_at": "last = yield lang.load(word + (last & 3) * 8)",
    "dma_data": _DMA,
    "put_one": """yield lang.put(
    word & ~31,
    b * ((a & 3) == 0) + c * ((a & 3) == 3),
    b * ((a & 3) == 1) + c * ((a & 3) == 0),
    b * ((a & 3) == 2) + c * ((a & 3) == 1),
    b * ((a & 3) == 3) + c * ((a & 3) == 2),
)""",
    "eq_taken": "last = yield lang.poll_eq(word, b)",
    "store_named": "yield lang.store(word, b, sync='store')",
    "put_named": "yield lang.put(word & ~31, b, c, b + 1, c + 1, sync='put')",
    "fence": "yield lang.fence(sync='fence')",
    "swap": "last = yield lang.compare_swap(word, b, c, sync='swap')",
    "line": f"yield lang.poll_line_eq({_LINE})",
    "line_ne": f"yield lang.poll_line_ne({_LINE})",
    "signal": """word = areas.home + (a >> 3 & 3) * areas.stride + (a & 7) * 8
there = word + areas.data + ((b & 7) - (a & 7)) * 8
yield lang.put_signal((b & 7) * 8, there, nbytes, word, (b >> 3) + 1, 1 + (c >> 3), sync='signal')""",
    "part_ge": f"last = yield lang.poll_ge({_PART})",
    "part_eq": f"last = yield lang.poll_eq({_PART})",
    "part_ne": f"last = yield lang.poll_ne({_PART})",
    "dcci": "yield lang.dcci(word, sync='dcci')",
    "outs": """for k in range((c & 3) + 1):
    yield lang.mtu_out((b & 7) * 8 + 32 * k, (word & ~31) + 32 * k, 32)""",
    "puts": """for k in range((c & 1) + 1):
    yield lang.put((word & ~31) + 32 * k, b, b + k, b, b)""",
    "stores": """for k in range((c & 3) + 1):
    yield lang.store(word + 8 * k, b)""",
    "signals": """word = areas.home + (a & 7) * 8
for k in range(2):
    flag = word + k * areas.stride
    yield lang.put_signal(32 * k, areas.edge + 32 * k - 32, 32, flag, b, 1 + (c >> 3), sync='signal')""",
    "dmas": """n = (2 << (c & 3)) - 7 * (c & 3 == 3)
for k in range(n):
    if k > 7 and c < 8:
        yield lang.wait_flag(lang.DMA, lang.SCALAR, k & 7)
    yield lang.dma(word, target + ((b + k & 7) - (b & 7)) * 8, 8, k - 8 * (k > 7 and c < 8))
if c & 4:
    for k in range(n - (n > 8 and c < 8)):
        yield lang.wait_flag(lang.DMA, lang.SCALAR, k)""",
    "choose": "last = yield lang.choose(2 + (c & 1), sync='choose')",
    "any": """last = yield lang.poll_any(
    (word, (c & 1) * lang.CMP_GE, 1 + (c >> 1 & 1)),
    (target, (c >> 2 & 1) * lang.CMP_GE, 1 + (c >> 3)),
    sync='any',
)""",
    "tentative": f"yield lang.mtu_in({_SHIFTED}, b * 8, nbytes, tentative=1)",
    "validate": "yield lang.validate(b * 8, nbytes)",
    "add_out": f"yield lang.mtu_add(b * 8, {_SHIFTED}, nbytes)",
    "load_line": "last = yield lang.load_line(word & ~15)",
    "load_line_named": "last = yield lang.load_line(word & ~15, sync='load')",
    "store_line": "yield lang.store_line(word & ~15, b, c)",
}
"""What each instruction of a program does, in the order of their codes."""
OPERATIONS = tuple(INSTRUCTIONS)
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
_SEEN = sum(
    1 << code
    for code, does in enumerate(INSTRUCTIONS.values())
    if does.startswith("last = yield") and "while" not in does
)
"""Instructions that read what the program stores at its end, a bit for each."""
REGISTERS = 6
IN_REGISTER = 3
SIZE_MAX = REGISTERS * IN_REGISTER
OPERATION_BITS, A_BITS, B_BITS, C_BITS = 6, 6, 5, 4
BITS = 21
"""Widths of an instruction: its operation and three operands."""


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


def _flags(c: int) -> int:
    """Return which words of a polled line are flags: the first, the last, each fourth or each eighth."""
    flags = 1
    if c >> 2 == 1:
        flags = 1 << (4 << (c & 3)) - 4
    elif c >> 2 == 2:
        flags = 0x11111111
    elif c >> 2 == 3:
        flags = 0x01010101
    return flags & (1 << (4 << (c & 3))) - 1


_INTERPRET = '''def interpret(p0, p1, p2, p3, p4, p5, areas: WordAreas, result):
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
        target = areas.home + (op == {dma_data}) * areas.data + (b >> 3) * areas.stride + (b & 7) * 8
        if b >> 3 == 3:
            target = areas.edge + (op == {dma_data}) * areas.cpu + (b & 7) * 8
        nbytes = _NBYTES >> (c & 7) * 8 & 255
        {ladder}if _SEEN >> op & 1:
            seen = seen * 8 + last
    yield lang.store(result, seen)
'''
_LADDER = "el".join(
    f"if op == {k}:\n{indent(INSTRUCTIONS[name], ' ' * 12)}\n" + " " * 8 for k, name in enumerate(OPERATIONS)
)
interpret = kernel_of(
    "interpret", _INTERPRET.format(dma_data=OPERATIONS.index("dma_data"), ladder=_LADDER), globals() | {"lang": lang}
)
