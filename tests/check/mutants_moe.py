"""Bugs in dispatch and combine.

The kernel that ships has all phases of a layer.  Here those that a bug is not in are left out, because it is compiled
anew for every bug.
"""

import re
from dataclasses import replace
from functools import partial

from xccl_emu.check.verdict import (
    BAD_INSTRUCTION,
    DATA_RACE,
    DEADLOCK,
    LEFTOVER,
    TORN_METADATA,
    UNWRITTEN_READ,
    WRONG_BITS,
)
from xccl_emu.protocols.moe_case import CombineCase, DispatchCase

from .mutants import Edit, Mutant, text_of

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

of_dispatch, of_counts, of_combine, of_sums = (
    partial(Edit, module) for module in ("dispatch", "counts", "combine", "sums")
)
"""A change of a module of kernels: old text, new text."""

def only(kept: str) -> tuple[Edit, ...]:
    """Leave all phases of a layer out but one."""
    phase = re.compile(r"^    if rounds.parts & .*\n(?:        .*\n)+", re.MULTILINE)
    phases = phase.findall(text_of("xccl_emu.kernels.moe"))
    return tuple(Edit("moe", phase, "") for phase in phases if f"parts & {kept}:" not in phase)


ONLY_DISPATCH, ONLY_COMBINE = only("DISPATCH"), only("COMBINE")

# ---- what stands in dispatch

COUNTS = '        yield put(field, event, n, d * a.block_bytes + before * message, step=4, sync="counts")\n'
POLL_COUNTS = '        yield poll_eq(field, event, step=5, sync="counts in")\n'
LOAD_COUNT = "        n = yield load(field + 8, step=5)\n"
NOTED = '    yield quiet(step=5, sync="counts noted")\n'
COUNTS_IN = '    yield from barrier(5, "all counts are in")\n'
NUMBER = "yield v_count(choices, at, t * COLUMNS + k + 1, slot, slot + 1, step=1)\n"
ROW = "choice_at(t, 0, c.n_ranks * c.n_local)"
FREE = 'FIELD_BYTES, event - 1, step=3, sync="dispatch blocks free")\n'
TOKENS_VISIBLE = '    yield quiet(step=3, sync="tokens visible")  # and counted\n'
ALL_WRITTEN = '    yield from barrier(4, "all cores have written")\n'
PUBLISH = "    yield from publish(rank, first, last, event, c, a)\n"
PULL = "    yield from pull(rank, core, rows, c, b, a)\n"
ALL_ROWS_PULLED = '    yield from barrier(7, "all rows pulled")\n'
SKIPPED = "offset + (begin - row) * (c.payload + SLOT_BYTES)\n"
ACKNOWLEDGE = "    yield from acknowledge(rank, core, event, a.done, c)\n"
PUT_ACK = '        yield put(done + s * c.die_bytes + rank * FIELD_BYTES, event, step=7, sync="dispatch ack")\n'
PULL_HALF_FREE = """\
        if turn >= 2:
            yield wait_flag(MTU_OUT, MTU_IN, half, sync="pull half free")
"""
PULL_FULL = """\
        yield set_flag(MTU_IN, MTU_OUT, half, sync="pull half full")
        yield wait_flag(MTU_IN, MTU_OUT, half, sync="pull half full")
"""
SET_PULL_FREE = '        yield set_flag(MTU_OUT, MTU_IN, half, sync="pull half free")\n        done'
DRAIN_PULL = '    yield from drain_halves(MTU_OUT, MTU_IN, turn, "pull half free")\n'
LOADED = 'yield wait_flag(MTU_IN, VECTOR, half, sync="token loaded")\n'
MADE = '                yield wait_flag(VECTOR, SCALAR, half, sync="message made")  # the places, too\n'
MESSAGE_LEFT = """\
            yield set_flag(MTU_OUT, SCALAR, half, sync="message left")
            yield wait_flag(MTU_OUT, SCALAR, half, sync="message left")
"""
PREPARED = '        yield set_flag(VECTOR, SCALAR, half, sync="message made")\n'

