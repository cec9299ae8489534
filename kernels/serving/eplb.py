"""The loop of expert balance while layers run ([xDeepServe] 4.5): loads are collected, an expert is chosen and placed,
and a redundant slot gets it.

Layers run as in `swap`; each rank has a redundant slot after its experts', and one expert at a time has a replica in
one of them.  Iterations are the slices of time; a *period* has ``slices`` of them, and then its expert is chosen.

Steps: 1 after the gate a rank counts the choices of each expert, and writes the counts to the leader's die; 2 the
leader, a core of its own, adds up the counts of a period when all ranks have written them, and chooses the expert
whose replica brings the load down most; 3 the replica goes to the rank with the least load, by the phases of
`reconfigure`; 4 tokens take replicas by turns.  No rank waits for the leader: each report has a place of its own.

The load of a period is what the hottest expert of each slice has, added up.  Loads are doubled here, so that a half is
whole.
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.common import add_words, fetch
from xccl_emu.kernels.experts.counts import INDEX_BYTES
from xccl_emu.kernels.experts.parameters import Group
from xccl_emu.kernels.group import hand_over
from xccl_emu.kernels.serving.reconfigure import FIELD_BYTES, Reloads, Swap, home_of, swap_in


class Collects(NamedTuple):
    """Where counts go, and how many there are; addresses are on the leader's die."""

    reports: int
    """[periods x slices, ranks] reports, each the choices of every expert as 4-byte words."""
    report_bytes: int
    reported: int
    """[ranks] fields: reports written."""
    slices: int
    """Iterations of a period."""
    between: int
    """Experts between two redundant slots."""


class _Reports(Collects):
    reports: xl.Writes
    reported: xl.Writes


class _Balances(Collects):
    reports: xl.Own[xl.Reads]
    reported: xl.Own[xl.Reads]


class Rebalances(Reloads):
    """What the leader touches: redundant slots of any rank, and the versions that go with them."""

    since: xl.Anywhere[xl.Writes]
    weights: xl.Anywhere[xl.Writes]


@xl.kernel
def report(rank, core, tokens, i, gate: xl.Reads, c: Group, s: Swap, k: _Reports):
    """Step 1: count what the gate chose in iteration ``i``, if a period has it, and write it to the leader's die."""
    if core == 0 and i < s.swaps * k.slices:
        yield xl.v_fill(0, k.report_bytes, step=1)
        yield from hand_over(xl.VECTOR, xl.SCALAR, 0, "counts cleared", step=1)
        for t in range(tokens):
            for choice in range(c.top_k):
                expert = yield xl.load(gate + t * INDEX_BYTES + 4 * choice, 4, step=1)
                if expert >= 0:
                    n = yield xl.ub_load(4 * expert, step=1)
                    yield xl.ub_store(4 * expert, n + 1, step=1)
        yield xl.mtu_out(0, k.reports + (i * c.n_ranks + rank) * k.report_bytes, k.report_bytes, step=1)
        yield xl.fence(step=1, sync="counts before report")
        yield xl.add(k.reported + rank * FIELD_BYTES, 1, step=1, sync="report")


def gather(period, s: Swap, k: Collects):
    """Bring the reports of a period into the data buffer, when all ranks have written them."""
    for rank in range(s.sources):
        yield xl.poll_ge(k.reported + rank * FIELD_BYTES, (period + 1) * k.slices, step=2, sync="report in")
    nbytes = k.slices * s.sources * k.report_bytes
    yield from fetch(k.reports + period * nbytes, s.nbytes, nbytes, 2, "counts in buffer")


def tokens_of(expert, first, slices, s: Swap, k: Collects):
    """Return the tokens of an expert in some slices, of all ranks; reports come after the weights in the buffer."""
    report = s.nbytes + first * s.sources * k.report_bytes + 4 * expert
    tokens = yield from add_words(report, slices * s.sources, k.report_bytes, 2)
    return tokens


def hottest(piece, s: Swap, k: Collects):
    """Return the expert with most tokens in a slice, the first of equals."""
    best = 0
    most = 0
    for expert in range(s.experts):
        tokens = yield from tokens_of(expert, piece, 1, s, k)
        if tokens > most:
            most = tokens
            best = expert
    return best


def load_with(replicated, s: Swap, k: Collects):
    """Return the load of the period, doubled, if an expert's tokens were split evenly."""
    load = 0
    for piece in range(k.slices):
        most = 0
        for expert in range(s.experts):
            tokens = yield from tokens_of(expert, piece, 1, s, k)
            most = max(most, tokens * (2 - (expert == replicated)))
        load += most
    return load


def choose(s: Swap, k: Collects):
    """Step 2: return the expert, hottest in a slice, that brings the load down most; of equals the one with more
    tokens, then the first."""
    best = -1
    least = 0
    most = 0
    for piece in range(k.slices):
        expert = yield from hottest(piece, s, k)
        load = yield from load_with(expert, s, k)
        tokens = yield from tokens_of(expert, 0, k.slices, s, k)
        better = load < least or (load == least and (tokens > most or (tokens == most and expert < best)))
        if best < 0 or better:
            best = expert
            least = load
            most = tokens
    return best


def least_loaded(replicated, s: Swap, k: Collects):
    """Step 3: return the rank whose experts have the least load, the first of equals, with one expert's split."""
    best = 0
    least = -1
    for rank in range(s.sources):
        load = 0
        for expert in range(rank * k.between, (rank + 1) * k.between):
            tokens = yield from tokens_of(expert, 0, k.slices, s, k)
            load += tokens * (2 - (expert == replicated))
        if least < 0 or load < least:
            best = rank
            least = load
    return best


@xl.kernel
def rebalance(storage: xl.Reads, decided: xl.Writes, s: Rebalances, k: _Balances):
    """The leader: the loop, once a period; ``decided`` [periods] fields get the expert and its slot."""
    for period in range(s.swaps):
        yield from gather(period, s, k)
        expert = yield from choose(s, k)
        rank = yield from least_loaded(expert, s, k)
        slot = home_of((rank + 1) * k.between - 1, k.between) + 1
        yield xl.put(decided + period * FIELD_BYTES, expert, slot, step=3)
        there = rank * s.pitch
        yield from swap_in(
            period, expert, slot, k.between, storage, s._replace(since=s.since + there, weights=s.weights + there)
        )  # fmt: skip
