"""What an action reads and writes, told before it is taken: the ground on which races and reductions are judged.

An access is a row of five words (`ACCESS_WORDS`): first byte, bytes, flags, agent, site.  Bytes are counted as in the
pod's memory array, where the data buffers stand behind the dies.

PYTEST_DONT_REWRITE: asserts that pytest has rewritten do not compile, see `xccl_emu.testing.plugin`.
"""

from xccl_emu.lang.abi import REQUEST
from xccl_emu.lang.requests import (
    CONDITIONS_MOST,
    DMA,
    MTU_IN,
    MTU_OUT,
    OP_ADD,
    OP_ATOMIC_ADD,
    OP_FENCE,
    OP_LOAD,
    OP_MTU_IN,
    OP_MTU_OUT,
    OP_POLL,
    OP_POLL_ANY,
    OP_PUT,
    OP_SET_FLAG,
    OP_STORE,
    OP_UB_LOAD,
    OP_UB_STORE,
    OP_V_DEQUANTIZE,
    OP_WAIT_FLAG,
    SCALAR,
    SIGNAL_ADD,
    VECTOR,
)
from xccl_emu.machine.device.conditions import condition_at, n_conditions
from xccl_emu.machine.device.flight import request_site, switched_off
from xccl_emu.machine.device.layout import (
    ATOMIC_SHIFT,
    CHOICE_ALL,
    CHOICE_EVICT,
    DMA_SLOTS,
    ENTRY_CUT,
    ENTRY_PROGRESS,
    ENTRY_SITE,
    ENTRY_WORDS,
    GRANULE_BYTES,
    KERNEL,
    MAX_SITES,
    PIPE_COUNT,
    UB_BASE,
)
from xccl_emu.machine.device.lines import line_part, polls_line
from xccl_emu.machine.device.numerics import ranges
from xccl_emu.machine.device.pipes import entry_of, pipe_of, signals_next, subtransfer
from xccl_emu.machine.device.words import jit

START, NBYTES, FLAGS, AGENT, SITE = range(5)
ACCESS_WORDS = 5
ACCESSES_MAX = CONDITIONS_MOST
"""Rows that one action needs at most."""

WRITE, SYNC, WHOLE = 1, 2, 4
"""Flags: it writes; it is a synchronization (poll, atomic, add, load with a name); it is one word or granule at once.

A store or put is not `SYNC` by itself: whether it is a flag depends on who else uses the granule.
"""

WHOLE_TRANSFER = 0xFFF << 4
"""In the place of a sub-transfer in a choice: all of the transfer.  The checker's, no action of the machine."""

AGENT_DMA = 4
"""Agents are a core's pipes 0-3, then its DMA descriptors 4-11."""


@jit
def _row(out, n, start, nbytes, flags, agent, site):
    out[n, START] = start
    out[n, NBYTES] = nbytes
    out[n, FLAGS] = flags
    out[n, AGENT] = agent
    out[n, SITE] = site
    return n + 1


@jit
def instruction_of(st, base, pipe, choice):
    """Where the request, instruction or descriptor stands that an action carries out; -1 if its queue is shorter."""
    if pipe == SCALAR:
        return base + REQUEST
    if pipe == DMA:
        return base + DMA_SLOTS + (choice & 15) * ENTRY_WORDS
    j = choice & 15 if pipe == MTU_IN and choice != CHOICE_ALL else 0
    queue = pipe_of(base, pipe)
    return entry_of(st, queue, j) if j < st[queue + PIPE_COUNT] else -1


@jit
def accesses(st, base, pipe, choice, named, out):
    """List what the action (pipe of the core at ``base``, choice) would read and write; returns how many rows.

    ``named`` tells for each (kernel, site) whether it has a sync name, [kernels * MAX_SITES].
    """
    if pipe == SCALAR:
        return _of_scalar(st, base, choice, named, out)
    if pipe == DMA:
        return _of_dma(st, base, choice, out)
    entry = instruction_of(st, base, pipe, choice)
    if entry < 0:
        return 0
    op, site, ub, atomic = st[entry], st[entry + ENTRY_SITE], st[base + UB_BASE], 1 << st[ATOMIC_SHIFT]
    if op == OP_SET_FLAG or op == OP_WAIT_FLAG or op == OP_FENCE:
        return 0
    if op == OP_MTU_IN:
        source, nbytes = st[entry + 1], st[entry + 3]
        start, end = 0, nbytes
        if choice < WHOLE_TRANSFER:
            start, end = subtransfer(st, source, source, nbytes, choice >> 4)
        n = _row(out, 0, source + start, end - start, 0, MTU_IN, site)
        return _row(out, n, ub + st[entry + 2] + start, end - start, WRITE, MTU_IN, site)
    if op == OP_MTU_OUT and signals_next(st, entry):
        adds = SYNC if st[entry + 6] == SIGNAL_ADD else 0
        return _row(out, 0, st[entry + 4], 8, WRITE | WHOLE | adds, MTU_OUT, site)
    if op == OP_MTU_OUT:
        target, nbytes, start = st[entry + 2], st[entry + 3], st[entry + ENTRY_PROGRESS]
        end = nbytes
        if choice != CHOICE_ALL:
            end = min(nbytes, start + atomic - (target + start) % atomic)
        n = _row(out, 0, ub + st[entry + 1] + start, end - start, 0, MTU_OUT, site)
        return _row(out, n, target + start, end - start, WRITE, MTU_OUT, site)
    if op == OP_PUT:
        start = st[entry + ENTRY_PROGRESS]
        end = GRANULE_BYTES if choice == CHOICE_ALL else min(GRANULE_BYTES, start + atomic)
        whole = WHOLE if atomic >= GRANULE_BYTES else 0
        return _row(out, 0, st[entry + 1] + start, end - start, WRITE | whole, MTU_OUT, site)
    if op == OP_ADD:
        return _row(out, 0, st[entry + 1], 8, WRITE | WHOLE | SYNC, MTU_OUT, site)
    return _of_vector(st, entry, op, ub, site, out)


