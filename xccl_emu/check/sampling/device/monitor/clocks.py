"""Vector clocks of the monitor: what each instruction of a core does to what is known to have happened before.

Happens-before is the order that synchronization gives, not the order in which things happened to run: a queued
instruction knows what its core's scalar unit knew when it issued it, and what its pipe has waited for since.
"""

from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.flight import asked_at, site_word
from xccl_emu.machine.device.words import jit


@jit
def index_of(m, core):
    """Number of a core among those that take part."""
    return m[m[ml.CORE_INDEX] + core]


@jit
def pipe_row(m, i, pipe):
    """Return the row of what a pipe, or the scalar unit, knows."""
    return m[ml.PIPE_ROWS] + (i * 4 + pipe) * m[ml.WORDS]


@jit
def queue_row(m, i, pipe, place):
    """Return the row of what the scalar unit knew when it issued the instruction at this place of a pipe's queue."""
    return m[ml.QUEUE_ROWS] + ((i * 3 + pipe - 1) * ms.QUEUE_DEPTH + place) * m[ml.WORDS]


@jit
def dma_epoch(m, i, event):
    """Return where the count is of the descriptors of a core that were rung to set an event."""
    return m[ml.DMA_EPOCHS] + i * ms.N_EVENTS + event


@jit
def dma_ring(m, i, k):
    """Return where it says which of these a core's descriptor is: the count when it was rung, then the event."""
    return m[ml.DMA_RINGS] + i * ms.N_DMA_SLOTS + k


@jit
def ring(m, clocks, i, k, event):
    """A descriptor is rung."""
    m[dma_epoch(m, i, event)] += 1
    m[dma_ring(m, i, k)] = m[dma_epoch(m, i, event)] * ms.N_EVENTS + event
    issue(m, clocks, i, dma_row(m, i, k))


