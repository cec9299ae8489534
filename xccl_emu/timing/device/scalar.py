"""The scalar unit in time: each request begins when the one before it was granted, and waits for what it needs."""

from typing import NamedTuple

from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import access, cache, flight, policies
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.pipes import free_descriptor
from xccl_emu.machine.device.polls import flags_in, is_line, polls_whole_word
from xccl_emu.machine.device.scalar import run_on_buffer
from xccl_emu.machine.device.single import act_once
from xccl_emu.machine.device.touched import queued_on
from xccl_emu.machine.device.words import jit
from xccl_emu.timing.device import granules, records
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.device.poll_any import step_poll_any
from xccl_emu.timing.device.transfer import acknowledge, die_at, latency_of, path_to, written_by


@jit
def answer(st, tm, core, asked):
    """The answer to the core's `choose`; a timer begins with the first question, and with each that is `of` another."""
    n, word = cache.answers(st, core.base), tm[tm[core.row + tl.CORE_SITES] + asked.site]
    if word >> tl.TIMER_SHIFT == 0:
        return policies.draw(st, n) if st[ms.DRAWS_ANSWERS] else 0
    timer, now = core.row + tl.TIMERS + 2 * (word >> tl.TIMER_NUMBER & tl.TIMERS_MOST - 1), tm[core.row + tl.SCALAR_AT]
    if tm[timer] == 0 or tm[timer + 1] != asked.words[ops.CHOOSE.of]:
        tm[timer], tm[timer + 1] = 1 + now, asked.words[ops.CHOOSE.of]
    if n == 1 or 1 + now - tm[timer] < word >> tl.TIMER_SHIFT:
        return 0
    tm[timer] = 0
    return 1


@jit
def event_at(row, source, target, event):
    """Index of the time at which an event was set."""
    return row + tl.EVENT_AT + (source * ms.N_PIPES + target) * ms.N_EVENTS + event


@jit
def event_of(row, asked):
    """Index of the time at which the event of a set_flag or wait_flag was set."""
    return event_at(row, asked.words[ops.FLAG.source], asked.words[ops.FLAG.target], asked.words[ops.FLAG.event])


@jit
def ring_at(row, ring, pipe, n):
    """Index of the place of a pipe's n-th instruction in one of its rings."""
    return row + ring + pipe * ms.QUEUE_DEPTH + n % ms.QUEUE_DEPTH


class _Before(NamedTuple):
    """State captured before a request is granted: the core's group and phase, the DMA descriptor that it would take,
    the granule of its address, and whether its site releases something, or looks."""

    group: int
    phase: int
    slot: int
    entry: int
    releases: int


@jit
def step_scalar_timed(space, core):
    """Grant the core's next request: 1 if it was, 0 if it has to wait, or minus the time to come back at."""
    mem, st, tm, who, _ = space
    base, row = core.base, core.row
    if st[base + ms.STATUS] != ms.STATUS_RUNNING:
        return 0
    asked = records.request_at(st, base + REQUEST)
    op, a = asked.op, asked.words[ops.FIRST]  # the address, of what touches memory
    if op == rq.OP_POLL_ANY:
        return step_poll_any(space, core)
    off = tm[tl.SOME_OFF] and flight.switched_off(st, base) and not ops.LOADS >> op & 1
    memory = (ops.WORDS if off else ops.WORDS & ~ops.POLLS) >> op & 1 != 0
    releases = memory and tm[tm[row + tl.CORE_SITES] + asked.site] & tl.RELEASES
    looks = ops.LOADS >> op & 1 != 0 and (releases or access.reads_flags(st, base, a, _nbytes(asked)))
    ahead = tm[row + tl.SCALAR_AT] > tm[tl.NOW] + tm[tl.LIMIT]
    if ahead and memory and (looks or off or die_at(st, a) != st[base + ms.DIE]):
        return -tm[row + tl.SCALAR_AT]
    group = tm[tl.GROUP_BASE] + st[base + ms.GROUP] * tl.GROUP_WORDS
    phase = st[st[ms.GROUP_BASE] + st[base + ms.GROUP] * ms.GROUP_WORDS + ms.GROUP_PHASE]
    slot = free_descriptor(st, base) if ops.RINGS >> op & 1 else 0
    follows = looks or (ops.POLLS | ops.SCALAR_WRITES) >> op & 1
    entry = granules.find_granule(mem, tm, a) if follows and 0 <= a <= mem.size - ms.GRANULE_BYTES else 0
    in_versions = not ops.POLLS >> op & 1 or polls_whole_word(st, base)
    shown = _seen(mem, tm, row, asked, looks, off, entry) if in_versions else entry
    seen = shown if in_versions else _last_written(mem, tm, asked, entry)
    choice = ms.CHOICE_ALL if op != rq.OP_CHOOSE else answer(st, tm, core, asked)
    if not _act(space, core, a, entry, shown, choice):
        if st[ms.ERROR] == 0:
            missing = entry if in_versions else _flag_missing(mem, st, tm, base, entry)
            _wait(tm, op, missing, group, core.number)
        return 0
    if tm[row + tl.WAITS_AT]:
        granules.leave(tm, core.number)
    if off:
        return _passed(space, core, asked)
    since, took = _granted(st, tm, core, asked, group, seen)
    end = tm[since] + took
    read = a if ops.LOOKS >> op & 1 else -1
    written = a if ops.SCALAR_WRITES >> op & 1 else -1
    moved = records.Moved(_nbytes(asked), die_at(st, a), 0, end, read, written)
    number = records.record(space, core, rq.SCALAR, asked, since, end, moved)
    records.set_time(tm, who, row + tl.SCALAR_AT, end, number)
    _then(space, core, asked, _Before(group, phase, slot, entry, releases), number)
    return 1


