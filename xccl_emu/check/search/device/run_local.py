"""Transitions of a search: one action on shared memory, and all that follows from it at once."""

from xccl_emu.check.device.accesses import WHOLE_TRANSFER, instruction_of
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import classify, clocks, granules, kept, linked, moves, padding, races, record
from xccl_emu.check.search.device.checker_state import FIRST_MEMORY, GIVES_UP, ROWS_CLASS, VECTORS
from xccl_emu.check.search.device.granules import OWN, SYNC
from xccl_emu.check.search.device.inside import LANDED, land_before
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import access, cache, flight, pipes, polls
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.flight import block_of_core
from xccl_emu.machine.device.polls import awaited_by, flags_in, is_awaited, line_part, polls_line
from xccl_emu.machine.device.scalar import drained, which_holds
from xccl_emu.machine.device.sites import word_of_site
from xccl_emu.machine.device.touched import flag_of
from xccl_emu.machine.device.words import call, jit


@call
def note_site(st, ck, rows, named, i, pipe):
    """Note that a core has come to its request, or to the head of a queue, that was just looked at and can be granted.

    What cannot be granted yet waits; that is noted where it is seen.
    """
    base, block = block_of_core(st, clocks.core_of(ck, i)), clocks.block_of(ck, i)
    entry = instruction_of(st, base, pipe, ms.CHOICE_ALL)
    op, bits = st[entry], ms.CAME
    if op == rq.OP_POLL:
        bits |= ms.MAY_WAIT if _is_early(st, ck, rows, base) else 0
    elif op == rq.OP_AWAIT_GROUP:
        group = st[ms.GROUP_BASE] + st[base + ms.GROUP] * ms.GROUP_WORDS
        ended = ck[GIVES_UP]  # by another core, perhaps, before this one has arrived
        bits |= ms.MAY_WAIT if st[group + ms.GROUP_SIZE] > 1 or ended else 0
    elif op == rq.OP_WAIT_FLAG:
        vector = ck[block + VECTORS] if pipe == rq.SCALAR else clocks.vector_at(st, ck, block, base, pipe, 0)
        issued = pipe == rq.SCALAR and st[entry + ops.FLAG.target] != rq.SCALAR  # it waits in its queue
        late = not issued and clocks.brings_more(ck, block, *flag_of(st, entry), vector)
        bits |= ms.MAY_WAIT if late else 0
    else:
        bits |= ms.MAY_WAIT
    named[word_of_site(st, base, pipe, entry)] |= bits


@jit
def _is_early(st, ck, rows, base):
    """May a poll be granted sooner than on the machine: by a write that the search makes visible at once?"""
    if rows[ROWS_CLASS, 0] < OWN or rows[ROWS_CLASS, 0] == SYNC:
        return False
    at_first = ck[ck[FIRST_MEMORY] + (st[base + REQUEST + ops.POLL.address] >> 3)]
    compare, value, _ = awaited_by(st, base)
    return not is_awaited(at_first, compare, value)


# ---- what follows from an action


_SPIN = 1 << 16
"""Local actions in a row after which a kernel is taken to run for ever."""
SPIN_SITES = 10
"""This many sites of its loop are kept."""

_NOT_ALWAYS_LOCAL = ops.WORDS | ops.DRAINS | sum(1 << op for op in (rq.OP_ARRIVE, rq.OP_CHOOSE, rq.OP_POLL_ANY))
"""Requests of a scalar unit without a cache that `classify.how` may leave to a transition."""

PER_CORE = 5
"""Processes of a core: its pipes and its DMA; after all cores one process a die, which delivers."""


@jit
def over(ck):
    """Return whether there is something to report, or to begin again for."""
    return ck[cs.VIOLATION] | ck[cs.LIMIT] | ck[cs.RESTART]