KNOWN = (
    Mutant(
        "dispatch: single buffer, a fast rank overwrites the round before", DISPATCH,
        (of_dispatch(FREE, FREE.replace("event - 1", "event - 2")),), (DEADLOCK, DATA_RACE),
    ),
    Mutant(
        "dispatch: boolean flags that are never reset", DISPATCH,
        (
            of_dispatch(COUNTS, COUNTS.replace("event", "1")),
            of_dispatch(POLL_COUNTS, POLL_COUNTS.replace("event", "1")),
        ), (TORN_METADATA,),
    ),
    Mutant(
        "dispatch: a rank with zero tokens skips its flag", IDLE,
        (of_dispatch(COUNTS, "        if n > 0:\n    " + COUNTS),), (DEADLOCK,),
    ),
    Mutant(
        "dispatch: source told that its blocks are free when its counts were read", DISPATCH,
        (of_dispatch(PULL + ACKNOWLEDGE, ACKNOWLEDGE + PULL),), (DATA_RACE,),
    ),
    Mutant(
        "dispatch: quiet by core 0 for what core 1 wrote", PAIRS,
        (of_dispatch(TOKENS_VISIBLE, "    if core == 0:\n    " + TOKENS_VISIBLE),), (DATA_RACE,),
    ),
)  # fmt: skip

OWN_DISPATCH = (
    Mutant(
        "dispatch: counts published before the quiet", DISPATCH,
        (of_dispatch(TOKENS_VISIBLE + ALL_WRITTEN + PUBLISH, PUBLISH + TOKENS_VISIBLE + ALL_WRITTEN),),
        (DATA_RACE,),
    ),
    Mutant(
        "dispatch: no barrier before the counts, two cores", PAIRS,
        (of_dispatch(ALL_WRITTEN, ""),), (DATA_RACE,),
    ),
    Mutant(
        "dispatch: no barrier between writing and reading the table of counts", PAIRS,
        (of_dispatch(COUNTS_IN, ""),), (UNWRITTEN_READ, DATA_RACE),
    ),
    Mutant(
        "dispatch: the table of counts read before what the other core noted is visible", PAIRS,
        (of_dispatch(NOTED, ""),), (UNWRITTEN_READ, DATA_RACE),
    ),
    Mutant(
        "dispatch: stale counts, read before the flag is in", DISPATCH,
        (of_dispatch(POLL_COUNTS + LOAD_COUNT, LOAD_COUNT + POLL_COUNTS),), (TORN_METADATA,),
    ),
    Mutant(
        "dispatch: a core acknowledges for its neighbour", UNEVEN,
        (of_dispatch(ALL_ROWS_PULLED, ""),), (DATA_RACE, TORN_METADATA),
    ),
    Mutant(
        "dispatch: acknowledgment of a round that has not begun", LONGER,
        (of_dispatch(PUT_ACK, PUT_ACK.replace("event,", "event + 1,")),), (DATA_RACE,),
    ),
    Mutant(
        "dispatch: message not awaited before its routing is written into it", DISPATCH,
        (
            of_dispatch(PREPARED, ""),
            of_dispatch(
                "            if c.quantized:\n" + MADE + "            else:\n", "            if not c.quantized:\n"
            ),
        ), (DATA_RACE, UNWRITTEN_READ),
    ),
    Mutant(
        "dispatch: quantization waits for the other half's token", THREE,
        (of_dispatch(LOADED, LOADED.replace("half", "1 - half")),), (BAD_INSTRUCTION, DEADLOCK),
    ),
    Mutant(
        "dispatch: the next token made where one is still leaving", THREE,
        (of_dispatch(MESSAGE_LEFT, ""),), (DATA_RACE,),
    ),
    Mutant(
        "dispatch: messages laid out without room for their slots", DISPATCH,
        (of_dispatch("place * message, message, step=3)", "place * c.payload, message, step=3)"),),
        (UNWRITTEN_READ, WRONG_BITS),
    ),
    Mutant(
        "dispatch: a half pulled into again before it was copied out", THREE,
        (of_dispatch(PULL_HALF_FREE, ""), of_dispatch(SET_PULL_FREE, "        done"), of_dispatch(DRAIN_PULL, "")),
        (DATA_RACE, BAD_INSTRUCTION),
    ),
    Mutant(
        "dispatch: rows copied out before they are in", DISPATCH,
        (of_dispatch(PULL_FULL, ""),), (DATA_RACE,),
    ),
    Mutant(
        "dispatch: places that leave out the tokens of other cores", PAIRS,
        (of_counts(NUMBER, NUMBER.replace("choices, at, t * COLUMNS + k", f"{ROW}, at, k")),),
        (DATA_RACE, UNWRITTEN_READ, WRONG_BITS),
    ),
    Mutant(
        "dispatch: a part pulled from where its source begins", PAIRS,
        (of_dispatch(SKIPPED, "offset\n"),), (WRONG_BITS, DATA_RACE, UNWRITTEN_READ),
    ),
)  # fmt: skip

