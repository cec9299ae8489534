"""Checks before anything happens: every address, size and operand of a request, against what its core may touch."""

from xccl_emu.lang.abi import REQUEST, REQUEST_WORDS
from xccl_emu.lang.requests import (
    ANSWERS_MOST,
    BF16,
    CMP_EQ,
    CMP_GE,
    CMP_NE,
    DMA,
    FP16,
    FP32,
    MTU_OUT,
    OP_ADD,
    OP_ATOMIC_ADD,
    OP_CHOOSE,
    OP_DCCI,
    OP_DMA,
    OP_LOAD,
    OP_MTU_IN,
    OP_MTU_OUT,
    OP_POLL,
    OP_PUT,
    OP_SET_FLAG,
    OP_STORE,
    OP_UB_LOAD,
    OP_UB_STORE,
    OP_V_ADD,
    OP_V_AXPY,
    OP_V_COPY,
    OP_V_COUNT,
    OP_V_DEQUANTIZE,
    OP_V_FILL,
    OP_V_NARROW,
    OP_V_QUANTIZE,
    OP_V_SCALE,
    OP_V_WIDEN,
    OP_WAIT_FLAG,
    RULE_CANN,
    RULE_XCCL,
    SCALAR,
    SIGNAL_ADD,
    SIGNAL_SET,
)
from xccl_emu.machine.device.conditions import condition_at, n_conditions
from xccl_emu.machine.device.layout import (
    ANY_DIE,
    DIE_SHIFT,
    ERR_ACCESS,
    ERR_ALIGN,
    ERR_OPERAND,
    ERR_SIZE,
    ERR_UB,
    ERROR,
    ERROR_A,
    ERROR_B,
    ERROR_CORE,
    ERROR_OP,
    ERROR_SITE,
    GRANULE_BYTES,
    N_DIES,
    N_EVENTS,
    N_HOMES,
    N_WINDOWS,
    READ,
    SIGNALS_END,
    SIGNALS_START,
    UB_BYTES,
    WINDOW_DIE,
    WINDOW_END,
    WINDOW_RIGHTS,
    WINDOW_START,
    WINDOW_WORDS,
    WINDOWS,
    WRITE,
)
from xccl_emu.machine.device.lines import is_line
from xccl_emu.machine.device.numerics import ranges
from xccl_emu.machine.device.words import call, jit


@jit
def set_error(st, core, base, code, a, b):
    """Record that the core's request is the violation that ends the run."""
    return set_error_at(st, core, base, code, a, b, st[base + REQUEST + REQUEST_WORDS - 1])


@call
def set_error_at(st, core, base, code, a, b, site):
    """Record the violation that ends the run, and the site that is to blame; the first one stands."""
    if st[ERROR] == 0:
        st[ERROR] = code
        st[ERROR_CORE] = core
        st[ERROR_SITE] = site
        st[ERROR_OP] = st[base + REQUEST]
        st[ERROR_A] = a
        st[ERROR_B] = b
    return False


@call
def _memory(st, core, base, address, nbytes, right):
    """May this core touch these bytes?  A window is a range of offsets on one die, or on any."""
    if nbytes <= 0:
        return set_error(st, core, base, ERR_SIZE, address, nbytes)
    if address >= 0:
        shift = st[DIE_SHIFT]
        die = address >> shift
        start = address - (die << shift)
        w = base + WINDOWS
        for _ in range(st[base + N_WINDOWS] if die < st[N_HOMES] else 0):
            on_die = st[w + WINDOW_DIE] == die or (st[w + WINDOW_DIE] == ANY_DIE and die < st[N_DIES])
            if on_die and st[w + WINDOW_START] <= start and nbytes <= st[w + WINDOW_END] - start:
                if st[w + WINDOW_RIGHTS] & right:
                    return True
            w += WINDOW_WORDS
    return set_error(st, core, base, ERR_ACCESS, address, nbytes)


@jit
def _buffer(st, core, base, ub, nbytes, alignment):
    """Return whether this range is inside the data buffer, and aligned."""
    if nbytes <= 0:
        return set_error(st, core, base, ERR_SIZE, ub, nbytes)
    if ub < 0 or nbytes > st[UB_BYTES] or ub > st[UB_BYTES] - nbytes:
        return set_error(st, core, base, ERR_UB, ub, nbytes)
    if ub & (alignment - 1):
        return set_error(st, core, base, ERR_ALIGN, ub, alignment)
    return True


