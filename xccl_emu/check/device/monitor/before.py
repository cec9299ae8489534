"""What the monitor takes down before an action, because it is not to be seen any more afterwards."""

from xccl_emu.check.device.monitor.clocks import dma_row, index_of, queue_row
from xccl_emu.check.device.monitor.layout import (
    CORE_NUMBER,
    SIGNALLED,
    X_A,
    X_ADDS,
    X_B,
    X_C,
    X_DMA,
    X_EVENT,
    X_FLIGHTS,
    X_LAST,
    X_OFF,
    X_OP,
    X_PAYLOAD,
    X_ROW,
    X_SIGNAL,
)
from xccl_emu.lang.abi import REQUEST
from xccl_emu.lang.requests import (
    DMA,
    MTU_IN,
    MTU_OUT,
    OP_ADD,
    OP_ARRIVE,
    OP_ATOMIC_ADD,
    OP_DMA,
    OP_MTU_IN,
    OP_MTU_OUT,
    OP_POLL_ANY,
    OP_RETURN,
    OP_SET_FLAG,
    OP_V_QUANTIZE,
    OP_WAIT_FLAG,
    SCALAR,
    SIGNAL_ADD,
    SWAPS,
    VECTOR,
)
from xccl_emu.machine.device.conditions import can_be_polled
from xccl_emu.machine.device.flight import asked, block_of_core, block_of_die, flight, switched_off
from xccl_emu.machine.device.layout import (
    ASKS_NO,
    DIE,
    DMA_SLOTS,
    ENTRY_WORDS,
    FLIGHT_ADDRESS,
    FLIGHT_CORE,
    FLIGHT_COUNT,
    FLIGHT_KIND,
    FLIGHT_NBYTES,
    GROUP,
    GROUP_ARRIVED,
    GROUP_BASE,
    GROUP_PHASE,
    GROUP_SIZE,
    GROUP_WORDS,
    KIND_DMA,
    N_DIES,
    N_DMA_SLOTS,
    PIPE_COUNT,
    PIPE_HEAD,
    QUEUE_DEPTH,
    STATUS,
    STATUS_RUNNING,
)
from xccl_emu.machine.device.pipes import entry_of, free_descriptor, pipe_of, signals_next
from xccl_emu.machine.device.scalar import first_that_holds
from xccl_emu.machine.device.words import jit, load_i64


@jit
def before_core(space, core, base, pipe, choice):
    """Take down what the core's pipe is about to do; False if there is nothing."""
    st, m = space.st, space.m
    i = index_of(m, core)
    m[X_FLIGHTS] = st[block_of_die(st, st[base + DIE]) + FLIGHT_COUNT]
    m[X_OFF] = m[X_PAYLOAD] = m[X_SIGNAL] = 0
    if pipe == SCALAR:
        return st[base + STATUS] == STATUS_RUNNING and _before_scalar(space, i, base)
    if pipe == DMA:
        slot = base + DMA_SLOTS + (choice & 15) * ENTRY_WORDS
        if choice & 15 >= N_DMA_SLOTS or st[slot] == 0:
            return False
        m[X_DMA], m[X_EVENT] = choice & 15, st[slot + 4]
        m[X_OP] = OP_DMA
        m[X_ROW] = dma_row(m, i, choice & 15)
        return True
    queue = pipe_of(base, pipe)
    j = choice & 15 if pipe == MTU_IN else 0
    if j >= st[queue + PIPE_COUNT]:
        return False
    entry = entry_of(st, queue, j)
    m[X_OP], m[X_A], m[X_B], m[X_C] = st[entry], st[entry + 1], st[entry + 2], st[entry + 3]
    m[X_ROW] = queue_row(m, i, pipe, (st[queue + PIPE_HEAD] + j) % QUEUE_DEPTH)
    m[X_ADDS] = 1 if m[X_OP] == OP_ADD else 0
    if m[X_OP] == OP_MTU_OUT and st[entry + 6]:
        signals = signals_next(st, entry)
        m[X_SIGNAL if signals else X_PAYLOAD] = m[m[SIGNALLED] + i] + 1
        m[X_ADDS] = 1 if signals and st[entry + 6] == SIGNAL_ADD else 0
    return True


@jit
def _before_scalar(space, i, base):
    st, m = space.st, space.m
    op, a, b = st[base + REQUEST], st[base + REQUEST + 1], st[base + REQUEST + 2]
    m[X_OP], m[X_A], m[X_B], m[X_C] = op, a, b, st[base + REQUEST + 3]
    m[X_OFF] = 1 if op != OP_RETURN and switched_off(st, base) else 0
    m[X_ROW] = -1
    pipe = SCALAR
    if op >= OP_V_QUANTIZE:
        pipe = VECTOR
    elif op >= OP_MTU_IN:
        pipe = MTU_IN if op == OP_MTU_IN else MTU_OUT
    elif op == OP_SET_FLAG:
        pipe = a
    elif op == OP_WAIT_FLAG:
        pipe = b
    if pipe > SCALAR and pipe <= MTU_OUT:
        queue = pipe_of(base, pipe)
        m[X_ROW] = queue_row(m, i, pipe, (st[queue + PIPE_HEAD] + st[queue + PIPE_COUNT]) % QUEUE_DEPTH)
    elif op == OP_DMA:
        m[X_DMA] = max(0, free_descriptor(st, base))  # if none is free the core does not get that far
    elif op == OP_ATOMIC_ADD:  # does it change its word?  A swap that fails releases nothing.
        there = m[X_C] == SWAPS and a >= 0 and a <= space.mem.size - 8 and a & 7 == 0
        m[X_LAST] = 0 if there and load_i64(space.mem, a) != st[base + REQUEST + 4] else 1
    elif op == OP_POLL_ANY:
        m[X_LAST] = -1
        if can_be_polled(st, base, space.mem.size):
            m[X_LAST] = first_that_holds(space.mem, st, m[m[CORE_NUMBER] + i], base)
    elif op == OP_ARRIVE:
        group = st[GROUP_BASE] + st[base + GROUP] * GROUP_WORDS
        m[X_B] = st[group + GROUP_PHASE]
        m[X_LAST] = 1 if st[group + GROUP_ARRIVED] + 1 == st[group + GROUP_SIZE] else 0
    return True


@jit
def before_delivery(space, die, k):
    """Take down which write in flight is about to become visible."""
    st, m = space.st, space.m
    if die >= st[N_DIES]:
        return False
    ring = block_of_die(st, die)
    if k < 0 or k >= st[ring + FLIGHT_COUNT]:
        return False
    entry = flight(st, ring, k)
    m[X_OP] = st[entry + FLIGHT_KIND]
    m[X_LAST] = 1 if asked(st, entry) == ASKS_NO else 0
    m[X_A], m[X_B], m[X_C] = st[entry + FLIGHT_ADDRESS], st[entry + FLIGHT_NBYTES], st[entry + FLIGHT_CORE]
    if m[X_OP] >= KIND_DMA:
        slot = block_of_core(st, m[X_C]) + DMA_SLOTS + (m[X_OP] - KIND_DMA) * ENTRY_WORDS
        m[X_DMA], m[X_EVENT] = slot, st[slot + 4]
    return True
