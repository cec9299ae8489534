"""Bugs in dispatch and combine."""

from dataclasses import replace

from xccl_emu.protocols.experts.case import LayerCase
from xccl_emu.protocols.pull.case import CombineCase, DispatchCase

from .kinds import EVENTS, LEFTOVER, LOCKED, RACE, TORN, UNWRITTEN, WRONG
from .mutants import Mutant, Of, bug

DISPATCH = DispatchCase(ranks=2, tokens=2, granules=2, rounds=2)
LONGER = replace(DISPATCH, rounds=3)
THREE = DispatchCase(ranks=2, tokens=3, granules=2, rounds=1)
IDLE = DispatchCase(ranks=2, tokens=(2, 0), granules=2, rounds=1)
PAIRS = DispatchCase(ranks=2, cores=2, tokens=2, granules=2, rounds=2)
UNEVEN = replace(PAIRS, tokens=3)
"""A core acknowledges to a source that the other one pulls from, too."""
COMBINE = CombineCase(ranks=2, tokens=2, granules=2, rounds=2)
COMBINE_PAIRS = replace(COMBINE, cores=2)
CHOICES = replace(COMBINE, top_k=2, tokens=3, rounds=1)
TWICE = DispatchCase(ranks=2, tokens=1, granules=2, top_k=2, rounds=1, repeats=1)
BACK_TWICE = replace(COMBINE, tokens=1, top_k=2, rounds=1, repeats=1)
LOOPS = replace(PAIRS, counting="scalar", rounds=1)
ONE_LOOP = replace(LOOPS, cores=1, tokens=3, rounds=2)
BOTH_LOOP = replace(LOOPS, cores=1, experts=2, top_k=2)
NARROWED = replace(COMBINE, quantized_back=1)
MANY_NARROWED = replace(NARROWED, tokens=3, rounds=1)
TWO_EXPERTS = replace(COMBINE, experts=2, top_k=2, tokens=1, rounds=1)

of_dispatch, of_messages, of_counts, of_combine, of_sums = (
    Of(module) for module in ("pull.dispatch", "experts.messages", "experts.counts", "pull.combine", "experts.sums")
)
"""Modules of kernels, to be changed."""

# ---- what stands in dispatch

COUNTS = '            yield xl.put(field, event, n, d * a.block_bytes + before * message, step=4, sync="counts")\n'
POLL_COUNTS = '            came = yield from until(came, field, event, x, 5, "counts in")\n'
LOAD_COUNT = "n = yield xl.load(field + 8, step=5)\n"
IF_CAME = "            if came:\n                "
NUMBER = "yield xl.v_count(choices, at, t * COLUMNS + k + 1, slot, slot + 1, step=1)\n"
ROW = "choice_at(t, 0, c.n_ranks * c.n_local)"
TOKENS_VISIBLE = '    yield xl.quiet(step=3, sync="tokens visible")  # and counted\n'
ALL_WRITTEN = '    yield from barrier(4, "all cores have written")\n'
PUBLISH = """\
    whole = yield from may_offer(x)
    if whole:
        yield from publish(rank, first, last, event, c, a, x)
"""
PULL = "    yield from pull(rank, core, rows, c, b, a)\n"
ACKNOWLEDGE = "    yield from acknowledge(rank, core, event, a.done, c, x)\n"
PUT_ACK = '        yield xl.put(done + s * c.die_bytes + rank * FIELD_BYTES, event, step=7, sync="dispatch ack")\n'
IF_MADE = "            if c.quantized:\n"
MADE = '                yield xl.wait_flag(xl.VECTOR, xl.SCALAR, half, sync="message made")  # the places, too\n'

KNOWN = (
    bug("dispatch: single buffer, a fast rank overwrites the round before", DISPATCH, LOCKED | RACE,
        of_dispatch.at('done, d, event, x, 3, "dispatch blocks free")', "event", "event - 1")),
    bug("dispatch: boolean flags that are never reset", DISPATCH, TORN,
        of_dispatch.at(COUNTS, "event", "1"), of_dispatch.at(POLL_COUNTS, "event", "1")),
    bug("dispatch: a rank with zero tokens skips its flag", IDLE, LOCKED,
        of_dispatch(COUNTS, "            if n > 0:\n    " + COUNTS)),
    bug("dispatch: source told that its blocks are free when its counts were read", DISPATCH, RACE,
        of_dispatch(PULL + ACKNOWLEDGE, ACKNOWLEDGE + PULL)),
    bug("dispatch: quiet by core 0 for what core 1 wrote", PAIRS, RACE,
        of_dispatch(TOKENS_VISIBLE, "    if core == 0:\n    " + TOKENS_VISIBLE)),
)  # fmt: skip

