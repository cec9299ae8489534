"""What a request touches, as the rows of the operations say (`lang.requests.TABLE`): memory, data buffer and pipe."""

from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device import maps
from xccl_emu.machine.device.words import jit


@jit
def _range(st, at, places):
    size = places[1]
    return st[at + places[0]], st[at + size] if size > 0 else -size


@jit
def read_by(st, at, op):
    """Return the address and size of the memory that the request at ``at`` reads; the operation must read some."""
    return _range(st, at, ops.READ[op])


@jit
def written_by(st, at, op):
    """Return the address and size of the memory that the request at ``at`` writes; the operation must write some."""
    return _range(st, at, ops.WRITTEN[op])


@jit
def taken_by(st, at, op):
    """Return what the request at ``at`` reads of the data buffer: first byte and size; not of the vector pipe."""
    return _range(st, at, ops.TAKEN[op])


@jit
def filled_by(st, at, op):
    """Return what the request at ``at`` writes of the data buffer: first byte and size; not of the vector pipe."""
    return _range(st, at, ops.FILLED[op])


@jit
def queued_on(op, source, target):
    """Return the pipe whose queue a request goes to, or SCALAR; a flag names it in its first two operands."""
    if ops.FLAGS >> op & 1:
        return target if ops.WAITS >> op & 1 else source
    return ops.QUEUES[op]


@jit
def flag_of(st, at):
    """Return source, target and number of the event that the set_flag or wait_flag at ``at`` is about."""
    return st[at + ops.FLAG.source], st[at + ops.FLAG.target], st[at + ops.FLAG.event]


# ---- what instructions of the vector pipe read and write, in the data buffer


@jit
def element_bytes(dtype):
    """Return the size of an element type in bytes."""
    return 4 if dtype == rq.FP32 else 2


@jit
def is_fp8(rule):
    """Does a rule make e4m3, with a scale for each block?"""
    return rule == rq.RULE_FP8 or rule == rq.RULE_FP8_UE8M0


@jit
def fp8_scale_bytes(count):
    """Return the bytes that the scales of a row take, with zeros after them up to whole granules."""
    return (4 * (count // rq.FP8_BLOCK) + 31) // 32 * 32


@jit
def elements(st, at, op):
    """Count the elements that the vector instruction at ``at`` works on."""
    return st[at + ops.FILLED[op, 1]]


@jit
def dtype_of(st, at, op):
    """Return the element type of what a vector instruction reads, or of what it makes of FP32; it must have one."""
    return st[at + ops.DTYPE[op]]


@jit
def ranges(st, at, op):
    """Return what the vector instruction at ``at`` reads and what it writes: first byte, and bytes, of both.

    A sum reads what it writes, and a row is scaled where it is; `other_range` says what else is read, all of it in the
    data buffer.
    """
    count = elements(st, at, op)
    target, written = st[at + ops.FILLED[op, 0]], _bytes_written(st, at, op, count)
    if not ops.TAKES >> op & 1:
        return target, 0, target, written
    return st[at + ops.TAKEN[op, 0]], _bytes_read(st, at, op, count), target, written


@jit
def _bytes_read(st, at, op, count):
    if op == rq.OP_V_COPY:
        function = st[at + ops.COPY.function]
        return maps.source_bytes(function, count) if function else count
    if op == rq.OP_V_COUNT or op == rq.OP_V_NARROW:
        return 4 * count
    if op == rq.OP_V_DEQUANTIZE:
        return count
    return element_bytes(dtype_of(st, at, op)) * count


@jit
def _bytes_written(st, at, op, count):
    if op == rq.OP_V_FILL:
        return count
    if op == rq.OP_V_COPY:
        function = st[at + ops.COPY.function]
        return maps.target_bytes(function, count) if function else count
    if op == rq.OP_V_COUNT:
        return 4
    if op == rq.OP_V_QUANTIZE:  # scales follow the row
        return count + (fp8_scale_bytes(count) if is_fp8(st[at + ops.QUANTIZE.rule]) else 4)
    return 2 * count if op == rq.OP_V_NARROW else 4 * count


@jit
def alignments(st, at, op):
    """Return what the addresses of a vector instruction must be multiples of, where it reads and where it writes."""
    if op == rq.OP_V_COPY and st[at + ops.COPY.function]:
        function = st[at + ops.COPY.function]
        return maps.source_element_bytes(function), maps.element_bytes_written(function)
    return (1, 1) if op == rq.OP_V_COPY or op == rq.OP_V_FILL else (4, 4)


@jit
def other_range(st, at, op):
    """Return what else a vector instruction reads: a scale, or a second operand; first byte, and bytes, perhaps 0."""
    if op == rq.OP_V_DEQUANTIZE:
        blocks = elements(st, at, op) // rq.FP8_BLOCK if is_fp8(st[at + ops.DEQUANTIZE.rule]) else 1
        return st[at + ops.DEQUANTIZE.scale_ub], 4 * blocks
    if op == rq.OP_V_COPY and st[at + ops.COPY.function]:
        return st[at + ops.COPY.other], maps.other_bytes(st[at + ops.COPY.function], elements(st, at, op))
    return 0, 0
