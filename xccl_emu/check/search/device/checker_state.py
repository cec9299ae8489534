"""The checker's own words (besides the machine's state), the log that puts both back, and the fingerprint.

One int64 array, the checker state, holds: a header, a block for each core that is searched (clocks, open accesses), a
few words for each 32-byte granule of memory (who uses it, and how; which of its bytes were written), and the log. What
is changed is logged, so that a search can step back: of a core that goes on, which words have changed is seen after
the transition, from a copy (`KEPT`). The fingerprint is a sum over words, kept up to date from values before and
after.

The fingerprint has 64 bits.  A word contributes a mix of its place and value; a write in flight contributes a mix of
what it is and of how many older ones have to become visible before it, so their order in the ring does not matter.
Sums only: of two words that change together, neither can hide the other as with XOR of equal values.
"""

import numpy as np
from numba import config

from xccl_emu.jit.kept import compiled
from xccl_emu.machine.device import flight
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device import words as machine_words
from xccl_emu.machine.device.words import call, jit

entry = compiled(long_loops=False, _nrt=False, no_cfunc_wrapper=True)
"""Compile an entry point that Python calls."""

# ---- header of the checker state.  Each line says what the word holds, then what holds of it between transitions.
(
    N,  # counts the cores that are searched now, the *members*: 1 at least
    FULL,  # says how much is made at once: 0 (no use of shared memory), `LESS` or `MOST`; fixed
    RESTART,  # is 1 if something was seen that is not frozen, so that all begins again; while it is 0 seen is frozen
    VIOLATION,  # says what was found, 0 for nothing; the search ends where it is not 0
    LIMIT,  # says which limit was met, 0 for none; device code never takes it back, and the search ends there
    TRANSITIONS,  # counts the transitions of this part, those that were stepped back from too; never above `ACTIONS`
    ACTIONS,  # counts the actions in them, local ones too; stepping back leaves it
    LOG,  # says where the log ends: from `LOG_BASE` to `LOG_END`
    HASH,  # holds the fingerprint, a sum over words of the state; a frame keeps it to be put back (`FRAME_HASH`)
    MEMORY_END,  # holds the first byte after the memory of all homes, where data buffers begin; fixed
    CORES,  # says where the table of cores begins; fixed, as all places of tables are
    MEMBERS,  # says where the `N` numbers of the members are, each a bit of `MASK`
    BLOCKS,  # says where the blocks of the cores begin, `BLOCK` words each
    GRANULE_TABLE,  # says where the words of the granules begin (`granules`)
    LOG_BASE,  # says where the log begins
    LOG_END,  # says where the room for the log ends
    TOUCHED,  # has a bit for each core whose words are in `KEPT`, from this transition alone; of members only
    RECORDING,  # is 1 while a path is followed once more and its actions are written down; in a search 0
    RECORDED,  # counts the actions written down from `RECORD_BASE` on; 0 unless `RECORDING`
    MASK,  # has a bit for each member
    RECORD_BASE,  # says where actions are written down (of a search that is watched: its steps, `watch`)
    RECORD_END,  # says where the room for them ends
    EXPECTED_BASE,  # says where the rows of what is expected begin, `EXPECTED_WORDS` each, and after them the contents
    N_EXPECTED,  # counts these rows
    FRAMES,  # says where the frames of the path begin, one a state (`dfs`)
    FRAMES_END,  # says where the room for them ends; the frame at `DEPTH` lies before it
    DEPTH,  # counts the transitions from the first state of the path to the last; -1 when a search has left the first
    STATES,  # counts the states that are known, the first one too; breadth first it is `QUEUE_TAIL`
    WALK_1,  # holds the first of two generators that walks draw from: from 1 to 2147483562
    WALK_2,  # holds the second one: from 1 to 2147483398
    N_DIES_HERE,  # counts the dies of the members
    DIES,  # says where the numbers of these dies are
    JOINING,  # is 1 if what others answer shows a core what of its own is visible; it never becomes 0 again
    CYCLES,  # is 1 if perhaps a state can be reached from itself; it never becomes 0 again in a part
    QUEUE_HEAD,  # counts, breadth first, the states that are expanded; never above `QUEUE_TAIL`
    QUEUE_TAIL,  # counts, breadth first, the states that were found
    N_EDGES,  # counts, breadth first, the transitions kept, ends too
    ON_PATH,  # says where `ON_PATH_WORDS` counts of fingerprints on the path are; depth first they sum to `DEPTH` + 1
    DOUBT,  # is the `LIMIT_*` by which something went unjudged, so that the end proves nothing; 0 if nothing did
    STATES_MAX,  # holds how many `STATES` there may be before the host looks
    GREW_FIRST,  # holds the first granule with something new; `NO_GRANULE` while `RESTART` is 0
    GREW_LAST,  # holds the last one; -1 while `RESTART` is 0
    WRITTEN_TABLE,  # says where two words a granule are, of buffers too: a bit for each written byte, which only come
    # along a path, and for each byte where padding is that nobody has written
    DIE_BYTES,  # holds the bytes of a die's memory; fixed
    META_START,  # holds the first byte of the metadata area, from the die's first byte on; fixed
    META_END,  # holds the first byte after it, likewise
    OWNERS,  # has a bit for each core whose return is explored, as others may write late what it owns; fixed in a part
    UNIT_GRANULES,  # holds how many granules become visible at once, 1 if less than one does; fixed
    KEPT,  # says where touched cores are kept as they were before the transition
    EVICTS,  # has a bit for each core whose cache may change an explored line; bits only come
    LOCALLY,  # is 1 while an action is taken by itself; 0 between transitions
    N_ASIDE,  # counts the violations set aside, `ASIDE_MAX` at most
    FIRST_MEMORY,  # says where memory is kept as it was at first; fixed
    EXPLORED,  # counts the granules of class SYNC
    GUIDED,  # has a bit for each core that has used what a poll has returned that is switched off; bits only come
    SPARED,  # has a bit for each core that need not return (`recovery`); 0 in other searches
    N_OPEN,  # counts the open states (`frames`), depth first; 0 while `CYCLES` is 0
    LOST,  # is 1 if perhaps no run from a state comes to an end; 0 while `CYCLES` is 0, never 0 again in a part
) = range(58)
LESS, MOST = 1, 2
"""In `FULL`: without and with what `fields` does, and transfers that are read early."""
WITNESS = 58
"""What a violation is about: two accesses of (core, site, agent, first byte, bytes, writes?).

At `LIMIT_SPIN` it holds the core, how many sites of its loop are kept, and these.  Without either nobody reads it."""
HANDLES = 70
"""Addresses of functions (`linked`), and of the two in whose place others are where a search is watched (`watch`)."""
ASIDE, ASIDE_WORDS, ASIDE_MAX = 78, 13, 8
"""Violations that are set aside, because no schedule shows them: what, and the words of `WITNESS`, each."""
GIVES_UP, GIVES_UP_MAX = ASIDE + ASIDE_WORDS * ASIDE_MAX, 8
"""How many codes of `fail` end a run without blame (`Trial.gives_up`), then these codes."""
HEADER = GIVES_UP + 1 + GIVES_UP_MAX

