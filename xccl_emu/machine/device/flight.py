"""Memory and the writes in flight: what a write becomes under each memory order, and how it becomes visible.

A die holds its cores' writes in flight in a ring, in issue order, each no more than is visible at once.  Under `sc`
there are none: a write is visible with the action that makes it.
"""

import numpy as np

from xccl_emu.lang import abi
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device import tentative, words
from xccl_emu.machine.device.access import set_error_at
from xccl_emu.machine.device.memory import large_slot, mark, write_far
from xccl_emu.machine.device.words import call, jit

_GRANULE_SHIFT = 5
_PASSED_MAX = 1 << 12  # most in a row; a kernel may do nothing else for ever
DMA_READ_DONE = -1
"""Progress of a DMA descriptor that has read everything and waits for its writes to become visible."""


@jit
def block_of_core(st, core):
    """Index of the core's first word."""
    return st[ms.CORE_BASE] + core * st[ms.CORE_WORDS]


@jit
def block_of_die(st, die):
    """Index of the die's first word."""
    return st[ms.DIE_BASE] + die * st[ms.DIE_WORDS]


@jit
def flight(st, ring, k):
    """Index of the k-th oldest write in flight of a die."""
    at = st[ring + ms.FLIGHT_HEAD] + k
    if at >= st[ms.FLIGHT_CAPACITY]:  # a division would cost more than all else here
        at -= st[ms.FLIGHT_CAPACITY]
    return ring + ms.FLIGHT_ENTRIES + at * st[ms.FLIGHT_WORDS]


@jit
def set_event(st, core, base, source, target, event, site):
    """Set a binary event; setting one that is still set is a violation."""
    word = base + ms.EVENTS + source * ms.N_PIPES + target
    if st[word] >> event & 1:
        # A pipe acts later than its request
        set_error_at(st, core, base, ms.ERR_DOUBLE_SET, source * 8 + target, event, site)
    words.put(st, word, st[word] | (1 << event))


@jit
def note_writer(st, address, core, site):
    """Remember who last wrote a granule, for reports; a direct-mapped table, so an old entry may have been evicted."""
    granule = address >> _GRANULE_SHIFT
    slot = st[ms.WRITER_BASE] + (granule & st[ms.WRITER_SLOTS] - 1) * ms.WRITER_WORDS
    st[slot + ms.WRITER_GRANULE], st[slot + ms.WRITER_WHEN] = granule + 1, st[ms.ACTIONS] + 1
    st[slot + ms.WRITER_CORE], st[slot + ms.WRITER_SITE] = core, site


@call
def _note_writers(st, address, nbytes, core, site):
    """Note every granule of a write, or of a large one only when it was, so that no older write is blamed for it."""
    if nbytes <= ms.NOTED_BYTES_MAX:
        for granule in range(address >> _GRANULE_SHIFT, (address + nbytes - 1 >> _GRANULE_SHIFT) + 1):
            note_writer(st, granule << _GRANULE_SHIFT, core, site)
        return
    for block in range(address >> ms.LARGE_SHIFT, (address + nbytes - 1 >> ms.LARGE_SHIFT) + 1):
        st[large_slot(st, block)] = st[ms.ACTIONS] + 1


@jit
def site_word(st, base, site):
    """Return the switch word of a request's site: whether it is on, and the order that it asks for."""
    return st[st[ms.SWITCH_BASE] + st[base + ms.KERNEL] * ms.MAX_SITES + site]


@jit
def asked_at(st, base, site):
    """Return the order that the requests of a site ask for."""
    return site_word(st, base, site) >> ms.SITE_ORDER & 3


@jit
def fences_since(st, entry):
    """Count the fences that its core has passed since a write took off."""
    return st[entry + ms.FLIGHT_FENCES] & ms.FENCES_MASK


@jit
def asked(st, entry):
    """Return the order that a write in flight asks for."""
    return st[entry + ms.FLIGHT_FENCES] >> ms.ASKED_SHIFT & 3


