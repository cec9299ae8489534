"""Instructions in words: what one does, where, and with what value, from its operation and operands."""

from collections.abc import Sequence
from typing import NamedTuple

from xccl_emu.lang import maps
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device.layout import CACHE_LINE_BYTES, GRANULE_BYTES
from xccl_emu.machine.device.lines import is_line
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.report import SIGNS, symbolic
from xccl_emu.machine.stats import PIPE_NAMES

_LARGE = 1 << 20


class Formatted(NamedTuple):
    """An instruction in words."""

    action: str
    address: int | None = None
    """Index of its first byte in the pod's memory array: of the target, or of the source of what only reads."""
    nbytes: int = 0
    place: str = ""
    """The address in words; in the core's own data buffer ``ub+0x20``."""
    value: str = ""
    """What it is about to write, or where it takes it from."""


def number(value: int) -> str:
    """A word: as it is, or hexadecimal where that is easier to recognize (addresses and bit patterns)."""
    return str(value) if -_LARGE < value < _LARGE else hex(value)


def numbers(values: Sequence[int]) -> str:
    """The words of a granule; zeros at the end go without saying."""
    last = max((i for i, value in enumerate(values) if value), default=0)
    return "[" + ", ".join(number(value) for value in values[: last + 1]) + ("]" if last == 3 else ", 0..]")


def some_bytes(data: bytes) -> str:
    """The first bytes of a payload."""
    return data[:4].hex(" ") + (" .." if len(data) > 4 else "")


def formatted(pod: Pod, ub: int, op: int, operands: Sequence[int]) -> Formatted:
    """An instruction of the core whose data buffer begins at ``ub``, before it is carried out."""
    name, (a, b, c, d) = rq.OPERATIONS[op], operands[:4]
    if op == rq.OP_MTU_IN:
        return Formatted(f"{name}{' tentative' * d} {c} B", a, c, symbolic(pod, a), f"to ub+{b:#x}")
    if ops.COPIES_OUT >> op & 1:
        return Formatted(f"{name} {c} B", b, c, symbolic(pod, b), f"from ub+{a:#x}")
    if op == rq.OP_DMA:
        return Formatted(f"{name} {c} B, event {d}", b, c, symbolic(pod, b), f"from {symbolic(pod, a)}")
    if op == rq.OP_PUT:
        return Formatted(name, a, GRANULE_BYTES, symbolic(pod, a), numbers(operands[1:5]))
    if op in (rq.OP_SET_FLAG, rq.OP_WAIT_FLAG):
        return Formatted(f"{name} {_pipe_name(a)}→{_pipe_name(b)} {c}")
    if op == rq.OP_VALIDATE:
        return Formatted(f"{name} {b} B", ub + a, b, f"ub+{a:#x}")
    if op in (rq.OP_UB_LOAD, rq.OP_UB_STORE):
        nbytes, value = (b, "") if op == rq.OP_UB_LOAD else (c, number(b))
        return Formatted(name, ub + a, nbytes, f"ub+{a:#x}", value)
    if op == rq.OP_POLL:
        return _poll(pod, operands)
    if op == rq.OP_POLL_ANY:
        return _poll_any(pod, operands)
    return _vector(ub, op, operands) if ops.VECTORS >> op & 1 else _scalar(pod, op, a, b, c)


def _poll(pod: Pod, operands: Sequence[int]) -> Formatted:
    """A poll of a word, perhaps of some of its bits, or of a line."""
    address, compare, value, nbytes, mask = operands[:5]
    sign = SIGNS.get(compare, "!=")
    what = " line" if is_line(nbytes) else "" if mask == -1 else f" & {number(mask)}"
    return Formatted(f"poll{what} {sign} {number(value)}", address, nbytes, symbolic(pod, address))


def _poll_any(pod: Pod, operands: Sequence[int]) -> Formatted:
    """A poll of several words, of three operands each."""
    each = [tuple(operands[first : first + 3]) for first in range(0, len(operands), 3)]
    used = [condition for condition in each if condition != rq.UNUSED]
    words = " or ".join(f"{symbolic(pod, a)} {SIGNS.get(compare, '?')} {number(b)}" for a, compare, b in used)
    return Formatted(f"poll_any {words}", operands[0], 8)


def _pipe_name(pipe: int) -> str:
    """A pipe that was not checked yet may be any number."""
    return PIPE_NAMES[pipe] if 0 <= pipe < len(PIPE_NAMES) else str(pipe)


def _scalar(pod: Pod, op: int, a: int, b: int, c: int) -> Formatted:
    """Format what the scalar unit does itself, and an add by mtu-out."""
    name = rq.OPERATIONS[op]
    if op == rq.OP_COMPARE_SWAP:
        return Formatted(f"{name} to {number(b)}", a, 8, symbolic(pod, a))
    if op in (rq.OP_ATOMIC_ADD, rq.OP_ADD):
        return Formatted(f"{name} {number(b)}", a, 8, symbolic(pod, a))
    if op == rq.OP_LOAD:
        return Formatted(name, a, b, symbolic(pod, a))
    if op == rq.OP_STORE:
        return Formatted(name, a, c, symbolic(pod, a), number(b))
    if op == rq.OP_DCCI:
        line = a & -CACHE_LINE_BYTES
        return Formatted(name, line, CACHE_LINE_BYTES, symbolic(pod, line))
    if op in (rq.OP_AWAIT_GROUP, rq.OP_CHOOSE):
        return Formatted(f"{name} {number(a)}")
    if op in (rq.OP_FAIL, rq.OP_RETURN):
        return Formatted(f"{name} {number(a)}", value=number(b) if op == rq.OP_FAIL else "")
    return Formatted(name)


def _vector(ub: int, op: int, operands: Sequence[int]) -> Formatted:
    """A vector instruction: where it writes; how many bytes, or elements."""
    a, b, c, d = operands[:4]
    name = rq.OPERATIONS[op]
    if op == rq.OP_V_FILL:
        return Formatted(f"{name} {b} B", ub + a, b, f"ub+{a:#x}", number(c))
    if op == rq.OP_V_SCALE:
        return Formatted(f"{name} {b}", ub + a, 4 * b, f"ub+{a:#x}")
    if op == rq.OP_V_COPY and d:
        name = f"v_map {maps.text(d)}"
    if op == rq.OP_V_COUNT:
        return Formatted(f"{name} {c}", ub + b, 4, f"ub+{b:#x}", f"from ub+{a:#x} in [{d}, {operands[4]})")
    count = d if op == rq.OP_V_AXPY else c
    unit = " B" if op == rq.OP_V_COPY and not d else ""
    return Formatted(f"{name} {count}{unit}", ub + b, count, f"ub+{b:#x}", f"from ub+{a:#x}")
