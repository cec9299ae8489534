"""`poll_any` in time: it goes on as soon as a condition holds, and sees all words as they are visible then."""

from xccl_emu.lang.abi import REQUEST
from xccl_emu.lang.requests import CONDITIONS_MOST, SCALAR
from xccl_emu.machine.device import flight, polls, single
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.words import jit, load_i64
from xccl_emu.timing.device import granules, records
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.device import transfer as paths


@jit
def step_poll_any(space, core):
    """Grant the core's `poll_any`: 1 if it was, 0 if it has to wait."""
    mem, st, tm, who, _ = space
    row, since, read, asked = core.row, core.row + tl.SCALAR_AT, -1, records.request_at(st, core.base + REQUEST)
    known = polls.can_be_polled(st, core.base, mem.size - ms.GRANULE_BYTES + 8)
    for k in range(polls.n_conditions(st, core.base) if known and not flight.switched_off(st, core.base) else 0):
        begun = _goes_on(mem, st, tm, core, polls.condition_at(core.base, k))
        if begun and (read < 0 or tm[begun] < tm[since]):
            since, read = begun, st[polls.condition_at(core.base, k)]
    if known:
        _show(mem, st, tm, core, tm[since])
    granted = single.act_once(mem, st, core.number * ms.ACTORS_PER_CORE + SCALAR, ms.CHOICE_ALL)
    if known:
        _show_last(mem, tm, core)
    if not granted:
        granules.wait_at(tm, tl.ANY_WAITER, core.number)
        return 0
    if tm[row + tl.WAITS_AT]:
        granules.leave(tm, core.number)
    end = tm[since] + (tm[tl.C_LOAD] if since == row + tl.SCALAR_AT else tm[tl.C_POLL])
    moved = records.Moved(0, paths.die_at(st, read), 0, end, read, -1)
    number = records.record(space, core, SCALAR, asked, since, end, moved)
    records.set_time(tm, who, row + tl.SCALAR_AT, end, number)
    return 1


@jit
def _goes_on(mem, st, tm, core, condition):
    """Index of the time at which a condition of the core's first holds, not before now; 0 if it does not yet."""
    address, compare, wanted, now = st[condition], st[condition + 1], st[condition + 2], core.row + tl.SCALAR_AT
    seen = granules.find_granule(mem, tm, address)
    value = load_i64(mem, address)
    if granules.is_last(mem, tm, seen, address):
        seen = granules.first_seen(tm, seen, address, compare, wanted, tm[now])
        value = granules.word_at(tm, seen, address)
    return records.later(tm, now, seen + tl.GRANULE_AT) if polls.is_awaited(value, compare, wanted) else 0


@jit
def _show(mem, st, tm, core, time):
    """Have memory hold the polled words as they are visible at a time, and note which are shown so."""
    for k in range(CONDITIONS_MOST):
        tm[core.row + tl.SHOWN + k] = -1
    for k in range(polls.n_conditions(st, core.base)):
        address = st[polls.condition_at(core.base, k)]
        entry = granules.find_granule(mem, tm, address)
        if granules.is_last(mem, tm, entry, address):
            granules.show(mem, tm, granules.version_at(tm, entry, time), address)
            tm[core.row + tl.SHOWN + k] = address


@jit
def _show_last(mem, tm, core):
    """Have memory hold the last versions again; the kernel has gone on."""
    for k in range(CONDITIONS_MOST):
        address = tm[core.row + tl.SHOWN + k]
        if address >= 0:
            granules.show(mem, tm, granules.find_granule(mem, tm, address), address)
