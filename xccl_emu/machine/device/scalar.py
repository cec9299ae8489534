"""The scalar unit of a core: grants the kernel's next request, if it can be granted, and lets the kernel go on.

PYTEST_DONT_REWRITE: asserts that pytest has rewritten do not compile, see `xccl_emu.testing.plugin`.
"""

from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST, RESULT
from xccl_emu.machine.device import access, cache, flight, pipes, polls, tentative, touched, words
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.memory import mark
from xccl_emu.machine.device.polls import polls_line, read_line
from xccl_emu.machine.device.words import jit


@jit
def step_scalar(mem, st, core, base, choice):
    """Grant the core's request and run its kernel to the next one; False, and nothing changed, if it has to wait."""
    if st[base + ms.STATUS] != ms.STATUS_RUNNING:
        return False
    if choice > 0 and choice != ms.CHOICE_ALL and choice >= cache.request_choices(st, base):
        return (
            choice >= ms.CHOICE_EVICT
            and st[ms.CACHE_LINES] != 0
            and cache.evict(mem, st, core, base, choice - ms.CHOICE_EVICT)
        )
    op = st[base + REQUEST]
    if op == rq.OP_RETURN and st[ms.CACHE_LINES]:
        changed = cache.first_changed(st, core)
        if changed >= 0:
            return cache.evict(mem, st, core, base, changed)
    # What is switched off still reads, it only waits for nothing and orders nothing.
    if ops.LOOKS >> op & 1 or not flight.switched_off(st, base):
        if not _grant(mem, st, core, base, op, choice):
            return False
        if op == rq.OP_POLL and st[base + ms.POLLED]:
            return True  # of a line not all is read yet
        _note_traffic(st, base, op)
    st[ms.COUNT_BY_OP + op] += 1
    if op == rq.OP_RETURN:
        words.put(st, base + RESULT, st[base + REQUEST + ops.RETURN.value])
        words.put(st, base + ms.STATUS, ms.STATUS_DONE)
        st[ms.N_LIVE] -= 1
        if st[ms.CACHE_LINES]:
            cache.forget_lines(st, core)
        return True
    flight.go_on(st, base)
    return True


@jit
def _grant(mem, st, core, base, op, choice):
    """Carry out one request; False if it cannot be granted now, or if it is bad (then the error is recorded)."""
    if ops.VECTORS >> op & 1:
        return access.check_vector(st, core, base, op) and _enqueue(st, core, base, op, rq.VECTOR)
    if not access.check(st, core, base, op):
        return False
    if ops.TRANSFERS >> op & 1:
        return _enqueue(st, core, base, op, ops.PIPES[op])
    if ops.WORDS >> op & 1:
        return _grant_memory(mem, st, core, base, op, choice)
    if ops.DRAINS >> op & 1:
        return drained(st, base) and (op != rq.OP_RETURN or _no_event_left(st, core, base))
    if ops.BUFFER_WORDS >> op & 1:
        return _grant_buffer(mem, st, core, base, op)
    if ops.FLAGS >> op & 1:
        return _grant_flag(st, core, base, op)
    if ops.RINGS >> op & 1:
        return pipes.ring_dma(st, base)
    if op == rq.OP_DCCI:
        return st[ms.CACHE_LINES] == 0 or cache.clean(mem, st, core, base, st[base + REQUEST + ops.DCCI.address])
    if ops.BARRIERS >> op & 1:
        return _grant_group(st, base, op)
    return _grant_rarely(mem, st, core, base, op, choice)


@jit
def _enqueue(st, core, base, op, pipe):
    """Queue an instruction, unless it uses what was read tentatively."""
    if st[base + ms.HELD_END] and not tentative.may_issue(st, core, base, op):
        return False
    if not pipes.enqueue(st, base, pipe):
        return False
    if (st[base + ms.HELD_END] and pipe != rq.MTU_OUT) or (
        ops.COPIES_IN >> op & 1 and st[base + REQUEST + ops.MTU_IN.tentative]
    ):
        tentative.note_issue(st, base, op)
    return True