OFFSET = "            yield ub_store(at + c.payload + 12, k, step=3)\n"

OWN_REPEATS = (
    Mutant(
        "dispatch: the second choice of an expert gets the place of the first", TWICE,
        (of_counts(NUMBER, NUMBER.replace("COLUMNS + k + 1", "COLUMNS + 1")),), (UNWRITTEN_READ, DATA_RACE, WRONG_BITS),
    ),
    Mutant(
        "dispatch: the second message for an expert begun while the first leaves", TWICE,
        (of_dispatch(MESSAGE_LEFT, ""),), (DATA_RACE,),
    ),
    Mutant(
        "dispatch: both messages for an expert name its first choice", TWICE,
        (of_dispatch(OFFSET, OFFSET.replace("k,", "0,")),), (WRONG_BITS,),
    ),
)  # fmt: skip

CLEARED = '''\
    yield set_flag(VECTOR, SCALAR, 0, sync="tally cleared")
    yield wait_flag(VECTOR, SCALAR, 0, sync="tally cleared")
'''
TALLIES_VISIBLE = '    yield quiet(step=1, sync="tallies visible")\n'
ALL_COUNTED = '    yield from barrier(1, "all cores have counted")\n'
SUMS_VISIBLE = '    yield quiet(step=1, sync="sums visible")\n'
ALL_ADDED = '    yield from barrier(1, "all tallies are added up")\n'
EARLIER = "            yield store(tallies + i * stride + 4 * slot, before, 4, step=1)\n"
ONWARD = "        yield ub_store(4 * slot, place + 1, step=1)\n"
EXPERTS_BEFORE = "        yield ub_store(4 * slot, place + before, step=1)\n"
OWN_ROW = (
    of_counts("return half if tallies else t\n", "return 0 if tallies else t\n"),
    of_counts("choices + half * INDEX_BYTES, INDEX_BYTES", "choices, INDEX_BYTES"),
)

OWN_LOOPS = (
    Mutant(
        "tallies: told before they are visible", LOOPS,
        (of_counts(TALLIES_VISIBLE, ""),), (UNWRITTEN_READ, DATA_RACE),
    ),
    Mutant(
        "tallies: added up before all cores have counted", LOOPS,
        (of_counts(ALL_COUNTED, ""),), (UNWRITTEN_READ, DATA_RACE),
    ),
    Mutant(
        "tallies: used before all are added up", LOOPS,
        (of_counts(ALL_ADDED, ""),), (UNWRITTEN_READ, DATA_RACE),
    ),
    Mutant(
        "tallies: used before the sums are visible", LOOPS,
        (of_counts(SUMS_VISIBLE, ""),), (UNWRITTEN_READ, DATA_RACE),
    ),
    Mutant(
        "tallies: counted on before they are zero", LOOPS,
        (of_counts(CLEARED, ""),), (UNWRITTEN_READ, DATA_RACE),
    ),
    Mutant(
        "tallies: places that leave out the tokens of cores before", replace(LOOPS, rounds=2),
        (of_counts(EARLIER, EARLIER.replace("before,", "0,")),), (DATA_RACE, UNWRITTEN_READ, WRONG_BITS),
    ),
    Mutant(
        "tallies: every message for an expert to the place of the first", ONE_LOOP,
        (of_counts(ONWARD, ONWARD.replace("place + 1", "place")),), (DATA_RACE, UNWRITTEN_READ, WRONG_BITS),
    ),
    Mutant(
        "tallies: places that leave out the experts before", BOTH_LOOP,
        (of_counts(EXPERTS_BEFORE, EXPERTS_BEFORE.replace("place + before", "place")),),
        (DATA_RACE, UNWRITTEN_READ, WRONG_BITS),
    ),
    Mutant(
        "tallies: choices of the next token brought over those of one that is sent", ONE_LOOP,
        OWN_ROW, (DATA_RACE, WRONG_BITS, BAD_INSTRUCTION),
    ),
)  # fmt: skip

