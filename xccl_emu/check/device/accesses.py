"""The accesses that an action will make, found before it is taken: races and reductions are judged by them.

An access is a row of five words (`ACCESS_WORDS`): first byte, bytes, flags, agent, site.  Bytes are counted as in the
pod's memory array, where the data buffers follow the dies.

PYTEST_DONT_REWRITE: asserts that pytest has rewritten do not compile, see `xccl_emu.testing.plugin`.
"""

from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import access, pipes, polls, touched
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.flight import request_site, switched_off
from xccl_emu.machine.device.polls import line_part, polls_line
from xccl_emu.machine.device.touched import other_range, ranges
from xccl_emu.machine.device.words import jit

START, NBYTES, FLAGS, AGENT, SITE = range(5)
ACCESS_WORDS = 5
ACCESSES_MAX = rq.CONDITIONS_MOST
"""Rows that one action needs at most."""

NAMED, TAKEN = 1, 2
"""Bits of the site of a request: it has a name; its kernel takes what it is granted."""
WRITE, SYNC, WHOLE, TENTATIVE = 1, 2, 4, 64
"""Flags: it writes; it is a synchronization (poll, atomic, add, load with a name, read of a window of flags); it is one
word or granule at once; it is a tentative read, which counts as synchronizing and races with nothing.

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
def is_of_flags(rows):
    """Return whether the first row is a read by mtu-in that synchronizes."""
    return rows[0, FLAGS] & (SYNC | TENTATIVE) == SYNC


@jit
def carries(rows, op):
    """Return whether an action copies the bytes of its first row to its second as they are, without synchronizing."""
    return ops.CARRIES >> op & 1 != 0 and rows[0, FLAGS] == 0


@jit
def instruction_of(st, base, pipe, choice):
    """Return the place of an action's request, instruction or descriptor in the state; -1 if its queue is shorter."""
    if pipe == rq.SCALAR:
        return base + REQUEST
    if pipe == rq.DMA:
        return base + ms.DMA_SLOTS + (choice & 15) * ms.ENTRY_WORDS
    j = choice & 15 if pipe == rq.MTU_IN and choice != ms.CHOICE_ALL else 0
    queue = pipes.pipe_of(base, pipe)
    return pipes.entry_of(st, queue, j) if j < st[queue + ms.PIPE_COUNT] else -1


@jit
def accesses(st, base, pipe, choice, named, out):
    """List what the action (pipe of the core at ``base``, choice) would read and write; returns how many rows.

    ``named`` has `NAMED` and `TAKEN` of each (kernel, site), [kernels * MAX_SITES].
    """
    if pipe == rq.SCALAR:
        return _of_scalar(st, base, choice, named, out)
    if pipe == rq.DMA:
        return _of_dma(st, base, choice, out)
    entry = instruction_of(st, base, pipe, choice)
    if entry < 0:
        return 0
    op, site, ub, atomic = st[entry], st[entry + ms.ENTRY_SITE], st[base + ms.UB_BASE], 1 << st[ms.ATOMIC_SHIFT]
    if ops.MARKERS >> op & 1:
        return 0
    if ops.COPIES_IN >> op & 1:
        source, nbytes = st[entry + ops.MTU_IN.source], st[entry + ops.MTU_IN.nbytes]
        start, end = 0, nbytes
        if choice < WHOLE_TRANSFER:
            start, end = pipes.subtransfer(st, source, source, nbytes, choice >> 4)
        how = SYNC if access.reads_flags(st, base, source, nbytes) else 0
        how = SYNC | TENTATIVE if st[entry + ops.MTU_IN.tentative] else how
        n = _row(out, 0, source + start, end - start, how, rq.MTU_IN, site)
        return _row(out, n, ub + st[entry + ops.MTU_IN.ub] + start, end - start, WRITE, rq.MTU_IN, site)
    if pipes.signals_next(st, entry):
        adds = SYNC if st[entry + ops.PUT_SIGNAL.how] == rq.SIGNAL_ADD else 0
        return _row(out, 0, st[entry + ops.PUT_SIGNAL.signal], 8, WRITE | WHOLE | adds, rq.MTU_OUT, site)
    if pipe == rq.VECTOR:
        return _of_vector(st, entry, op, ub, site, out)
    target, nbytes = touched.written_by(st, entry, op)
    start, end, n = st[entry + ms.ENTRY_PROGRESS], nbytes, 0
    copies, adds = ops.COPIES >> op & 1 != 0, ops.ADDS >> op & 1 != 0
    whole = not copies and (adds or nbytes <= atomic)
    if choice != ms.CHOICE_ALL and not whole:
        end = min(nbytes, start + atomic - (target + start) % atomic)
    if copies:
        n = _row(out, 0, ub + st[entry + ops.OUT.ub] + start, end - start, 0, rq.MTU_OUT, site)
    how = WRITE | (WHOLE if whole else 0) | (SYNC if adds else 0)
    return _row(out, n, target + start, end - start, how, rq.MTU_OUT, site)


