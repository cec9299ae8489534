"""Ranges of memory: which are sparse, which are far, and which are lost.

**Sparse**: what would change nothing is left out, so that no page is committed that holds zeros.  A run without data is
a run whose payload is zeros, with this switched on (`layout.SPARSE`).  Every byte ends as it would otherwise, control
words and payload alike: no rule says which is which, so none can be wrong.  Who writes marks the chunks that it writes
as dirty, the host (`AddressSpace.span`) and the machine (`mark`); where no chunk is, nobody has ever written, and there
is nothing to compare and nothing to touch.

**Far**: large ranges that are in no cache of the computer that runs this, which large runs are made of.  A plain copy
waits for the lines of its target only to overwrite them, and for a few lines of its source at a time.  So the source is
asked for ahead, and the target is written past the caches.  Where a range is in a cache after all that takes longer; so
it is done only if nobody has written the range for a while, which is noted anyway (`large_slot`).  No byte and no state
depends on it.

**Lost**: bytes that are lost from some moment on, as a check has it: nobody can say what a read of them brings.  So a
plain read of them ends the run.  A tentative one is as one that a write has met: what it brings may be dropped, and
never validated.  What may be lost by name is in the header, with a word that a loss sets to 1 at once.
"""

from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device import touched, words
from xccl_emu.machine.device.numerics import count_between, fill
from xccl_emu.machine.device.words import call, jit, jit_arrays

_SPREAD = 7919  # so that equal offsets on different dies rarely share a place
_FAR_BYTES_LEAST = 2048
_FAR_ACTIONS = 1 << 13  # in these a run that copies much has copied some MB

OF_DIE = 4
"""Numbers below it are areas: all of a die's memory, its app data, metadata and managed data; then what has a name."""


# ---- what is sparse


@jit
def mark(mem, st, start, nbytes):
    """Note, where memory is sparse, that a range of at least one byte is written."""
    bits = st[ms.SPARSE]
    if bits > 0:
        for chunk in range(start >> ms.CHUNK_SHIFT, (start + nbytes - 1 >> ms.CHUNK_SHIFT) + 1):
            mem[bits + (chunk >> 3)] |= 1 << (chunk & 7)


@jit
def _clean(mem, st, start, nbytes):
    """Note that there are zeros again, if it is a whole chunk of a data buffer: of what is on dies hosts have views."""
    bits = st[ms.SPARSE]
    if bits > 0 and nbytes == ms.CHUNK_BYTES and start >> st[ms.DIE_SHIFT] >= st[ms.N_HOMES]:
        mem[bits + (start >> ms.CHUNK_SHIFT + 3)] &= 0xFF ^ 1 << (start >> ms.CHUNK_SHIFT & 7)


@jit
def _next_dirty(mem, st, start, end):
    """The first byte from ``start`` on that may be something else than zero; ``end`` if none before that may be."""
    bits = st[ms.SPARSE]
    if bits < 0:
        return start
    chunk = start >> ms.CHUNK_SHIFT
    while chunk << ms.CHUNK_SHIFT < end:
        ahead = words.load_i64(mem, bits + 8 * (chunk >> 6)) >> (chunk & 63)
        if ahead != 0:
            while not ahead & 1:
                ahead >>= 1
                chunk += 1
            return max(start, min(chunk << ms.CHUNK_SHIFT, end))
        chunk = (chunk >> 6) + 1 << 6
    return end


@jit
def _to_end_of_chunk(at, end):
    """Bytes from ``at`` to the end of its chunk, or to ``end`` if that is before."""
    return min((at >> ms.CHUNK_SHIFT) + 1 << ms.CHUNK_SHIFT, end) - at


@jit
def _zeros(mem, start, nbytes):
    return mem[start] == 0 and words.same_bytes(mem, start, start + 1, nbytes - 1)


@call
def all_zero(mem, st, start, nbytes):
    """Return whether a range of at least one byte holds nothing but zeros."""
    end = start + nbytes
    at = _next_dirty(mem, st, start, end)
    while at < end:
        size = _to_end_of_chunk(at, end)
        if not _zeros(mem, at, size):
            return False
        _clean(mem, st, at, size)
        at = _next_dirty(mem, st, at + size, end)
    return True


@call
def copy_changed(mem, st, target, source, nbytes):
    """`copy_bytes`, but without what is there already, and without a look at what is zero on both sides."""
    if st[ms.SPARSE] == ms.ALL_DIRTY and words.same_bytes(mem, target, source, nbytes):
        return
    done = 0
    while True:
        here = _next_dirty(mem, st, target + done, target + nbytes) - target
        there = _next_dirty(mem, st, source + done, source + nbytes) - source
        done = min(here, there)
        if done == nbytes:
            return
        size = _to_end_of_chunk(target + done, target + nbytes)
        _copy_part(mem, st, target + done, source + done, size)
        done += size


