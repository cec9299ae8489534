"""Bugs in collectives and in MixServe's algorithms, its listings as printed among them."""

from dataclasses import replace

from xccl_emu.check.verdict import (
    AREA_VIOLATION,
    DATA_RACE,
    DEADLOCK,
    LEFTOVER,
    UNWRITTEN_READ,
    WRONG_BITS,
)
from xccl_emu.protocols.collectives_case import CollectiveCase
from xccl_emu.protocols.mixserve_case import MixServeCase
from xccl_emu.protocols.sp_tp_sp_case import SpTpSpCase

from .mutants import Mutant, Of

RING = CollectiveCase(collective="all-reduce-ring")
RING_TO_ALL = CollectiveCase(collective="all-to-all-ring")
ONE_SHOT = CollectiveCase(collective="all-reduce-one-shot")
TWO_SHOT = CollectiveCase(collective="all-reduce-two-shot", calls=2)
TO_ALL = CollectiveCase(collective="all-to-all")
PREFILL = SpTpSpCase()
BARRIER = CollectiveCase(collective="barrier")
BY_SENSE = CollectiveCase(collective="barrier-sense")
DISPATCH = MixServeCase(part="dispatch")
COMBINE = MixServeCase(part="combine")
LONGER = replace(DISPATCH, rounds=3)

rings, exchanges, repacks, meets, dispatches, combines = (
    Of(module) for module in ("ring", "exchange", "sp_tp_sp", "barrier", "mixserve_dispatch", "mixserve_combine")
)

# ---- what stands in the kernels

TAIL = '    yield quiet(sync="data before tail")\n    yield put(r.right_tail, hop + 1, sync="tail")\n'
TAIL_FIRST = '    yield put(r.right_tail, hop + 1, sync="tail")\n    yield quiet(sync="data before tail")\n'
FREE = "    yield poll_ge(r.ack, hop + 1 - SLOTS,"
OWN_TERM = (
    "        yield from add_term(1, 2, own + (r.me + 2 * r.ranks - 2 - i) % r.ranks * w.share, size, r.room, w.dtype)\n"
)
CAME_TERM = "        yield from add_term(0, 2, came, size, r.room, w.dtype)\n"
ADD_BOTH = CAME_TERM + OWN_TERM
ROUND_AND_ACK = (
    '        yield from round_sum(size, r.room, w.dtype)\n        yield put(r.left_ack, hop + i + 1, sync="ack")\n'
)
GATHERED = '        yield from read(came, size)\n        yield put(r.left_ack, hop + i + 1, sync="ack")\n'
LATE_ACK = '            if i > 1:\n                yield put(r.left_ack, hop, sync="ack")\n'
FIELD = (
    '    yield quiet(sync="data before field")\n    for i in range(1, p.ranks):\n'
    '        yield put(p.fields + (p.me + i) % p.ranks * p.pitch + p.me * FIELD_BYTES, turn + 1, sync="field")\n'
)
FIELD_FIRST = "".join([*FIELD.splitlines(keepends=True)[1:], FIELD.splitlines(keepends=True)[0]])
IN_SLOT = "    return p.inbox + p.me * p.pitch + (turn % 2 * p.ranks + rank) * p.room\n"
SHARE = "own + rank * w.share, slot + rank * p.pitch"
ADD_ALL = "    for rank in range(p.ranks):\n        came = own\n"
SECOND = "            exchanges += 1\n            yield from broadcast(exchanges, size, p)\n"
COUNT = "        yield put(field + (b.me + distance) % b.ranks * b.pitch, count,"
WRITTEN, READ = (f"((w.done + turn) % 2 * b.ranks + {rank}) * b.room" for rank in ("b.me", "i"))
QUIET = '    yield quiet(sync="writes before barrier")\n'
TURNED, SENSE_IN = 'count % 2, sync="sense")', 'count % 2, sync="sense in")'

