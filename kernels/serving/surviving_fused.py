"""Layers that go on with fewer ranks: FusedDispatch, experts and FusedCombine, one of whose ranks may be lost.

A round is made by the kernels that are launched elsewhere.  What makes it safe to go on, beyond what makes it safe to
go back (`abortable_layer`):

- A contribution has its place by token and choice, whichever rank sends it, and an arrival says nothing of its sender.
  What a lost rank has in flight, or sends before it sees the word, would pass for what another rank sent.  So
  contributions, arrivals and what is due of them are double, for the epoch before a loss and the one after it.
- Messages and counts have places by their source, and nobody reads what a lost rank wrote.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.aborts import Abort, unaborted
from xccl_emu.kernels.experts.counts import FIELD_BYTES
from xccl_emu.kernels.experts.parameters import Buffers, Counting, Group, LayerBuffers
from xccl_emu.kernels.experts.rounds import settle
from xccl_emu.kernels.fused.abortable_layer import WholeLayer
from xccl_emu.kernels.fused.combine import bring_back
from xccl_emu.kernels.fused.dispatch import offer_tokens, take_tokens
from xccl_emu.kernels.fused.parameters import Fused
from xccl_emu.kernels.serving.membership import END, EPOCH, HEIR, WHOLE, Member
from xccl_emu.kernels.serving.replicas import Attempts, Replicas
from xccl_emu.kernels.serving.survivors import gather_slots, next_attempt, run_experts


def layer(core, me, tokens, event, lost, c: Group, b: Buffers, f: Fused, r: Replicas, x: Abort):
    """Make one attempt: the gather, dispatch, the dummy expert and combine."""
    yield from gather_slots(core, tokens, lost, c, b, r)
    yield from offer_tokens(me, core, tokens, event, c, b._replace(topk=r.slots), f, x)
    yield from take_tokens(me, core, event, c, b, f, x)
    yield from settle()
    received = yield from unaborted(x)
    if received:
        yield from run_experts(core, lost, c, b, r)
    yield from settle()
    yield from bring_back(me, core, tokens, c, b._replace(topk=r.slots), f, x)
    yield from settle()


@xl.kernel
def rank(
    core, sets, tokens_max, c: Counting, b: LayerBuffers, stride: Buffers, f: WholeLayer, r: Replicas, a: Attempts,
    g: Member
):  # fmt: skip
    """The rounds of one core of a rank, whose buffers lie ``stride`` bytes apart.

    ``sets``: bytes from the contributions of an epoch to the next one, for ``tokens_max`` tokens.
    """
    now = WHOLE * EPOCH
    while now != END:
        i = now % EPOCH
        lost = now // EPOCH % HEIR
        epoch = now // EPOCH // EPOCH
        fields = epoch * tokens_max * FIELD_BYTES
        tokens = yield xl.load(a.batches + i * a.batch_bytes, 4)
        x_epoch = (epoch + 1) * EPOCH - 1
        yield from layer(
            core, g.me, tokens, epoch * EPOCH + i + 1, min(lost, c.n_ranks), c,
            Buffers(
                x=b.x + i * stride.x, topk=b.topk + i * stride.topk, weights=b.weights + i * stride.weights,
                recv_x=b.recv_x + i * stride.recv_x, route=b.route + i * stride.route,
                counts=b.counts + i * stride.counts, y=b.y + i * stride.y, out=b.out + i * stride.out,
            ), f._replace(
                combine=f.combine + epoch * sets, arrivals=f.arrivals + fields, due=f.due + fields, exchange=0
            ), r, Abort(g.word + g.me * g.pitch, x_epoch, 0, lost),
        )  # fmt: skip
        now = yield from next_attempt(core, now, c, a, g, Abort(g.word + g.me * g.pitch, x_epoch))
