"""Bugs in DeepEP's normal dispatch and combine."""

from dataclasses import replace

from xccl_emu.protocols.deepep.case import NormalCase

from .kinds import LOCKED, RACE, UNWRITTEN, WRONG
from .mutants import Of, bug

PAIR = NormalCase(tokens=2, places=1)
LONG = replace(PAIR, tokens=6, rounds=1)

of_dispatch, of_combine = (Of(f"deepep.normal_{name}") for name in ("dispatch", "combine"))
"""Modules of kernels, to be changed."""

SETS = "field = field_at(r.fields + turn % 2 * r.fields_step, rank, c.die_bytes, i)\n"
ROOM = "poll_ge(head, call * CALL_ROWS + n - r.slots + 1,"
TAIL = "call * CALL_ROWS + n, step=4, sync=\"tail\")"
EMPTY = "        yield from await_taken(n, field_at(r.heads, rank, c.die_bytes, block_of(d, channel, c.cores)), call)\n"

KNOWN = (
    bug("normal: tails before their rows", PAIR, RACE | UNWRITTEN, of_dispatch.without("rows before tail"), quick=True),
    bug("normal: room for one row more than there is", LONG, RACE | WRONG | UNWRITTEN,
        of_dispatch.at(ROOM, "r.slots + 1", "r.slots")),
    bug("normal: places are free before they are read", LONG, RACE | WRONG, of_dispatch.without("rows read")),
    bug("normal: tails begin anew in each call", PAIR, RACE | WRONG | UNWRITTEN | LOCKED,
        of_dispatch.at(TAIL, "call * CALL_ROWS", "CALL_ROWS")),
)  # fmt: skip

OWN = (
    bug("normal: a dispatch ends before its rings are empty", PAIR, RACE | WRONG | UNWRITTEN,
        of_dispatch(EMPTY, "")),
    bug("normal: sums before parts are there", PAIR, RACE | UNWRITTEN, of_combine.without("parts written")),
)  # fmt: skip
