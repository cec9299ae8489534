"""What every dispatch counts: the place of a message, and how many there are for an expert.

A place is a count of choices: of the same expert before, and of the experts before it on its rank.  There
are two ways to count.

On the vector pipe each core has all choices of its rank in its data buffer and counts them there, during quantization;
so no two cores need to agree on anything.  What that takes grows with the square of the batch.

In scalar loops each core counts the choices of its own tokens, a granule of the table at a time, and the cores share a
table of tallies, a row for each core and one for the sums: so each knows where its first message for an
expert goes, and goes on from there from token to token.  The choices of a token come with it.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.common import add_words, fetch
from xccl_emu.kernels.experts.parameters import Group
from xccl_emu.kernels.group import align, barrier, hand_over

FIELD_BYTES = 32
"""A metadata field: event ID, count, and where the messages begin."""

INDEX_BYTES = 64
"""Row of a table with one 4-byte entry for each choice of a token (at most 16)."""

COLUMNS = INDEX_BYTES // 4
"""Entries of a row of the table of choices; the entries after the choices are -1."""

TARGETS_BYTES = 128
"""Room for an address for each choice of a token."""

PLACES_BYTES = 128
"""Room for two counts for each choice of a token."""


def second_table(n_slots: int) -> int:
    """Return where the data buffer has the second table with an entry for each expert slot."""
    return align(4 * n_slots)


def work_at(n_slots: int) -> int:
    """Return where in the data buffer the room after the two tables begins."""
    return 2 * align(4 * n_slots)


def targets_at(n_slots: int) -> int:
    """Return where the data buffer has the addresses of a token's messages, after two tables."""
    return work_at(n_slots)


def counted_at(half: int, choice: int, n_slots: int) -> int:
    """Return where the data buffer has the two counts that place the message of a choice, for each half."""
    return targets_at(n_slots) + TARGETS_BYTES + half * PLACES_BYTES + 8 * choice


def choice_at(token: int, choice: int, n_slots: int) -> int:
    """Return where the data buffer has a choice of a token: in a table after all these."""
    return targets_at(n_slots) + TARGETS_BYTES + 2 * PLACES_BYTES + token * INDEX_BYTES + 4 * choice


def entries(tokens: int) -> int:
    """Return the number of entries of the table of choices."""
    return max(1, tokens * COLUMNS)


def row_of(half: int, t: int, tallies: int) -> int:
    """Return the row of a token in the data buffer's table of choices: its own, or its half where they are streamed."""
    return half if tallies else t


def totals_at(n_slots: int) -> int:
    """Return where the data buffer has the sums of all tallies: after the choices of two tokens."""
    return choice_at(2, 0, n_slots)


def streamed_work_at(n_slots: int) -> int:
    """Return where in the data buffer the room after the sums begins."""
    return totals_at(n_slots) + align(4 * n_slots)


def load_choices(tokens, topk, c: Group):
    """Bring the choices of all tokens of the rank into the data buffer: places depend on those before."""
    choices = choice_at(0, 0, c.n_ranks * c.n_local)
    if tokens > 0:
        yield xl.mtu_in(topk, choices, tokens * INDEX_BYTES, step=1)
    else:
        yield xl.v_fill(choices, 4, 0xFF, step=1)  # one entry that is no choice, as there has to be something to count
    yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "choices loaded")


def load_counts(counts, step, sync, c: Group):
    """Bring what dispatch received, by expert and then source, to the start of the data buffer; returns the sum."""
    yield from fetch(counts, 0, 4 * c.n_ranks * c.n_local, step, sync)
    rows = yield from add_words(0, c.n_ranks * c.n_local, 4, step)
    return rows


def clear_tally(table, step, c: Group):
    """Zero a table with an entry for each expert slot in the data buffer."""
    yield xl.v_fill(table, 4 * c.n_ranks * c.n_local, step=step)
    yield from hand_over(xl.VECTOR, xl.SCALAR, 0, "tally cleared")


def tally_rows(rows, work, step, c: Group):
    """Count the choices of ``rows`` tokens, which are at ``work``, at the start of the data buffer."""
    for i in range(rows):
        for k in range(c.top_k):
            slot = yield xl.ub_load(work + i * INDEX_BYTES + 4 * k, step=step)
            if slot >= 0:
                n = yield xl.ub_load(4 * slot, step=step)
                yield xl.ub_store(4 * slot, n + 1, step=step)


def tally(first, last, work, room, topk, c: Group):
    """Count the choices of this core's tokens by expert slot, at the start of the data buffer.

    The choices of ``room`` tokens at a time are brought to ``work``.
    """
    yield from clear_tally(0, 1, c)
    t = first
    while t < last:
        some = min(room, last - t)
        yield from fetch(topk + t * INDEX_BYTES, work, some * INDEX_BYTES, 1, "choices loaded")
        yield from tally_rows(some, work, 1, c)
        t = t + some