@jit
def _passed(space, core, asked):
    """Pass a request that is switched off: it takes no time, but a poll, which reads, takes a load's."""
    _, _, tm, who, _ = space
    at = core.row + tl.SCALAR_AT
    end = tm[at] + (tm[tl.C_LOAD] if ops.POLLS >> asked.op & 1 else 0)
    records.set_time(tm, who, at, end, records.record_still(space, core, rq.SCALAR, asked, at, end))
    return 1


@jit
def _seen(mem, tm, row, asked, looks, off, entry):
    """Return which version of a word the request sees: the last one, unless that is still on its way."""
    if (
        entry == 0
        or tm[entry + tl.GRANULE_AT] <= tm[row + tl.SCALAR_AT]
        or not granules.is_last(mem, tm, entry, asked.words[ops.FIRST])
    ):
        return entry
    if ops.POLLS >> asked.op & 1 and not off:
        address, compare, value = (
            asked.words[ops.POLL.address], asked.words[ops.POLL.compare], asked.words[ops.POLL.value]
        )  # fmt: skip
        return granules.first_seen(tm, entry, address, compare, value, tm[row + tl.SCALAR_AT])
    return granules.version_at(tm, entry, tm[row + tl.SCALAR_AT]) if looks or off else entry


@jit
def _last_written(mem, tm, asked, entry):
    """The granule that was written last of a polled line, or of a word whose bits are polled; no versions."""
    address, nbytes, last = asked.words[ops.POLL.address], asked.words[ops.POLL.nbytes], entry
    for first in range(ms.GRANULE_BYTES, nbytes if entry and is_line(nbytes) else 0, ms.GRANULE_BYTES):
        if address + first <= mem.size - ms.GRANULE_BYTES:
            granule = granules.find_granule(mem, tm, address + first)
            last = records.later(tm, last + tl.GRANULE_AT, granule + tl.GRANULE_AT) - tl.GRANULE_AT
    return last


@jit
def _flag_missing(mem, st, tm, base, entry):
    """The granule of a polled line in which a flag is not in."""
    address, nbytes, first = st[base + REQUEST + ops.POLL.address], st[base + REQUEST + ops.POLL.nbytes], 0
    while is_line(nbytes) and first + ms.GRANULE_BYTES < nbytes and flags_in(mem, st, base, first, ms.GRANULE_BYTES):
        first += ms.GRANULE_BYTES
    return granules.find_granule(mem, tm, address + first) if first else entry


@jit
def _act(space, core, address, entry, seen, choice):
    """Have the machine grant the request, on the version of memory that it sees; was it granted?"""
    mem, st, tm, _, _ = space
    if seen != entry:
        granules.show(mem, tm, seen, address)
    granted = act_once(mem, st, core.number * ms.ACTORS_PER_CORE + rq.SCALAR, choice)
    if seen != entry:
        granules.show(mem, tm, entry, address)
    return granted


@jit
def run_on_buffer_timed(space, core, most):
    """Up to this many accesses to the data buffer at once, which nobody else sees; none where each is to be logged."""
    mem, st, tm, who, _ = space
    if who.size and records.logged(tm, st[core.base + ms.DIE]):
        return 0
    taken = run_on_buffer(mem, st, core.number, core.base, most)
    if taken:
        if tm[core.row + tl.WAITS_AT]:
            granules.leave(tm, core.number)
        records.set_time(tm, who, core.row + tl.SCALAR_AT, tm[core.row + tl.SCALAR_AT] + taken * tm[tl.C_ISSUE], 0)
    return taken


@jit
def _nbytes(asked):
    if ops.LINES >> asked.op & 1:
        return rq.LINE_BYTES
    if ops.LOADS >> asked.op & 1:
        return asked.words[ops.LOAD.nbytes]
    return asked.words[ops.STORE.nbytes] if ops.STORES >> asked.op & 1 else 0


@jit
def _wait(tm, op, entry, group, core):
    """Have the core woken by what it waits for on other cores; what it waits for on its own it finds itself."""
    if ops.POLLS >> op & 1:
        granules.wait_at(tm, entry + tl.GRANULE_WAITER, core)
    elif ops.GROUP_WAITS >> op & 1:
        granules.wait_at(tm, group + tl.GROUP_WAITER, core)


