"""Bugs in A2E and E2A: between attention dies, trampolines and the three streams of expert dies."""

from dataclasses import replace

from xccl_emu.protocols.a2e.case import A2ECase

from .kinds import AREA, EVENTS, FAILED, LEFTOVER, LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug

USUAL = A2ECase()
"""Two attention dies, three expert dies of which two are trampolines, two calls."""
TURNS = A2ECase(domains=2, attention=1, experts=2, rounds=3, tokens=2)
"""Two domains that take turns."""
DEEP = replace(TURNS, depth=2, rounds=4)
AHEAD = A2ECase(domains=2, attention=1, experts=3, tokens=3, rounds=2, depth=2)
"""An expert die may be a call ahead of another one, neither being the trampoline."""
IDLE = A2ECase(domains=2, attention=1, experts=3, rounds=3)
"""In each call two of the expert dies have no rows, so that nobody waits for what they send back."""
MASKED = A2ECase(attention=1, experts=2, masked=True, top_k=2, rounds=1)
PAIRS = A2ECase(attention=1, experts=2, cores=2, tokens=2, rounds=2)
PAIRS_OF_FIELDS = A2ECase(attention=2, experts=2, cores=2, rounds=1)
"""Each core of an expert die waits for the counts of one trampoline."""
URMA = replace(TURNS, path="urma")
OUT = A2ECase(attention=1, experts=2, tokens=3, rounds=1, a2e_parts=2)
"""To the experts in two parts."""
BACK = A2ECase(attention=1, experts=2, tokens=2, e2a_parts=2)
"""And back in two parts, each a token."""
BACK_PAIRS = replace(BACK, cores=2, rounds=1)
"""One core of the trampoline forwards what others send back."""
SHARED = A2ECase(attention=2, experts=2, trampolines=1)
"""Two attention dies with one trampoline."""
TWO = A2ECase(attention=1, experts=1, microbatches=2, rounds=3)
"""Two microbatches of one attention die."""
STREAMED = A2ECase(attention=1, experts=2, tokens=3, cores=2, rounds=1, counting="scalar", listed=1)
"""A core of the trampoline has the choices of one token at a time."""
STREAMED_PARTS = A2ECase(
    attention=1, experts=2, tokens=4, rounds=1, a2e_parts=2, e2a_parts=2, counting="scalar", listed=1
)
STREAMED_ALONE = A2ECase(attention=1, experts=3, tokens=3, top_k=2, masked=1, counting="scalar", listed=1)
PULL = A2ECase(pull=True)

attends, forwards, experts, returns, counts = (
    Of(name) for name in ("a2e.attention", "a2e.trampoline", "a2e.expert", "a2e.e2a", "experts.counts")
)
"""Modules of kernels, to be changed."""

# ---- attention dies

SLOTS_FREE = """\
    going = yield from until_all(core, 1, at.credit, calls_before(call, x.first), x, 1, "slots free")
    if going:
        yield from send_parts"""

# ---- trampolines on the way to the experts

CREDIT = """\
        if more and core == 0:
            to = attention_die(call + 1, index, m.turns, m.domains, m.n_attention, c.n_ranks) * c.die_bytes
            to = to + microbatch_of(call + 1, m.turns, m.domains) * FIELD_BYTES
            yield xl.put(at.credit + to, call + 1, step=2, sync="credit")
"""
RELAYED_ON = """\
            if going:
                going = yield from relay(core, die, q, call, n, field, c, m, at, x)
"""
EARLY_CREDIT = """\
            index = first_of(die, m.n_attention, m.trampolines) + q
            to = attention_die(call + 1, index, m.turns, m.domains, m.n_attention, c.n_ranks) * c.die_bytes
            yield xl.put(at.credit + to, call + 1, step=2, sync="credit")
"""
NEXT_PART = """\
            if part > 0:
                field_of_it = field + part * FIELD_BYTES
                going = yield from all_await_call(core, going, field_of_it, call + 1, x, 2, "tokens announced")
"""
NEXT_DIE = """\
                going = yield from all_await_call(core, going, field, call + 1, x, 2, "tokens announced")
                if going:
                    n = yield xl.load(field + 8, step=2)
"""
UP_TO = "yield xl.v_count(s.lists, at, t * COLUMNS + k + 1, slot, slot + 1, step=2)"
INBOXES_FREE = (
    '    going = yield from until_first(core, going, at.acks + here, c.n_ranks * call, x, 2, "inboxes free")\n'
)
COUNT = '        yield xl.put(field, call + 1, count, step=2, sync="counts of messages")\n'
DRAIN = """\
                turn = turn + 1
    yield from drain_rings(turn)
"""

