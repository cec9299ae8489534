"""Layers that may be rolled back: FusedDispatch, experts and FusedCombine, with an abort at any moment.

An iteration is a round of the layer, by the kernels that are launched elsewhere.  What makes it safe to go back:

- The event ID of an attempt is its epoch and iteration.  So no field of an aborted attempt is taken for one of the
  next; the table is chosen by the iteration's parity, since epochs are even numbers apart.
- A rank announces that it has come to an epoch when all that its cores did before is done.  Nobody begins
  before all have announced it, so then nobody reads earlier messages or contributions, and no arrival is under way.
- Contributions of an attempt come from ranks that have the counts of the token's home.  Before it sends those it counts
  what has arrived as waited for: so arrivals of aborted attempts are for no later one.
- Who has heard of an abort assembles, computes and sends nothing more, so what did not come is never used.  Each core
  checks after a barrier; one that has left something out heard before it, so no core goes on to what needs that.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.aborts import Abort, unaborted
from xccl_emu.kernels.experts.counts import FIELD_BYTES
from xccl_emu.kernels.experts.dummy import dummy_expert
from xccl_emu.kernels.experts.parameters import Buffers, Counting, Group, LayerBuffers, Rounds
from xccl_emu.kernels.experts.rounds import next_round, settle
from xccl_emu.kernels.fused.combine import bring_back
from xccl_emu.kernels.fused.dispatch import Dispatches, offer_tokens, take_tokens
from xccl_emu.kernels.fused.parameters import Fused
from xccl_emu.kernels.rollback import END, EPOCH, OfRank, RankWords, fails


def forget(rank, core, tokens, c: Group, f: Fused):
    """Count all that has arrived for this core's tokens as waited for."""
    for t in range(tokens * core // c.cores, tokens * (core + 1) // c.cores):
        own = rank * c.die_bytes + t * FIELD_BYTES
        yield xl.dcci(f.arrivals + own, sync="arrivals line")
        arrived = yield xl.load(f.arrivals + own)
        yield xl.store(f.due + own, arrived, sync="arrivals forgotten")


def layer(core, tokens, event, c: Group, b: Buffers, f: Fused, r: RankWords, x: Abort):
    """Make one attempt: dispatch, the dummy expert and combine."""
    yield from forget(r.me, core, tokens, c, f)
    yield from offer_tokens(r.me, core, tokens, event, c, b, f, x)
    yield from take_tokens(r.me, core, event, c, b, f, x)
    yield from settle()
    received = yield from unaborted(x)
    if received:
        yield from dummy_expert(core, c, b)
    yield from settle()
    yield from bring_back(r.me, core, tokens, c, b, f, x)
    yield from settle()


class WholeLayer(Dispatches):
    """What a whole layer touches."""

    combine: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    arrivals: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    due: xl.Own[xl.Updates]


@xl.kernel
def rank(core, n: Rounds, c: Counting, b: LayerBuffers, stride: Buffers, f: WholeLayer, r: OfRank):
    """The rounds of one core of a rank, whose buffers lie ``stride`` bytes apart."""
    word = 0
    left = n.failures
    while word != END:
        i = word % EPOCH
        epoch = word // EPOCH
        abort = r.abort + r.me * r.pitch
        tokens = yield xl.load(n.batches + i * n.batch_bytes, 4)
        yield from layer(
            core, tokens, word + 1, c,
            Buffers(
                x=b.x + i * stride.x, topk=b.topk + i * stride.topk, weights=b.weights + i * stride.weights,
                recv_x=b.recv_x + i * stride.recv_x, route=b.route + i * stride.route,
                counts=b.counts + i * stride.counts, y=b.y + i * stride.y, out=b.out + i * stride.out,
            ), f, r, Abort(abort, epoch),
        )  # fmt: skip
        broken = 0
        if core == 0:
            broken = yield from fails(left, r)
            left -= broken
        word = yield from next_round(core, i, broken, n.resume, c, r, Abort(abort, epoch))