@jit
def room_for_writes(st, base, n_granules):
    """Return whether ``n_granules`` more granules can go into flight."""
    if st[ms.ORDER] == ms.ORDER_SC:
        return True
    return st[block_of_die(st, st[base + ms.DIE]) + ms.FLIGHT_COUNT] + n_granules <= st[ms.FLIGHT_CAPACITY]


@call
def _take_off(st, core, base, kind, address, nbytes, site):
    """Append an entry to the die's ring; returns where its data goes, zeroed."""
    ring = block_of_die(st, st[base + ms.DIE])
    entry = flight(st, ring, st[ring + ms.FLIGHT_COUNT])
    words.put(st, ring + ms.FLIGHT_COUNT, st[ring + ms.FLIGHT_COUNT] + 1)
    words.put(st, entry + ms.FLIGHT_CORE, core)
    words.put(st, entry + ms.FLIGHT_KIND, kind)
    words.put(st, entry + ms.FLIGHT_ADDRESS, address)
    words.put(st, entry + ms.FLIGHT_NBYTES, nbytes)
    words.put(st, entry + ms.FLIGHT_SITE, site)
    for i in range(ms.FLIGHT_DATA, st[ms.FLIGHT_WORDS]):
        words.put(st, entry + i, 0)
    words.put(st, entry + ms.FLIGHT_FENCES, asked_at(st, base, site) << ms.ASKED_SHIFT if st[ms.REQUEST_ORDERS] else 0)
    words.put(st, base + ms.IN_FLIGHT, st[base + ms.IN_FLIGHT] + 1)
    return entry + ms.FLIGHT_DATA


@jit
def write_bytes(mem, st, core, base, kind, address, source, nbytes, site):
    """Write bytes that stand at ``source``: at once under `sc`, else into flight, where they must be atomic."""
    if st[ms.ORDER] == ms.ORDER_SC:
        tentative.meet(st, address, nbytes)
        if kind == ms.KIND_ADD_ROW:
            mark(mem, st, address, nbytes)
            for at in range(0, nbytes, 4):
                _add_number(mem, address + at, words.load_i32(mem, source + at))
        else:
            write_far(mem, st, address, source, nbytes)
        _note_writers(st, address, nbytes, core, site)
        return
    words.bytes_to_words(st, _take_off(st, core, base, kind, address, nbytes, site), mem, source, nbytes)


@jit
def write_word(mem, st, core, base, kind, address, nbytes, value, site):
    """Write, or add, up to 8 bytes: at once under `sc`, else into flight (there must be room)."""
    if st[ms.ORDER] == ms.ORDER_SC:
        tentative.meet(st, address, nbytes)
        _store(mem, st, kind, address, nbytes, value)
        note_writer(st, address, core, site)
    elif kind == ms.KIND_SCALAR and nbytes >> st[ms.ATOMIC_SHIFT] > 1:  # two halves of 4 bytes
        words.put(st, _take_off(st, core, base, kind, address, 4, site), value & 0xFFFFFFFF)
        words.put(st, _take_off(st, core, base, kind, address + 4, 4, site), value >> 32 & 0xFFFFFFFF)
    else:
        words.put(st, _take_off(st, core, base, kind, address, nbytes, site), value)


@jit
def _add_number(mem, address, number):
    """Add to an integer of 4 bytes."""
    words.store_u32(mem, address, words.load_i32(mem, address) + number)


@jit
def land(mem, st, entry):
    """Apply a write in flight to memory: store it, or add it."""
    address, data, kind = st[entry + ms.FLIGHT_ADDRESS], entry + ms.FLIGHT_DATA, st[entry + ms.FLIGHT_KIND]
    if kind == ms.KIND_ADD:
        words.store_i64(mem, address, words.load_i64(mem, address) + st[data])
    elif kind == ms.KIND_ADD_ROW:
        for at in range(0, st[entry + ms.FLIGHT_NBYTES], 4):
            _add_number(mem, address + at, st[data + (at >> 3)] >> (at & 4) * 8 & 0xFFFFFFFF)
    else:
        words.words_to_bytes(mem, address, st, data, st[entry + ms.FLIGHT_NBYTES])


