"""Rollback of an iteration (xDeepServe 6.2, stage 3): on an abort all ranks go back to the same iteration.

In an iteration each rank writes a row to every other one and reads the others' rows.  A rank may fail to, in any
iteration, and reports that.  A supervisor writes a new epoch to all ranks, then or at any other moment, also while they
wait for each other: each wait looks at that word too.

Steps: 1 send the rows of the iteration, then fields that announce them; 2 wait for the fields of all, or an abort;
3 read the rows and go on to the next iteration; 4 on an abort announce the epoch and the own iteration to all ranks;
5 wait for the announcements of all, and go on at the least; 6 when all iterations are through report to rank 0, which
signals to all when everybody is.

A field and an announcement of step 4 are one word, epoch and iteration, so the two always belong to each
other.  Ranks are at most one iteration apart, since each needs the others' rows, so two buffers for rows are enough,
by the parity of the iteration.  A buffer is not reused until its reader has announced the epoch, after its last
read.  Nobody sends in an epoch before all have announced it, so a field is of the own epoch or of an earlier one.  What
others announce in step 4 may be of a later one: then that abort is on its way here too, and they are no further than
they would have said.

The end is no part of an epoch: rank 0 says it when all ranks are through, and none of them can be rolled back any more,
because the least iteration of all is the last one.  A rank says in which epoch its last iteration was: what was through
before a rollback does not count.

Nothing is drained on an abort: rows of the aborted attempt come before the fence of the next one.  A fence also
separates announcements of two epochs in the same word, since memory need not keep their order.

A rank may decode meanwhile: then what it has sampled, and its KV cache, go back too (`sampled`).
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.group import hand_over
from xccl_emu.kernels.sampled import Decoding, attend, go_back, mix, sample

FIELD_BYTES = 32
HEADER_BYTES = 32
"""In front of each row: the epoch in which it was sent."""
EPOCH = 1 << 16
"""Words that hold epoch and iteration are ``epoch * EPOCH + iteration``."""
END = -1
"""In place of epoch and iteration."""
STALE = 7
"""Failed with: the row of another epoch was announced."""
CAME, ABORTED, OVER = range(3)


class RankWords(NamedTuple):
    """What a rank knows of the others: words are where they are on die 0, the same on each die."""

    me: int
    ranks: int
    iterations: int
    readies: int
    """By sender: the epoch that it has come to, and its iteration."""
    dones: int
    """On rank 0, by sender: one more than the epoch in which it came to the end."""
    over: int
    abort: int
    errors: int
    """On the supervisor's die: iterations in which something went wrong."""
    pitch: int
    """From a die to the next."""


class OfRank(RankWords):
    """What a rank touches; only rank 0 waits for ``dones``, and says that it is ``over``."""

    readies: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    dones: xl.Updates
    over: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    abort: xl.Own[xl.Reads]
    errors: xl.Writes


class _OfSupervisor(RankWords):
    over: xl.Own[xl.Reads]
    abort: xl.Anywhere[xl.Writes]
    errors: xl.Reads


class IterationRows(NamedTuple):
    """Where the rows of an iteration are on die 0, and their size."""

    nbytes: int
    """Bytes of a row."""
    rows: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    """[2, ranks] rows with headers, by parity and sender."""
    fields: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    """By sender: the epoch and number of iterations whose rows are there."""


def place(rows, ranks, sender, i, nbytes):
    """Return where among a die's rows a sender's row of an iteration goes."""
    return rows + (i % 2 * ranks + sender) * (HEADER_BYTES + nbytes)


def wait(word, least, epoch, r: RankWords, step, sync):
    """Wait until a word has come to ``least``, a later epoch is there, or the end."""
    abort = r.abort + r.me * r.pitch
    over = r.over + r.me * r.pitch
    came = yield xl.poll_any(
        (word, xl.CMP_GE, least), (abort, xl.CMP_GE, epoch + 1), (over, xl.CMP_GE, 1), step=step, sync=sync
    )
    return came


def send(own, i, epoch, r: RankWords, w: IterationRows):
    """Write the row of an iteration to all others, and announce it."""
    yield xl.mtu_in(own + i * w.nbytes, HEADER_BYTES, w.nbytes, step=1)
    yield xl.ub_store(0, epoch, step=1)
    yield from hand_over(xl.MTU_IN, xl.MTU_OUT, 0, "row in buffer", step=1)
    for j in range(1, r.ranks):
        rows = w.rows + (r.me + j) % r.ranks * r.pitch
        yield xl.mtu_out(0, place(rows, r.ranks, r.me, i, w.nbytes), HEADER_BYTES + w.nbytes, step=1)
    yield xl.fence(step=1, sync="rows before fields")
    for j in range(1, r.ranks):
        there = (r.me + j) % r.ranks * r.pitch
        yield xl.put(w.fields + there + r.me * FIELD_BYTES, epoch * EPOCH + i + 1, step=1, sync="field")
    yield from hand_over(xl.MTU_OUT, xl.SCALAR, 1, "rows sent", step=1)


def all_sent(i, epoch, r: RankWords, w: IterationRows):
    """Wait until the rows of all others are there; 0 if there is an abort."""
    came = CAME
    j = 1
    while j < r.ranks and came == CAME:
        field = w.fields + r.me * r.pitch + (r.me + j) % r.ranks * FIELD_BYTES
        came = yield from wait(field, epoch * EPOCH + i + 1, epoch, r, 2, "field in")
        j += 1
    return came == CAME


