"""What a transition changes of cores: kept before it, put back if it was none, else found by comparing, and logged.

Most places of a core's queues and of the checker's lists are free, and all their words are 0.  So of each such part
only what is in use, before or after, is kept and compared; how much was in use is kept, too.
"""

import numpy as np

from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import clocks
from xccl_emu.lang.abi import REGISTERS
from xccl_emu.machine.device import cache as machine_cache
from xccl_emu.machine.device import flight, tentative
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.words import call, copy_words, jit

_N_QUEUES = 3
_OF_CORE = _N_QUEUES + 1
"""Parts of a core's words: its queues and all DMA descriptors.  The other parts are lists of its block:"""
_LISTS = np.array([
    (cs.N_EVENTS_SET, cs.EVENTS_SET, 2), (cs.N_RECORDS, cs.RECORDS, cs.RECORD_WORDS),
    (cs.N_MARKS, cs.MARKS, cs.MARK_WORDS), (cs.N_READ, cs.READ, cs.READ_WORDS),
    (cs.N_CONSUMED, cs.CONSUMED, cs.CONSUMED_WORDS), (cs.N_FLYING, cs.FLYING, 1),
])  # fmt: skip
"""Where the count of each is, where its items begin, and the words of an item."""
_N_PARTS = _OF_CORE + len(_LISTS)


def words_of_core(st):
    """Return how many words it takes to keep a core; the host asks too, and compiles nothing for that."""
    return st[ms.CORE_WORDS] + cs.BLOCK + st[ms.CACHE_WORDS] + _N_PARTS


_words_of_core = jit(words_of_core)


@jit
def _places(st, ck, i):
    """Return where a core's words are, its block, and where both are kept, one after the other."""
    kept = ck[cs.KEPT] + i * _words_of_core(st)
    return flight.block_of_core(st, clocks.core_of(ck, i)), clocks.block_of(ck, i), kept, kept + ms.WINDOWS


@jit
def _whole(st, ck, i, kept):
    """Return what is kept as a whole: how many registers, where they are kept, where the cache is, and is kept."""
    n, registers = ck[ck[cs.CORES] + i * cs.CORE_WORDS + 1], kept + ms.WINDOWS + cs.BLOCK
    return n, registers, machine_cache.place_of(st, clocks.core_of(ck, i), 0), registers + n


@jit
def _used(st, base, k):
    """Return where the k-th part of a core's words begins, from the first on, and how many are in use."""
    stopped = st[base + ms.STATUS] == ms.STATUS_STOPPED  # then what was in use is left as it was
    if k < _N_QUEUES:
        place = ms.PIPES + k * ms.PIPE_WORDS
        return place, ms.PIPE_WORDS if stopped or st[base + place + ms.PIPE_COUNT] else 0
    used = stopped
    for slot in range(ms.N_DMA_SLOTS):
        used = used or st[base + ms.DMA_SLOTS + slot * ms.ENTRY_WORDS] != 0
    return ms.DMA_SLOTS, ms.N_DMA_SLOTS * ms.ENTRY_WORDS if used else 0


@jit
def _listed(ck, block, k):
    """Return where the items of the k-th list of a block begin, from its first word on, and how many words they are."""
    return _LISTS[k, 1], ck[block + _LISTS[k, 0]] * _LISTS[k, 2]


@call
def touch_core(st, ck, i):
    """Keep all words of a core as they are, once a transition, before any of them changes."""
    if ck[cs.TOUCHED] >> i & 1:
        return
    ck[cs.TOUCHED] |= 1 << i
    base, block, kept, kept_block = _places(st, ck, i)
    n, kept_registers, cache, kept_cache = _whole(st, ck, i, kept)
    used = kept_cache + st[ms.CACHE_WORDS]
    copy_words(ck, kept, st, base, ms.PIPES)
    copy_words(ck, kept_block, ck, block, cs.EVENTS_SET)
    copy_words(ck, kept_registers, st, base + REGISTERS, n)
    copy_words(ck, kept_cache, st, cache, st[ms.CACHE_WORDS])
    for k in range(_OF_CORE):
        place, ck[used + k] = _used(st, base, k)
        if ck[used + k]:
            copy_words(ck, kept + place, st, base + place, ck[used + k])
    for k in range(len(_LISTS)):
        place, ck[used + _OF_CORE + k] = _listed(ck, block, k)
        if ck[used + _OF_CORE + k]:
            copy_words(ck, kept_block + place, ck, block + place, ck[used + _OF_CORE + k])