@jit
def gives_up(st, ck, base):
    """Has a core come to a failure that ends a run without blame?  It is not made: nothing follows from it."""
    if ck[cs.GIVES_UP] == 0 or st[base + ms.STATUS] != ms.STATUS_RUNNING or st[base + REQUEST] != rq.OP_FAIL:
        return False
    declared = False
    for k in range(ck[cs.GIVES_UP]):
        declared = declared or ck[cs.GIVES_UP + 1 + k] == st[base + REQUEST + ops.FAIL.code]
    return declared and flight.request_site(st, base) != ms.AT_PLACE and not flight.switched_off(st, base)


@call
def run_local(mem, st, ck, rows, named, i):
    """Do everything of a core that is local to it, until nothing local is left."""
    base = flight.block_of_core(st, clocks.core_of(ck, i))
    taken, before = 0, -1
    while taken != before and not over(ck):
        before = taken
        for pipe in range(rq.SCALAR, rq.DMA):
            while not over(ck) and st[base + ms.STATUS] == ms.STATUS_RUNNING:
                if not _local(mem, st, ck, rows, named, i, pipe, 0):
                    break
                taken += 1
                if taken > _SPIN:
                    _note_spin(st, ck, i, taken - _SPIN - 1)
        for k in range(ms.N_DMA_SLOTS):
            slot = base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS
            if st[slot] and st[slot + ms.ENTRY_PROGRESS] >= 0 and not over(ck):
                taken += 1 if _local(mem, st, ck, rows, named, i, rq.DMA, k) else 0


@jit
def _note_spin(st, ck, i, n):
    """A kernel is taken to run for ever: keep where it comes by, and stop."""
    base = flight.block_of_core(st, clocks.core_of(ck, i))
    ck[cs.WITNESS], ck[cs.WITNESS + 1], ck[cs.WITNESS + 2 + n] = (
        clocks.core_of(ck, i),
        n + 1,
        flight.request_site(st, base),
    )
    if n + 1 == SPIN_SITES:
        ck[cs.LIMIT] = cs.LIMIT_SPIN


@call
def _local(mem, st, ck, rows, named, i, pipe, k):
    """Take the next action of a pipe if it is local; False if there is none that is possible."""
    base, choice = (
        flight.block_of_core(st, clocks.core_of(ck, i)),
        WHOLE_TRANSFER | k if pipe == rq.DMA else ms.CHOICE_ALL,
    )
    entry = instruction_of(st, base, pipe, choice)
    if entry < 0 or (pipe == rq.SCALAR and gives_up(st, ck, base)):
        return False
    op, off = st[entry], pipe == rq.SCALAR and flight.switched_off(st, base)
    waits = pipe == rq.SCALAR and ops.POLLS >> op & 1 != 0 and not off and not _granted(mem, st, ck, i, choice)
    linked.classify(mem, st, ck, rows, named, i, pipe << 16 | choice)  # that it is polled must be known in any case
    if pipe != rq.DMA and not off and op != rq.OP_RETURN:  # that has no site
        word = word_of_site(st, base, pipe, entry)
        if waits:
            named[word] |= ms.CAME | ms.MAY_WAIT
        elif named[word] & ms.MAY_WAIT == 0:
            note_site(st, ck, rows, named, i, pipe)
    if waits:
        polled = padding.polled_padding(st, ck, i)
        if polled >= 0 and ck[cs.VIOLATION] == 0:
            moves.blame(ck, rows, i, 0, polled)
        return False
    way = classify.how(st, ck, rows, i, base, pipe, op, off)
    if way == classify.NOT or ck[cs.RESTART]:
        return False
    ck[cs.LOCALLY] = 1
    done = linked.execute(
        mem, st, ck, rows, named, i, (1 << 24 if way == classify.AT_ONCE else 0) | pipe << 16 | choice
    )
    ck[cs.LOCALLY] = 0
    return done != 0


