"""How many tokens each expert gets, counted while they are served, on its way to the shell ([xDeepServe] 4.5, step 1).

The cores of a die count into a table that only grows, so nobody ever sets it back while others count.  An *executor*, a
core of its own, looks at the table once in an interval and writes what it sees to the shell's die; there is a place for
even and one for odd intervals, so that no core that serves tokens waits for the shell.  The shell adds up the dies.
"""

from typing import NamedTuple

from xccl_emu import lang as xl

FIELD_BYTES = 32
SHRUNK = 1
"""Code of `fail`: an expert has fewer tokens than it had an interval before."""


class Counters(NamedTuple):
    """Addresses and sizes; what is on die d is ``d * pitch`` further on than on die 0."""

    pitch: int
    counts: int
    """[quads] fields on each die: tokens of four experts."""
    counted: int
    """Word on each die: cores that have counted all their tokens."""
    taken: int
    """Word on each die: reports that the shell has read."""
    reports: int
    """[2, dies, quads] fields on the shell's die, for even and odd intervals."""
    reported: int
    """[dies] words on the shell's die, a field each: reports written."""
    dies: int
    cores: int
    """Cores of a die that serve tokens."""
    quads: int
    """A quarter of the number of experts."""
    choices: int
    """Choices of experts that a core makes: tokens x top-k."""
    intervals: int


class _ServesTokens(Counters):
    counts: xl.Own[xl.Updates]
    counted: xl.Own[xl.Updates]


class _Executes(Counters):
    counts: xl.Own[xl.Reads]
    counted: xl.Own[xl.Reads]
    taken: xl.Own[xl.Reads]
    reports: xl.Writes
    reported: xl.Updates


class _AddsUp(Counters):
    taken: xl.Anywhere[xl.Updates]
    reports: xl.Own[xl.Reads]
    reported: xl.Own[xl.Reads]


@xl.kernel
def serve(die, chosen: xl.Reads, k: _ServesTokens):
    """Count ``chosen`` [choices] experts, words of 4 bytes, as the gate of a layer has them."""
    here = die * k.pitch
    for i in range(k.choices):
        expert = yield xl.load(chosen + 4 * i, 4, step=1)
        yield xl.add(k.counts + here + expert * 8, 1, step=1, sync="count")
    yield xl.fence(step=1, sync="counts before counted")
    yield xl.add(k.counted + here, 1, step=1, sync="counted")


@xl.kernel
def execute(die, k: _Executes):
    """Report the counts so far once in an interval; the last report is of all tokens."""
    here = die * k.pitch
    for i in range(k.intervals):
        if i == k.intervals - 1:
            yield xl.poll_ge(k.counted + here, k.cores, step=2, sync="all counted")
        yield xl.poll_ge(k.taken + here, i - 1, step=2, sync="place free")
        place = k.reports + (i % 2 * k.dies + die) * k.quads * FIELD_BYTES
        for quad in range(k.quads):
            counts = k.counts + here + quad * FIELD_BYTES
            yield xl.dcci(counts, step=2, sync="counts line")
            a = yield xl.load(counts, step=2, sync="count in")
            b = yield xl.load(counts + 8, step=2, sync="count in")
            c = yield xl.load(counts + 16, step=2, sync="count in")
            d = yield xl.load(counts + 24, step=2, sync="count in")
            yield xl.put(place + quad * FIELD_BYTES, a, b, c, d, step=2)
        yield xl.fence(step=2, sync="report before number")
        yield xl.add(k.reported + die * FIELD_BYTES, 1, step=2, sync="report")


def total(interval, expert, k: Counters):
    """Add up an expert's counts of all dies."""
    tokens = 0
    for die in range(k.dies):
        report = k.reports + (interval % 2 * k.dies + die) * k.quads * FIELD_BYTES + expert * 8
        yield xl.dcci(report, step=3, sync="report line")
        more = yield xl.load(report, step=3)
        tokens += more
    return tokens


@xl.kernel
def shell(out: xl.Updates, k: _AddsUp):
    """Keep the sums of the latest interval in ``out`` [experts] words; none of them ever shrinks."""
    for i in range(k.intervals):
        for die in range(k.dies):
            yield xl.poll_ge(k.reported + die * FIELD_BYTES, i + 1, step=3, sync="report in")
        for expert in range(4 * k.quads):
            tokens = yield from total(i, expert, k)
            before = 0
            if i > 0:
                before = yield xl.load(out + expert * 8, step=3)
            if tokens < before:
                yield xl.fail(SHRUNK, expert, step=3)
            yield xl.store(out + expert * 8, tokens, step=3)
        yield xl.quiet(step=3, sync="sums visible")  # or older ones may land on them
        for die in range(k.dies):
            yield xl.add(k.taken + die * k.pitch, 1, step=3, sync="report taken")
