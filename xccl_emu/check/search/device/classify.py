"""Looking at an action before it is taken: what it reads and writes, and whether it may be done as soon as possible."""

from xccl_emu.check.device import accesses
from xccl_emu.check.device.dependence import BYTES, DIE, HOME, OUT_OFF, WRITE, depend, poll_of
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import clocks, fields, granules
from xccl_emu.check.search.device.linked import linked
from xccl_emu.check.search.device.races import any_before, any_released
from xccl_emu.check.search.device.spans import any_on_die_of
from xccl_emu.lang import operations as ops
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REQUEST
from xccl_emu.machine.device import flight
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.cache import address_of, answers, through_cache, written_back
from xccl_emu.machine.device.pipes import entry_of, pipe_of, signals_next
from xccl_emu.machine.device.polls import polls_line
from xccl_emu.machine.device.words import jit

NOT, PLAINLY, AT_ONCE = range(3)
"""How an action may be done as soon as it is possible: not at all; as it is; or with its writes visible at once."""


@linked
def classify_action(mem, st, ck, rows, named, i, what):
    """List what an action reads and writes, note who uses these granules, and keep the highest class of them.

    ``what`` is pipe << 16 | choice.
    """
    pipe, choice, base = what >> 16, what & ms.CHOICE_ALL, flight.block_of_core(st, clocks.core_of(ck, i))
    n = accesses.accesses(st, base, pipe, choice, named, rows)
    worst = granules.LOCAL
    if pipe == rq.SCALAR and not _inside(st, ck, base, rows, n):
        n = 0  # a bad address: let the machine find it
    for r in range(n):
        if rows[r, accesses.START] < ck[cs.MEMORY_END]:
            use, start, nbytes = (
                _use(st, ck, rows, named, base, pipe, r),
                rows[r, accesses.START],
                rows[r, accesses.NBYTES],
            )
            if pipe == rq.SCALAR and through_cache(st, base):
                use, start, nbytes = use | granules.USE_CACHED, start & -ms.CACHE_LINE_BYTES, ms.CACHE_LINE_BYTES
            elif st[ms.CACHE_LINES]:
                use |= granules.USE_PAST
            worst = max(worst, granules.touch(ck, i, start, nbytes, use))
    rows[cs.N_ROWS, 0] = n
    rows[cs.ROWS_CLASS, 0] = worst
    return worst


@jit
def _inside(st, ck, base, rows, n):
    """Return whether words, or a line, lie in memory or in the core's data buffer, and not outside of both."""
    for r in range(n):
        start, nbytes, ub = rows[r, accesses.START], rows[r, accesses.NBYTES], st[base + ms.UB_BASE]
        if nbytes <= 0 or nbytes > max(ms.LINE_BYTES_MOST, st[ms.UB_BYTES]) or start < 0:
            return False
        if start + nbytes > ck[cs.MEMORY_END] and not (ub <= start and start + nbytes <= ub + st[ms.UB_BYTES]):
            return False
    return True


@jit
def _use(st, ck, rows, named, base, pipe, r):
    flags = rows[r, accesses.FLAGS]
    if pipe == rq.SCALAR and st[base + REQUEST] == rq.OP_POLL:
        if polls_line(st, base):
            return granules.USE_EXACT if flags & accesses.SYNC else granules.USE_READ
        if flight.switched_off(st, base):  # it does not wait: what is there at its moment matters
            return granules.USE_EXACT | granules.USE_UNORDERED
        part = st[base + REQUEST + ops.POLL.nbytes] != 8 or st[base + REQUEST + ops.POLL.mask] != -1
        taken = named[st[base + ms.KERNEL] * ms.MAX_SITES + rows[r, accesses.SITE]] & accesses.TAKEN
        compare = st[base + REQUEST + ops.POLL.compare]
        kind = (
            granules.USE_EXACT
            if taken or part or compare == rq.CMP_NE
            else granules.USE_AT_LEAST
            if compare == rq.CMP_GE
            else 0
        )
        return granules.USE_POLL << (rows[r, accesses.START] >> 3 & 3) | kind
    if not flags & accesses.WRITE:
        return granules.USE_EXACT if flags & accesses.SYNC else granules.USE_READ
    if pipe == rq.SCALAR:
        torn = 0 if flags & accesses.WHOLE else granules.USE_UNSTABLE
        return granules.USE_WRITE | granules.USE_BY_SCALAR | torn | (granules.USE_EXACT if flags & accesses.SYNC else 0)
    if pipe == rq.MTU_OUT and flags & accesses.WHOLE:
        exact = (
            granules.USE_EXACT
            if st[ms.SOME_SIGNAL] and signals_next(st, entry_of(st, pipe_of(base, rq.MTU_OUT), 0))
            else 0
        )
        return granules.USE_BY_OUT | (granules.USE_ADD if flags & accesses.SYNC else granules.USE_WRITE) | exact
    return (
        (granules.USE_ADD if flags & accesses.SYNC else granules.USE_WRITE)
        | granules.USE_UNSTABLE
        | (granules.USE_BY_OUT if pipe == rq.MTU_OUT else granules.USE_TORN)
    )


