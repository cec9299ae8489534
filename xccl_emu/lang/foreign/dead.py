"""Clears what a kernel no longer needs before it asks, in the assembly of x86-64.

A request keeps the registers that a function must preserve, and the stack.  What nobody reads again still has its last
value there, and then states that are equal to the kernel differ.  So in front of each call such a register, and such a
byte of a slot to which the compiler has spilled one, is set to 0, unless the call's own operands need it.  Code
that does not read a value cannot know that it is 0, so this changes no run.

Liveness is found backwards over all instructions of a file: an instruction uses each register and slot that it
mentions, except for what it is known to overwrite whole.  Where something is not known, as in inline assembly, at a
jump by a table and where a section ends, all are live; so are registers where a function returns, since its caller may
need them.

Slots are those that compilers mark in comments (gcc's ``%sfp`` by ``-fverbose-asm``, clang's ``Spill`` and ``Reload``):
no pointer leads to one.  Bytes that any other operand names are left alone, and so are variables on the stack.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

FLAGS = ("-fverbose-asm", "-fomit-frame-pointer")
"""Have compilers mark slots, and name them by the stack pointer."""

_NAMES = (
    ("rbx", "ebx", "bx", "bl", "bh"), ("rbp", "ebp", "bp", "bpl"),
    *((f"r{n}", f"r{n}d", f"r{n}w", f"r{n}b") for n in range(12, 16)),
)  # fmt: skip
"""What a function must preserve, by the names of its parts; a write to one of the first two replaces all of it."""
_BIT = {name: 1 << i for i, names in enumerate(_NAMES) for name in names}
_WHOLE = {f"%{name}": 1 << i for i, names in enumerate(_NAMES) for name in names[:2]}
_REGISTERS = (1 << len(_NAMES)) - 1
_EVERYTHING = -1
_REGISTER = re.compile(r"%(\w+)")
_LABEL = re.compile(r"([\w.$]+):")
_FUNCTION = re.compile(r"\s*\.type\s+([\w.$]+),\s*[@%]function")
_OPERAND = re.compile(r"(?:[^,()]|\([^)]*\))+")
_ON_STACK = re.compile(r"(-?\d*)\(%rsp\)")
_MARK = re.compile(r"%sfp\b|\d+-byte (Folded )?(Spill|Reload)")
_EXPLICIT = re.compile(
    r"(mov|lea[lqw]$|add|sub|adc|sbb|i?mul|i?div|and|or|xor|not|neg|sal|sar|shl|shr|rol|ror|inc|dec|cmp[bwlq]$|test|set"
    r"|cmov|bt|bs[fr]|j|call|ret|push|pop|c[bwlq]t[a-z]+$|nop|ud2|cvt|u?comis|sqrt|unpck|shuf|min|max|p[a-z]+$|v[a-z]|endbr)"
)
"""Instructions that use none of these registers without mentioning it."""
_OVERWRITES = re.compile(r"(movabs|mov[lq]|mov[sz][bwl][lq]|movslq|lea[lq]|pop[lq]?)$")
_MOVES = re.compile(r"v?mov([bwlq]|ss|sd|aps|ups|dqa|dqu)$")
_SIZES = {"b": 1, "w": 2, "l": 4, "q": 8, "ss": 4, "sd": 8, "aps": 16, "ups": 16, "dqa": 16, "dqu": 16}
_LARGEST = 64
"""Bytes that an instruction may read of the stack, where its name does not say how many."""
_SECTION = (".section", ".text", ".data", ".bss", ".previous", ".pushsection", ".popsection")
_COUNT = "__sanitizer_cov_trace_pc"
_Frame = tuple[str, int]
"""A function, and how many bytes its frame has."""


@dataclass
class _Instruction:
    """What an instruction reads and replaces of the registers, and what may follow it."""

    line: int
    uses: int = _EVERYTHING
    kills: int = 0
    asks: bool = False
    """It is a call that may come to a request."""
    goes_on: bool = True
    target: str = ""
    pushes: int | None = 0
    """Bytes by which the stack grows, or None if that is not known."""
    slot: tuple[int, int, bool, bool | None] | None = None
    """Bytes of the stack that it names: from where, how many, whether it overwrites them, and whether it is marked.

    The last is None where they are marked, but may be fewer.
    """
    labels: list[str] = field(default_factory=list)
    frame: _Frame | None = None
    """Before it."""
    after: int = _EVERYTHING
    """Live after it."""


def cleared(assembly: str) -> Iterator[str]:
    """Lines of assembly, with what is dead set to 0 in front of each call."""
    lines = assembly.splitlines(keepends=True)
    found = list(_instructions(lines))
    at = {label: i for i, each in enumerate(found) for label in each.labels}
    _find_frames(found, at, {match[1] for line in lines if (match := _FUNCTION.match(line))})
    slots = _slots(found)
    _find_live(found, at)
    calls = {each.line: each for each in found if each.asks}
    for number, line in enumerate(lines):
        if call := calls.get(number):
            yield from _clears(call, slots)
        yield line


def _clears(call: _Instruction, slots: dict[tuple[str, int], int]) -> Iterator[str]:
    dead = ~(call.after | call.uses)
    yield from (f"\tmovl\t$0, %{names[1]}\n" for i, names in enumerate(_NAMES) if dead >> i & 1)
    if call.frame is None:
        return
    function, depth = call.frame
    free = {at + depth for (name, at), bit in slots.items() if name == function and dead & bit and at + depth >= 0}
    while free:
        at = min(free)
        size, suffix = next((n, s) for n, s in ((8, "q"), (4, "l"), (1, "b")) if free.issuperset(range(at, at + n)))
        free.difference_update(range(at, at + size))
        yield f"\tmov{suffix}\t$0, {at}(%rsp)\n"


# ---- what instructions say


def _instructions(lines: list[str]) -> Iterator[_Instruction]:
    labels, is_known = list[str](), True
    for number, line in enumerate(lines):
        code, _, comment = line.partition("#")
        words = code.split(None, 1)
        is_known = line.strip() == "#NO_APP" or (is_known and line.strip() != "#APP")
        if words and (label := _LABEL.fullmatch(words[0])):
            labels.append(label[1])
            words = words[1:] and words[1].split(None, 1)
        if not words or (words[0].startswith(".") and words[0] not in _SECTION):
            continue
        text, is_marked = words[1].strip() if words[1:] else "", bool(_MARK.search(comment))
        made = _instruction(number, words[0], text, is_marked) if is_known else None
        made = made or _Instruction(number, pushes=None)
        made.labels, labels = labels, []
        yield made


def _instruction(line: int, name: str, text: str, is_marked: bool) -> _Instruction | None:
    """An instruction, or None if it is not known what it does."""
    if not _EXPLICIT.match(name) or ";" in text:
        return None
    if name.startswith(("ret", "ud2")):
        return _Instruction(line, _REGISTERS, goes_on=False)
    if name.startswith("j"):
        return None if "*" in text else _Instruction(line, 0, goes_on=name != "jmp", target=text.partition("@")[0])
    operands = [each.strip() for each in _OPERAND.findall(text)]
    uses, kills = _touched(name, operands)
    made = _Instruction(line, uses, kills, pushes=_pushed(name, operands), slot=_slot(name, operands, is_marked))
    made.asks = name.startswith("call") and _COUNT not in text
    return None if is_marked and made.slot is None else made


def _touched(name: str, operands: list[str]) -> tuple[int, int]:
    """The registers that an instruction reads, and those that it replaces."""
    whole = _WHOLE.get(operands[-1], 0) if operands else 0
    if whole and name in ("xorl", "xorq") and len({*operands}) == 1:
        return 0, whole
    kills = whole if _OVERWRITES.match(name) else 0
    uses = 0
    for register in _REGISTER.findall(",".join(operands[:-1] if kills else operands)):
        uses |= _BIT.get(register, 0)
    return uses, kills


def _pushed(name: str, operands: list[str]) -> int | None:
    """Return by how many bytes it makes the stack grow."""
    if name.startswith(("push", "pop")):
        return 8 if name.startswith("push") else -8
    if not operands or operands[-1] != "%rsp" or name.startswith(("cmp", "test")):
        return 0
    by = re.fullmatch(r"\$(-?\d+)", operands[0])
    if name in ("subq", "addq") and by:
        return int(by[1]) * (1 if name == "subq" else -1)
    moved = _ON_STACK.fullmatch(operands[0])
    return -int(moved[1] or 0) if name == "leaq" and moved else None


def _slot(name: str, operands: list[str], is_marked: bool) -> tuple[int, int, bool, bool | None] | None:
    """The bytes of the stack that it names, as `_Instruction.slot`."""
    found = next((match for each in operands if (match := _ON_STACK.fullmatch(each))), None)
    if found is None or name.startswith(("lea", "pop")):
        return None
    at, moves = int(found[1] or 0), _MOVES.match(name)
    if moves is None:
        return at, _read_bytes(name), False, None if is_marked else False
    wide = re.search(r"%([yz])mm", operands[0] + operands[-1])
    return at, {"y": 32, "z": 64}[wide[1]] if wide else _SIZES[moves[1]], operands[-1] == found[0], is_marked


def _read_bytes(name: str) -> int:
    """Bytes that an instruction reads, or more."""
    if name.startswith(("movz", "movs")):
        return _SIZES.get(name[4], _LARGEST)
    if name.startswith(("p", "v", "cvt", "call")) and not name.startswith("push"):
        return _LARGEST
    return 8 if name.startswith("cmov") else _SIZES.get(name[-1], _LARGEST)


# ---- what follows from them


def _find_frames(found: list[_Instruction], at: dict[str, int], functions: set[str]) -> None:
    """Set the frame in front of each instruction, where all ways to it agree."""
    entries = {at[name]: name for name in functions if name in at and not re.search(r"\.cold\b", name)}
    frames: dict[int, _Frame | None] = {i: (name, 0) for i, name in entries.items()}
    todo = [*frames]
    while todo:
        i = todo.pop()
        each, following = found[i], _frame_after(found[i], frames[i])
        for other in (i + 1 if each.goes_on else -1, at.get(each.target, -1)):
            if not 0 <= other < len(found) or other in entries:
                continue
            known = frames.get(other, following)
            agreed = following if known == following else None
            if other not in frames or agreed != known:
                frames[other] = agreed
                todo.append(other)
    for i, frame in frames.items():
        found[i].frame = frame


def _frame_after(each: _Instruction, frame: _Frame | None) -> _Frame | None:
    return None if frame is None or each.pushes is None else (frame[0], frame[1] + each.pushes)


def _slots(found: list[_Instruction]) -> dict[tuple[str, int], int]:
    """Give a bit to each byte of a slot, by function and place, and say who uses and overwrites it."""
    marked, others = set[tuple[str, int]](), set[tuple[str, int]]()
    for each in found:
        if each.slot and each.slot[3] is not None:
            (marked if each.slot[3] else others).update(_bytes(each))
    bits = {byte: 1 << len(_NAMES) + i for i, byte in enumerate(sorted(marked - others))}
    for each in found:
        if each.slot and each.frame is None:
            each.uses = _EVERYTHING
        touched = sum(bits.get(byte, 0) for byte in {*_bytes(each)})
        if each.slot and each.slot[2]:
            each.kills |= touched
        else:
            each.uses |= touched
    return bits


def _bytes(each: _Instruction) -> Iterator[tuple[str, int]]:
    """The bytes of the stack that an instruction names, from where its function began."""
    if each.slot and each.frame:
        function, depth = each.frame
        yield from ((function, each.slot[0] - depth + i) for i in range(each.slot[1]))


def _find_live(found: list[_Instruction], at: dict[str, int]) -> None:
    """Set what is live after each instruction, from nothing on upwards until nothing changes."""
    before = [0] * len(found) + [_EVERYTHING]
    changed = True
    while changed:
        changed = False
        for i in reversed(range(len(found))):
            each = found[i]
            each.after = before[i + 1] if each.goes_on else 0
            if each.target:
                each.after |= before[at.get(each.target, len(found))]
            live = each.uses | each.after & ~each.kills
            changed |= live != before[i]
            before[i] = live
