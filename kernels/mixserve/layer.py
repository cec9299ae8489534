"""MixServe's fused AG-Dispatch and RS-Combine (MixServe III-D, Algorithms 1 and 2), with and without overlap.

A cluster of ``nodes`` nodes of ``ranks`` ranks.  A rank of a node is (u, a): shard ``a`` of ``shards``, of group ``u``.
Where d_DP = d_EP there is one group; where d_DP > d_EP the groups of a node have tokens of their own, and share its
experts; where d_DP < d_EP they have the same tokens, and experts of their own.  A rank talks to its own group and shard
(u, a) on other nodes, and within its node to those that have the same experts (``ep_first``, ``ep_size``: all-gather of
dispatch, reduce-scatter of combine) or the same tokens (``dp_first``, ``dp_size``: all-gather of combine).

Each core has some of the tokens, and inboxes and fields of its own: cores have nothing in common, like channels.
Nothing is acknowledged: a rank hears of all that write to it in each round (in each step, for the inboxes of the
reduce-scatter), and so knows that they have read what it wrote in the one before the last; inboxes are double.

Order of summation: over the ranks of the experts' group from the first on, in FP32, rounded once; then over a token's
choices in their order, in FP32, the product rounded by itself, rounded once; where d_DP < d_EP, then over the groups.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.experts.dummy import EIGHTH, ONE
from xccl_emu.kernels.mixserve.combine import combine
from xccl_emu.kernels.mixserve.dispatch import dispatch
from xccl_emu.kernels.mixserve.rows import (
    ClusterRank,
    Inboxes,
    Tables,
    end_sums,
    load_terms,
    round_sum,
    sum_left,
    terms_added,
    terms_here,
)


def dummy_experts(r, c: ClusterRank, t: Tables, b: Inboxes):
    """No protocol: a rank's part of what expert e makes of a row is the row times 1 + ((e + rank) mod 7) / 8."""
    die = (c.node * c.ranks + c.local) * c.pitch
    first = r % 2 * c.nodes * c.groups
    n = 0
    for block in range(c.nodes * c.groups):
        i = 0
        for expert in range(c.experts):
            count = yield xl.load(b.heads + die + (first + block) * c.head + expert * 8)
            factor = ONE + (c.first_expert + expert + c.local - c.ep_first) % 7 * EIGHTH
            for j in range(count):
                row = (block * c.capacity + i + j) * c.row_bytes
                came = b.gathered + die + first * c.capacity * c.row_bytes + row
                yield from load_terms(n, came, c.row_bytes, c)
                at = yield from terms_here(n, c)
                yield xl.v_widen(at, c.acc, c.row_bytes // 2, c.dtype)
                yield from terms_added(n)
                yield xl.v_scale(c.acc, c.row_bytes // 2, factor)
                at = yield from round_sum(n, c.row_bytes, c)
                yield xl.mtu_out(at, t.partial + r * t.partial_bytes + row, c.row_bytes)
                yield from sum_left(n)
                n += 1
            i += count
    yield from end_sums(n, n)
    yield xl.quiet(sync="outputs of experts")


@xl.kernel
def mixserve(c: ClusterRank, t: Tables, b: Inboxes):
    """Rounds of dispatch, dummy experts and combine; or of one of the two."""
    for r in range(c.done, c.done + c.rounds):
        if c.dispatches:
            yield from dispatch(r, c, t, b)
        if c.dispatches and c.combines:
            yield from dummy_experts(r, c, t, b)
        if c.combines:
            yield from combine(r, c, t, b)