@jit
def _store(mem, st, kind, address, nbytes, value):
    mark(mem, st, address, nbytes)
    store_word(mem, address, nbytes, value + words.load_i64(mem, address) if kind == ms.KIND_ADD else value)


@jit
def store_word(mem, address, nbytes, value):
    """Store the low ``nbytes`` (1 to 8) of a word."""
    if nbytes == 8:
        words.store_i64(mem, address, value)
    elif nbytes == 4:
        words.store_u32(mem, address, value)
    else:
        for i in range(nbytes):
            mem[address + i] = value >> (8 * i) & 255


@jit
def write_unit(mem, st, core, base, kind, address, source, nbytes, site):
    """Write, as `write_bytes` does, up to a unit that is at byte ``source`` of the state."""
    word = source >> 3
    half = st[word] >> 8 * (source & 7) & 0xFFFFFFFF  # where a unit is of 4 bytes
    if st[ms.ORDER] == ms.ORDER_SC:
        tentative.meet(st, address, nbytes)
        mark(mem, st, address, nbytes)
        _note_writers(st, address, nbytes, core, site)
        if nbytes == 4:
            words.store_u32(mem, address, half)
        for w in range(nbytes >> 3):
            words.store_i64(mem, address + 8 * w, st[word + w])
        return
    data = _take_off(st, core, base, kind, address, nbytes, site)
    if nbytes == 4:
        words.put(st, data, half)
    for w in range(nbytes >> 3):
        words.put(st, data + w, st[word + w])


@jit
def deliverable(st, die, k):
    """May the k-th oldest write of this die become visible now?

    `fifo`: nothing older goes to the same die.  `relaxed`: nothing older of the same core, or the same DMA
    descriptor, goes to the same unit, and nothing that precedes a fence of its core goes to the same die.
    `unordered`: the latter alone.  In addition, requests may ask for an order (`strong_waits`), and a signal follows
    what its own request copies.
    """
    ring = block_of_die(st, die)
    if k < 0 or k >= st[ring + ms.FLIGHT_COUNT]:
        return False
    entry = flight(st, ring, k)
    fifo, kept = st[ms.ORDER] == ms.ORDER_FIFO, st[ms.ORDER] != ms.ORDER_UNORDERED
    shift = st[ms.DIE_SHIFT] if fifo else st[ms.ATOMIC_SHIFT]
    for j in range(k):
        older = flight(st, ring, j)
        if kept and same_unit(st, older, entry, shift) and (fifo or _same_agent(st, older, entry)):
            if asked(st, older) != ms.ASKS_NO and asked(st, entry) != ms.ASKS_NO:
                return False
        if fenced(st, older, entry) or (st[ms.REQUEST_ORDERS] and strong_waits(st, older, entry)):
            return False
    return part_of(st, entry) != ms.IS_SIGNAL or not _payload_flies(st, ring, k)


@jit
def strong_waits(st, older, younger):
    """Return whether a write in flight is strong, and an older one of its core to the same die is ordered too."""
    if asked(st, younger) != ms.ASKS_STRONG or asked(st, older) == ms.ASKS_NO:
        return False
    return is_own(st, older, st[younger + ms.FLIGHT_CORE]) and goes_to(st, older, st[younger + ms.FLIGHT_ADDRESS])


@jit
def is_own(st, entry, core):
    """Return whether a write in flight is a core's own, and not its DMA's."""
    return st[entry + ms.FLIGHT_CORE] == core and st[entry + ms.FLIGHT_KIND] < ms.KIND_DMA


@jit
def goes_to(st, entry, address):
    """Does a write in flight go to the die of an address?"""
    return st[entry + ms.FLIGHT_ADDRESS] >> st[ms.DIE_SHIFT] == address >> st[ms.DIE_SHIFT]


@jit
def part_of(st, entry):
    """Return whether a write in flight is what a signalling request copies (`IS_PAYLOAD`), its signal, or neither."""
    return st[entry + ms.FLIGHT_FENCES] >> ms.PART_SHIFT


