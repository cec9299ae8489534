"""What the cores of a die ask of other dies, counted request by request when they are granted.

Counters begin anew with every run. No program can observe them: they lie behind the tables of last writers.
"""

from xccl_emu.lang.abi import REQUEST
from xccl_emu.lang.requests import OP_ATOMIC_ADD, OP_DMA, OP_LOAD, OP_MTU_IN, OP_MTU_OUT, OP_PUT, OP_STORE
from xccl_emu.machine.device.layout import (
    DIE,
    DIE_SHIFT,
    GRANULE_BYTES,
    TRAFFIC_BASE,
    TRAFFIC_FLAGS,
    TRAFFIC_MASK_BITS,
    TRAFFIC_MASKS,
    TRAFFIC_READ_BYTES,
    TRAFFIC_READS,
    TRAFFIC_WORDS,
    TRAFFIC_WRITE_BYTES,
    TRAFFIC_WRITES,
)
from xccl_emu.machine.device.words import jit


@jit
def note_traffic(st, base, op):
    """Count a request that was granted, if it touches memory (polls do not count) and that of another die."""
    a, b, c = st[base + REQUEST + 1], st[base + REQUEST + 2], st[base + REQUEST + 3]
    if op < OP_DMA:
        if op == OP_LOAD:
            _note(st, base, a, b, TRAFFIC_READS)
        elif op == OP_STORE:
            _note(st, base, a, c, TRAFFIC_FLAGS)
        elif op == OP_ATOMIC_ADD:
            _note(st, base, a, 8, TRAFFIC_FLAGS)
    elif op == OP_MTU_IN:
        _note(st, base, a, c, TRAFFIC_READS)
    elif op == OP_MTU_OUT:
        _note(st, base, b, c, TRAFFIC_WRITES)
        if st[base + REQUEST + 6]:
            _note(st, base, st[base + REQUEST + 4], 8, TRAFFIC_FLAGS)
    elif op == OP_DMA:
        _note(st, base, a, c, TRAFFIC_READS)
        _note(st, base, b, c, TRAFFIC_WRITES)
    else:
        _note(st, base, a, GRANULE_BYTES if op == OP_PUT else 8, TRAFFIC_FLAGS)


@jit
def _note(st, base, address, nbytes, kind):
    other = address >> st[DIE_SHIFT]
    if other == st[base + DIE]:
        return
    own = st[TRAFFIC_BASE] + st[base + DIE] * st[TRAFFIC_WORDS]
    st[own + kind] += 1
    st[own + (TRAFFIC_READ_BYTES if kind == TRAFFIC_READS else TRAFFIC_WRITE_BYTES)] += nbytes
    half = (st[TRAFFIC_WORDS] - TRAFFIC_MASKS) // 2
    mask = own + TRAFFIC_MASKS + (half if kind == TRAFFIC_READS else 0) + other // TRAFFIC_MASK_BITS
    st[mask] |= 1 << other % TRAFFIC_MASK_BITS
