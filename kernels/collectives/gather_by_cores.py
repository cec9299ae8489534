"""An all-gather in which the cores of a rank share the others, and copy what these have to where it belongs.

Cores copy whole shares through their data buffers, one for each rank if there are as many, from the operands of the
other ranks.  Ranks signal each other when a rank may be read, and when it has been, as in `gather_by_reads`.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.collectives.gather_by_reads import await_read, await_there, tell_one, tell_there
from xccl_emu.kernels.collectives.slices import Readers, Work, WorkOfReader
from xccl_emu.kernels.common import copy_through_buffer


def share_of(i, call, own, out, w: Work, r: Readers, half):
    """The share of the i-th rank from this one on, to its place; of the own one, for 0, the others hear at once."""
    rank = (r.me + i) % r.ranks
    target = out + rank * w.share
    source = own + (rank - r.me) * r.pitch
    if own == out + r.me * w.share:  # in place
        source = target + (rank - r.me) * r.pitch
    if i > 0:
        yield from await_there(rank, call, r)
    else:
        yield from tell_there(call, r)
    if source != target:  # in place the own one is there
        yield from copy_through_buffer(source, target, w.nbytes, half, 0)
        yield xl.quiet(sync="share copied")
    if i > 0:
        yield from tell_one(rank, call, r)


@xl.kernel
def gather_by_cores(w: WorkOfReader, r: Readers, core, cores, half):
    """All-gather by the cores of a rank: the first copies the own share, each copies the shares of some other ranks."""
    for turn in range(w.calls * w.slices):
        call = w.done + turn
        own, out = w.own + turn * w.own_bytes, w.out + turn * w.out_bytes
        for k in range((r.ranks - core + cores - 1) // cores):
            yield from share_of(core + k * cores, call, own, out, w, r, half)
        if core == 0:
            yield from await_read(call, r)