# ---- what stands in combine

ROWS_VISIBLE = '    yield quiet(step=3, sync="rows visible")  # it also frees the data buffer for the sums\n'
COMBINE_FREE = 'FIELD_BYTES, event - 1, step=3, sync="combine blocks free")\n'
FREE_TO_LAY_OUT = "                yield from await_free(s, rank, event, c, a)\n"
FREE_TO_TELL = "        yield from await_free((i + rank) % c.n_ranks, rank, event, c, a)\n"
ALL_LAID_OUT = '    yield from barrier(4, "all cores have laid out")\n'
OFFERED = """\
    for i in range(first, last):
        s = (i + rank) % c.n_ranks
        field = a.fields + s * c.die_bytes + rank * FIELD_BYTES
        yield put(field, event, s * a.block_bytes, step=4, sync="rows offered")
"""
BEFORE = "                    place = place + before\n"
PLACE = "                place = begin - row\n"
PART = "                source = y + begin * 2 * c.hidden\n"
ROWS_IN = '            yield poll_eq(field, event, step=5, sync="rows in")\n'
CONTRIBUTION_IN = """\
    yield set_flag(MTU_IN, VECTOR, place, sync="contribution in")
    yield wait_flag(MTU_IN, VECTOR, place, sync="contribution in")
"""
AWAIT_CONTRIBUTION = 'yield wait_flag(MTU_IN, VECTOR, place, sync="contribution in")\n'
PULLED = """\
    yield set_flag(MTU_IN, SCALAR, 2, sync="contributions pulled")
    yield wait_flag(MTU_IN, SCALAR, 2, sync="contributions pulled")
"""
ALL_PULLED = '    yield from barrier(7, "all cores have pulled")\n'
SUM = "    yield from sum_tokens(rank, core, tokens, event, c, b, a)\n"
ACKNOWLEDGE_ALL = "    yield from acknowledge_all(rank, core, event, a.done, c)\n"
USED = '    if turn >= LOADS:\n        yield wait_flag(VECTOR, MTU_IN, place, sync="contribution used")\n'
SET_USED = '    yield set_flag(VECTOR, MTU_IN, place, sync="contribution used")\n'
DRAIN_USED = '    yield from drain(VECTOR, MTU_IN, contributions, LOADS, "contribution used")\n'
AXPY = "        yield v_axpy(at, acc, weight, c.hidden, dtype, step=step)\n"
SUM_MADE = """\
    yield set_flag(VECTOR, MTU_OUT, half, sync="sum made")
    yield wait_flag(VECTOR, MTU_OUT, half, sync="sum made")
"""
WEIGHT = "weight = yield load(b.weights + t * INDEX_BYTES + 4 * k, 4, step=7)\n"
COPY_FULL = '        yield wait_flag(MTU_IN, MTU_OUT, half, sync="copy half full")\n'