@jit
def _how_written(st, ck, rows, i, vector):
    """Return how the write of the last row may be done as soon as it is possible."""
    order, block, worst, r = st[ms.ORDER], clocks.block_of(ck, i), rows[cs.ROWS_CLASS, 0], rows[cs.N_ROWS, 0] - 1
    flag = worst == granules.OWN or worst == granules.STABLE or worst == granules.FIELD
    full = worst == granules.FIELD and ck[block + cs.N_MARKS] == cs.MARKS_MAX
    if full or (flag and order == ms.ORDER_RELAXED and _behind_fence(st, ck, i, rows[r, accesses.START])):
        granules.see_bytes(
            ck, rows[r, accesses.START], rows[r, accesses.START] + rows[r, accesses.NBYTES], granules.USE_UNORDERED
        )
        return NOT  # it says when others are visible, so when it becomes so matters
    if depend(OUT_OFF, OUT_OFF, DIE | HOME, order) and not _out_of_turn(st, ck, rows, i):
        return NOT  # its place among the writes of the die matters
    if worst >= granules.STABLE and (clocks.any_read(ck, block, vector) or any_released(st, ck, block, vector)):
        return NOT  # others may be ordered by it after loads or writes that are still open
    if granules.all_in_flight(st, ck):
        return NOT  # likewise
    if worst >= granules.STABLE and granules.any_used(
        ck, rows[r, accesses.START], rows[r, accesses.NBYTES], granules.USE_BY_SCALAR | granules.USE_BY_OUT
    ):
        return NOT  # which of the two pipes takes off first is a choice
    if order == ms.ORDER_SC:
        return PLAINLY if worst <= granules.OWN or (ck[cs.FULL] and worst <= granules.STABLE) else NOT
    return AT_ONCE if order == ms.ORDER_FIFO or written_at_once(st, ck, worst) else PLAINLY


@jit
def _out_of_turn(st, ck, rows, i):
    """Under `fifo`: may a write be visible at once, though others of its die go before it?  If not, that is noted."""
    worst, r = rows[cs.ROWS_CLASS, 0], rows[cs.N_ROWS, 0] - 1
    start, nbytes = rows[r, accesses.START], rows[r, accesses.NBYTES]
    if not before_its_turn(st, ck, rows):
        return False
    if worst == granules.STABLE:
        waits, use = _any_before_it(st, ck, i, start), granules.USE_UNORDERED
    else:
        full = worst == granules.DATA and ck[clocks.block_of(ck, i) + cs.N_MARKS] == cs.MARKS_MAX
        core = clocks.core_of(ck, i)
        die = st[flight.block_of_core(st, core) + ms.DIE]
        waits, use = full or _flies_before_it(st, core, die, start, nbytes), granules.USE_IN_TURN
    if waits:
        granules.see_bytes(ck, start, start + nbytes, use)
    return not waits


@jit
def _any_before_it(st, ck, i, address):
    """Has the die of a core anything in flight, or data marked, to the die of this address?"""
    die = st[flight.block_of_core(st, clocks.core_of(ck, i)) + ms.DIE]
    if _flies_before_it(st, -1, die, address, 1):
        return True
    for m in range(ck[cs.N]):
        j = ck[ck[cs.MEMBERS] + m]
        block = clocks.block_of(ck, j)
        for n in range(
            ck[block + cs.N_MARKS] if st[flight.block_of_core(st, clocks.core_of(ck, j)) + ms.DIE] == die else 0
        ):
            at = block + cs.MARKS + n * cs.MARK_WORDS
            if any_on_die_of(st, ck[at], ck[at + 1], address):
                return True
    return False