# ---- expert dies

ROWS_VISIBLE = '    yield xl.quiet(step=3, sync="rows visible")\n'
GATHERED = '    yield from barrier(3, "all cores have gathered")\n'
ASSEMBLED = """\
    if core == 0 and going:
        yield xl.put(at.assembled + here, call + 1, step=3, sync="rows gathered")
"""
ACKS = """\
    if n >= 0:
        for t in range(m.trampolines):
            if t % c.cores == core:
                yield xl.add(at.acks + t * c.die_bytes, 1, step=3, sync="gathered")
"""
EARLY_ACKS = ACKS.replace("    if n >= 0:\n", "")
GATHER = "        if going:\n            yield from gather(core, die, call, c, b, m, at)\n"
COMPUTED_VISIBLE = '        yield xl.quiet(step=4, sync="outputs of experts visible")\n'
ALL_COMPUTED = '        yield from barrier(4, "all cores have computed")\n'
COMPUTED = """\
        if core == 0 and going:
            yield xl.put(at.computed + here, call + 1, step=4, sync="rows computed")
"""

# ---- the way back

DUE = "some * COLUMNS, 0, c.n_ranks * c.n_local,"
OF_PART = "        if token >= high:\n            break\n"
DONE = "                yield xl.ub_store(done_at, done + turn - before, step=5)\n"
STAGING = " + place * m.tokens_max * c.top_k * 2 * c.hidden\n                first"
TO_SEND = """\
        going = yield from until_all(core, 1, at.computed + die * c.die_bytes, call + 1, x, 5, "rows to send back")
"""
RETURN_ROWS = "            yield from return_share(low, high, first, last, kept, source, at.returned + to, c, plan)\n"
ROWS_OF = "        to = to + microbatch_of(call, m.turns, m.domains) * m.tokens_max * c.top_k * 2 * c.hidden\n"
TOLD = "            to = to + microbatch_of(call, m.turns, m.domains) * FIELD_BYTES\n"
ITS_DIES = """\
            to = attention_die(call, index, m.turns, m.domains, m.n_attention, c.n_ranks) * c.die_bytes
            to = to"""
RELAYED = '        yield xl.put(at.relayed + here, call + 1, step=6, sync="staging read")\n'

E2A_WAITS = returns(
    TO_SEND,
    TO_SEND
    + "        if die < m.n_attention:\n"
    + "            yield xl.poll_ge(at.computed + die * c.die_bytes, call + 2, step=5)\n",
)
"""E2A goes on when A2E has given back the slots of the next call, as if both had the same ones."""

KNOWN = (
    bug("plain pull: payload on one die, its flag on another, and nothing but fifo order between them", PULL, RACE,
        Of("pull.dispatch")('    yield xl.quiet(step=3, sync="tokens visible")  # and counted\n', "")),
    bug("a2e: trampoline tells the origin that its slots are free before it has read them", TURNS, RACE | FAILED,
        forwards(RELAYED_ON, EARLY_CREDIT + RELAYED_ON), forwards(CREDIT, ""), quick=True),
    bug("e2a: waits for slots that A2E holds until rows are free, which E2A has to send", replace(TURNS, rounds=2),
        LOCKED, E2A_WAITS),
)  # fmt: skip

