"""Copies of large ranges that are in no cache of the computer that runs this, which large runs are made of.

A plain copy waits for the lines of its target only to overwrite them, and for a few lines of its source at a time.  So
the source is asked for ahead, and the target is written past the caches.  Where a range is in a cache
after all that takes longer; so it is done only if nobody has written the range for a while, which is noted anyway
(`large_slot`).  No byte and no state depends on it.
"""

from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.sparse import move
from xccl_emu.machine.device.words import call, fetch_bytes, jit, stream_bytes

_SPREAD = 7919  # so that equal offsets on different dies rarely share a place
_FAR_BYTES_LEAST = 2048
_FAR_ACTIONS = 1 << 13  # in these a run that copies much has copied some MB


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
        fetch_bytes(mem, st, target, source, nbytes)
    else:
        move(mem, st, target, source, nbytes)


@call
def write_far(mem, st, target, source, nbytes):
    """Copy within memory to what may be far."""
    if _is_far(st, target, nbytes):
        stream_bytes(mem, st, target, source, nbytes, _is_far(st, source, nbytes))
    else:
        move(mem, st, target, source, nbytes)
