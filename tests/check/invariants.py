"""What holds of the words of machine, search and monitor between actions, asked of the arrays as they are.

Each sentence is one that a layout says next to the word.  It comes with whether it holds now, and whether there was
something to see: a count that is not 0, an item in a list.
"""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import frames, granules
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import layout as ms

Words = NDArray[np.int64]
Fact = tuple[str, bool, bool]
"""A sentence, whether it holds, and whether there was something to see."""
PIPES = 4
LANE = 13


class Ledger:
    """Sentences that were asked, by whether there ever was something to see."""

    def __init__(self) -> None:
        self.seen = dict[str, bool]()

    def take(self, facts: Iterable[Fact]) -> None:
        """Assert that each holds."""
        for sentence, holds, seen in facts:
            assert holds, sentence
            self.seen[sentence] = self.seen.get(sentence, False) or bool(seen)

    def unseen(self) -> list[str]:
        """Sentences of which there was never anything to see."""
        return [sentence for sentence, seen in self.seen.items() if not seen]


# ---- the machine


def _core(st: Words, core: int) -> Words:
    first, size = int(st[ms.CORE_BASE]), int(st[ms.CORE_WORDS])
    return st[first + core * size : first + (core + 1) * size]


def _actives(st: Words) -> tuple[list[int], list[int]]:
    first, cores, dies = int(st[ms.ACTIVE_BASE]), int(st[ms.N_ACTIVE]), int(st[ms.N_ACTIVE_DIES])
    listed = st[first : first + cores + dies].tolist()
    return listed[:cores], listed[cores:]


def _ring(st: Words, die: int) -> tuple[list[Words], Words]:
    """The writes in flight of a die, the oldest first, and the places that hold none."""
    ring, capacity = int(st[ms.DIE_BASE] + die * st[ms.DIE_WORDS]), int(st[ms.FLIGHT_CAPACITY])
    first, n = ring + ms.FLIGHT_ENTRIES, int(st[ms.FLIGHT_WORDS])
    places = st[first : first + capacity * n].reshape(capacity, n)
    head, count = int(st[ring + ms.FLIGHT_HEAD]), int(st[ring + ms.FLIGHT_COUNT])
    used = [(head + k) % capacity for k in range(count)]
    return [places[p] for p in used], np.delete(places, used, axis=0)


def of_machine(st: Words, undone: bool = False) -> Iterator[Fact]:
    """Yield facts of the header, cores, rings, groups and caches; ``undone`` if actions may have been undone."""
    cores, dies = _actives(st)
    n = [int(_core(st, core)[ms.STATUS]) for core in cores].count(ms.STATUS_RUNNING)
    live = st[ms.N_LIVE] == n or (undone and st[ms.N_LIVE] <= n)
    yield "N_LIVE counts the cores that run, in a search some of them", live, n
    counted = int(st[ms.COUNT_BY_OP : ms.BYTES_BY_PIPE].sum())
    yield "COUNT_BY_OP has no more requests than there were ACTIONS", counted <= st[ms.ACTIONS], counted
    first = [st[ms.RANDOM_1], st[ms.RANDOM_2]]
    yield "RANDOM_1 and RANDOM_2 are in range, never 0", 0 < first[0] < 2147483563 and 0 < first[1] < 2147483399, True
    error = st[ms.ERROR_CORE : ms.ERROR_B + 1]
    yield "ERROR_* are 0 without an ERROR", st[ms.ERROR] != 0 or not error.any(), True
    asks = st[ms.REQUEST_ORDERS] | st[ms.SOME_SIGNAL]
    kept = st[ms.ORDER] in (ms.ORDER_SC, ms.ORDER_FIFO)
    yield "REQUEST_ORDERS and SOME_SIGNAL are 0 under sc and fifo", not kept or asks == 0, kept
    flown = st[ms.FLIGHT_WORDS] == ms.FLIGHT_DATA + max(1 << st[ms.ATOMIC_SHIFT], 32) // 8
    yield "FLIGHT_WORDS holds a unit", flown and st[ms.FLIGHT_WORDS] <= ms.FLIGHT_WORDS_MOST, True
    flying = [entry for die in dies for entry in _ring(st, die)[0]]
    for die in dies:
        yield from _of_die(st, die)
    for core in cores:
        yield from _of_core(st, core, flying)
        yield from _of_cache(st, core)
        yield from _of_group(st, int(_core(st, core)[ms.GROUP]))


