"""Checks before anything happens: every address, size and operand of a request, against what its core may touch."""

from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST, REQUEST_WORDS
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device import maps, memory, touched
from xccl_emu.machine.device.polls import condition_at, n_conditions, polls_line
from xccl_emu.machine.device.touched import alignments, dtype_of, elements, is_fp8, other_range, ranges
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
                    tentative = ops.COPIES_IN >> op & 1 and st[base + REQUEST + ops.MTU_IN.tentative]
                    plain = right == ms.READ and not tentative
                    if plain and memory.is_lost(st, address, nbytes):
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
    op, function = st[base + REQUEST], st[base + REQUEST + ops.COPY.function]
    if op == rq.OP_V_COPY and function and source == target and maps.may_be_in_place(function, read, written):
        return True
    if not read or source >= target + written or target >= source + read:
        return True
    if op == rq.OP_V_COPY:
        return set_error(st, core, base, ms.ERR_OPERAND, function, source | target << ms.ERROR_SHIFT)
    return set_error(st, core, base, ms.ERR_OPERAND, source, target)


@jit
def _word_size(st, core, base, nbytes):
    if nbytes < 1 or nbytes > 8 or nbytes & nbytes - 1:
        return set_error(st, core, base, ms.ERR_SIZE, nbytes, 8)
    return True


@jit
def _line(st, core, base):
    """May a line be polled?  At least one of its words must be a flag, and none that is not in it."""
    at = base + REQUEST
    nbytes, words = st[at + ops.POLL.nbytes], st[at + ops.POLL.mask]
    if words <= 0 or words >> nbytes // 4 or st[at + ops.POLL.compare] > rq.CMP_NE:
        return set_error(st, core, base, ms.ERR_OPERAND, words, nbytes)
    if not _aligned_memory(st, core, base, st[at + ops.POLL.address], nbytes, ms.READ):
        return False
    return _buffer(st, core, base, st[at + ops.POLL.ub], nbytes, 4)


@jit
def _reaches(st, core, base, unit, address, nbytes, right):
    return (unit != ops.WORD or _word_size(st, core, base, nbytes)) and _memory(st, core, base, address, nbytes, right)


@jit
def _touches_memory(st, core, base, op):
    """May the request touch the memory that its row names?  Rights first, then whether it is aligned."""
    at, unit, address, nbytes = base + REQUEST, ops.UNIT[op], 0, 0
    if ops.READS >> op & 1:
        address, nbytes = touched.read_by(st, at, op)
        if not _reaches(st, core, base, unit, address, nbytes, ms.READ):
            return False
    if ops.WRITES >> op & 1:
        address, nbytes = touched.written_by(st, at, op)
        if not _reaches(st, core, base, unit, address, nbytes, ms.WRITE):
            return False
    return _aligned(st, core, base, address, nbytes if unit == ops.WORD else unit)


@jit
def _touches_buffer(st, core, base, op, start, nbytes):
    """May the request touch these bytes of the data buffer?"""
    if ops.UNIT[op] == ops.WORD:
        return _word_size(st, core, base, nbytes) and _buffer(st, core, base, start, nbytes, nbytes)
    return _buffer(st, core, base, start, nbytes, 1)


@jit
def _touches(st, core, base, op):
    """May the request touch what its row names, in memory and in the data buffer?"""
    if ops.TAKES >> op & 1:
        start, nbytes = touched.taken_by(st, base + REQUEST, op)
        if not _touches_buffer(st, core, base, op, start, nbytes):
            return False
    if (ops.READS | ops.WRITES) >> op & 1 and not _touches_memory(st, core, base, op):
        return False
    if not ops.FILLS >> op & 1:
        return True
    start, nbytes = touched.filled_by(st, base + REQUEST, op)
    return _touches_buffer(st, core, base, op, start, nbytes)


@jit
def _flag(st, core, base, op):
    """Return whether there is such an event; DMA sets its own, on completion, for the scalar unit, and never waits."""
    source, target, event = touched.flag_of(st, base + REQUEST)
    last_source = rq.DMA if ops.WAITS >> op & 1 and target == rq.SCALAR else rq.MTU_OUT
    if source < rq.SCALAR or source > last_source or target < rq.SCALAR or target > rq.MTU_OUT:
        return set_error(st, core, base, ms.ERR_OPERAND, source, target)
    if not _below(st, core, base, event, ms.N_EVENTS):
        return False
    return (target == rq.SCALAR and (source == rq.SCALAR or source == rq.DMA)) or _on_die(st, core, base)


@jit
def _below(st, core, base, operand, end):
    """Return whether an operand is in a range from 0 on."""
    return (operand >= 0 and operand < end) or set_error(st, core, base, ms.ERR_OPERAND, operand, end)


