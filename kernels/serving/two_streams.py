"""Two streams on one die hand microbatches to each other ([CloudMatrix384] 4.2.3 and 4.3.2).

FusedDispatch, the dummy expert and FusedCombine are the kernels that ship; here is what is launched around them.
Streams wait for each other by events, as a runtime has them: a count in the die's memory, one for each hand-over and
microbatch.  It is raised when all cores of a stream have ended the launch before, with all of their writes visible;
the other stream begins its next launch when the count has come to the layer.

Steps: 1 a stream waits for a microbatch; 2 attention computes it; 3 a stream hands it over; 4 the gate chooses experts,
and the layer follows.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.experts.counts import INDEX_BYTES
from xccl_emu.kernels.experts.dummy import EIGHTH
from xccl_emu.kernels.experts.parameters import Buffers, Group
from xccl_emu.kernels.group import hand_over

QUARTER = 0x3E800000
"""FP32 bits of 1/4."""


class Attended(Buffers):
    """What attention touches."""

    x: xl.Updates
    out: xl.Reads


class Gated(Buffers):
    """What the gate touches."""

    topk: xl.Writes


@xl.kernel
def record(core, word: xl.Writes):
    """Raise the count of an event: all that its stream has launched before is done."""
    if core == 0:
        yield xl.add(word, 1, step=3, sync="event")


@xl.kernel
def await_event(word: xl.Reads, least):
    """Wait until an event has been recorded that many times."""
    yield xl.poll_ge(word, least, step=1, sync="event in")


@xl.kernel
def attend(core, tokens, turn, first, c: Group, b: Attended):
    """Compute attention of a microbatch, in place of it a scaling by the turn: into ``x``, of what combine left.

    In the first layer it is of ``x`` itself.
    """
    source = b.out
    if first:
        source = b.x
    rows = 4 * c.hidden
    made = rows + 2 * c.hidden
    for t in range(tokens * core // c.cores, tokens * (core + 1) // c.cores):
        yield xl.mtu_in(source + t * 2 * c.hidden, rows, 2 * c.hidden, step=2)
        yield from hand_over(xl.MTU_IN, xl.VECTOR, 0, "state in", step=2)
        yield xl.v_widen(rows, 0, c.hidden, c.dtype, step=2)
        yield xl.v_scale(0, c.hidden, QUARTER + turn % 7 * EIGHTH, step=2)
        yield xl.v_narrow(0, made, c.hidden, c.dtype, step=2)
        yield from hand_over(xl.VECTOR, xl.MTU_OUT, 0, "state made", step=2)
        yield xl.mtu_out(made, b.x + t * 2 * c.hidden, 2 * c.hidden, step=2)
        yield from hand_over(xl.MTU_OUT, xl.MTU_IN, 0, "state left", step=2)


@xl.kernel
def gate(rank, core, tokens, turn, c: Group, b: Gated):
    """Choose experts for each token: neighbours choose neighbours, and others in each layer."""
    for t in range(tokens * core // c.cores, tokens * (core + 1) // c.cores):
        for k in range(c.top_k):
            slot = (rank + 1 + t + turn + turn // 2 + k) % (c.n_ranks * c.n_local)
            yield xl.store(b.topk + t * INDEX_BYTES + 4 * k, slot, 4, step=4)
