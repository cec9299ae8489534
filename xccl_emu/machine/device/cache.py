"""The data cache of a core's scalar unit: lines of 64 bytes that nobody keeps coherent (`PodSpec.scalar_cache`).

Loads and stores go through it.  A load takes what its line holds; one that misses fetches the line, all of it at one
moment.  A store changes the line and nothing else; a line that was changed is written back whole, with what its other
bytes were when it was fetched.  Everything else goes past the cache: polls, atomics, mtu-in, mtu-out and DMA.

A line may be evicted at any moment.  Of a clean one that shows only at the next load or store there, so it is a choice
of that request: `CHOICE_ANEW` fetches a line again that has become stale.  To evict a changed line is an action by
itself, `CHOICE_EVICT` and the line's place.  Neither must ever happen: a run in which only they could go on is stuck.
`dcci` writes back and drops a line.  A return writes back all that is changed, drops all, and waits as for any write.

Write-backs are writes in flight like any other, unit by unit.  A line is not fetched while its write-back is under way.
"""

from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST, RESULT
from xccl_emu.machine.device import flight
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.pipes import fence_ahead
from xccl_emu.machine.device.polls import line_parts, n_conditions
from xccl_emu.machine.device.words import call, jit, load_i64, put

LINE_SHIFT = 6
_WORDS = ms.CACHE_LINE_BYTES // 8


@jit
def through_cache(st, base):
    """Does the core's request load or store through a cache?"""
    return st[ms.CACHE_LINES] != 0 and ops.CACHED >> st[base + REQUEST] & 1 != 0


@jit
def request_choices(st, base):
    """Choices of the core's request: of a line that is polled, of a load to fetch again, answers, and conditions."""
    op = st[base + REQUEST]
    if not ops.WORDS >> op & 1:
        return answers(st, base) if op == rq.OP_CHOOSE or op == rq.OP_POLL_ANY else 1
    return ms.CHOICE_ANEW + 1 if through_cache(st, base) else line_parts(st, base)


@jit
def answers(st, base):
    """Count the answers that `choose` or `poll_any` may have; 1 if its name is switched off, or it will be refused."""
    if flight.switched_off(st, base):
        return 1
    if st[base + REQUEST] == rq.OP_POLL_ANY:
        return max(1, n_conditions(st, base))
    n = st[base + REQUEST + ops.CHOOSE.n]
    return n if n <= rq.ANSWERS_MOST and n > 0 else 1


@jit
def scalar_choices(st, base):
    """All that a scalar unit may do: choices of its request, and lines to evict; `nth_scalar` numbers them."""
    return request_choices(st, base) + st[ms.CACHE_LINES]


@jit
def nth_scalar(st, base, n):
    """The n-th choice of a scalar unit."""
    own = request_choices(st, base)
    return n if n < own else ms.CHOICE_EVICT + n - own


@jit
def place_of(st, core, k):
    """Return where the k-th line of a core is."""
    return st[ms.CACHE_BASE] + core * st[ms.CACHE_WORDS] + k * ms.CACHED_WORDS


@jit
def _find(st, core, line):
    """The place of a line that a core has cached, or -1."""
    for k in range(st[ms.CACHE_LINES]):
        at = place_of(st, core, k)
        if st[at + ms.CACHED_LINE] == line + 1:
            return at
    return -1


@jit
def n_cached(st, core):
    """Count the lines that a core has cached."""
    n = 0
    while n < st[ms.CACHE_LINES] and st[place_of(st, core, n) + ms.CACHED_LINE]:
        n += 1
    return n


@jit
def first_changed(st, core):
    """The first line of a core that is to be written back, or -1."""
    for k in range(n_cached(st, core)):
        if st[place_of(st, core, k) + ms.CACHED_DIRTY]:
            return k
    return -1


@jit
def _fetch(mem, st, at):
    address = st[at + ms.CACHED_LINE] - 1 << LINE_SHIFT
    for w in range(_WORDS):
        put(st, at + ms.CACHED_DATA + w, load_i64(mem, address + 8 * w))


