"""From a search back to the machine: the actions that a transition stands for, as a schedule that anyone can replay.

A search makes some writes visible at once that on the machine are in flight first.  When its path is gone through again
to be recorded, such writes take off like all others: those that nobody else can see are delivered right away; those of
shared data stay in flight, *latent*, until the quiet of their core, which then delivers them first; or until a later
write has no room, which on the machine holds it up, and in the search did not; or until one behind a fence is visible.
"""

from xccl_emu.check.device.accesses import FLAGS, NBYTES, START, WHOLE_TRANSFER, WRITE
from xccl_emu.check.device.search.checker_state import (
    LATENT,
    LIMIT,
    LIMIT_LOG,
    MEMORY_END,
    N_ROWS,
    RECORD_BASE,
    RECORD_END,
    RECORDED,
    RECORDING,
    ROWS_CLASS,
)
from xccl_emu.check.device.search.granules import DATA
from xccl_emu.check.device.search.linked import linked, machine_step, recorded_step
from xccl_emu.lang.abi import REQUEST
from xccl_emu.lang.requests import DMA, MTU_OUT, OP_ATOMIC_ADD, OP_QUIET, OP_RETURN, SCALAR
from xccl_emu.machine.device.flight import (
    block_of_core,
    block_of_die,
    copied_for,
    deliver,
    deliverable,
    fenced,
    fences_since,
    flight,
)
from xccl_emu.machine.device.layout import (
    ACTORS_PER_CORE,
    ATOMIC_SHIFT,
    CACHE_LINE_BYTES,
    CACHE_LINES,
    CHOICE_ALL,
    CHOICE_BITS,
    DIE,
    DIE_SHIFT,
    DMA_SLOTS,
    ENTRY_WORDS,
    ERROR,
    FLIGHT_ADDRESS,
    FLIGHT_CAPACITY,
    FLIGHT_CORE,
    FLIGHT_COUNT,
    FLIGHT_SITE,
    N_CORES,
    ORDER,
    ORDER_FIFO,
    ORDER_SC,
    PIPE_COUNT,
)
from xccl_emu.machine.device.pipes import entry_of, n_subtransfers, pipe_of, signals_next
from xccl_emu.machine.device.words import call, jit


@call
def step_machine(mem, st, ck, rows, named, core, what):
    """One action of a core; ``what`` is at_once << 24 | pipe << 16 | choice, at_once if its writes are then visible."""
    if ck[RECORDING]:
        return recorded_step(mem, st, ck, rows, named, core, what) != 0
    order, pipe, choice = st[ORDER], what >> 16 & 255, what & CHOICE_ALL
    if what >> 24:
        st[ORDER] = ORDER_SC
    if _is_whole(pipe, choice):
        done = _whole_dma(mem, st, ck, core, choice, 0)
    else:
        done = machine_step(mem, st, core, pipe, choice) != 0
    st[ORDER] = order
    return done


@jit
def _is_whole(pipe, choice):
    return pipe == DMA and choice >= WHOLE_TRANSFER and choice != CHOICE_ALL


@call
def _whole_dma(mem, st, ck, core, choice, at_home):
    """All sub-transfers of a DMA transfer."""
    k, base, done = choice & 15, block_of_core(st, core), False
    slot, ring = base + DMA_SLOTS + k * ENTRY_WORDS, block_of_die(st, st[base + DIE])
    for g in range(n_subtransfers(st, st[slot + 1], st[slot + 2], st[slot + 3])):
        if machine_step(mem, st, core, DMA, k | g << 4):
            done = True
            if ck[RECORDING]:
                write_down(ck, core * ACTORS_PER_CORE + DMA, k | g << 4)
            if ck[RECORDING] and at_home:
                _deliver_own(mem, st, ck, st[base + DIE], st[ring + FLIGHT_COUNT] - 1)
    return done


@jit
def write_down(ck, actor, choice):
    """Append an action to the record."""
    at = ck[RECORD_BASE] + ck[RECORDED]
    if at >= ck[RECORD_END]:
        ck[LIMIT] = LIMIT_LOG
        return
    ck[at] = actor << CHOICE_BITS | choice
    ck[RECORDED] += 1


@linked
def step_recorded(mem, st, ck, rows, named, core, what):
    """`step_machine` while a path is recorded."""
    at_once, pipe, choice = what >> 24, what >> 16 & 255, what & CHOICE_ALL
    base = block_of_core(st, core)
    if pipe == SCALAR and (st[base + REQUEST] == OP_QUIET or st[base + REQUEST] == OP_RETURN):
        deliver_latent(mem, st, ck, core)
    if pipe == SCALAR and st[base + REQUEST] == OP_ATOMIC_ADD:
        _deliver_fenced(mem, st, ck, core)
    if at_once and not _is_whole(pipe, choice):
        return _write_at_once(mem, st, ck, rows, core, pipe)
    back = CACHE_LINE_BYTES >> st[ATOMIC_SHIFT] if pipe == SCALAR and st[CACHE_LINES] else 0
    _make_room(mem, st, ck, st[base + DIE], max(_units_written(st, ck, rows), back))
    if _is_whole(pipe, choice):
        return 1 if _whole_dma(mem, st, ck, core, choice, at_once) else 0
    done = machine_step(mem, st, core, pipe, choice)
    if done or st[ERROR]:
        write_down(ck, core * ACTORS_PER_CORE + pipe, choice)
    return done


@jit
def _units_written(st, ck, rows):
    """How many writes in flight an action makes at most."""
    n = 0
    for r in range(rows[N_ROWS, 0]):
        if rows[r, FLAGS] & WRITE and rows[r, START] < ck[MEMORY_END] and rows[r, NBYTES] > 0:
            shift = st[ATOMIC_SHIFT]
            n += (rows[r, START] + rows[r, NBYTES] - 1 >> shift) - (rows[r, START] >> shift) + 1
    return n


