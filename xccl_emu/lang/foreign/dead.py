"""Clears what a kernel no longer needs before it asks, in the assembly of x86-64.

A request keeps the registers that a function must preserve.  One whose value nobody reads again still has it, and then
states that are equal to the kernel differ.  So in front of each call such a register is set to 0, unless the call's own
operands need it.  Whoever does not read a value cannot tell that it is 0, so this changes no run.

Liveness is found backwards over all instructions of a file: an instruction uses each register that it mentions, except
for what it is known to overwrite whole.  Where something is not known, as in inline assembly, at a jump by a table and
where a section ends, all are live; so they are where a function returns, since its caller may need them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_NAMES = (
    ("rbx", "ebx", "bx", "bl", "bh"), ("rbp", "ebp", "bp", "bpl"),
    *((f"r{n}", f"r{n}d", f"r{n}w", f"r{n}b") for n in range(12, 16)),
)  # fmt: skip
"""What a function must preserve, by the names of its parts; a write to one of the first two replaces all of it."""
_BIT = {name: 1 << i for i, names in enumerate(_NAMES) for name in names}
_WHOLE = {f"%{name}": 1 << i for i, names in enumerate(_NAMES) for name in names[:2]}
_ALL = (1 << len(_NAMES)) - 1
_REGISTER = re.compile(r"%(\w+)")
_LABEL = re.compile(r"([\w.$]+):")
_OPERAND = re.compile(r"(?:[^,()]|\([^)]*\))+")
_EXPLICIT = re.compile(
    r"(mov|lea[lqw]$|add|sub|adc|sbb|i?mul|i?div|and|or|xor|not|neg|sal|sar|shl|shr|rol|ror|inc|dec|cmp[bwlq]$|test|set|cmov"
    r"|bt|bs[fr]|j|call|ret|push|pop|c[bwlq]t[a-z]+$|nop|ud2|cvt|u?comis|sqrt|unpck|shuf|min|max|p[a-z]+$|data16|endbr)"
)
"""Instructions that use none of these registers without mentioning it."""
_OVERWRITES = re.compile(r"(movabs|mov[lq]|mov[sz][bwl][lq]|movslq|lea[lq]|pop[lq]?)$")
_SECTION = (".section", ".text", ".data", ".bss", ".previous", ".pushsection", ".popsection")
_COUNT = "__sanitizer_cov_trace_pc"


@dataclass
class _Instruction:
    """What an instruction reads and replaces of the registers, and what may follow it."""

    line: int
    uses: int = _ALL
    kills: int = 0
    asks: bool = False
    """It is a call that may come to a request."""
    goes_on: bool = True
    target: str = ""
    after: int = _ALL
    """Live behind it."""
    labels: list[str] = field(default_factory=list)


def cleared(assembly: str) -> Iterator[str]:
    """Lines of assembly, with a register set to 0 in front of a call if nothing behind it needs what is there."""
    lines = assembly.splitlines(keepends=True)
    found = list(_instructions(lines))
    _find_live(found)
    calls = {each.line: _ALL & ~(each.after | each.uses) for each in found if each.asks}
    for number, line in enumerate(lines):
        dead = calls.get(number, 0)
        yield from (f"\tmovl\t$0, %{names[1]}\n" for i, names in enumerate(_NAMES) if dead >> i & 1)
        yield line


def _instructions(lines: list[str]) -> Iterator[_Instruction]:
    labels, is_known = list[str](), True
    for number, line in enumerate(lines):
        words = line.split("#")[0].split(None, 1)
        is_known = line.strip() == "#NO_APP" or (is_known and line.strip() != "#APP")
        if words and (label := _LABEL.fullmatch(words[0])):
            labels.append(label[1])
            words = words[1:] and words[1].split(None, 1)
        if not words or (words[0].startswith(".") and words[0] not in _SECTION):
            continue
        made = _instruction(number, words[0], words[1].strip() if words[1:] else "") if is_known else None
        made = made or _Instruction(number)
        made.labels, labels = labels, []
        yield made


def _instruction(line: int, name: str, text: str) -> _Instruction | None:
    """An instruction, or None if it is not known what it does."""
    if not _EXPLICIT.match(name) or ";" in text:
        return None
    if name in ("ret", "ud2"):
        return _Instruction(line, _ALL if name == "ret" else 0, goes_on=False)
    mentioned = 0
    for register in _REGISTER.findall(text):
        mentioned |= _BIT.get(register, 0)
    if name.startswith("j"):
        return None if "*" in text else _Instruction(line, 0, goes_on=name != "jmp", target=text.partition("@")[0])
    if name.startswith("call"):
        return _Instruction(line, mentioned, asks=_COUNT not in text)
    operands = [each.strip() for each in _OPERAND.findall(text)]
    whole = _WHOLE.get(operands[-1], 0) if operands else 0
    if name in ("xorl", "xorq") and len({*operands}) == 1:
        return _Instruction(line, 0 if whole else mentioned, whole)
    if not whole or not _OVERWRITES.match(name):
        return _Instruction(line, mentioned)
    uses = 0
    for register in _REGISTER.findall(",".join(operands[:-1])):
        uses |= _BIT.get(register, 0)
    return _Instruction(line, uses, whole)


def _find_live(found: list[_Instruction]) -> None:
    """Set what is live behind each instruction, from none on upwards until nothing changes."""
    at = {label: i for i, each in enumerate(found) for label in each.labels}
    before = [0] * len(found) + [_ALL]
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
