"""Checks before anything happens: every address, size and operand of a request, against what its core may touch."""

from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST, REQUEST_WORDS
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device import lost, maps
from xccl_emu.machine.device.conditions import condition_at, n_conditions
from xccl_emu.machine.device.lines import is_line
from xccl_emu.machine.device.vectors import alignments, is_fp8, other_range, ranges
from xccl_emu.machine.device.words import call, jit


@jit
def set_error(st, core, base, code, a, b):
    """Record that the core's request is the violation that ends the run."""
    return set_error_at(st, core, base, code, a, b, st[base + REQUEST + REQUEST_WORDS - 1])


@call
def set_error_at(st, core, base, code, a, b, site):
    """Record the violation that ends the run, and the site that is to blame, unless one is recorded already."""
    if st[ms.ERROR] == 0:
        st[ms.ERROR] = code
        st[ms.ERROR_CORE] = core
        st[ms.ERROR_SITE] = site
        st[ms.ERROR_OP] = st[base + REQUEST]
        st[ms.ERROR_A] = a
        st[ms.ERROR_B] = b
    return False


@call
def _memory(st, core, base, address, nbytes, right):
    """May this core touch these bytes?  A window is a range of offsets on one die, or on any."""
    if nbytes <= 0:
        return set_error(st, core, base, ms.ERR_SIZE, address, nbytes)
    if address >= 0:
        shift, op = st[ms.DIE_SHIFT], st[base + REQUEST]
        die = address >> shift
        start = address - (die << shift)
        w = base + ms.WINDOWS
        for _ in range(st[base + ms.N_WINDOWS] if die < st[ms.N_HOMES] else 0):
            on_die = st[w + ms.WINDOW_DIE] == die or (st[w + ms.WINDOW_DIE] == ms.ANY_DIE and die < st[ms.N_DIES])
            if on_die and st[w + ms.WINDOW_START] <= start and nbytes <= st[w + ms.WINDOW_END] - start:
                if st[w + ms.WINDOW_RIGHTS] & right:
                    plain = right == ms.READ and (op != rq.OP_MTU_IN or st[base + REQUEST + 4] == 0)
                    if plain and lost.is_lost(st, address, nbytes):
                        return set_error(st, core, base, ms.ERR_UNDEFINED, address, ms.UNDEFINED_LOST)
                    return True
            w += ms.WINDOW_WORDS
    return set_error(st, core, base, ms.ERR_ACCESS, address, nbytes)


@jit
def _on_die(st, core, base):
    """Return whether the core has a data buffer, and pipes to and from it; a core of a CPU has none."""
    return st[base + ms.DIE] < st[ms.N_DIES] or set_error(st, core, base, ms.ERR_CPU, 0, 0)


@jit
def _buffer(st, core, base, ub, nbytes, alignment):
    """Return whether this range is inside the data buffer, and aligned."""
    if nbytes <= 0:
        return set_error(st, core, base, ms.ERR_SIZE, ub, nbytes)
    if ub < 0 or nbytes > st[ms.UB_BYTES] or ub > st[ms.UB_BYTES] - nbytes:
        return set_error(st, core, base, ms.ERR_UB, ub, nbytes)
    if ub & (alignment - 1):
        return set_error(st, core, base, ms.ERR_ALIGN, ub, alignment)
    return True


@jit
def _aligned(st, core, base, address, alignment):
    if address & (alignment - 1):
        return set_error(st, core, base, ms.ERR_ALIGN, address, alignment)
    return True


@jit
def _aligned_memory(st, core, base, address, nbytes, right):
    """May this core touch these bytes, which begin at a multiple of their number?"""
    return _memory(st, core, base, address, nbytes, right) and _aligned(st, core, base, address, nbytes)


@jit
def _disjoint(st, core, base, a, b, nbytes):
    """Do two ranges that were checked not overlap?  What a copy leaves in an overlap would depend on its order."""
    if a < b + nbytes and b < a + nbytes:
        return set_error(st, core, base, ms.ERR_OPERAND, a, b)
    return True


@jit
def _apart(st, core, base, source, read, target, written):
    """May a vector instruction read and write these ranges?  One in place of the other, but not overlapping else."""
    op, function = st[base + REQUEST], st[base + REQUEST + 4]
    if op == rq.OP_V_COPY and function and source == target and read == written:
        return True
    if read and source < target + written and target < source + read:
        return set_error(st, core, base, ms.ERR_OPERAND, source, target)
    return True


@jit
def _word_size(st, core, base, nbytes):
    if nbytes < 1 or nbytes > 8 or nbytes & nbytes - 1:
        return set_error(st, core, base, ms.ERR_SIZE, nbytes, 8)
    return True


@jit
def _word(st, core, base, address, nbytes, right):
    """May this core touch this word of memory?"""
    return _word_size(st, core, base, nbytes) and _aligned_memory(st, core, base, address, nbytes, right)


