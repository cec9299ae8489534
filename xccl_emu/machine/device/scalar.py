"""The scalar unit of a core: grants the kernel's next request, if it can be granted, and lets the kernel go on.

PYTEST_DONT_REWRITE: asserts that pytest has rewritten do not compile, see `xccl_emu.testing.plugin`.
"""

from xccl_emu.lang.abi import REQUEST, RESULT
from xccl_emu.lang.requests import (
    CMP_NE,
    DMA,
    MTU_IN,
    MTU_OUT,
    OP_ADD,
    OP_ARRIVE,
    OP_ATOMIC_ADD,
    OP_AWAIT_GROUP,
    OP_CHOOSE,
    OP_DCCI,
    OP_DMA,
    OP_FAIL,
    OP_LOAD,
    OP_MTU_IN,
    OP_POLL,
    OP_POLL_ANY,
    OP_QUIET,
    OP_RETURN,
    OP_SET_FLAG,
    OP_STORE,
    OP_UB_LOAD,
    OP_UB_STORE,
    OP_V_QUANTIZE,
    OP_WAIT_FLAG,
    SCALAR,
    SWAPS,
    VECTOR,
)
from xccl_emu.machine.device.access import (
    check_choice,
    check_scalar,
    check_transfer,
    check_vector,
    set_error,
    set_error_at,
)
from xccl_emu.machine.device.cache import (
    clean,
    evict,
    first_changed,
    forget_lines,
    load_cached,
    request_choices,
    store_cached,
)
from xccl_emu.machine.device.conditions import condition_at, forget, is_awaited, n_conditions
from xccl_emu.machine.device.flight import (
    go_on,
    note_writer,
    own_write_pending,
    read_word,
    request_site,
    room_for_writes,
    set_event,
    sign_extended,
    switched_off,
    write_word,
)
from xccl_emu.machine.device.layout import (
    ACTIONS,
    AT_END,
    AT_PLACE,
    ATOMIC_SHIFT,
    BYTES_BY_PIPE,
    CACHE_LINES,
    CHOICE_ALL,
    CHOICE_EVICT,
    COUNT_BY_OP,
    DMA_SLOTS,
    DRAWS_ANSWERS,
    ENTRY_WORDS,
    ERR_ARITHMETIC,
    ERR_FAIL,
    ERR_LEFT_SET,
    ERROR,
    EVENTS,
    GROUP,
    GROUP_ARRIVED,
    GROUP_BASE,
    GROUP_PHASE,
    GROUP_SIZE,
    GROUP_WORDS,
    IN_FLIGHT,
    KIND_SCALAR,
    N_DMA_SLOTS,
    N_LIVE,
    N_PIPES,
    PIPE_COUNT,
    POLLED,
    STATUS,
    STATUS_DONE,
    STATUS_RUNNING,
    UB_BASE,
)
from xccl_emu.machine.device.lines import polls_line, read_line
from xccl_emu.machine.device.pipes import enqueue, fence_ahead, pipe_of, ring_dma, take_event
from xccl_emu.machine.device.sparse import mark
from xccl_emu.machine.device.traffic import note_traffic
from xccl_emu.machine.device.words import call, jit, load_i32, load_i64, put, store_i64, store_u32


@jit
def step_scalar(mem, st, core, base, choice):
    """Grant the core's request and run its kernel to the next one; False, and nothing changed, if it has to wait."""
    if st[base + STATUS] != STATUS_RUNNING:
        return False
    if choice > 0 and choice != CHOICE_ALL and choice >= request_choices(st, base):
        return choice >= CHOICE_EVICT and st[CACHE_LINES] != 0 and evict(mem, st, core, base, choice - CHOICE_EVICT)
    op = st[base + REQUEST]
    if op == OP_RETURN and st[CACHE_LINES]:
        changed = first_changed(st, core)
        if changed >= 0:
            return evict(mem, st, core, base, changed)
    # A return has no site of its own; a load that is switched off still loads, it only orders nothing.
    if op == OP_RETURN or op == OP_LOAD or not switched_off(st, base) or _drops_words(st, base):
        if not _grant(mem, st, core, base, op, choice):
            return False
        if op == OP_POLL and st[base + POLLED]:
            return True  # of a line not all is read yet
        if op != OP_RETURN and (op <= OP_ATOMIC_ADD or OP_DMA <= op <= OP_ADD):
            note_traffic(st, base, op)
    elif op == OP_POLL:  # as if it had seen what it waits for
        put(st, base + RESULT, st[base + REQUEST + 3] + (1 if st[base + REQUEST + 2] == CMP_NE else 0))
    st[COUNT_BY_OP + op] += 1
    if op == OP_RETURN:
        put(st, base + RESULT, st[base + REQUEST + 1])
        put(st, base + STATUS, STATUS_DONE)
        st[N_LIVE] -= 1
        if st[CACHE_LINES]:
            forget_lines(st, core)
        return True
    go_on(st, base)
    return True