@words.call
def _grant_rarely(mem, st, core, base, op, choice):
    """A failure, an answer of the environment, or a condition that holds."""
    if op == rq.OP_FAIL:
        kind = ms.ERR_ARITHMETIC if flight.request_site(st, base) == ms.AT_PLACE else ms.ERR_FAIL
        code, info = st[base + REQUEST + ops.FAIL.code], st[base + REQUEST + ops.FAIL.info]
        return access.set_error(st, core, base, kind, code, info)
    if not access.check_choice(st, core, base, op):
        return False
    if op == rq.OP_CHOOSE:
        if choice == ms.CHOICE_ALL and st[ms.DRAWS_ANSWERS]:
            return False  # the policy that draws answers says which
        words.put(st, base + RESULT, 0 if choice == ms.CHOICE_ALL else choice)
        return True
    assert op == rq.OP_POLL_ANY
    which = 0 if flight.switched_off(st, base) else which_holds(mem, st, core, base, choice)
    if which < 0:
        return False
    words.put(st, base + RESULT, which)
    polls.forget(st, base)
    return True


@jit
def _grant_memory(mem, st, core, base, op, choice):
    """Load, store, atomic add or compare-and-swap, poll."""
    if ops.POLLS >> op & 1:
        return _grant_poll(mem, st, core, base, choice)
    if st[ms.CACHE_LINES] and not ops.ATOMICS >> op & 1:
        return _grant_cached(mem, st, core, base, op, choice)
    if ops.LOADS >> op & 1:
        address, nbytes = touched.read_by(st, base + REQUEST, op)
        words.put(st, base + RESULT, flight.read_word(mem, st, core, base, address, min(nbytes, 8)))
        if op == rq.OP_LOAD_LINE:
            high = flight.read_word(mem, st, core, base, address + 8, 8)
            words.put(st, base + REQUEST + ops.LOAD_LINE.high, high)
        st[ms.BYTES_BY_PIPE + rq.SCALAR] += nbytes
        return True
    if pipes.fence_ahead(st, base):
        return False
    address, nbytes = touched.written_by(st, base + REQUEST, op)
    if ops.STORES >> op & 1:
        if not flight.room_for_writes(st, base, max(1, nbytes >> st[ms.ATOMIC_SHIFT])):
            return False
        at, site = base + REQUEST + ops.STORE.value, flight.request_site(st, base)
        if op == rq.OP_STORE_LINE:
            flight.write_unit(mem, st, core, base, ms.KIND_SCALAR, address, at << 3, nbytes, site)
        else:
            value = flight.sign_extended(st[at], nbytes)
            flight.write_word(mem, st, core, base, ms.KIND_SCALAR, address, nbytes, value, site)
    elif not _grant_atomic(mem, st, core, base, op, address):
        return False
    st[ms.BYTES_BY_PIPE + rq.SCALAR] += nbytes
    return True


@jit
def _grant_poll(mem, st, core, base, choice):
    if polls_line(st, base):
        return read_line(mem, st, base, choice, flight.switched_off(st, base))
    address, nbytes = touched.read_by(st, base + REQUEST, st[base + REQUEST])
    value = flight.read_word(mem, st, core, base, address, nbytes)
    compare, wanted, mask = polls.awaited_by(st, base)
    if polls.is_awaited(value & mask, compare, wanted & mask) or flight.switched_off(st, base):
        words.put(st, base + RESULT, value)
        return True
    return False