def add_up(core, tallies, step, c: Group):
    """Replace what each core has, in the tallies of this core's share of the slots, by what the cores before have."""
    stride = align(4 * c.n_ranks * c.n_local)
    for slot in range(c.n_ranks * c.n_local * core // c.cores, c.n_ranks * c.n_local * (core + 1) // c.cores):
        before = 0
        for i in range(c.cores):
            n = yield xl.load(tallies + i * stride + 4 * slot, 4, step=step)
            yield xl.store(tallies + i * stride + 4 * slot, before, 4, step=step)
            before = before + n
        yield xl.store(tallies + c.cores * stride + 4 * slot, before, 4, step=step)


def share_tallies(rank, core, step, c: Group):
    """Share this core's counts with the other cores; then its table has the counts of the cores before, and all sums.

    Two barriers: all have shared their counts, and all have added up their shares.
    """
    n_slots = c.n_ranks * c.n_local
    tallies = c.tallies + rank * c.die_bytes
    yield xl.mtu_out(0, tallies + core * align(4 * n_slots), 4 * n_slots, step=step)
    yield xl.quiet(step=step, sync="tallies visible")
    yield from barrier(step, "all cores have counted")
    yield from add_up(core, tallies, step, c)
    yield xl.quiet(step=step, sync="sums visible")
    yield from barrier(step, "all tallies are added up")
    yield xl.mtu_in(tallies + core * align(4 * n_slots), 0, 4 * n_slots, step=step)
    yield from fetch(tallies + c.cores * align(4 * n_slots), totals_at(n_slots), 4 * n_slots, step, "sums loaded")


def count_experts_before(c: Group):
    """Add the messages for the experts before it on its rank to the place of this core's next message, by slot."""
    n_slots = c.n_ranks * c.n_local
    before = 0
    for slot in range(n_slots):
        if slot % c.n_local == 0:
            before = 0
        place = yield xl.ub_load(4 * slot, step=1)
        yield xl.ub_store(4 * slot, place + before, step=1)
        n = yield xl.ub_load(totals_at(n_slots) + 4 * slot, step=1)
        before = before + n


def begin_counting(rank, core, tokens, work, message, topk, c: Group):
    """Count what must be known before the first message goes; there is room for two messages at ``work``."""
    if c.tallies:
        first = tokens * core // c.cores
        last = tokens * (core + 1) // c.cores
        yield from tally(first, last, work, 2 * message // INDEX_BYTES, topk, c)
        yield from share_tallies(rank, core, 1, c)
        yield from count_experts_before(c)
    else:
        yield from load_choices(tokens, topk, c)


def find_places(half, t, tokens, topk, c: Group):
    """Count, for each choice of a token, those before it, itself too, and the choices of the experts before.

    Where choices are streamed, load the choices of the token; they are counted when it is sent.
    """
    choices = choice_at(0, 0, c.n_ranks * c.n_local)
    if c.tallies:
        yield xl.mtu_in(topk + t * INDEX_BYTES, choices + half * INDEX_BYTES, INDEX_BYTES, step=1)
    else:
        for k in range(c.top_k):
            slot = yield xl.ub_load(choice_at(t, k, c.n_ranks * c.n_local), step=1)
            if slot >= 0:
                at = counted_at(half, k, c.n_ranks * c.n_local)
                yield xl.v_count(choices, at, t * COLUMNS + k + 1, slot, slot + 1, step=1)
                yield xl.v_count(choices, at + 4, entries(tokens), slot - slot % c.n_local, slot, step=1)
    if not c.quantized:
        yield xl.set_flag(xl.VECTOR, xl.SCALAR, half, sync="places found")


def next_place(slot, step):
    """The place of this core's next message for a slot, where the tally is one of places."""
    place = yield xl.ub_load(4 * slot, step=step)
    yield xl.ub_store(4 * slot, place + 1, step=step)
    return place


def place_of(half, k, slot, c: Group):
    """The place of the message of a choice among those for its rank, when it is found; to be asked for once."""
    if c.tallies:
        place = yield from next_place(slot, 1)
    else:
        counted = counted_at(half, k, c.n_ranks * c.n_local)
        number = yield xl.ub_load(counted, step=1)
        before = yield xl.ub_load(counted + 4, step=1)
        place = before + number - 1
    return place


def slot_of(i: int, rank: int, n_ranks: int, n_local: int) -> int:
    """The i-th expert slot from the own rank on, so that no two ranks begin with the same one."""
    return (i + rank * n_local) % (n_ranks * n_local)


def count_slots(first, end, target, tokens, step, c: Group):
    """Count the messages for the expert slots ``first`` to before ``end``, into a word of the data buffer."""
    if c.tallies:
        total = yield from add_words(totals_at(c.n_ranks * c.n_local) + 4 * first, end - first, 4, step)
        yield xl.ub_store(target, total, step=step)
    else:
        yield xl.v_count(choice_at(0, 0, c.n_ranks * c.n_local), target, entries(tokens), first, end, step=step)


def count_share(rank, first, last, tokens, work, step, c: Group):
    """Count the messages for each expert of this core's share, and for the experts before it on its rank."""
    for i in range(first, last):
        slot = slot_of(i, rank, c.n_ranks, c.n_local)
        yield from count_slots(slot, slot + 1, work + 8 * i, tokens, step, c)
        yield from count_slots(slot - slot % c.n_local, slot, work + 8 * i + 4, tokens, step, c)
