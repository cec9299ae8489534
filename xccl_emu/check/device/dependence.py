"""Which actions of the machine depend on each other: one table, which reductions ask.

An action has *effects* (`READ` to `CACHED`), each on something: bytes of memory or of a data buffer, a queue, an event,
a barrier.  Two actions are independent if no row speaks of two effects of theirs that are as near to each other as the
row says.  Then both orders of them lead to one state, and neither prevents the other; if no row says `ENABLE` neither
makes the other possible.  ``tests/check/test_dependence.py`` runs both orders of each two actions in each state of some
thousand small programs: a difference that no row has fails, and so does a row that nothing shows and that gives no
reason (`Row.kept`).
"""

from typing import NamedTuple

import numpy as np

from xccl_emu.lang.requests import CMP_GE
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.words import jit

# ---- what an action does, a number each
READ, POLL, POLL_GE, WRITE, ADD, ADD_ROW, FETCH, HOLD, VALIDATE = range(9)
"""To bytes: reads them; is granted by what they are; by a word that is at least a value, and does not use it; writes
them, so that this is visible; adds a word of 8 bytes; adds integers of 4 bytes; an atomic; begins or ends that a
tentative read is open; takes what was read tentatively for right."""
STORE_OFF, OUT_OFF, DMA_OFF, LEAVE = range(9, 13)
"""A write of the scalar unit, of mtu-out or of a DMA descriptor takes off; one that is in flight becomes visible."""
ISSUE, STEP, FENCE, QUIET, RING, FINISH = range(13, 19)
"""To a core: queues an instruction, or rings a descriptor (`RING`, too); a pipe or DMA goes on; mtu-out passes a fence;
waits until all is done and visible; a descriptor becomes free."""
SET, WAIT, ARRIVE, AWAIT, CACHED = range(19, 24)
"""To an event; to a barrier; to the lines that a scalar unit caches."""
EFFECTS = 24
NAMES = (
    "READ", "POLL", "POLL_GE", "WRITE", "ADD", "ADD_ROW", "FETCH", "HOLD", "VALIDATE", "STORE_OFF", "OUT_OFF",
    "DMA_OFF", "LEAVE", "ISSUE", "STEP", "FENCE", "QUIET", "RING", "FINISH", "SET", "WAIT", "ARRIVE", "AWAIT", "CACHED",
)  # fmt: skip

# ---- how near two effects are, a bit each
CORE, DIE, SAME, UNIT, HOME, FALLS = 1, 2, 4, 8, 16, 32
"""One core; cores of one die; a byte, queue, event or barrier in common; a unit that becomes visible at once; bytes of
one die; the word that is polled becomes smaller."""
BYTES = SAME | UNIT | HOME
OWN_BYTES = CORE | DIE | BYTES
NEAR = 64

# ---- under which orders, a bit each
SC, FIFO, RELAXED, UNORDERED, ASKED, ASKED_UNORDERED = 1, 2, 4, 8, 16, 32
"""The last two: as the two before, where requests ask for orders or may signal."""
ALL, FLYING, LOOSE, ANY_ASKED, RANKED = 63, 62, 60, 48, 20
"""All; those under which writes are in flight; all but `fifo` of these; where requests ask; with an order in a unit."""
N_ORDERS = 6

# ---- what comes of it, a bit each
DIFFER, PREVENT, ENABLE, BOUND = 1, 2, 4, 8
"""Both orders lead to different states; one makes the other impossible; the second makes the first possible; either
of the last two, at a bound of the machine alone, which a search does not come to (its limits)."""


def _all(*effects: int) -> int:
    return sum(1 << effect for effect in effects)


CHANGES, OFF = _all(WRITE, ADD, ADD_ROW, FETCH), _all(STORE_OFF, OUT_OFF, DMA_OFF)


class Row(NamedTuple):
    """Two sets of effects, a bit each, and what is said of each two of them."""

    one: int
    other: int
    near: int
    """They must be at least so near."""
    orders: int
    how: int
    why: str
    by: tuple[str, ...]
    """Functions of the search that answer for it, or a sentence why none must."""
    kept: str = ""
    """Why it stays although no small program shows it."""


