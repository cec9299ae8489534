"""Bugs in collectives and in MixServe's algorithms, its listings as printed among them."""

from dataclasses import replace

from xccl_emu.protocols.collectives.case import CollectiveCase
from xccl_emu.protocols.collectives.sp_tp_sp import SpTpSpCase
from xccl_emu.protocols.collectives.two_level import TwoLevelCase
from xccl_emu.protocols.mixserve.case import MixServeCase

from .kinds import AREA, LEFTOVER, LOCKED, RACE, UNWRITTEN, WRONG
from .mutants import Of, bug

RING = CollectiveCase(collective="all-reduce-ring")
RING_TO_ALL = CollectiveCase(collective="all-to-all-ring")
ONE_SHOT = CollectiveCase(collective="all-reduce-one-shot")
TWO_SHOT = CollectiveCase(collective="all-reduce-two-shot", calls=2)
TO_ALL = CollectiveCase(collective="all-to-all")
PREFILL = SpTpSpCase()
BARRIER = CollectiveCase(collective="barrier")
BY_SENSE = CollectiveCase(collective="barrier-sense")
ALL_GATHER = TwoLevelCase(collective="all-gather-two-level")
REDUCE_SCATTER = TwoLevelCase(collective="reduce-scatter-two-level")
ALL_REDUCE = TwoLevelCase(calls=1)
BY_READS = TwoLevelCase(collective="all-gather-by-reads")
BY_CORES = CollectiveCase(collective="all-gather-by-cores", cores=2)
SUM_BY_READS = CollectiveCase(collective="reduce-scatter-by-reads", elements=40, slot=16)
DISPATCH = MixServeCase(part="dispatch")
COMBINE = MixServeCase(part="combine")
LONGER = replace(DISPATCH, rounds=3)

rings, exchanges, repacks, meets = (
    Of(f"collectives.{module}") for module in ("ring", "exchange", "sp_tp_sp", "barrier")
)
levels = Of("collectives.two_level")
reads, by_cores = Of("collectives.gather_by_reads"), Of("collectives.gather_by_cores")
sums = Of("collectives.sum_by_reads")
dispatches, combines = Of("mixserve.dispatch"), Of("mixserve.combine")

# ---- what stands in the kernels

TAIL = '    yield xl.quiet(sync="data before tail")\n    yield xl.put(r.right_tail, hop + 1, sync="tail")\n'
TAIL_FIRST = '    yield xl.put(r.right_tail, hop + 1, sync="tail")\n    yield xl.quiet(sync="data before tail")\n'
FREE = "    yield xl.poll_ge(r.ack, hop + 1 - SLOTS,"
OWN_TERM = (
    "        yield from add_term(1, 2, own + (r.me + 2 * r.ranks - 2 - i) % r.ranks * w.share, size, r.room, w.dtype)\n"
)
CAME_TERM = "        yield from add_term(0, 2, came, size, r.room, w.dtype)\n"
ADD_BOTH = CAME_TERM + OWN_TERM
ROUND = "        yield from round_sum(size, r.room, w.dtype)\n"
SUM_ACK = '        yield xl.put(r.left_ack, hop + i + 1, sync="ack")\n'
GATHERED = "        yield from read(came, size)\n"
LATE_ACK = '            if i > 1:\n                yield xl.put(r.left_ack, hop, sync="ack")\n'
FIELD = (
    '    yield xl.quiet(sync="data before field")\n    for i in range(1, p.ranks):\n'
    '        yield xl.put(p.fields + (p.me + i) % p.ranks * p.pitch + p.me * FIELD_BYTES, turn + 1, sync="field")\n'
)
FIELD_FIRST = "".join([*FIELD.splitlines(keepends=True)[1:], FIELD.splitlines(keepends=True)[0]])
IN_SLOT = "    return p.inbox + p.me * p.pitch + (turn % 2 * p.ranks + rank) * p.room\n"
SHARE = "own + rank * w.share, slot + rank * p.pitch"
ADD_ALL = "    for rank in range(p.ranks):\n        came = own\n        if rank != p.me:\n"
SECOND = "            exchanges += 1\n            yield from broadcast(exchanges, size, p)\n"
COUNT = "        yield xl.put(field + (b.me + distance) % b.ranks * b.pitch, count,"
WRITTEN, READ = (f"((w.done + turn) % 2 * b.ranks + {rank}) * b.room" for rank in ("b.me", "i"))
QUIET = '    yield xl.quiet(sync="writes before barrier")\n'
TURNED, SENSE_IN = 'count % 2, sync="sense")', 'count % 2, sync="sense in")'
RELAY = "        yield from pass_on(turn, i % 2 * outer.room, group, size, inner, outer)\n"
FREED = "        yield from free_half(i, outer.ranks - 1)\n"
TOLD = "    yield from announce(turn, inner)\n"
PASSED_ON = RELAY + FREED + TOLD
GROUP_SUM = "        yield xl.mtu_out(0, slot + group * outer.pitch, size)\n"