@jit
def _grant_atomic(mem, st, core, base, op, address):
    if flight.own_write_pending(st, core, base, address):
        return False
    old, value = words.load_i64(mem, address), st[base + REQUEST + ops.ATOMIC.value]
    words.put(st, base + RESULT, old)
    mark(mem, st, address, 8)
    tentative.meet(st, address, 8)
    if op == rq.OP_ATOMIC_ADD:
        words.store_i64(mem, address, old + value)
    elif old == st[base + REQUEST + ops.COMPARE_SWAP.expected]:
        words.store_i64(mem, address, value)
    flight.note_writer(st, address, core, flight.request_site(st, base))
    return True


@jit
def _grant_cached(mem, st, core, base, op, choice):
    if ops.LOADS >> op & 1:
        address, nbytes = touched.read_by(st, base + REQUEST, op)
        done = cache.load_cached(mem, st, core, base, choice, address, nbytes)
    else:
        address, nbytes = touched.written_by(st, base + REQUEST, op)
        value = flight.sign_extended(st[base + REQUEST + ops.STORE.value], nbytes)
        done = cache.store_cached(mem, st, core, base, choice, address, value, nbytes)
    st[ms.BYTES_BY_PIPE + rq.SCALAR] += nbytes if done else 0
    return done


@jit
def which_holds(mem, st, core, base, choice):
    """Number of the condition of a core's `poll_any` that is chosen, with `CHOICE_ALL` of the first that holds.

    It is -1 if that does not hold. Its words must have been checked.
    """
    one = choice != ms.CHOICE_ALL
    for k in range(choice if one else 0, choice + 1 if one else polls.n_conditions(st, base)):
        at = polls.condition_at(base, k)
        if polls.is_awaited(flight.read_word(mem, st, core, base, st[at], 8), st[at + 1], st[at + 2]):
            return k
    return -1


@jit
def _no_event_left(st, core, base):
    """Was every event that was set consumed?  One that is left is a violation: its wait is missing."""
    for flags in range(ms.N_PIPES * ms.N_PIPES):
        if st[base + ms.EVENTS + flags]:
            event = 0
            while not st[base + ms.EVENTS + flags] >> event & 1:
                event += 1
            source, target = flags // ms.N_PIPES, flags % ms.N_PIPES
            return access.set_error_at(st, core, base, ms.ERR_LEFT_SET, source * 8 + target, event, ms.AT_END)
    return True


@jit
def _grant_buffer(mem, st, core, base, op):
    """Scalar access to the data buffer: immediate, in program order with what the scalar unit issues."""
    if ops.FILLS >> op & 1:
        start, nbytes = touched.filled_by(st, base + REQUEST, op)
        mark(mem, st, st[base + ms.UB_BASE] + start, nbytes)
        flight.store_word(mem, st[base + ms.UB_BASE] + start, nbytes, st[base + REQUEST + ops.UB_STORE.value])
        return True
    start, nbytes = touched.taken_by(st, base + REQUEST, op)
    if op == rq.OP_VALIDATE:
        words.put(st, base + RESULT, 0)
        return tentative.validate(st, core, base, start, nbytes)
    if st[base + ms.HELD_END] and not tentative.may_use(st, core, base, start, nbytes):
        return False
    at = st[base + ms.UB_BASE] + start
    word = words.load_i64(mem, at & ~7) >> 8 * (at & 7)
    words.put(st, base + RESULT, flight.sign_extended(word, nbytes))
    return True


@jit
def run_on_buffer(mem, st, core, base, most):
    """Take up to ``most`` steps of a scalar unit as long as each is an access to its data buffer; count them.

    They are steps of `step_scalar`, one after the other; nobody else sees anything of them.
    """
    taken = 0
    while taken < most:
        op = st[base + REQUEST]
        if (
            not ops.BUFFER_WORDS >> op & 1
            or st[base + ms.STATUS] != ms.STATUS_RUNNING
            or flight.switched_off(st, base)
        ):
            break
        if st[ms.ERROR] or not access.check(st, core, base, op) or not _grant_buffer(mem, st, core, base, op):
            break
        st[ms.COUNT_BY_OP + op] += 1
        st[ms.ACTIONS] += 1
        flight.go_on(st, base)
        taken += 1
    return taken


