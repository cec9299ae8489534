"""The scalar unit in time: each request begins when the one before it was granted, and waits for what it needs."""

from typing import NamedTuple

from xccl_emu.lang.abi import REQUEST
from xccl_emu.lang.requests import (
    DMA,
    MTU_IN,
    MTU_OUT,
    OP_ARRIVE,
    OP_ATOMIC_ADD,
    OP_AWAIT_GROUP,
    OP_CHOOSE,
    OP_DMA,
    OP_LOAD,
    OP_MTU_IN,
    OP_POLL,
    OP_POLL_ANY,
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
from xccl_emu.timing.device.answers import answer
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
from xccl_emu.timing.device.poll_any import step_poll_any
from xccl_emu.timing.device.records import Moved, cause_of, later, logged, record, request_at, set_later, set_time
from xccl_emu.timing.device.transfer import die_at, latency_of, path_to


@jit
def event_at(row, source, target, event):
    """Index of the time at which an event was set."""
    return row + EVENT_AT + (source * N_PIPES + target) * N_EVENTS + event


@jit
def ring_at(row, ring, pipe, n):
    """Index of the place of a pipe's n-th instruction in one of its rings."""
    return row + ring + pipe * QUEUE_DEPTH + n % QUEUE_DEPTH


class _Before(NamedTuple):
    """What was so before a request was granted: the core's group and its phase, the DMA descriptor that it would take,
    the granule of its address, and whether its site tells others something, or looks."""

    group: int
    phase: int
    slot: int
    entry: int
    told: int


@jit
def step_scalar_timed(space, core):
    """Grant the core's next request: 1 if it was, 0 if it has to wait, or minus the time to come back at."""
    mem, st, tm, who, _ = space
    base, row = core.base, core.row
    if st[base + STATUS] != STATUS_RUNNING:
        return 0
    asked = request_at(st, base + REQUEST)
    op, a = asked.op, asked.a
    if op == OP_POLL_ANY:
        return step_poll_any(space, core)
    memory = op == OP_LOAD or op == OP_STORE or op == OP_ATOMIC_ADD
    told = memory and tm[tm[row + CORE_SITES] + asked.site] & TOLD
    looks = told and op == OP_LOAD
    if memory and (looks or die_at(st, a) != st[base + DIE]) and tm[row + SCALAR_AT] > tm[NOW] + tm[LIMIT]:
        return -tm[row + SCALAR_AT]
    group = tm[GROUP_BASE] + st[base + GROUP] * GROUP_WORDS
    phase = st[st[MACHINE_GROUPS] + st[base + GROUP] * MACHINE_GROUP_WORDS + MACHINE_PHASE]
    slot = free_descriptor(st, base) if op == OP_DMA else 0
    follows = looks or op == OP_POLL or op == OP_STORE or op == OP_ATOMIC_ADD
    entry = find_granule(mem, tm, a) if follows and 0 <= a <= mem.size - GRANULE_BYTES else 0
    in_versions = op != OP_POLL or polls_whole_word(st, base)
    shown = _seen(mem, tm, row, asked, looks, entry) if in_versions else entry
    seen = shown if in_versions else _last_written(mem, tm, asked, entry)
    choice = CHOICE_ALL if op != OP_CHOOSE else answer(st, tm, core, asked)
    if not _act(space, core, a, entry, shown, choice):
        if st[ERROR] == 0:
            missing = entry if in_versions else _flag_missing(mem, st, tm, base, entry)
            _wait(tm, op, missing, group, core.number)
        return 0
    if tm[row + WAITS_AT]:
        leave(tm, core.number)
    since, took = _granted(st, tm, core, asked, group, seen)
    end = tm[since] + took
    read = a if op == OP_LOAD or op == OP_POLL else -1
    written = a if op == OP_STORE or op == OP_ATOMIC_ADD else -1
    moved = Moved(_nbytes(asked), die_at(st, a), 0, end, read, written)
    number = record(space, core, SCALAR, asked, since, end, moved)
    set_time(tm, who, row + SCALAR_AT, end, number)
    _then(space, core, asked, _Before(group, phase, slot, entry, told), number)
    return 1


@jit
def _seen(mem, tm, row, asked, looks, entry):
    """Which version of a word the request sees: the last one, unless that is still on its way."""
    if entry == 0 or tm[entry + GRANULE_AT] <= tm[row + SCALAR_AT] or not is_last(mem, tm, entry, asked.a):
        return entry
    if asked.op == OP_POLL:
        return first_seen(tm, entry, asked.a, asked.b, asked.c, tm[row + SCALAR_AT])
    return version_at(tm, entry, tm[row + SCALAR_AT]) if looks else entry


@jit
def _last_written(mem, tm, asked, entry):
    """The granule that was written last of a polled line, or of a word of which some bits are polled; no versions."""
    address, nbytes, last = asked.a, asked.d, entry
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
def _act(space, core, address, entry, seen, choice):
    """Have the machine grant the request, on the version of memory that it sees; was it granted?"""
    mem, st, tm, _, _ = space
    if seen != entry:
        show(mem, tm, seen, address)
    granted = act_once(mem, st, core.number * ACTORS_PER_CORE + SCALAR, choice)
    if seen != entry:
        show(mem, tm, entry, address)
    return granted


@jit
def run_on_buffer_timed(space, core, most):
    """Up to so many accesses to the data buffer at once, which nobody else sees; none where each is to be logged."""
    mem, st, tm, who, _ = space
    if who.size and logged(tm, st[core.base + DIE]):
        return 0
    taken = run_on_buffer(mem, st, core.number, core.base, most)
    if taken:
        if tm[core.row + WAITS_AT]:
            leave(tm, core.number)
        set_time(tm, who, core.row + SCALAR_AT, tm[core.row + SCALAR_AT] + taken * tm[C_ISSUE], 0)
    return taken


@jit
def _nbytes(asked):
    return asked.b if asked.op == OP_LOAD else asked.c if asked.op == OP_STORE else 0


@jit
def _wait(tm, op, entry, group, core):
    """Have the core woken by what it waits for on other cores; what it waits for on its own it finds itself."""
    if op == OP_POLL:
        wait_at(tm, entry + GRANULE_WAITER, core)
    elif op == OP_AWAIT_GROUP:
        wait_at(tm, group + GROUP_WAITER, core)


@jit
def _pipe_of(asked):
    """The pipe that a request is queued on; SCALAR for none."""
    op = asked.op
    if op >= OP_V_QUANTIZE:
        return VECTOR
    if op >= OP_MTU_IN:
        return MTU_IN if op == OP_MTU_IN else MTU_OUT
    if op == OP_SET_FLAG:
        return asked.a
    return asked.b if op == OP_WAIT_FLAG else SCALAR


@jit
def _granted(st, tm, core, asked, group, seen):
    """Index of the time at which a request that was granted began, and how long it took."""
    op, row, pipe = asked.op, core.row, _pipe_of(asked)
    since, issue = row + SCALAR_AT, tm[C_ISSUE]
    if pipe != SCALAR:
        n = tm[row + QUEUED + pipe]
        return (later(tm, since, ring_at(row, POPPED, pipe, n)) if n >= QUEUE_DEPTH else since), issue
    if op == OP_POLL:
        begun = later(tm, since, seen + GRANULE_AT)
        return begun, tm[C_LOAD] if begun == since else tm[C_POLL]
    if op == OP_QUIET or op == OP_RETURN:
        return drained_at(tm, row), tm[C_QUIET] if op == OP_QUIET else 0
    if op == OP_WAIT_FLAG:
        return later(tm, since, event_at(row, asked.a, SCALAR, asked.c)), issue + tm[C_EVENT]
    if op == OP_AWAIT_GROUP:
        return later(tm, since, group + RELEASED_AT + _parity(asked.a)), issue
    if op == OP_DMA:
        return since, tm[C_DMA_ISSUE]
    if op == OP_LOAD or op == OP_STORE or op == OP_ATOMIC_ADD:
        since = later(tm, since, row + FENCE_AT) if op != OP_LOAD else since
        return since, issue + _memory_access(st, tm, st[core.base + DIE], asked)
    return since, issue


@jit
def _parity(phase):
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
def _memory_access(st, tm, here, asked):
    """Time of a memory access: a load or an atomic on another die waits for the way there and back, no store does."""
    there = die_at(st, asked.a)
    if there == here or asked.op == OP_STORE:
        return tm[C_LOAD]
    return latency_of(tm, path_to(tm, here, there, asked.a), False)


@jit
def _then(space, core, asked, before, number):
    """What a granted request leaves behind for others."""
    mem, st, tm, who, _ = space
    op, a, row = asked.op, asked.a, core.row
    end, pipe = tm[row + SCALAR_AT], _pipe_of(asked)
    if pipe != SCALAR:
        set_time(tm, who, ring_at(row, ISSUED, pipe, tm[row + QUEUED + pipe]), end, number)
        tm[row + QUEUED + pipe] += 1
    elif op == OP_SET_FLAG:
        set_time(tm, who, event_at(row, SCALAR, asked.b, asked.c), end, number)
    elif op == OP_ARRIVE:
        _arrived(st, tm, who, before.group, before.phase, end, number)
    elif op == OP_DMA:
        set_time(tm, who, row + RUNG + before.slot, end, number)
    elif op == OP_STORE or op == OP_ATOMIC_ADD:
        visible = end + latency_of(tm, path_to(tm, st[core.base + DIE], die_at(st, a), a), True)
        set_later(tm, who, row + ALL_VISIBLE, visible, number)
        added = asked.b if op == OP_ATOMIC_ADD and asked.c != SWAPS else 0
        became_visible(mem, tm, who, before.entry, a, visible, before.told, added, number)
    elif op == OP_RETURN:
        tm[row + FINISHED] = end


@jit
def _arrived(st, tm, who, group, phase, end, number):
    """Somebody arrived at the barrier of a group; the last one releases all."""
    arrived = group + ARRIVED_AT + _parity(phase)
    if end >= tm[arrived]:
        set_time(tm, who, arrived, end, number)
    machine = st[MACHINE_GROUPS] + (group - tm[GROUP_BASE]) // GROUP_WORDS * MACHINE_GROUP_WORDS
    if st[machine + MACHINE_PHASE] != phase:
        released = group + RELEASED_AT + _parity(phase)
        takes = tm[C_BARRIER] if st[machine + MACHINE_SIZE] > 1 else 0  # a core alone has nobody to wait for
        set_time(tm, who, released, tm[arrived] + takes, cause_of(who, arrived))
        tm[arrived] = 0
        wake(tm, group + GROUP_WAITER, tm[released])