@jit
def _drops_words(st, base):
    """Return whether a request that is switched off is carried out all the same: it leaves something to be dropped."""
    return polls_line(st, base) or st[base + REQUEST] == OP_POLL_ANY


@jit
def _grant(mem, st, core, base, op, choice):
    """Carry out one request; False if it cannot be granted now, or if it is bad (then the error is recorded)."""
    a, b, c = st[base + REQUEST + 1], st[base + REQUEST + 2], st[base + REQUEST + 3]
    if op >= OP_V_QUANTIZE:
        d, e = st[base + REQUEST + 4], st[base + REQUEST + 5]
        return check_vector(st, core, base, op, a, b, c, d, e) and enqueue(st, base, VECTOR)
    if op >= OP_MTU_IN:
        pipe = MTU_IN if op == OP_MTU_IN else MTU_OUT
        return check_transfer(st, core, base, op, a, b, c) and enqueue(st, base, pipe)
    if not check_scalar(st, core, base, op, a, b, c, st[base + REQUEST + 4]):
        return False
    if op <= OP_POLL:
        return _grant_memory(mem, st, core, base, op, choice, a, b, c)
    if op == OP_UB_LOAD or op == OP_UB_STORE:
        return _grant_buffer(mem, st, base, op, a, b, c)
    if op == OP_SET_FLAG or op == OP_WAIT_FLAG:
        return _grant_flag(st, core, base, op, a, b, c)
    if op == OP_QUIET:
        return drained(st, base)
    if op == OP_DMA:
        return ring_dma(st, base)
    if op == OP_DCCI:
        return st[CACHE_LINES] == 0 or clean(mem, st, core, base, a)
    if op <= OP_AWAIT_GROUP:
        return _grant_group(st, base, op, a)
    return _grant_rarely(mem, st, core, base, op, choice)


@call
def _grant_rarely(mem, st, core, base, op, choice):
    """A failure, an answer of the environment, or the first condition that holds."""
    a, b = st[base + REQUEST + 1], st[base + REQUEST + 2]
    if op == OP_FAIL:
        return set_error(st, core, base, ERR_ARITHMETIC if request_site(st, base) == AT_PLACE else ERR_FAIL, a, b)
    if not check_choice(st, core, base, op, a):
        return False
    if op == OP_CHOOSE:
        if choice == CHOICE_ALL and st[DRAWS_ANSWERS]:
            return False  # whoever draws says which
        put(st, base + RESULT, 0 if choice == CHOICE_ALL else choice)
        return True
    assert op == OP_POLL_ANY
    which = 0 if switched_off(st, base) else first_that_holds(mem, st, core, base)
    if which < 0:
        return False
    put(st, base + RESULT, which)
    forget(st, base)
    return True


@jit
def _grant_memory(mem, st, core, base, op, choice, a, b, c):
    """Return, load, store, atomic add or compare-and-swap, poll."""
    if op == OP_RETURN:
        return drained(st, base) and _no_event_left(st, core, base)
    if op == OP_POLL:
        if polls_line(st, base):
            return read_line(mem, st, base, choice, switched_off(st, base))
        value = read_word(mem, st, core, base, a, st[base + REQUEST + 4])
        mask = st[base + REQUEST + 5]
        if is_awaited(value & mask, b, c & mask):
            put(st, base + RESULT, value)
            return True
        return False
    if st[CACHE_LINES] and op <= OP_STORE:
        done = _grant_cached(mem, st, core, base, op, choice, a, b, c)
        st[BYTES_BY_PIPE + SCALAR] += (b if op == OP_LOAD else c) if done else 0
        return done
    if op == OP_LOAD:
        put(st, base + RESULT, read_word(mem, st, core, base, a, b))
        st[BYTES_BY_PIPE + SCALAR] += b
        return True
    if fence_ahead(st, base):
        return False
    if op == OP_STORE:
        if not room_for_writes(st, base, max(1, c >> st[ATOMIC_SHIFT])):
            return False
        write_word(mem, st, core, base, KIND_SCALAR, a, c, sign_extended(b, c), request_site(st, base))
        st[BYTES_BY_PIPE + SCALAR] += c
        return True
    if own_write_pending(st, core, base, a):
        return False
    old = load_i64(mem, a)
    put(st, base + RESULT, old)
    mark(mem, st, a, 8)
    store_i64(mem, a, old + b if c != SWAPS else b if old == st[base + REQUEST + 4] else old)
    note_writer(st, a, core, request_site(st, base))
    st[BYTES_BY_PIPE + SCALAR] += 8
    return True


