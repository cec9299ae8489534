"""Combine of DeepEP's low-latency mode: what the experts return goes straight to the homes of its tokens.

Steps: 1 clean the next buffer set's signals, and write each row, as its expert returns it, to the home of its token;
2 after the rows of an expert for a home add 1 to the expert's signal there; 3 wait until no signal is 0, and add up
each token's contributions in order of its choices, weighed, in FP32, the shared one last and as it is, and round once.
Steps 1 and 2 are the send phase, 3 is the receive phase.  `dispatch.py` has the buffer sets, and why calls are safe.

Cores share homes and experts out as in dispatch, so that the fence of one core orders the rows before their signal.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.common import ROWS, fetch, move_row
from xccl_emu.kernels.deepep.dispatch import SIGNAL_BYTES, all_clean, clean_next, first_of, set_at
from xccl_emu.kernels.deepep.parameters import Sets
from xccl_emu.kernels.experts.counts import second_table, work_at
from xccl_emu.kernels.experts.messages import ROUTE_BYTES
from xccl_emu.kernels.experts.parameters import Buffers, Group, RoutedBuffers
from xccl_emu.kernels.experts.sums import sum_tokens
from xccl_emu.kernels.group import barrier, drain, hand_over


def rows_at(slots: int, n_slots: int) -> int:
    """Return where the data buffer has room for rows on their way: after the tables and the routes of a block."""
    return work_at(n_slots) + slots * ROUTE_BYTES


def find_rows(counts, c: Group):
    """Load the counts that dispatch received, and next to each the number of its first row."""
    second = second_table(c.n_ranks * c.n_local)
    yield from fetch(counts, 0, 4 * c.n_ranks * c.n_local, 1, "received counts loaded")
    row = 0
    for i in range(c.n_ranks * c.n_local):
        yield xl.ub_store(second + 4 * i, row, step=1)
        n = yield xl.ub_load(4 * i, step=1)
        row = row + n


def send_block(home, row, n, sent, call, c: Group, b: Buffers, s: Sets):
    """Step 1 for the rows of one expert and home, from ``row`` on; returns how many rows the core has sent."""
    routes = work_at(c.n_ranks * c.n_local)
    came = set_at(s.data, s.data_step, call, home, c.die_bytes)
    yield from fetch(b.route + row * ROUTE_BYTES, routes, n * ROUTE_BYTES, 1, "routes loaded")
    for i in range(n):
        token = yield xl.ub_load(routes + i * ROUTE_BYTES + 8, step=1)
        choice = yield xl.ub_load(routes + i * ROUTE_BYTES + 12, step=1)
        target = came + (token * c.top_k + choice) * 2 * c.hidden
        work = rows_at(s.slots, c.n_ranks * c.n_local)
        yield from move_row(b.y + (row + i) * 2 * c.hidden, target, 2 * c.hidden, work, sent, 1)
        sent = sent + 1
    return sent


def send_back(rank, first, last, call, c: Group, b: Buffers, s: Sets):
    """Steps 1 and 2 for this core's homes and experts, from the own rank on."""
    sent = 0
    for i in range(first, last):
        home = (rank + i // c.n_local) % c.n_ranks
        cell = 4 * (i % c.n_local * c.n_ranks + home)
        n = yield xl.ub_load(cell, step=1)
        if n > 0:
            row = yield xl.ub_load(second_table(c.n_ranks * c.n_local) + cell, step=1)
            sent = yield from send_block(home, row, n, sent, call, c, b, s)
    yield from drain(xl.MTU_OUT, xl.MTU_IN, sent, ROWS, "row left")
    yield xl.fence(step=2, sync="rows before flags")
    for i in range(first, last):
        signals = set_at(s.signals, s.signals_step, call, (rank + i // c.n_local) % c.n_ranks, c.die_bytes)
        yield xl.add(signals + (rank * c.n_local + i % c.n_local) * SIGNAL_BYTES, 1, step=2, sync="flag")
    yield from hand_over(xl.MTU_OUT, xl.SCALAR, 0, "rows left")


def await_flags(rank, first, last, call, c: Group, s: Sets):
    """Step 3: wait, each core for its share of the signals, until all experts have sent what they had."""
    signals = set_at(s.signals, s.signals_step, call, rank, c.die_bytes)
    for i in range(first, last):
        yield xl.poll_ne(signals + i * SIGNAL_BYTES, 0, step=3, sync="flags in")
    yield from barrier(3, "all flags are in")


@xl.kernel
def send_combine(rank, core, call, c: Group, b: RoutedBuffers, s: Sets):
    """The send phase on one core of a rank, in the call of that number."""
    first = first_of(core, c.cores, c.n_ranks * c.n_local)
    last = first_of(core + 1, c.cores, c.n_ranks * c.n_local)
    yield from clean_next(rank, first, last, call, c, s)
    yield from all_clean()
    yield from find_rows(b.counts, c)
    yield from send_back(rank, first, last, call, c, b, s)


@xl.kernel
def receive_combine(rank, core, tokens, call, c: Group, b: RoutedBuffers, s: Sets):
    """The receive phase on one core of a rank with this many tokens."""
    first = first_of(core, c.cores, c.n_ranks * c.n_local)
    last = first_of(core + 1, c.cores, c.n_ranks * c.n_local)
    yield from await_flags(rank, first, last, call, c, s)
    came = set_at(s.data, s.data_step, call, rank, c.die_bytes)
    acc = work_at(c.n_ranks * c.n_local)
    yield from sum_tokens(tokens * core // c.cores, tokens * (core + 1) // c.cores, came, acc, c, b, 3)


@xl.kernel
def deepep_combine(rank, core, tokens, call, c: Group, b: RoutedBuffers, s: Sets):
    """Run both phases, one after the other."""
    yield from send_combine(rank, core, call, c, b, s)
    yield from receive_combine(rank, core, tokens, call, c, b, s)