@jit
def _grant_flag(st, core, base, op):
    """set_flag waits its turn on the source pipe, wait_flag on the target; the scalar unit is a pipe of its own."""
    source, target, event = touched.flag_of(st, base + REQUEST)
    pipe = touched.queued_on(op, source, target)
    if pipe != rq.SCALAR:
        return pipes.enqueue(st, base, pipe)
    if ops.EVENT_SETS >> op & 1:
        flight.set_event(st, core, base, source, target, event, flight.request_site(st, base))
        return st[ms.ERROR] == 0
    return pipes.take_event(st, base, source, target, event)


@jit
def _grant_group(st, base, op):
    """Grant a core group's barrier: the last to arrive turns the phase, and cores that wait in the old one go on."""
    group = st[ms.GROUP_BASE] + st[base + ms.GROUP] * ms.GROUP_WORDS
    if ops.GROUP_WAITS >> op & 1:
        return st[group + ms.GROUP_PHASE] != st[base + REQUEST + ops.AWAIT.phase]
    words.put(st, base + RESULT, st[group + ms.GROUP_PHASE])
    if st[group + ms.GROUP_ARRIVED] + 1 == st[group + ms.GROUP_SIZE]:
        words.put(st, group + ms.GROUP_ARRIVED, 0)
        words.put(st, group + ms.GROUP_PHASE, 1 - st[group + ms.GROUP_PHASE])
    else:
        words.put(st, group + ms.GROUP_ARRIVED, st[group + ms.GROUP_ARRIVED] + 1)
    return True


@jit
def drained(st, base):
    """Return whether everything that this core issued is done and visible."""
    if st[base + ms.IN_FLIGHT]:
        return False
    for pipe in range(rq.MTU_IN, rq.DMA):
        if st[pipes.pipe_of(base, pipe) + ms.PIPE_COUNT]:
            return False
    for k in range(ms.N_DMA_SLOTS):
        if st[base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS]:
            return False
    return True


# ---- traffic: what the cores of a die ask of other dies, counted request by request when they are granted
#
# Counters begin again with every run. No program can observe them: they lie after the tables of last writers.


@jit
def _note_traffic(st, base, op):
    """Count a request that was granted, if it touches memory (polls do not count) of another die."""
    if ops.FETCHES >> op & 1:
        address, nbytes = touched.read_by(st, base + REQUEST, op)
        _count_bytes(st, base, address, nbytes, ms.TRAFFIC_READS)
    if ops.WRITES >> op & 1:
        address, nbytes = touched.written_by(st, base + REQUEST, op)
        _count_bytes(st, base, address, nbytes, ms.TRAFFIC_WRITES if ops.COPIES >> op & 1 else ms.TRAFFIC_FLAGS)
    if op == rq.OP_PUT_SIGNAL:
        _count_bytes(st, base, st[base + REQUEST + ops.PUT_SIGNAL.signal], 8, ms.TRAFFIC_FLAGS)


@jit
def _count_bytes(st, base, address, nbytes, kind):
    other = address >> st[ms.DIE_SHIFT]
    if other == st[base + ms.DIE]:
        return
    own = st[ms.TRAFFIC_BASE] + st[base + ms.DIE] * st[ms.TRAFFIC_WORDS]
    st[own + kind] += 1
    st[own + (ms.TRAFFIC_READ_BYTES if kind == ms.TRAFFIC_READS else ms.TRAFFIC_WRITE_BYTES)] += nbytes
    half = (st[ms.TRAFFIC_WORDS] - ms.TRAFFIC_MASKS) // 2
    mask = own + ms.TRAFFIC_MASKS + (half if kind == ms.TRAFFIC_READS else 0) + other // ms.TRAFFIC_MASK_BITS
    st[mask] |= 1 << other % ms.TRAFFIC_MASK_BITS