OWN_COPIED = (
    "    if own != mine:  # not in place\n        yield from ring(own, mine, w.nbytes, 0)\n"
    "        yield from drain_rings(1)\n"
)
THERE_OUTER, THERE_INNER = (f"    yield from tell_there(call, {level})\n" for level in ("outer", "inner"))

KNOWN = (
    bug("ring: the tail before the data", RING, RACE | UNWRITTEN | WRONG, rings(TAIL, TAIL_FIRST), quick=True),
    bug("ring: one free slot too many", RING, RACE, rings.at(FREE, "+ 1 - SLOTS", "- SLOTS")),
    bug("ring: the inbox read one slot on", RING, UNWRITTEN,
        rings.at("return r.inbox + hop % SLOTS * r.slot", "hop %", "(hop + 1) %")),
    bug("ring: sums begin at the chunk's own rank", RING, WRONG,
        rings.at("read(own + (r.me + r.ranks - 1) % r.ranks * w.share, size)", "r.me + r.ranks - 1", "r.me")),
    bug("ring: the own chunk of one hop later is added", RING, WRONG, rings.at(OWN_TERM, "- 2 - i", "- 3 - i")),
    bug("ring: the ack before the slot is read", RING, RACE,
        rings(ADD_BOTH + ROUND + SUM_ACK, SUM_ACK + ADD_BOTH + ROUND)),
    bug("ring: the ack when the read is issued", RING, RACE,
        rings(GATHERED + SUM_ACK, SUM_ACK + GATHERED)),
    bug("ring all-to-all: the own block is passed on", RING_TO_ALL, WRONG,
        rings.at("block = came + (j + 1) * r.room", "(j + 1)", "j")),
    bug("ring all-to-all: blocks in another order", RING_TO_ALL, WRONG,
        rings.at("block = own + (r.me + 1 + j) % r.ranks * w.share", "r.me + 1 + j", "r.me + r.ranks - 1 - j")),
    bug("ring all-to-all: the ack of the hop to come", RING_TO_ALL, RACE,
        rings.at(LATE_ACK, "left_ack, hop,", "left_ack, hop + 1,")),
    bug("exchange: the field before the data", TO_ALL, RACE | UNWRITTEN | WRONG,
        exchanges(FIELD, FIELD_FIRST), quick=True),
    bug("exchange: the field of the turn before is enough", ONE_SHOT, UNWRITTEN | RACE | WRONG,
        exchanges.at("xl.poll_ge(p.fields + p.me * p.pitch + rank * FIELD_BYTES, turn + 1,", "turn + 1", "turn")),
    bug("exchange: the slot of the turn before", ONE_SHOT, UNWRITTEN,
        exchanges.at(IN_SLOT, "turn % 2", "(turn + 1) % 2")),
    bug("exchange: each gets the share of its left neighbour", TO_ALL, WRONG,
        exchanges.at(SHARE, "own + rank", "own + (rank + p.ranks - 1) % p.ranks")),
    bug("exchange: sums begin at the own rank", ONE_SHOT, WRONG,
        exchanges.at(ADD_ALL, "rank in range(p.ranks):", "i in range(p.ranks):\n        rank = (p.me + i) % p.ranks"),
        exchanges.at("add_term(rank, p.ranks, came,", "rank,", "i,")),
    bug("two-shot: both exchanges in one turn", TWO_SHOT, RACE | UNWRITTEN | WRONG,
        exchanges.at(SECOND, "            exchanges += 1\n", "")),
    bug("two levels: the group is told before what comes is passed on", ALL_GATHER, RACE | UNWRITTEN | WRONG,
        levels(PASSED_ON, RELAY + FREED),
        levels("    yield from broadcast(turn, size, outer)\n", "    yield from broadcast(turn, size, outer)\n" + TOLD),
        quick=True),
    bug("two levels: only the own share is passed on", ALL_GATHER, UNWRITTEN | RACE | WRONG,
        levels(RELAY, "")),
    bug("two levels: a block by what comes first, not by its group", ALL_GATHER, WRONG | UNWRITTEN | RACE,
        levels.at(RELAY, "group,", "i + 1,")),
    bug("two levels: one block for the blocks of all groups", ALL_GATHER, RACE | UNWRITTEN | WRONG,
        levels.at("* inner.ranks + inner.me) * inner.room + group * outer.room", " + group * outer.room", "")),
    bug("two levels: shares of the own group go to all", REDUCE_SCATTER, WRONG,
        levels.at("copy(i, copies, own + (group * inner.ranks", "group *", "outer.me *")),
    bug("two levels: sums of groups before they are whole", REDUCE_SCATTER, UNWRITTEN | RACE | WRONG,
        levels.at("slot = yield from await_slice(rank, turn, inner)", "yield from await_slice(rank, turn, inner)",
                  "inner.inbox + inner.me * inner.pitch + (turn % 2 * inner.ranks + rank) * inner.room")),
    bug("two levels: the next sum is made before the last one has left", REDUCE_SCATTER, RACE | WRONG,
        levels(GROUP_SUM + "        yield from leave_buffer()\n", GROUP_SUM)),
    bug("two levels: both halves of an all-reduce in one exchange", ALL_REDUCE, RACE | UNWRITTEN | WRONG,
        levels.without("exchanges += outer.reduce")),
    bug("by reads: others are told before the own share is in its place", BY_READS, RACE | UNWRITTEN | WRONG,
        reads(OWN_COPIED + THERE_OUTER, THERE_OUTER + OWN_COPIED), quick=True),
    bug("by reads: the group is told before the other groups are read", BY_READS, RACE | UNWRITTEN | WRONG,
        reads(THERE_INNER, ""), reads(THERE_OUTER, THERE_OUTER + THERE_INNER)),
    bug("by reads: only the own group's share is read from the group", BY_READS, LEFTOVER | WRONG | UNWRITTEN,
        reads.at("        for group in range(outer.ranks):\n", "outer.ranks", "outer.me, outer.me + 1")),
    bug("by reads: shares of the group from who sits there, not from their place", BY_READS, WRONG | UNWRITTEN | RACE,
        reads.at("target + (rank - inner.me) * inner.pitch", "target", "out + rank * w.share")),
    bug("by reads: what is there of the call before is enough", BY_READS, RACE | UNWRITTEN | WRONG,
        reads.at('rank * FIELD_BYTES, call + 1, sync="there in")', "call + 1", "call")),
    bug("by reads: it has read when the copies are under way", BY_READS, RACE | LEFTOVER,
        reads.without("yield from drain_rings(turn)")),
    bug("by cores: it is told before the share is copied", BY_CORES, RACE | UNWRITTEN | WRONG,
        by_cores.without("share copied")),
    bug("by cores: cores begin at the next rank", BY_CORES, WRONG | UNWRITTEN | LOCKED,
        by_cores.at("share_of(core + k * cores,", "core + k", "core + 1 + k")),
    bug("by cores: who reads last does not say so", BY_CORES, LOCKED,
        by_cores.at("    if i > 0:\n        yield from tell_one", "i > 0", "0 < i < r.ranks - 1")),
    bug("by cores: shares from where they are to be", BY_CORES, WRONG | UNWRITTEN | RACE,
        by_cores.at("    source = own +", "own", "target")),
    bug("sums by reads: each adds up the share of who has it", SUM_BY_READS, WRONG,
        sums.at("+ r.me * w.share", "r.me", "0")),
    bug("sums by reads: ranks are added from the own one on", SUM_BY_READS, WRONG,
        sums.at("yield from add_term(rank, r.ranks, own + (rank - r.me) * r.pitch,", "(rank - r.me)",
                "((r.me + rank) % r.ranks - r.me)")),
    bug("sums by reads: the next slice is read over a sum that is written", SUM_BY_READS, RACE | WRONG,
        sums.without("yield from leave_buffer()")),
    bug("sums by reads: halves of the data buffer overlap", SUM_BY_READS, RACE | WRONG | UNWRITTEN,
        sums.at("room = slice_size(turn, w.slices, w.slice_bytes, w.nbytes), align(w.slice_bytes)",
                "align(w.slice_bytes)", "w.slice_bytes // 2")),
    bug("sums by reads: it is there at the first slice of the first call alone", SUM_BY_READS, LOCKED,
        sums.at("if turn % w.slices == 0:", "turn % w.slices", "turn")),
    bug("sums by reads: nobody says that it has read", SUM_BY_READS, LOCKED,
        sums.without("yield from tell_read(call, r)")),
    bug("barrier: without its last step", BARRIER, UNWRITTEN | RACE,
        meets.at("while distance < b.ranks:", "distance <", "2 * distance <")),
    bug("barrier: every barrier has the same number", BARRIER, LOCKED, meets.at(COUNT, "count", "1")),
    bug("barrier: one field for all steps", BARRIER, UNWRITTEN | RACE | WRONG, meets.without("step += 1")),
    bug("barrier: one mailbox for all turns", BARRIER, RACE,
        meets(WRITTEN, "b.me * b.room"), meets(READ, "i * b.room")),
    bug("barrier: quiet behind it", BARRIER, RACE | UNWRITTEN,
        meets(QUIET + "    step = 0\n", "    step = 0\n"),
        meets("        distance *= 2\n", "        distance *= 2\n" + QUIET)),
    bug("barrier-sense: the sense does not turn", BY_SENSE, RACE | UNWRITTEN | WRONG,
        meets.at(TURNED, "count % 2", "1"), meets.at(SENSE_IN, "count % 2", "1")),
    bug("barrier-sense: the last but one turns it", BY_SENSE, RACE | UNWRITTEN | WRONG | LOCKED,
        meets.at("if came == b.ranks - 1:", "- 1", "- 2")),
)  # fmt: skip