TABLE = (
    # bytes
    Row(_all(READ), CHANGES, BYTES, ALL, DIFFER, "a read has what was there before or after the write",
        ("inside.note_access", "races.find_race_of")),
    Row(_all(WRITE), CHANGES, BYTES, ALL, DIFFER, "what is written last is what remains",
        ("inside.note_access", "races.find_race_of")),
    Row(_all(ADD), _all(ADD_ROW), BYTES, ALL, DIFFER,
        "an addition of 8 bytes carries from one half of a word to the other, and one of 4 does not",
        ("inside._may_overtake",)),
    Row(_all(FETCH), _all(FETCH, ADD, ADD_ROW), BYTES, ALL, DIFFER, "an atomic returns what it has found",
        ("classify._use",)),
    Row(_all(POLL), CHANGES, BYTES, ALL, DIFFER | PREVENT | ENABLE,
        "a poll for equality, inequality, of a line or of several words waits for some values and uses them",
        ("classify._how_scalar", "fields._may_be_missed")),
    Row(_all(POLL_GE), CHANGES, BYTES, ALL, ENABLE, "a poll for at least waits for a word to grow",
        ("run_local._can_wake",)),
    Row(_all(POLL_GE), CHANGES, BYTES | FALLS, ALL, PREVENT, "a poll for at least is prevented by a word that falls",
        ("moves._judge_stable",)),
    Row(_all(HOLD), CHANGES, BYTES, ALL, DIFFER,
        "a write that becomes visible while a tentative read is open is noted, from its issue, or the wait before it "
        "in its queue, to its last part",
        ("classify._use", "dfs._only_delivers")),
    Row(_all(VALIDATE), _all(HOLD), CORE | DIE, ALL, PREVENT,
        "to validate what is not read yet is an error",
        ("machine.device.tentative.validate",)),
    # take-offs
    Row(OFF, OFF, DIE | HOME, FIFO, DIFFER, "writes of a die to a die become visible in the order of their take-off",
        ("classify._how_written", "races._conflict_between")),
    Row(_all(STORE_OFF), _all(OUT_OFF), CORE | DIE | UNIT | HOME, RANKED, DIFFER,
        "writes of a core to a unit become visible in the order of their take-off, by whichever pipe",
        ("classify._how_written", "granules.any_used")),
    Row(_all(STORE_OFF), _all(OUT_OFF), CORE | DIE | HOME, ANY_ASKED, DIFFER,
        "a strong write and a signal become visible after what took off before them",
        ("granules.all_in_flight",)),
    Row(_all(DMA_OFF), _all(DMA_OFF), CORE | DIE | UNIT | HOME, RANKED, DIFFER,
        "parts of a descriptor that meet in a unit become visible in the order of their take-off",
        ("run_local._copied_whole",)),
    Row(_all(FETCH), OFF, DIE | HOME, FIFO, PREVENT,
        "an atomic is made at its memory, after what its die has in flight to there",
        ("classify._use",)),
    Row(_all(FETCH), _all(OUT_OFF), CORE | DIE | UNIT | HOME, RANKED, PREVENT,
        "an atomic waits for writes of its core to its unit that are in flight",
        ("classify._use",)),
    Row(_all(FETCH), _all(OUT_OFF), CORE | DIE | HOME, ANY_ASKED, PREVENT,
        "a strong atomic waits for all of its core to that die",
        ("classify._use",)),
    Row(_all(FENCE), _all(STORE_OFF), CORE | DIE, LOOSE, DIFFER,
        "a write that takes off before a fence is passed comes before it: a line that is evicted does not wait",
        ("classify.how",)),
    Row(_all(STORE_OFF, FETCH), _all(FENCE), CORE | DIE, ALL, ENABLE, "the scalar unit waits for fences before it",
        ("run_local._local",)),
    # becoming visible
    Row(_all(LEAVE), OFF, DIE, FLYING, ENABLE, "what has taken off can become visible",
        ("run_local.n_choices",)),
    Row(_all(LEAVE), _all(LEAVE), DIE | HOME, FIFO, ENABLE, "writes of a die to a die become visible one by one",
        ("run_local._deliver",)),
    Row(_all(LEAVE), _all(LEAVE), CORE | DIE | HOME, LOOSE, ENABLE,
        "of a core a write to a unit, one behind a fence, a strong one and a signal become visible after others",
        ("run_local._deliver", "classify._behind_fence")),
    Row(_all(FETCH), _all(LEAVE), DIE | HOME, FLYING, ENABLE, "what an atomic waits for becomes visible",
        ("run_local._possible",)),
    Row(OFF, _all(LEAVE) | OFF, DIE, FLYING, BOUND, "room for the writes in flight of a die is limited",
        ("moves._note_flying",)),
    # a core
    Row(_all(STEP), _all(ISSUE), CORE | DIE | SAME, ALL, ENABLE, "what is queued or rung can be made",
        ("run_local._local",)),
    Row(_all(STEP), _all(STEP), CORE | DIE | SAME, ALL, ENABLE | BOUND,
        "a transfer waits for what it may not overtake",
        ("run_local._parts_left",)),
    Row(_all(ISSUE), _all(STEP), CORE | DIE | SAME, ALL, BOUND, "a queue has an end",
        ("run_local._local",)),
    Row(_all(RING), _all(FINISH), CORE | DIE, ALL, DIFFER | ENABLE,
        "which descriptors are free decides which one is taken",
        ("which of the free ones is taken cannot be observed: they differ in their numbers alone",)),
    Row(_all(QUIET), _all(STEP, LEAVE, FINISH), CORE | DIE, ALL, ENABLE, "a quiet or return waits for all of its core",
        ("run_local._can_wake", "run_local._deliver")),
    Row(_all(WAIT), _all(SET), CORE | DIE | SAME, ALL, DIFFER | ENABLE,
        "a wait takes what was set; to set what is not taken is an error",
        ("clocks.note_set",)),
    Row(_all(SET), _all(SET), CORE | DIE | SAME, ALL, PREVENT, "to set an event twice is an error",
        ("clocks.note_set",)),
    Row(_all(AWAIT), _all(ARRIVE), SAME, ALL, ENABLE, "the last one to arrive lets all go on",
        ("run_local._can_wake",)),
    # caches
    Row(_all(CACHED), _all(CACHED), CORE | DIE, ALL, DIFFER | PREVENT | ENABLE,
        "a line is fetched, changed or dropped",
        ("run_local._may_evict", "classify._how_scalar")),
    Row(_all(CACHED), _all(LEAVE), CORE | DIE, FLYING, ENABLE, "a line is fetched when its write-back has landed",
        ("run_local._deliver",)),
)  # fmt: skip


