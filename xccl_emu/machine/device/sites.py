"""What runs show of the sites of kernels: a word for each, `MAX_SITES` a kernel, in a table that a watcher keeps."""

from xccl_emu.lang.abi import REQUEST
from xccl_emu.lang.requests import DMA, OP_AWAIT_GROUP, OP_POLL, OP_POLL_ANY, OP_RETURN, OP_WAIT_FLAG, SCALAR
from xccl_emu.machine.device.flight import request_site
from xccl_emu.machine.device.layout import CAME, ENTRY_SITE, KERNEL, MAX_SITES, PIPE_COUNT
from xccl_emu.machine.device.pipes import entry_of, pipe_of
from xccl_emu.machine.device.words import jit


@jit
def word_of_site(st, base, pipe, entry):
    """Which of the words is that of a request, or of an instruction in a queue."""
    return st[base + KERNEL] * MAX_SITES + (request_site(st, base) if pipe == SCALAR else st[entry + ENTRY_SITE])


@jit
def note_came(st, base, sites):
    """Note that a core has come to its request; a return has no site."""
    if st[base + REQUEST] != OP_RETURN:
        sites[word_of_site(st, base, SCALAR, base + REQUEST)] |= CAME


@jit
def waits_at(st, base, pipe):
    """The word of the site at which a pipe cannot go on until others do; -1 if it is at none."""
    if pipe == DMA or (pipe != SCALAR and st[pipe_of(base, pipe) + PIPE_COUNT] == 0):
        return -1
    entry = base + REQUEST if pipe == SCALAR else entry_of(st, pipe_of(base, pipe), 0)
    op = st[entry]
    waits = op == OP_WAIT_FLAG and (pipe != SCALAR or st[entry + 2] == SCALAR)  # else it is to be queued
    waits = waits or (pipe == SCALAR and (op == OP_POLL or op == OP_AWAIT_GROUP or op == OP_POLL_ANY))
    return word_of_site(st, base, pipe, entry) if waits else -1
