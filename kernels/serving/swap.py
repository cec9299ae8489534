"""A redundant expert slot gets other weights while layers run ([xDeepServe] 4.5, steps 3 and 4): what a rank launches.

Dispatch, combine, and the loader (`reconfigure.reload`, on a core of its own) are the kernels that ship.  Between two
iterations a rank adopts the newest map and chooses slots by it for all choices of its tokens; its messages have the
map's version.

A rank adopts a map when its combine of the iteration before is over.  Then no row of its tokens is computed any more:
combine had all of them.  An acknowledgment of dispatch would not be enough, since rows that were pulled are still to be
computed.  And combine finds rows by the slots that were chosen for dispatch, whatever map there is by then.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.experts.counts import INDEX_BYTES, load_counts
from xccl_emu.kernels.experts.dummy import DummyBuffers, compute_rows
from xccl_emu.kernels.experts.parameters import Buffers, Group, Slots
from xccl_emu.kernels.serving.reconfigure import FIELD_BYTES, Swap, adopt, leave, reload, slot_by

__all__ = ["FIELD_BYTES", "Swap", "begin", "end", "held_experts", "reload"]


class Adopts(Swap):
    """What a rank touches of the swap."""

    maps: xl.Own[xl.Reads]
    version: xl.Own[xl.Reads]
    adopted: xl.Writes


class Chosen(Buffers):
    """What it touches of its batch."""

    topk: xl.Writes
    version: xl.Writes


def choose_slots(rank, tokens, version, gate, c: Group, b: Buffers, s: Swap):
    """Choose a slot for each choice of each token, by a version of the map; masked ones stay so."""
    for t in range(tokens):
        for k in range(c.top_k):
            expert = yield xl.load(gate + t * INDEX_BYTES + 4 * k, 4, step=4)
            if expert >= 0:
                slot = yield from slot_by(version, expert, t, s._replace(me=rank))
                yield xl.store(b.topk + t * INDEX_BYTES + 4 * k, slot, 4, step=4)


@xl.kernel
def begin(rank, core, tokens, gate: xl.Reads, before: xl.Reads, c: Group, b: Chosen, s: Adopts):
    """Begin an iteration: the first core adopts the newest map; ``before`` has the version of the iteration before.

    ``gate`` are the experts that the tokens chose; the slots go to ``topk``.
    """
    if core == 0:
        yield xl.dcci(before, sync="used version line")
        version = yield xl.load(before, step=2)
        version = yield from adopt(version, s._replace(me=rank))
        yield xl.store(b.version, version, step=2)
        yield from choose_slots(rank, tokens, version, gate, c, b, s)


@xl.kernel
def end(rank, core, s: Adopts):
    """After the last iteration."""
    if core == 0:
        yield from leave(s._replace(me=rank))


@xl.kernel
def held_experts(core, held: xl.Reads, held_bytes, since: xl.Reads, c: Group, b: DummyBuffers):
    """Compute this core's part of the rows by the weights that their slots hold; a stale row ends the run."""
    rows = yield from load_counts(b.counts, 0, "row counts loaded", c)
    first = rows * core // c.cores
    yield from compute_rows(first, rows * (core + 1) // c.cores, c, b, Slots(held, held_bytes, since))