OWN_DISPATCH = (
    bug("dispatch: counts published before the quiet", DISPATCH, RACE,
        of_dispatch(TOKENS_VISIBLE + ALL_WRITTEN + PUBLISH, PUBLISH + TOKENS_VISIBLE + ALL_WRITTEN)),
    bug("dispatch: no barrier before the counts, two cores", PAIRS, RACE,
        of_dispatch.without("all cores have written")),
    bug("dispatch: no barrier between writing and reading the table of counts", PAIRS, UNWRITTEN | RACE,
        of_dispatch.without("all counts are in")),
    bug("dispatch: the table of counts read before what the other core noted is visible", PAIRS, UNWRITTEN | RACE,
        of_dispatch.without("counts noted")),
    bug("dispatch: stale counts, read before the flag is in", DISPATCH, TORN,
        of_dispatch(POLL_COUNTS + IF_CAME + LOAD_COUNT, "            " + LOAD_COUNT + POLL_COUNTS)),
    bug("dispatch: a core acknowledges for its neighbour", UNEVEN, RACE | TORN, of_dispatch.without("all rows pulled")),
    bug("dispatch: acknowledgment of a round that has not begun", LONGER, RACE | TORN,
        of_dispatch.at(PUT_ACK, "event,", "event + 1,")),
    bug("dispatch: message not awaited before its routing is written into it", DISPATCH, RACE | UNWRITTEN,
        of_messages.without('xl.set_flag(xl.VECTOR, xl.SCALAR, half, sync="message made")'),
        of_dispatch(IF_MADE + MADE + "            else:\n", IF_MADE.replace("if", "if not"))),
    bug("dispatch: quantization waits for the other half's token", THREE, EVENTS | LOCKED,
        of_messages.apart("xl.MTU_IN, xl.VECTOR, half", "token loaded", "xl.MTU_IN, xl.VECTOR, 1 - half")),
    bug("dispatch: the next token made where one is still leaving", THREE, RACE, of_dispatch.without("message left")),
    bug("dispatch: messages laid out without room for their slots", DISPATCH, UNWRITTEN | WRONG,
        of_dispatch("place * message, message, step=3)", "place * c.payload, message, step=3)")),
    bug("dispatch: a half pulled into again before it was copied out", THREE, RACE | EVENTS,
        of_dispatch.without("pull half free")),
    bug("dispatch: rows copied out before they are in", DISPATCH, RACE, of_dispatch.without("pull half full")),
    bug("dispatch: places that leave out the tokens of other cores", PAIRS, RACE | UNWRITTEN | WRONG,
        of_counts(NUMBER, NUMBER.replace("choices, at, t * COLUMNS + k", f"{ROW}, at, k"))),
    bug("dispatch: a part pulled from where its source begins", PAIRS, WRONG | RACE | UNWRITTEN,
        of_dispatch("offset + (begin - row) * (c.payload + SLOT_BYTES)\n", "offset\n")),
)  # fmt: skip

OWN_REPEATS = (
    bug("dispatch: the second choice of an expert gets the place of the first", TWICE, UNWRITTEN | RACE | WRONG,
        of_counts.at(NUMBER, "COLUMNS + k + 1", "COLUMNS + 1")),
    bug("dispatch: the second message for an expert begun while the first leaves", TWICE, RACE,
        of_dispatch.without("message left")),
    bug("dispatch: both messages for an expert name its first choice", TWICE, WRONG,
        of_dispatch.at("xl.ub_store(at + c.payload + 12, k, step=3)", "k,", "0,")),
)  # fmt: skip

OWN_ROW = (
    of_counts("return half if tallies else t\n", "return 0 if tallies else t\n"),
    of_counts("choices + half * INDEX_BYTES, INDEX_BYTES", "choices, INDEX_BYTES"),
)


