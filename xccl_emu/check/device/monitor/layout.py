"""Where everything is in the arrays of the monitor, which watches sampled runs.

`m` holds words by these numbers, and after them small tables; `Space` says what the other arrays hold.

An *engine* is one of a core's scalar unit, three pipes and DMA descriptors; each has a word in every clock, its
*epoch*, which counts what it has released.  A write by the scalar unit or mtu-out happens when it is taken off, and
later becomes visible: so each of these two has further words, the epoch up to which its writes are *visible*, under
`fifo`, and where there are fences, one for each die written to; under `sc` none, a write is visible when it happens.
"""

from typing import Any, NamedTuple


class Space(NamedTuple):
    """The arrays of the monitor."""

    mem: Any
    """Memory of the pod."""
    st: Any
    """State of the machine."""
    m: Any
    """Words of the monitor, by the numbers below."""
    clocks: Any
    """Rows of ``m[WORDS]`` words: what happened before, one word for each engine."""
    shadow: Any
    """Four words for each 32-byte granule of memory (data buffers too): `S_GENERATION` and so on."""
    records: Any
    """The accesses to remember, eight words each, in a list for each granule: `R_NEXT` and so on."""
    undo: Any
    """The bytes of each granule before its first write: five words each, the granule and what it held."""
    flights: Any
    """Two words for each place in a die's ring of writes in flight: row of the clock that the write releases + 1 (or
    0), and a number that only grows."""
    keys: Any
    """Weight or priority of each write in flight."""
    sites: Any
    """What is known of each site of the kernels."""
    rows: Any
    """Accesses of the action under way."""


class Run(NamedTuple):
    """Scratch of the policies, the actions of a run, what it begins and ends with, and what all runs came to."""

    rng: Any
    candidates: Any
    candidate_keys: Any
    serials: Any
    """Serial numbers of the candidates."""
    actor_keys: Any
    asleep: Any
    """Actors that tried in vain, until something lets them go on."""
    loads: Any
    """Loads of each scalar unit, one after the other."""
    changes: Any
    """Steps at which `pct` lowers a priority."""
    log: Any
    """Actions."""
    start: Any
    """Words of the state at the start, of all `parts`."""
    parts: Any
    expected: Any
    expected_bytes: Any
    owners: Any
    """Cores that own the expected bytes."""
    stops: Any
    """Errors that the trial declares."""
    gives_up: Any
    """Errors that a run may end in without a fault too."""
    may_block: Any
    """May cores wait for ever after a fault; after the stop of each die?"""
    endings: Any
    """How many runs ended how."""


ENGINE_DMA = 4
"""Engines of a core: 0 to 3 its scalar unit and pipes as in the requests, then its DMA descriptors."""

(
    GENERATION, WORDS, PER_CORE, N_DMA, TARGETS, JUDGED, BUFFERS_START, META_START, META_END, SERIAL,
    PIPE_ROWS, QUEUE_ROWS, DMA_ROWS, EVENT_ROWS, GROUP_ROWS, FLIGHT_ROWS, SYNC_ROWS, SCRATCH_ROW,
    CORE_INDEX, CORE_NUMBER, CORE_DIE, DMA_EPOCHS, DIE_INDEX, FREE_ROWS, SYNC_GRANULES,
    N_SYNC, N_SYNC_KNOWN, SYNC_MAX, RECORD_TOP, RECORD_FREE, N_UNDO, CAPACITY, N_GROUPS, STOP,
    JUDGE, WATCHED, RUNG, FENCE_ROWS, FENCED, FENCES,
) = range(40)  # fmt: skip
"""Words of `m`: sizes, where the kinds of rows begin in `clocks`, where tables begin in `m`, what is in use, and where
the compiled parts of the monitor are; whether any DMA was rung, any fence passed, and whether fences are followed."""

(X_OP, X_ADDRESS, X_NBYTES, X_CORE, X_OFF, X_ROW, X_DMA, X_EVENT, X_FLIGHTS, X_LAST, X_KNOWN, X_ISSUED) = range(40, 52)
X_SOURCE, X_TARGET, X_NUMBER = X_ADDRESS, X_NBYTES, X_CORE
X_PHASE = X_ADDRESS
"""About the action under way, taken down before it: of a write in flight its address, size and core, of an atomic its
address; in the same words of a set_flag or wait_flag its event, and of a barrier its phase."""

