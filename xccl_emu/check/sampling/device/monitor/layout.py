"""Where everything is in the arrays of the monitor, which watches sampled runs.

`m` holds words by these numbers, and after them small tables; `Space` says what the other arrays hold.

An *engine* is one of a core's scalar unit, three pipes and DMA; each has a word in every clock, its *epoch*, which
counts what it has released.  DMA has one for each event, not for each descriptor: a descriptor may be rung again before
anybody has waited for its event, but no event may be set again before that.

A write by the scalar unit or mtu-out happens when it is taken off, and later becomes visible: so each of these two has
further words, the epoch up to which its writes are *visible*, under `fifo`, and where there are fences, one for each
die written to; under `sc` none, a write is visible when it happens.
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
"""Engines of a core: 0 to 3 its scalar unit and pipes as in the requests, then its DMA by the event that it sets."""

# ---- the words of `m`.  Each line says what the word holds, then what holds of it between the actions of a run; a word
# that says where rows or a table begin is fixed, as are the sizes.
(
    GENERATION,  # counts the runs that have begun, some again: no granule's shadow is of a later one
    WORDS,  # holds the words of a clock: `PER_CORE` for each core
    PER_CORE,  # holds a core's part of them: engines, what is visible by target, signals
    N_DMA,  # counts the events of DMA of a core in a clock: as many as were in use while it learned, 0 for none
    TARGETS,  # counts the dies to which visibility may differ: 0 under `sc`, else 1 or all homes
    JUDGED,  # says what is judged now (`JUDGE_*`): nothing after a wrong word that a fault has made
    BUFFERS_START,  # holds the first byte of the data buffers
    META_START,  # holds the first byte of a die that counts as filled, from its first byte on (`S_FIXED`)
    META_END,  # holds the first byte after these
    SERIAL,  # holds the number that the next write in flight gets: all in flight have lower ones, the older the lower
    PIPE_ROWS,  # says where the rows of what pipes know begin; of its own epochs an engine knows the latest
    QUEUE_ROWS,  # says so of what the scalar unit knew when it issued what is in a place of a queue
    DMA_ROWS,  # says so of what it knew when it rang a descriptor
    EVENT_ROWS,  # says so of what events pass on
    GROUP_ROWS,  # says so of barriers, three rows each
    FLIGHT_ROWS,  # says so of what writes in flight release; without caches a row is one's of them, or in `FREE_ROWS`
    SYNC_ROWS,  # says so of what was released in synchronizations, a row for each 4 bytes that `RELEASED` has a bit of
    SCRATCH_ROW,  # says where a row is that nobody keeps after an action
    CORE_INDEX,  # says where the table is of the indices that cores have in clocks
    CORE_NUMBER,  # says where the table is that undoes it
    CORE_DIE,  # says where the table of their dies is
    DMA_EPOCHS,  # says where counts are of how often a descriptor was rung that sets each event
    DIE_INDEX,  # says where the table is of the indices that dies have
    FREE_ROWS,  # says where each die's stack is of rows that no write in flight keeps: how many, then which
    SYNC_GRANULES,  # says where the `N_SYNC` granules are listed that `S_FIXED` numbers
    N_SYNC,  # counts the synchronizations: from `N_SYNC_KNOWN` to `SYNC_MAX`
    N_SYNC_KNOWN,  # counts those that every run begins with
    SYNC_MAX,  # holds how many there is room for: `GROW` beyond
    RECORD_TOP,  # says where the records end that were ever in use: each below is in one list
    RECORD_FREE,  # holds the first of the list of free records, 0 for none
    N_UNDO,  # counts the granules that were written, `SAVED`, and are to be put back
    CAPACITY,  # holds the places of a ring; 0 under `sc`
    N_GROUPS,  # counts the barriers
    STOP,  # holds what stops the run; 0 while it goes on
    JUDGE,  # is the address of `step.judge`
    WATCHED,  # is the address of `step.watched`
    RUNG,  # is above the events of all descriptors that were rung, 0 if none was: at most `N_DMA`
    FENCE_ROWS,  # says where the rows are of what mtu-out knew at its last fence
    FENCED,  # is 1 if a fence was passed; then `FENCES` is 1
    FENCES,  # is 1 if fences are followed
) = range(40)
(
    X_OP,  # holds the operation of the action under way, or the kind of the write that becomes visible
    X_ADDRESS,  # holds the address of an atomic, or of that write; of an event its source, of a barrier its phase
    X_NBYTES,  # holds the bytes of that write; of an event its target
    X_CORE,  # holds the core of that write; of an event its number
    X_OFF,  # is 1 if the request is switched off by name
    X_ROW,  # holds the row that an issue writes, or of what an instruction's issuer knew; -1 if it issues nothing
    X_DMA,  # holds the number of the descriptor; of a delivery where it is in the state
    X_EVENT,  # holds the event that it sets, also of one that is rung; -1 of a descriptor that was taken away
    X_FLIGHTS,  # counts the writes in flight before the action: from there on they are of it
    X_LAST,  # is 1 if an arrival is the last, an atomic writes, or a write asks for no order; of `poll_any` which word
    X_KNOWN,  # holds the row of what the engine knows
    X_ISSUED,  # holds the row of what it was issued with; `X_KNOWN` where nothing was
) = range(40, 52)
X_SOURCE, X_TARGET, X_NUMBER = X_ADDRESS, X_NBYTES, X_CORE  # hold the event of a set_flag or wait_flag
X_PHASE = X_ADDRESS  # holds the phase of a barrier
"""About the action under way, taken down before it; what it does not need is of an earlier one."""

(V_AT, V_CORE, V_ENGINE, V_SITE, V_FLAGS, V_CORE_2, V_ENGINE_2, V_SITE_2, V_FLAGS_2) = range(53, 62)
"""A violation: the first byte, and who accessed it, now and before.  While `STOP` is 0 nobody reads them."""

(
    LENGTH,  # holds the typical number of actions of a run; fixed
    FAIR_AFTER,  # holds after how many a run goes on fairly; fixed
    DEPTH,  # holds one more than the drawn steps at which `pct` lowers a priority, or `skew` draws again; fixed
    LOWEST,  # holds the lowest priority that `pct` has given: 0 or less
    SCHEDULES,  # counts the runs that are finished
    TAKEN,  # counts the actions of the last run, when it is over
    TOTAL,  # counts the actions of all of them
    NEXT_NUMBER,  # holds the number of the run that is under way, or next
) = range(62, 70)

(
    FAULT,  # holds the kind of fault that breaks in each run, 0 for none; fixed
    FAULT_FROM,  # holds its die; fixed
    FAULT_TO,  # holds the die that is written to, or what is lost; fixed
    FAULT_AT,  # holds after how many actions or writes it is due, -1 if that is drawn; fixed
    MOMENT,  # holds after how many actions it is due in this run
    SEEN,  # counts the actions of the die, or the writes over the link
    LATER,  # holds after how many actions its second part is due; far beyond any run if there is none
    STRUCK,  # is 0 before it happens, 1 until that is noted, then 2; of a stalled link: must it let one through?
    FAULTS,  # counts the runs in which it has happened; never above `SCHEDULES`
    ASKED,  # says what is to be judged as long as it has not
) = range(70, 80)

(
    X_PAYLOAD,  # holds the number of the signal that what the action copies comes before, or 0
    X_SIGNAL,  # holds the number of the signal that it sends, or 0
    X_ADDS,  # is 1 if the write adds
    SIGNALS,  # counts the words of a core's signals in a clock: 0 if none may signal, else `SIGNAL_WORDS`
    SIGNALLED,  # says where counts are of the signals that each core has sent
    KEPT_ROWS,  # says where the rows are, for each 4 bytes of a synchronization, of what each core released there
    CHAINED,  # says where, for each word of a core's signals, one is that its next signal releases too
    AHEAD_ROWS,  # says where the rows are, under `fifo`, of what of its die's writes is visible when all of a core's is
) = range(80, 88)
"""Requests that signal, and requests that release others before them.  `relaxed` keeps a part of a payload after own
writes to the same unit: so these are chained, and released by the later signal too."""

DMA_RINGS = 52
"""Says where it is for each descriptor of a core which of those with its event it is: `DMA_EPOCHS` when it was rung,
times `N_EVENTS`, and the event; 0 of one that is done."""
X_SITE = 88
"""The site of the action under way."""
CONSUMED, CONSUMED_WORDS = 89, 3
"""Where is for each event of a core: the run in which it was consumed last, by which epoch of the pipe that waits, and
its site."""

PAUSE_AT = 90
"""Runs pause when they have taken this many actions in all."""
PAUSED = 91
"""How many actions the run has taken that is to go on, or 0."""

RELEASED = 92
"""Says where a bit is, for each synchronization, of each of its 4 bytes: was anything released there in this run?"""

LINES = 93
"""Says where two words are for each line that each core may cache: which line that is, + 1, and a bit for each 4 bytes
in which something had been released when it was fetched."""
LINE_ROWS = 94
"""Says where the rows are that these bits are of."""
X_FETCHES = 95
"""Holds 1 if the action under way, a load or store, fetches its line."""

X_PADDING, X_APART = 96, 97
"""Holds for a copy 1, or 2 if some of what it reads nobody has written, else 0; and how far it copies from there."""
WANTED, N_WANTED = 98, 99
"""Says where first byte and end are of each range that is to hold something at the end; and counts these."""

PENDING, PENDING_ROWS = 100, 101
"""Holds 1 if some reads do not acquire; then says where two rows are for each core: what these have seen, and at which
sites."""
V_SEEN = 102
"""Holds for a race the site + 1 of such a read, if by it the later access would know of the earlier one; else 0."""
SEEN_WORDS = 103
"""Holds how many words of a record say which cores have seen its write so: a bit for each, no word if all acquire."""

HEADER = 104

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
R_SEEN, SEEN_BITS = RECORD_WORDS, 60
"""Where the `SEEN_WORDS` of a record begin, and how many cores have a bit in each."""
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