def by_tallies(who: str, loops: LayerCase, uneven: LayerCase, alone: LayerCase) -> tuple[Mutant, ...]:
    """Bugs of counting in scalar loops, which all groups share."""
    unseen, misplaced = UNWRITTEN | RACE, RACE | UNWRITTEN | WRONG
    return (
        bug(f"{who} told before they are visible", loops, unseen, of_counts.without("tallies visible")),
        bug(f"{who} used before all are added up", loops, unseen, of_counts.without("all tallies are added up")),
        bug(f"{who} places that leave out the tokens of cores before", uneven, misplaced,
            of_counts.at("yield xl.store(tallies + i * stride + 4 * slot, before, 4, step=step)", "before,", "0,")),
        bug(f"{who} every message for an expert to the place of the first", alone, misplaced,
            of_counts.at("yield xl.ub_store(4 * slot, place + 1, step=step)", "place + 1", "place")),
        bug(f"{who} choices of the next token brought over those of one that is sent", alone, RACE | WRONG | EVENTS,
            *OWN_ROW),
    )  # fmt: skip


OWN_LOOPS = (
    *by_tallies("tallies:", LOOPS, replace(LOOPS, rounds=2), ONE_LOOP),
    bug("tallies: added up before all cores have counted", LOOPS, UNWRITTEN | RACE,
        of_counts.without("all cores have counted")),
    bug("tallies: used before the sums are visible", LOOPS, UNWRITTEN | RACE, of_counts.without("sums visible")),
    bug("tallies: counted on before they are zero", LOOPS, UNWRITTEN | RACE, of_counts.without("tally cleared")),
    bug("tallies: places that leave out the experts before", BOTH_LOOP, RACE | UNWRITTEN | WRONG,
        of_counts.at("xl.ub_store(4 * slot, place + before, step=1)", "place + before", "place")),
)  # fmt: skip

# ---- what stands in combine

ROWS_VISIBLE = '    yield xl.quiet(step=3, sync="rows visible")  # it also frees the data buffer for the sums\n'
ALL_LAID_OUT = '    yield from barrier(4, "all cores have laid out")\n'
OFFERED = """\
    received = yield from unaborted(x)  # else there may be fewer rows than the peers want
    if received:
        for i in range(first, last):
            s = (i + rank) % c.n_ranks
            field = a.fields + s * c.die_bytes + rank * FIELD_BYTES
            if s != x.left:
                yield xl.put(field, event, s * a.block_bytes, step=4, sync="rows offered")
"""
ROWS_IN = '            came = yield from until(came, field, event, x, 5, "rows in")\n'
SUM = "    yield from sum_tokens(rank, core, tokens, event, c, b, a, Abort())\n"
ACKNOWLEDGE_ALL = "    yield from acknowledge_all(rank, core, event, a.done, c, Abort())\n"
AXPY = "        yield xl.v_axpy(at, acc, weight, c.hidden, dtype, step=step)\n"

ASKED = "yield from await_free(s, rank, event, c, a, x)"

OWN_NARROWED = (
    bug("combine: an output narrowed before it is in", NARROWED, RACE | UNWRITTEN, of_combine.without("output in")),
    bug("combine: a row laid out before it is narrowed", NARROWED, RACE | UNWRITTEN,
        of_combine.without("row narrowed")),
    bug("combine: an output brought over one that is not narrowed yet", MANY_NARROWED, RACE | EVENTS,
        of_combine.without("output used")),
    bug("combine: a row narrowed over one that is leaving", MANY_NARROWED, RACE | EVENTS,
        of_combine.without("narrowed row left")),
    bug("combine: a contribution widened by the scale of another", replace(NARROWED, top_k=2, rounds=1), WRONG | RACE,
        of_sums("c.hidden, at + c.hidden, step=step)\n", "c.hidden, acc + 5 * c.hidden, step=step)\n")),
    bug("combine: narrowed rows laid out without room for their scales", NARROWED, RACE | UNWRITTEN | WRONG,
        of_sums.at("return hidden + 32 if narrowed else 2 * hidden", "hidden + 32", "hidden")),
)  # fmt: skip