@jit
def copied_for(st, ring, j, k):
    """Return whether the j-th oldest write of a die is what the request copies whose signal is the k-th."""
    one, signal = flight(st, ring, j), flight(st, ring, k)
    core = st[signal + ms.FLIGHT_CORE]
    if part_of(st, one) != ms.IS_PAYLOAD or part_of(st, signal) != ms.IS_SIGNAL or st[one + ms.FLIGHT_CORE] != core:
        return False
    for between in range(j + 1, k):
        entry = flight(st, ring, between)
        if st[entry + ms.FLIGHT_CORE] == core and part_of(st, entry) == ms.IS_SIGNAL:
            return False
    return True


@jit
def signals_before(st, ring, k, core, address):
    """Count a core's signals to the die of an address that are in flight before the k-th oldest write of its die."""
    n = 0
    for j in range(k):
        entry = flight(st, ring, j)
        if part_of(st, entry) == ms.IS_SIGNAL and st[entry + ms.FLIGHT_CORE] == core and goes_to(st, entry, address):
            n += 1
    return n


@jit
def _payload_flies(st, ring, k):
    """Return whether something is in flight that the request copies whose signal is the k-th oldest write of a die.

    mtu-out takes one request after the other, so that is what lies between this signal and the one before it, which
    is in flight as long as something is that its own request copies.
    """
    core = st[flight(st, ring, k) + ms.FLIGHT_CORE]
    for j in range(k - 1, -1, -1):
        older = flight(st, ring, j)
        part = part_of(st, older)
        if part and st[older + ms.FLIGHT_CORE] == core:
            return part == ms.IS_PAYLOAD
    return False


@jit
def mark_parts(st, base, first, part):
    """Note of the youngest writes in flight of a die, from the one at ``first`` on, that they are a part of a request
    that signals.  Not under `fifo`, which keeps their order anyway."""
    ring = block_of_die(st, st[base + ms.DIE])
    for k in range(
        first if st[ms.ORDER] >= ms.ORDER_RELAXED else st[ring + ms.FLIGHT_COUNT], st[ring + ms.FLIGHT_COUNT]
    ):
        entry = flight(st, ring, k)
        words.put(st, entry + ms.FLIGHT_FENCES, st[entry + ms.FLIGHT_FENCES] | part << ms.PART_SHIFT)


@jit
def same_unit(st, one, other, shift):
    """Do two writes in flight touch the same unit of ``1 << shift`` bytes?  An add may touch two of 4."""
    a, b = st[one + ms.FLIGHT_ADDRESS], st[other + ms.FLIGHT_ADDRESS]
    last_a, last_b = a + st[one + ms.FLIGHT_NBYTES] - 1, b + st[other + ms.FLIGHT_NBYTES] - 1
    return a >> shift <= last_b >> shift and b >> shift <= last_a >> shift


@jit
def fenced(st, older, younger):
    """Has the core of two writes in flight to the same die passed a fence between them?"""
    if fences_since(st, older) <= fences_since(st, younger) or st[younger + ms.FLIGHT_KIND] >= ms.KIND_DMA:
        return False
    return is_own(st, older, st[younger + ms.FLIGHT_CORE]) and goes_to(st, older, st[younger + ms.FLIGHT_ADDRESS])


@jit
def pass_fence(st, core, base):
    """Put one more fence after all that a core has in flight, but for DMA; `fifo` keeps the order of all anyway."""
    if st[ms.ORDER] < ms.ORDER_RELAXED or st[base + ms.IN_FLIGHT] == 0:
        return
    ring = block_of_die(st, st[base + ms.DIE])
    for k in range(st[ring + ms.FLIGHT_COUNT]):
        entry = flight(st, ring, k)
        if is_own(st, entry, core):
            words.put(st, entry + ms.FLIGHT_FENCES, st[entry + ms.FLIGHT_FENCES] + 1)