def receive(out, i, epoch, made, r: RankWords, w: IterationRows, t: Decoding):
    """Copy the rows of all others out; returns what their tokens make of ``made``."""
    for j in range(1, r.ranks):
        row = HEADER_BYTES + w.nbytes
        sender = (r.me + j) % r.ranks
        yield xl.mtu_in(place(w.rows + r.me * r.pitch, r.ranks, sender, i, w.nbytes), row, row, step=3)
        yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "row read", step=3)
        seen = yield xl.ub_load(row, step=3)
        if seen != epoch:
            yield xl.fail(STALE, seen, step=3)
        if t.prompt:
            made = yield from mix(made, row)
        yield xl.mtu_out(row + HEADER_BYTES, out + (i * (r.ranks - 1) + j - 1) * w.nbytes, w.nbytes, step=3)
        yield from hand_over(xl.MTU_OUT, xl.SCALAR, 1, "row copied", step=3)
    return made


def agree(i, before, r: RankWords):
    """Return an epoch later than the one before and the least iteration of all, as one word; or the end."""
    least = i
    epoch = before
    came = ABORTED
    while came == ABORTED:
        yield xl.poll_ge(r.abort + r.me * r.pitch, epoch + 1, step=4, sync="abort in")
        yield xl.dcci(r.abort + r.me * r.pitch, step=4, sync="abort line")
        epoch = yield xl.load(r.abort + r.me * r.pitch, step=4, sync="abort in")
        yield xl.fence(step=4, sync="older ready first")
        for j in range(1, r.ranks):
            there = (r.me + j) % r.ranks * r.pitch
            yield xl.put(r.readies + there + r.me * FIELD_BYTES, epoch * EPOCH + i, step=4, sync="ready")
        came = CAME
        least = i
        j = 1
        while j < r.ranks and came == CAME:
            ready = r.readies + r.me * r.pitch + (r.me + j) % r.ranks * FIELD_BYTES
            came = yield from wait(ready, epoch * EPOCH, epoch, r, 5, "ready in")
            if came == CAME:
                yield xl.dcci(ready, step=5, sync="ready line")
                seen = yield xl.load(ready, step=5, sync="ready in")
                least = min(least, seen % EPOCH)
            j += 1
    return epoch * EPOCH + least if came == CAME else END


def all_through(ended, epoch, r: RankWords):
    """Wait for the end; rank 0 says it when all others have come to it, in the epoch in which it has."""
    came = CAME
    if r.me == 0:
        rank = 1
        while rank < r.ranks and came == CAME:
            came = yield from wait(r.dones + rank * FIELD_BYTES, ended + 1, epoch, r, 6, "done in")
            rank += 1
        if came == CAME:
            for die in range(1, r.ranks + 1):
                yield xl.put(r.over + die * r.pitch, 1, step=6, sync="end")
    else:
        came = yield from wait(r.over + r.me * r.pitch, 1, epoch, r, 6, "end in")
    return came != ABORTED


def fails(left, r: RankWords):
    """Return whether something goes wrong in this iteration, as may be ``left`` times, and report it."""
    broken = 0
    if left > 0:
        broken = yield xl.choose(2, step=1, sync="broken")
    if broken:
        yield xl.add(r.errors, 1, step=1, sync="error")
    return broken


def go_on(i, epoch, good, r: RankWords):
    """End an attempt: return epoch and iteration of the next one as one word; or the end.

    ``good``: it was the last of ``i`` iterations.  If not, this waits for the abort.
    """
    word = epoch * EPOCH + i
    if good and i == r.iterations and r.me > 0:
        yield xl.put(r.dones + r.me * FIELD_BYTES, epoch + 1, step=6, sync="done")
    while word != END and (good == 0 or word % EPOCH == r.iterations):
        if good:
            good = yield from all_through(epoch, word // EPOCH, r)
            if good:
                word = END
        else:
            word = yield from agree(word % EPOCH, word // EPOCH, r)
            good = 1
    return word


@xl.kernel
def rank(own: xl.Reads, out: xl.Writes, failures, r: OfRank, w: IterationRows, t: Decoding):
    """Send ``own`` [iterations, nbytes] and leave what others send at ``out`` [iterations, ranks - 1, nbytes]."""
    yield xl.v_fill(0, HEADER_BYTES)
    yield from hand_over(xl.VECTOR, xl.SCALAR, 0, "header empty")
    word = 0
    left = failures
    while word != END:
        epoch = word // EPOCH
        i = word % EPOCH
        good = 0
        broken = yield from fails(left, r)
        left -= broken
        made = 0
        if not broken:
            if t.prompt:
                made = yield from attend(0, t)
            yield from send(own, i, epoch, r, w)
            good = yield from all_sent(i, epoch, r, w)
        if good:
            made = yield from receive(out, i, epoch, made, r, w, t)
            if t.prompt:
                yield from sample(i, made, t)
            i += 1
        word = yield from go_on(i, epoch, good, r)
        if t.prompt and word // EPOCH > epoch:
            yield from go_back(word % EPOCH, t)


@xl.kernel
def supervise(aborts, r: _OfSupervisor):
    """Abort what the ranks do, ``aborts`` times at any moment, and then whenever one reports an error."""
    over = 0
    epoch = 0
    while not over:
        if epoch >= aborts:
            over = yield xl.poll_any(
                (r.errors, xl.CMP_GE, epoch - aborts + 1), (r.over + r.ranks * r.pitch, xl.CMP_GE, 1), sync="error in"
            )
        if not over:
            epoch += 1
            yield xl.fence(sync="older abort first")
            for rank in range(r.ranks):
                yield xl.put(r.abort + rank * r.pitch, epoch, sync="abort")