# ---- what must be in memory at the end: (first byte, bytes, where the words are, its owners) each; then, with the last
# range of what is judged together, how many ranges that are and how many contents are right
EXPECTED_WORDS = 6

# ---- the table of cores: (number of the core in the pod, its registers) each
CORE_WORDS = 2

ON_PATH_WORDS = 1 << 14
"""How many states on the path have a fingerprint that ends so: to see quickly that a known state is not on it."""

# ---- a core's block in the checker state.  Each list has its count above; after its last item all words are 0, so that
# equal states have equal words.  What holds is said of searches, not of walks: there tables change under way.
VECTORS = 0  # four words, what each pipe knows: no vector knows more of a pipe than its own, whose clock is never 0
SHARED_VECTOR = 4  # what mtu-out knew at the latest of its flags that others may have seen; 0 unless `JOINING`
ARRIVED = 5  # 1 from a core's arrival at a barrier until it has passed that; else 0
N_EVENTS_SET = 6  # counts the core's events that are set: the bits in its words `layout.EVENTS`
N_RECORDS = 7  # counts the accesses that not all pipes of the core are known to know of; a quiet empties the list
N_MARKS = 8  # counts writes of shared data made at once and not released; a quiet empties the list; 0 unless `FULL`
N_READ = 9  # counts the reads of shared memory made early and not closed; 0 unless `FULL`
N_CONSUMED = 10  # counts the events consumed whose setters may not know of it; a quiet empties the list
N_FLYING = 11  # counts mtu-out's writes in flight that are explored; 0 under `sc`, and unless `JOINING`
SNAPSHOTS = 12  # of the scalar's vector, for each place of the three queues; of a place in use alone it says something
DMA_SNAPSHOTS = 36  # likewise for each DMA descriptor, from its ring on
FENCE_VECTOR = 44  # what mtu-out knew at the last fence that it has passed; 0 if none since a quiet
EVENTS_SET = 45  # (key, vector) each; a key only once
EVENTS_SET_MAX = 16
RECORDS = EVENTS_SET + 2 * EVENTS_SET_MAX  # (first byte, last + 1, agent and flags, clock, site) each
RECORD_WORDS = 5
AWAITED = 4096
"""Among a record's flags: made while the scalar unit waited, whose clock it has in place of a site (`inside`)."""
RECORDS_MAX = 64
MARKS = RECORDS + RECORD_WORDS * RECORDS_MAX  # (first byte, last + 1, who: `races.mark_of`) each, of memory
MARK_WORDS = 3
MARKS_MAX = 16
MARK_AGENT, MARK_CLOCK = 16, 20
"""Under `sc`: above a mark's site, who wrote, and its clock (`races.mark_of`)."""
READ = MARKS + MARK_WORDS * MARKS_MAX  # (first byte, bytes, site and agent, clock) each: reads made early (`races`)
READ_WORDS = 4
READ_AGENT = 16
"""A read that was made early: its site is below this bit, who made it (scalar unit or mtu-in) from it on."""
READ_MAX = 8
CONSUMED = READ + READ_WORDS * READ_MAX  # (event, pipe that consumed it, its clock) each
CONSUMED_WORDS = 3
FLYING = CONSUMED + CONSUMED_WORDS * EVENTS_SET_MAX  # what mtu-out knew at each of its flags in flight, in their order
FLYING_MAX = 8
BLOCK = FLYING + FLYING_MAX