@jit
def _flies_before_it(st, core, die, start, nbytes):
    """Has another core of a die something in flight to the same die, or anybody to the same granules?"""
    ring = flight.block_of_die(st, die)
    for k in range(st[ring + ms.FLIGHT_COUNT]):
        entry = flight.flight(st, ring, k)
        address = st[entry + ms.FLIGHT_ADDRESS]
        other = st[entry + ms.FLIGHT_CORE] != core and any_on_die_of(st, start, start + nbytes, address)
        if st[entry + ms.FLIGHT_SITE] < cs.LATENT:
            if other or (start >> 5 <= address >> 5 and address >> 5 <= start + nbytes - 1 >> 5):
                return True
    return False


@jit
def _behind_fence(st, ck, i, address):
    """Does a write stand behind a fence, and before it, to the same die, one in flight or of marked data?"""
    core = clocks.core_of(ck, i)
    base = flight.block_of_core(st, core)
    if any_before(st, ck, clocks.block_of(ck, i), address, 0):
        return True
    ring = flight.block_of_die(st, st[base + ms.DIE])
    for k in range(st[ring + ms.FLIGHT_COUNT] if st[base + ms.IN_FLIGHT] else 0):
        entry = flight.flight(st, ring, k)
        if st[entry + ms.FLIGHT_CORE] == core and flight.fences_since(st, entry):
            if flight.goes_to(st, entry, address):
                return True
    return False


@jit
def _nothing_to_write(st, base):
    """Has mtu-out nothing in its queue?  Then a poll of an OWN granule can wait for no older value than the latest.

    A queued write that comes first prevents the poll for ever, since polled words grow with each write.  If it is local
    the search takes it first and finds that deadlock; if it is not, it may come after the poll: both are tried.
    """
    return st[pipe_of(base, rq.MTU_OUT) + ms.PIPE_COUNT] == 0


@jit
def written_at_once(st, ck, worst):
    """Does the search make writes to this class visible with the instruction that makes them?"""
    early = st[ms.ORDER] >= ms.ORDER_RELAXED and not granules.all_in_flight(st, ck)
    return early and (
        worst <= granules.OWN
        or worst == granules.STABLE
        or worst == granules.FIELD
        or (worst == granules.DATA and ck[cs.FULL])
    )


@jit
def before_its_turn(st, ck, rows):
    """Does it so under `fifo` with the write of the last row?"""
    worst, r = rows[cs.ROWS_CLASS, 0], rows[cs.N_ROWS, 0] - 1
    early = st[ms.ORDER] == ms.ORDER_FIFO and ck[cs.FULL] and not ck[cs.JOINING] and worst <= granules.STABLE and r >= 0
    return (
        early
        and ck[cs.UNIT_GRANULES] == 1
        and not granules.any_used(ck, rows[r, accesses.START], rows[r, accesses.NBYTES], granules.USE_IN_TURN)
    )


@jit
def how(st, ck, rows, i, base, pipe, op, off):
    """May the action that was looked at be done as soon as it is possible, and how?"""
    worst, block = rows[cs.ROWS_CLASS, 0], clocks.block_of(ck, i)
    if ck[cs.EVICTS] >> i & 1 and (
        op == rq.OP_FENCE or (op == rq.OP_WAIT_FLAG and pipe == rq.SCALAR and st[ms.ORDER] == ms.ORDER_SC)
    ):
        return NOT  # a line that is evicted waits for neither, and may go before or after it
    if ops.MARKERS >> op & 1:
        return PLAINLY
    if pipe == rq.SCALAR:
        return _how_scalar(st, ck, rows, i, base, block, op, off)
    if pipe == rq.MTU_IN:
        if rows[cs.N_ROWS, 0] and accesses.is_of_flags(rows):
            return NOT  # as a synchronizing load
        return PLAINLY if worst <= granules.OWN or _read_early(ck, rows, i, worst) else NOT
    if pipe == rq.VECTOR:
        return PLAINLY
    if pipe == rq.MTU_OUT:
        return _how_written(st, ck, rows, i, clocks.vector_at(st, ck, block, base, rq.MTU_OUT, 0))
    if worst > granules.OWN:
        return NOT
    return PLAINLY if st[ms.ORDER] == ms.ORDER_SC else AT_ONCE if written_at_once(st, ck, granules.LOCAL) else NOT