@jit
def _line(st, core, base, address):
    """May a line be polled?  At least one of its words must be a flag, and none that is not in it."""
    nbytes, words, ub = st[base + REQUEST + 4], st[base + REQUEST + 5], st[base + REQUEST + 6]
    if words <= 0 or words >> nbytes // 4 or st[base + REQUEST + 2] > rq.CMP_NE:
        return set_error(st, core, base, ms.ERR_OPERAND, words, nbytes)
    return _aligned_memory(st, core, base, address, nbytes, ms.READ) and _buffer(st, core, base, ub, nbytes, 4)


@jit
def check_scalar(st, core, base, op, a, b, c, d):
    """Check a request of the scalar unit on memory or the data buffer; False and an error recorded if it is bad."""
    if op == rq.OP_POLL:
        if is_line(d):
            return _on_die(st, core, base) and _line(st, core, base, a)
        return _word(st, core, base, a, d, ms.READ)
    if op == rq.OP_LOAD:
        return _word(st, core, base, a, b, ms.READ)
    if op == rq.OP_STORE:
        return _word(st, core, base, a, c, ms.WRITE)
    if ops.ATOMICS >> op & 1:
        readable = _memory(st, core, base, a, 8, ms.READ)  # it returns the old value
        return readable and _aligned_memory(st, core, base, a, 8, ms.WRITE)
    if op == rq.OP_VALIDATE:
        return _on_die(st, core, base) and _buffer(st, core, base, a, b, 1)
    if op == rq.OP_UB_LOAD:
        return _on_die(st, core, base) and _word_size(st, core, base, b) and _buffer(st, core, base, a, b, b)
    if op == rq.OP_UB_STORE:
        return _on_die(st, core, base) and _word_size(st, core, base, c) and _buffer(st, core, base, a, c, c)
    if op == rq.OP_SET_FLAG or op == rq.OP_WAIT_FLAG:
        # DMA sets its events by itself, on completion and for the scalar unit alone, and never waits
        last_source = rq.DMA if op == rq.OP_WAIT_FLAG and b == rq.SCALAR else rq.MTU_OUT
        if a < rq.SCALAR or a > last_source or b < rq.SCALAR or b > rq.MTU_OUT:
            return set_error(st, core, base, ms.ERR_OPERAND, a, b)
        if c < 0 or c >= ms.N_EVENTS:
            return set_error(st, core, base, ms.ERR_OPERAND, c, ms.N_EVENTS)
        return (b == rq.SCALAR and (a == rq.SCALAR or a == rq.DMA)) or _on_die(st, core, base)
    if op == rq.OP_DCCI:
        return _memory(st, core, base, a, 1, ms.READ | ms.WRITE)
    if op == rq.OP_DMA:
        if d < 0 or d >= ms.N_EVENTS:
            return set_error(st, core, base, ms.ERR_OPERAND, d, ms.N_EVENTS)
        inside = _memory(st, core, base, a, c, ms.READ) and _memory(st, core, base, b, c, ms.WRITE)
        return inside and _disjoint(st, core, base, a, b, c)
    return True


@jit
def check_choice(st, core, base, op, a):
    """Check a `choose`, or a `poll_any`: may its words be polled, and is each compared in a known way?"""
    if op == rq.OP_CHOOSE:
        return (a >= 1 and a <= rq.ANSWERS_MOST) or set_error(st, core, base, ms.ERR_OPERAND, a, rq.ANSWERS_MOST)
    for k in range(max(1, n_conditions(st, base))):
        at = condition_at(base, k)
        if st[at + 1] < rq.CMP_EQ or st[at + 1] > rq.CMP_GE:
            return set_error(st, core, base, ms.ERR_OPERAND, k, st[at + 1])
        if not _aligned_memory(st, core, base, st[at], 8, ms.READ):
            return False
    return True


@jit
def _signal(st, core, base, target, nbytes):
    """May a `put_signal` signal so?  In the metadata area of the target's die, and outside of what it copies."""
    signal, how = st[base + REQUEST + ops.PUT_SIGNAL.signal], st[base + REQUEST + ops.PUT_SIGNAL.how]
    if how != rq.SIGNAL_SET and how != rq.SIGNAL_ADD:
        return set_error(st, core, base, ms.ERR_OPERAND, how, rq.SIGNAL_ADD)
    if not _aligned_memory(st, core, base, signal, 8, ms.WRITE):
        return False
    offset = signal - (signal >> st[ms.DIE_SHIFT] << st[ms.DIE_SHIFT])
    in_area = (
        st[ms.SIGNALS_START] <= offset and offset < st[ms.SIGNALS_END] and signal >> st[ms.DIE_SHIFT] < st[ms.N_DIES]
    )
    if not in_area or signal >> st[ms.DIE_SHIFT] != target >> st[ms.DIE_SHIFT]:
        return set_error(st, core, base, ms.ERR_OPERAND, signal, target)
    if signal < target + nbytes and target < signal + 8:
        return set_error(st, core, base, ms.ERR_OPERAND, signal, target)
    return True


