"""Functions that stand in the place of others in the table of addresses, and write down what a search does.

A search calls `execute` and `transition` by addresses that the checker state keeps (`linked`).  To watch it,
other addresses are put in their place; so a search that nobody watches has not one instruction more.
What is written down fills the room for records, which no search needs until it has found a violation.
"""

from xccl_emu.check.device.accesses import instruction_of
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import clocks, linked, run_local
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.explore import MEMORY
from xccl_emu.machine.device.flight import block_of_core
from xccl_emu.machine.device.words import bytes_to_words, copy_words, jit

EXECUTE, TRANSITION = 6, 7
"""Where the addresses of what is watched are put aside, after the functions of `linked`."""

USED, N_PARTS, ROW_WORDS, PARTS = range(4)
"""What the room begins with: where its next free word is, then which words of the machine a state is."""

ALONE, CORE, WHAT, OPERATION, BEFORE, AFTER, STEP_WORDS = range(7)
"""What is kept of a step: was it taken by itself?  By which core, or else process; what it was; of what was taken by
itself the operation; the fingerprints of the search before it and after it.  Then come the states before and after it.
"""
DELIVERY = -2
"""As the operation of a step: a die makes a write visible."""


@linked.linked
def watched_execute(mem, st, ck, rows, named, i, what):
    """`linked.execute`; what is taken by itself is written down."""
    alone = ck[cs.LOCALLY]
    at = _begin(mem, st, ck, i, what) if alone else -1
    if at >= 0:
        entry = instruction_of(st, block_of_core(st, clocks.core_of(ck, i)), what >> 16 & 255, what & ms.CHOICE_ALL)
        ck[at + ALONE], ck[at + OPERATION] = 1, st[entry] if entry >= 0 else -1
    done = linked.call_at(ck[cs.HANDLES + EXECUTE], mem, st, ck, rows, named, i, what)
    _end(mem, st, ck, at, done)
    return done


@linked.linked
def watched_transition(mem, st, ck, rows, named, process, n):
    """`linked.transition`, which is written down with the state that it and all that follows from it lead to."""
    at = _begin(mem, st, ck, process, n)
    if at >= 0 and process >= ck[cs.N] * run_local.PER_CORE:
        ck[at + OPERATION] = DELIVERY
    done = linked.call_at(ck[cs.HANDLES + TRANSITION], mem, st, ck, rows, named, process, n)
    _end(mem, st, ck, at, done)
    return done


@jit
def _begin(mem, st, ck, who, what):
    """Begin to write down a step; returns where, or -1 if there is no room."""
    room = ck[cs.RECORD_BASE]
    at, words = ck[room + USED], ck[room + ROW_WORDS]
    if at + STEP_WORDS + 2 * words > ck[cs.RECORD_END]:
        ck[cs.LIMIT] = cs.LIMIT_LOG
        return -1
    ck[at + ALONE], ck[at + CORE], ck[at + WHAT], ck[at + OPERATION], ck[at + BEFORE] = 0, who, what, -1, ck[cs.HASH]
    _put_down(mem, st, ck, at + STEP_WORDS)
    ck[room + USED] = at + STEP_WORDS + 2 * words
    return at


@jit
def _end(mem, st, ck, at, done):
    """Write down what a step has come to; if it was none it is forgotten, with all steps inside of it."""
    room = ck[cs.RECORD_BASE]
    if at >= 0 and done:
        ck[at + AFTER] = ck[cs.HASH]
        _put_down(mem, st, ck, at + STEP_WORDS + ck[room + ROW_WORDS])
    elif at >= 0:
        ck[room + USED] = at


@jit
def _put_down(mem, st, ck, to):
    """Copy the state of the machine."""
    room = ck[cs.RECORD_BASE]
    for p in range(ck[room + N_PARTS]):
        kind, first, n = ck[room + PARTS + 3 * p], ck[room + PARTS + 3 * p + 1], ck[room + PARTS + 3 * p + 2]
        if kind == MEMORY:
            bytes_to_words(ck, to, mem, 8 * first, 8 * n)
        else:
            copy_words(ck, to, st, first, n)
        to += n


WATCHING = {linked.EXECUTE: (EXECUTE, watched_execute), linked.TRANSITION: (TRANSITION, watched_transition)}
"""By what is watched: where its address is put aside, and what is in its place."""
