"""Bugs in FusedDispatch and FusedCombine."""

from dataclasses import replace

from xccl_emu.protocols.fused.case import FusedCase

from .kinds import AREA, EVENTS, LEFTOVER, LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Of, bug
from .mutants_moe import MADE, NUMBER, ROW, by_tallies

PAIR = FusedCase(ranks=2, cores=1, tokens=2, rounds=2)
PAIRS = replace(PAIR, cores=2, rounds=3)
THREE = FusedCase(ranks=3, cores=1, tokens=1, rounds=3)
IDLE = replace(PAIR, tokens="2,0")
CHOICES = replace(PAIR, top_k=2, experts=2, rounds=1)
LONG = replace(PAIR, tokens=3, rounds=1)
SHARED = replace(PAIR, cores=3, rounds=1)
SINGLE = replace(PAIR, tokens=1)
TWICE = replace(PAIR, tokens=1, top_k=2, rounds=1, repeats=1)
LOOPS = replace(PAIRS, counting="scalar", rounds=1)
ONE_LOOP = replace(LOOPS, cores=1, tokens=3)
SPLIT = replace(LONG, cores=2)

of_dispatch, of_counts, of_combine, of_sums, of_common = (
    Of(module) for module in ("fused.dispatch", "experts.counts", "fused.combine", "experts.sums", "common")
)
"""Modules of kernels, to be changed."""


RESETTING = replace(PAIR, tokens=1, rounds=20)  # so that schedules of the portfolio meet it

# ---- what stands in dispatch

COUNTS = '            yield xl.put(field, event, n, begin + before, step=2, sync="counts")\n'
LOAD_COUNTS = 'from fetch(own, f.work, c.n_ranks * c.n_local * FIELD_BYTES, 3, "counts loaded")'
NOT_AWAITED = """xl.mtu_in(own, f.work, c.n_ranks * c.n_local * FIELD_BYTES)
        yield xl.set_flag(xl.MTU_IN, xl.SCALAR, 0)"""
SUM_COUNTS = "    rows = yield from add_words(f.work + 8, c.n_ranks * c.n_local, FIELD_BYTES, 3)\n"
EACH_COUNT = "    for i in range(c.n_ranks * c.n_local):\n"
VISIBLE = '    yield xl.quiet(step=1, sync="messages visible")  # and counted\n'
ALL_SENT = '    yield from barrier(2, "all cores have sent")\n'
IF_GRANTED = "    if f.exchange:\n        granted = yield from unaborted(x)\n    if granted:\n"
PUBLISH = "        yield from publish(rank, first, last, event, c, f, x)\n"
FIELD = "table + ((event % 2 * n_ranks + rank) * n_local + local) * FIELD_BYTES"
BEFORE = "yield xl.v_count(choices, at + 4, entries(tokens), slot - slot % c.n_local, slot, step=1)\n"
SKIPPED = "(place + begin - row) * (f.wire + SLOT_BYTES)\n"

# ---- what stands in combine

ROWS_VISIBLE = '        yield xl.quiet(step=1, sync="contributions visible")\n'
ANNOUNCE = "        yield from announce(listed, c, f)\n"
ARRIVAL = '        yield xl.add(f.arrivals + home * c.die_bytes + token * FIELD_BYTES, 1, step=2, sync="arrival")\n'
MAY_READ = of_combine.at("    arrivals: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]\n", "Writes", "Updates")
"""Ranks may read the arrivals of others, as one that does not count by atomics has to."""
READ_MODIFY_WRITE = """\
        seen = yield xl.load(f.arrivals + home * c.die_bytes + token * FIELD_BYTES, step=2)
        yield xl.store(f.arrivals + home * c.die_bytes + token * FIELD_BYTES, seen + 1, step=2, sync="arrival")
"""
NOT_MASKED = "        if slot >= 0:\n            due = due + 1\n"
TARGET = "    return f.combine + home * c.die_bytes + (token * c.top_k + choice) * 2 * c.hidden\n"

