"""Probes next to a channel of KV blocks, which distinguish a cut link from full decode ([xDeepServe] 6.1).

Blocks go in the order of their numbers to slots of the decode die, which a decode step frees; when none is free the
receiver defers them, and the channel stops as if the link were cut.  So a prober has a word to ask and a word to be
answered that need no slot.  The receiver answers while it defers, and says how many slots are free.

Steps: 1 KV blocks move, until there is no slot; 2 when they stand the prober asks by a number; 3 the receiver answers
by it, and with its free slots; 4 no answer within the time-out: the link; an answer and no free slot: decode is full.

Every wait has a time-out of its own, which the environment lets pass at any moment, rightly or not, or a timer of
virtual time does: so whatever stops, and whichever link is cut, all others return.  Or time-outs are longer than any
answer takes (``patient``).  Then one passes only where none will come: the receiver, whose link is cut after its last
answer, raises it, in place of the clock; no fault can be found so, since it may be the receiver that is cut off.
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.common import ROWS, move_row
from xccl_emu.kernels.group import drain


class ProbePlaces(NamedTuple):
    """Where the state of both sides is, and the sizes."""

    blocks: int
    """[requests] on the prefill die."""
    task: int
    """On the decode die: blocks that are ready, a count."""
    done: int
    """On the prefill die: blocks that have been pulled, a count."""
    slots: int
    """[n_slots] on the decode die, used by turns."""
    ready: int
    """On the decode die: blocks that are visible, a count."""
    freed: int
    """On the decode die: slots that the decode step has freed, a count."""
    probe: int
    """On the decode die: number of the last probe."""
    answer: int
    """On the prefill die: number of the last answer, free slots at that moment."""
    late: int
    """On the prefill die: has the time-out passed?"""
    n_slots: int
    nbytes: int
    requests: int
    pulls: int
    """Blocks that are pulled before the receiver ends."""
    probes: int
    answers: int
    """Probes that are answered before the link is cut; all of them if it is not."""
    patient: int
    """Does a time-out pass only where no answer will come?"""


class _Announces(ProbePlaces):
    task: xl.Writes


@xl.kernel
def announce(c: _Announces):
    """Say of one block after the other that it is ready."""
    for _ in range(c.requests):
        yield xl.add(c.task, 1, step=1, sync="task")


def pull(number, turn, c: ProbePlaces):
    """Read a block to its slot, and say so on both sides."""
    slot = c.slots + number % c.n_slots * c.nbytes
    yield from move_row(c.blocks + number * c.nbytes, slot, c.nbytes, 0, turn, 1)
    yield xl.quiet(step=1, sync="block before ready")
    yield xl.add(c.ready, 1, step=1, sync="ready")
    yield xl.add(c.done, 1, step=1, sync="done")


def is_up(step):
    """Ask whether the time is up."""
    up = yield xl.choose(2, of=step, step=step, sync="time-out")
    return up


def came_to(word, number, step):
    """Wait until a count has come so far, or the time is up; returns whether it has."""
    late = 0
    seen = yield from look(word, step)
    while seen < number and late == 0:
        late = yield from is_up(step)
        seen = yield from look(word, step)
    return seen >= number


def look(word, step):
    """Load a count that another core writes."""
    yield xl.dcci(word, sync="seen line")
    seen = yield xl.load(word, step=step, sync="seen")
    return seen


PROBED, MAY_PULL, TIME_IS_UP = 0, 1, 2
"""What a receiver waits for."""


def await_in_time(pulled, answered, freed, c: ProbePlaces):
    """Wait for a probe, for what lets the next block go on, or until the time is up; returns which of them came."""
    came = TIME_IS_UP + 1
    while came > TIME_IS_UP:
        late = yield from is_up(3)
        probes = yield from look(c.probe, 3)
        tasks = yield from look(c.task, 1)
        frees = yield from look(c.freed, 1)
        if probes > answered:
            came = PROBED
        elif tasks > pulled and pulled - frees < c.n_slots:
            came = MAY_PULL
        elif late:
            came = TIME_IS_UP
    return came


def await_work(pulled, answered, freed, c: ProbePlaces):
    """Wait for a probe, or for what lets the next block go on; returns which of them came."""
    came = 0
    if c.patient == 0:
        came = yield from await_in_time(pulled, answered, freed, c)
    elif pulled == c.requests:
        yield xl.poll_ge(c.probe, answered + 1, step=3, sync="probe in")
    elif pulled - freed < c.n_slots:
        came = yield xl.poll_any((c.probe, xl.CMP_GE, answered + 1), (c.task, xl.CMP_GE, pulled + 1), step=1, sync="in")
    else:
        came = yield xl.poll_any(
            (c.probe, xl.CMP_GE, answered + 1), (c.freed, xl.CMP_GE, freed + 1), step=1, sync="room"
        )
    return came


class _Progresses(ProbePlaces):
    blocks: xl.Reads
    slots: xl.Writes
    ready: xl.Writes
    task: xl.Reads
    freed: xl.Reads
    probe: xl.Reads
    done: xl.Writes
    answer: xl.Writes
    late: xl.Writes


@xl.kernel
def progress(c: _Progresses):
    """Pull blocks while there are slots, and answer probes whether there are or not."""
    pulled = 0
    answered = 0
    came = MAY_PULL
    while came != TIME_IS_UP and (answered < c.answers or (c.answers == c.probes and pulled < c.pulls)):
        yield xl.dcci(c.freed, sync="freed line")
        freed = yield xl.load(c.freed, step=1, sync="freed in")
        came = yield from await_work(pulled, answered, freed, c)
        if came == PROBED:
            answered += 1
            yield xl.dcci(c.freed, sync="freed line")
            freed = yield xl.load(c.freed, step=3, sync="freed in")
            yield xl.put(c.answer, answered, c.n_slots - (pulled - freed), step=3, sync="answer")
        elif came == MAY_PULL and (pulled - freed < c.n_slots or c.patient == 0):
            yield from pull(pulled, pulled, c)
            pulled += 1
    if c.answers < c.probes and c.patient:
        yield xl.quiet(step=4, sync="answers before time-out")
        yield xl.put(c.late, 1, step=4, sync="time-out")
    yield from drain(xl.MTU_OUT, xl.MTU_IN, pulled, ROWS, "row left")


class _Probes(ProbePlaces):
    probe: xl.Writes
    done: xl.Reads
    answer: xl.Reads
    late: xl.Reads


@xl.kernel
def probe(links: xl.Writes, fulls: xl.Writes, moved, c: _Probes):
    """Ask when no more than ``moved`` blocks can move; of each probe leave whether it found the link cut in ``links``,
    and decode full in ``fulls``, [probes] words each."""
    if c.patient:
        yield xl.poll_any((c.done, xl.CMP_GE, moved), (c.late, xl.CMP_GE, 1), step=2, sync="blocks stand")
    else:
        yield from came_to(c.done, moved, 2)
    for i in range(c.probes):
        yield xl.put(c.probe, i + 1, step=2, sync="probe")
        if c.patient:
            yield xl.poll_any((c.answer, xl.CMP_GE, i + 1), (c.late, xl.CMP_GE, 1), step=4, sync="answer in")
        else:
            yield from came_to(c.answer, i + 1, 4)
        yield xl.dcci(c.answer, sync="answer line")
        number = yield xl.load(c.answer, step=4, sync="answer in")
        full = 0
        if number > i:
            free = yield xl.load(c.answer + 8, step=4)
            full = free == 0
        yield xl.store(links + i * 8, number <= i)
        yield xl.store(fulls + i * 8, full)


class _Frees(ProbePlaces):
    slots: xl.Reads
    ready: xl.Reads
    freed: xl.Writes


@xl.kernel
def decode(out: xl.Writes, c: _Frees):
    """A decode step for each block: read it where it is, and free its slot."""
    came = 1
    read = 0
    while came and read < c.requests:
        if c.patient:
            yield xl.poll_ge(c.ready, read + 1, step=1, sync="block ready")
        else:
            came = yield from came_to(c.ready, read + 1, 1)
        if came:
            yield from move_row(c.slots + read % c.n_slots * c.nbytes, out + read * c.nbytes, c.nbytes, 0, read, 1)
            # mtu-out, which had to wait for the block, comes to this after it
            yield xl.add(c.freed, 1, step=1, sync="slot freed")
            read += 1
    yield from drain(xl.MTU_OUT, xl.MTU_IN, read, ROWS, "row left")