@jit
def is_stale(mem, st, at):
    """Does a line differ from memory?"""
    address = st[at + ms.CACHED_LINE] - 1 << LINE_SHIFT
    for w in range(_WORDS):
        if st[at + ms.CACHED_DATA + w] != load_i64(mem, address + 8 * w):
            return True
    return False


@jit
def _under_way(st, core, base, line):
    """Return whether a write-back of a line is in flight."""
    ring = flight.block_of_die(st, st[base + ms.DIE])
    for k in range(st[ring + ms.FLIGHT_COUNT] if st[base + ms.IN_FLIGHT] else 0):
        entry = flight.flight(st, ring, k)
        if st[entry + ms.FLIGHT_CORE] == core and st[entry + ms.FLIGHT_KIND] == ms.KIND_SCALAR:
            if st[entry + ms.FLIGHT_ADDRESS] >> LINE_SHIFT == line:
                return True
    return False


@call
def _drop(st, core, k):
    """Take a line out; the later ones move up."""
    last = n_cached(st, core) - 1
    for j in range(k, last):
        for w in range(ms.CACHED_WORDS):
            put(st, place_of(st, core, j) + w, st[place_of(st, core, j + 1) + w])
    for w in range(ms.CACHED_WORDS):
        put(st, place_of(st, core, last) + w, 0)


@call
def _write_back(mem, st, core, base, k):
    """Write a changed line back and drop it; False, and nothing changed, if it has no room among writes in flight."""
    at = place_of(st, core, k)
    if not flight.room_for_writes(st, base, max(1, ms.CACHE_LINE_BYTES >> st[ms.ATOMIC_SHIFT])):
        return False
    address, data, site = (
        st[at + ms.CACHED_LINE] - 1 << LINE_SHIFT,
        8 * (at + ms.CACHED_DATA),
        st[at + ms.CACHED_DIRTY] - 1,
    )
    size = min(1 << st[ms.ATOMIC_SHIFT], ms.CACHE_LINE_BYTES)
    for start in range(0, ms.CACHE_LINE_BYTES, size):
        flight.write_unit(mem, st, core, base, ms.KIND_SCALAR, address + start, data + start, size, site)
    _drop(st, core, k)
    return True


@jit
def evict(mem, st, core, base, k):
    """Evict a changed line; False if there is none, or it has to wait."""
    if k < 0 or k >= n_cached(st, core) or not st[place_of(st, core, k) + ms.CACHED_DIRTY]:
        return False
    return _write_back(mem, st, core, base, k)


@jit
def _first_clean(st, core, n):
    """The first of the n cached lines of a core that is as it was fetched; n if there is none."""
    k = 0
    while k < n and st[place_of(st, core, k) + ms.CACHED_DIRTY]:
        k += 1
    return k


@jit
def _make_place(mem, st, core, base, line):
    """Open a place for a line, or -1 if that has to wait.  A full cache loses its first clean line, or its first."""
    n = n_cached(st, core)
    if n == st[ms.CACHE_LINES]:
        k = _first_clean(st, core, n)
        if k < n:
            _drop(st, core, k)
        elif not _write_back(mem, st, core, base, 0):
            return -1
        n -= 1
    k = n
    while k > 0 and st[place_of(st, core, k - 1) + ms.CACHED_LINE] > line + 1:
        for w in range(ms.CACHED_WORDS):
            put(st, place_of(st, core, k) + w, st[place_of(st, core, k - 1) + w])
        k -= 1
    at = place_of(st, core, k)
    put(st, at + ms.CACHED_LINE, line + 1)
    put(st, at + ms.CACHED_DIRTY, 0)
    return at


@call
def _line_for(mem, st, core, base, address, choice):
    """The place of the line with an address, fetched if it must be, or again; -1 if that cannot be now."""
    at = _find(st, core, address >> LINE_SHIFT)
    if choice == ms.CHOICE_ANEW:
        if at < 0 or st[at + ms.CACHED_DIRTY] or not is_stale(mem, st, at):
            return -1
        _fetch(mem, st, at)
        return at
    if at >= 0:
        return at
    if _under_way(st, core, base, address >> LINE_SHIFT):
        return -1
    at = _make_place(mem, st, core, base, address >> LINE_SHIFT)
    if at >= 0:
        _fetch(mem, st, at)
    return at


