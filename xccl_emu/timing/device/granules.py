"""Words that are polled: what they held when, and which cores wait for them (a hash table by granule).

Memory has a write as soon as it is made, also one that is still on its way.  So each granule keeps versions: what it
held, and from when on that was visible.  A poll goes on at the first time at which it sees what it waits for, and both
it and a load that looks for a flag see the version of their time.
"""

from xccl_emu.machine.device.polls import is_awaited
from xccl_emu.machine.device.words import jit, load_i64, store_i64
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.device.heap import come_back
from xccl_emu.timing.device.records import cause_of, set_time

_GRANULE_SHIFT = 5
_GOLDEN = 0x9E3779B9  # of 2^32: so dies are far apart in the table, whatever their number, and their fields do not meet
_A_TURN = 1024  # more granules and versions than a core's turn can make


@jit
def find_granule(mem, tm, address):
    """Index of a granule's entry; a new one holds what memory does, seen from the start of the run on.

    The table is never full (`room_for_granules`).
    """
    key = (address >> _GRANULE_SHIFT) + 1
    slots = tm[tl.GRANULE_SLOTS]
    slot = (key + begin_of(key // tm[tl.GRANULES_A_DIE], slots)) & (slots - 1)
    while True:
        entry = tm[tl.GRANULE_BASE] + slot * tl.GRANULE_WORDS
        if tm[entry + tl.GRANULE_KEY] == key:
            return entry
        if tm[entry + tl.GRANULE_KEY] == 0:
            tm[entry + tl.GRANULE_KEY] = key
            tm[tl.GRANULES_USED] += 1
            _hold(mem, tm, entry)
            return entry
        slot = (slot + 1) & (slots - 1)


@jit
def begin_of(die, slots):
    """Return where the granules of a die begin in a table of this many slots."""
    return (die * _GOLDEN & 0xFFFFFFFF) * slots >> 32


@jit
def room_for_granules(tm):
    """Return whether the table is at most half full, and has room for the versions of another turn."""
    if tm[tl.VERSIONS_LEFT] < _A_TURN:
        _forget_all(tm)
        if tm[tl.VERSIONS_LEFT] < tm[tl.VERSIONS] >> 3:
            return False
    return 2 * tm[tl.GRANULES_USED] < tm[tl.GRANULE_SLOTS]


@jit
def _forget_all(tm):
    """Forget the versions of all granules whose last one everybody sees."""
    for slot in range(tm[tl.GRANULE_SLOTS]):
        entry = tm[tl.GRANULE_BASE] + slot * tl.GRANULE_WORDS
        if tm[entry + tl.GRANULE_AT] <= tm[tl.NOW] - tm[tl.LIMIT]:
            _forget(tm, entry)


@jit
def _forget(tm, version):
    """Forget the versions before one."""
    while tm[version + tl.GRANULE_BEFORE]:
        gone = tm[version + tl.GRANULE_BEFORE]
        tm[version + tl.GRANULE_BEFORE] = tm[gone + tl.GRANULE_BEFORE]
        tm[gone + tl.GRANULE_BEFORE] = tm[tl.VERSION_FREE]
        tm[tl.VERSION_FREE] = gone
        tm[tl.VERSIONS_LEFT] += 1


@jit
def _hold(mem, tm, entry):
    """The last version of a granule is what memory holds."""
    address = tm[entry + tl.GRANULE_KEY] - 1 << _GRANULE_SHIFT
    tm[entry + tl.GRANULE_VALUE] = load_i64(mem, address)
    tm[entry + tl.GRANULE_VALUE + 1] = load_i64(mem, address + 8)
    tm[entry + tl.GRANULE_VALUE + 2] = load_i64(mem, address + 16)
    tm[entry + tl.GRANULE_VALUE + 3] = load_i64(mem, address + 24)


@jit
def wait_at(tm, slot, core):
    """Put a core at the head of the list that begins at ``slot``, if it is in none."""
    row = tm[tl.CORE_BASE] + core * tl.CORE_WORDS
    if tm[row + tl.WAITS_AT]:
        return
    tm[row + tl.WAITS_AT] = slot
    tm[row + tl.NEXT_WAITER] = tm[slot]
    tm[slot] = core + 1


@jit
def leave(tm, core):
    """Take a core off the list that it is in: it has got what it waits for without being woken."""
    row = tm[tl.CORE_BASE] + core * tl.CORE_WORDS
    link = tm[row + tl.WAITS_AT]
    while tm[link] != core + 1:
        link = tm[tl.CORE_BASE] + (tm[link] - 1) * tl.CORE_WORDS + tl.NEXT_WAITER
    tm[link] = tm[row + tl.NEXT_WAITER]
    tm[row + tl.NEXT_WAITER] = 0
    tm[row + tl.WAITS_AT] = 0


@jit
def wake(tm, slot, time):
    """Have all cores of the list that begins at ``slot`` look again, at ``time`` or when they can."""
    core = tm[slot] - 1
    tm[slot] = 0
    while core >= 0:
        row = tm[tl.CORE_BASE] + core * tl.CORE_WORDS
        following = tm[row + tl.NEXT_WAITER] - 1
        tm[row + tl.NEXT_WAITER] = 0
        tm[row + tl.WAITS_AT] = 0
        come_back(tm, row, max(time, tm[row + tl.SCALAR_AT]), core)
        core = following


@jit
def became_visible(mem, tm, who, entry, address, time, kept, added, record):
    """A granule, found before, was written by itself, visible from ``time`` on.

    What was there before is ``kept`` if anybody can look for this write.  What is ``added`` to its word counts when it
    arrives, in any order of additions; what is stored, for which that is 0, arrives after all that was written before.
    """
    if kept:
        _keep(tm, who, entry)
    _hold(mem, tm, entry)
    version = _in_order(tm, who, entry, tl.GRANULE_VALUE + _word_of(address), time, added) if added else entry
    visible = max(time, tm[(tm[version + tl.GRANULE_BEFORE] if added else entry) + tl.GRANULE_AT])
    set_time(tm, who, version + tl.GRANULE_AT, visible, record)
    if tm[entry + tl.GRANULE_WAITER]:
        wake(tm, entry + tl.GRANULE_WAITER, visible)
    if tm[tl.ANY_WAITER]:
        wake(tm, tl.ANY_WAITER, visible)


@jit
def line_became_visible(mem, tm, who, address, nbytes, time, record):
    """A line of more than a granule, whose granules were found before, was written; each is visible when all is."""
    for begin in range(address >> _GRANULE_SHIFT, (address + nbytes - 1 >> _GRANULE_SHIFT) + 1):
        start = begin << _GRANULE_SHIFT
        became_visible(mem, tm, who, find_granule(mem, tm, start), start, time, 1, 0, record)


@jit
def _word_of(address):
    """Number of a word in its granule."""
    return address >> 3 & 3


@jit
def _keep(tm, who, entry):
    """Make the last version of a granule the one before the last, and forget those that nobody can see any more."""
    kept = tm[tl.VERSION_FREE]
    tm[tl.VERSIONS_LEFT] -= 1
    if kept:
        tm[tl.VERSION_FREE] = tm[kept + tl.GRANULE_BEFORE]
    else:
        kept = tm[tl.VERSION_BASE] + tm[tl.VERSIONS_MADE] * tl.GRANULE_WORDS
        tm[tl.VERSIONS_MADE] += 1
    _copy(tm, entry, kept)
    tm[kept + tl.GRANULE_BEFORE] = tm[entry + tl.GRANULE_BEFORE]
    set_time(tm, who, kept + tl.GRANULE_AT, tm[entry + tl.GRANULE_AT], cause_of(who, entry + tl.GRANULE_AT))
    tm[entry + tl.GRANULE_BEFORE] = kept
    while tm[kept + tl.GRANULE_BEFORE] and tm[kept + tl.GRANULE_AT] > tm[tl.NOW] - tm[tl.LIMIT]:
        kept = tm[kept + tl.GRANULE_BEFORE]
    _forget(tm, kept)


@jit
def _copy(tm, source, target):
    """The words of a version."""
    for word in range(tl.GRANULE_VALUE, tl.GRANULE_WORDS):
        tm[target + word] = tm[source + word]


@jit
def _in_order(tm, who, version, word, time, added):
    """The place of what was added last: versions that are visible later are moved up and have it too."""
    before = tm[version + tl.GRANULE_BEFORE]
    while tm[before + tl.GRANULE_BEFORE] and tm[before + tl.GRANULE_AT] > time:
        set_time(tm, who, version + tl.GRANULE_AT, tm[before + tl.GRANULE_AT], cause_of(who, before + tl.GRANULE_AT))
        version, before = before, tm[before + tl.GRANULE_BEFORE]
        _copy(tm, before, version)
        tm[version + word] += added
    return version


@jit
def version_at(tm, entry, time):
    """The version of a granule that is visible at a time."""
    version = entry
    while tm[version + tl.GRANULE_AT] > time and tm[version + tl.GRANULE_BEFORE]:
        version = tm[version + tl.GRANULE_BEFORE]
    return version


@jit
def first_seen(tm, entry, address, compare, wanted, time):
    """The version at which a poll goes on that began at a time, or the last one if it has to wait."""
    word = tl.GRANULE_VALUE + _word_of(address)
    first = version = entry
    while True:
        if is_awaited(tm[version + word], compare, wanted):
            first = version
        if tm[version + tl.GRANULE_AT] <= time or tm[version + tl.GRANULE_BEFORE] == 0:
            return first
        version = tm[version + tl.GRANULE_BEFORE]


@jit
def is_last(mem, tm, entry, address):
    """Does memory hold the last version of a word?  Else a larger transfer wrote it, which is visible at once."""
    return load_i64(mem, address & -8) == tm[entry + tl.GRANULE_VALUE + _word_of(address)]


@jit
def word_at(tm, version, address):
    """Return what a word holds in a version."""
    return tm[version + tl.GRANULE_VALUE + _word_of(address)]


@jit
def show(mem, tm, version, address):
    """Have memory hold a version of a word, and of the other word of its line."""
    for word in (address & -16, (address & -16) + 8):
        store_i64(mem, word, word_at(tm, version, word))
