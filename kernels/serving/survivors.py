"""Rounds of a layer that go on with fewer ranks, however their tokens travel ([xDeepServe] 6.2, stage 2).

A rank is given up at any moment, dead or alive, by a word of a supervisor (`kernels/serving/membership`).  The others
go back to the least round that one of them is in, and go on without it.  Its requests are lost.  Each expert keeps at
least one replica: where an expert was on that rank alone, it takes the slot of an excess replica.

Tables say, for each rank that may be lost and for none, which slot an expert has at each position of a batch, and which
expert a slot has.  A round begins with the gather from experts to slots, which the paper has before dispatch (4.5).
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.aborts import Abort, unaborted
from xccl_emu.kernels.experts.counts import INDEX_BYTES, load_counts
from xccl_emu.kernels.experts.dummy import compute_rows
from xccl_emu.kernels.experts.messages import ROUTE_BYTES
from xccl_emu.kernels.experts.parameters import Buffers, Group, Slots
from xccl_emu.kernels.experts.rounds import settle, share_word
from xccl_emu.kernels.serving.membership import EPOCH, HEIR, MembershipRank, go_on
from xccl_emu.kernels.serving.replicas import Attempts, Replicas


def gather_slots(core, tokens, lost, c: Group, b: Buffers, r: Replicas):
    """Find the slot of each choice of this core's tokens, by their positions in the batch."""
    for t in range(tokens * core // c.cores, tokens * (core + 1) // c.cores):
        for k in range(c.top_k):
            expert = yield xl.load(b.topk + t * INDEX_BYTES + 4 * k, 4, step=1)
            slot = expert
            if expert >= 0:
                slot = yield xl.load(r.maps + lost * r.map_bytes + 4 * (t * r.experts + expert), 4, step=1)
            yield xl.store(r.slots + t * INDEX_BYTES + 4 * k, slot, 4, step=1)
    yield from settle()


def run_experts(core, lost, c: Group, b: Buffers, r: Replicas):
    """Compute this core's part of the rows, each by the weights that its slot has now."""
    rows = yield from load_counts(b.counts, 0, "row counts loaded", c)
    first = rows * core // c.cores
    last = rows * (core + 1) // c.cores
    for i in range(first, last):
        scale = yield xl.load(b.route + i * ROUTE_BYTES, 4, step=2)
        slot = yield xl.load(b.route + i * ROUTE_BYTES + 16, 4, step=2)
        expert = yield xl.load(r.held + 4 * (lost * c.n_ranks * c.n_local + slot), 4, step=2)
        yield xl.store(r.held_routes + i * ROUTE_BYTES, scale, 4, step=2)
        yield xl.store(r.held_routes + i * ROUTE_BYTES + 16, expert, 4, step=2)
    yield xl.quiet(step=2, sync="weights found")
    yield from compute_rows(first, last, c, b._replace(route=r.held_routes), Slots())


def next_attempt(core, now, c: Group, a: Attempts, g: MembershipRank, x: Abort):
    """End an attempt: return word and round of the next one, or the end, as `membership.go_on` does."""
    i = now % EPOCH
    if core == 0:
        good = yield from unaborted(x)
        if good:
            yield xl.store(a.took_part + 8 * i, 1 + min(now // EPOCH % HEIR, c.n_ranks), step=6)
        now = yield from go_on(i + good, good, now // EPOCH, g)
    if c.cores > 1:
        now = yield from share_word(core, now, a.resume)
    return now
