"""Layers that go on with fewer ranks: pull dispatch, experts and combine, one of whose ranks may be lost at any moment.

A round is made by the kernels that are launched elsewhere.  What makes it safe to go on, beyond what makes it safe to
go back (`abortable_experts`):

- A block is written when its reader has acknowledged the round before, or an epoch has begun since.  A reader that is
  lost may not have; but a block is for one reader, and for that one nothing is written any more.
- A rank that hears of a loss while it waits for an acknowledgment leaves the block as it is, since its reader may not
  have heard, and offers nothing of that attempt to anybody.
- A rank that is given up alive goes on reading what was for it, and writing its own fields, which nobody looks at in
  the new epoch, until it sees the word.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.aborts import Abort
from xccl_emu.kernels.experts.parameters import Buffers, Counting, Group, LayerBuffers
from xccl_emu.kernels.experts.rounds import settle
from xccl_emu.kernels.pull.combine import acknowledge_all, offer, sum_tokens
from xccl_emu.kernels.pull.dispatch import offer_tokens, take_tokens
from xccl_emu.kernels.pull.parameters import Areas, Pulls
from xccl_emu.kernels.serving.membership import END, EPOCH, HEIR, WHOLE, Member
from xccl_emu.kernels.serving.replicas import Attempts, Replicas
from xccl_emu.kernels.serving.survivors import gather_slots, next_attempt, run_experts


def layer(core, me, tokens, event, lost, c: Group, b: Buffers, d: Areas, e: Areas, r: Replicas, x: Abort):
    """Make one attempt: the gather, dispatch, the dummy expert and combine."""
    yield from gather_slots(core, tokens, lost, c, b, r)
    yield from offer_tokens(me, core, tokens, event, c, b._replace(topk=r.slots), d, x)
    yield from take_tokens(me, core, event, c, b, d, x)
    yield from settle()
    yield from run_experts(core, lost, c, b, r)
    yield from settle()
    yield from offer(me, core, event, c, b, e, x)
    yield from sum_tokens(me, core, tokens, event, c, b._replace(topk=r.slots), e, x)
    yield from acknowledge_all(me, core, event, e.done, c, x)
    yield from settle()


@xl.kernel
def rank(
    core, c: Counting, b: LayerBuffers, stride: Buffers, d: Pulls, e: Pulls, r: Replicas, a: Attempts, g: Member
):  # fmt: skip
    """The rounds of one core of a rank, whose buffers lie ``stride`` bytes apart."""
    now = WHOLE * EPOCH
    epoch = 0
    first = 1
    while now != END:
        i = now % EPOCH
        lost = now // EPOCH % HEIR
        if now // EPOCH // EPOCH > epoch:
            epoch = now // EPOCH // EPOCH
            first = epoch * EPOCH + i + 1
        tokens = yield xl.load(a.batches + i * a.batch_bytes, 4)
        x_epoch = (epoch + 1) * EPOCH - 1
        yield from layer(
            core, g.me, tokens, epoch * EPOCH + i + 1, min(lost, c.n_ranks), c,
            Buffers(
                x=b.x + i * stride.x, topk=b.topk + i * stride.topk, pos=b.pos + i * stride.pos,
                weights=b.weights + i * stride.weights, recv_x=b.recv_x + i * stride.recv_x,
                route=b.route + i * stride.route, counts=b.counts + i * stride.counts, y=b.y + i * stride.y,
                out=b.out + i * stride.out,
            ), d, e, r, Abort(g.word + g.me * g.pitch, x_epoch, first, lost),
        )  # fmt: skip
        now = yield from next_attempt(core, now, c, a, g, Abort(g.word + g.me * g.pitch, x_epoch))