# ---- limits that end a search, or (in `DOUBT`) only keep it from proving anything
(
    LIMIT_RECORDS, LIMIT_EVENTS, LIMIT_MARKS, LIMIT_CLOCK, LIMIT_FLIGHT, LIMIT_DMA, LIMIT_LOG, LIMIT_DEPTH,
    LIMIT_BARRIER, LIMIT_SPIN, LIMIT_OPEN, LIMIT_CACHE, LIMIT_QUEUE, LIMIT_GUIDED,
) = range(1, 15)  # fmt: skip

# ---- violations that the machine itself does not record
RACE_INSIDE, RACE, UNWRITTEN, WRONG_BITS, DEADLOCK, MACHINE, LIVELOCK, SET_TWICE, TOO_EARLY = range(1, 10)
WORDS_OF_RACE, WORDS_OF_READ, WORDS_OF_BITS = 12, 6, 2
"""Words of `WITNESS` that describe a race, bytes that nobody has written, wrong bits."""

# ---- rows after the accesses' own: how many these are, their highest class, words of a granule
N_ROWS, ROWS_CLASS, ROWS_WORDS = 4, 5, 6

LATENT = 1 << 20
"""Added to the site of a write in flight that the search took to be visible (`record`)."""

STATE, CHECKER, MEMORY, NOTHING = range(4)
"""What a logged range belongs to; memory is counted in words of 8 bytes. Of nothing, nothing is put back."""

NOW, RAW = 0, 4
"""When a logged range enters the fingerprint: right after the action that changes it, or not by itself (who logs it
adds its contribution)."""

_C1, _C2, _C3 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_C4, _C5 = np.uint64(0xD6E8FEB86659FD93), np.uint64(0xA0761D6478BD642F)
_C6, _C7 = np.uint64(0xE7037ED1A0B428DB), np.uint64(0x8EBC6AF09C88C6E3)
_C8 = np.uint64(0x589965CC75374CC3)
_S27, _S30, _S31 = np.uint64(27), np.uint64(30), np.uint64(31)

if config.DISABLE_JIT:

    def unsigned(value):
        """The 64 bits of a word as an unsigned number."""
        return np.uint64(int(value) & 0xFFFFFFFFFFFFFFFF)

    def signed(value):
        """The same bits as a signed number."""
        return np.int64(int(value) - (1 << 64) if int(value) >> 63 else int(value))

else:

    @jit
    def unsigned(value):
        """The 64 bits of a word as an unsigned number."""
        return np.uint64(value)

    @jit
    def signed(value):
        """The same bits as a signed number."""
        return np.int64(value)


@jit
def mixed(place, value):
    """64 bits that depend on all bits of a place and a value."""
    z = unsigned(value) * _C1 + unsigned(place)
    z = (z ^ (z >> _S30)) * _C2
    z = (z ^ unsigned(place) ^ (z >> _S27)) * _C3
    return z ^ (z >> _S31)


