"""Heartbeats of a serving engine: a shell asks masters, whose loops wait for executors ([xDeepServe] 6.1).

A master has one loop: it gives its executors work, waits for all their replies, and only then looks whether there is a
heartbeat to answer.  No other core answers for it.  So an executor that hangs makes its master silent, within the loop
that it hangs in, and the shell, whose wait for an answer has a time-out, says which master that is.

Steps: 1 the shell sends a beat to all masters; 2 a master's loop turns: work for its executors, then their replies; 3
after a turn it answers the last beat; 4 the shell waits for each answer, or the time-out; 5 it keeps who was silent.

Every wait has a time-out, which may pass at any moment, rightly or not: the environment chooses, or a timer of virtual
time does.  So whatever stops, and whichever link is cut, all others return.  Or time-outs are longer than a turn of a
loop takes (``patient``).  Then only the shell's passes, where a turn does not end: the master, whose executor hangs,
raises it, in place of the clock; no fault can be found so, since it may be the master that stops.

An executor that hangs says so where only the shell's own checks look: a master that is called silent though its
executors go on is a false alarm, and an answer to a beat that was sent after a hang is missed, which ends the run.

All of it is scalar, since shells and masters run on CPUs, and words are stored, not put.
"""

from typing import NamedTuple

from xccl_emu import lang as xl

FIELD_BYTES = 32
FALSE_ALARM, MISSED = 1, 2
"""Failed with: a master that could answer is called silent; one that could not has answered."""


class Tree(NamedTuple):
    """Where words are, the same on each die and CPU, and the sizes."""

    masters: int
    executors: int
    """Executors of each master."""
    beats: int
    turns: int
    """Turns of a master's loop, which is idle after them and only answers."""
    patient: int
    """Does a time-out pass only where a turn does not end?"""
    pitch: int
    """Distance from a die to the next, or from a CPU to the next; the CPUs come after the dies."""
    shell: int
    """Number of the CPU that the shell is on; its masters are on the CPUs after it."""
    beat: int
    """On a master's CPU: number of the last beat."""
    answers: int
    """[masters] on the shell's CPU: number of the last beat that was answered."""
    stalled: int
    """[masters] on the shell's CPU: has a time-out passed?"""
    hung: int
    """[masters] on the shell's CPU: does one of its executors hang?  For checks alone."""
    over: int
    """On each: nothing more will come."""
    work: int
    """On an executor's die: number of turns that it is to take part in."""
    replies: int
    """[executors] on a master's CPU: number of turns that the executor has taken part in."""
    hangs: int
    """[executors] on a master's CPU: will it never reply again?  In place of the clock."""


class _Shell(Tree):
    beat: xl.Writes
    answers: xl.Own[xl.Reads]
    stalled: xl.Own[xl.Reads]
    hung: xl.Own[xl.Reads]
    over: xl.Writes


class Master(Tree):
    """What a master touches: words of its executors, and its own with the shell."""

    beat: xl.Own[xl.Reads]
    answers: xl.Writes
    stalled: xl.Writes
    over: xl.Own[xl.Reads] | xl.Writes
    work: xl.Writes
    replies: xl.Own[xl.Reads]
    hangs: xl.Own[xl.Reads]


class Executor(Tree):
    """What an executor touches: its words with the master, and the master's with the shell."""

    hung: xl.Writes
    over: xl.Own[xl.Reads]
    work: xl.Own[xl.Reads]
    replies: xl.Writes
    hangs: xl.Writes


def announce(word, value, step):
    """Store a word for another core; a scalar cache writes it back."""
    yield xl.store(word, value, step=step, sync="told")
    yield xl.dcci(word, step=step, sync="told line")


def look(word, step):
    """Load a word that another core may store."""
    yield xl.dcci(word, step=step, sync="seen line")
    seen = yield xl.load(word, step=step, sync="seen")
    return seen


def in_time(word, number, other, of, step):
    """Look until a word has come to a number, another one is set, or the time is up; returns the first word."""
    late = 0
    ended = 0
    seen = yield from look(word, step)
    while seen < number and ended == 0 and late == 0:
        late = yield xl.choose(2, of=of, step=step, sync="time-out")
        ended = yield from look(other, step)
        seen = yield from look(word, step)
    return seen


def answered(m, number, t: Tree):
    """Wait for a master's answer to a beat, or the time-out; returns whether it has answered."""
    word = t.answers + m * FIELD_BYTES
    stalled = t.stalled + m * FIELD_BYTES
    if t.patient:
        yield xl.poll_any((word, xl.CMP_GE, number), (stalled, xl.CMP_GE, 1), step=4, sync="answer in")
        seen = yield from look(word, 4)
    else:
        seen = yield from in_time(word, number, stalled, number * t.masters + m, 4)
    return seen >= number


