"""Plain pull A2E and E2A (xDeepServe 3.3, what trampolines replace): dispatch and combine between two sets of dies.

The steps are the steps of `dispatch` and `combine`: an attention die runs the half that offers tokens and sums
rows, and an expert die the half that pulls tokens and offers rows.  Each attention die reports to each expert die how
much there is for it, and the other way round; nothing goes through a third one.

There is one domain: `dispatch` takes a field for free when its own messages were pulled, and says nothing of others'.
In the `Areas` that the kernels take, every address is on the first die of the kind that has it: ``blocks`` and
``done`` of a dispatch, ``fields`` and ``staging`` of a combine are attention dies', the rest expert dies'.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.aborts import Abort
from xccl_emu.kernels.experts.counts import INDEX_BYTES
from xccl_emu.kernels.experts.dummy import dummy_expert
from xccl_emu.kernels.experts.parameters import Buffers, Counting, Group, LayerBuffers
from xccl_emu.kernels.group import align, barrier
from xccl_emu.kernels.pull.combine import acknowledge_all, offer, sum_tokens
from xccl_emu.kernels.pull.dispatch import offer_tokens, take_tokens
from xccl_emu.kernels.pull.parameters import Areas


def there_and_back(index, core, tokens, event, c: Group, b: Buffers, dispatches: Areas, combines: Areas):
    """Run an attention die's part of a call with this many tokens."""
    yield from offer_tokens(index, core, tokens, event, c, b, dispatches, Abort())
    yield from sum_tokens(index, core, tokens, event, c, b, combines, Abort())
    yield from acknowledge_all(index, core, event, combines.done, c, Abort())
    yield xl.quiet(sync="outputs visible")  # and out of the data buffer, for the next call


class _Offers(Areas):
    blocks: xl.Own[xl.Writes]
    fields: xl.Anywhere[xl.Writes]
    done: xl.Own[xl.Reads]


class _PullsAlone(Areas):
    blocks: xl.Anywhere[xl.Reads]
    fields: xl.Own[xl.Reads]
    done: xl.Anywhere[xl.Writes]
    staging: xl.Own[xl.Updates]


@xl.kernel
def pull_attention(
    index, core, calls, tokens_max, batches: xl.Reads, c: Counting, b: LayerBuffers, dispatches: _Offers,
    combines: _PullsAlone,
):  # fmt: skip
    """Attention die ``index``, call after call; ranks of the group are expert dies.

    ``batches`` is a table of 4-byte numbers of tokens.  From call to call ``x`` and ``out`` move on by ``tokens_max``
    rows of hidden states, ``topk``, ``pos`` and ``weights`` by as many rows of a table.
    """
    for r in range(calls):
        n = yield xl.load(batches + 4 * r, 4)
        table = r * tokens_max * INDEX_BYTES
        states = r * tokens_max * 2 * c.hidden
        yield from there_and_back(
            index, core, n, r + 1, c,
            Buffers(
                x=b.x + states, topk=b.topk + table, pos=b.pos + table, weights=b.weights + table, out=b.out + states
            ), dispatches, combines,
        )  # fmt: skip


def answer(die, core, event, c: Group, b: Buffers, dispatches: Areas, combines: Areas):
    """An expert die's part of a call."""
    yield from take_tokens(die, core, event, c, b, dispatches, Abort())
    yield xl.quiet(sync="received rows visible")
    yield from barrier(0, "all cores have received")
    yield from dummy_expert(core, c, b)
    yield xl.quiet(sync="expert outputs visible")
    yield from barrier(0, "all cores have computed")
    yield from offer(die, core, event, c, b, combines, Abort())


@xl.kernel
def pull_expert(die, core, calls, c: Group, b: LayerBuffers, dispatches: _PullsAlone, combines: _Offers):
    """Expert die ``die``, call after call; ranks of the group are attention dies.

    All calls use the same buffers, except for ``counts``: two of these take turns.
    """
    for r in range(calls):
        yield from answer(
            die, core, r + 1, c, b._replace(counts=b.counts + r % 2 * align(4 * c.n_ranks * c.n_local)), dispatches,
            combines,
        )  # fmt: skip
