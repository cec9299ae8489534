"""Several rounds of a mixture-of-experts layer in one launch: dispatch, expert, combine, and again (xDeepServe 3.2).

Nothing but the protocols' own fields and acknowledgements keeps the ranks together, so a fast rank may be a round ahead
of a slow one.  Between two phases a rank's cores meet: each drains what it issued, then all pass a barrier, because
what one core wrote (rows, counts, positions, outputs) others read in the next phase, and every phase uses the data
buffer from its start.

Each buffer of the app data area holds its rounds one behind the other; see `parameters.Rounds`.
"""

from xccl_emu.kernels.combine import combine
from xccl_emu.kernels.counts import INDEX_BYTES, load_counts
from xccl_emu.kernels.dispatch import ROUTE_BYTES, dispatch
from xccl_emu.kernels.expert import dummy_expert
from xccl_emu.kernels.group import align, barrier
from xccl_emu.kernels.parameters import Areas, Buffers, Group, Rounds
from xccl_emu.lang import kernel, load, quiet

DISPATCH, EXPERT, COMBINE = 1, 2, 4
"""Bits of ``parts``: which phases each round has."""


def expert_round(core, c: Group, b: Buffers):
    """The dummy expert on this core's part of the rows that dispatch received."""
    rows = yield from load_counts(b.counts, 0, "row counts loaded", c)
    yield from dummy_expert(rows * core // c.cores, rows * (core + 1) // c.cores, c, b)


def one_round(rank, core, r, tokens, rounds: Rounds, c: Group, b: Buffers, dispatches: Areas, combines: Areas):
    """The phases of round ``r`` on a rank with so many tokens; the buffers are those of the round."""
    if rounds.parts & DISPATCH:
        yield from dispatch(rank, core, tokens, rounds.dispatch_event + r, c, b, dispatches)
        yield quiet(sync="received rows visible")
        yield from barrier(0, "all cores have received")
    if rounds.parts & EXPERT:
        yield from expert_round(core, c, b)
        yield quiet(sync="expert outputs visible")
        yield from barrier(0, "all cores have computed")
    if rounds.parts & COMBINE:
        yield from combine(rank, core, tokens, rounds.combine_event + r, c, b, combines)
        yield quiet(sync="outputs visible")
        yield from barrier(0, "all cores have combined")


@kernel
def moe_layers(rank, core, rounds: Rounds, c: Group, b: Buffers, dispatches: Areas, combines: Areas):
    """Run the phases in ``rounds.parts`` once for each round."""
    for r in range(rounds.n_rounds):
        tokens = yield load(rounds.batches + 4 * r, 4)
        token = r * rounds.tokens_max
        row = r * rounds.rows_max
        yield from one_round(
            rank, core, r, tokens, rounds, c,
            Buffers(
                x=b.x + token * 2 * c.hidden,
                topk=b.topk + token * INDEX_BYTES,
                pos=b.pos + token * INDEX_BYTES,
                weights=b.weights + token * INDEX_BYTES,
                recv_x=b.recv_x + row * c.payload,
                route=b.route + row * ROUTE_BYTES,
                counts=b.counts + r * align(4 * c.n_ranks * c.n_local),
                y=b.y + row * 2 * c.hidden,
                out=b.out + token * 2 * c.hidden,
            ), dispatches, combines,
        )  # fmt: skip