@call
def _granted(mem, st, ck, i, choice):
    """Would the poll that a core is at be granted now, or of a line what the choice says?"""
    core = clocks.core_of(ck, i)
    base = flight.block_of_core(st, core)
    if st[base + REQUEST] == rq.OP_POLL_ANY:
        refused = not polls.can_be_polled(st, base, ck[cs.MEMORY_END])
        return refused or which_holds(mem, st, core, base, choice) >= 0
    address, nbytes = st[base + REQUEST + ops.POLL.address], st[base + REQUEST + ops.POLL.nbytes]
    line = polls_line(st, base)
    if nbytes <= 0 or (nbytes > 8 and not line) or nbytes & nbytes - 1:
        return True  # let the machine refuse it
    if address < 0 or address > ck[cs.MEMORY_END] - nbytes or address & nbytes - 1:
        return True
    if line and st[base + ms.DIE] >= st[ms.N_DIES]:
        return True  # a CPU has no data buffer
    if line:
        first, size = line_part(st, base, choice)
        return flags_in(mem, st, base, first, size)
    compare, value, mask = polls.awaited_by(st, base)
    return polls.is_awaited(flight.read_word(mem, st, core, base, address, nbytes) & mask, compare, value & mask)


@jit
def _polls_on(mem, st, ck, named, i, choice):
    """Return whether a core is at a poll that is not granted now; that it may wait there is noted."""
    base = flight.block_of_core(st, clocks.core_of(ck, i))
    op = st[base + REQUEST]
    if not ops.POLLS >> op & 1 or flight.switched_off(st, base) or _granted(mem, st, ck, i, choice):
        return False
    if op == rq.OP_POLL:  # of several words one may not have come while another has
        named[word_of_site(st, base, rq.SCALAR, base + REQUEST)] |= ms.MAY_WAIT
    return True


@jit
def n_tried(mem, st, ck, named, process):
    """Return how many transitions of a process a search tries in a state: `n_choices`, or 0 where all would fail."""
    n = n_choices(st, ck, process)
    return 0 if n == 1 and _waits(mem, st, ck, named, process) else n


@jit
def _waits(mem, st, ck, named, process):
    """Return whether a process, which has one choice, is at what is always local, a poll not granted, or a drain."""
    m, pipe = process // PER_CORE, process % PER_CORE
    if m >= ck[cs.N] or (pipe != rq.SCALAR and pipe != rq.MTU_OUT):
        return False
    base = flight.block_of_core(st, clocks.core_of(ck, ck[ck[cs.MEMBERS] + m]))
    if pipe == rq.MTU_OUT:
        return st[ms.CACHE_LINES] == 0 and ops.MARKERS >> st[pipes.entry_of(st, pipes.pipe_of(base, pipe), 0)] & 1 != 0
    if st[ms.CACHE_LINES] == 0 and not _NOT_ALWAYS_LOCAL >> st[base + REQUEST] & 1:
        return True
    must_drain = ops.DRAINS >> st[base + REQUEST] & 1 and not drained(st, base)
    return must_drain or _polls_on(mem, st, ck, named, ck[ck[cs.MEMBERS] + m], 0)


@linked.linked
def run_local_of_all(mem, st, ck, rows, named, i, _):
    """Settle a core, then all others that this lets go on: at a barrier, or at a poll that may be granted at once."""
    run_local(mem, st, ck, rows, named, i)
    again = True
    while again and not over(ck):
        again = False
        for m in range(ck[cs.N]):
            j = ck[ck[cs.MEMBERS] + m]
            if not over(ck) and _can_wake(mem, st, ck, rows, named, j):
                kept.touch_core(st, ck, j)
                run_local(mem, st, ck, rows, named, j)
                again = True
    return 0


@jit
def _can_wake(mem, st, ck, rows, named, j):
    base = flight.block_of_core(st, clocks.core_of(ck, j))
    if st[base + ms.STATUS] != ms.STATUS_RUNNING:
        return False
    op = st[base + REQUEST]
    if ops.DRAINS >> op & 1 and ck[cs.TOUCHED] >> j & 1:  # its last mark may have ended
        if (
            ck[clocks.block_of(ck, j) + cs.N_MARKS]
            or st[ms.CACHE_LINES]
            or (op == rq.OP_RETURN and ck[cs.OWNERS] >> j & 1)
        ):
            return False
        if ck[cs.RECORDING]:
            record.deliver_latent(mem, st, ck, clocks.core_of(ck, j))
        return drained(st, base)
    if op == rq.OP_AWAIT_GROUP:
        group = st[ms.GROUP_BASE] + st[base + ms.GROUP] * ms.GROUP_WORDS
        return st[group + ms.GROUP_PHASE] != st[base + REQUEST + ops.AWAIT.phase] and not flight.switched_off(st, base)
    if op != rq.OP_POLL or flight.switched_off(st, base) or not _granted(mem, st, ck, j, ms.CHOICE_ALL):
        return False
    linked.classify(mem, st, ck, rows, named, j, rq.SCALAR << 16 | ms.CHOICE_ALL)
    return classify.how(st, ck, rows, j, base, rq.SCALAR, op, False) != classify.NOT and not ck[cs.RESTART]