KNOWN = (
    Mutant(
        "ring: the tail before the data", RING,
        (rings(TAIL, TAIL_FIRST),), (DATA_RACE, UNWRITTEN_READ, WRONG_BITS), quick=True,
    ),
    Mutant(
        "ring: one free slot too many", RING,
        (rings.at(FREE, "+ 1 - SLOTS", "- SLOTS"),), (DATA_RACE,),
    ),
    Mutant(
        "ring: the inbox read one slot on", RING,
        (rings.at("return r.inbox + hop % SLOTS * r.slot", "hop %", "(hop + 1) %"),), (UNWRITTEN_READ,),
    ),
    Mutant(
        "ring: sums begin at the chunk's own rank", RING,
        (rings.at("read(own + (r.me + r.ranks - 1) % r.ranks * w.share, size)", "r.me + r.ranks - 1", "r.me"),),
        (WRONG_BITS,),
    ),
    Mutant(
        "ring: the own chunk of one hop later is added", RING,
        (rings.at(OWN_TERM, "- 2 - i", "- 3 - i"),), (WRONG_BITS,),
    ),
    Mutant(
        "ring: the ack before the slot is read", RING,
        (
            rings(
                ADD_BOTH + ROUND_AND_ACK,
                ROUND_AND_ACK.splitlines(keepends=True)[1] + ADD_BOTH + ROUND_AND_ACK.splitlines(keepends=True)[0],
            ),
        ), (DATA_RACE,),
    ),
    Mutant(
        "ring: the ack when the read is issued", RING,
        (rings(GATHERED, "".join(reversed(GATHERED.splitlines(keepends=True)))),), (DATA_RACE,),
    ),
    Mutant(
        "ring all-to-all: the own block is passed on", RING_TO_ALL,
        (rings.at("block = came + (j + 1) * r.room", "(j + 1)", "j"),), (WRONG_BITS,),
    ),
    Mutant(
        "ring all-to-all: blocks in another order", RING_TO_ALL,
        (rings.at("block = own + (r.me + 1 + j) % r.ranks * w.share", "r.me + 1 + j", "r.me + r.ranks - 1 - j"),),
        (WRONG_BITS,),
    ),
    Mutant(
        "ring all-to-all: the ack of the hop to come", RING_TO_ALL,
        (rings.at(LATE_ACK, "left_ack, hop,", "left_ack, hop + 1,"),), (DATA_RACE,),
    ),
    Mutant(
        "exchange: the field before the data", TO_ALL,
        (exchanges(FIELD, FIELD_FIRST),), (DATA_RACE, UNWRITTEN_READ, WRONG_BITS), quick=True,
    ),
    Mutant(
        "exchange: the field of the turn before is enough", ONE_SHOT,
        (exchanges.at("poll_ge(p.fields + p.me * p.pitch + rank * FIELD_BYTES, turn + 1,", "turn + 1", "turn"),),
        (UNWRITTEN_READ, DATA_RACE, WRONG_BITS),
    ),
    Mutant(
        "exchange: the slot of the turn before", ONE_SHOT,
        (exchanges.at(IN_SLOT, "turn % 2", "(turn + 1) % 2"),), (UNWRITTEN_READ,),
    ),
    Mutant(
        "exchange: each gets the share of its left neighbour", TO_ALL,
        (exchanges.at(SHARE, "own + rank", "own + (rank + p.ranks - 1) % p.ranks"),), (WRONG_BITS,),
    ),
    Mutant(
        "exchange: sums begin at the own rank", ONE_SHOT,
        (
            exchanges(
                ADD_ALL + "        if rank != p.me:\n",
                "    for i in range(p.ranks):\n        rank = (p.me + i) % p.ranks\n        came = own\n"
                "        if rank != p.me:\n",
            ),
            exchanges.at("add_term(rank, p.ranks, came,", "rank,", "i,"),
        ), (WRONG_BITS,),
    ),
    Mutant(
        "two-shot: both exchanges in one turn", TWO_SHOT,
        (exchanges(SECOND, SECOND.splitlines(keepends=True)[1]),), (DATA_RACE, UNWRITTEN_READ, WRONG_BITS),
    ),
    Mutant(
        "barrier: without its last step", BARRIER,
        (meets.at("while distance < b.ranks:", "distance <", "2 * distance <"),), (UNWRITTEN_READ, DATA_RACE),
    ),
    Mutant(
        "barrier: every barrier has the same number", BARRIER,
        (meets.at(COUNT, "count", "1"),), (DEADLOCK,),
    ),
    Mutant(
        "barrier: one field for all steps", BARRIER,
        (meets.without("step += 1"),), (UNWRITTEN_READ, DATA_RACE, WRONG_BITS),
    ),
    Mutant(
        "barrier: one mailbox for all turns", BARRIER,
        (meets(WRITTEN, "b.me * b.room"), meets(READ, "i * b.room")), (DATA_RACE,),
    ),
    Mutant(
        "barrier: quiet behind it", BARRIER,
        (
            meets(QUIET + "    step = 0\n", "    step = 0\n"),
            meets("        distance *= 2\n", "        distance *= 2\n" + QUIET),
        ), (DATA_RACE, UNWRITTEN_READ),
    ),
    Mutant(
        "barrier-sense: the sense does not turn", BY_SENSE,
        (meets.at(TURNED, "count % 2", "1"), meets.at(SENSE_IN, "count % 2", "1")),
        (DATA_RACE, UNWRITTEN_READ, WRONG_BITS),
    ),
    Mutant(
        "barrier-sense: the last but one turns it", BY_SENSE,
        (meets.at("if came == b.ranks - 1:", "- 1", "- 2"),), (DATA_RACE, UNWRITTEN_READ, WRONG_BITS, DEADLOCK),
    ),
)  # fmt: skip

