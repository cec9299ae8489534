"""Dispatch of DeepEP's low-latency mode: tokens, and then their number, go straight into the peers' buffers.

Steps: 1 clean the next buffer set's signals, load a token; 2 quantize it; 3 write it to the rank of each of its
experts; 4 after the last one add -n - 1 to the signal of each expert, which is never 0; 5 wait until no signal is 0;
6 and 7 bring what came into the order of the experts.  Steps 1 to 4 are the send phase and wait for no other rank, 5 to
7 are the receive phase, DeepEP's hook: what a rank does in between overlaps with what is on its way.

There are two buffer sets, and calls, be they of dispatch or combine, take them in turn.  In a set are a signal and a
block for each source and each expert here, with room for all that may come, so a source knows by itself where a message
goes.  The cores share the experts out.  So the count of an expert follows its messages on the queue of one core, and a
fence in it is enough: nothing has to be visible before the core goes on.

What makes calls safe, without an acknowledgement: a rank sends the signals of a call to all when it has cleaned those
of the next call and has read all that came in the call before; and it returns when it has the signals of all.  So who
is in the next call knows that its set is clean on all ranks, and read.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.common import add_words
from xccl_emu.kernels.deepep.parameters import Sets
from xccl_emu.kernels.experts.counts import choice_at, load_choices, slot_of
from xccl_emu.kernels.experts.messages import SLOT_BYTES, clear_slots, message_at, prepare
from xccl_emu.kernels.experts.parameters import Buffers, Group
from xccl_emu.kernels.group import barrier, drain_halves
from xccl_emu.kernels.pull.dispatch import gather_counts, pull_rows

SIGNAL_BYTES = 8
SETS = 2
"""Buffer sets, in turn."""


def set_at(start: int, step: int, call: int, rank: int, die_bytes: int) -> int:
    """Address of what a rank has in the buffer set of a call."""
    return start + call % SETS * step + rank * die_bytes


def first_of(core: int, cores: int, n_slots: int) -> int:
    """Return the first signal of a core's share, which ends where the next core's share begins."""
    return n_slots * core // cores


def clean_next(rank, first, last, call, c: Group, s: Sets):
    """Step 1: empty this core's share of the signals of the next call."""
    signals = set_at(s.signals, s.signals_step, call + 1, rank, c.die_bytes)
    for i in range(first, last):
        yield xl.store(signals + i * SIGNAL_BYTES, 0, step=1)


def all_clean():
    """Step 1: wait until all cores have cleaned their shares; they have done all that is before this call, too."""
    yield xl.quiet(step=1, sync="next buffer clean")
    yield from barrier(1, "all cores have cleaned")