OWN = (
    bug("a2e: tokens announced before they are visible", USUAL, RACE, attends.without("tokens visible")),
    bug("a2e: attention die does not wait for its trampoline's slots", TURNS, RACE | FAILED,
        attends(SLOTS_FREE, "    going = 1\n    if going:\n        yield from send_parts")),
    bug("a2e: tokens announced by core 0 before core 1 has sent its own", PAIRS, RACE | UNWRITTEN,
        attends.without("all cores have sent")),
    bug("a2e: messages announced before they are visible", USUAL, RACE, forwards.without("messages visible")),
    bug("a2e: experts do not say that they have gathered", USUAL, RACE | TORN | FAILED,
        experts(ACKS, ""), forwards(INBOXES_FREE, "")),
    bug("a2e: experts say that they have gathered when they have read the counts", DEEP,
        RACE | WRONG | UNWRITTEN | TORN | FAILED, experts(ACKS, ""), experts(GATHER, EARLY_ACKS + GATHER)),
    bug("a2e: the end overtakes the last call", USUAL, RACE | TORN | FAILED | LOCKED,
        forwards(INBOXES_FREE, "    if n >= 0:\n    " + INBOXES_FREE), quick=True),
    bug("a2e: a trampoline without messages for an expert says nothing", USUAL, LOCKED,
        forwards(COUNT, "        if count:\n    " + COUNT)),
    bug("a2e: two messages for an expert at one place", replace(TURNS, tokens=3),
        WRONG | UNWRITTEN | RACE | LOCKED | EVENTS, forwards("place = found - 1\n", "place = 0 * found\n")),
    bug("a2e: rows handed over before they are visible", USUAL, RACE | TORN | UNWRITTEN,
        experts(ROWS_VISIBLE + GATHERED + ASSEMBLED, ASSEMBLED + ROWS_VISIBLE + GATHERED)),
    bug("a2e: counts taken for noted by all cores when the own ones are", PAIRS_OF_FIELDS, RACE | UNWRITTEN | WRONG,
        experts.without("all messages are announced")),
    bug("a2e: counts noted for other cores before they are visible", PAIRS_OF_FIELDS, RACE | UNWRITTEN | WRONG,
        experts.without("counts noted")),
    bug("a2e: rows of the next call put where the last ones are", IDLE, RACE | TORN | UNWRITTEN | WRONG,
        experts.without("rows free")),
    bug("a2e: outputs of experts handed over before they are visible", USUAL, RACE | UNWRITTEN,
        experts(COMPUTED_VISIBLE + ALL_COMPUTED + COMPUTED, COMPUTED + COMPUTED_VISIBLE + ALL_COMPUTED)),
    bug("a2e: lists and staging of the last call overwritten", TURNS, RACE | LOCKED | WRONG,
        forwards.without("staging free")),
    bug("a2e: copies by URMA not awaited before slots are given back", URMA, RACE | LEFTOVER | EVENTS,
        forwards.at(DRAIN, "    yield from drain_rings(turn)\n", "")),
    bug("e2a: rows announced before they are visible", USUAL, RACE | UNWRITTEN, returns.without("rows in staging")),
    bug("e2a: one count of arrivals for both calls that are under way", AHEAD, RACE | UNWRITTEN,
        returns.at("place = parity * m.fan_in + t - first_of(", "parity * m.fan_in + ", ""),
        returns.at("number = place * m.e2a_parts + part", "place", "q")),
    bug("e2a: masked choices waited for", MASKED, LOCKED, returns.at(DUE, " 0,", " -1,")),
    bug("e2a: attention die told before its rows are visible", USUAL, RACE | UNWRITTEN,
        returns.without("rows at the attention die")),
    bug("e2a: staging said to be read before it is", TURNS, RACE | WRONG | UNWRITTEN,
        returns(RELAYED, ""), returns(RETURN_ROWS, "    " + RELAYED + RETURN_ROWS)),
    bug("a2e, in parts: the second forwarded when the first is announced", OUT, RACE | UNWRITTEN,
        forwards(NEXT_PART, "")),
    bug("a2e, in parts: announced before they are visible", OUT, RACE, attends.without("tokens visible")),
    bug("a2e, in parts: each announced in the field of the first", OUT, LOCKED | TORN,
        attends("at.tokens_in + part * FIELD_BYTES", "at.tokens_in")),
    bug("a2e, in parts: places of messages counted from the own token on", OUT,
        WRONG | UNWRITTEN | RACE | LOCKED | EVENTS,
        forwards.at(UP_TO, "(s.lists, at, t * COLUMNS + ", "(s.lists + t * INDEX_BYTES, at, ")),
    bug("a2e, in parts: only the tokens of the first part announced to the experts", OUT, WRONG | UNWRITTEN | LOCKED,
        forwards("s.tokens * COLUMNS, slot, slot", "COLUMNS, slot, slot")),
    bug("e2a, in parts: announced before they are visible", BACK, RACE | UNWRITTEN, returns.without("rows in staging")),
    bug("e2a, in parts: each announced as the first", BACK, LOCKED,
        returns("(place * m.e2a_parts + part) * FIELD_BYTES", "place * m.e2a_parts * FIELD_BYTES")),
    bug("e2a, in parts: the second forwarded when the first has arrived", BACK, RACE | UNWRITTEN,
        returns.at("until_least(1, at.arrivals + here + number * FIELD_BYTES, due,", "number", "place * m.e2a_parts")),
    bug("e2a, in parts: all rows sent with the first", BACK, LOCKED, returns(OF_PART, "")),
    bug("e2a, in parts: rows of the first part sent again with the second", BACK, RACE | WRONG, returns(DONE, "")),
    bug("e2a, in parts: call returned when those have done their part that only send", BACK_PAIRS, RACE | UNWRITTEN,
        returns.without("all cores have sent back")),
    bug("a2e, several attention dies: the tokens of the second not waited for", SHARED,
        RACE | TORN | UNWRITTEN | LOCKED | WRONG,
        forwards(NEXT_DIE, "                n = yield xl.load(field + 8, step=2)\n")),
    bug("a2e, several attention dies: credit for the first alone", SHARED, LOCKED | FAILED,
        forwards("attention_die(call + 1, index,", "attention_die(call + 1, die,")),
    bug("a2e, several attention dies: lists of the first overwritten while they are kept",
        replace(SHARED, path="urma", rounds=1), RACE | WRONG, forwards.without("lists left")),
    bug("a2e, several attention dies: lists of the first overwritten while they are counted", replace(SHARED, rounds=1),
        RACE | WRONG | LOCKED, forwards.without("messages counted")),
    bug("e2a, several attention dies: rows of both at one place in the staging", SHARED, RACE | WRONG | UNWRITTEN,
        returns.at(STAGING, "place", "s.parity * m.fan_in")),
    bug("e2a, several attention dies: the first alone told that its rows are there", SHARED, LOCKED,
        returns.at("index = first_of(die, m.n_attention, m.trampolines) + q\n            to =", " + q", "")),
    bug("a2e, streamed: what a core has counted told before it is visible", STREAMED, RACE | UNWRITTEN,
        counts.without("tallies visible")),
    bug("a2e, streamed: forwarded before all cores have added up", STREAMED, RACE | UNWRITTEN,
        counts.without("all tallies are added up")),
    bug("a2e, streamed: messages of the second part at the places of the first", STREAMED_PARTS,
        RACE | UNWRITTEN | WRONG, forwards.at("yield xl.ub_store(4 * slot, before + place, step=2)", "before + ", "")),
    bug("a2e, streamed: messages of the call before counted again", STREAMED_ALONE,
        RACE | UNWRITTEN | WRONG | LOCKED | AREA,
        forwards.at("yield from clear_tally(s.messages, 2, c)", "yield", "if call == 0:\n            yield")),
    bug("a2e, streamed: lists of the next token brought over those that are kept", STREAMED_ALONE,
        RACE | WRONG | LOCKED, forwards.without("lists left")),
    bug("e2a, streamed: only the choices of the last token waited for", STREAMED_ALONE, RACE | UNWRITTEN,
        returns("rows = rows + n\n", "rows = n\n")),
    bug("e2a, streamed: choices read before they are there", STREAMED_ALONE,
        RACE | UNWRITTEN | WRONG | LEFTOVER | EVENTS,
        returns.apart("xl.MTU_IN, xl.SCALAR, 1", "lists of a share loaded", more=", step=6")),
    bug("a2e, microbatches: the rows of both come back to one place", TWO, RACE | WRONG | UNWRITTEN | AREA,
        returns(ROWS_OF, "")),
    bug("a2e, microbatches: both told of one's call in the same field", TWO,
        LOCKED | AREA | RACE | WRONG | UNWRITTEN | TORN, returns(TOLD, "")),
    bug("a2e, microbatches: credit for the one that has just been forwarded", TWO, LOCKED,
        forwards("microbatch_of(call + 1, m.turns", "microbatch_of(call, m.turns")),
    bug("a2e, microbatches: a call returned to the dies of the next", replace(TWO, domains=2, rounds=4),
        LOCKED | RACE | TORN,
        returns.at(ITS_DIES, "(call,", "(call + 1,")),
    bug("a2e, microbatches: a die that has computed is not left to the other one", replace(TWO, attention_work=1),
        LOCKED, attends("number + 1, sync=\"die left\"", "number, sync=\"die left\"")),
)  # fmt: skip