@jit
def _of_scalar(st, base, choice, named, out):
    """The core's current request, or a part of it."""
    at, op = base + REQUEST, st[base + REQUEST]
    if not (ops.WORDS | ops.BUFFER_WORDS) >> op & 1 or _is_eviction(choice):
        return _of_poll_any(st, base, choice, out) if op == rq.OP_POLL_ANY and not _is_eviction(choice) else 0
    site, off = request_site(st, base), switched_off(st, base)
    known = named[st[base + ms.KERNEL] * ms.MAX_SITES + site]
    if polls_line(st, base):
        first, nbytes = line_part(st, base, choice)
        n = _row(out, 0, st[at + ops.POLL.address] + first, nbytes, 0 if off else SYNC, rq.SCALAR, site)
        ub = st[base + ms.UB_BASE] + st[at + ops.POLL.ub] + first
        return _row(out, n, ub, nbytes, WRITE, rq.SCALAR, site)
    if off and not (ops.LOADS >> op & 1 or (ops.POLLS >> op & 1 and known & TAKEN)):
        return 0
    if ops.WRITES >> op & 1:
        address, nbytes = touched.written_by(st, at, op)
        whole = WHOLE if nbytes >> st[ms.ATOMIC_SHIFT] <= 1 or ops.ATOMICS >> op & 1 else 0
        return _row(out, 0, address, nbytes, WRITE | whole | (SYNC if ops.ATOMICS >> op & 1 else 0), rq.SCALAR, site)
    if ops.READS >> op & 1:
        address, nbytes = touched.read_by(st, at, op)
        sync = ops.POLLS >> op & 1 or ((known & NAMED or access.reads_flags(st, base, address, nbytes)) and not off)
        return _row(out, 0, address, nbytes, WHOLE | (SYNC if sync else 0), rq.SCALAR, site)
    start, nbytes = touched.taken_by(st, at, op) if ops.TAKES >> op & 1 else touched.filled_by(st, at, op)
    start += st[base + ms.UB_BASE]
    if op == rq.OP_VALIDATE:  # what is read and what is right are the same bytes
        n = _row(out, 0, start, nbytes, 0, rq.SCALAR, site)
        return _row(out, n, start, nbytes, WRITE, rq.SCALAR, site)
    return _row(out, 0, start, nbytes, WHOLE if ops.TAKES >> op & 1 else WRITE | WHOLE, rq.SCALAR, site)


@jit
def _is_eviction(choice):
    return choice >= ms.CHOICE_EVICT and choice != ms.CHOICE_ALL


@jit
def _of_poll_any(st, base, choice, out):
    """The word that is chosen, or all that it may look at."""
    n, first, last = 0, 0, 0 if switched_off(st, base) else polls.n_conditions(st, base)
    if choice != ms.CHOICE_ALL:
        first, last = choice, min(last, choice + 1)
    for k in range(first, last):
        n = _row(out, n, st[polls.condition_at(base, k)], 8, WHOLE | SYNC, rq.SCALAR, request_site(st, base))
    return n


@jit
def _of_dma(st, base, choice, out):
    """A sub-transfer of a descriptor, or with `CHOICE_ALL` all of the first that is in use."""
    k = choice & 15
    if choice == ms.CHOICE_ALL:
        k = 0
        while k < 8 and (
            st[base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS] == 0 or st[base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS + 7] < 0
        ):
            k += 1
    slot = base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS
    if k >= 8 or st[slot] == 0:
        return 0
    source, target, nbytes = st[slot + ops.DMA.source], st[slot + ops.DMA.target], st[slot + ops.DMA.nbytes]
    site = st[slot + ms.ENTRY_SITE]
    start, end = 0, nbytes
    if choice < WHOLE_TRANSFER:
        start, end = pipes.subtransfer(st, source, target, nbytes, choice >> 4)
        start += st[slot + ms.ENTRY_CUT] & 0xFFFFFFFF
    n = _row(out, 0, source + start, end - start, 0, AGENT_DMA + k, site)
    return _row(out, n, target + start, end - start, WRITE, AGENT_DMA + k, site)


@jit
def _of_vector(st, entry, op, ub, site, out):
    """Reads and writes of a vector instruction, all in the data buffer."""
    source, read, target, written = ranges(st, entry, op)
    n = _row(out, 0, ub + source, read, 0, rq.VECTOR, site) if read else 0
    other, more = other_range(st, entry, op)
    n = _row(out, n, ub + other, more, 0, rq.VECTOR, site) if more else n
    return _row(out, n, ub + target, written, WRITE, rq.VECTOR, site)
