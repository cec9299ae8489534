"""Several rounds of a mixture-of-experts layer in one launch: dispatch, expert, combine, and again (xDeepServe 3.2).

Nothing but the protocols' own fields and acknowledgements keeps the ranks together, so a fast rank may be a round ahead
of a slow one.  Between two phases a rank's cores meet: each drains what it issued, then all pass a barrier, because
what one core wrote (rows, counts, positions, outputs) others read in the next phase, and every phase uses the data
buffer from its start.

Each buffer of the app data area holds its rounds one behind the other; see `moe_layers`.
"""

from xccl_emu.kernels.combine import combine
from xccl_emu.kernels.dispatch import INDEX_BYTES, ROUTE_BYTES, dispatch
from xccl_emu.kernels.expert import stand_in_expert
from xccl_emu.kernels.group import align, barrier
from xccl_emu.lang import MTU_IN, SCALAR, fence, kernel, load, mtu_in, set_flag, ub_load, wait_flag

DISPATCH, EXPERT, COMBINE = 1, 2, 4
"""Bits of ``parts``: which phases each round has."""


def count_rows(counts, n_slots):
    """Return how many rows dispatch received, the sum of its table of counts."""
    yield mtu_in(counts, 0, 4 * n_slots)
    yield set_flag(MTU_IN, SCALAR, 0, sync="row counts loaded")
    yield wait_flag(MTU_IN, SCALAR, 0, sync="row counts loaded")
    rows = 0
    for s in range(n_slots):
        n = yield ub_load(4 * s)
        rows = rows + n
    return rows


def expert_round(core, cores, recv_x, route, counts, y, n_slots, hidden, payload, dtype, quantized):
    """The stand-in expert on this core's part of the rows that dispatch received."""
    rows = yield from count_rows(counts, n_slots)
    first = rows * core // cores
    last = rows * (core + 1) // cores
    yield from stand_in_expert(first, last, recv_x, route, y, hidden, payload, dtype, quantized)


@kernel
def moe_layers(
    rank, core, cores, rounds, parts, batches, dispatch_event, combine_event, x, topk, pos, weights, recv_x, route,
    counts, y, out, tokens_max, rows_max, n_ranks, n_local, top_k, hidden, payload, dtype, quantized, shared, by_dma,
    die_bytes, scratch, staging, blocks, block_bytes, fields, done, room, combine_blocks, combine_block_bytes,
    combine_fields, combine_done, combine_room,
):  # fmt: skip
    """Run ``rounds`` rounds of the phases in ``parts``.

    ``batches`` is a table of 4-byte numbers of tokens, one for each round.  From round to round ``x`` and ``out`` move
    on by ``tokens_max`` rows of hidden states, ``topk``, ``pos`` and ``weights`` by as many rows of a table;
    ``recv_x``, ``route`` and ``y`` by ``rows_max`` rows; ``counts`` by a table of counts in whole pieces.
    ``dispatch_event`` and ``combine_event`` are those of the first round.
    """
    n_slots = n_ranks * n_local
    for r in range(rounds):
        tokens = yield load(batches + 4 * r, 4)
        first = tokens * core // cores
        last = tokens * (core + 1) // cores
        table = r * tokens_max * INDEX_BYTES
        states = r * tokens_max * 2 * hidden
        row = r * rows_max
        counted = counts + r * align(4 * n_slots)
        if parts & DISPATCH:
            yield from dispatch(
                rank, core, cores, first, last, dispatch_event + r, x + states, topk + table, pos + table,
                recv_x + row * payload, route + row * ROUTE_BYTES, counted, n_ranks, n_local, top_k, hidden, payload,
                dtype, quantized, by_dma, die_bytes, scratch, blocks, block_bytes, fields, done, room,
            )  # fmt: skip
            yield fence(sync="received rows visible")
            yield from barrier(0, "all cores have received")
        if parts & EXPERT:
            yield from expert_round(
                core, cores, recv_x + row * payload, route + row * ROUTE_BYTES, counted, y + row * 2 * hidden, n_slots,
                hidden, payload, dtype, quantized,
            )  # fmt: skip
            yield fence(sync="expert outputs visible")
            yield from barrier(0, "all cores have computed")
        if parts & COMBINE:
            yield from combine(
                rank, core, cores, first, last, combine_event + r, y + row * 2 * hidden, topk + table, pos + table,
                weights + table, out + states, counted, n_ranks, n_local, top_k, hidden, dtype, shared, by_dma,
                die_bytes, staging, combine_blocks, combine_block_bytes, combine_fields, combine_done, combine_room,
            )  # fmt: skip
            yield fence(sync="outputs visible")
            yield from barrier(0, "all cores have combined")