@jit
def _put_back(words, place, ck, kept, before, after):
    """Put back the words of a part that were in use; those that were not are 0 again."""
    copy_words(words, place, ck, kept, before)
    for j in range(before, after):
        words[place + j] = 0


@call
def put_back(st, ck):
    """Put back all cores that were touched."""
    i = 0
    while ck[cs.TOUCHED] >> i:
        if ck[cs.TOUCHED] >> i & 1:
            base, block, kept, kept_block = _places(st, ck, i)
            n, kept_registers, cache, kept_cache = _whole(st, ck, i, kept)
            used = kept_cache + st[ms.CACHE_WORDS]
            for k in range(_OF_CORE):
                place, after = _used(st, base, k)
                _put_back(st, base + place, ck, kept + place, ck[used + k], after)
            for k in range(len(_LISTS)):
                place, after = _listed(ck, block, k)
                _put_back(ck, block + place, ck, kept_block + place, ck[used + _OF_CORE + k], after)
            copy_words(st, base, ck, kept, ms.PIPES)
            copy_words(ck, block, ck, kept_block, cs.EVENTS_SET)
            copy_words(st, base + REGISTERS, ck, kept_registers, n)
            copy_words(st, cache, ck, kept_cache, st[ms.CACHE_WORDS])
        i += 1


@jit
def _log_part(words, place, ck, kept, before, after, space):
    """Log what has changed of a part; returns how that changes the fingerprint."""
    for j in range(before, after):
        ck[kept + j] = 0
    n = max(before, after)
    return cs.log_changed(ck, words, place, kept, n, space) if n else np.uint64(0)


@call
def log_touched(st, ck):
    """Log what has changed of the cores that were touched, and bring the fingerprint up to date with it."""
    i = 0
    while ck[cs.TOUCHED] >> i:
        if ck[cs.TOUCHED] >> i & 1:
            base, block, kept, kept_block = _places(st, ck, i)
            n, kept_registers, cache, kept_cache = _whole(st, ck, i, kept)
            used = kept_cache + st[ms.CACHE_WORDS]
            if st[ms.SOME_FLAGS]:  # its kernel may go round
                clocks.renumber(st, ck, block)
            if ck[cs.LOG] + 3 * (ms.WINDOWS + cs.BLOCK + n + st[ms.CACHE_WORDS]) > ck[cs.LOG_END]:
                ck[cs.LIMIT] = cs.LIMIT_LOG
                return
            change = cs.log_changed(ck, st, base, kept, ms.PIPES, cs.STATE)
            change += cs.log_changed(ck, ck, block, kept_block, cs.EVENTS_SET, cs.CHECKER)
            change += cs.log_changed(ck, st, base + REGISTERS, kept_registers, n, cs.STATE)
            change += cs.log_changed(ck, st, cache, kept_cache, st[ms.CACHE_WORDS], cs.STATE)
            for k in range(_OF_CORE):
                place, after = _used(st, base, k)
                change += _log_part(st, base + place, ck, kept + place, ck[used + k], after, cs.STATE)
            for k in range(len(_LISTS)):
                place, after = _listed(ck, block, k)
                change += _log_part(
                    ck, block + place, ck, kept_block + place, ck[used + _OF_CORE + k], after, cs.CHECKER
                )
            cs.add_hash(ck, change)
        i += 1


@jit
def touch_readers(st, ck, address, nbytes):
    """Keep the cores whose tentative reads a write to these bytes meets."""
    for m in range(ck[cs.N] if st[ms.SOME_TENTATIVE] else 0):
        j = ck[ck[cs.MEMBERS] + m]
        if tentative.reads(st, flight.block_of_core(st, clocks.core_of(ck, j)), address, nbytes):
            touch_core(st, ck, j)