@call
def _make_room(mem, st, ck, die, n):
    """Deliver latent writes of a die, the oldest first, until so many granules have room among its writes in flight."""
    ring, k = block_of_die(st, die), 0
    while k < st[ring + FLIGHT_COUNT] and st[ring + FLIGHT_COUNT] + n > st[FLIGHT_CAPACITY]:
        if not st[flight(st, ring, k) + FLIGHT_SITE] & LATENT or not _deliver_own(mem, st, ck, die, k):
            k += 1


@jit
def _write_at_once(mem, st, ck, rows, core, pipe):
    """A store, or an instruction of mtu-out granule by granule; deliver what takes off unless it stays latent."""
    base = block_of_core(st, core)
    die = st[base + DIE]
    ring = block_of_die(st, die)
    queued = st[pipe_of(base, MTU_OUT) + PIPE_COUNT] if pipe == MTU_OUT else 0
    while True:
        line = CACHE_LINE_BYTES if pipe == SCALAR and st[CACHE_LINES] else 8
        _make_room(mem, st, ck, die, max(1, line >> st[ATOMIC_SHIFT]))  # a word may go in halves
        before = st[ring + FLIGHT_COUNT]
        done = machine_step(mem, st, core, pipe, 0)
        if done or st[ERROR]:
            write_down(ck, core * ACTORS_PER_CORE + pipe, 0)
        if not done:
            return 0
        for last in range(before, st[ring + FLIGHT_COUNT]):
            st[flight(st, ring, last) + FLIGHT_SITE] |= LATENT
        left = st[ring + FLIGHT_COUNT] - before if rows[ROWS_CLASS, 0] != DATA else 0
        for last in range(left, 0, -1):  # the oldest first; behind a fence, and before that a flag, it stays latent
            _deliver_own(mem, st, ck, die, clear_way(mem, st, ck, die, st[ring + FLIGHT_COUNT] - last))
        count = st[pipe_of(base, MTU_OUT) + PIPE_COUNT] if pipe == MTU_OUT else -1
        if count < queued or signals_next(st, entry_of(st, pipe_of(base, MTU_OUT), 0)):  # its signal is another action
            return 1


@call
def _deliver_own(mem, st, ck, die, k):
    """Make a write visible that the search took to be so, if it may become that now."""
    if not deliverable(st, die, k):
        return False
    st[flight(st, block_of_die(st, die), k) + FLIGHT_SITE] &= LATENT - 1
    write_down(ck, st[N_CORES] * ACTORS_PER_CORE + die, k)
    deliver(mem, st, die, k)
    return True


@jit
def _before_in_order(st, older, younger):
    """Does `fifo` put one write before another?"""
    to_one_die = st[older + FLIGHT_ADDRESS] >> st[DIE_SHIFT] == st[younger + FLIGHT_ADDRESS] >> st[DIE_SHIFT]
    return st[ORDER] == ORDER_FIFO and to_one_die


@call
def clear_way(mem, st, ck, die, k):
    """Make latent writes visible that a fence, `fifo`, or being told of by it, puts before the k-th in flight; returns
    where it is then."""
    ring, j = block_of_die(st, die), 0
    while j < k:
        older, younger = flight(st, ring, j), flight(st, ring, k)
        before = fenced(st, older, younger) or _before_in_order(st, older, younger) or copied_for(st, ring, j, k)
        if before and st[older + FLIGHT_SITE] & LATENT and _deliver_own(mem, st, ck, die, j):
            k -= 1
        else:
            j += 1
    return k


@call
def _deliver_fenced(mem, st, ck, core):
    """Make latent writes of a core visible that stand before a fence; under `fifo` all of its die."""
    die, k, fifo = st[block_of_core(st, core) + DIE], 0, st[ORDER] == ORDER_FIFO
    ring = block_of_die(st, die)
    while k < st[ring + FLIGHT_COUNT]:
        entry = flight(st, ring, k)
        latent = st[entry + FLIGHT_SITE] & LATENT and (fifo or fences_since(st, entry))
        if (st[entry + FLIGHT_CORE] != core and not fifo) or not latent or not _deliver_own(mem, st, ck, die, k):
            k += 1


@call
def deliver_latent(mem, st, ck, core):
    """Make those writes of a core visible that the search took to be visible."""
    die, k = st[block_of_core(st, core) + DIE], 0
    ring = block_of_die(st, die)
    while k < st[ring + FLIGHT_COUNT]:
        entry = flight(st, ring, k)
        latent = st[entry + FLIGHT_CORE] == core and st[entry + FLIGHT_SITE] & LATENT
        k = clear_way(mem, st, ck, die, k) if latent and st[ORDER] == ORDER_FIFO else k
        if not latent or not _deliver_own(mem, st, ck, die, k):
            k += 1


@jit
def n_latent(st, ck, core):
    """While a path is recorded: how many writes in flight of a core the search took to be visible."""
    ring, n = block_of_die(st, st[block_of_core(st, core) + DIE]), 0
    for k in range(st[ring + FLIGHT_COUNT] if ck[RECORDING] else 0):
        entry = flight(st, ring, k)
        n += 1 if st[entry + FLIGHT_CORE] == core and st[entry + FLIGHT_SITE] & LATENT else 0
    return n


@call
def in_ring(st, die, k):
    """Where in the ring the k-th write in flight that the search knows of is."""
    ring = block_of_die(st, die)
    j = 0
    while True:
        if not st[flight(st, ring, j) + FLIGHT_SITE] & LATENT:
            if k == 0:
                return j
            k -= 1
        j += 1
