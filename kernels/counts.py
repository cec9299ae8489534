"""What every dispatch counts: the place of a message, and how many there are for an expert.

A place is a count of choices: those of the same expert before, and those of the experts before it on its rank.  Each
core has all choices of its rank in its data buffer and the vector pipe counts them there, beside quantization; so no
two cores need to agree on anything.
"""

from xccl_emu.kernels.group import align
from xccl_emu.kernels.parameters import Group
from xccl_emu.lang import (
    MTU_IN,
    SCALAR,
    VECTOR,
    mtu_in,
    set_flag,
    ub_load,
    v_count,
    v_fill,
    wait_flag,
)

FIELD_BYTES = 32
"""A metadata field: event ID, count, and where the messages begin."""

INDEX_BYTES = 64
"""Row of a table with one 4-byte entry for each choice of a token (at most 16)."""

COLUMNS = INDEX_BYTES // 4
"""Entries of a row of the table of choices; those behind the choices are -1."""

TARGETS_BYTES = 128
"""Room for an address for each choice of a token."""

PLACES_BYTES = 128
"""Room for two counts for each choice of a token."""


def second_table(n_slots: int) -> int:
    """Where in the data buffer the second table with an entry for each expert slot is."""
    return align(4 * n_slots)


def work_at(n_slots: int) -> int:
    """Where in the data buffer the room behind the two tables begins."""
    return 2 * align(4 * n_slots)


def targets_at(n_slots: int) -> int:
    """Where in the data buffer the addresses of a token's messages are, behind two tables."""
    return work_at(n_slots)


def counted_at(half: int, choice: int, n_slots: int) -> int:
    """Where in the data buffer the two counts are that say where the message of a choice goes, for each half."""
    return targets_at(n_slots) + TARGETS_BYTES + half * PLACES_BYTES + 8 * choice


def choice_at(token: int, choice: int, n_slots: int) -> int:
    """Where in the data buffer a choice of a token is: in a table behind all these."""
    return targets_at(n_slots) + TARGETS_BYTES + 2 * PLACES_BYTES + token * INDEX_BYTES + 4 * choice


def entries(tokens: int) -> int:
    """How many entries the table of choices has."""
    return max(1, tokens * COLUMNS)


def load_choices(tokens, topk, c: Group):
    """Bring the choices of all tokens of the rank into the data buffer: places depend on those before."""
    choices = choice_at(0, 0, c.n_ranks * c.n_local)
    if tokens > 0:
        yield mtu_in(topk, choices, tokens * INDEX_BYTES, step=1)
    else:
        yield v_fill(choices, 4, 0xFF, step=1)  # one entry that is no choice, as there has to be something to count
    yield set_flag(MTU_IN, SCALAR, 0, sync="choices loaded")
    yield wait_flag(MTU_IN, SCALAR, 0, sync="choices loaded")


def find_places(half, t, tokens, c: Group):
    """For each choice of a token count those before it, itself too, and those of the experts before."""
    choices = choice_at(0, 0, c.n_ranks * c.n_local)
    for k in range(c.top_k):
        slot = yield ub_load(choice_at(t, k, c.n_ranks * c.n_local), step=1)
        if slot >= 0:
            at = counted_at(half, k, c.n_ranks * c.n_local)
            yield v_count(choices, at, t * COLUMNS + k + 1, slot, slot + 1, step=1)
            yield v_count(choices, at + 4, entries(tokens), slot - slot % c.n_local, slot, step=1)
    if not c.quantized:
        yield set_flag(VECTOR, SCALAR, half, sync="places found")


def place_of(half, k, c: Group):
    """The place of the message of a choice among those for its rank, when it is found."""
    counted = counted_at(half, k, c.n_ranks * c.n_local)
    number = yield ub_load(counted, step=1)
    before = yield ub_load(counted + 4, step=1)
    return before + number - 1


def slot_of(i: int, rank: int, n_ranks: int, n_local: int) -> int:
    """The i-th expert slot from the own rank on, so that no two ranks begin with the same one."""
    return (i + rank * n_local) % (n_ranks * n_local)


def count_share(rank, first, last, tokens, work, step, c: Group):
    """Count the messages for each expert of this core's share, and for the experts before it on its rank."""
    choices = choice_at(0, 0, c.n_ranks * c.n_local)
    for i in range(first, last):
        slot = slot_of(i, rank, c.n_ranks, c.n_local)
        yield v_count(choices, work + 8 * i, entries(tokens), slot, slot + 1, step=step)
        yield v_count(choices, work + 8 * i + 4, entries(tokens), slot - slot % c.n_local, slot, step=step)