@jit
def check(st, core, base, op):
    """Check a request of neither the vector pipe (`check_vector`) nor a choice; if it is bad record the error."""
    at = base + REQUEST
    if ops.ON_DIE >> op & 1 and not _on_die(st, core, base):
        return False
    if polls_line(st, base):
        return _on_die(st, core, base) and _line(st, core, base)
    if ops.FLAGS >> op & 1:
        return _flag(st, core, base, op)
    if op == rq.OP_DCCI:
        return _memory(st, core, base, st[at + ops.DCCI.address], 1, ms.READ | ms.WRITE)
    if ops.RINGS >> op & 1 and not _below(st, core, base, st[at + ops.DMA.event], ms.N_EVENTS):
        return False
    if ops.LINES >> op & 1 and (st[ms.CACHE_LINES] or 1 << st[ms.ATOMIC_SHIFT] < rq.LINE_BYTES):
        return set_error(st, core, base, ms.ERR_SIZE, rq.LINE_BYTES, 8)
    tentative = st[at + ops.MTU_IN.tentative]
    if ops.COPIES_IN >> op & 1 and tentative != 0 and tentative != rq.TENTATIVE:
        return set_error(st, core, base, ms.ERR_OPERAND, tentative, rq.TENTATIVE)
    return _touches(st, core, base, op) and (not ops.COPIES_TO_MEMORY >> op & 1 or _may_copy(st, core, base, op))


@jit
def _may_copy(st, core, base, op):
    """Check what is of some copies alone: parts that do not overlap, integers that are added, a signal."""
    at = base + REQUEST
    if ops.RINGS >> op & 1:
        return _disjoint(st, core, base, st[at + ops.DMA.source], st[at + ops.DMA.target], st[at + ops.DMA.nbytes])
    ub, target, nbytes = st[at + ops.OUT.ub], st[at + ops.OUT.target], st[at + ops.OUT.nbytes]
    if op == rq.OP_MTU_ADD and (ub | target | nbytes) & 3:  # it adds integers of 4 bytes
        return set_error(st, core, base, ms.ERR_ALIGN, target, 4)
    return op != rq.OP_PUT_SIGNAL or _signal(st, core, base, target, nbytes)


@jit
def check_choice(st, core, base, op):
    """Check a `choose`, or a `poll_any`: may its words be polled, and is each compared in a known way?"""
    if op == rq.OP_CHOOSE:
        n = st[base + REQUEST + ops.CHOOSE.n]
        return (n >= 1 and n <= rq.ANSWERS_MOST) or set_error(st, core, base, ms.ERR_OPERAND, n, rq.ANSWERS_MOST)
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
        return set_error(st, core, base, ms.ERR_OPERAND, how, ms.UNKNOWN)
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
def _kinds(st, core, base, op, count):
    """May a vector instruction have these element types, and this rule?"""
    at = base + REQUEST
    if op == rq.OP_V_QUANTIZE:
        return _dtype(st, core, base, st[at + ops.QUANTIZE.dtype]) and _rule(
            st, core, base, st[at + ops.QUANTIZE.rule], count, 4
        )
    if op == rq.OP_V_DEQUANTIZE:
        return _rule(st, core, base, st[at + ops.DEQUANTIZE.rule], count, 1)
    if op == rq.OP_V_COPY:
        function = st[at + ops.COPY.function]
        return function == 0 or maps.is_known(function) or set_error(st, core, base, ms.ERR_OPERAND, function, 0)
    if ops.DTYPE[op] == 0:
        return True
    dtype = dtype_of(st, at, op)
    return _summand(st, core, base, dtype) if ops.ACCUMULATES >> op & 1 else _dtype(st, core, base, dtype)


@jit
def check_vector(st, core, base, op):
    """Check an instruction of the vector pipe before it is queued; counts are checked before they are multiplied."""
    at = base + REQUEST
    if not _on_die(st, core, base):
        return False
    count = elements(st, at, op)
    if count <= 0 or count > st[ms.UB_BYTES]:
        return set_error(st, core, base, ms.ERR_SIZE, count, st[ms.UB_BYTES])
    if not _kinds(st, core, base, op, count):
        return False
    source, read, target, written = ranges(st, at, op)
    of_read, of_written = alignments(st, at, op)
    if read > 0 and not _buffer(st, core, base, source, read, of_read):
        return False
    if not _buffer(st, core, base, target, written, of_written):
        return False
    other, more = other_range(st, at, op)
    if more and not _buffer(st, core, base, other, more, of_read):
        return False
    if op != rq.OP_V_COPY or maps.reduces(st[at + ops.COPY.function]):
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
