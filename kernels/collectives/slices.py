"""What the kernels of collectives share: what a core moves, and copies and sums through its data buffer.

A core moves its part of every share, slice by slice; cores have nothing in common, like channels.  All ranks take the
same *turns*: a turn is one slice of one call, counted on from call to call, so flags only rise.  Of launches that
follow each other on the same inboxes and flags each is given what those before it have counted (``done``).
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.common import fetch
from xccl_emu.kernels.group import hand_over

FIELD_BYTES = 32
SLOTS = 2
"""Slots of an inbox on a ring."""


class Work(NamedTuple):
    """What a core moves: of every share ``nbytes`` bytes, in each of several calls back to back."""

    own: xl.Reads
    """Address of its part of the first share that this rank has."""
    out: xl.Writes
    """Address of its part of the first share that this rank gets."""
    share: int
    """Bytes from one share to the next, in both."""
    nbytes: int
    slices: int
    """Slices of each share."""
    slice_bytes: int
    """Bytes of all slices but the last one, which may be shorter; even."""
    calls: int
    own_bytes: int
    """From what a call has to what the next one has."""
    out_bytes: int
    dtype: int
    done: int
    """Exchanges, hops or barriers of the launches before."""


class WorkOfReader(Work):
    """The same for ranks that read what the others have, or get; all have it at the same offsets."""

    own: xl.Reads | xl.Anywhere[xl.Reads]
    out: xl.Writes | xl.Anywhere[xl.Reads]


class Ring(NamedTuple):
    """Addresses of a core's inbox, flags and neighbours, and its position."""

    me: int
    ranks: int
    inbox: xl.Reads
    tail: xl.Reads
    ack: xl.Reads
    right_inbox: xl.Writes
    right_tail: xl.Writes
    left_ack: xl.Writes
    slot: int
    """Bytes of a slot in whole granules."""
    room: int
    """Bytes of a slice in whole granules: of a half of the data buffer."""
    reduce: int
    """Whether chunks are added up."""
    gather: int
    """Does every rank get all chunks?"""


class Peers(NamedTuple):
    """A core's inboxes and fields on all ranks, and what is done with the slices."""

    me: int
    ranks: int
    inbox: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    """Address on rank 0, of [2][ranks] slots."""
    fields: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    """Address on rank 0, of [ranks] fields."""
    pitch: int
    """From an address on one rank to the same place on the next."""
    room: int
    """Bytes of a slot, and of a half of the data buffer."""
    scatter: int
    """Does each rank get its own share, or all the same?"""
    reduce: int
    gather: int
    """Does each rank get something of all others?"""


class Readers(NamedTuple):
    """A core's fields on ranks that read each other."""

    me: int
    ranks: int
    there: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    """Address on rank 0 of [ranks] fields: number of calls for which a rank has what the others read."""
    read: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    """Address of the fields that count the calls for which a rank has read it here."""
    pitch: int
    """From an address on one rank to the same place on the next."""


class Barrier(NamedTuple):
    """A core's fields on all ranks, one for each step, and its inboxes, with a slot for each rank, twice."""

    me: int
    ranks: int
    fields: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    """Address on rank 0."""
    inbox: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    """Address on rank 0, of [2][ranks] slots."""
    pitch: int
    """From an address on one rank to the same place on the next."""
    room: int
    """Bytes of a slot, and of a half of the data buffer."""


class Packed(NamedTuple):
    """Sizes of SP-TP-SP, and addresses of what this rank has and gets in the first layer."""

    tokens: int
    latent: int
    """Bytes of a token's latent."""
    part: int
    """Bytes of what the heads of a rank make of a token."""
    half: int
    """Bytes of a half of the data buffer."""
    layers: int
    latents: xl.Reads
    """[own tokens] of the first layer; the other layers follow in the same way."""
    gathered: xl.Writes
    """[tokens]"""
    heads: xl.Reads
    """[tokens]"""
    out: xl.Writes
    """[own tokens][ranks]"""
    done: int
    """Layers of the launches before."""


def slice_size(turn, slices, slice_bytes, nbytes):
    """Bytes of the slice of a turn; the last one of a call may be shorter."""
    return min(slice_bytes, nbytes - turn % slices * slice_bytes)


def slice_at(turn, slices, slice_bytes, first, call_bytes):
    """Return the address of a turn's slice, in buffers where each call begins ``call_bytes`` after the last one."""
    return first + turn // slices * call_bytes + turn % slices * slice_bytes


def read(source, size):
    """Copy memory to the beginning of the data buffer, and wait until it is there."""
    yield from fetch(source, 0, size, 0, "slice in buffer")


def fill_half(i, source, size, room):
    """Read for copy i, into half i % 2; `free_half` waits until what was in it is written out."""
    half = i % 2
    if i >= 2:
        yield xl.wait_flag(xl.MTU_OUT, xl.MTU_IN, half, sync="half free")
    yield xl.mtu_in(source, half * room, size)
    yield from hand_over(xl.MTU_IN, xl.MTU_OUT, half, "half full")


def free_half(i, n):
    """Let copy i + 2 of ``n`` have the half of copy i."""
    if i + 2 < n:
        yield xl.set_flag(xl.MTU_OUT, xl.MTU_IN, i % 2, sync="half free")


def copy(i, n, source, target, size, room):
    """Copy number i of ``n`` from memory to memory, through one of two halves of ``room`` bytes; needs a quiet then."""
    yield from fill_half(i, source, size, room)
    yield xl.mtu_out(i % 2 * room, target, size)
    yield from free_half(i, n)


def add_term(i, n, source, size, room, dtype):
    """Add term i of a sum of ``n``, in FP32 after two halves: the first term is widened, each other one added."""
    half = i % 2
    if i >= 2:
        yield xl.wait_flag(xl.VECTOR, xl.MTU_IN, half, sync="term added")
    yield xl.mtu_in(source, half * room, size)
    yield from hand_over(xl.MTU_IN, xl.VECTOR, half, "term in buffer")
    if i == 0:
        yield xl.v_widen(half * room, 2 * room, size // 2, dtype)
    else:
        yield xl.v_add(half * room, 2 * room, size // 2, dtype)
    if i + 2 < n:
        yield xl.set_flag(xl.VECTOR, xl.MTU_IN, half, sync="term added")


def round_sum(size, room, dtype):
    """Round the sum, which is after the two halves, to the beginning of the data buffer, for mtu-out."""
    yield xl.v_narrow(2 * room, 0, size // 2, dtype)
    yield from hand_over(xl.VECTOR, xl.MTU_OUT, 2, "sum in buffer")


def leave_buffer():
    """Let loads that follow wait until what was written out has left the data buffer."""
    yield from hand_over(xl.MTU_OUT, xl.MTU_IN, 2, "result left buffer")