@jit
def _copy_part(mem, st, target, source, nbytes):
    """Do the part of `copy_changed` that lies within one chunk of the target; zeros it can have without the source."""
    if _next_dirty(mem, st, source, source + nbytes) == source + nbytes:
        fill(mem, target, nbytes, 0)
        _clean(mem, st, target, nbytes)
    elif _next_dirty(mem, st, target, target + nbytes) > target:
        if not _zeros(mem, source, nbytes):
            mark(mem, st, target, nbytes)
            words.copy_bytes(mem, target, source, nbytes)
    elif not words.same_bytes(mem, target, source, nbytes):
        words.copy_bytes(mem, target, source, nbytes)


@jit
def move(mem, st, target, source, nbytes):
    """Copy within memory; where it is sparse, only what changes something."""
    if st[ms.SPARSE]:
        copy_changed(mem, st, target, source, nbytes)
    else:
        words.copy_bytes(mem, target, source, nbytes)


@call
def leaves_zeros(mem, st, ub, at, op):
    """Would the vector instruction at ``at`` change nothing: make zeros of zeros, or copy what is there already?

    Not all that would are found; a count decides where things go, and is always made (`count`); so is a `v_map`, and
    FP8, which has a scale for zeros too.
    """
    if op == rq.OP_V_COUNT or (op == rq.OP_V_COPY and st[at + ops.COPY.function]):
        return False
    harmless = True
    if op == rq.OP_V_QUANTIZE:
        harmless = not touched.is_fp8(st[at + ops.QUANTIZE.rule])
    elif op == rq.OP_V_FILL:
        harmless = st[at + ops.FILL.byte] & 0xFF == 0
    elif op == rq.OP_V_SCALE:
        harmless = _harmless(st[at + ops.SCALE.factor])
    elif op == rq.OP_V_AXPY:
        harmless = _harmless(st[at + ops.AXPY.weight])
    elif op == rq.OP_V_DEQUANTIZE:
        harmless = _harmless(words.load_i32(mem, ub + st[at + ops.DEQUANTIZE.scale_ub]))
    source, read, target, written = touched.ranges(st, at, op)
    zeros = harmless and (read == 0 or all_zero(mem, st, ub + source, read)) and all_zero(mem, st, ub + target, written)
    return zeros or (op == rq.OP_V_COPY and words.same_bytes(mem, ub + target, ub + source, read))


@jit
def _harmless(bits):
    """Return whether zero times the FP32 value with these bits is a positive zero."""
    return bits & 0x80000000 == 0 and bits & 0x7F800000 != 0x7F800000


@jit_arrays
def count(mem, st, source, target, n, low, high):
    """`numerics.count_between`, but of zeros without a look at each."""
    if st[ms.SPARSE] and all_zero(mem, st, source, 4 * n):
        words.store_u32(mem, target, n if low <= 0 < high else 0)
    else:
        count_between(mem, source, target, n, low, high)


# ---- what is far


@jit
def large_slot(st, block):
    """Return where the last large write to a block of 4 KiB is noted; other blocks may share the place."""
    return st[ms.LARGE_BASE] + (
        block + (block << ms.LARGE_SHIFT >> st[ms.DIE_SHIFT]) * _SPREAD & st[ms.LARGE_SLOTS] - 1
    )


@jit
def _is_far(st, start, nbytes):
    """Return whether a range of a die is large, and its last block was not written for a while.

    Its first one may have been, with the range before it.
    """
    if (
        nbytes < _FAR_BYTES_LEAST
        or st[ms.ACTIONS] <= _FAR_ACTIONS
        or st[ms.SPARSE]
        or start >> st[ms.DIE_SHIFT] >= st[ms.N_HOMES]
    ):
        return False
    return st[ms.ACTIONS] - st[large_slot(st, start + nbytes - 1 >> ms.LARGE_SHIFT)] > _FAR_ACTIONS


@call
def read_far(mem, st, target, source, nbytes):
    """Copy within memory what may be far."""
    if _is_far(st, source, nbytes):
        words.fetch_bytes(mem, st, target, source, nbytes)
    else:
        move(mem, st, target, source, nbytes)


@call
def write_far(mem, st, target, source, nbytes):
    """Copy within memory to what may be far."""
    if _is_far(st, target, nbytes):
        words.stream_bytes(mem, st, target, source, nbytes, _is_far(st, source, nbytes))
    else:
        move(mem, st, target, source, nbytes)


# ---- what is lost


@jit
def is_lost(st, address, nbytes):
    """Return whether one of these bytes is lost."""
    return st[ms.LOST_END] != 0 and address < st[ms.LOST_END] and st[ms.LOST_START] < address + nbytes


@jit
def range_of(st, die, number):
    """Return first byte and last+1 of what may be lost, and the word that reports it, or -1."""
    if number >= OF_DIE:
        row = ms.LOSSES + (number - OF_DIE) * ms.LOSS_WORDS
        known = number < OF_DIE + ms.LOSSES_MOST
        return (st[row], st[row + 1], st[row + 2]) if known else (0, 0, -1)
    first, size = die << st[ms.DIE_SHIFT], 1 << st[ms.DIE_SHIFT]
    start = st[ms.SIGNALS_START] if number == 2 else st[ms.SIGNALS_END] if number == 3 else 0
    end = st[ms.SIGNALS_START] if number == 1 else st[ms.SIGNALS_END] if number == 2 else size
    return first + start, first + end, -1
