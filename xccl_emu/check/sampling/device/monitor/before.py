"""What the monitor takes down before an action, because it is not to be seen any more afterwards."""

from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.sampling.device.monitor.clocks import dma_row, index_of, queue_row
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import flight, pipes, polls, touched
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.cache import is_hit, through_cache
from xccl_emu.machine.device.scalar import which_holds
from xccl_emu.machine.device.words import jit, load_i64


@jit
def before_core(space, core, base, pipe, choice):
    """Take down what the core's pipe is about to do; False if there is nothing."""
    st, m = space.st, space.m
    i = index_of(m, core)
    m[ml.X_FLIGHTS] = st[flight.block_of_die(st, st[base + ms.DIE]) + ms.FLIGHT_COUNT]
    m[ml.X_OFF] = m[ml.X_PAYLOAD] = m[ml.X_SIGNAL] = m[ml.X_ADDS] = 0
    m[ml.X_SITE] = flight.request_site(st, base)
    if pipe == rq.SCALAR:
        return st[base + ms.STATUS] == ms.STATUS_RUNNING and _before_scalar(space, i, base, choice)
    if pipe == rq.DMA:
        slot = base + ms.DMA_SLOTS + (choice & 15) * ms.ENTRY_WORDS
        if choice & 15 >= ms.N_DMA_SLOTS or st[slot] == 0:
            return False
        m[ml.X_DMA], m[ml.X_EVENT], m[ml.X_SITE] = choice & 15, st[slot + ops.DMA.event], st[slot + ms.ENTRY_SITE]
        m[ml.X_OP] = st[slot]
        m[ml.X_ROW] = dma_row(m, i, choice & 15)
        return True
    queue = pipes.pipe_of(base, pipe)
    j = choice & 15 if pipe == rq.MTU_IN else 0
    if j >= st[queue + ms.PIPE_COUNT]:
        return False
    entry = pipes.entry_of(st, queue, j)
    m[ml.X_OP] = st[entry]
    m[ml.X_SOURCE], m[ml.X_TARGET], m[ml.X_NUMBER] = touched.flag_of(st, entry)
    m[ml.X_ROW] = queue_row(m, i, pipe, (st[queue + ms.PIPE_HEAD] + j) % ms.QUEUE_DEPTH)
    m[ml.X_SITE] = st[entry + ms.ENTRY_SITE]
    m[ml.X_ADDS] = ops.ADDS >> m[ml.X_OP] & 1
    if m[ml.X_OP] == rq.OP_PUT_SIGNAL:
        signals = pipes.signals_next(st, entry)
        m[ml.X_SIGNAL if signals else ml.X_PAYLOAD] = m[m[ml.SIGNALLED] + i] + 1
        m[ml.X_ADDS] = 1 if signals and st[entry + ops.PUT_SIGNAL.how] == rq.SIGNAL_ADD else 0
    return True


@jit
def _before_scalar(space, i, base, choice):
    st, m = space.st, space.m
    op = m[ml.X_OP] = st[base + REQUEST]
    m[ml.X_OFF] = 1 if flight.switched_off(st, base) else 0
    m[ml.X_ROW] = -1
    source, target, event = touched.flag_of(st, base + REQUEST)
    pipe = touched.queued_on(op, source, target)
    if pipe > rq.SCALAR and pipe <= rq.MTU_OUT:
        queue = pipes.pipe_of(base, pipe)
        m[ml.X_ROW] = queue_row(m, i, pipe, (st[queue + ms.PIPE_HEAD] + st[queue + ms.PIPE_COUNT]) % ms.QUEUE_DEPTH)
    elif through_cache(st, base):
        hits = is_hit(st, m[m[ml.CORE_NUMBER] + i], st[base + REQUEST + ops.FIRST], choice)
        m[ml.X_FETCHES] = 0 if hits else 1
    elif ops.FLAGS >> op & 1:
        m[ml.X_SOURCE], m[ml.X_TARGET], m[ml.X_NUMBER] = source, target, event
    elif ops.RINGS >> op & 1:
        m[ml.X_DMA] = max(0, pipes.free_descriptor(st, base))  # if none is free the core does not get that far
        m[ml.X_EVENT] = st[base + REQUEST + ops.DMA.event]
    elif ops.ATOMICS >> op & 1:  # does it change its word?  A swap that fails releases nothing.
        address = m[ml.X_ADDRESS] = st[base + REQUEST + ops.ATOMIC.address]
        expected = st[base + REQUEST + ops.COMPARE_SWAP.expected]
        there = op == rq.OP_COMPARE_SWAP and address >= 0 and address <= space.mem.size - 8 and address & 7 == 0
        m[ml.X_LAST] = 0 if there and load_i64(space.mem, address) != expected else 1
    elif op == rq.OP_POLL_ANY:
        m[ml.X_LAST] = 0  # which of its accesses is the one that it sees
        if choice == ms.CHOICE_ALL and polls.can_be_polled(st, base, space.mem.size):
            m[ml.X_LAST] = which_holds(space.mem, st, m[m[ml.CORE_NUMBER] + i], base, choice)
    elif ops.GROUP_WAITS >> op & 1:
        m[ml.X_PHASE] = st[base + REQUEST + ops.AWAIT.phase]
    elif ops.ARRIVALS >> op & 1:
        group = st[ms.GROUP_BASE] + st[base + ms.GROUP] * ms.GROUP_WORDS
        m[ml.X_PHASE] = st[group + ms.GROUP_PHASE]
        m[ml.X_LAST] = 1 if st[group + ms.GROUP_ARRIVED] + 1 == st[group + ms.GROUP_SIZE] else 0
    return True


@jit
def before_delivery(space, die, k):
    """Take down which write in flight is about to become visible."""
    st, m = space.st, space.m
    if die >= st[ms.N_HOMES]:
        return False
    ring = flight.block_of_die(st, die)
    if k < 0 or k >= st[ring + ms.FLIGHT_COUNT]:
        return False
    entry = flight.flight(st, ring, k)
    m[ml.X_OP] = st[entry + ms.FLIGHT_KIND]
    m[ml.X_LAST] = 1 if flight.asked(st, entry) == ms.ASKS_NO else 0
    m[ml.X_ADDRESS], m[ml.X_NBYTES], m[ml.X_CORE] = (
        st[entry + ms.FLIGHT_ADDRESS],
        st[entry + ms.FLIGHT_NBYTES],
        st[entry + ms.FLIGHT_CORE],
    )
    if m[ml.X_OP] >= ms.KIND_DMA:
        slot = flight.block_of_core(st, m[ml.X_CORE]) + ms.DMA_SLOTS + (m[ml.X_OP] - ms.KIND_DMA) * ms.ENTRY_WORDS
        m[ml.X_DMA], m[ml.X_SITE] = slot, st[slot + ms.ENTRY_SITE]
        m[ml.X_EVENT] = st[slot + ops.DMA.event] if st[slot] else -1
    return True