@jit
def _aligned(st, core, base, address, alignment):
    if address & (alignment - 1):
        return set_error(st, core, base, ERR_ALIGN, address, alignment)
    return True


@jit
def _aligned_memory(st, core, base, address, nbytes, right):
    """May this core touch these bytes, which begin at a multiple of their number?"""
    return _memory(st, core, base, address, nbytes, right) and _aligned(st, core, base, address, nbytes)


@jit
def _disjoint(st, core, base, a, b, nbytes):
    """Do two ranges that were checked not overlap?  What a copy leaves in an overlap would depend on its order."""
    if a < b + nbytes and b < a + nbytes:
        return set_error(st, core, base, ERR_OPERAND, a, b)
    return True


@jit
def _word_size(st, core, base, nbytes, least):
    if nbytes < least or nbytes > 8 or nbytes & nbytes - 1:
        return set_error(st, core, base, ERR_SIZE, nbytes, 8)
    return True


@jit
def _word(st, core, base, address, nbytes, right):
    """May this core touch this word of memory?"""
    return _word_size(st, core, base, nbytes, 1) and _aligned_memory(st, core, base, address, nbytes, right)


@jit
def _line(st, core, base, address):
    """May a line be polled?  At least one of its words must be a flag, and none that is not in it."""
    nbytes, words, ub = st[base + REQUEST + 4], st[base + REQUEST + 5], st[base + REQUEST + 6]
    if words <= 0 or words >> nbytes // 4 or st[base + REQUEST + 2] > CMP_NE:
        return set_error(st, core, base, ERR_OPERAND, words, nbytes)
    return _aligned_memory(st, core, base, address, nbytes, READ) and _buffer(st, core, base, ub, nbytes, 4)


@jit
def check_scalar(st, core, base, op, a, b, c, d):
    """Check a request of the scalar unit on memory or the data buffer; False and an error recorded if it is bad."""
    if op == OP_POLL:
        return _line(st, core, base, a) if is_line(d) else _word(st, core, base, a, d, READ)
    if op == OP_LOAD:
        return _word(st, core, base, a, b, READ)
    if op == OP_STORE:
        return _word(st, core, base, a, c, WRITE)
    if op == OP_ATOMIC_ADD:
        readable = _memory(st, core, base, a, 8, READ)  # it returns the old value
        return readable and _aligned_memory(st, core, base, a, 8, WRITE)
    if op == OP_UB_LOAD:
        return _word_size(st, core, base, b, 4) and _buffer(st, core, base, a, b, b)
    if op == OP_UB_STORE:
        return _word_size(st, core, base, c, 4) and _buffer(st, core, base, a, c, c)
    if op == OP_SET_FLAG or op == OP_WAIT_FLAG:
        # DMA sets its events by itself, on completion and for the scalar unit alone, and never waits
        last_source = DMA if op == OP_WAIT_FLAG and b == SCALAR else MTU_OUT
        if a < SCALAR or a > last_source or b < SCALAR or b > MTU_OUT:
            return set_error(st, core, base, ERR_OPERAND, a, b)
        if c < 0 or c >= N_EVENTS:
            return set_error(st, core, base, ERR_OPERAND, c, N_EVENTS)
        return True
    if op == OP_DCCI:
        return _memory(st, core, base, a, 1, READ | WRITE)
    if op == OP_DMA:
        if d < 0 or d >= N_EVENTS:
            return set_error(st, core, base, ERR_OPERAND, d, N_EVENTS)
        inside = _memory(st, core, base, a, c, READ) and _memory(st, core, base, b, c, WRITE)
        return inside and _disjoint(st, core, base, a, b, c)
    return True


@jit
def check_choice(st, core, base, op, a):
    """Check a `choose`, or a `poll_any`: may its words be polled, and is each compared in a known way?"""
    if op == OP_CHOOSE:
        return (a >= 1 and a <= ANSWERS_MOST) or set_error(st, core, base, ERR_OPERAND, a, ANSWERS_MOST)
    for k in range(max(1, n_conditions(st, base))):
        at = condition_at(base, k)
        if st[at + 1] < CMP_EQ or st[at + 1] > CMP_GE:
            return set_error(st, core, base, ERR_OPERAND, k, st[at + 1])
        if not _aligned_memory(st, core, base, st[at], 8, READ):
            return False
    return True