@xl.kernel
def shell(silent: xl.Writes, t: _Shell):
    """Send beats, and leave of each which masters were silent, a bit each, in ``silent`` [beats] words."""
    for i in range(t.beats):
        hanging = 0
        for m in range(t.masters):
            hangs = yield from look(t.hung + m * FIELD_BYTES, 1)
            hanging = hanging | hangs << m
        for m in range(t.masters):
            yield from announce(t.beat + (t.shell + 1 + m) * t.pitch, i + 1, 1)
        silences = 0
        for m in range(t.masters):
            came = yield from answered(m, i + 1, t)
            if came and hanging >> m & 1:
                yield xl.fail(MISSED, m, step=4)
            if came == 0:
                hangs = yield from look(t.hung + m * FIELD_BYTES, 4)
                if hangs == 0 and t.patient:
                    yield xl.fail(FALSE_ALARM, m, step=4)
                silences = silences | 1 << m
        yield xl.store(silent + i * 8, silences, step=5)
    for m in range(t.masters):
        yield from announce(t.over + (t.shell + 1 + m) * t.pitch, 1, 5)


def turn(first, number, here, t: Tree):
    """A turn of a master's loop; returns 0 for one that will not end."""
    came = 0
    for e in range(t.executors):
        yield from announce(t.work + (first + e) * t.pitch, number, 2)
    for e in range(t.executors):
        if came == 0:
            reply = t.replies + here + e * FIELD_BYTES
            hangs = t.hangs + here + e * FIELD_BYTES
            if t.patient:
                came = yield xl.poll_any(
                    (reply, xl.CMP_GE, number), (hangs, xl.CMP_GE, 1), (t.over + here, xl.CMP_GE, 1), step=2,
                    sync="reply in",
                )  # fmt: skip
            else:
                seen = yield from in_time(reply, number, t.over + here, number, 2)
                came = seen < number
    return came == 0


def beat_in(number, here, t: Tree):
    """Wait for a beat, or the end; returns 0 where the time is up."""
    came = 1
    if t.patient:
        yield xl.poll_any((t.beat + here, xl.CMP_GE, number), (t.over + here, xl.CMP_GE, 1), step=3, sync="beat in")
    else:
        seen = yield from in_time(t.beat + here, number, t.over + here, number, 3)
        ended = yield from look(t.over + here, 3)
        came = seen >= number or ended
    return came


@xl.kernel
def master(m, t: Master):
    """Run the turns of the loop, answering after each one, then answer the beats that are left."""
    here = (t.shell + 1 + m) * t.pitch
    first = m * t.executors
    turns = 0
    last = 0
    going = 1
    while going and last < t.beats:
        if turns < t.turns:
            turns += 1
            going = yield from turn(first, turns, here, t)
        else:
            going = yield from beat_in(last + 1, here, t)
        if going:
            beat = yield from look(t.beat + here, 3)
            if beat > last:
                last = beat
                yield from announce(t.answers + m * FIELD_BYTES, last, 3)
            over = yield from look(t.over + here, 3)
            going = over == 0 or last == t.beats
    if going == 0:
        yield from announce(t.stalled + m * FIELD_BYTES, 1, 4)
        if t.patient:
            yield xl.poll_ge(t.over + here, 1, step=5, sync="end in")
        else:
            yield from in_time(t.over + here, 1, t.over + here, t.turns + 1, 5)
    for e in range(t.executors):
        yield from announce(t.over + (first + e) * t.pitch, 1, 5)


@xl.kernel
def executor(m, e, hangs, t: Executor):
    """Reply to each turn of the master, up to number ``hangs`` (-1 for none), where it hangs."""
    here = (m * t.executors + e) * t.pitch
    there = (t.shell + 1 + m) * t.pitch
    over = 0
    for i in range(t.turns):
        if over == 0:
            if t.patient:
                over = yield xl.poll_any(
                    (t.work + here, xl.CMP_GE, i + 1), (t.over + here, xl.CMP_GE, 1), step=2, sync="work in"
                )
            else:
                seen = yield from in_time(t.work + here, i + 1, t.over + here, i, 2)
                over = seen < i + 1
        if over == 0 and i != hangs:
            yield from announce(t.replies + there + e * FIELD_BYTES, i + 1, 2)
        elif over == 0:
            yield from announce(t.hung + m * FIELD_BYTES, 1, 2)
            yield xl.quiet(step=2, sync="hang before time-out")
            yield from announce(t.hangs + there + e * FIELD_BYTES, 1, 2)
            over = 1