@jit
def _read_early(ck, rows, i, worst):
    """May mtu-in read shared data as soon as it can, and the read stay open until its core releases it?

    Not where flags are explored: then what is open when makes more states than it saves.
    """
    if ck[cs.FULL] != cs.MOST or ck[cs.EXPLORED] or ck[clocks.block_of(ck, i) + cs.N_READ] == cs.READ_MAX:
        return False
    return worst == granules.DATA or (
        worst == granules.FIELD and not granules.may_write(ck, i, rows[0, accesses.START], rows[0, accesses.NBYTES])
    )


@jit
def how_back(st, ck, core, line):
    """May a line be written back as soon as it is possible, and how?  If nobody else can observe it."""
    if (
        granules.worst_class(ck, address_of(st, core, line), ms.CACHE_LINE_BYTES) > granules.LOCAL
        or st[ms.ORDER] == ms.ORDER_FIFO
    ):
        return NOT
    return PLAINLY if st[ms.ORDER] == ms.ORDER_SC else AT_ONCE


@jit
def _how_scalar(st, ck, rows, i, base, block, op, off):
    worst = rows[cs.ROWS_CLASS, 0]
    if off and not ops.LOADS >> op & 1 and rows[cs.N_ROWS, 0] == 0:
        return PLAINLY
    if st[ms.CACHE_LINES]:
        if ops.CACHED >> op & 1 and worst == granules.SYNC:
            return NOT
        if ops.STORES >> op & 1:
            return PLAINLY
        line = written_back(st, clocks.core_of(ck, i), base, ms.CHOICE_ALL)
        if line >= 0:
            return how_back(st, ck, clocks.core_of(ck, i), line)
    if op == rq.OP_RETURN and ck[cs.OWNERS] >> i & 1:
        return NOT  # what it owns is judged then: the moment matters
    if ops.DRAINS >> op & 1:
        return PLAINLY if ck[block + cs.N_MARKS] == 0 else NOT
    if op == rq.OP_ARRIVE:
        alone = (
            ck[cs.FULL] == cs.MOST and st[st[ms.GROUP_BASE] + st[base + ms.GROUP] * ms.GROUP_WORDS + ms.GROUP_SIZE] == 1
        )
        releases = ck[block + cs.N_READ] or any_released(st, ck, block, ck[block + cs.VECTORS])
        return PLAINLY if alone or not releases else NOT
    if ops.LOADS >> op & 1:
        # A synchronizing load that nobody answers yet is no local matter: kernels go round and round with them.
        plain = rows[cs.N_ROWS, 0] == 0 or not rows[0, accesses.FLAGS] & accesses.SYNC
        early = worst <= granules.OWN or (ck[cs.FULL] and ck[block + cs.N_READ] < cs.READ_MAX)
        # Perhaps in flight
        own = worst >= granules.FIELD and granules.may_write(ck, i, rows[0, accesses.START], rows[0, accesses.NBYTES])
        return PLAINLY if plain and early and not own else NOT
    if ops.ATOMICS >> op & 1:
        return PLAINLY if worst <= granules.OWN else NOT
    if op == rq.OP_POLL:
        address, compare = st[base + REQUEST + ops.POLL.address], st[base + REQUEST + ops.POLL.compare]
        if worst == granules.FIELD:
            return PLAINLY if fields.polled_at_once(st, ck, i, base, address, compare) else NOT
        if worst == granules.OWN:
            return PLAINLY if _nothing_to_write(st, base) else NOT
        rises = worst == granules.STABLE and not depend(poll_of(compare), WRITE, BYTES, st[ms.ORDER])
        return PLAINLY if worst == granules.LOCAL or rises else NOT
    if ops.STORES >> op & 1 and rows[cs.N_ROWS, 0]:
        return _how_written(st, ck, rows, i, clocks.joined(ck[block + cs.VECTORS], ck[block + cs.FENCE_VECTOR]))
    return NOT if (op == rq.OP_CHOOSE and answers(st, base) > 1) or op == rq.OP_POLL_ANY else PLAINLY