@jit
def add_hash(ck, change):
    """Add to the fingerprint."""
    ck[HASH] = signed(unsigned(ck[HASH]) + change)


@call
def accuse(ck, what, words):
    """Note a violation that the first ``words`` words of `WITNESS` describe, unless it was set aside."""
    for k in range(ck[N_ASIDE]):
        at, n = ASIDE + k * ASIDE_WORDS, 0
        while n < words and ck[at + 1 + n] == ck[WITNESS + n]:
            n += 1
        if ck[at] == what and n == words:
            return
    ck[VIOLATION] = what


@jit
def drop(ck, count, first, words, n):
    """Take the n-th item out of a list in the checker state: the last one takes its place."""
    at, last = first + n * words, first + (ck[count] - 1) * words
    for k in range(words):
        ck[at + k] = ck[last + k]
        ck[last + k] = 0
    ck[count] -= 1


# ---- the log


@call
def save(mem, st, ck, kind, first, n):
    """Log ``n`` words before they change; ``kind`` is what they belong to and when they are hashed."""
    top = ck[LOG]
    if top + n + 2 > ck[LOG_END]:
        ck[LIMIT] = LIMIT_LOG
        return
    space = kind & 3
    if space == STATE:
        machine_words.copy_words(ck, top, st, first, n)
    elif space == CHECKER:
        machine_words.copy_words(ck, top, ck, first, n)
    else:
        machine_words.bytes_to_words(ck, top, mem, 8 * first, 8 * n)
    ck[top + n] = first
    ck[top + n + 1] = n << 4 | kind
    ck[LOG] = top + n + 2


@jit
def save_bytes(mem, st, ck, start, nbytes):
    """Log bytes of memory, in whole words."""
    save(mem, st, ck, MEMORY | NOW, start >> 3, (start + nbytes + 7 >> 3) - (start >> 3))


@call
def step_back(mem, st, ck, mark):
    """Undo everything that was logged since the log ended at ``mark``."""
    top = ck[LOG]
    while top > mark:
        n, space, first = ck[top - 1] >> 4, ck[top - 1] & 3, ck[top - 2]
        top -= n + 2
        if space == STATE:
            for i in range(n):  # mostly a few
                st[first + i] = ck[top + i]
        elif space == CHECKER:
            for i in range(n):
                ck[first + i] = ck[top + i]
        elif space == MEMORY:
            machine_words.words_to_bytes(mem, 8 * first, ck, top, 8 * n)
    ck[LOG] = top


@call
def hash_changes(mem, st, ck, mark):
    """Bring the fingerprint up to date with what was logged since ``mark`` to be hashed `NOW`."""
    top = ck[LOG]
    change = np.uint64(0)
    while top > mark:
        n, kind, first = ck[top - 1] >> 4, ck[top - 1] & 15, ck[top - 2]
        top -= n + 2
        for i in range(n if kind & RAW == 0 else 0):
            place = first + i << 2 | kind
            if kind == STATE:
                change += changed(place, ck[top + i], st[first + i])
            elif kind == CHECKER:
                change += changed(place, ck[top + i], ck[first + i])
            else:
                change += changed(place, ck[top + i], machine_words.load_i64(mem, 8 * (first + i)))
    add_hash(ck, change)


@jit
def changed(place, before, after):
    """Return what a word contributes after a change less what it did before."""
    if before == after:
        return np.uint64(0)
    return mixed(place, after) - mixed(place, before)


@call
def log_changed(ck, now, first, kept, n, space):
    """Log the words that are not as they were kept; returns how they change the fingerprint."""
    change, top, run, end = np.uint64(0), ck[LOG], 0, 0
    for j in range(0, n, 64):
        bits = 0
        for k in range(j, min(j + 64, n), 8):
            bits |= machine_words.differing(now, first + k, ck, kept + k, n - k) << k - j
        while bits:
            k = j + machine_words.first_of(bits)
            bits &= bits - 1
            if run and k != end:
                ck[top], ck[top + 1] = first + end - run, run << 4 | space | RAW
                top, run = top + 2, 0
            place, before = first + k << 2 | space, ck[kept + k]
            change += mixed(place, now[first + k]) - mixed(place, before)
            ck[top] = before
            top, run, end = top + 1, run + 1, k + 1
    if run:
        ck[top], ck[top + 1] = first + end - run, run << 4 | space | RAW
        top += 2
    ck[LOG] = top
    return change


# ---- writes in flight


