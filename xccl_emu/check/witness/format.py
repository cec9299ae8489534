"""Instructions in words: what one does, where, and with what value, from its operation and operands."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from xccl_emu.lang import maps
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device.layout import CACHE_LINE_BYTES
from xccl_emu.machine.device.polls import is_line
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


class _Word(int):
    """An operand, which formats as `number` does; as ``{:d}`` it stays decimal, as ``{:pipe}`` it is a pipe's name."""

    def __format__(self, spec: str) -> str:
        if spec == "pipe":
            return _pipe_name(self)
        return format(int(self), spec) if spec else number(self)


def _range(touched: rq.Bytes, given: Mapping[str, int]) -> tuple[int, int]:
    """Return the address, or the offset in a data buffer, and the size that a row speaks of."""
    assert touched is not None
    address, size = touched
    return given[address], size if isinstance(size, int) else given[size]


def formatted(pod: Pod, ub: int, op: int, operands: Sequence[int]) -> Formatted:
    """An instruction of the core whose data buffer begins at ``ub``, before it is carried out."""
    row = rq.TABLE[op]
    given = {name: _Word(value) for name, value in zip(row.operands.split(), operands, strict=False)}
    if op == rq.OP_POLL:
        return _poll(pod, operands)
    if op == rq.OP_POLL_ANY:
        return _poll_any(pod, operands)
    if ops.VECTORS >> op & 1:
        return _vector(ub, op, given)
    if op == rq.OP_DCCI:
        line = given["address"] & -CACHE_LINE_BYTES
        return Formatted(row.name, line, CACHE_LINE_BYTES, symbolic(pod, line))
    action = " ".join(filter(None, (row.name, "tentative" * bool(given.get("tentative")), row.says.format(**given))))
    value = numbers(operands[1:5]) if op == rq.OP_PUT else row.shows.format(**given)
    if row.writes or row.reads:
        address, nbytes = _range(row.writes or row.reads, given)
        return Formatted(action, address, nbytes, symbolic(pod, address), value or _other_end(pod, row, given))
    if row.takes or row.fills:
        start, nbytes = _range(row.takes or row.fills, given)
        return Formatted(action, ub + start, nbytes, f"ub+{start:#x}", value)
    return Formatted(action, value=value)


def _other_end(pod: Pod, row: rq.Operation, given: Mapping[str, int]) -> str:
    """Return where a copy takes its bytes from, or brings them to."""
    if row.fills or row.takes:
        return f"{'to' if row.fills else 'from'} ub+{_range(row.fills or row.takes, given)[0]:#x}"
    return f"from {symbolic(pod, _range(row.reads, given)[0])}" if row.pipe == rq.DMA else ""


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


def _vector(ub: int, op: int, given: Mapping[str, int]) -> Formatted:
    """A vector instruction: where it writes; how many bytes, or elements."""
    row, count = rq.TABLE[op], given["count"]
    target, _ = _range(row.fills, given)
    source = f"from ub+{_range(row.takes, given)[0]:#x}" if row.takes else ""
    place, name, nbytes, in_bytes = f"ub+{target:#x}", row.name, int(count), op == rq.OP_V_FILL
    if op == rq.OP_V_COPY:
        name, in_bytes = (f"v_map {maps.text(given['function'])}", False) if given["function"] else (name, True)
    elif op == rq.OP_V_FILL:
        source = number(given["byte"])
    elif op == rq.OP_V_SCALE:
        nbytes = 4 * count
    elif op == rq.OP_V_COUNT:
        nbytes, source = 4, f"{source} in [{given['low']:d}, {given['high']:d})"
    return Formatted(f"{name} {count:d}{' B' * in_bytes}", ub + target, nbytes, place, source)