@jit
def _same_agent(st, one, other):
    """Do two writes come from the same core, or the same DMA descriptor of it?"""
    if st[one + ms.FLIGHT_CORE] != st[other + ms.FLIGHT_CORE]:
        return False
    kind, kind_other = st[one + ms.FLIGHT_KIND], st[other + ms.FLIGHT_KIND]
    return kind == kind_other or (kind < ms.KIND_DMA and kind_other < ms.KIND_DMA)


@call
def deliver(mem, st, die, k):
    """Make the k-th oldest write of a die visible, if the memory order allows it."""
    if not deliverable(st, die, k):
        return False
    ring = block_of_die(st, die)
    entry = flight(st, ring, k)
    core, kind, address = st[entry + ms.FLIGHT_CORE], st[entry + ms.FLIGHT_KIND], st[entry + ms.FLIGHT_ADDRESS]
    tentative.meet(st, address, st[entry + ms.FLIGHT_NBYTES])
    land(mem, st, entry)
    _note_writers(st, address, st[entry + ms.FLIGHT_NBYTES], core, st[entry + ms.FLIGHT_SITE])
    _remove(st, ring, k)
    base = block_of_core(st, core)
    words.put(st, base + ms.IN_FLIGHT, st[base + ms.IN_FLIGHT] - 1)
    if kind >= ms.KIND_DMA:
        slot = base + ms.DMA_SLOTS + (kind - ms.KIND_DMA) * ms.ENTRY_WORDS
        words.put(st, slot + ms.ENTRY_IN_FLIGHT, st[slot + ms.ENTRY_IN_FLIGHT] - 1)
        finish_dma(st, core, base, slot)
    return True


@jit
def _remove(st, ring, k):
    """Close the gap from the old end, so that the ring stays in issue order."""
    for j in range(k, 0, -1):
        older, newer = flight(st, ring, j - 1), flight(st, ring, j)
        for i in range(st[ms.FLIGHT_WORDS]):
            words.put(st, newer + i, st[older + i])
    first = flight(st, ring, 0)
    for i in range(st[ms.FLIGHT_WORDS]):
        words.put(st, first + i, 0)
    head = st[ring + ms.FLIGHT_HEAD] + 1
    words.put(st, ring + ms.FLIGHT_HEAD, head if head < st[ms.FLIGHT_CAPACITY] else 0)
    words.put(st, ring + ms.FLIGHT_COUNT, st[ring + ms.FLIGHT_COUNT] - 1)


@jit
def finish_dma(st, core, base, slot):
    """Complete a DMA descriptor once all is read and visible: free it and set its event."""
    if st[slot + ms.ENTRY_PROGRESS] != DMA_READ_DONE or st[slot + ms.ENTRY_IN_FLIGHT] > 0:
        return
    st[ms.BYTES_BY_PIPE + rq.DMA] += st[slot + ops.DMA.nbytes]
    set_event(st, core, base, rq.DMA, rq.SCALAR, st[slot + ops.DMA.event], st[slot + ms.ENTRY_SITE])
    for i in range(ms.ENTRY_WORDS):
        words.put(st, slot + i, 0)


@jit
def sign_extended(value, nbytes):
    """The low ``nbytes`` (1, 2, 4 or 8) of a word as a signed integer."""
    if nbytes == 8:
        return value
    sign = 1 << 8 * nbytes - 1
    return (value & 2 * sign - 1 ^ sign) - sign


@jit
def read_word(mem, st, core, base, address, nbytes):
    """Return what a scalar load sees: memory, and over it the core's own scalar stores in flight, oldest first.

    Where it has a cache: what a poll sees, which goes past that, and what is in memory.
    """
    word = address & ~7
    value = words.load_i64(mem, word)
    if st[base + ms.IN_FLIGHT] and not st[ms.CACHE_LINES]:
        ring = block_of_die(st, st[base + ms.DIE])
        for k in range(st[ring + ms.FLIGHT_COUNT]):
            entry = flight(st, ring, k)
            start, size = st[entry + ms.FLIGHT_ADDRESS], st[entry + ms.FLIGHT_NBYTES]
            mine = st[entry + ms.FLIGHT_CORE] == core and st[entry + ms.FLIGHT_KIND] == ms.KIND_SCALAR
            k = word - start + 7 >> 3  # of a line there are two words
            if mine and k >= 0 and 8 * k < size:
                value = overlay(value, st[entry + ms.FLIGHT_DATA + k], start & 7, min(size, 8))
    return sign_extended(value >> (8 * (address - word)), nbytes)


