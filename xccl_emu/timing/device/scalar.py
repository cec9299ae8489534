"""The scalar unit in time: each request begins when the one before it was granted, and waits for what it needs."""

from xccl_emu.lang.abi import REQUEST, REQUEST_WORDS
from xccl_emu.lang.requests import (
    DMA,
    MTU_IN,
    MTU_OUT,
    OP_ARRIVE,
    OP_ATOMIC_ADD,
    OP_AWAIT_GROUP,
    OP_DMA,
    OP_LOAD,
    OP_MTU_IN,
    OP_POLL,
    OP_QUIET,
    OP_RETURN,
    OP_SET_FLAG,
    OP_STORE,
    OP_V_QUANTIZE,
    OP_WAIT_FLAG,
    SCALAR,
    SWAPS,
    VECTOR,
)
from xccl_emu.machine.device.layout import (
    ACTORS_PER_CORE,
    CHOICE_ALL,
    DIE,
    ERROR,
    GRANULE_BYTES,
    GROUP,
    N_EVENTS,
    N_PIPES,
    QUEUE_DEPTH,
    STATUS,
    STATUS_RUNNING,
)
from xccl_emu.machine.device.layout import GROUP_BASE as MACHINE_GROUPS
from xccl_emu.machine.device.layout import GROUP_PHASE as MACHINE_PHASE
from xccl_emu.machine.device.layout import GROUP_SIZE as MACHINE_SIZE
from xccl_emu.machine.device.layout import GROUP_WORDS as MACHINE_GROUP_WORDS
from xccl_emu.machine.device.lines import flags_in, is_line, polls_whole_word
from xccl_emu.machine.device.pipes import free_descriptor
from xccl_emu.machine.device.scalar import run_on_buffer
from xccl_emu.machine.device.single import act_once
from xccl_emu.machine.device.words import jit
from xccl_emu.timing.device.granules import (
    became_visible,
    find_granule,
    first_seen,
    is_last,
    leave,
    show,
    version_at,
    wait_at,
    wake,
)
from xccl_emu.timing.device.layout import (
    ALL_VISIBLE,
    ARRIVED_AT,
    C_BARRIER,
    C_DMA_ISSUE,
    C_EVENT,
    C_ISSUE,
    C_LOAD,
    C_POLL,
    C_QUIET,
    CORE_SITES,
    EVENT_AT,
    FENCE_AT,
    FINISHED,
    FREE,
    GRANULE_AT,
    GRANULE_WAITER,
    GROUP_BASE,
    GROUP_WAITER,
    GROUP_WORDS,
    ISSUED,
    LIMIT,
    NOW,
    POPPED,
    QUEUED,
    READS_DONE,
    RELEASED_AT,
    RUNG,
    SCALAR_AT,
    TOLD,
    WAITS_AT,
)
from xccl_emu.timing.device.records import later, logged, record, set_time
from xccl_emu.timing.device.transfer import die_at, latency_of, path_to


@jit
def event_at(row, source, target, event):
    """Index of the time at which an event was set."""
    return row + EVENT_AT + (source * N_PIPES + target) * N_EVENTS + event


@jit
def ring_at(row, ring, pipe, n):
    """Index of the place of a pipe's n-th instruction in one of its rings."""
    return row + ring + pipe * QUEUE_DEPTH + n % QUEUE_DEPTH