@jit
def _queue_of(asked):
    return queued_on(asked.op, asked.words[ops.FLAG.source], asked.words[ops.FLAG.target])


@jit
def _granted(st, tm, core, asked, group, seen):
    """Index of the time at which a request that was granted began, and how long it took."""
    op, row, pipe = asked.op, core.row, _queue_of(asked)
    since, issue = row + tl.SCALAR_AT, tm[tl.C_ISSUE]
    if pipe != rq.SCALAR:
        n = tm[row + tl.QUEUED + pipe]
        return (records.later(tm, since, ring_at(row, tl.POPPED, pipe, n)) if n >= ms.QUEUE_DEPTH else since), issue
    if ops.POLLS >> op & 1:
        begun = records.later(tm, since, seen + tl.GRANULE_AT)
        return begun, tm[tl.C_LOAD] if begun == since else tm[tl.C_POLL]
    if ops.DRAINS >> op & 1:
        return drained_at(tm, row), tm[tl.C_QUIET] if op == rq.OP_QUIET else 0
    if ops.EVENT_WAITS >> op & 1:
        return records.later(tm, since, event_of(row, asked)), issue + tm[tl.C_EVENT]
    if ops.GROUP_WAITS >> op & 1:
        return records.later(tm, since, group + tl.RELEASED_AT + _parity(asked.words[ops.AWAIT.phase])), issue
    if ops.RINGS >> op & 1:
        return since, tm[tl.C_DMA_ISSUE]
    if ops.WORDS >> op & 1:
        since = records.later(tm, since, row + tl.FENCE_AT) if ops.SCALAR_WRITES >> op & 1 else since
        return since, issue + _memory_access(st, tm, st[core.base + ms.DIE], asked)
    return since, issue


@jit
def _parity(phase):
    """A barrier has two phases, which alternate."""
    return phase & 1


@jit
def drained_at(tm, row):
    """Index of the time at which all that a core issued is done and acknowledged."""
    since = records.later(tm, row + tl.SCALAR_AT, row + tl.ALL_ACKED)
    since = records.later(tm, since, row + tl.READS_DONE)
    for pipe in range(rq.MTU_IN, rq.DMA):
        since = records.later(tm, since, row + tl.FREE + pipe)
    return since


@jit
def _memory_access(st, tm, here, asked):
    """Time of a memory access: a load or an atomic on another die waits for the way there and back, no store does."""
    address = asked.words[ops.FIRST]
    there = die_at(st, address)
    if there == here or ops.STORES >> asked.op & 1:
        return tm[tl.C_LOAD]
    return latency_of(tm, path_to(tm, here, there, address), False)


@jit
def _then(space, core, asked, before, number):
    """Leave what a granted request leaves for others."""
    mem, st, tm, who, _ = space
    op, a, row = asked.op, asked.words[ops.FIRST], core.row
    end, pipe = tm[row + tl.SCALAR_AT], _queue_of(asked)
    if pipe != rq.SCALAR:
        records.set_time(tm, who, ring_at(row, tl.ISSUED, pipe, tm[row + tl.QUEUED + pipe]), end, number)
        tm[row + tl.QUEUED + pipe] += 1
    elif ops.EVENT_SETS >> op & 1:
        records.set_time(tm, who, event_of(row, asked), end, number)
    elif ops.ARRIVALS >> op & 1:
        _arrived(st, tm, who, before.group, before.phase, end, number)
    elif ops.RINGS >> op & 1:
        records.set_time(tm, who, row + tl.RUNG + before.slot, end, number)
    elif ops.SCALAR_WRITES >> op & 1:
        path = path_to(tm, st[core.base + ms.DIE], die_at(st, a), a)
        visible = end + latency_of(tm, path, True)
        acknowledge(tm, who, row, path, visible, number)
        records.set_later(tm, who, written_by(tm, die_at(st, a)), visible, number)
        added = asked.words[ops.ATOMIC.value] if ops.ADDS >> op & 1 else 0
        granules.became_visible(mem, tm, who, before.entry, a, visible, before.releases, added, number)
    elif op == rq.OP_RETURN:
        tm[row + tl.FINISHED] = end


@jit
def _arrived(st, tm, who, group, phase, end, number):
    """Somebody arrived at the barrier of a group; the last one releases all."""
    arrived = group + tl.ARRIVED_AT + _parity(phase)
    if end >= tm[arrived]:
        records.set_time(tm, who, arrived, end, number)
    machine = st[ms.GROUP_BASE] + (group - tm[tl.GROUP_BASE]) // tl.GROUP_WORDS * ms.GROUP_WORDS
    if st[machine + ms.GROUP_PHASE] != phase:
        released = group + tl.RELEASED_AT + _parity(phase)
        takes = tm[tl.C_BARRIER] if st[machine + ms.GROUP_SIZE] > 1 else 0  # a core alone has nobody to wait for
        records.set_time(tm, who, released, tm[arrived] + takes, records.cause_of(who, arrived))
        tm[arrived] = 0
        granules.wake(tm, group + tl.GROUP_WAITER, tm[released])