@jit
def overlay(value, data, at, size):
    """Lay stored bytes over a word of 8, from byte ``at`` on."""
    if size == 8:
        return data
    mask = np.int64((1 << 8 * size) - 1) << 8 * at
    return (value & ~mask) | (data << 8 * at & mask)


@jit
def own_write_pending(st, core, base, address):
    """Must an atomic here wait for own writes to its unit, or before a fence, or under `fifo` for any of the die's?

    Of those before a fence, and of the die's, for writes to the same die; under `unordered` for those before a fence
    alone.  An atomic that is strong waits for all own ones to that die, but for those without an order.
    """
    if st[ms.ORDER] == ms.ORDER_SC:
        return False
    ring = block_of_die(st, st[base + ms.DIE])
    own = asked_at(st, base, request_site(st, base)) if st[ms.REQUEST_ORDERS] else 0
    fifo, kept = st[ms.ORDER] == ms.ORDER_FIFO, st[ms.ORDER] != ms.ORDER_UNORDERED or own == ms.ASKS_STRONG
    shift = st[ms.DIE_SHIFT] if fifo or own == ms.ASKS_STRONG else max(3, st[ms.ATOMIC_SHIFT])
    for k in range(st[ring + ms.FLIGHT_COUNT]):
        entry = flight(st, ring, k)
        mine = is_own(st, entry, core)
        loose = own == ms.ASKS_NO or asked(st, entry) == ms.ASKS_NO
        if kept and not loose and (fifo or mine) and st[entry + ms.FLIGHT_ADDRESS] >> shift == address >> shift:
            return True
        if mine and fences_since(st, entry) and goes_to(st, entry, address):
            return True
    return False


@jit
def go_on(st, base):
    """Run a kernel to its next request; on a pod without a cache it passes over what cleans one.

    Of a quiet that is to be a fence it makes one.
    """
    handle = st[ms.STEP_TABLE + st[base + ms.KERNEL]]
    operation = rq.OP_DCCI
    for _ in range(_PASSED_MAX):
        operation = words.call_step(handle, st, base)
        if operation != rq.OP_DCCI or st[ms.CACHE_LINES]:
            break
    if operation < 0:
        _fail(st, base, -operation)
    elif operation >= ops.N_OPERATIONS:  # only C can ask for what there is not
        _fail(st, base, -abi.FAULT)
    elif operation == rq.OP_QUIET and site_word(st, base, request_site(st, base)) & ms.SITE_FENCE:
        words.put(st, base + abi.REQUEST, rq.OP_FENCE)


@call
def _fail(st, base, status):
    """Arithmetic has failed: as if the kernel asked to fail there, which no name switches off."""
    for i in range(abi.REQUEST_WORDS):
        words.put(st, base + abi.REQUEST + i, 0)
    words.put(st, base + abi.PC, abi.DONE - status)  # a state of its own where program counters are compared
    words.put(st, base + abi.REQUEST, rq.OP_FAIL)
    words.put(st, base + abi.REQUEST + ops.FAIL.code, status % abi.PLACES)
    words.put(st, base + abi.REQUEST + ops.FAIL.info, status // abi.PLACES)
    words.put(st, base + abi.REQUEST + abi.REQUEST_WORDS - 1, ms.AT_PLACE)


@jit
def request_site(st, base):
    """Site of the core's current request."""
    return st[base + abi.REQUEST + abi.REQUEST_WORDS - 1]


@jit
def switched_off(st, base):
    """Return whether a core's request is switched off by its name; a return, which has no site, never is."""
    return st[base + abi.REQUEST] != rq.OP_RETURN and site_word(st, base, request_site(st, base)) & ms.SITE_OFF != 0