@call
def load_cached(mem, st, core, base, choice, address, nbytes):
    """Load through the cache; False if the line cannot be had now."""
    at = _line_for(mem, st, core, base, address, choice)
    if at < 0:
        return False
    put(st, base + RESULT, flight.sign_extended(_word_of(st, at, address) >> (8 * (address & 7)), nbytes))
    return True


@jit
def _word_of(st, at, address):
    return st[at + ms.CACHED_DATA + (address >> 3 & _WORDS - 1)]


@call
def store_cached(mem, st, core, base, choice, address, value, nbytes):
    """Store to the cache; False if the line cannot be had now."""
    at = _line_for(mem, st, core, base, address, choice)
    if at < 0:
        return False
    word = flight.overlay(_word_of(st, at, address), value, address & 7, nbytes)
    put(st, at + ms.CACHED_DATA + (address >> 3 & _WORDS - 1), word)
    put(st, at + ms.CACHED_DIRTY, flight.request_site(st, base) + 1)
    return True


@jit
def is_hit(st, core, address, choice):
    """Does a load find its line in the cache?"""
    return choice != ms.CHOICE_ANEW and _find(st, core, address >> LINE_SHIFT) >= 0


@jit
def value_seen(mem, st, core, address, nbytes, choice):
    """Return what a load would see."""
    at = _find(st, core, address >> LINE_SHIFT)
    word = _word_of(st, at, address) if is_hit(st, core, address, choice) else load_i64(mem, address & ~7)
    return flight.sign_extended(word >> (8 * (address & 7)), nbytes)


@call
def clean(mem, st, core, base, address):
    """Write back the line with an address if it is changed, and drop it; False if that has to wait."""
    for k in range(n_cached(st, core)):
        at = place_of(st, core, k)
        if st[at + ms.CACHED_LINE] == (address >> LINE_SHIFT) + 1:
            if st[at + ms.CACHED_DIRTY]:
                return not fence_ahead(st, base) and _write_back(mem, st, core, base, k)
            _drop(st, core, k)
            return True
    return True


@jit
def written_back(st, core, base, choice):
    """Return the line that a choice of a scalar unit would write back: evicted, by `dcci` or at the return; or -1."""
    op, n = st[base + REQUEST], n_cached(st, core)
    if choice != ms.CHOICE_ALL and choice >= ms.CHOICE_EVICT:
        k = choice - ms.CHOICE_EVICT
        return k if k < n and st[place_of(st, core, k) + ms.CACHED_DIRTY] else -1
    if op == rq.OP_RETURN:
        return first_changed(st, core)
    for k in range(n if op == rq.OP_DCCI and not flight.switched_off(st, base) else 0):
        at = place_of(st, core, k)
        line = st[base + REQUEST + ops.DCCI.address] >> LINE_SHIFT
        if st[at + ms.CACHED_LINE] == line + 1 and st[at + ms.CACHED_DIRTY]:
            return k
    return -1


@jit
def crowded_out(st, core, base, choice):
    """Return the changed line that a load or store writes back to make room for its own line, or -1."""
    n, op = st[ms.CACHE_LINES], st[base + REQUEST]
    if not through_cache(st, base) or choice == ms.CHOICE_ANEW or n_cached(st, core) < n:
        return -1
    if _first_clean(st, core, n) < n or (ops.STORES >> op & 1 and flight.switched_off(st, base)):
        return -1
    line = st[base + REQUEST + ops.FIRST] >> LINE_SHIFT
    return -1 if _find(st, core, line) >= 0 or _under_way(st, core, base, line) else 0


@jit
def address_of(st, core, k):
    """The first byte of the k-th line of a core."""
    return st[place_of(st, core, k) + ms.CACHED_LINE] - 1 << LINE_SHIFT


@jit
def forget_lines(st, core):
    """Drop all lines of a core."""
    for w in range(n_cached(st, core) * ms.CACHED_WORDS):
        put(st, place_of(st, core, 0) + w, 0)