@jit
def _completed(m, i, k, event):
    """The count up to which all descriptors that set an event are done, when this one is."""
    count = m[dma_ring(m, i, k)] // ms.N_EVENTS
    m[dma_ring(m, i, k)] = 0
    for other in range(ms.N_DMA_SLOTS):
        rung = m[dma_ring(m, i, other)]
        if rung and rung % ms.N_EVENTS == event:
            count = min(count, rung // ms.N_EVENTS - 1)
    return count


@jit
def dma_row(m, i, k):
    """Return the row of what the scalar unit knew when it rang this descriptor."""
    return m[ml.DMA_ROWS] + (i * ms.N_DMA_SLOTS + k) * m[ml.WORDS]


@jit
def fence_row(m, i):
    """Return the row of what mtu-out knew at the last fence that it has passed."""
    return m[ml.FENCE_ROWS] + i * m[ml.WORDS]


@jit
def pending_row(m, i):
    """Return the row of what reads of a core have seen that do not acquire; the next one has their sites."""
    return m[ml.PENDING_ROWS] + 2 * i * m[ml.WORDS]


@jit
def forget_seen(m, clocks, i):
    """A core begins: its reads have seen nothing."""
    if m[ml.PENDING]:
        clear_row(m, clocks, pending_row(m, i))


@jit
def acquires(st, m, base, site):
    """Does a read acquire what it sees, or a quiet what reads before it have seen?"""
    return m[ml.PENDING] == 0 or site_word(st, base, site) & ms.SITE_NO_ACQUIRE == 0


@jit
def note_seen(m, clocks, i, row, site):
    """A read that does not acquire sees what is in a row."""
    seen = pending_row(m, i)
    for w in range(m[ml.WORDS]):
        if clocks[row + w] > clocks[seen + w]:
            clocks[seen + w], clocks[seen + m[ml.WORDS] + w] = clocks[row + w], site


@jit
def ahead_row(m, i):
    """Under `fifo`: what of its die's writes is visible when all is that a core has written."""
    return m[ml.AHEAD_ROWS] + i * m[ml.WORDS]


@jit
def event_number(i, source, target, event):
    """Number of an event of a core, among all events of all cores."""
    return ((i * ms.N_PIPES + source) * ms.N_PIPES + target) * ms.N_EVENTS + event


@jit
def event_row(m, i, source, target, event):
    """Return the row of what an event passes on."""
    return m[ml.EVENT_ROWS] + event_number(i, source, target, event) * m[ml.WORDS]


@jit
def group_row(m, group, which):
    """A row of a barrier: what those know who arrived (0), and what they knew who left phase 0 (1) or 1 (2)."""
    return m[ml.GROUP_ROWS] + (group * 3 + which) * m[ml.WORDS]


@jit
def sync_row(m, number, address):
    """Return the row of what those writes release whose value is in these 4 bytes of a synchronization granule."""
    return m[ml.SYNC_ROWS] + (number * 8 + (address >> 2 & 7)) * m[ml.WORDS]


@jit
def released_row(m, number, address):
    """Return that row, or -1 if nothing was released there."""
    return sync_row(m, number, address) if m[m[ml.RELEASED] + number] >> (address >> 2 & 7) & 1 else -1


@jit
def engine_word(m, i, engine):
    """Word of a clock for an engine of a core."""
    return i * m[ml.PER_CORE] + engine


@jit
def visible_word(m, i, engine, die):
    """Word of a clock that says which writes of the scalar unit or mtu-out to a die are visible."""
    return (
        i * m[ml.PER_CORE]
        + ml.ENGINE_DMA
        + m[ml.N_DMA]
        + (m[ml.TARGETS] if engine == rq.MTU_OUT else 0)
        + die % m[ml.TARGETS]
    )


@jit
def strong_word(m, i, engine, die):
    """Word of a clock that says so of its writes that are not without an order."""
    return visible_word(m, i, engine, die) + 2 * m[ml.TARGETS]


@jit
def signal_word(m, i, number):
    """Word of a clock that says up to which number the signals of a core are known that share this word."""
    return (i + 1) * m[ml.PER_CORE] - m[ml.SIGNALS] + number % m[ml.SIGNALS]


@jit
def clear_row(m, clocks, row):
    """Nothing is known."""
    for w in range(m[ml.WORDS]):
        clocks[row + w] = 0


@jit
def keeps_order(st, m):
    """Does `relaxed` keep writes of a core in an order that matters: do any signal, or release others before them?"""
    return st[ms.ORDER] == ms.ORDER_RELAXED and (m[ml.SIGNALS] != 0 or st[ms.REQUEST_ORDERS] == ms.ASKS_SOME_STRONG)


@jit
def kept_row(m, number, address):
    """Return the row of what each core's writes to the unit at ``address`` release; each core has its block there."""
    return m[ml.KEPT_ROWS] + (number * 8 + (address >> 2 & 7)) * m[ml.WORDS]


@jit
def clear_sync(st, m, clocks, number):
    """Nothing has been written to a synchronization."""
    m[m[ml.RELEASED] + number] = 0
    for half in range(8 if keeps_order(st, m) else 0):
        clear_row(m, clocks, kept_row(m, number, half << 2))


@jit
def copy_row(m, clocks, to, source):
    """One clock becomes another."""
    for w in range(m[ml.WORDS]):
        clocks[to + w] = clocks[source + w]


@jit
def join_row(m, clocks, to, source):
    """One clock learns what another knows."""
    for w in range(m[ml.WORDS]):
        clocks[to + w] = max(clocks[to + w], clocks[source + w])


@jit
def issue(m, clocks, i, row):
    """The scalar unit hands on what it knows, and begins a new epoch."""
    scalar = pipe_row(m, i, rq.SCALAR)
    copy_row(m, clocks, row, scalar)
    clocks[scalar + engine_word(m, i, rq.SCALAR)] += 1


@jit
def set_event_clock(m, clocks, i, pipe):
    """A pipe sets an event: all that it did before is known to the pipe that waits for it."""
    row, own = event_row(m, i, m[ml.X_SOURCE], m[ml.X_TARGET], m[ml.X_NUMBER]), m[ml.X_KNOWN]
    copy_row(m, clocks, row, own)
    join_row(m, clocks, row, m[ml.X_ISSUED])
    judge_set(m, clocks, i, m[ml.X_SOURCE], m[ml.X_TARGET], m[ml.X_NUMBER], row)
    clocks[own + engine_word(m, i, pipe)] += 1


@jit
def consume_event(m, clocks, i, pipe):
    """A pipe has waited for an event."""
    join_row(m, clocks, m[ml.X_KNOWN], event_row(m, i, m[ml.X_SOURCE], m[ml.X_TARGET], m[ml.X_NUMBER]))
    place = m[ml.CONSUMED] + event_number(i, m[ml.X_SOURCE], m[ml.X_TARGET], m[ml.X_NUMBER]) * ml.CONSUMED_WORDS
    m[place], m[place + 1] = m[ml.GENERATION], clocks[m[ml.X_KNOWN] + engine_word(m, i, pipe)]
    m[place + 2] = m[ml.X_SITE]


@jit
def judge_set(m, clocks, i, source, target, event, row):
    """Report an event that is set unless its setter knows that it was consumed: else only the depth of queues keeps the
    setter from setting it twice.  ``row`` is what the setter knows."""
    place = m[ml.CONSUMED] + event_number(i, source, target, event) * ml.CONSUMED_WORDS
    known = m[place] != m[ml.GENERATION] or m[place + 1] <= clocks[row + engine_word(m, i, target)]
    if known or m[ml.JUDGED] != ml.JUDGE_ALL or m[ml.STOP]:
        return
    m[ml.STOP], m[ml.V_AT] = ml.FOUND_SET_AGAIN, event
    m[ml.V_CORE], m[ml.V_ENGINE], m[ml.V_SITE] = i, source, m[ml.X_SITE]
    m[ml.V_CORE_2], m[ml.V_ENGINE_2], m[ml.V_SITE_2] = i, target, m[place + 2]


@jit
def complete_dma(m, clocks, i, k, event):
    """A descriptor is done: reads complete, writes visible; a wait for its event learns what is in the row returned."""
    row = event_row(m, i, ms.N_PIPES - 1, rq.SCALAR, event)
    copy_row(m, clocks, row, dma_row(m, i, k))
    clocks[row + engine_word(m, i, ml.ENGINE_DMA + event)] = _completed(m, i, k, event)
    judge_set(m, clocks, i, ms.N_PIPES - 1, rq.SCALAR, event, row)
    return row


@jit
def see_writes(m, clocks, row, i, die, known):
    """Extend a row of a clock by the writes of core i to a die that the clock `known` has seen."""
    for engine in range(rq.SCALAR, rq.MTU_OUT + 1, rq.MTU_OUT - rq.SCALAR):
        word = row + visible_word(m, i, engine, die)
        clocks[word] = max(clocks[word], clocks[known + engine_word(m, i, engine)])


@jit
def pass_quiet(st, m, clocks, i, base):
    """The scalar unit knows that all its core has issued is done and visible, and what its reads have seen."""
    scalar = pipe_row(m, i, rq.SCALAR)
    if m[ml.PENDING] and acquires(st, m, base, m[ml.X_SITE]):
        join_row(m, clocks, scalar, pending_row(m, i))
    for pipe in range(rq.MTU_IN, rq.MTU_OUT + 1):
        own = pipe_row(m, i, pipe)
        clocks[scalar + engine_word(m, i, pipe)] = clocks[own + engine_word(m, i, pipe)]
        clocks[own + engine_word(m, i, pipe)] += 1
    for event in range(m[ml.N_DMA]):
        clocks[scalar + engine_word(m, i, ml.ENGINE_DMA + event)] = m[dma_epoch(m, i, event)]
    for die in range(m[ml.TARGETS]):
        see_writes(m, clocks, scalar, i, die, scalar)
    if st[ms.ORDER] == ms.ORDER_FIFO:
        join_row(m, clocks, scalar, ahead_row(m, i))
    clocks[scalar + engine_word(m, i, rq.SCALAR)] += 1


@jit
def in_order(st, m, clocks, i, row, known, die):
    """Under `fifo`, extend ``row`` by the earlier writes of the writer's die to ``die`` that ``known`` has seen."""
    if st[ms.ORDER] != ms.ORDER_FIFO:
        return
    for other in range(m[ml.WORDS] // m[ml.PER_CORE]):
        if m[m[ml.CORE_DIE] + other] == m[m[ml.CORE_DIE] + i]:
            see_writes(m, clocks, row, other, die, known)


@jit
def behind_strong(st, m, clocks, i, row, die, base, site):
    """A reader of a strong write also sees the core's earlier writes to that die, except those without an order."""
    if (
        st[ms.REQUEST_ORDERS] != ms.ASKS_SOME_STRONG
        or ops.RINGS >> m[ml.X_OP] & 1
        or asked_at(st, base, site) != ms.ASKS_STRONG
    ):
        return
    for engine in range(rq.SCALAR, rq.MTU_OUT + 1, rq.MTU_OUT - rq.SCALAR):
        word = strong_word(m, i, engine, die)
        clocks[row + word] = max(clocks[row + word], clocks[row + engine_word(m, i, engine)])


@jit
def pass_fence(m, clocks, i, known, issued):
    """mtu-out comes to a fence: what it knows now happens before its core's writes after it."""
    row = fence_row(m, i)
    copy_row(m, clocks, row, known)
    join_row(m, clocks, row, issued)
    clocks[known + engine_word(m, i, rq.MTU_OUT)] += 1


@jit
def behind_fence(st, m, clocks, i, row, die):
    """But under `sc`, a reader of a core's write to a die sees the core's writes to that die before its last fence."""
    if st[ms.ORDER] < ms.ORDER_RELAXED or not m[ml.FENCES] or ops.RINGS >> m[ml.X_OP] & 1:
        return
    see_writes(m, clocks, row, i, die, fence_row(m, i))


@jit
def released(space, i, address, base, site):
    """The clock that a write to this address releases: all that its instruction knows; in the scratch row."""
    st, m, clocks = space.st, space.m, space.clocks
    row = m[ml.SCRATCH_ROW]
    copy_row(m, clocks, row, m[ml.X_KNOWN])
    if m[ml.X_ISSUED] != m[ml.X_KNOWN]:
        join_row(m, clocks, row, m[ml.X_ISSUED])
    in_order(st, m, clocks, i, row, row, address >> st[ms.DIE_SHIFT])
    behind_fence(st, m, clocks, i, row, address >> st[ms.DIE_SHIFT])
    behind_strong(st, m, clocks, i, row, address >> st[ms.DIE_SHIFT], base, site)
    if m[ml.SIGNALS] and m[ml.X_SIGNAL]:
        for k in range(m[ml.SIGNALS]):
            number = m[m[ml.CHAINED] + i * m[ml.SIGNALS] + k]
            if number:
                word = signal_word(m, i, number)
                clocks[row + word] = max(clocks[row + word], number)
        clocks[row + signal_word(m, i, m[ml.X_SIGNAL])] = m[ml.X_SIGNAL]
    return row


@jit
def publish(m, clocks, number, address, nbytes, row, adds):
    """The value of a synchronization changes: a write replaces what was released there, an addition joins it."""
    for half in range(address >> 2, (address + nbytes - 1 >> 2) + 1):
        to, known = sync_row(m, number, half << 2), released_row(m, number, half << 2) >= 0
        if known and (adds or half << 2 < address or (half << 2) + 4 > address + nbytes):
            join_row(m, clocks, to, row)
        else:
            copy_row(m, clocks, to, row)
            m[m[ml.RELEASED] + number] |= 1 << (half & 7)


@jit
def arrive(m, clocks, i, group, phase, last):
    """A core arrives at its group's barrier; the last one turns the phase."""
    joined = group_row(m, group, 0)
    join_row(m, clocks, joined, pipe_row(m, i, rq.SCALAR))
    clocks[pipe_row(m, i, rq.SCALAR) + engine_word(m, i, rq.SCALAR)] += 1
    if last:
        copy_row(m, clocks, group_row(m, group, 1 + phase), joined)
        clear_row(m, clocks, joined)
