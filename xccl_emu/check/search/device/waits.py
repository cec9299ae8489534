"""Which sites of kernels a search comes to, and at which a core may have to wait.

Two bits of each site, next to what the search knows of it from the start (`accesses.NAMED`).  That a site may wait is
said too often rather than too seldom; docs/soundness.md argues why it is never missed.
"""

from xccl_emu.check.device.accesses import instruction_of
from xccl_emu.check.search.device import clocks
from xccl_emu.check.search.device.checker_state import FIRST_MEMORY, GIVES_UP, ROWS_CLASS, VECTORS
from xccl_emu.check.search.device.granules import OWN, SYNC
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.flight import block_of_core
from xccl_emu.machine.device.polls import awaited_by, is_awaited
from xccl_emu.machine.device.sites import word_of_site
from xccl_emu.machine.device.touched import flag_of
from xccl_emu.machine.device.words import call, jit


@call
def note_site(st, ck, rows, named, i, pipe):
    """Note that a core has come to its request, or to the head of a queue, that was just looked at and can be granted.

    What cannot be granted yet waits; that is noted where it is seen.
    """
    base, block = block_of_core(st, clocks.core_of(ck, i)), clocks.block_of(ck, i)
    entry = instruction_of(st, base, pipe, ms.CHOICE_ALL)
    op, bits = st[entry], ms.CAME
    if op == rq.OP_POLL:
        bits |= ms.MAY_WAIT if _is_early(st, ck, rows, base) else 0
    elif op == rq.OP_AWAIT_GROUP:
        group = st[ms.GROUP_BASE] + st[base + ms.GROUP] * ms.GROUP_WORDS
        ended = ck[GIVES_UP]  # by another core, perhaps, before this one has arrived
        bits |= ms.MAY_WAIT if st[group + ms.GROUP_SIZE] > 1 or ended else 0
    elif op == rq.OP_WAIT_FLAG:
        vector = ck[block + VECTORS] if pipe == rq.SCALAR else clocks.vector_at(st, ck, block, base, pipe, 0)
        issued = pipe == rq.SCALAR and st[entry + ops.FLAG.target] != rq.SCALAR  # it waits in its queue
        late = not issued and clocks.brings_more(ck, block, *flag_of(st, entry), vector)
        bits |= ms.MAY_WAIT if late else 0
    else:
        bits |= ms.MAY_WAIT
    named[word_of_site(st, base, pipe, entry)] |= bits


@jit
def _is_early(st, ck, rows, base):
    """May a poll be granted sooner than on the machine: by a write that the search makes visible at once?"""
    if rows[ROWS_CLASS, 0] < OWN or rows[ROWS_CLASS, 0] == SYNC:
        return False
    at_first = ck[ck[FIRST_MEMORY] + (st[base + REQUEST + ops.POLL.address] >> 3)]
    compare, value, _ = awaited_by(st, base)
    return not is_awaited(at_first, compare, value)
