"""What the cores of a die ask of other dies, counted request by request when they are granted.

Counters begin again with every run. No program can observe them: they lie after the tables of last writers.
"""

from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.words import jit


@jit
def note_traffic(st, base, op):
    """Count a request that was granted, if it touches memory (polls do not count) of another die."""
    a, b, c = st[base + REQUEST + 1], st[base + REQUEST + 2], st[base + REQUEST + 3]
    if op < rq.OP_DMA:
        if op == rq.OP_LOAD:
            _note(st, base, a, b, ms.TRAFFIC_READS)
        elif op == rq.OP_STORE:
            _note(st, base, a, c, ms.TRAFFIC_FLAGS)
        elif op == rq.OP_ATOMIC_ADD:
            _note(st, base, a, 8, ms.TRAFFIC_FLAGS)
    elif op == rq.OP_MTU_IN:
        _note(st, base, a, c, ms.TRAFFIC_READS)
    elif op == rq.OP_MTU_OUT:
        _note(st, base, b, c, ms.TRAFFIC_WRITES)
        if st[base + REQUEST + 6]:
            _note(st, base, st[base + REQUEST + 4], 8, ms.TRAFFIC_FLAGS)
    elif op == rq.OP_DMA:
        _note(st, base, a, c, ms.TRAFFIC_READS)
        _note(st, base, b, c, ms.TRAFFIC_WRITES)
    else:
        _note(st, base, a, ms.GRANULE_BYTES if op == rq.OP_PUT else 8, ms.TRAFFIC_FLAGS)


@jit
def _note(st, base, address, nbytes, kind):
    other = address >> st[ms.DIE_SHIFT]
    if other == st[base + ms.DIE]:
        return
    own = st[ms.TRAFFIC_BASE] + st[base + ms.DIE] * st[ms.TRAFFIC_WORDS]
    st[own + kind] += 1
    st[own + (ms.TRAFFIC_READ_BYTES if kind == ms.TRAFFIC_READS else ms.TRAFFIC_WRITE_BYTES)] += nbytes
    half = (st[ms.TRAFFIC_WORDS] - ms.TRAFFIC_MASKS) // 2
    mask = own + ms.TRAFFIC_MASKS + (half if kind == ms.TRAFFIC_READS else 0) + other // ms.TRAFFIC_MASK_BITS
    st[mask] |= 1 << other % ms.TRAFFIC_MASK_BITS