@jit
def step_scalar_timed(mem, st, tm, who, log, core, base, row):
    """Grant the core's next request: 1 if it was, 0 if it has to wait, or minus the time to come back at."""
    if st[base + STATUS] != STATUS_RUNNING:
        return 0
    op, a, b, c = st[base + REQUEST], st[base + REQUEST + 1], st[base + REQUEST + 2], st[base + REQUEST + 3]
    here = st[base + DIE]
    memory = op == OP_LOAD or op == OP_STORE or op == OP_ATOMIC_ADD
    site = st[base + REQUEST + REQUEST_WORDS - 1]
    told = memory and tm[tm[row + CORE_SITES] + site] & TOLD
    looks = told and op == OP_LOAD
    if memory and (looks or die_at(st, a) != here) and tm[row + SCALAR_AT] > tm[NOW] + tm[LIMIT]:
        return -tm[row + SCALAR_AT]
    group = tm[GROUP_BASE] + st[base + GROUP] * GROUP_WORDS
    phase = st[st[MACHINE_GROUPS] + st[base + GROUP] * MACHINE_GROUP_WORDS + MACHINE_PHASE]
    slot = free_descriptor(st, base) if op == OP_DMA else 0
    follows = looks or op == OP_POLL or op == OP_STORE or op == OP_ATOMIC_ADD
    entry = find_granule(mem, tm, a) if follows and 0 <= a <= mem.size - GRANULE_BYTES else 0
    in_versions = op != OP_POLL or polls_whole_word(st, base)
    shown = _seen(mem, tm, row, op, a, b, c, looks, entry) if in_versions else entry
    seen = shown if in_versions else _last_written(mem, st, tm, base, entry)
    if not _act(mem, st, tm, core, a, entry, shown):
        if st[ERROR] == 0:
            _wait(tm, op, entry if in_versions else _flag_missing(mem, st, tm, base, entry), group, core)
        return 0
    if tm[row + WAITS_AT]:
        leave(tm, core)
    since, took = _granted(st, tm, row, op, a, b, c, here, group, seen)
    end = tm[since] + took
    read = a if op == OP_LOAD or op == OP_POLL else -1
    written = a if op == OP_STORE or op == OP_ATOMIC_ADD else -1
    moved, peer = _nbytes(op, b, c), die_at(st, a)
    number = record(tm, who, log, core, SCALAR, op, site, since, end, moved, peer, 0, end, read, written)
    set_time(tm, who, row + SCALAR_AT, end, number)
    _then(mem, st, tm, who, row, op, a, b, c, here, group, phase, slot, entry, told, number)
    return 1


@jit
def _seen(mem, tm, row, op, address, compare, wanted, looks, entry):
    """Which version of a word the request sees: the last one, unless that is still on its way."""
    if entry == 0 or tm[entry + GRANULE_AT] <= tm[row + SCALAR_AT] or not is_last(mem, tm, entry, address):
        return entry
    if op == OP_POLL:
        return first_seen(tm, entry, address, compare, wanted, tm[row + SCALAR_AT])
    return version_at(tm, entry, tm[row + SCALAR_AT]) if looks else entry


@jit
def _last_written(mem, st, tm, base, entry):
    """The granule that was written last of a polled line, or of a word of which some bits are polled; no versions."""
    address, nbytes, last = st[base + REQUEST + 1], st[base + REQUEST + 4], entry
    for first in range(GRANULE_BYTES, nbytes if entry and is_line(nbytes) else 0, GRANULE_BYTES):
        if address + first <= mem.size - GRANULE_BYTES:
            granule = find_granule(mem, tm, address + first)
            last = later(tm, last + GRANULE_AT, granule + GRANULE_AT) - GRANULE_AT
    return last


@jit
def _flag_missing(mem, st, tm, base, entry):
    """The granule of a polled line in which a flag is not in."""
    address, nbytes, first = st[base + REQUEST + 1], st[base + REQUEST + 4], 0
    while is_line(nbytes) and first + GRANULE_BYTES < nbytes and flags_in(mem, st, base, first, GRANULE_BYTES):
        first += GRANULE_BYTES
    return find_granule(mem, tm, address + first) if first else entry


@jit
def _act(mem, st, tm, core, address, entry, seen):
    """Have the machine grant the request, on the version of memory that it sees; was it granted?"""
    if seen != entry:
        show(mem, tm, seen, address)
    granted = act_once(mem, st, core * ACTORS_PER_CORE + SCALAR, CHOICE_ALL)
    if seen != entry:
        show(mem, tm, entry, address)
    return granted


@jit
def run_on_buffer_timed(mem, st, tm, who, log, core, base, row, most):
    """Up to so many accesses to the data buffer at once, which nobody else sees; none where each is to be logged."""
    if who.size and logged(tm, st[base + DIE]):
        return 0
    taken = run_on_buffer(mem, st, core, base, most)
    if taken:
        if tm[row + WAITS_AT]:
            leave(tm, core)
        set_time(tm, who, row + SCALAR_AT, tm[row + SCALAR_AT] + taken * tm[C_ISSUE], 0)
    return taken


@jit
def _nbytes(op, b, c):
    return b if op == OP_LOAD else c if op == OP_STORE else 0


@jit
def _wait(tm, op, entry, group, core):
    """Have the core woken by what it waits for on other cores; what it waits for on its own it finds itself."""
    if op == OP_POLL:
        wait_at(tm, entry + GRANULE_WAITER, core)
    elif op == OP_AWAIT_GROUP:
        wait_at(tm, group + GROUP_WAITER, core)


@jit
def pipe_of_request(op, a, b):
    """The pipe that a request is queued on; SCALAR for none."""
    if op >= OP_V_QUANTIZE:
        return VECTOR
    if op >= OP_MTU_IN:
        return MTU_IN if op == OP_MTU_IN else MTU_OUT
    if op == OP_SET_FLAG:
        return a
    return b if op == OP_WAIT_FLAG else SCALAR