NODE = "    node = node_on(step, c.node, c.nodes)\n"
SENT_BLOCK = "    block += (r % 2 * c.nodes + c.node) * (c.head"
OTHERS = "        if i > 0 and (step > 0 or rank // c.shards != c.local // c.shards):\n"
SUM = "    for j in range(c.shards):\n        if i % groups + j == 0:\n"
RETURNED_TO = "    rank = node_on(step, c.node, c.nodes) * c.ranks + c.local\n"
WEIGHED = "                    if place >= 0:\n                        weight"
CAME_BACK = "* c.pitch + r % 2 * c.nodes * c.capacity * c.part_bytes\n"
RESULTS = "slot = b.results + ((r % 2 * c.tokens"
RESULTS_IN = "            first = (r % 2 * c.tokens"

OWN = (
    bug("as printed: r_TP where the global rank is meant (Alg. 2, line 7)", DISPATCH, LOCKED | WRONG | RACE,
        dispatches.at(NODE + "    block = b.sent +", NODE, "    node = step\n"),
        dispatches.at(NODE + "    total = yield xl.load(t.totals", NODE, "    node = step\n")),
    bug("as printed: no local stage (Alg. 2)", DISPATCH, WRONG,
        dispatches.without("xl.mtu_out(at, row + (c.node * c.ranks + c.local) * c.pitch, c.row_bytes, step=13)"),
        quick=True),
    bug("as printed: a rank for a node's index (Alg. 2, line 10)", DISPATCH, AREA | WRONG | UNWRITTEN | RACE,
        dispatches.at(SENT_BLOCK, "+ c.node)", "+ c.node * c.ranks + c.local)")),
    bug("as printed: sums are not made before the exchange (Alg. 1, lines 9 and 14)", COMBINE, WRONG,
        combines(SUM, "    at += c.local * c.part_bytes\n    for j in range(1):\n        if i % groups + j == 0:\n"),
        quick=True),
    bug("as printed: r_TP where the global rank is meant (Alg. 1, line 8)", COMBINE, LOCKED | WRONG | RACE | UNWRITTEN,
        combines(RETURNED_TO, "    rank = step * c.ranks + c.local\n")),
    bug("as printed: Y_i by step, of which only Y_rTP is gathered (Alg. 1, lines 15 and 17)", COMBINE, WRONG,
        combines.at(WEIGHED, "0:", "0 and (c.node + c.nodes - place // c.capacity) % c.nodes == c.local:")),
    bug("dispatch: the field before the rows, no overlap", replace(DISPATCH, overlap=0), RACE | UNWRITTEN | WRONG,
        dispatches.without('xl.fence(step=8, sync="rows before field")')),
    bug("dispatch: fields before the rows", DISPATCH, RACE | UNWRITTEN | WRONG | LEFTOVER,
        dispatches.without('xl.fence(step=13, sync="rows before field")')),
    bug("dispatch: rows of the round before", DISPATCH, UNWRITTEN | WRONG | RACE,
        dispatches.at('xl.poll_ge(field, r + 1, step=10, sync="rows sent in")', "r + 1", "r")),
    bug("dispatch: rows of the other groups of the node are not gathered", replace(DISPATCH, dp=4),
        WRONG | UNWRITTEN | RACE, dispatches(OTHERS, "        if i > 0 and step > 0:\n")),
    bug("dispatch: each shard at the place of the next one", DISPATCH, WRONG | RACE | UNWRITTEN,
        dispatches.at("shard = c.local % c.shards * c.part_bytes", "c.local %", "(c.local + 1) %")),
    bug("dispatch: no wait for shards of others", DISPATCH, WRONG | UNWRITTEN | RACE,
        dispatches.without("rows gathered in")),
    bug("dispatch: one block for all rounds", LONGER, RACE,
        dispatches.at(SENT_BLOCK, "r % 2", "0"), dispatches("    head += (r % 2 *", "    head += (0 *")),
    bug("combine: terms of the step before are overwritten", COMBINE, RACE,
        combines.at("term = (turn % 2 * c.capacity + place", "turn % 2", "0"),
        combines.at("source += ((turn % 2 * c.capacity", "turn % 2", "0")),
    bug("combine: sums begin at the own rank", replace(COMBINE, nodes=1, ranks=3, hidden=96, top_k=1), WRONG,
        combines(SUM, "    for k in range(c.shards):\n        j = (c.local + k) % c.shards\n        if k == 0:\n"),
        combines("xl.v_widen(at, c.acc, c.part", "xl.v_widen(at + j * c.part_bytes, c.acc, c.part")),
    bug("combine: fields before the terms", COMBINE, RACE | UNWRITTEN | WRONG, combines.without("terms before field")),
    bug("combine: own sums read before they are written", COMBINE, RACE | UNWRITTEN, combines.without("own sums")),
    bug("combine: sums of all rounds in one place", COMBINE, RACE | WRONG,
        combines.at("target += ((r % 2 * c.nodes + c.node)", "r % 2", "0"), combines.at(CAME_BACK, "r % 2", "0")),
    bug("combine: results of one group only, where several have the tokens", replace(COMBINE, ep=4), WRONG,
        combines("    groups = c.dp_size // c.shards\n", "    groups = 1\n")),
    bug("combine: results of all rounds in one place", replace(COMBINE, ep=4, rounds=3), RACE,
        combines.at(RESULTS, "r % 2", "0"), combines.at(RESULTS_IN, "r % 2", "0")),
    bug("prefill: the heads of the rank to the right", PREFILL, WRONG | RACE,
        repacks.at("target = out + (row * p.ranks + rank) * k.part", "+ rank)", "+ (rank + 1) % p.ranks)")),
    bug("prefill: a segment begins where equal ones would", replace(PREFILL, tokens=5), WRONG | RACE,
        repacks.at("target = gathered + (start + row) * k.latent", "start + row", "k.tokens // p.ranks * rank + row")),
    bug("prefill: both collectives in one turn", PREFILL, RACE | UNWRITTEN | WRONG,
        repacks.at("all_to_all(2 * (k.done + i) + 1,", " + 1", "")),
)  # fmt: skip

HARMLESS = (
    bug("ring: the own chunk is added first", RING, frozenset(),
        rings(ADD_BOTH, OWN_TERM.replace("(1, 2", "(0, 2") + CAME_TERM.replace("(0, 2", "(1, 2"))),
    bug("barrier: distances 1, 2, 3 of three ranks", BARRIER, frozenset(),
        meets("        distance *= 2\n", "        distance += 1\n")),
    bug("combine: results of all rounds in one place, of ranks with the same experts",
        replace(COMBINE, nodes=1, top_k=1, rounds=3), frozenset(),
        combines.at(RESULTS, "r % 2", "0"), combines.at(RESULTS_IN, "r % 2", "0")),
)  # fmt: skip
"""Changes that every schedule of their configuration is right with."""