MAY_CLEAR = of_dispatch.at("    fields: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]\n", "Reads", "Updates")
"""Ranks may write the counts that they were told, as one that resets flags has to."""
CLEAR = '        yield xl.put(own + i * FIELD_BYTES, 0, sync="clear counts")\n'
CLEARED_LATE = (
    "        mine = field_at(f.fields + rank * c.die_bytes, event - 1, c.n_ranks, c.n_local, 0, 0)\n"
    '        yield xl.put(mine + slot * FIELD_BYTES, 0, sync="clear counts")\n'
)
BOOLEAN = (
    of_dispatch.at(COUNTS, "event", "1"),
    of_dispatch.at('until(going, own + i * FIELD_BYTES, event, x, 3, "counts in")', "event", "1"),
)
RESET = (*BOOLEAN, MAY_CLEAR, of_dispatch(SUM_COUNTS, SUM_COUNTS + EACH_COUNT + CLEAR))
"""Flags that are 0 or 1, and 0 again when the count was read: right on one core, with a table for each parity."""

KNOWN = (
    bug("fused: event e set, event e + 1 awaited", SINGLE, LOCKED | EVENTS,
        of_dispatch.apart("xl.MTU_IN, xl.MTU_OUT, half", "half full", "xl.MTU_IN, xl.MTU_OUT, (half + 1) % 2"),
        quick=True),
    bug("fused: combine of a token starts on the stores' issue, not on their completion", PAIR,
        RACE | UNWRITTEN | WRONG, of_combine(ROWS_VISIBLE + ANNOUNCE, ANNOUNCE + ROWS_VISIBLE)),
    bug("fused: a contribution is weighed when its load is issued", PAIR, UNWRITTEN | RACE,
        of_sums.without("contribution in")),
    bug("fused: single table of counts, a fast rank overwrites those of the round before", THREE, LOCKED | TORN,
        of_dispatch.at(FIELD, "event % 2", "event * 0")),
    bug("fused: boolean flags that are never reset", THREE, TORN | RACE, *BOOLEAN),
    bug("fused: flags cleared when peers may have set them for the round after next", RESETTING, LOCKED | TORN,
        of_dispatch(EACH_COUNT + CLEAR, ""), of_dispatch(BOOLEAN[0].new, BOOLEAN[0].new + CLEARED_LATE), base=RESET),
    bug("fused: a rank with zero tokens skips its counts", IDLE, LOCKED,
        of_dispatch(COUNTS, "            if n > 0:\n    " + COUNTS)),
    bug("fused: arrivals counted by read, modify and write", replace(PAIR, tokens=1, top_k=2),
        LOCKED | TORN | RACE, of_combine(ARRIVAL, READ_MODIFY_WRITE), base=(MAY_READ,)),
    bug("fused: counts told before the messages are visible", PAIR, RACE | UNWRITTEN,
        of_dispatch(VISIBLE + ALL_SENT + IF_GRANTED + PUBLISH, IF_GRANTED + PUBLISH + VISIBLE + ALL_SENT),
        quick=True),
)  # fmt: skip