(V_AT, V_CORE, V_ENGINE, V_SITE, V_FLAGS, V_CORE_2, V_ENGINE_2, V_SITE_2, V_FLAGS_2) = range(53, 62)
"""A violation: the first byte, and who accessed it, now and before."""

(LENGTH, FAIR_AFTER, DEPTH, LOWEST, SCHEDULES, TAKEN, TOTAL, NEXT_NUMBER) = range(62, 70)
"""Words of the policies: typical number of actions of a run, after how many it goes on fairly, what has been done."""

(FAULT, FAULT_FROM, FAULT_TO, FAULT_AT, MOMENT, SEEN, LATER, STRUCK, FAULTS, ASKED) = range(70, 80)
"""A fault: its kind, dies, and after how many actions or writes (-1: drawn); in this run after how many actions it
is due, what has been counted, when its second part is due, and whether it has happened (of a stalled link: whether it
must let something through now); in how many runs it has happened.  And what is to be judged as long as it has not."""

(X_PAYLOAD, X_SIGNAL, X_ADDS, SIGNALS, SIGNALLED, KEPT_ROWS, CHAINED, AHEAD_ROWS) = range(80, 88)
"""Requests that signal: the number of that which copies, or signals, with the action under way; does that add; how
many words of a clock say which signals of a core are known, and how many each core has sent.  And where requests
release others before them, `KEPT_ROWS`: rows of `clocks` for each 4 bytes of a synchronization, what each core released
there; and for each of a core's words of signals one that its next signal releases too, since `relaxed` keeps a part of
that before its payload.
`AHEAD_ROWS`: rows of `clocks`, under `fifo`, of what is visible of its die's writes when all that a core wrote is."""

X_SITE, CONSUMED = 88, 89
"""The site of the action under way; and for each event of a core, `CONSUMED_WORDS`: the run in which it was consumed
last, by which epoch of the pipe that waits, and its site."""
CONSUMED_WORDS = 3

PAUSE_AT, PAUSED = 90, 91
"""Runs pause when they have taken this many actions in all; and the number of the one that is to go on, or 0."""

HEADER = 92

S_GENERATION, S_WRITTEN, S_RECORDS, S_FIXED = range(4)
"""Words of a granule: the run that the rest is of; a bit for each byte that was written, and `SAVED`; first record; and
what outlasts a run: a bit for each byte that is filled at the start (from `META_START` to `META_END` for each that is
not), and above `SYNC_SHIFT` its number as a synchronization + 1."""

SHADOW_WORDS = 4
SAVED = 1 << 32
SYNC_SHIFT = 32
ALL_BYTES = (1 << 32) - 1

R_NEXT, R_START, R_END, R_FLAGS, R_SITE, R_REQUEST, R_ENGINE, R_EPOCH = range(8)
"""Words of a record: the next of its granule; first byte and end, flags, site; of a write, the number of the request
that signals when it is visible, or 0; engine (its word in a clock) and the epoch of that."""
SIGNAL_WORDS = 8
"""Signals of a core in a clock: the latest known of those whose numbers are the same modulo this.  So who knows of a
signal is taken to know of those 8, 16 and so on before it; the search is exact there."""

RECORD_WORDS = 8
UNDO_WORDS = 5
IMMEDIATE, DELIVERED, LOOSE = 8, 16, 32
"""Flags besides those in `accesses`: to know that the write happened is to know that it is visible; it is visible; it
asks for no order."""

NOT_ENABLED, TAKEN_OK = 0, 1
FOUND_ERROR, FOUND_RACE, FOUND_UNWRITTEN, FOUND_WRONG, FOUND_DEADLOCK, FOUND_LIVELOCK, FOUND_SET_AGAIN = range(2, 9)
RUN_DONE, RUN_CUT, RESTART, GROW, BAD_ACTION, RUN_PAUSED, LEARNT = range(9, 16)
"""What an action, or a run, comes to.  `RESTART`: a granule turned out to be a synchronization after it was written, so
the clocks of these writes were not kept; the same run again keeps them.  `GROW`: an array is too small.
`RUN_PAUSED`: it goes on when it is asked for again.  `LEARNT`, said by Python alone: bytes that were not known are
right."""

JUDGE_NOTHING, JUDGE_ALL, JUDGE_NO_RACES = range(3)

POLICIES = ("random", "pct", "weights", "eager", "late", "lifo", "skew")
P_RANDOM, P_PCT, P_WEIGHTS, P_EAGER, P_LATE, P_LIFO, P_SKEW = range(7)
