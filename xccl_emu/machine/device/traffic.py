"""What the cores of a die ask of other dies, counted request by request when they are granted.

Counters begin again with every run. No program can observe them: they lie after the tables of last writers.
"""

from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device import touched
from xccl_emu.machine.device.words import jit


@jit
def note_traffic(st, base, op):
    """Count a request that was granted, if it touches memory (polls do not count) of another die."""
    if ops.FETCHES >> op & 1:
        address, nbytes = touched.read_by(st, base + REQUEST, op)
        _note(st, base, address, nbytes, ms.TRAFFIC_READS)
    if ops.WRITES >> op & 1:
        address, nbytes = touched.written_by(st, base + REQUEST, op)
        _note(st, base, address, nbytes, ms.TRAFFIC_WRITES if ops.COPIES >> op & 1 else ms.TRAFFIC_FLAGS)
    if op == rq.OP_PUT_SIGNAL:
        _note(st, base, st[base + REQUEST + ops.PUT_SIGNAL.signal], 8, ms.TRAFFIC_FLAGS)


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
