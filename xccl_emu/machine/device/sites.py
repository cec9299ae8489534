"""What runs show of the sites of kernels: a word for each, `MAX_SITES` a kernel, in a table that a watcher keeps."""

from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.flight import request_site
from xccl_emu.machine.device.pipes import entry_of, pipe_of
from xccl_emu.machine.device.words import jit


@jit
def word_of_site(st, base, pipe, entry):
    """Return the number of the word that belongs to a request, or to an instruction in a queue."""
    return st[base + ms.KERNEL] * ms.MAX_SITES + (
        request_site(st, base) if pipe == rq.SCALAR else st[entry + ms.ENTRY_SITE]
    )


@jit
def note_came(st, base, sites):
    """Note that a core has come to its request; a return has no site."""
    if st[base + REQUEST] != rq.OP_RETURN:
        sites[word_of_site(st, base, rq.SCALAR, base + REQUEST)] |= ms.CAME


@jit
def waits_at(st, base, pipe):
    """The word of the site at which a pipe cannot go on until others do; -1 if it is at none."""
    if pipe == rq.DMA or (pipe != rq.SCALAR and st[pipe_of(base, pipe) + ms.PIPE_COUNT] == 0):
        return -1
    entry = base + REQUEST if pipe == rq.SCALAR else entry_of(st, pipe_of(base, pipe), 0)
    op = st[entry]
    queued = pipe != rq.SCALAR or st[entry + ops.FLAG.target] == rq.SCALAR  # else it is to be
    waits = ops.EVENT_WAITS >> op & 1 != 0 and queued
    waits = waits or (pipe == rq.SCALAR and ops.AWAITS_OTHERS >> op & 1 != 0)
    return word_of_site(st, base, pipe, entry) if waits else -1