OUTPUT_IN = """\
        yield set_flag(MTU_IN, VECTOR, half, sync="output in")
        yield wait_flag(MTU_IN, VECTOR, half, sync="output in")
"""
OUTPUT_USED = """\
        if turn >= 2:
            yield wait_flag(VECTOR, MTU_IN, half, sync="output used")
"""
SET_OUTPUT_USED = '        yield set_flag(VECTOR, MTU_IN, half, sync="output used")\n'
DRAIN_USED_OUTPUTS = '        yield from drain_halves(VECTOR, MTU_IN, turn, "output used")\n'
ROW_NARROWED = """\
        yield set_flag(VECTOR, MTU_OUT, half, sync="row narrowed")
        yield wait_flag(VECTOR, MTU_OUT, half, sync="row narrowed")
"""
NARROWED_LEFT = """\
        if turn >= 2:
            yield wait_flag(MTU_OUT, VECTOR, half, sync="narrowed row left")
"""
SET_NARROWED_LEFT = '        yield set_flag(MTU_OUT, VECTOR, half, sync="narrowed row left")\n'
DRAIN_NARROWED = '        yield from drain_halves(MTU_OUT, VECTOR, turn, "narrowed row left")\n'
SCALE = "c.hidden, at + c.hidden, step=step)\n"
STRIDE = "    return hidden + 32 if narrowed else 2 * hidden\n"

OWN_NARROWED = (
    Mutant(
        "combine: an output narrowed before it is in", NARROWED,
        (of_combine(OUTPUT_IN, ""),), (DATA_RACE, UNWRITTEN_READ),
    ),
    Mutant(
        "combine: a row laid out before it is narrowed", NARROWED,
        (of_combine(ROW_NARROWED, ""),), (DATA_RACE, UNWRITTEN_READ),
    ),
    Mutant(
        "combine: an output brought over one that is not narrowed yet", MANY_NARROWED,
        (
            of_combine(OUTPUT_USED, ""), of_combine(SET_OUTPUT_USED, ""),
            of_combine(DRAIN_USED_OUTPUTS, "        pass\n"),
        ),
        (DATA_RACE, BAD_INSTRUCTION),
    ),
    Mutant(
        "combine: a row narrowed over one that is leaving", MANY_NARROWED,
        (
            of_combine(NARROWED_LEFT, ""), of_combine(SET_NARROWED_LEFT, ""),
            of_combine(DRAIN_NARROWED, "        pass\n"),
        ),
        (DATA_RACE, BAD_INSTRUCTION),
    ),
    Mutant(
        "combine: a contribution widened by the scale of another", replace(NARROWED, top_k=2, rounds=1),
        (of_sums(SCALE, "c.hidden, acc + 5 * c.hidden, step=step)\n"),), (WRONG_BITS, DATA_RACE),
    ),
    Mutant(
        "combine: narrowed rows laid out without room for their scales", NARROWED,
        (of_sums(STRIDE, STRIDE.replace("hidden + 32", "hidden")),), (DATA_RACE, UNWRITTEN_READ, WRONG_BITS),
    ),
)  # fmt: skip