@jit
def _grant_cached(mem, st, core, base, op, choice, a, b, c):
    if op == OP_LOAD:
        return load_cached(mem, st, core, base, choice, a, b)
    return store_cached(mem, st, core, base, choice, a, sign_extended(b, c), c)


@jit
def first_that_holds(mem, st, core, base):
    """Number of the first condition of a core's `poll_any` that holds, or -1; its words must have been checked."""
    for k in range(n_conditions(st, base)):
        at = condition_at(base, k)
        if is_awaited(read_word(mem, st, core, base, st[at], 8), st[at + 1], st[at + 2]):
            return k
    return -1


@jit
def _no_event_left(st, core, base):
    """Was every event that was set consumed?  One that is left is a violation: its wait is missing."""
    for flags in range(N_PIPES * N_PIPES):
        if st[base + EVENTS + flags]:
            event = 0
            while not st[base + EVENTS + flags] >> event & 1:
                event += 1
            source, target = flags // N_PIPES, flags % N_PIPES
            return set_error_at(st, core, base, ERR_LEFT_SET, source * 8 + target, event, AT_END)
    return True


@jit
def _grant_buffer(mem, st, base, op, a, b, c):
    """Scalar access to the data buffer: immediate, in program order with what the scalar unit issues."""
    at = st[base + UB_BASE] + a
    if op == OP_UB_LOAD:
        put(st, base + RESULT, load_i32(mem, at) if b == 4 else load_i64(mem, at))
        return True
    mark(mem, st, at, c)
    if c == 4:
        store_u32(mem, at, b)
    else:
        store_i64(mem, at, b)
    return True


@jit
def run_on_buffer(mem, st, core, base, most):
    """Up to so many steps of a scalar unit as long as each is an access to its data buffer; how many there were.

    They are those of `step_scalar`, one after the other; nobody else sees anything of them.
    """
    taken = 0
    while taken < most:
        op = st[base + REQUEST]
        if (op != OP_UB_LOAD and op != OP_UB_STORE) or st[base + STATUS] != STATUS_RUNNING or switched_off(st, base):
            break
        a, b, c = st[base + REQUEST + 1], st[base + REQUEST + 2], st[base + REQUEST + 3]
        if st[ERROR] or not check_scalar(st, core, base, op, a, b, c, 0):
            break
        _grant_buffer(mem, st, base, op, a, b, c)
        st[COUNT_BY_OP + op] += 1
        st[ACTIONS] += 1
        go_on(st, base)
        taken += 1
    return taken


@jit
def _grant_flag(st, core, base, op, source, target, event):
    """set_flag waits its turn on the source pipe, wait_flag on the target; the scalar unit is a pipe of its own."""
    pipe = source if op == OP_SET_FLAG else target
    if pipe != SCALAR:
        return enqueue(st, base, pipe)
    if op == OP_SET_FLAG:
        set_event(st, core, base, source, target, event, request_site(st, base))
        return st[ERROR] == 0
    return take_event(st, base, source, target, event)


@jit
def _grant_group(st, base, op, phase):
    """The barrier of a core group: the last to arrive turns the phase, and whoever waits in the old one goes on."""
    group = st[GROUP_BASE] + st[base + GROUP] * GROUP_WORDS
    if op == OP_AWAIT_GROUP:
        return st[group + GROUP_PHASE] != phase
    assert op == OP_ARRIVE
    put(st, base + RESULT, st[group + GROUP_PHASE])
    if st[group + GROUP_ARRIVED] + 1 == st[group + GROUP_SIZE]:
        put(st, group + GROUP_ARRIVED, 0)
        put(st, group + GROUP_PHASE, 1 - st[group + GROUP_PHASE])
    else:
        put(st, group + GROUP_ARRIVED, st[group + GROUP_ARRIVED] + 1)
    return True


@jit
def drained(st, base):
    """Return whether everything that this core issued is done and visible."""
    if st[base + IN_FLIGHT]:
        return False
    for pipe in range(MTU_IN, DMA):
        if st[pipe_of(base, pipe) + PIPE_COUNT]:
            return False
    for k in range(N_DMA_SLOTS):
        if st[base + DMA_SLOTS + k * ENTRY_WORDS]:
            return False
    return True
