"""PTX's memory instructions, and what each asks of the machine: a table, and a reader of the text of inline assembly.

What is not in the table is refused by its name and line.  Source: PTX ISA, chapters "Instruction Set" and "Memory
Consistency Model"; docs/records/cuda.md says how each row relates to that model.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from xccl_emu.base.errors import KernelError
from xccl_emu.lang.requests import NO_ACQUIRE


class Row(NamedTuple):
    """An instruction with one of its orders."""

    opcode: str
    order: str
    request: str = ""
    """What it asks of the machine: a load, a store, an atomic, a barrier, that lanes of a warp meet, or nothing."""
    named: bool = False
    """What it reads synchronizes, and a run can switch that off."""
    publishes: bool = False
    """Before it, what its thread has written, or knows of by barriers, becomes visible; a run can switch that off."""

    @property
    def asks(self) -> str:
        """Return what its reads ask for."""
        return NO_ACQUIRE if self.named and self.order not in ("acquire", "acq_rel") else ""

    @property
    def quiet_asks(self) -> str:
        """Return what its quiet asks for: a fence alone lets reads before it acquire."""
        return "" if self.opcode in ("fence", "membar") else NO_ACQUIRE


TABLE = (
    Row("ld", "weak", "load"),
    *(Row("ld", order, "load", named=True) for order in ("volatile", "mmio", "relaxed", "acquire")),
    *(Row("st", order, "store") for order in ("weak", "volatile", "mmio", "relaxed")),
    Row("st", "release", "store", publishes=True),
    *(Row(opcode, order, "atomic", named=True) for opcode in ("atom", "red") for order in ("relaxed", "acquire")),
    *(
        Row(opcode, order, "atomic", named=True, publishes=True)
        for opcode in ("atom", "red") for order in ("release", "acq_rel")
    ),
    *(Row("fence", order, publishes=True) for order in ("acq_rel", "sc")),
    Row("membar", "sc", publishes=True),
    *(Row(opcode, "sync", "barrier", named=True) for opcode in ("bar", "barrier")),
    *(Row(opcode, "sync", "meeting", named=True) for opcode in ("shfl", "vote")),
    Row("nanosleep", ""),
)  # fmt: skip
"""Each instruction by its order."""

DEFAULT = {"ld": "weak", "st": "weak", "atom": "relaxed", "red": "relaxed", "fence": "acq_rel", "membar": "sc"}
"""The order of an instruction that says none."""

SCOPES = {"cta": 0, "cluster": 1, "gpu": 2, "gl": 2, "sys": 3}
"""Number of each scope; ``gl`` is what `membar` calls a GPU."""
ATOMICS = ("add", "exch", "cas", "and", "or", "xor", "min", "max", "inc", "dec")
"""Operations of atomics, in the order of their numbers in the header."""

SHUFFLES = ("idx", "up", "down", "bfly")
MODES = {"atom": ATOMICS, "red": ATOMICS, "shfl": SHUFFLES, "vote": ("ballot",), "bar": ("warp",)}
"""Operations of an opcode that has several."""

WHY_NOT = {"multimem": ": its address is memory of several ranks at once, and an address here is of one"}
"""Why the table has nothing of an opcode, where there is a reason."""

_ROWS = {(row.opcode, row.order): row for row in TABLE}
_ORDERS = {row.order for row in TABLE}
_PASSED_OVER = re.compile(r"global|shared(::cta)?|nc|c[agsv]|lu|w[bt]|L[12]::\w+|aligned")
"""Parts that change no value: a generic address says the space, a hint is none of the order."""
_TYPE = re.compile(r"([busf])(8|16|32|64)")
_VECTOR = {"v2": 2, "v4": 4, "v8": 8}
_INSTRUCTION = re.compile(r"([\w.:]+)\s*(.*)", re.DOTALL)
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")


class Instruction(NamedTuple):
    """An instruction in a source."""

    text: str
    row: Row
    operands: tuple[str, ...]
    scope: str = "sys"
    kind: str = "b"
    """The letter of its type: bits, unsigned, signed, floating."""
    nbytes: int = 0
    elements: int = 1
    mode: str = ""
    """Which one it is of the `MODES` of its opcode."""

    @property
    def name(self) -> str:
        """Return its name in reports: opcode, order and scope, and of a vector how many elements it has."""
        has_scope = self.row.opcode in DEFAULT and self.row.order not in ("weak", "volatile")
        vector = [f"v{self.elements}"] if self.elements > 1 else []
        return ".".join([self.row.opcode, self.row.order, *([self.scope] if has_scope else []), *vector])


def instructions(text: str) -> Iterator[Instruction]:
    """The instructions of an inline assembly; raises KernelError, without a place, for one that is not in the table."""
    for each in re.split(r"[;\n]", re.sub(r"//[^\n]*|/\*.*?\*/", " ", text)):
        if each.strip():
            yield _instruction(each.strip())


def _instruction(text: str) -> Instruction:
    found = _INSTRUCTION.fullmatch(text)
    if found is None:
        raise _refused(text)
    (opcode, *parts), operands = found[1].split("."), tuple(_OPERAND.findall(found[2]))
    known = {"order": DEFAULT.get(opcode, ""), "scope": "gpu" if opcode in ("atom", "red") else "sys"}
    elements, kind, nbytes = 1, "b", 0
    for part in parts:
        if part in _ORDERS:
            known["order"] = part
        elif part in SCOPES:
            known["scope"] = part
        elif part in MODES.get(opcode, ()):
            known["mode"] = part
        elif part in _VECTOR:
            elements = _VECTOR[part]
        elif (of := _TYPE.fullmatch(part)) is not None:
            kind, nbytes = of[1], int(of[2]) // 8
        elif not _PASSED_OVER.fullmatch(part):
            raise _refused(text, f"its part `.{part}`")
    row = _ROWS.get((opcode, known.pop("order")))
    if row is None:
        raise _refused(text)
    return Instruction(text, row, operands, kind=kind, nbytes=nbytes, elements=elements, **known)


def _refused(text: str, what: str = "") -> KernelError:
    name = text.split()[0]
    why = WHY_NOT.get(name.partition(".")[0], "")
    return KernelError(f"`{name}`: {what or 'this instruction'} is not in xccl_emu's table of PTX{why}")