OWN_COMBINE = (
    bug("combine: blocks written before those of the round before were read", COMBINE, LOCKED | RACE,
        of_combine.at('done, s, event, x, 3, "combine blocks free")', "event", "event - 1")),
    bug("combine: rows offered before the quiet", COMBINE, RACE,
        of_combine(ROWS_VISIBLE + ALL_LAID_OUT + OFFERED, OFFERED + ROWS_VISIBLE + ALL_LAID_OUT)),
    bug("combine: rows offered when this core has laid out its part, not when all have", COMBINE_PAIRS,
        RACE | UNWRITTEN, of_combine.without("all cores have laid out")),
    bug("combine: quiet by core 0 for what core 1 laid out", COMBINE_PAIRS, RACE | UNWRITTEN,
        of_combine(ROWS_VISIBLE, "    if core == 0:\n    " + ROWS_VISIBLE)),
    bug("combine: a core lays out where only its neighbour has asked whether it may", COMBINE_PAIRS, RACE,
        of_combine.at("free = yield from await_free(s, rank, event, c, a, x)", ASKED, "1")),
    bug("combine: a rank that nothing is for told before it has seen the last", replace(COMBINE, tokens=1, rounds=3),
        LOCKED | TORN, of_combine.without("from await_free((i + rank) % c.n_ranks, rank, event, c, a, x)")),
    bug("combine: rows of the second expert laid out over those of the first", TWO_EXPERTS, RACE | UNWRITTEN | WRONG,
        of_combine.without("place = place + before")),
    bug("combine: a core's part laid out where its source's rows begin", COMBINE_PAIRS, RACE | UNWRITTEN | WRONG,
        of_combine.at("place = begin - row", "begin - row", "0")),
    bug("combine: a core's part begun with its source's first row", COMBINE_PAIRS, WRONG,
        of_combine.at("source = y + begin * 2 * c.hidden", "begin", "row")),
    bug("combine: acknowledged before the contributions are pulled", COMBINE, RACE,
        of_combine(SUM + ACKNOWLEDGE_ALL, ACKNOWLEDGE_ALL + SUM)),
    bug("combine: acknowledged when the pulls are issued", COMBINE_PAIRS, RACE,
        of_combine.without("contributions pulled")),
    bug("combine: a core acknowledges for its neighbour", COMBINE_PAIRS, LOCKED | RACE | TORN,
        of_combine.without("all cores have pulled")),
    bug("combine: does not wait for the last rank's rows", COMBINE, TORN | UNWRITTEN | RACE,
        of_combine(ROWS_IN, "            if expert_rank < c.n_ranks - 1:\n    " + ROWS_IN)),
    bug("combine: of a tile starts on the store's issue, not on its completion", COMBINE, UNWRITTEN | RACE,
        of_sums.without("contribution in")),
    bug("combine: event e set, event e + 1 awaited", CHOICES, EVENTS | LOCKED,
        of_sums.apart("xl.MTU_IN, xl.VECTOR, place", "contribution in", "xl.MTU_IN, xl.VECTOR, (place + 1) % LOADS")),
    bug("combine: a contribution pulled over one that is still weighed", CHOICES, EVENTS | RACE,
        of_sums.without("contribution used")),
    bug("combine: a contribution's weight left out", CHOICES, WRONG,
        of_sums.at(AXPY, "xl.v_axpy(at, acc, weight,", "xl.v_add(at, acc,")),
    bug("combine: both contributions of an expert weighed as its first", BACK_TWICE, WRONG,
        of_combine.at("weight = yield xl.load(b.weights + t * INDEX_BYTES + 4 * k, 4, step=7)", "4 * k,", "0,")),
    bug("combine: the second contribution of an expert left out", BACK_TWICE, WRONG,
        of_combine(ROWS_IN, ROWS_IN + "            weight = weight * (1 - k)\n")),
    bug("combine: sum copied out before it is rounded", COMBINE, UNWRITTEN | RACE, of_sums.without("sum made")),
    bug("combine: flag of a half that is full left over", COMBINE, RACE | LEFTOVER | EVENTS | UNWRITTEN,
        of_combine.apart("xl.MTU_IN, xl.MTU_OUT, half", "copy half full")),
)  # fmt: skip

OWN = (*OWN_DISPATCH, *OWN_REPEATS, *OWN_LOOPS, *OWN_COMBINE, *OWN_NARROWED)