@jit
def _of_scalar(st, base, choice, named, out):
    """The core's current request, or a part of it."""
    op, a, b, c = st[base + REQUEST], st[base + REQUEST + 1], st[base + REQUEST + 2], st[base + REQUEST + 3]
    if op < OP_LOAD or op > OP_UB_STORE or _is_eviction(choice):
        return _of_poll_any(st, base, out) if op == OP_POLL_ANY and not _is_eviction(choice) else 0
    site, off = request_site(st, base), switched_off(st, base)
    if op == OP_LOAD:
        sync = SYNC if named[st[base + KERNEL] * MAX_SITES + site] & 1 and not off else 0
        return _row(out, 0, a, b, WHOLE | sync, SCALAR, site)
    if polls_line(st, base):
        first, nbytes = line_part(st, base, choice)
        n = _row(out, 0, a + first, nbytes, 0 if off else SYNC, SCALAR, site)
        return _row(out, n, st[base + UB_BASE] + st[base + REQUEST + 6] + first, nbytes, WRITE, SCALAR, site)
    if off:
        return 0
    if op == OP_POLL:
        return _row(out, 0, a, st[base + REQUEST + 4], WHOLE | SYNC, SCALAR, site)
    if op == OP_STORE:
        return _row(out, 0, a, c, WRITE | (WHOLE if c >> st[ATOMIC_SHIFT] <= 1 else 0), SCALAR, site)
    if op == OP_ATOMIC_ADD:
        return _row(out, 0, a, 8, WRITE | WHOLE | SYNC, SCALAR, site)
    if op == OP_UB_LOAD:
        return _row(out, 0, st[base + UB_BASE] + a, b, WHOLE, SCALAR, site)
    if op == OP_UB_STORE:
        return _row(out, 0, st[base + UB_BASE] + a, c, WRITE | WHOLE, SCALAR, site)
    return 0


@jit
def _is_eviction(choice):
    return choice >= CHOICE_EVICT and choice != CHOICE_ALL


@jit
def _of_poll_any(st, base, out):
    """All words that it may look at; it has not said yet which of them it sees."""
    n = 0
    for k in range(n_conditions(st, base) if not switched_off(st, base) else 0):
        n = _row(out, n, st[condition_at(base, k)], 8, WHOLE | SYNC, SCALAR, request_site(st, base))
    return n


@jit
def _of_dma(st, base, choice, out):
    """A sub-transfer of a descriptor, or with `CHOICE_ALL` all of the first that is in use."""
    k = choice & 15
    if choice == CHOICE_ALL:
        k = 0
        while k < 8 and (st[base + DMA_SLOTS + k * ENTRY_WORDS] == 0 or st[base + DMA_SLOTS + k * ENTRY_WORDS + 7] < 0):
            k += 1
    slot = base + DMA_SLOTS + k * ENTRY_WORDS
    if k >= 8 or st[slot] == 0:
        return 0
    source, target, nbytes, site = st[slot + 1], st[slot + 2], st[slot + 3], st[slot + ENTRY_SITE]
    start, end = 0, nbytes
    if choice < WHOLE_TRANSFER:
        start, end = subtransfer(st, source, target, nbytes, choice >> 4)
        start += st[slot + ENTRY_CUT] & 0xFFFFFFFF
    n = _row(out, 0, source + start, end - start, 0, AGENT_DMA + k, site)
    return _row(out, n, target + start, end - start, WRITE, AGENT_DMA + k, site)


@jit
def _of_vector(st, entry, op, ub, site, out):
    """Reads and writes of a vector instruction, all in the data buffer."""
    a, b, c, d, e = st[entry + 1], st[entry + 2], st[entry + 3], st[entry + 4], st[entry + 5]
    source, read, target, written = ranges(op, a, b, c, d, e)
    n = _row(out, 0, ub + source, read, 0, VECTOR, site) if read else 0
    if op == OP_V_DEQUANTIZE:
        n = _row(out, n, ub + d, 4, 0, VECTOR, site)
    return _row(out, n, ub + target, written, WRITE, VECTOR, site)
