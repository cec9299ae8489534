"""From a search back to the machine: the actions that make up a transition, as a schedule that anyone can replay.

A search makes some writes visible at once that on the machine are in flight first.  When its path is gone through again
to be recorded, such writes take off like all others: those that nobody else can see are delivered right away; writes
of shared data stay in flight, *latent*, until the quiet of their core, which then delivers them first; or until a later
write has no room, which on the machine holds it up, and in the search did not; or until one behind a fence is visible.
"""

from xccl_emu.check.device import accesses
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device.granules import DATA
from xccl_emu.check.search.device.linked import linked, machine_step, recorded_step
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import flight, pipes
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.words import call, jit


@call
def step_machine(mem, st, ck, rows, named, core, what):
    """One action of a core; ``what`` is at_once << 24 | pipe << 16 | choice, at_once if its writes are then visible."""
    if ck[cs.RECORDING]:
        return recorded_step(mem, st, ck, rows, named, core, what) != 0
    order, pipe, choice = st[ms.ORDER], what >> 16 & 255, what & ms.CHOICE_ALL
    if what >> 24:
        st[ms.ORDER] = ms.ORDER_SC
    if _is_whole(pipe, choice):
        done = _whole_dma(mem, st, ck, core, choice, 0)
    else:
        done = machine_step(mem, st, core, pipe, choice) != 0
    st[ms.ORDER] = order
    return done


@jit
def _is_whole(pipe, choice):
    return pipe == rq.DMA and choice >= accesses.WHOLE_TRANSFER and choice != ms.CHOICE_ALL


@call
def _whole_dma(mem, st, ck, core, choice, at_home):
    """All sub-transfers of a DMA transfer."""
    k, base, done = choice & 15, flight.block_of_core(st, core), False
    slot, ring = base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS, flight.block_of_die(st, st[base + ms.DIE])
    for g in range(pipes.subtransfers_of(st, slot)):
        if machine_step(mem, st, core, rq.DMA, k | g << 4):
            done = True
            if ck[cs.RECORDING]:
                write_down(ck, core * ms.ACTORS_PER_CORE + rq.DMA, k | g << 4)
            if ck[cs.RECORDING] and at_home:
                _deliver_own(mem, st, ck, st[base + ms.DIE], st[ring + ms.FLIGHT_COUNT] - 1)
    return done


@jit
def write_down(ck, actor, choice):
    """Append an action to the record."""
    at = ck[cs.RECORD_BASE] + ck[cs.RECORDED]
    if at >= ck[cs.RECORD_END]:
        ck[cs.LIMIT] = cs.LIMIT_LOG
        return
    ck[at] = actor << ms.CHOICE_BITS | choice
    ck[cs.RECORDED] += 1


@linked
def step_recorded(mem, st, ck, rows, named, core, what):
    """`step_machine` while a path is recorded."""
    at_once, pipe, choice = what >> 24, what >> 16 & 255, what & ms.CHOICE_ALL
    base = flight.block_of_core(st, core)
    if pipe == rq.SCALAR and ops.DRAINS >> st[base + REQUEST] & 1:
        deliver_latent(mem, st, ck, core)
    if pipe == rq.SCALAR and ops.ATOMICS >> st[base + REQUEST] & 1:
        _deliver_fenced(mem, st, ck, core)
    if at_once and not _is_whole(pipe, choice):
        return _write_at_once(mem, st, ck, rows, core, pipe)
    back = ms.CACHE_LINE_BYTES >> st[ms.ATOMIC_SHIFT] if pipe == rq.SCALAR and st[ms.CACHE_LINES] else 0
    _make_room(mem, st, ck, st[base + ms.DIE], max(_units_written(st, ck, rows), back))
    if _is_whole(pipe, choice):
        return 1 if _whole_dma(mem, st, ck, core, choice, at_once) else 0
    done = machine_step(mem, st, core, pipe, choice)
    if done or st[ms.ERROR]:
        write_down(ck, core * ms.ACTORS_PER_CORE + pipe, choice)
    return done


@jit
def _units_written(st, ck, rows):
    """Return how many writes in flight an action makes at most."""
    n = 0
    for r in range(rows[cs.N_ROWS, 0]):
        if (
            rows[r, accesses.FLAGS] & accesses.WRITE
            and rows[r, accesses.START] < ck[cs.MEMORY_END]
            and rows[r, accesses.NBYTES] > 0
        ):
            shift = st[ms.ATOMIC_SHIFT]
            n += (
                (rows[r, accesses.START] + rows[r, accesses.NBYTES] - 1 >> shift)
                - (rows[r, accesses.START] >> shift)
                + 1
            )
    return n


@call
def _make_room(mem, st, ck, die, n):
    """Deliver latent writes of a die, the oldest first, until ``n`` granules have room among its writes in flight."""
    ring, k = flight.block_of_die(st, die), 0
    while k < st[ring + ms.FLIGHT_COUNT] and st[ring + ms.FLIGHT_COUNT] + n > st[ms.FLIGHT_CAPACITY]:
        if not st[flight.flight(st, ring, k) + ms.FLIGHT_SITE] & cs.LATENT or not _deliver_own(mem, st, ck, die, k):
            k += 1


