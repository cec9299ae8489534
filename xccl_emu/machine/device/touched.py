"""The memory that a request touches, and its pipe, as the rows of the operations say (`lang.requests.TABLE`)."""

from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device.words import jit


@jit
def read_by(st, at, op):
    """Return the address and size of the memory that the request at ``at`` reads; the operation must read some."""
    size = ops.READ[op, 1]
    return st[at + ops.READ[op, 0]], st[at + size] if size > 0 else -size


@jit
def written_by(st, at, op):
    """Return the address and size of the memory that the request at ``at`` writes; the operation must write some."""
    size = ops.WRITTEN[op, 1]
    return st[at + ops.WRITTEN[op, 0]], st[at + size] if size > 0 else -size


@jit
def queued_on(op, source, target):
    """Return the pipe whose queue a request goes to, or SCALAR; a flag names it in its first two operands."""
    if op == rq.OP_SET_FLAG:
        return source
    if op == rq.OP_WAIT_FLAG:
        return target
    return ops.PIPES[op] if op != rq.OP_DMA else rq.SCALAR