def send_message(half, t, k, i, rank, at, call, c: Group, s: Sets):
    """Step 3: write a message to the i-th expert from the own rank on, after those before it, with its routing."""
    slot = slot_of(i, rank, c.n_ranks, c.n_local)
    n = yield xl.ub_load(4 * i, step=3)
    yield xl.ub_store(4 * i, n + 1, step=3)
    yield xl.ub_store(at + c.payload + 4, rank, step=3)
    yield xl.ub_store(at + c.payload + 8, t, step=3)
    yield xl.ub_store(at + c.payload + 12, k, step=3)
    yield xl.ub_store(at + c.payload + 16, slot, step=3)
    place = (rank * c.n_local + slot % c.n_local) * s.slots + n
    data = set_at(s.data, s.data_step, call, slot // c.n_local, c.die_bytes)
    yield xl.mtu_out(at, data + place * (c.payload + SLOT_BYTES), c.payload + SLOT_BYTES, step=3)
    yield xl.set_flag(xl.MTU_OUT, xl.SCALAR, half, sync="message left")


def send_tokens(rank, tokens, first, last, call, c: Group, b: Buffers, s: Sets):
    """Steps 1-3: of all tokens those that go to this core's experts; one is loaded while another is written."""
    n_slots = c.n_ranks * c.n_local
    at = message_at(0, c.hidden, c.payload, c.quantized, s.work)
    token = c.payload
    if c.quantized:
        token = 2 * c.hidden
    yield from clear_slots(at, c.payload, c.payload + SLOT_BYTES)
    for i in range(first, last):
        yield xl.ub_store(4 * i, 0, step=3)
    sent = 0
    for t in range(tokens):
        for k in range(c.top_k):
            slot = yield xl.ub_load(choice_at(t, k, n_slots), step=1)
            i = (slot + n_slots - rank * c.n_local) % n_slots
            if slot >= 0 and first <= i < last:
                half = sent % 2
                if sent >= 2:
                    yield xl.wait_flag(xl.MTU_OUT, xl.SCALAR, half, sync="message left")
                yield from prepare(half, b.x + t * token, c, s.work, 2)
                if c.quantized:
                    yield xl.wait_flag(xl.VECTOR, xl.SCALAR, half, sync="message made")
                else:
                    yield xl.wait_flag(xl.MTU_IN, xl.SCALAR, half, sync="message made")
                yield from send_message(half, t, k, i, rank, at + half * (c.payload + SLOT_BYTES), call, c, s)
                sent = sent + 1
    yield from drain_halves(xl.MTU_OUT, xl.SCALAR, sent, "message left")


def announce(rank, first, last, call, c: Group, s: Sets):
    """Step 4: after all messages, send how many there are for each of this core's experts, zero too."""
    yield xl.fence(step=4, sync="tokens before counts")
    for i in range(first, last):
        slot = slot_of(i, rank, c.n_ranks, c.n_local)
        n = yield xl.ub_load(4 * i, step=4)
        signals = set_at(s.signals, s.signals_step, call, slot // c.n_local, c.die_bytes)
        yield xl.add(signals + (rank * c.n_local + slot % c.n_local) * SIGNAL_BYTES, -n - 1, step=4, sync="count")


def await_counts(rank, first, last, call, c: Group, b: Buffers, s: Sets):
    """Step 5: wait for this core's share of the counts, and note them, by expert and then source."""
    signals = set_at(s.signals, s.signals_step, call, rank, c.die_bytes)
    for i in range(first, last):
        count = yield xl.poll_ne(signals + i * SIGNAL_BYTES, 0, step=5, sync="counts in")
        yield xl.store(b.counts + 4 * (i % c.n_local * c.n_ranks + i // c.n_local), -count - 1, 4, step=5)


def pack(rank, core, rows, call, c: Group, b: Buffers, s: Sets):
    """Steps 6-7: payloads and routes into the outputs, each core its part of the rows."""
    first = rows * core // c.cores
    last = rows * (core + 1) // c.cores
    data = set_at(s.data, s.data_step, call, rank, c.die_bytes)
    row = 0
    turn = 0
    for i in range(c.n_ranks * c.n_local):
        n = yield xl.ub_load(4 * i, step=6)
        begin = max(row, first)
        end = min(row + n, last)
        if begin < end:
            place = (i % c.n_ranks * c.n_local + i // c.n_ranks) * s.slots + begin - row
            source = data + place * (c.payload + SLOT_BYTES)
            turn = yield from pull_rows(source, end - begin, begin, turn, c.payload, b, s.work, s.room)
        row = row + n
    yield from drain_halves(xl.MTU_OUT, xl.MTU_IN, turn, "pull half free")


def add_counts(core, stats, c: Group):
    """Step 7: to the statistics of this core's part of the experts add the rows that each has now."""
    for e in range(c.n_local * core // c.cores, c.n_local * (core + 1) // c.cores):
        rows = yield from add_words(4 * e * c.n_ranks, c.n_ranks, 4, 7)
        before = yield xl.load(stats + 4 * e, 4, step=7)
        yield xl.store(stats + 4 * e, before + rows, 4, step=7)


class _DispatchBuffers(Buffers):
    x: xl.Reads
    topk: xl.Reads
    recv_x: xl.Writes
    route: xl.Writes
    counts: xl.Updates


@xl.kernel
def send_dispatch(rank, core, tokens, call, c: Group, b: _DispatchBuffers, s: Sets):
    """The send phase on one core of a rank with this many tokens, in call number ``call``."""
    first = first_of(core, c.cores, c.n_ranks * c.n_local)
    last = first_of(core + 1, c.cores, c.n_ranks * c.n_local)
    yield from clean_next(rank, first, last, call, c, s)
    yield from load_choices(tokens, b.topk, c)
    yield from all_clean()
    yield from send_tokens(rank, tokens, first, last, call, c, b, s)
    yield from announce(rank, first, last, call, c, s)


@xl.kernel
def receive_dispatch(rank, core, call, stats: xl.Updates, c: Group, b: _DispatchBuffers, s: Sets):
    """The receive phase; ``stats`` is 0, or where the 4-byte statistics of the experts here are."""
    first = first_of(core, c.cores, c.n_ranks * c.n_local)
    last = first_of(core + 1, c.cores, c.n_ranks * c.n_local)
    yield from await_counts(rank, first, last, call, c, b, s)
    rows = yield from gather_counts(c, b)
    if stats:
        yield from add_counts(core, stats, c)
    yield from pack(rank, core, rows, call, c, b, s)


@xl.kernel
def deepep_dispatch(rank, core, tokens, call, stats: xl.Updates, c: Group, b: _DispatchBuffers, s: Sets):
    """Run both phases, one after the other."""
    yield from send_dispatch(rank, core, tokens, call, c, b, s)
    yield from receive_dispatch(rank, core, call, stats, c, b, s)