@jit
def _granted(st, tm, row, op, a, b, c, here, group, seen):
    """Index of the time at which a request that was granted began, and how long it took."""
    since, issue = row + SCALAR_AT, tm[C_ISSUE]
    pipe = pipe_of_request(op, a, b)
    if pipe != SCALAR:
        n = tm[row + QUEUED + pipe]
        return (later(tm, since, ring_at(row, POPPED, pipe, n)) if n >= QUEUE_DEPTH else since), issue
    if op == OP_POLL:
        begun = later(tm, since, seen + GRANULE_AT)
        return begun, tm[C_LOAD] if begun == since else tm[C_POLL]
    if op == OP_QUIET or op == OP_RETURN:
        return drained_at(tm, row), tm[C_QUIET] if op == OP_QUIET else 0
    if op == OP_WAIT_FLAG:
        return later(tm, since, event_at(row, a, SCALAR, c)), issue + tm[C_EVENT]
    if op == OP_AWAIT_GROUP:
        return later(tm, since, group + RELEASED_AT + b_phase(a)), issue
    if op == OP_DMA:
        return since, tm[C_DMA_ISSUE]
    if op == OP_LOAD or op == OP_STORE or op == OP_ATOMIC_ADD:
        since = later(tm, since, row + FENCE_AT) if op != OP_LOAD else since
        return since, issue + _memory_access(st, tm, op, a, here)
    return since, issue


@jit
def b_phase(phase):
    """A barrier has two phases, which alternate."""
    return phase & 1


@jit
def drained_at(tm, row):
    """Index of the time at which all that a core issued is done and visible."""
    since = later(tm, row + SCALAR_AT, row + ALL_VISIBLE)
    since = later(tm, since, row + READS_DONE)
    for pipe in range(MTU_IN, DMA):
        since = later(tm, since, row + FREE + pipe)
    return since


@jit
def _memory_access(st, tm, op, a, here):
    """Of a load or an atomic that goes to another die the unit waits for the way there and back; not of a store."""
    there = die_at(st, a)
    if there == here:
        return tm[C_LOAD]
    return tm[C_LOAD] if op == OP_STORE else latency_of(tm, path_to(tm, here, there, a), False)


@jit
def _then(mem, st, tm, who, row, op, a, b, c, here, group, phase, slot, entry, told, number):
    """What a granted request leaves behind for others."""
    end = tm[row + SCALAR_AT]
    pipe = pipe_of_request(op, a, b)
    if pipe != SCALAR:
        set_time(tm, who, ring_at(row, ISSUED, pipe, tm[row + QUEUED + pipe]), end, number)
        tm[row + QUEUED + pipe] += 1
    elif op == OP_SET_FLAG:
        set_time(tm, who, event_at(row, SCALAR, b, c), end, number)
    elif op == OP_ARRIVE:
        _arrived(st, tm, who, group, phase, end, number)
    elif op == OP_DMA:
        set_time(tm, who, row + RUNG + slot, end, number)
    elif op == OP_STORE or op == OP_ATOMIC_ADD:
        visible = end + latency_of(tm, path_to(tm, here, die_at(st, a), a), True)
        if visible > tm[row + ALL_VISIBLE]:
            set_time(tm, who, row + ALL_VISIBLE, visible, number)
        added = b if op == OP_ATOMIC_ADD and c != SWAPS else 0
        became_visible(mem, tm, who, entry, a, visible, told, added, number)
    elif op == OP_RETURN:
        tm[row + FINISHED] = end


@jit
def _arrived(st, tm, who, group, phase, end, number):
    """Somebody arrived at the barrier of a group; the last one releases all."""
    arrived = group + ARRIVED_AT + b_phase(phase)
    if end >= tm[arrived]:
        set_time(tm, who, arrived, end, number)
    machine = st[MACHINE_GROUPS] + (group - tm[GROUP_BASE]) // GROUP_WORDS * MACHINE_GROUP_WORDS
    if st[machine + MACHINE_PHASE] != phase:
        released = group + RELEASED_AT + b_phase(phase)
        takes = tm[C_BARRIER] if st[machine + MACHINE_SIZE] > 1 else 0  # a core alone has nobody to wait for
        set_time(tm, who, released, tm[arrived] + takes, who[arrived] if who.size else 0)
        tm[arrived] = 0
        wake(tm, group + GROUP_WAITER, tm[released])
