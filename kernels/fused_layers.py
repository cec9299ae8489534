"""Several rounds of a layer in one launch: FusedDispatch, expert, FusedCombine, and again (CloudMatrix384 4.2.1).

Nothing but the protocol's own counts and arrivals keeps the ranks together; `kernels/fused.py` says why that is enough.
Between two phases the cores of a rank meet, each with all that it issued done: what one wrote others read in the next
phase, and a rank may go on to the next round only when all of its cores have their contributions.
"""

from xccl_emu.kernels.counts import INDEX_BYTES
from xccl_emu.kernels.dispatch import ROUTE_BYTES
from xccl_emu.kernels.fused import fused_dispatch
from xccl_emu.kernels.fused_combine import fused_combine
from xccl_emu.kernels.group import align, barrier
from xccl_emu.kernels.moe import expert_round
from xccl_emu.kernels.parameters import Buffers, Fused, Group, Rounds
from xccl_emu.lang import kernel, load, quiet


def one_round(rank, core, tokens, event, c: Group, b: Buffers, f: Fused):
    """The phases of one round; the buffers are those of the round."""
    yield from fused_dispatch(rank, core, tokens, event, c, b, f)
    yield quiet(sync="received rows visible")
    yield from barrier(0, "all cores have assembled")
    yield from expert_round(core, c, b)
    yield quiet(sync="expert outputs visible")
    yield from barrier(0, "all cores have computed")
    yield from fused_combine(rank, core, tokens, c, b, f)
    yield quiet(sync="outputs visible")
    yield from barrier(0, "all cores have combined")


@kernel
def fused_layers(rank, core, rounds: Rounds, c: Group, b: Buffers, f: Fused):
    """Run the phases once for each round."""
    for r in range(rounds.n_rounds):
        tokens = yield load(rounds.batches + 4 * r, 4)
        token = r * rounds.tokens_max
        row = r * rounds.rows_max
        yield from one_round(
            rank, core, tokens, rounds.dispatch_event + r, c,
            Buffers(
                x=b.x + token * 2 * c.hidden,
                topk=b.topk + token * INDEX_BYTES,
                weights=b.weights + token * INDEX_BYTES,
                recv_x=b.recv_x + row * c.payload,
                route=b.route + row * ROUTE_BYTES,
                counts=b.counts + r * align(4 * c.n_ranks * c.n_local),
                y=b.y + row * 2 * c.hidden,
                out=b.out + token * 2 * c.hidden,
            ), f,
        )  # fmt: skip
