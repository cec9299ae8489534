"""Which sites of kernels a search comes to, and at which a core may have to wait.

Two bits of each site, beside what the search knows of it from the start (`classify.NAMED`).  That a site may wait is
said too often rather than too seldom; docs/soundness.md argues why it is never missed.
"""

from xccl_emu.check.device.accesses import instruction_of
from xccl_emu.check.device.search.checker_state import FIRST_MEMORY, ROWS_CLASS, VECTORS
from xccl_emu.check.device.search.clocks import block_of, core_of, tells_more, vector_at
from xccl_emu.check.device.search.granules import OWN, SYNC
from xccl_emu.lang.abi import REQUEST
from xccl_emu.lang.requests import OP_AWAIT_GROUP, OP_POLL, OP_WAIT_FLAG, SCALAR
from xccl_emu.machine.device.conditions import is_awaited
from xccl_emu.machine.device.flight import block_of_core
from xccl_emu.machine.device.layout import (
    CAME,
    CHOICE_ALL,
    GROUP,
    GROUP_BASE,
    GROUP_SIZE,
    GROUP_WORDS,
    MAY_WAIT,
)
from xccl_emu.machine.device.sites import word_of_site
from xccl_emu.machine.device.words import call, jit


@call
def note_site(st, ck, rows, named, i, pipe):
    """Note that a core has come to its request, or to the head of a queue, that was just looked at and can be granted.

    What cannot be granted yet waits; whoever sees that notes it.
    """
    base, block = block_of_core(st, core_of(ck, i)), block_of(ck, i)
    entry = instruction_of(st, base, pipe, CHOICE_ALL)
    op, bits = st[entry], CAME
    if op == OP_POLL:
        bits |= MAY_WAIT if _is_early(st, ck, rows, base) else 0
    elif op == OP_AWAIT_GROUP:
        group = st[GROUP_BASE] + st[base + GROUP] * GROUP_WORDS
        bits |= MAY_WAIT if st[group + GROUP_SIZE] > 1 else 0
    elif op == OP_WAIT_FLAG:
        vector = ck[block + VECTORS] if pipe == SCALAR else vector_at(st, ck, block, base, pipe, 0)
        issued = pipe == SCALAR and st[entry + 2] != SCALAR  # it waits in its queue
        late = not issued and tells_more(ck, block, st[entry + 1], st[entry + 2], st[entry + 3], vector)
        bits |= MAY_WAIT if late else 0
    else:
        bits |= MAY_WAIT
    named[word_of_site(st, base, pipe, entry)] |= bits


@jit
def _is_early(st, ck, rows, base):
    """May a poll be granted sooner than on the machine: by a write that the search makes visible at once?"""
    if rows[ROWS_CLASS, 0] < OWN or rows[ROWS_CLASS, 0] == SYNC:
        return False
    at_first = ck[ck[FIRST_MEMORY] + (st[base + REQUEST + 1] >> 3)]
    return not is_awaited(at_first, st[base + REQUEST + 2], st[base + REQUEST + 3])