@jit
def _write_at_once(mem, st, ck, rows, core, pipe):
    """A store, or an instruction of mtu-out granule by granule; deliver what takes off unless it stays latent."""
    base = flight.block_of_core(st, core)
    die = st[base + ms.DIE]
    ring = flight.block_of_die(st, die)
    queued = st[pipes.pipe_of(base, rq.MTU_OUT) + ms.PIPE_COUNT] if pipe == rq.MTU_OUT else 0
    while True:
        line = ms.CACHE_LINE_BYTES if pipe == rq.SCALAR and st[ms.CACHE_LINES] else 8
        _make_room(mem, st, ck, die, max(1, line >> st[ms.ATOMIC_SHIFT]))  # a word may go in halves
        before = st[ring + ms.FLIGHT_COUNT]
        done = machine_step(mem, st, core, pipe, 0)
        if done or st[ms.ERROR]:
            write_down(ck, core * ms.ACTORS_PER_CORE + pipe, 0)
        if not done:
            return 0
        for last in range(before, st[ring + ms.FLIGHT_COUNT]):
            st[flight.flight(st, ring, last) + ms.FLIGHT_SITE] |= cs.LATENT
        left = st[ring + ms.FLIGHT_COUNT] - before if rows[cs.ROWS_CLASS, 0] != DATA else 0
        for last in range(left, 0, -1):  # the oldest first; behind a fence, and before that a flag, it stays latent
            _deliver_own(mem, st, ck, die, clear_way(mem, st, ck, die, st[ring + ms.FLIGHT_COUNT] - last))
        count = st[pipes.pipe_of(base, rq.MTU_OUT) + ms.PIPE_COUNT] if pipe == rq.MTU_OUT else -1
        # Its signal is another action
        if count < queued or pipes.signals_next(st, pipes.entry_of(st, pipes.pipe_of(base, rq.MTU_OUT), 0)):
            return 1


@call
def _deliver_own(mem, st, ck, die, k):
    """Make a write visible that the search took to be so, if it may become that now."""
    if not flight.deliverable(st, die, k):
        return False
    st[flight.flight(st, flight.block_of_die(st, die), k) + ms.FLIGHT_SITE] &= cs.LATENT - 1
    write_down(ck, st[ms.N_CORES] * ms.ACTORS_PER_CORE + die, k)
    flight.deliver(mem, st, die, k)
    return True


@jit
def _before_in_order(st, older, younger):
    """Does `fifo` put one write before another?"""
    to_one_die = (
        st[older + ms.FLIGHT_ADDRESS] >> st[ms.DIE_SHIFT] == st[younger + ms.FLIGHT_ADDRESS] >> st[ms.DIE_SHIFT]
    )
    return st[ms.ORDER] == ms.ORDER_FIFO and to_one_die


@call
def clear_way(mem, st, ck, die, k):
    """Make latent writes visible that a fence, `fifo`, or being copied for it, puts before the k-th in flight; returns
    where it is then."""
    ring, j = flight.block_of_die(st, die), 0
    while j < k:
        older, younger = flight.flight(st, ring, j), flight.flight(st, ring, k)
        before = (
            flight.fenced(st, older, younger)
            or _before_in_order(st, older, younger)
            or flight.copied_for(st, ring, j, k)
        )
        if before and st[older + ms.FLIGHT_SITE] & cs.LATENT and _deliver_own(mem, st, ck, die, j):
            k -= 1
        else:
            j += 1
    return k


@call
def _deliver_fenced(mem, st, ck, core):
    """Make latent writes of a core visible that stand before a fence; under `fifo` all of its die."""
    die, k, fifo = st[flight.block_of_core(st, core) + ms.DIE], 0, st[ms.ORDER] == ms.ORDER_FIFO
    ring = flight.block_of_die(st, die)
    while k < st[ring + ms.FLIGHT_COUNT]:
        entry = flight.flight(st, ring, k)
        latent = st[entry + ms.FLIGHT_SITE] & cs.LATENT and (fifo or flight.fences_since(st, entry))
        if (st[entry + ms.FLIGHT_CORE] != core and not fifo) or not latent or not _deliver_own(mem, st, ck, die, k):
            k += 1


@call
def deliver_latent(mem, st, ck, core):
    """Make those writes of a core visible that the search took to be visible."""
    die, k = st[flight.block_of_core(st, core) + ms.DIE], 0
    ring = flight.block_of_die(st, die)
    while k < st[ring + ms.FLIGHT_COUNT]:
        entry = flight.flight(st, ring, k)
        latent = st[entry + ms.FLIGHT_CORE] == core and st[entry + ms.FLIGHT_SITE] & cs.LATENT
        k = clear_way(mem, st, ck, die, k) if latent and st[ms.ORDER] == ms.ORDER_FIFO else k
        if not latent or not _deliver_own(mem, st, ck, die, k):
            k += 1


@jit
def n_latent(st, ck, core):
    """While a path is recorded: how many writes in flight of a core the search took to be visible."""
    ring, n = flight.block_of_die(st, st[flight.block_of_core(st, core) + ms.DIE]), 0
    for k in range(st[ring + ms.FLIGHT_COUNT] if ck[cs.RECORDING] else 0):
        entry = flight.flight(st, ring, k)
        n += 1 if st[entry + ms.FLIGHT_CORE] == core and st[entry + ms.FLIGHT_SITE] & cs.LATENT else 0
    return n


@call
def in_ring(st, die, k):
    """Return where in the ring the k-th write in flight is that the search knows of; -1 if there are fewer."""
    ring = flight.block_of_die(st, die)
    for j in range(st[ring + ms.FLIGHT_COUNT]):
        if not st[flight.flight(st, ring, j) + ms.FLIGHT_SITE] & cs.LATENT:
            if k == 0:
                return j
            k -= 1
    return -1