SENT_BLOCK = "    block += (r % 2 * c.nodes + c.node) * (c.head"
OTHERS = "        if i > 0 and (step > 0 or rank // c.shards != c.local // c.shards):\n"
SUM = "    for j in range(c.shards):\n        if i % groups + j == 0:\n"
RETURNED_TO = "    rank = node_on(step, c.node, c.nodes) * c.ranks + c.local\n"
WEIGHED = "                    if place >= 0:\n                        weight"
CAME_BACK = "* c.pitch + r % 2 * c.nodes * c.capacity * c.part_bytes\n"
PARTS = "    groups = c.dp_size // c.shards\n"
RESULTS = "slot = b.results + ((r % 2 * c.tokens"
RESULTS_IN = "            first = (r % 2 * c.tokens"

LATENTS_OF = "            target = gathered + (start + row) * k.latent\n"

OWN = (
    Mutant(
        "as printed: r_TP where the global rank is meant (Alg. 2, line 7)", DISPATCH,
        (
            dispatches(
                "    node = node_on(step, c.node, c.nodes)\n    block = b.sent +",
                "    node = step\n    block = b.sent +",
            ),
            dispatches(
                "    node = node_on(step, c.node, c.nodes)\n    total = yield load(t.totals",
                "    node = step\n    total = yield load(t.totals",
            ),
        ), (DEADLOCK, WRONG_BITS, DATA_RACE),
    ),
    Mutant(
        "as printed: no local stage (Alg. 2)", DISPATCH,
        (dispatches.without("mtu_out(at, row + (c.node * c.ranks + c.local) * c.pitch, c.row_bytes, step=13)"),),
        (WRONG_BITS,), quick=True,
    ),
    Mutant(
        "as printed: a rank for a node's index (Alg. 2, line 10)", DISPATCH,
        (dispatches.at(SENT_BLOCK, "+ c.node)", "+ c.node * c.ranks + c.local)"),),
        (AREA_VIOLATION, WRONG_BITS, UNWRITTEN_READ, DATA_RACE),
    ),
    Mutant(
        "as printed: sums are not made before the exchange (Alg. 1, lines 9 and 14)", COMBINE,
        (combines(SUM, "    at += c.local * c.part_bytes\n    for j in range(1):\n        if i % groups + j == 0:\n"),),
        (WRONG_BITS,), quick=True,
    ),
    Mutant(
        "as printed: r_TP where the global rank is meant (Alg. 1, line 8)", COMBINE,
        (combines(RETURNED_TO, "    rank = step * c.ranks + c.local\n"),),
        (DEADLOCK, WRONG_BITS, DATA_RACE, UNWRITTEN_READ),
    ),
    Mutant(
        "as printed: Y_i by step, of which only Y_rTP is gathered (Alg. 1, lines 15 and 17)", COMBINE,
        (
            combines(
                WEIGHED,
                WEIGHED.replace("0:", "0 and (c.node + c.nodes - place // c.capacity) % c.nodes == c.local:"),
            ),
        ), (WRONG_BITS,),
    ),
    Mutant(
        "dispatch: the field before the rows, no overlap", replace(DISPATCH, overlap=0),
        (dispatches.without('fence(step=8, sync="rows before field")'),), (DATA_RACE, UNWRITTEN_READ, WRONG_BITS),
    ),
    Mutant(
        "dispatch: fields before the rows", DISPATCH,
        (dispatches.without('fence(step=13, sync="rows before field")'),),
        (DATA_RACE, UNWRITTEN_READ, WRONG_BITS, LEFTOVER),
    ),
    Mutant(
        "dispatch: rows of the round before", DISPATCH,
        (dispatches.at('poll_ge(field, r + 1, step=10, sync="rows sent in")', "r + 1", "r"),),
        (UNWRITTEN_READ, WRONG_BITS, DATA_RACE),
    ),
    Mutant(
        "dispatch: rows of the other groups of the node are not gathered", replace(DISPATCH, dp=4),
        (dispatches(OTHERS, "        if i > 0 and step > 0:\n"),), (WRONG_BITS, UNWRITTEN_READ, DATA_RACE),
    ),
    Mutant(
        "dispatch: each shard at the place of the next one", DISPATCH,
        (dispatches.at("shard = c.local % c.shards * c.part_bytes", "c.local %", "(c.local + 1) %"),),
        (WRONG_BITS, DATA_RACE, UNWRITTEN_READ),
    ),
    Mutant(
        "dispatch: no wait for shards of others", DISPATCH,
        (dispatches.without("rows gathered in"),), (WRONG_BITS, UNWRITTEN_READ, DATA_RACE),
    ),
    Mutant(
        "dispatch: one block for all rounds", LONGER,
        (dispatches.at(SENT_BLOCK, "r % 2", "0"), dispatches("    head += (r % 2 *", "    head += (0 *")), (DATA_RACE,),
    ),
    Mutant(
        "combine: terms of the step before are overwritten", COMBINE,
        (
            combines.at("term = (turn % 2 * c.capacity + place", "turn % 2", "0"),
            combines.at("source += ((turn % 2 * c.capacity", "turn % 2", "0"),
        ), (DATA_RACE,),
    ),
    Mutant(
        "combine: sums begin at the own rank", replace(COMBINE, nodes=1, ranks=3, hidden=96, top_k=1),
        (
            combines(SUM, "    for k in range(c.shards):\n        j = (c.local + k) % c.shards\n        if k == 0:\n"),
            combines("v_widen(at, c.acc, c.part", "v_widen(at + j * c.part_bytes, c.acc, c.part"),
        ), (WRONG_BITS,),
    ),
    Mutant(
        "combine: fields before the terms", COMBINE,
        (combines.without("terms before field"),), (DATA_RACE, UNWRITTEN_READ, WRONG_BITS),
    ),
    Mutant(
        "combine: own sums read before they are written", COMBINE,
        (combines.without("own sums"),), (DATA_RACE, UNWRITTEN_READ),
    ),
    Mutant(
        "combine: sums of all rounds in one place", COMBINE,
        (combines.at("target += ((r % 2 * c.nodes + c.node)", "r % 2", "0"), combines.at(CAME_BACK, "r % 2", "0")),
        (DATA_RACE, WRONG_BITS),
    ),
    Mutant(
        "combine: results of one group only, where several have the tokens", replace(COMBINE, ep=4),
        (combines(PARTS, "    groups = 1\n"),), (WRONG_BITS,),
    ),
    Mutant(
        "combine: results of all rounds in one place", replace(COMBINE, ep=4, rounds=3),
        (combines.at(RESULTS, "r % 2", "0"), combines.at(RESULTS_IN, "r % 2", "0")),
        (DATA_RACE,),
    ),
    Mutant(
        "prefill: the heads of the rank to the right", PREFILL,
        (repacks.at("target = out + (row * p.ranks + rank) * k.part", "+ rank)", "+ (rank + 1) % p.ranks)"),),
        (WRONG_BITS, DATA_RACE),
    ),
    Mutant(
        "prefill: a segment begins where equal ones would", replace(PREFILL, tokens=5),
        (repacks.at(LATENTS_OF, "start + row", "k.tokens // p.ranks * rank + row"),), (WRONG_BITS, DATA_RACE),
    ),
    Mutant(
        "prefill: both collectives in one turn", PREFILL,
        (repacks.at("all_to_all(2 * (k.done + i) + 1,", " + 1", ""),), (DATA_RACE, UNWRITTEN_READ, WRONG_BITS),
    ),
)  # fmt: skip

HARMLESS = (
    Mutant(
        "ring: the own chunk is added first", RING,
        (rings(ADD_BOTH, OWN_TERM.replace("(1, 2", "(0, 2") + CAME_TERM.replace("(0, 2", "(1, 2")),), (),
    ),
    Mutant(
        "barrier: distances 1, 2, 3 of three ranks", BARRIER,
        (meets("        distance *= 2\n", "        distance += 1\n"),), (),
    ),
    Mutant(
        "combine: results of all rounds in one place, of ranks with the same experts",
        replace(COMBINE, nodes=1, top_k=1, rounds=3),
        (combines.at(RESULTS, "r % 2", "0"), combines.at(RESULTS_IN, "r % 2", "0")), (),
    ),
)  # fmt: skip
"""Changes that every schedule of their configuration is right with."""
