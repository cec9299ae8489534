"""What a core may learn from the lines that it has cached: what had been released there when it fetched them."""

from xccl_emu.check.device import accesses
from xccl_emu.check.sampling.device.monitor import clocks as monitor_clocks
from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.sampling.device.monitor.shadow import sync_number
from xccl_emu.lang import operations as ops
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.cache import LINE_SHIFT, is_hit
from xccl_emu.machine.device.words import jit

_HALVES = ms.CACHE_LINE_BYTES // 4


@jit
def _place(space, i, address):
    """Return which of a core's places is of the line with this address, or else is free."""
    st, m, found = space.st, space.m, -1
    core, lines = m[m[ml.CORE_NUMBER] + i], st[ms.CACHE_LINES]
    for k in range(i * lines, (i + 1) * lines):
        line = m[m[ml.LINES] + 2 * k] - 1
        if line == address >> LINE_SHIFT:
            return k
        if line < 0 or not is_hit(st, core, line << LINE_SHIFT, 0):
            found = k
    return found


@jit
def _half_row(m, k, address):
    """Return the row of 4 bytes of the line in a place."""
    return m[ml.LINE_ROWS] + (k * _HALVES + (address >> 2) % _HALVES) * m[ml.WORDS]


@jit
def row_of(space, i, address):
    """Return the row of what had been released in 4 bytes when their line was fetched, or -1 if nothing had."""
    m, k = space.m, _place(space, i, address)
    return _half_row(m, k, address) if m[m[ml.LINES] + 2 * k + 1] >> (address >> 2) % _HALVES & 1 else -1


@jit
def went_through(space, i):
    """A load or store has gone through a core's cache: keep what is released in a line that it has fetched.

    Who reads bytes that it has stored itself learns nothing.
    """
    m, address, nbytes = space.m, space.rows[0, accesses.START], space.rows[0, accesses.NBYTES]
    k = _place(space, i, address)
    if m[ml.X_FETCHES]:
        _fetch(space, k, address >> LINE_SHIFT)
    if ops.STORES >> m[ml.X_OP] & 1:
        for half in range(address + 3 >> 2, address + nbytes >> 2):
            m[m[ml.LINES] + 2 * k + 1] &= ~(1 << half % _HALVES)


@jit
def _fetch(space, k, line):
    """Keep what has been released in a line by now."""
    m = space.m
    m[m[ml.LINES] + 2 * k], m[m[ml.LINES] + 2 * k + 1] = line + 1, 0
    for address in range(line << LINE_SHIFT, line + 1 << LINE_SHIFT, 4):
        number = sync_number(space, address // ms.GRANULE_BYTES)
        row = monitor_clocks.released_row(m, number - 1, address) if number else -1
        if row >= 0:
            monitor_clocks.copy_row(m, space.clocks, _half_row(m, k, address), row)
            m[m[ml.LINES] + 2 * k + 1] |= 1 << (address >> 2) % _HALVES