@jit
def _entry_hash(st, entry, rank):
    """A mix of a sum of its words, each times an odd number of its own."""
    data = entry + ms.FLIGHT_DATA
    z = unsigned(st[entry + ms.FLIGHT_ADDRESS]) * _C1 + unsigned(st[entry + ms.FLIGHT_NBYTES] << 8 | rank) * _C2
    z += unsigned(st[entry + ms.FLIGHT_CORE] << 8 | st[entry + ms.FLIGHT_KIND]) * _C3 + unsigned(st[data]) * _C4
    z += unsigned(st[entry + ms.FLIGHT_FENCES]) * _C8
    z += unsigned(st[data + 1]) * _C5 + unsigned(st[data + 2]) * _C6 + unsigned(st[data + 3]) * _C7
    for i in range(ms.FLIGHT_DATA + 4, st[ms.FLIGHT_WORDS]):
        z += mixed(i, st[entry + i])
    return mixed(3, signed(z))


@jit
def _ordered(st, older, younger):
    """1 if it matters which of two writes of a die in flight is older."""
    one, other = st[older + ms.FLIGHT_ADDRESS], st[younger + ms.FLIGHT_ADDRESS]
    if st[ms.ORDER] == ms.ORDER_FIFO:
        return 1 if one >> st[ms.DIE_SHIFT] == other >> st[ms.DIE_SHIFT] else 0
    if (st[ms.REQUEST_ORDERS] | st[ms.SOME_SIGNAL]) and _asked_apart(st, older, younger):
        return 1
    if (
        not flight.same_unit(st, older, younger, st[ms.ATOMIC_SHIFT])
        or st[older + ms.FLIGHT_CORE] != st[younger + ms.FLIGHT_CORE]
    ):
        return 0
    kind, kind_other = st[older + ms.FLIGHT_KIND], st[younger + ms.FLIGHT_KIND]
    if st[ms.ORDER] == ms.ORDER_UNORDERED:  # a load sees the youngest of its core's stores in flight, all the same
        return 1 if kind == ms.KIND_SCALAR and kind_other == ms.KIND_SCALAR else 0
    return 1 if kind == kind_other or (kind < ms.KIND_DMA and kind_other < ms.KIND_DMA) else 0


@jit
def _asked_apart(st, older, younger):
    """Return whether it may matter which of two writes is older: both are of one core to one die, and one of them asks
    for an order or both are parts of requests that signal."""
    same_core = st[older + ms.FLIGHT_CORE] == st[younger + ms.FLIGHT_CORE]
    by_core = st[older + ms.FLIGHT_KIND] < ms.KIND_DMA and st[younger + ms.FLIGHT_KIND] < ms.KIND_DMA
    same_die = st[older + ms.FLIGHT_ADDRESS] >> st[ms.DIE_SHIFT] == st[younger + ms.FLIGHT_ADDRESS] >> st[ms.DIE_SHIFT]
    asked = (
        flight.asked(st, older)
        | flight.asked(st, younger)
        | min(flight.part_of(st, older), flight.part_of(st, younger))
    )
    return same_core and by_core and same_die and asked != 0


@jit
def _rank(st, ring, k):
    """Count the writes in flight that are older than the k-th, where that matters."""
    entry, rank = flight.flight(st, ring, k), 0
    for j in range(k):
        rank += _ordered(st, flight.flight(st, ring, j), entry)
    return rank


@call
def ring_hash(st, ring, first):
    """Return what the writes in flight of a die, from the one at ``first`` on, contribute to the fingerprint."""
    total = np.uint64(0)
    for k in range(first, st[ring + ms.FLIGHT_COUNT]):
        total += _entry_hash(st, flight.flight(st, ring, k), _rank(st, ring, k))
    return total


@call
def delivered_hash(st, ring, k):
    """Return how the fingerprint changes when the k-th write in flight, which nothing holds back, becomes visible."""
    entry = flight.flight(st, ring, k)
    rank = _rank(st, ring, k) if st[ms.ORDER] == ms.ORDER_UNORDERED or st[ms.REQUEST_ORDERS] | st[ms.SOME_SIGNAL] else 0
    change = np.uint64(0) - _entry_hash(st, entry, rank)
    for j in range(k + 1, st[ring + ms.FLIGHT_COUNT]):
        younger = flight.flight(st, ring, j)
        if _ordered(st, entry, younger):
            rank = _rank(st, ring, j)
            change += _entry_hash(st, younger, rank - 1) - _entry_hash(st, younger, rank)
    return change