OWN = (
    bug("fused: places that leave out the tokens of other cores", PAIRS, RACE | UNWRITTEN | WRONG,
        of_counts(NUMBER, NUMBER.replace("choices, at, t * COLUMNS + k", f"{ROW}, at, k"))),
    bug("fused: places that leave out the experts before", CHOICES, RACE | UNWRITTEN | WRONG,
        of_counts.at(BEFORE, "slot - slot % c.n_local", "slot")),
    bug("fused: places used before they are found", replace(PAIR, quantized=False, granules=2, rounds=1),
        RACE | UNWRITTEN | AREA | LEFTOVER | EVENTS, of_dispatch.without("places found")),
    bug("fused: counts used before they are loaded", PAIR, RACE | UNWRITTEN | AREA | LEFTOVER | EVENTS,
        of_dispatch(LOAD_COUNTS, NOT_AWAITED)),
    bug("fused: counts told when this core has sent, not when all have", PAIRS, RACE | UNWRITTEN,
        of_dispatch.without("all cores have sent")),
    bug("fused: counts of other cores' sources read before they are in", PAIRS, TORN | UNWRITTEN,
        of_dispatch.without("all counts are in")),
    bug("fused: routing of the next choice written into a message that is leaving", CHOICES, RACE,
        of_dispatch.without("message left")),
    bug("fused: a half filled again before it was copied out", LONG, RACE, of_dispatch.without("half free")),
    bug("fused: a core begins with a source's first message, and not where its rows begin", SPLIT,
        WRONG | RACE | UNWRITTEN, of_dispatch.at(SKIPPED, " + begin - row", "")),
    bug("fused: the message awaited in the wrong half", LONG, RACE | LOCKED | EVENTS,
        of_dispatch.at(MADE, "half,", "1 - half,")),
    bug("fused: late quantization, rows copied out before they are quantized", replace(PAIR, early_quantization=False),
        RACE | UNWRITTEN, of_dispatch.without("rows quantized")),
    bug("fused: SDMA rung before its messages are staged", replace(PAIR, path="sdma"), RACE | UNWRITTEN,
        of_dispatch.without("messages staged")),
    bug("fused: SDMA of a token not awaited", replace(PAIR, path="sdma"), RACE | EVENTS | LEFTOVER,
        of_dispatch.without("message written")),
    bug("fused: room granted before it is known what others have", replace(PAIR, preallocated=False), TORN | RACE,
        of_dispatch.without("asked in")),
    bug("fused: what a token was due forgotten", PAIR, WRONG | RACE | UNWRITTEN,
        of_combine.without("xl.store(f.due + own, due, step=3)")),
    bug("fused: contributions for masked choices awaited", replace(PAIR, masked=True), LOCKED,
        of_combine(NOT_MASKED, "        due = due + 1\n")),
    bug("fused: contributions of a token to one place", CHOICES, RACE | UNWRITTEN,
        of_combine.at(TARGET, "+ choice", "+ 0 * choice")),
    bug("fused: the second choice of an expert gets the place of the first", TWICE, RACE | UNWRITTEN | WRONG,
        of_counts.at(NUMBER, "COLUMNS + k + 1", "COLUMNS + 1")),
    bug("fused: both contributions of an expert to one place", TWICE, RACE | UNWRITTEN,
        of_combine.at(TARGET, "+ choice", "+ 0 * choice")),
    bug("fused: an expert that is chosen twice awaited once", replace(TWICE, rounds=3), RACE | UNWRITTEN | WRONG,
        of_combine.at(NOT_MASKED, "slot >= 0", "slot >= 0 and k == 0")),
    bug("fused: two contributions of an expert to a token announced as one", TWICE, LOCKED,
        of_combine(ARRIVAL, "        if i % 2 == 0:\n    " + ARRIVAL)),
    bug("fused: both contributions of an expert weighed as its first", TWICE, WRONG,
        of_sums.at("weight = yield xl.load(b.weights + t * INDEX_BYTES + 4 * k, 4, step=step)", "4 * k,", "0,")),
    *by_tallies("fused, tallies:", LOOPS, replace(LOOPS, tokens=3), ONE_LOOP),
    bug("fused: a route used before it is loaded", PAIR, RACE | AREA | UNWRITTEN | LEFTOVER | EVENTS,
        of_combine.apart("xl.MTU_IN, xl.SCALAR, 0", "rows listed")),
    bug("fused: a contribution sent before it is loaded", PAIR, RACE | UNWRITTEN, of_common.without("row in")),
    bug("fused: cores that share a peer send all of its rows", SHARED, RACE | WRONG | UNWRITTEN,
        of_combine("    if end - begin < c.cores:\n", "    if False:\n")),
    bug("fused: arrivals not awaited", PAIR, UNWRITTEN | RACE,
        of_combine('came = yield from until_least(going, f.arrivals + own, due, x, 3, "all arrived")', "came = 1")),
)  # fmt: skip