# ---- what can happen in a state


@jit
def n_choices(st, ck, process):
    """Return how many transitions of a process there may be: each is then tried."""
    m = process // PER_CORE
    if m >= ck[cs.N]:
        die = ck[ck[cs.DIES] + process - ck[cs.N] * PER_CORE]
        return st[flight.block_of_die(st, die) + ms.FLIGHT_COUNT]
    base, pipe = flight.block_of_core(st, clocks.core_of(ck, ck[ck[cs.MEMBERS] + m])), process % PER_CORE
    if st[base + ms.STATUS] != ms.STATUS_RUNNING:
        return 0
    if pipe == rq.SCALAR:
        return cache.scalar_choices(st, base)
    if pipe == rq.VECTOR:
        return 0
    i, total = ck[ck[cs.MEMBERS] + m], 0
    count = ms.N_DMA_SLOTS if pipe == rq.DMA else st[pipes.pipe_of(base, pipe) + ms.PIPE_COUNT]
    if pipe == rq.MTU_OUT or count == 0 or (pipe == rq.MTU_IN and _all_whole(st, ck, i, base)):
        return min(count, 1)
    for j in range(count):
        left = _parts_left(st, ck, i, base, pipe, j)
        while left:
            left, total = left & left - 1, total + 1
    return total


@jit
def _parts_left(st, ck, i, base, pipe, j):
    """Return which parts of the j-th transfer of mtu-in, or of a DMA descriptor, are to be made, a bit each."""
    entry = (
        base + ms.DMA_SLOTS + j * ms.ENTRY_WORDS
        if pipe == rq.DMA
        else pipes.entry_of(st, pipes.pipe_of(base, rq.MTU_IN), j)
    )
    made = st[entry + ms.ENTRY_PROGRESS]
    if st[entry] == 0 or made < 0 or (pipe == rq.MTU_IN and st[entry] != rq.OP_MTU_IN):
        return 0
    if pipe == rq.DMA and _copied_whole(st, ck, i, base, j):
        return 1
    return (1 << pipes.subtransfers_of(st, entry)) - 1 & ~made