OWN_COMBINE = (
    Mutant(
        "combine: blocks written before those of the round before were read", COMBINE,
        (of_combine(COMBINE_FREE, COMBINE_FREE.replace("event - 1", "event - 2")),), (DEADLOCK, DATA_RACE),
    ),
    Mutant(
        "combine: rows offered before the quiet", COMBINE,
        (of_combine(ROWS_VISIBLE + ALL_LAID_OUT + OFFERED, OFFERED + ROWS_VISIBLE + ALL_LAID_OUT),), (DATA_RACE,),
    ),
    Mutant(
        "combine: rows offered when this core has laid out its part, not when all have", COMBINE_PAIRS,
        (of_combine(ALL_LAID_OUT, ""),), (DATA_RACE, UNWRITTEN_READ),
    ),
    Mutant(
        "combine: quiet by core 0 for what core 1 laid out", COMBINE_PAIRS,
        (of_combine(ROWS_VISIBLE, "    if core == 0:\n    " + ROWS_VISIBLE),), (DATA_RACE, UNWRITTEN_READ),
    ),
    Mutant(
        "combine: a core lays out where only its neighbour has asked whether it may", COMBINE_PAIRS,
        (of_combine(FREE_TO_LAY_OUT, ""),), (DATA_RACE,),
    ),
    Mutant(
        "combine: a rank that nothing is for told before it has seen the last", replace(COMBINE, tokens=1, rounds=3),
        (of_combine(FREE_TO_TELL, "        pass\n"),), (DEADLOCK, TORN_METADATA),
    ),
    Mutant(
        "combine: rows of the second expert laid out over those of the first", TWO_EXPERTS,
        (of_combine(BEFORE, "                    pass\n"),), (DATA_RACE, UNWRITTEN_READ, WRONG_BITS),
    ),
    Mutant(
        "combine: a core's part laid out where its source's rows begin", COMBINE_PAIRS,
        (of_combine(PLACE, PLACE.replace("begin - row", "0")),), (DATA_RACE, UNWRITTEN_READ, WRONG_BITS),
    ),
    Mutant(
        "combine: a core's part begun with its source's first row", COMBINE_PAIRS,
        (of_combine(PART, PART.replace("begin", "row")),), (WRONG_BITS,),
    ),
    Mutant(
        "combine: acknowledged before the contributions are pulled", COMBINE,
        (of_combine(SUM + ACKNOWLEDGE_ALL, ACKNOWLEDGE_ALL + SUM),), (DATA_RACE,),
    ),
    Mutant(
        "combine: acknowledged when the pulls are issued", COMBINE_PAIRS,
        (of_combine(PULLED, ""),), (DATA_RACE,),
    ),
    Mutant(
        "combine: a core acknowledges for its neighbour", COMBINE_PAIRS,
        (of_combine(ALL_PULLED, ""),), (DEADLOCK, DATA_RACE),
    ),
    Mutant(
        "combine: does not wait for the last rank's rows", COMBINE,
        (of_combine(ROWS_IN, "            if expert_rank < c.n_ranks - 1:\n    " + ROWS_IN),),
        (TORN_METADATA, UNWRITTEN_READ, DATA_RACE),
    ),
    Mutant(
        "combine: of a tile starts on the store's issue, not on its completion", COMBINE,
        (of_sums(CONTRIBUTION_IN, ""),), (UNWRITTEN_READ, DATA_RACE),
    ),
    Mutant(
        "combine: event e set, event e + 1 awaited", CHOICES,
        (of_sums(AWAIT_CONTRIBUTION, AWAIT_CONTRIBUTION.replace("place", "(place + 1) % LOADS")),),
        (BAD_INSTRUCTION, DEADLOCK),
    ),
    Mutant(
        "combine: a contribution pulled over one that is still weighed", CHOICES,
        (of_sums(USED, ""), of_sums(SET_USED, ""), of_sums(DRAIN_USED, "    pass\n")),
        (BAD_INSTRUCTION, DATA_RACE),
    ),
    Mutant(
        "combine: a contribution's weight left out", CHOICES,
        (of_sums(AXPY, AXPY.replace("v_axpy(at, acc, weight,", "v_add(at, acc,")),), (WRONG_BITS,),
    ),
    Mutant(
        "combine: both contributions of an expert weighed as its first", BACK_TWICE,
        (of_combine(WEIGHT, WEIGHT.replace("4 * k,", "0,")),), (WRONG_BITS,),
    ),
    Mutant(
        "combine: the second contribution of an expert left out", BACK_TWICE,
        (of_combine(ROWS_IN, ROWS_IN + "            weight = weight * (1 - k)\n"),), (WRONG_BITS,),
    ),
    Mutant(
        "combine: sum copied out before it is rounded", COMBINE,
        (of_sums(SUM_MADE, ""),), (UNWRITTEN_READ, DATA_RACE),
    ),
    Mutant(
        "combine: flag of a half that is full left over", COMBINE,
        (of_combine(COPY_FULL, ""),), (DATA_RACE, LEFTOVER, BAD_INSTRUCTION),
    ),
)  # fmt: skip

KNOWN = tuple(replace(mutant, base=ONLY_DISPATCH) for mutant in KNOWN)
OWN = (
    *(replace(mutant, base=ONLY_DISPATCH) for mutant in (*OWN_DISPATCH, *OWN_REPEATS, *OWN_LOOPS)),
    *(replace(mutant, base=ONLY_COMBINE) for mutant in (*OWN_COMBINE, *OWN_NARROWED)),
)