def _near_of(near: int) -> int:
    """All nearnesses that are at least a given one, a bit each."""
    return sum(1 << n for n in range(NEAR) if n & near == near)


def _dense() -> list[int]:
    """For each two effects and each order: at which nearnesses two actions depend, a bit each."""
    words = [0] * (EFFECTS * EFFECTS * N_ORDERS)
    for row in TABLE:
        for a in range(EFFECTS):
            for b in range(EFFECTS):
                both = (row.one >> a & row.other >> b) | (row.one >> b & row.other >> a)
                for order in range(N_ORDERS):
                    if both & 1 and row.orders >> order & 1 and row.how & (DIFFER | PREVENT):
                        words[(a * EFFECTS + b) * N_ORDERS + order] |= _near_of(row.near)
    return [word - (word >> 63 << 64) for word in words]


_DEPENDS = np.array(_dense(), np.int64)


@jit
def order_of(st):
    """Return which of `N_ORDERS` a pod has."""
    asked = st[ms.ORDER] >= ms.ORDER_RELAXED and (st[ms.REQUEST_ORDERS] != 0 or st[ms.SOME_SIGNAL] != 0)
    return st[ms.ORDER] + (2 if asked else 0)


@jit
def poll_of(compare):
    """Return how a poll of a word that does not use its value is called here."""
    return POLL_GE if compare == CMP_GE else POLL


@jit
def depend(one, other, near, order):
    """Do two effects, so near to each other, depend where both are possible?"""
    return _DEPENDS[(one * EFFECTS + other) * N_ORDERS + order] >> near & 1 != 0
