"""The memory that a request touches, and its pipe, as the rows of the operations say (`lang.requests.TABLE`)."""

from xccl_emu.lang import operations as ops
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
