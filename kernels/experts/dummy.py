"""A dummy for an expert: each received row is widened, scaled by a factor of its expert, and rounded.

It is no protocol, only something between dispatch and combine whose bits can be checked:
y = round(x * (1 + (slot mod 7) / 8)), with x the dequantized INT8 (value times scale) or the row as it came.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.experts.counts import FIELD_BYTES, load_counts
from xccl_emu.kernels.experts.messages import ROUTE_BYTES, VERSION_AT
from xccl_emu.kernels.experts.parameters import Buffers, Group, Slots
from xccl_emu.kernels.group import drain_halves, hand_over

ONE = 0x3F800000
EIGHTH = 1 << 20
"""FP32 bits of 1, and what an eighth adds to them (below 2)."""

STALE_MAP = 1
"""Code of `fail`: a token for a slot that has other weights since its map was published."""

BUSY_ENTRIES = 1 << 14
"""Words of 4 bytes that one vector instruction goes through when it takes the place of computing."""


def expert_bytes(hidden: int) -> int:
    """Bytes of the data buffer that `compute_rows` takes: an accumulator, two rows with routes, two that leave."""
    return 12 * hidden + 2 * ROUTE_BYTES


def load_row(half, r, rows, routes, c: Group, b: Buffers):
    """Load a row and its route into a half; what is opaque has a hidden state at its beginning."""
    yield xl.mtu_in(b.recv_x + r * c.payload, rows + half * 2 * c.hidden, min(c.payload, 2 * c.hidden))
    yield xl.mtu_in(b.route + r * ROUTE_BYTES, routes + half * ROUTE_BYTES, ROUTE_BYTES)
    yield xl.set_flag(xl.MTU_IN, xl.SCALAR, half, sync="row loaded")


def refuse_stale(slot, version, since):
    """End the run if the slot has other weights than by that version of the map."""
    yield xl.dcci(since + slot * FIELD_BYTES, sync="slot line")
    from_then = yield xl.load(since + slot * FIELD_BYTES, step=4, sync="slot version in")
    if version < from_then:
        yield xl.fail(STALE_MAP, version, step=4)


def factor_of(route, work, w: Slots):
    """Factor of a row's expert, by its route: of its slot, or the weights that the slot holds, if there are any."""
    slot = yield xl.ub_load(route + 16)
    factor = ONE + slot % 7 * EIGHTH
    if w.held:
        version = yield xl.ub_load(route + VERSION_AT)
        yield from refuse_stale(slot, version, w.since)
        yield xl.mtu_in(w.held + slot * w.nbytes, work, w.nbytes)
        yield from hand_over(xl.MTU_IN, xl.SCALAR, 2, "weights in buffer")
        factor = yield xl.ub_load(work)
    return factor


def compute_rows(first, last, c: Group, b: Buffers, w: Slots):
    """Compute rows ``first`` to ``last``; row i+1 is loaded while row i is computed."""
    acc = 0
    rows = 4 * c.hidden
    routes = rows + 4 * c.hidden
    outs = routes + 2 * ROUTE_BYTES
    if first < last:
        yield from load_row(0, first, rows, routes, c, b)
    for r in range(first, last):
        half = (r - first) % 2
        row = rows + half * 2 * c.hidden
        yield xl.wait_flag(xl.MTU_IN, xl.SCALAR, half, sync="row loaded")
        if r + 1 < last:
            if r > first:
                yield xl.wait_flag(xl.VECTOR, xl.MTU_IN, 1 - half, sync="row used")
            yield from load_row(1 - half, r + 1, rows, routes, c, b)
        factor = yield from factor_of(routes + half * ROUTE_BYTES, outs + 4 * c.hidden, w)
        if c.quantized:
            scale = routes + half * ROUTE_BYTES
            if c.quantized > 1 + xl.RULE_CANN:
                scale = row + c.hidden
            yield xl.v_dequantize(row, acc, c.hidden, scale, c.quantized - 1)
        else:
            yield xl.v_widen(row, acc, c.hidden, c.dtype)
        yield xl.set_flag(xl.VECTOR, xl.MTU_IN, half, sync="row used")
        yield xl.v_scale(acc, c.hidden, factor)
        if r - first >= 2:
            yield xl.wait_flag(xl.MTU_OUT, xl.VECTOR, half, sync="expert output left")
        yield xl.v_narrow(acc, outs + half * 2 * c.hidden, c.hidden, c.dtype)
        yield from hand_over(xl.VECTOR, xl.MTU_OUT, half, "expert output made")
        yield xl.mtu_out(outs + half * 2 * c.hidden, b.y + r * 2 * c.hidden, 2 * c.hidden)
        yield xl.set_flag(xl.MTU_OUT, xl.VECTOR, half, sync="expert output left")
    yield from drain_halves(xl.MTU_OUT, xl.VECTOR, last - first, "expert output left")
    yield from drain_halves(xl.VECTOR, xl.MTU_IN, last - first, "row used")


class DummyBuffers(Buffers):
    """What the dummy expert touches."""

    recv_x: xl.Reads
    route: xl.Reads
    counts: xl.Reads
    y: xl.Writes


@xl.kernel
def dummy_expert(core, c: Group, b: DummyBuffers):
    """Compute this core's part of the rows that dispatch received, by its counts."""
    rows = yield from load_counts(b.counts, 0, "row counts loaded", c)
    yield from compute_rows(rows * core // c.cores, rows * (core + 1) // c.cores, c, b, Slots())


def busy(work, table, step):
    """Run ``work`` vector instructions in place of computing; their result is not used."""
    yield xl.v_fill(table, 4 * BUSY_ENTRIES, step=step)
    for _ in range(work):
        yield xl.v_count(table, table + 4 * BUSY_ENTRIES, BUSY_ENTRIES, 0, 1, step=step)
    yield from hand_over(xl.VECTOR, xl.SCALAR, 0, "computed", step=step)