def _of_die(st: Words, die: int) -> Iterator[Fact]:
    ring, flying = int(st[ms.DIE_BASE] + die * st[ms.DIE_WORDS]), _ring(st, die)[0]
    capacity, some = int(st[ms.FLIGHT_CAPACITY]), bool(flying)
    head = int(st[ring + ms.FLIGHT_HEAD])
    yield "FLIGHT_HEAD is a place of the ring", head == 0 or 0 < head < capacity, head
    yield "FLIGHT_COUNT is no more than FLIGHT_CAPACITY", 0 <= st[ring + ms.FLIGHT_COUNT] <= capacity, some
    homes = [_core(st, int(entry[ms.FLIGHT_CORE]))[ms.DIE] == die for entry in flying]
    yield "a write in flight is of a core of the die", all(homes), some
    shift = int(st[ms.ATOMIC_SHIFT])
    for entry in flying:
        at, n, kind = (int(entry[word]) for word in (ms.FLIGHT_ADDRESS, ms.FLIGHT_NBYTES, ms.FLIGHT_KIND))
        unit = at >> shift == at + n - 1 >> shift or (kind == ms.KIND_ADD and n == 8)
        yield "a write in flight lies in one unit, or is an addition to 8 bytes", unit and n > 0, True
        inside = at >= 0 and at + n <= st[ms.N_HOMES] << st[ms.DIE_SHIFT]
        yield "a write in flight goes to memory", inside, True
        yield "FLIGHT_KIND names a descriptor at most", 0 <= kind < ms.KIND_DMA + ms.N_DMA_SLOTS, True
        fences = int(entry[ms.FLIGHT_FENCES]) & ms.FENCES_MASK
        passes = kind >= ms.KIND_DMA or st[ms.ORDER] == ms.ORDER_FIFO
        yield "no fence is counted of DMA, nor under fifo", not passes or fences == 0, passes
        words = -(-n // 8)
        yield "FLIGHT_DATA is 0 beyond the bytes of the write", not entry[ms.FLIGHT_DATA + words :].any(), True


def _of_core(st: Words, core: int, flying: list[Words]) -> Iterator[Fact]:
    block, status = _core(st, core), int(_core(st, core)[ms.STATUS])
    mine = [int(entry[ms.FLIGHT_KIND]) for entry in flying if entry[ms.FLIGHT_CORE] == core]
    yield "IN_FLIGHT counts the core's writes in the ring of its die", block[ms.IN_FLIGHT] == len(mine), mine
    start, end, raced = (int(block[word]) for word in (ms.HELD_START, ms.HELD_END, ms.RACED))
    held = start < end <= st[ms.UB_BYTES] if end else start == raced == 0
    yield "HELD_START, HELD_END and RACED are 0 where nothing is held, else a range", held, end
    yield "SOME_TENTATIVE is set if something is held", end == 0 or st[ms.SOME_TENTATIVE] != 0, end
    yield "N_WINDOWS is no more than MAX_WINDOWS", 0 <= block[ms.N_WINDOWS] <= ms.MAX_WINDOWS, block[ms.N_WINDOWS]
    polls = block[REQUEST] == rq.OP_POLL and status == ms.STATUS_RUNNING
    yield "POLLED is 0 unless the core polls", polls or block[ms.POLLED] == 0 or status == ms.STATUS_STOPPED, polls
    events = block[ms.EVENTS : ms.EVENTS + ms.N_PIPES**2]
    yield "an EVENTS word has a bit for each of N_EVENTS", bool((events >> ms.N_EVENTS == 0).all()), events.any()
    if status == ms.STATUS_STOPPED:
        return
    for queue in range(3):
        yield from _of_queue(block[ms.PIPES + queue * ms.PIPE_WORDS :][: ms.PIPE_WORDS])
    slots = block[ms.DMA_SLOTS : ms.WINDOWS].reshape(ms.N_DMA_SLOTS, ms.ENTRY_WORDS)
    for k, slot in enumerate(slots):
        yield "a free DMA descriptor is 0 in all words", slot[0] != 0 or not slot.any(), slot[0]
        yield (
            "ENTRY_IN_FLIGHT counts the descriptor's writes in flight",
            slot[ms.ENTRY_IN_FLIGHT] == mine.count(ms.KIND_DMA + k),
            slot[ms.ENTRY_IN_FLIGHT],
        )
    counts = [int(block[ms.PIPES + queue * ms.PIPE_WORDS + ms.PIPE_COUNT]) for queue in range(3)]
    idle = not mine and not any(counts) and not slots.any() and not events.any()
    yield "a core that has returned has nothing under way, and no event set", status != ms.STATUS_DONE or idle, status


def _of_queue(queue: Words) -> Iterator[Fact]:
    head, count = int(queue[ms.PIPE_HEAD]), int(queue[ms.PIPE_COUNT])
    yield "PIPE_COUNT is no more than QUEUE_DEPTH", 0 <= count <= ms.QUEUE_DEPTH, count
    yield "PIPE_HEAD is 0 in an empty queue", 0 <= head < ms.QUEUE_DEPTH and (count > 0 or head == 0), count
    entries = queue[ms.PIPE_ENTRIES :].reshape(ms.QUEUE_DEPTH, ms.ENTRY_WORDS)
    used = [(head + j) % ms.QUEUE_DEPTH for j in range(count)]
    yield "an entry that holds no instruction is 0", not np.delete(entries, used, axis=0).any(), count
    yield "the head of a queue is not complete", count == 0 or entries[head, ms.ENTRY_PROGRESS] >= 0, count


def _of_cache(st: Words, core: int) -> Iterator[Fact]:
    first, size = int(st[ms.CACHE_BASE] + core * st[ms.CACHE_WORDS]), int(st[ms.CACHE_WORDS])
    lines = st[first : first + size].reshape(-1, ms.CACHED_WORDS)
    used = lines[lines[:, ms.CACHED_LINE] > 0]
    numbers = used[:, ms.CACHED_LINE].tolist()
    order = numbers == sorted(set(numbers)) and bool((lines[: len(used), ms.CACHED_LINE] > 0).all())
    yield "CACHED_LINE rises over the lines in use, which come first", order, len(numbers)
    yield "a line that is not in use is 0", not lines[len(used) :].any(), len(numbers)
    dirty = used[:, ms.CACHED_DIRTY]
    yield "CACHED_DIRTY is 0, or a site + 1", bool(((dirty >= 0) & (dirty <= ms.MAX_SITES)).all()), dirty.any()


def _of_group(st: Words, group: int) -> Iterator[Fact]:
    size, arrived, phase = st[st[ms.GROUP_BASE] + group * ms.GROUP_WORDS :][:3].tolist()
    yield "GROUP_ARRIVED is less than GROUP_SIZE", 0 <= arrived < size, arrived
    yield "GROUP_PHASE is 0 or 1", phase in (0, 1), phase


def of_one_run(st: Words) -> Iterator[Fact]:
    """Yield facts of what neither search nor sampled run puts back: free places of rings, and the table of writers."""
    for die in _actives(st)[1]:
        flying, free = _ring(st, die)
        yield "a place that holds no write in flight is 0", not free.any(), flying
    first, n = int(st[ms.WRITER_BASE]), int(st[ms.WRITER_SLOTS])
    rows = st[first : first + n * ms.WRITER_WORDS].reshape(n, ms.WRITER_WORDS)
    slots = np.flatnonzero(rows[:, 0])
    yield "a writer is kept at the place of its granule", bool((rows[slots, 0] - 1 & n - 1 == slots).all()), slots.size
    when = rows[slots, 3]
    yield "a writer is noted from action 1 to ACTIONS", bool(((when >= 1) & (when <= st[ms.ACTIONS])).all()), slots.size


# ---- the checker state


def of_search(st: Words, ck: Words) -> Iterator[Fact]:
    """Yield facts of the header, the blocks of the cores and the granules, between two transitions of a search."""
    log = ck[cs.LOG_BASE] <= ck[cs.LOG] <= ck[cs.LOG_END]
    yield "LOG is between LOG_BASE and LOG_END", log, ck[cs.LOG] > ck[cs.LOG_BASE]
    yield "ACTIONS is no less than TRANSITIONS", ck[cs.TRANSITIONS] <= ck[cs.ACTIONS], ck[cs.TRANSITIONS]
    yield "TOUCHED has no core but members", ck[cs.TOUCHED] & ~ck[cs.MASK] == 0, ck[cs.TOUCHED]
    yield "LOCALLY is 0 between transitions", ck[cs.LOCALLY] == 0, True
    members = ck[ck[cs.MEMBERS] :][: ck[cs.N]].tolist()
    yield "MASK has a bit for each of the N numbers in MEMBERS", sum(1 << i for i in members) == ck[cs.MASK], True
    at = ck[cs.RECORD_BASE] + ck[cs.RECORDED]
    yield "RECORDED actions fit between RECORD_BASE and RECORD_END", at <= ck[cs.RECORD_END], ck[cs.RECORDED]
    yield "RECORDED is 0 unless RECORDING", ck[cs.RECORDING] or ck[cs.RECORDED] == 0, ck[cs.RECORDING]
    yield from _of_table(ck)
    frame = ck[cs.FRAMES] + ck[cs.DEPTH] * frames.WORDS
    yield "the frame at DEPTH ends before FRAMES_END", frame + frames.WORDS <= ck[cs.FRAMES_END], ck[cs.DEPTH]
    opened = ck[cs.N_OPEN] or ck[cs.LOST]
    yield "N_OPEN and LOST are 0 while CYCLES is 0", bool(ck[cs.CYCLES]) or not opened, not ck[cs.CYCLES]
    for i in members:
        core = int(ck[ck[cs.CORES] + i * cs.CORE_WORDS])
        yield from _of_block(st, ck, _core(st, core), ck[ck[cs.BLOCKS] + i * cs.BLOCK :][: cs.BLOCK])


def _of_table(ck: Words) -> Iterator[Fact]:
    table = ck[ck[cs.GRANULE_TABLE] : ck[cs.WRITTEN_TABLE]].reshape(-1, granules.GRANULE_WORDS)
    grown = table[:, granules.SEEN_USERS] != table[:, granules.USERS]
    grown |= table[:, granules.SEEN_USES] != table[:, granules.USES]
    used = table[:, granules.USERS].any()
    yield "without a RESTART all that was seen is frozen", bool(ck[cs.RESTART]) or not grown.any(), used
    range_ = (int(ck[cs.GREW_FIRST]), int(ck[cs.GREW_LAST]))
    yield "without a RESTART GREW_FIRST and GREW_LAST are of no granule", range_ == (granules.NO_GRANULE, -1), True
    explored = int((table[:, granules.CLASS] == granules.SYNC).sum())
    yield "EXPLORED counts the granules of class SYNC", explored == ck[cs.EXPLORED], explored


def _of_block(st: Words, ck: Words, core: Words, block: Words) -> Iterator[Fact]:
    lists = {
        "N_EVENTS_SET": (block[cs.N_EVENTS_SET], cs.EVENTS_SET, 2, cs.EVENTS_SET_MAX),
        "N_RECORDS": (block[cs.N_RECORDS], cs.RECORDS, cs.RECORD_WORDS, cs.RECORDS_MAX),
        "N_MARKS": (block[cs.N_MARKS], cs.MARKS, cs.MARK_WORDS, cs.MARKS_MAX),
        "N_READ": (block[cs.N_READ], cs.READ, cs.READ_WORDS, cs.READ_MAX),
        "N_CONSUMED": (block[cs.N_CONSUMED], cs.CONSUMED, cs.CONSUMED_WORDS, cs.EVENTS_SET_MAX),
        "N_FLYING": (block[cs.N_FLYING], cs.FLYING, 1, cs.FLYING_MAX),
    }
    for name, (n, first, words, most) in lists.items():
        yield f"{name} is no more than there is room for", 0 <= n <= most, n
        yield f"behind the {name} items all words are 0", not block[first + n * words : first + most * words].any(), n
    events = core[ms.EVENTS : ms.EVENTS + ms.N_PIPES**2]
    n_set = sum(int(word).bit_count() for word in events)
    yield "N_EVENTS_SET counts the events that are set", n_set == block[cs.N_EVENTS_SET], n_set
    yield "N_FLYING and SHARED_VECTOR are 0 unless JOINING", _joins(ck, block), ck[cs.JOINING]
    yield "N_MARKS and N_READ are 0 unless FULL", ck[cs.FULL] != 0 or not block[[cs.N_MARKS, cs.N_READ]].any(), True
    yield "ARRIVED is 0 or 1", block[cs.ARRIVED] in (0, 1), block[cs.ARRIVED]
    vectors = block[cs.VECTORS : cs.VECTORS + PIPES].tolist()
    set_ = block[cs.EVENTS_SET + 1 : cs.EVENTS_SET + 2 * block[cs.N_EVENTS_SET] : 2].tolist()
    flying = block[cs.FLYING : cs.FLYING + block[cs.N_FLYING]].tolist()
    others = [*vectors, *set_, *flying, int(block[cs.SHARED_VECTOR]), int(block[cs.FENCE_VECTOR])]
    for pipe in range(PIPES):
        own = _lane(vectors[pipe], pipe)
        yield "no vector knows more of a pipe than the pipe itself", max(_lane(v, pipe) for v in others) <= own, own > 1
    yield "the clock of a pipe is 1 at least", all(_lane(v, p) for p, v in enumerate(vectors)), True
    records = block[cs.RECORDS :][: block[cs.N_RECORDS] * cs.RECORD_WORDS].reshape(-1, cs.RECORD_WORDS)
    marks = block[cs.MARKS :][: block[cs.N_MARKS] * cs.MARK_WORDS].reshape(-1, cs.MARK_WORDS)
    yield "a record is of some bytes", bool((records[:, 0] < records[:, 1]).all()), len(records)
    inside = (marks[:, 0] < marks[:, 1]) & (marks[:, 1] <= ck[cs.MEMORY_END])
    yield "a mark is of some bytes of memory", bool(inside.all()), len(marks)
    done = core[ms.STATUS] == ms.STATUS_DONE
    left = block[[cs.N_RECORDS, cs.N_MARKS, cs.N_EVENTS_SET]]
    yield "a core that has returned has no record, mark or event", not done or not left.any(), done


def _joins(ck: Words, block: Words) -> bool:
    return bool(ck[cs.JOINING]) or not block[[cs.N_FLYING, cs.SHARED_VECTOR]].any()


def _lane(vector: int, pipe: int) -> int:
    return vector >> LANE * pipe & (1 << LANE) - 1


# ---- the monitor


def of_monitor(space: ml.Space) -> Iterator[Fact]:
    """Yield facts of the words, clocks, shadow and records between two actions of a run that goes on."""
    st, m = space.st, space.m
    cores, dies = _actives(st)
    yield "WORDS is PER_CORE for each core", m[ml.WORDS] == m[ml.PER_CORE] * len(cores), True
    yield "N_DMA is at most N_EVENTS", m[ml.N_DMA] <= ms.N_EVENTS, m[ml.N_DMA]
    yield "TARGETS is 0 under sc", st[ms.ORDER] != ms.ORDER_SC or m[ml.TARGETS] == 0, st[ms.ORDER] == ms.ORDER_SC
    syncs = m[ml.N_SYNC_KNOWN] <= m[ml.N_SYNC] <= m[ml.SYNC_MAX]
    yield "N_SYNC is from N_SYNC_KNOWN to SYNC_MAX", syncs, m[ml.N_SYNC]
    yield "STOP is 0 while a run goes on", m[ml.STOP] == 0, True
    indices = m[m[ml.CORE_INDEX] :][: int(st[ms.N_CORES])][cores].tolist()
    numbers = m[m[ml.CORE_NUMBER] :][: len(cores)].tolist()
    yield "CORE_INDEX undoes CORE_NUMBER", numbers == cores and indices == [*range(len(cores))], len(cores) > 1
    yield "RUNG is at most N_DMA", m[ml.RUNG] <= m[ml.N_DMA], m[ml.RUNG]
    yield "FENCED is 1 only if FENCES is", m[ml.FENCED] == 0 or m[ml.FENCES] != 0, m[ml.FENCED]
    yield "PAUSED is what a run has taken that is to go on", m[ml.PAUSED] == st[ms.ACTIONS], m[ml.PAUSED]
    yield from _of_shadow(space)
    yield from _of_flights(space, dies)
    yield from _of_clocks(space, len(cores))


def _of_shadow(space: ml.Space) -> Iterator[Fact]:
    m, shadow = space.m, space.shadow.reshape(-1, ml.SHADOW_WORDS)
    now = shadow[shadow[:, ml.S_GENERATION] == m[ml.GENERATION]]
    yield "no granule is of a later run than GENERATION", shadow[:, ml.S_GENERATION].max() <= m[ml.GENERATION], True
    saved = int((now[:, ml.S_WRITTEN] & ml.SAVED != 0).sum())
    yield "N_UNDO counts the granules that are SAVED", saved == m[ml.N_UNDO], saved
    yield "what is to be undone has room", m[ml.N_UNDO] * ml.UNDO_WORDS <= space.undo.size, m[ml.N_UNDO]
    numbers = shadow[:, ml.S_FIXED] >> ml.SYNC_SHIFT
    named = np.flatnonzero(numbers)
    table = m[m[ml.SYNC_GRANULES] :][: m[ml.N_SYNC]].tolist()
    there = sorted(numbers[named].tolist()) == [*range(1, len(table) + 1)]
    yield "SYNC_GRANULES lists the granules that S_FIXED numbers", there and sorted(table) == named.tolist(), table
    top, records = int(m[ml.RECORD_TOP]), space.records
    listed = [r for head in now[:, ml.S_RECORDS].tolist() for r in _list(records, head)]
    free = _list(records, int(m[ml.RECORD_FREE]))
    all_ = sorted([*listed, *free]) == [*range(ml.RECORD_WORDS, top, ml.RECORD_WORDS + int(m[ml.SEEN_WORDS]))]
    yield "each record below RECORD_TOP is in one list: its granule's, or RECORD_FREE's", all_, listed
    yield "RECORD_TOP is within the records", top <= records.size, True
    for r in listed:
        one = records[r : r + ml.RECORD_WORDS]
        start, end = int(one[ml.R_START]), int(one[ml.R_END])
        yield "a record lies in one granule", start < end and start >> 5 == end - 1 >> 5, True
        yield "R_ENGINE is a word of a clock", 0 <= one[ml.R_ENGINE] < m[ml.WORDS], True


def _list(records: Words, head: int) -> list[int]:
    found = []
    while head:
        found.append(head)
        head = int(records[head + ml.R_NEXT])
    return found


def _of_flights(space: ml.Space, dies: list[int]) -> Iterator[Fact]:
    st, m = space.st, space.m
    capacity = int(m[ml.CAPACITY])
    for d, die in enumerate(dies if capacity else ()):
        count = len(_ring(st, die)[0])
        places = space.flights[2 * d * capacity :][: 2 * count].reshape(-1, 2)
        serials = places[:, 1].tolist()
        rising = serials == sorted(set(serials)) and all(each < m[ml.SERIAL] for each in serials)
        yield "serial numbers rise from the oldest write of a die to the youngest, below SERIAL", rising, serials
        kept = places[places[:, 0] > 0, 0] - 1
        stack = m[m[ml.FREE_ROWS] + d * (capacity + 1) :][: capacity + 1]
        yield "FREE_ROWS has the rows that no write in flight keeps", stack[0] + len(kept) == capacity, len(kept)
        numbers = ((kept - m[ml.FLIGHT_ROWS]) // m[ml.WORDS] - d * capacity).tolist()
        both = sorted([*numbers, *stack[1 : 1 + stack[0]].tolist()])
        yield "a row is kept by one write in flight, or is free", both == [*range(capacity)], len(kept)


def _of_clocks(space: ml.Space, n: int) -> Iterator[Fact]:
    m, words, per_core = space.m, int(space.m[ml.WORDS]), int(space.m[ml.PER_CORE])
    rows = space.clocks[m[ml.PIPE_ROWS] :][: 4 * n * words].reshape(4 * n, words)
    syncs = space.clocks[m[ml.SYNC_ROWS] :][: 8 * m[ml.N_SYNC] * words].reshape(-1, words)
    released = m[m[ml.RELEASED] :][: m[ml.N_SYNC]]
    syncs = syncs[(released[:, None] >> np.arange(8) & 1).astype(bool).ravel()]
    fences = space.clocks[m[ml.FENCE_ROWS] :][: n * words * int(m[ml.FENCES])].reshape(-1, words)
    known = np.concatenate([rows, syncs, fences])
    for i in range(n):
        for engine in range(PIPES):
            word, own = i * per_core + engine, rows[4 * i + engine, i * per_core + engine]
            yield "an engine's own epoch is the latest that any clock has of it", known[:, word].max() <= own, own > 1
            yield "the epoch of an engine is 1 at least", own >= 1, True
        for engine, first in ((rq.SCALAR, 0), (rq.MTU_OUT, int(m[ml.TARGETS]))):
            start = i * per_core + ml.ENGINE_DMA + int(m[ml.N_DMA]) + first
            seen, own = known[:, start : start + int(m[ml.TARGETS])], rows[4 * i + engine, i * per_core + engine]
            later = bool((seen <= own).all())
            yield "no write is visible of an epoch that has not begun", later, seen.any()