@jit
def check_transfer(st, core, base, op, a, b, c):
    """Check an instruction of mtu-in or mtu-out before it is queued; a CPU's stores pass a fence, too."""
    if op != rq.OP_FENCE and not _on_die(st, core, base):
        return False
    if op == rq.OP_MTU_IN:
        tentative = st[base + REQUEST + 4]
        if tentative != 0 and tentative != rq.TENTATIVE:
            return set_error(st, core, base, ms.ERR_OPERAND, tentative, rq.TENTATIVE)
        return _memory(st, core, base, a, c, ms.READ) and _buffer(st, core, base, b, c, 1)
    if ops.COPIES_OUT >> op & 1:
        if not _buffer(st, core, base, a, c, 1) or not _memory(st, core, base, b, c, ms.WRITE):
            return False
        if op == rq.OP_MTU_ADD and (a | b | c) & 3:  # it adds integers of 4 bytes
            return set_error(st, core, base, ms.ERR_ALIGN, b, 4)
        return op != rq.OP_PUT_SIGNAL or _signal(st, core, base, b, c)
    if op == rq.OP_PUT:
        return _aligned_memory(st, core, base, a, ms.GRANULE_BYTES, ms.WRITE)
    if op == rq.OP_ADD:
        return _aligned_memory(st, core, base, a, 8, ms.WRITE)
    return True


@jit
def _dtype(st, core, base, dtype):
    if dtype != rq.BF16 and dtype != rq.FP16:
        return set_error(st, core, base, ms.ERR_OPERAND, dtype, rq.FP16)
    return True


@jit
def _summand(st, core, base, dtype):
    """Return whether an accumulator can take the type: FP32, too."""
    return dtype == rq.FP32 or _dtype(st, core, base, dtype)


@jit
def _rule(st, core, base, rule, count, least):
    """A rule that there is, and a count that it can take: whole blocks, or in INT8 a multiple of ``least``."""
    if rule < rq.RULE_XCCL or rule > rq.RULE_FP8_UE8M0:
        return set_error(st, core, base, ms.ERR_OPERAND, rule, rq.RULE_FP8_UE8M0)
    return _aligned(st, core, base, count, rq.FP8_BLOCK if is_fp8(rule) else least)


@jit
def _kinds(st, core, base, op, c, d, e):
    """May a vector instruction have these element types, and this rule?"""
    if op == rq.OP_V_QUANTIZE:
        return _dtype(st, core, base, d) and _rule(st, core, base, e, c, 4)
    if op == rq.OP_V_DEQUANTIZE:
        return _rule(st, core, base, e, c, 1)
    if op == rq.OP_V_AXPY or op == rq.OP_V_ADD:
        return _summand(st, core, base, e if op == rq.OP_V_AXPY else d)
    if op == rq.OP_V_COPY:
        return d == 0 or maps.is_known(d) or set_error(st, core, base, ms.ERR_OPERAND, d, 0)
    if op == rq.OP_V_FILL or op == rq.OP_V_COUNT or op == rq.OP_V_SCALE:
        return True
    if not _dtype(st, core, base, d):
        return False
    if op == rq.OP_V_NARROW or op == rq.OP_V_WIDEN:
        return True
    return set_error(st, core, base, ms.ERR_OPERAND, op, 0)


@jit
def check_vector(st, core, base, op, a, b, c, d, e):
    """Check an instruction of the vector pipe before it is queued; counts are checked before they are multiplied."""
    if not _on_die(st, core, base):
        return False
    count = d if op == rq.OP_V_AXPY else (b if op == rq.OP_V_FILL or op == rq.OP_V_SCALE else c)
    if count <= 0 or count > st[ms.UB_BYTES]:
        return set_error(st, core, base, ms.ERR_SIZE, count, st[ms.UB_BYTES])
    if not _kinds(st, core, base, op, c, d, e):
        return False
    source, read, target, written = ranges(op, a, b, c, d, e)
    of_read, of_written = alignments(op, d)
    if read > 0 and not _buffer(st, core, base, source, read, of_read):
        return False
    if not _buffer(st, core, base, target, written, of_written):
        return False
    other, more = other_range(op, c, d, e)
    if more and not _buffer(st, core, base, other, more, of_read):
        return False
    if op != rq.OP_V_COPY or (d and maps.reduces(d)):
        return True
    return _apart(st, core, base, source, read, target, written) and _apart(
        st, core, base, other, more, target, written
    )


@jit
def reads_flags(st, base, address, nbytes):
    """Return whether bytes lie in a window of flags of the core, so that a load or mtu-in of them synchronizes."""
    if st[ms.SOME_FLAGS] == 0:
        return False
    die = address >> st[ms.DIE_SHIFT]
    start, w = address - (die << st[ms.DIE_SHIFT]), base + ms.WINDOWS
    for _ in range(st[base + ms.N_WINDOWS]):
        inside = st[w + ms.WINDOW_START] <= start and start + nbytes <= st[w + ms.WINDOW_END]
        on_die = st[w + ms.WINDOW_DIE] == die or st[w + ms.WINDOW_DIE] == ms.ANY_DIE
        if inside and on_die and st[w + ms.WINDOW_RIGHTS] & ms.FLAGS:
            return True
        w += ms.WINDOW_WORDS
    return False
