"""A token on its way to an expert: a payload, and after it a slot that says where it is from, and how it is made."""

from xccl_emu import lang as xl
from xccl_emu.kernels.experts.counts import FIELD_BYTES
from xccl_emu.kernels.experts.parameters import Group
from xccl_emu.kernels.group import hand_over

SLOT_BYTES = 512
"""After each payload: FP32 scale, source rank, batch slot (token), key offset (choice), expert slot, version of the
map; the rest zero."""

VERSION_AT = 20
"""Where in the slot the version is."""

ROUTE_BYTES = 32
"""What of the slot is kept with a received row."""


def message_at(half: int, hidden: int, payload: int, quantized: int, work: int) -> int:
    """Return where the data buffer has a half's message; the inputs of quantization come before it."""
    return work + (4 * hidden if quantized else 0) + half * (payload + SLOT_BYTES)


def field_of(fields: int, rank: int, n_local: int, local: int) -> int:
    """Offset of the field of a source rank and local expert."""
    return fields + (rank * n_local + local) * FIELD_BYTES


def prepare(half, source, c: Group, work, step):
    """Step 1, load a token, and ``step`` (a literal), quantize it, asynchronously, into a half of the data buffer."""
    at = message_at(half, c.hidden, c.payload, c.quantized, work)
    if c.quantized:
        yield xl.mtu_in(source, work + 2 * c.hidden * half, 2 * c.hidden, step=1)
        yield from hand_over(xl.MTU_IN, xl.VECTOR, half, "token loaded")
        yield xl.v_quantize(work + 2 * c.hidden * half, at, c.hidden, c.dtype, c.quantized - 1, step=step)
        yield xl.set_flag(xl.VECTOR, xl.SCALAR, half, sync="message made")
    else:
        yield xl.mtu_in(source, at, c.payload, step=1)
        yield xl.set_flag(xl.MTU_IN, xl.SCALAR, half, sync="message made")


def clear_slots(at, payload, message):
    """Zero the slots of both halves: what is not written later (the scale, if nothing is quantized) still travels."""
    yield xl.v_fill(at + payload, SLOT_BYTES, step=1)
    yield xl.v_fill(at + message + payload, SLOT_BYTES, step=1)
    yield from hand_over(xl.VECTOR, xl.SCALAR, 1, "slots cleared")


def stamp(slot, message, version):
    """Put the version of the rank's map, if there is one, into the slots of both halves; all messages have it then."""
    if version:
        yield xl.dcci(version, sync="used version line")
        used = yield xl.load(version, step=1)
        yield xl.ub_store(slot + VERSION_AT, used, step=1)
        yield xl.ub_store(slot + message + VERSION_AT, used, step=1)
