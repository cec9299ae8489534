"""Several rounds of a layer in one launch: DeepEP's low-latency dispatch, expert, combine, and again.

Nothing but the signals keeps the ranks together; `kernels/deepep.py` says why that is enough.

With hooks, two rounds go side by side, as DeepEP's users run two microbatches: between the send and the receive phase
of a call of one round the expert of the other computes.  Each call is received before the next one is sent.
"""

from xccl_emu.kernels.counts import INDEX_BYTES
from xccl_emu.kernels.deepep import deepep_dispatch, receive_dispatch, send_dispatch
from xccl_emu.kernels.deepep_combine import deepep_combine, receive_combine, send_combine
from xccl_emu.kernels.dispatch import ROUTE_BYTES
from xccl_emu.kernels.group import align, barrier
from xccl_emu.kernels.moe import expert_round
from xccl_emu.kernels.parameters import Buffers, Group, Rounds, Sets
from xccl_emu.lang import kernel, load, quiet

SEND_DISPATCH, RECEIVE_DISPATCH, EXPERT, SEND_COMBINE, RECEIVE_COMBINE = range(5)
SIDE_BY_SIDE = 0x9785634120
"""The phases of two rounds, a digit for each from the lowest on: which phase, twice, and which of the two."""
PHASES = 10


def one_round(rank, core, tokens, call, c: Group, b: Buffers, s: Sets):
    """Dispatch in the call of that number, expert, combine; the buffers are those of the round.

    What each core's expert has put out is visible to all when combine's first step is over.
    """
    yield from deepep_dispatch(rank, core, tokens, call, c, b, s)
    yield quiet(sync="received rows visible")
    yield from barrier(0, "all cores have received")
    yield from expert_round(core, c, b)
    yield from deepep_combine(rank, core, tokens, call + 1, c, b, s)
    yield quiet(sync="outputs visible")


@kernel
def deepep_layers(rank, core, rounds: Rounds, c: Group, b: Buffers, s: Sets):
    """Run them once for each round; nothing but their own signals keeps the ranks together."""
    for r in range(rounds.n_rounds):
        tokens = yield load(rounds.batches + 4 * r, 4)
        token = r * rounds.tokens_max
        row = r * rounds.rows_max
        yield from one_round(
            rank, core, tokens, rounds.dispatch_event + 2 * r, c,
            Buffers(
                x=b.x + token * 2 * c.hidden,
                topk=b.topk + token * INDEX_BYTES,
                weights=b.weights + token * INDEX_BYTES,
                recv_x=b.recv_x + row * c.payload,
                route=b.route + row * ROUTE_BYTES,
                counts=b.counts + r * align(4 * c.n_ranks * c.n_local),
                y=b.y + row * 2 * c.hidden,
                out=b.out + token * 2 * c.hidden,
            ), s,
        )  # fmt: skip


def one_phase(phase, rank, core, batch, call, c: Group, b: Buffers, s: Sets):
    """A phase of a round; ``batch`` is where its number of tokens stands."""
    if phase == SEND_DISPATCH:
        tokens = yield load(batch, 4)
        yield from send_dispatch(rank, core, tokens, call, c, b, s)
    elif phase == RECEIVE_DISPATCH:
        yield from receive_dispatch(rank, core, call, c, b, s)
        yield quiet(sync="received rows visible")
        yield from barrier(0, "all cores have received")
    elif phase == EXPERT:
        yield from expert_round(core, c, b)
        yield quiet(sync="expert outputs visible")
    elif phase == SEND_COMBINE:
        yield from send_combine(rank, core, call, c, b, s)
    else:
        tokens = yield load(batch, 4)
        yield from receive_combine(rank, core, tokens, call, c, b, s)
        yield quiet(sync="outputs visible")


@kernel
def deepep_hooks(rank, core, rounds: Rounds, c: Group, b: Buffers, s: Sets):
    """Two rounds at a time side by side; the last one alone if their number is odd."""
    call = rounds.dispatch_event - 1
    for i in range((rounds.n_rounds + 1) // 2 * PHASES):
        digit = SIDE_BY_SIDE >> i % PHASES * 4 & 15
        r = i // PHASES * 2 + digit % 2
        if r < rounds.n_rounds:
            phase = digit // 2
            if phase == SEND_DISPATCH or phase == SEND_COMBINE:
                call = call + 1
            token = r * rounds.tokens_max
            row = r * rounds.rows_max
            yield from one_phase(
                phase, rank, core, rounds.batches + 4 * r, call, c,
                Buffers(
                    x=b.x + token * 2 * c.hidden,
                    topk=b.topk + token * INDEX_BYTES,
                    weights=b.weights + token * INDEX_BYTES,
                    recv_x=b.recv_x + row * c.payload,
                    route=b.route + row * ROUTE_BYTES,
                    counts=b.counts + r * align(4 * c.n_ranks * c.n_local),
                    y=b.y + row * 2 * c.hidden,
                    out=b.out + token * 2 * c.hidden,
                ), s,
            )  # fmt: skip