@jit
def _signal(st, core, base, target, nbytes):
    """May an mtu-out signal so?  In the metadata area of the die that it copies to, and outside of what it copies."""
    signal, how = st[base + REQUEST + 4], st[base + REQUEST + 6]
    if how != SIGNAL_SET and how != SIGNAL_ADD:
        return set_error(st, core, base, ERR_OPERAND, how, SIGNAL_ADD)
    if not _aligned_memory(st, core, base, signal, 8, WRITE):
        return False
    offset = signal - (signal >> st[DIE_SHIFT] << st[DIE_SHIFT])
    in_area = st[SIGNALS_START] <= offset and offset < st[SIGNALS_END] and signal >> st[DIE_SHIFT] < st[N_DIES]
    if not in_area or signal >> st[DIE_SHIFT] != target >> st[DIE_SHIFT]:
        return set_error(st, core, base, ERR_OPERAND, signal, target)
    if signal < target + nbytes and target < signal + 8:
        return set_error(st, core, base, ERR_OPERAND, signal, target)
    return True


@jit
def check_transfer(st, core, base, op, a, b, c):
    """Check an instruction of mtu-in or mtu-out before it is queued."""
    if op == OP_MTU_IN:
        return _memory(st, core, base, a, c, READ) and _buffer(st, core, base, b, c, 1)
    if op == OP_MTU_OUT:
        inside = _buffer(st, core, base, a, c, 1) and _memory(st, core, base, b, c, WRITE)
        return inside and (st[base + REQUEST + 6] == 0 or _signal(st, core, base, b, c))
    if op == OP_PUT:
        return _aligned_memory(st, core, base, a, GRANULE_BYTES, WRITE)
    if op == OP_ADD:
        return _aligned_memory(st, core, base, a, 8, WRITE)
    return True


@jit
def _dtype(st, core, base, dtype):
    if dtype != BF16 and dtype != FP16:
        return set_error(st, core, base, ERR_OPERAND, dtype, FP16)
    return True


@jit
def _summand(st, core, base, dtype):
    """What an accumulator can take: FP32, too."""
    return dtype == FP32 or _dtype(st, core, base, dtype)


@jit
def _rule(st, core, base, rule):
    if rule != RULE_XCCL and rule != RULE_CANN:
        return set_error(st, core, base, ERR_OPERAND, rule, RULE_CANN)
    return True


@jit
def _kinds(st, core, base, op, c, d, e):
    """May a vector instruction have these element types, and this rule?"""
    if op == OP_V_QUANTIZE:
        return _dtype(st, core, base, d) and _rule(st, core, base, e) and _aligned(st, core, base, c, 4)
    if op == OP_V_AXPY or op == OP_V_ADD:
        return _summand(st, core, base, e if op == OP_V_AXPY else d)
    if op == OP_V_FILL or op == OP_V_COPY or op == OP_V_COUNT or op == OP_V_DEQUANTIZE or op == OP_V_SCALE:
        return True
    if not _dtype(st, core, base, d):
        return False
    if op == OP_V_NARROW or op == OP_V_WIDEN:
        return True
    return set_error(st, core, base, ERR_OPERAND, op, 0)


@jit
def check_vector(st, core, base, op, a, b, c, d, e):
    """Check an instruction of the vector pipe before it is queued; counts are checked before they are multiplied."""
    count = d if op == OP_V_AXPY else (b if op == OP_V_FILL or op == OP_V_SCALE else c)
    if count <= 0 or count > st[UB_BYTES]:
        return set_error(st, core, base, ERR_SIZE, count, st[UB_BYTES])
    if not _kinds(st, core, base, op, c, d, e):
        return False
    source, read, target, written = ranges(op, a, b, c, d, e)
    alignment = 1 if op == OP_V_FILL or op == OP_V_COPY else 4
    if read > 0 and not _buffer(st, core, base, source, read, alignment):
        return False
    if not _buffer(st, core, base, target, written, alignment):
        return False
    if op == OP_V_DEQUANTIZE:
        return _buffer(st, core, base, d, 4, 4)
    return op != OP_V_COPY or _disjoint(st, core, base, a, b, c)