@jit
def need_not_happen(st, ck, process, n):
    """Return why the n-th transition of a process is optional: it evicts a line, or fetches one again.

    Two bits: 1 for an eviction, 2 for a load that might see its line as it is instead.
    """
    if not st[ms.CACHE_LINES] or process % PER_CORE != rq.SCALAR or process // PER_CORE >= ck[cs.N]:
        return 0
    base = flight.block_of_core(st, clocks.core_of(ck, ck[ck[cs.MEMBERS] + process // PER_CORE]))
    choice = cache.nth_scalar(st, base, n)
    if choice >= ms.CHOICE_EVICT:
        return 1
    return 2 if choice == ms.CHOICE_ANEW and cache.through_cache(st, base) else 0


@jit
def _read_whole(ck, i, source, nbytes):
    """May bytes be read in one go?  Not if a core may have own writes to flags among them in flight meanwhile."""
    inside = source >= 0 and nbytes > 0 and source + nbytes <= ck[cs.MEMORY_END]
    if not ck[cs.FULL] or not inside:
        return ck[cs.FULL] != 0
    worst = granules.worst_class(ck, source, nbytes)
    if worst == granules.SYNC and granules.any_used(ck, source, nbytes, granules.USE_CACHED):
        return False  # what is written back is no race, but may be met halfway
    return worst < granules.SYNC or not granules.may_write(ck, i, source, nbytes)


@jit
def _copied_whole(st, ck, i, base, k):
    """May a DMA transfer be made in one go?  Of flags the order matters in which they are copied."""
    slot = base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS
    source, target, nbytes = st[slot + ops.DMA.source], st[slot + ops.DMA.target], st[slot + ops.DMA.nbytes]
    if granules.worst_class(ck, target, nbytes) > granules.DATA:
        return False
    return _read_whole(ck, i, source, nbytes)


@jit
def _all_whole(st, ck, i, base):
    """May every queued transfer of mtu-in be read in one go?"""
    queue = pipes.pipe_of(base, rq.MTU_IN)
    for j in range(st[queue + ms.PIPE_COUNT]):
        entry = pipes.entry_of(st, queue, j)
        if st[entry] == rq.OP_MTU_IN:
            source, nbytes = st[entry + ops.MTU_IN.source], st[entry + ops.MTU_IN.nbytes]
            # Flags: one may be seen without another
            apart = access.reads_flags(st, base, source, nbytes) and granules.shared(ck, source, nbytes)
            if apart or not _read_whole(ck, i, source, nbytes):
                return False
    return ck[cs.FULL] != 0


@jit
def _choice(st, ck, i, base, pipe, n):
    """The n-th choice of a pipe."""
    if pipe == rq.SCALAR:
        return cache.nth_scalar(st, base, n)
    if pipe == rq.MTU_OUT:
        return 0
    if pipe == rq.MTU_IN and _all_whole(st, ck, i, base):
        return ms.CHOICE_ALL
    for j in range(ms.N_DMA_SLOTS if pipe == rq.DMA else st[pipes.pipe_of(base, rq.MTU_IN) + ms.PIPE_COUNT]):
        left, part = _parts_left(st, ck, i, base, pipe, j), 0
        while left:
            if left & 1 and n == 0:
                return WHOLE_TRANSFER | j if pipe == rq.DMA and _copied_whole(st, ck, i, base, j) else j | part << 4
            left, part, n = left >> 1, part + 1, n - (left & 1)
    return 0


@linked.linked
def make_transition(mem, st, ck, rows, named, process, n):
    """Make the n-th transition of a process, with all that follows from it; False, and nothing changed, if it is none.

    What changed is logged; the fingerprint is up to date.  A violation, a limit or the wish to begin again is in the
    checker state.
    """
    mark, before = ck[cs.LOG], ck[cs.HASH]
    ck[cs.TOUCHED] = 0
    m = process // PER_CORE
    if m >= ck[cs.N]:
        done = _deliver(mem, st, ck, rows, named, ck[ck[cs.DIES] + process - ck[cs.N] * PER_CORE], n)
    else:
        done = _act(mem, st, ck, rows, named, ck[ck[cs.MEMBERS] + m], process % PER_CORE, n)
    if not done and not ck[cs.VIOLATION]:
        kept.put_back(st, ck)
        cs.step_back(mem, st, ck, mark)
        ck[cs.HASH] = before
        return 0
    kept.log_touched(st, ck)
    return 1


@jit
def find_races(mem, st, ck, rows, named):
    """Find races in the state that a transition has led to.

    What is open follows from the state, so one that is known has none: it was judged when it was reached first.
    """
    if ck[cs.TOUCHED] and not ck[cs.LIMIT] and not ck[cs.RESTART]:
        linked.find_race(mem, st, ck, rows, named, ck[cs.TOUCHED])


@jit
def go(mem, st, ck, rows, named, process, n):
    """Make a transition, and find races."""
    done = linked.transition(mem, st, ck, rows, named, process, n)
    if done:
        find_races(mem, st, ck, rows, named)
    return done


@jit
def _act(mem, st, ck, rows, named, i, pipe, n):
    """Take the n-th choice of a pipe, with what follows from it."""
    choice = _choice(st, ck, i, flight.block_of_core(st, clocks.core_of(ck, i)), pipe, n)
    evicts = pipe == rq.SCALAR and choice >= ms.CHOICE_EVICT
    if evicts:
        what = rq.SCALAR << 16 | choice if _may_evict(st, ck, i, choice) else -1
    else:
        what = _possible(mem, st, ck, rows, named, i, pipe, choice)
    if what < 0:
        return False
    kept.touch_core(st, ck, i)
    asks = pipe == rq.SCALAR and st[flight.block_of_core(st, clocks.core_of(ck, i)) + REQUEST] == rq.OP_CHOOSE
    if pipe == rq.SCALAR and not evicts and not asks:  # what was loaded early is long complete
        clocks.close_reads(ck, clocks.block_of(ck, i), ck[clocks.block_of(ck, i) + cs.VECTORS])
    if evicts or (pipe == rq.MTU_OUT and what & ms.CHOICE_ALL != ms.CHOICE_ALL):
        linked.classify(mem, st, ck, rows, named, i, pipe << 16 | choice)
    if not linked.execute(mem, st, ck, rows, named, i, what):
        return False
    linked.run_local_all(mem, st, ck, rows, named, i)
    return True


@jit
def _possible(mem, st, ck, rows, named, i, pipe, choice):
    """Return what `execute` is to take for a choice of a pipe; -1 if that cannot be, or is local."""
    base = flight.block_of_core(st, clocks.core_of(ck, i))
    entry, off = instruction_of(st, base, pipe, choice), False
    if entry < 0:  # what is followed again, to be recorded, has gone another way
        return -1
    if pipe == rq.SCALAR and gives_up(st, ck, base):
        return -1
    if pipe == rq.SCALAR:
        off = flight.switched_off(st, base)
        if _polls_on(mem, st, ck, named, i, choice):
            return -1
        back = st[ms.CACHE_LINES] != 0 and cache.written_back(st, clocks.core_of(ck, i), base, choice) >= 0
        if not back and ops.DRAINS >> st[entry] & 1:
            if ck[cs.RECORDING]:
                record.deliver_latent(mem, st, ck, clocks.core_of(ck, i))
            if not drained(st, base):
                return -1
    elif pipe == rq.DMA and st[entry + ms.ENTRY_PROGRESS] < 0:
        return -1
    # Whether it is local is asked of all that is left of a transfer, as `_local` asks it.
    linked.classify(mem, st, ck, rows, named, i, pipe << 16 | (ms.CHOICE_ALL if pipe == rq.MTU_OUT else choice))
    waits = pipe == rq.SCALAR and polls_line(st, base)  # not as a whole, or it had been done; other parts may be read
    if (classify.how(st, ck, rows, i, base, pipe, st[entry], off) != classify.NOT and not waits) or ck[cs.RESTART]:
        return -1  # local: it was done, or it cannot be
    if pipe == rq.MTU_IN and not pipes.can_read(st, base, choice):
        return -1
    worst, at_once = rows[cs.ROWS_CLASS, 0], False
    if ck[cs.FULL] and worst == granules.DATA and pipe == rq.MTU_OUT:
        choice = ms.CHOICE_ALL
    if pipe == rq.DMA:
        at_once = ck[cs.FULL] and worst <= granules.DATA and classify.written_at_once(st, ck, worst)
    elif (pipe == rq.MTU_OUT and st[entry] != rq.OP_FENCE) or (pipe == rq.SCALAR and ops.STORES >> st[entry] & 1):
        at_once = classify.written_at_once(st, ck, worst) or classify.before_its_turn(st, ck, rows)
    return (1 << 24 if at_once else 0) | pipe << 16 | choice


@jit
def _may_evict(st, ck, i, choice):
    """Return whether this place of a core's cache has a changed line that others may see."""
    core = clocks.core_of(ck, i)
    line = cache.written_back(st, core, flight.block_of_core(st, core), choice) if st[ms.CACHE_LINES] else -1
    return (
        line >= 0 and granules.worst_class(ck, cache.address_of(st, core, line), ms.CACHE_LINE_BYTES) > granules.LOCAL
    )


@jit
def _deliver(mem, st, ck, rows, named, die, k):
    """Make a write in flight visible."""
    if ck[cs.RECORDING]:
        k = record.clear_way(mem, st, ck, die, record.in_ring(st, die, k))
    if not flight.deliverable(st, die, k):
        return False
    ring = flight.block_of_die(st, die)
    entry = flight.flight(st, ring, k)
    core, kind, address = st[entry + ms.FLIGHT_CORE], st[entry + ms.FLIGHT_KIND], st[entry + ms.FLIGHT_ADDRESS]
    i, base, mark = moves.number_of(ck, core), flight.block_of_core(st, core), ck[cs.LOG]
    first = flight.flight(st, ring, 0)
    if entry >= first:
        cs.save(mem, st, ck, cs.STATE | cs.RAW, first, entry - first + st[ms.FLIGHT_WORDS])
    else:
        for j in range(k + 1):
            cs.save(mem, st, ck, cs.STATE | cs.RAW, flight.flight(st, ring, j), st[ms.FLIGHT_WORDS])
    cs.save(mem, st, ck, cs.STATE | cs.RAW, ring, 2)
    cs.save_bytes(mem, st, ck, address, st[entry + ms.FLIGHT_NBYTES])
    kept.touch_readers(st, ck, address, st[entry + ms.FLIGHT_NBYTES])
    waits = ops.DRAINS >> st[base + REQUEST] & 1 != 0
    fences = flight.fences_since(st, entry)
    lands = ck[cs.JOINING] and ck[clocks.block_of(ck, i) + cs.FENCE_VECTOR]
    releases = kind < ms.KIND_DMA and (lands or races.any_before(st, ck, clocks.block_of(ck, i), address, fences))
    signal = flight.signals_before(st, ring, k, core, address) + 1 if flight.part_of(st, entry) == ms.IS_SIGNAL else 0
    releases = releases or (signal > 0 and races.any_signalled(st, ck, clocks.block_of(ck, i), address, signal))
    fetches = st[ms.CACHE_LINES] != 0 and kind == ms.KIND_SCALAR  # its core may wait for the line
    drains = waits and st[base + ms.IN_FLIGHT] - record.n_latent(st, ck, core) == 1
    last = kind >= ms.KIND_DMA or releases or fetches or drains
    if last:
        kept.touch_core(st, ck, i)
    else:
        cs.save(mem, st, ck, cs.STATE | cs.NOW, base + ms.IN_FLIGHT, 1)
    if ck[cs.JOINING]:
        moves.flag_landed(mem, st, ck, i, die, k)
    if st[ms.N_LIVE] < st[ms.N_ACTIVE]:
        races.note_late(st, ck, i, address, st[entry + ms.FLIGHT_NBYTES])
    cs.add_hash(ck, cs.delivered_hash(st, ring, k))
    slot = base + ms.DMA_SLOTS + (kind - ms.KIND_DMA) * ms.ENTRY_WORDS
    event = st[slot + ops.DMA.event] if kind >= ms.KIND_DMA else 0
    if ck[cs.RECORDING]:
        record.write_down(ck, st[ms.N_CORES] * ms.ACTORS_PER_CORE + die, k)
    flight.deliver(mem, st, die, k)
    if releases and signal:
        races.release_signalled(st, ck, clocks.block_of(ck, i), address, signal)
    if releases:
        races.release_before(st, ck, clocks.block_of(ck, i), address, fences)
        land_before(st, ck, clocks.block_of(ck, i), address, fences, LANDED)
    ck[cs.ACTIONS] += 1
    if st[ms.ERROR] != 0:
        ck[cs.VIOLATION] = cs.MACHINE
    cs.hash_changes(mem, st, ck, mark)
    if kind >= ms.KIND_DMA and st[slot] == 0:
        clocks.note_set(
            ck,
            clocks.block_of(ck, i),
            rq.DMA,
            rq.SCALAR,
            event,
            clocks.completion_of(ck, clocks.block_of(ck, i), kind - ms.KIND_DMA),
        )
    if last:
        linked.run_local_all(mem, st, ck, rows, named, i)
    return True
