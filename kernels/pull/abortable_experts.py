"""Layers that may be rolled back: pull dispatch, experts and combine, with an abort at any moment.

An iteration is a round of the layer, by the kernels that are launched elsewhere.  What makes it safe to go back:

- The event ID of an attempt is its epoch and iteration.  So no field of an aborted attempt is taken for one of the
  next, and no acknowledgment: all are of the own attempt, or less than what is waited for.
- A rank announces that it has come to an epoch when all that its cores did before is done.  Nobody begins before
  all have announced it, so then nobody reads earlier blocks any more: in the first round of an epoch they are free.
- What a rank publishes is there, also if it has heard of an abort meanwhile: its peers may not have, and pull it.
- Who has heard acknowledges what it has not pulled.  It reads no more of that in this epoch.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.aborts import Abort
from xccl_emu.kernels.experts.dummy import dummy_expert
from xccl_emu.kernels.experts.parameters import Buffers, Counting, Group, LayerBuffers, Rounds
from xccl_emu.kernels.experts.rounds import next_round, settle
from xccl_emu.kernels.pull.combine import acknowledge_all, offer, sum_tokens
from xccl_emu.kernels.pull.dispatch import offer_tokens, take_tokens
from xccl_emu.kernels.pull.parameters import Areas, Pulls
from xccl_emu.kernels.rollback import END, EPOCH, OfRank, RankWords, fails


def layer(core, tokens, event, whole, c: Group, b: Buffers, d: Areas, e: Areas, r: RankWords, x: Abort):
    """Make one attempt: dispatch, and in a whole layer the dummy expert and combine."""
    yield from offer_tokens(r.me, core, tokens, event, c, b, d, x)
    yield from take_tokens(r.me, core, event, c, b, d, x)
    yield from settle()
    if whole:
        yield from dummy_expert(core, c, b)
        yield from settle()
        yield from offer(r.me, core, event, c, b, e, x)
        yield from sum_tokens(r.me, core, tokens, event, c, b, e, x)
        yield from acknowledge_all(r.me, core, event, e.done, c, x)
        yield from settle()


@xl.kernel
def rank(core, n: Rounds, c: Counting, b: LayerBuffers, stride: Buffers, d: Pulls, e: Pulls, r: OfRank):
    """The rounds of one core of a rank, whose buffers lie ``stride`` bytes apart."""
    word = 0
    epoch = 0
    first = 1
    left = n.failures
    while word != END:
        i = word % EPOCH
        if word // EPOCH > epoch:
            first = word + 1
        epoch = word // EPOCH
        abort = r.abort + r.me * r.pitch
        tokens = yield xl.load(n.batches + i * n.batch_bytes, 4)
        yield from layer(
            core, tokens, word + 1, n.whole, c,
            Buffers(
                x=b.x + i * stride.x, topk=b.topk + i * stride.topk, pos=b.pos + i * stride.pos,
                weights=b.weights + i * stride.weights, recv_x=b.recv_x + i * stride.recv_x,
                route=b.route + i * stride.route, counts=b.counts + i * stride.counts, y=b.y + i * stride.y,
                out=b.out + i * stride.out,
            ), d, e, r, Abort(abort, epoch, first),
        )  # fmt: skip
        broken = 0
        if core == 0:
            broken = yield from fails(left, r)
            left -= broken
        word = yield from next_round(core, i, broken, n.resume, c, r, Abort(abort, epoch))
