"""Going on with fewer ranks (xDeepServe 6.2, stage 2): a rank is lost, and the others finish without it.

Each rank has an expert, and the weights of the one before it as a spare.  In an iteration a rank with an expert writes
its row to all others.  A supervisor that suspects a rank, at any moment, rightly or not, publishes one word: epoch,
the lost rank, and who has its expert now, its *heir*.  The others go back to the least iteration that one of them is
in, as in `rollback`, and go on without it.

Steps: 1 send the rows of the own expert, and of an inherited one, then the fields that announce them; 2 wait for the
fields of all experts that somebody has, or a new word; 3 read the rows, or copy what is inherited; 4 on a new word
announce the epoch and the own iteration to all others that are left; 5 wait for their announcements, and go on at the
least; 6 report to the supervisor when all iterations are through, and end when it says so.

A fence separates what a rank says of two epochs in the same word, since memory need not keep their order.

A rank that was lost may be alive and slow.  What it still writes goes to its own places on the others' dies, which
nobody reads in the new epoch; a field says its epoch, so one of the old is never taken.  Nobody writes to it, but for
the supervisor, nor reads its memory.  When it sees the word it ends.

Where waits have a time-out (``said``), which may pass at any moment, rightly or not, the supervisor may stop as well:
each of the others returns, and says for whom it has waited in vain, and how many iterations it has the rows of.

A rank that comes back, or was not there at first, joins: it begins at any moment with nothing but what its die's memory
has for it, and nothing in flight, asks the supervisor, and hears of the word that takes it in.  All go back to the
least iteration that one of the *others* is in, and its heir sends its own expert's rows alone.  A word may come while a
rank waits for what was said of the one before it; then it turns to that, and says so, after a fence.

A rank whose die stopped and begins again finds there that it has lived before: so it trusts no word and no field of
then, and joins, once the supervisor has given it up.
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.group import hand_over

FIELD_BYTES = 32
HEADER_BYTES = 32
"""In front of each row: the epoch in which it was sent."""
EPOCH = 1 << 16
"""Words are ``epoch * EPOCH`` and an iteration; the published one has ``heir * HEIR + lost rank`` there."""
HEIR = 1 << 8
NOBODY = HEIR - 1
"""As the lost rank: none is; as the heir: no rank has the weights, so its expert is lost, which is said."""
WHOLE = NOBODY * HEIR + NOBODY
"""The word before the first one is published."""
END = -1
"""In place of word and iteration; less than it by one more than a rank, or than the number of ranks for the
supervisor: for whom a rank has waited in vain."""
LATE = 2
"""What a wait has come to: what it was for (0), news of the supervisor (1), or the time-out."""
STALE = 7
"""Failed with: a row of another epoch was announced."""


class MembershipRank(NamedTuple):
    """What a rank knows: where words are on die 0, the same on each die."""

    me: int
    ranks: int
    iterations: int
    readies: int
    """By sender: the epoch that it has come to, and its iteration."""
    word: int
    """What the supervisor publishes."""
    over: int
    dones: int
    """On the supervisor's die, by rank: one more than the epoch in which it came to the end."""
    pitch: int
    """From a die to the next."""
    epoch: int
    lost: int
    heir: int
    """What the last word said that the rank has seen."""
    joins: int
    """On the supervisor's die: does a rank ask to be taken in?  0: none will, and there is one loss."""
    said: int
    """[2] words: iterations whose rows are there, and for whom it has waited in vain; 0: it has no time-out."""


class Member(MembershipRank):
    """What a rank touches."""

    readies: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    word: xl.Own[xl.Reads]
    over: xl.Own[xl.Reads]
    dones: xl.Writes
    joins: xl.Writes
    said: xl.Writes


class Supervisor(MembershipRank):
    """What the supervisor touches."""

    word: xl.Anywhere[xl.Writes]
    over: xl.Anywhere[xl.Writes]
    dones: xl.Reads
    joins: xl.Reads
    said: xl.Writes


class MemberRows(NamedTuple):
    """Where rows are on die 0, and their size."""

    nbytes: int
    """Bytes of a row."""
    rows: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    """[2, ranks, 2] rows with headers: by parity, sender, and whether it is of an inherited expert."""
    fields: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    """[ranks, 2]: epoch and number of iterations whose rows are there, likewise."""


def place(rows, ranks, sender, inherited, i, nbytes):
    """Return where among a die's rows this one goes."""
    return rows + ((i % 2 * ranks + sender) * 2 + inherited) * (HEADER_BYTES + nbytes)


def field_of(fields, sender, inherited):
    """Return the field of a sender's own, or inherited, expert among a die's fields."""
    return fields + (sender * 2 + inherited) * FIELD_BYTES


def send_row(row, i, inherited, g: MembershipRank, w: MemberRows):
    """Write a row to all others that are left, and announce it."""
    yield xl.mtu_in(row, HEADER_BYTES, w.nbytes, step=1)
    yield xl.ub_store(0, g.epoch, step=1)
    yield from hand_over(xl.MTU_IN, xl.MTU_OUT, 0, "row in buffer", step=1)
    for j in range(1, g.ranks):
        rank = (g.me + j) % g.ranks
        if rank != g.lost:
            there = place(w.rows, g.ranks, g.me, inherited, i, w.nbytes) + rank * g.pitch
            yield xl.mtu_out(0, there, HEADER_BYTES + w.nbytes, step=1)
    yield xl.fence(step=1, sync="rows before fields")
    for j in range(1, g.ranks):
        rank = (g.me + j) % g.ranks
        if rank != g.lost:
            there = field_of(w.fields, g.me, inherited) + rank * g.pitch
            yield xl.put(there, g.epoch * EPOCH + i + 1, step=1, sync="field")
    yield from hand_over(xl.MTU_OUT, xl.SCALAR, 1, "rows sent", step=1)


def look(word, step):
    """Load a word that another core may put."""
    yield xl.dcci(word, step=step, sync="seen line")
    seen = yield xl.load(word, step=step, sync="seen")
    return seen


def in_time(word, number, rank, epoch, step, g: MembershipRank):
    """Look until a word has come to a number, there is a word of a later epoch, or the time is up for a rank."""
    came = LATE + 1
    while came > LATE:
        late = yield xl.choose(2, of=rank, step=step, sync="time-out")
        came -= late
        seen = yield from look(g.word + g.me * g.pitch, step)
        if seen >= (epoch + 1) * EPOCH:
            came = 1
        seen = yield from look(word, step)
        if seen >= number:
            came = 0
    return came


def all_sent(i, g: MembershipRank, w: MemberRows):
    """Wait until the rows of all experts that others have are there; returns 0, 1 if there is a new word, or `LATE` and
    the number of the rank that the time is up for."""
    came = 0
    here = g.me * g.pitch
    for j in range(1, g.ranks):
        expert = (g.me + j) % g.ranks
        owner = g.heir if expert == g.lost else expert
        if came == 0 and owner != NOBODY and owner != g.me:
            field = field_of(w.fields, owner, expert == g.lost) + here
            if g.said:
                came = yield from in_time(field, g.epoch * EPOCH + i + 1, owner, g.epoch, 2, g)
                if came == LATE:
                    came += owner
            else:
                came = yield xl.poll_any(
                    (field, xl.CMP_GE, g.epoch * EPOCH + i + 1), (g.word + here, xl.CMP_GE, (g.epoch + 1) * EPOCH),
                    step=2, sync="field in",
                )  # fmt: skip
    if g.joins and came == 0:  # a rank that waits for nobody must still see a join
        news = yield from look(g.word + here, 2)
        came = news >= (g.epoch + 1) * EPOCH
    return came


def receive(spare, out, i, g: MembershipRank, w: MemberRows):
    """Copy the rows of all other experts out; ``out`` is [ranks - 1, iterations, nbytes], from the next expert on."""
    for j in range(1, g.ranks):
        expert = (g.me + j) % g.ranks
        owner = g.heir if expert == g.lost else expert
        target = out + ((j - 1) * g.iterations + i) * w.nbytes
        row = HEADER_BYTES + w.nbytes
        if owner == g.me:
            yield xl.mtu_in(spare + i * w.nbytes, row + HEADER_BYTES, w.nbytes, step=3)
            yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "row read", step=3)
        elif owner != NOBODY:
            source = place(w.rows + g.me * g.pitch, g.ranks, owner, expert == g.lost, i, w.nbytes)
            yield xl.mtu_in(source, row, row, step=3)
            yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "row read", step=3)
            seen = yield xl.ub_load(row, step=3)
            if seen != g.epoch:
                yield xl.fail(STALE, seen, step=3)
        if owner != NOBODY:
            yield xl.mtu_out(row + HEADER_BYTES, target, w.nbytes, step=3)
            yield from hand_over(xl.MTU_OUT, xl.SCALAR, 1, "row copied", step=3)


def agree(i, g: MembershipRank):
    """Send the own iteration to the others that are left, and return the least of all; `END` if there is a later word
    meanwhile, or less than that where the time is up."""
    for j in range(1, g.ranks):
        rank = (g.me + j) % g.ranks
        if rank != g.lost:
            there = g.readies + rank * g.pitch + g.me * FIELD_BYTES
            yield xl.put(there, g.epoch * EPOCH + i, step=4, sync="ready")
    least = i
    for j in range(1, g.ranks):
        rank = (g.me + j) % g.ranks
        if rank != g.lost and least > END:
            ready = g.readies + g.me * g.pitch + rank * FIELD_BYTES
            came = 0
            if g.said:
                came = yield from in_time(ready, g.epoch * EPOCH, rank, g.epoch, 5, g)
            elif g.joins:
                news = g.word + g.me * g.pitch
                came = yield xl.poll_any(
                    (ready, xl.CMP_GE, g.epoch * EPOCH), (news, xl.CMP_GE, (g.epoch + 1) * EPOCH), step=5,
                    sync="ready in",
                )  # fmt: skip
            else:
                yield xl.poll_ge(ready, g.epoch * EPOCH, step=5, sync="ready in")
            if came == LATE:
                least = END - 1 - rank
            elif came == 0:
                yield xl.dcci(ready, step=5, sync="ready line")
                seen = yield xl.load(ready, step=5, sync="ready in")
                least = min(least, seen % EPOCH)
                if g.joins and seen >= (g.epoch + 1) * EPOCH:
                    yield xl.poll_ge(g.word + g.me * g.pitch, (g.epoch + 1) * EPOCH, step=4, sync="word in")
                    came = 1
            if came == 1:
                yield xl.fence(step=4, sync="older ready first")
                least = END
    return least


def go_on(i, good, word, g: MembershipRank):
    """End an attempt; ``good``: it was the last of ``i`` iterations, else there is a new word.

    Returns the word and iteration of the next attempt as one word, ``word * EPOCH`` and the iteration; or `END`, or
    less where the time is up.
    """
    here = g.me * g.pitch
    epoch = word // EPOCH
    over = 0
    while not over and (good == 0 or i == g.iterations):
        if good:
            yield xl.fence(step=6, sync="older done first")
            yield xl.put(g.dones + g.me * FIELD_BYTES, epoch + 1, step=6, sync="done")
            if g.said:
                came = yield from in_time(g.over + here, 1, g.ranks, epoch, 6, g)
            else:
                came = yield xl.poll_any(
                    (g.over + here, xl.CMP_GE, 1), (g.word + here, xl.CMP_GE, (epoch + 1) * EPOCH), step=6,
                    sync="end in",
                )  # fmt: skip
            over = came != 1
            good = over
            if came == LATE:
                i = END - 1 - g.ranks
        if not good:
            yield xl.dcci(g.word + here, step=4, sync="word line")
            word = yield xl.load(g.word + here, step=4, sync="word in")
            epoch = word // EPOCH
            lost = word % HEIR
            over = lost == g.me
            if not over:
                least = yield from agree(i, g._replace(epoch=epoch, lost=lost))
                over = least < END
                good = least != END
                if good:
                    i = least
    return min(i, END) if over else word * EPOCH + i


def taken_in(lives, g: MembershipRank):
    """Ask to be taken in, and wait for that or the end; returns as `go_on`.

    Where a die may have several ``lives`` it asks before it is given up, too, and passes over the word that says so.
    """
    here = g.me * g.pitch
    now = END
    yield xl.dcci(g.word + here, step=7, sync="word line")
    word = yield xl.load(g.word + here, step=7, sync="word in")
    yield xl.put(g.joins, 1, step=7, sync="join")
    came = yield xl.poll_any(
        (g.over + here, xl.CMP_GE, 1), (g.word + here, xl.CMP_GE, (word // EPOCH + 1) * EPOCH), step=7, sync="taken in"
    )
    lost = g.me
    while lives and came == 1 and lost == g.me:
        yield xl.dcci(g.word + here, step=7, sync="word line")
        word = yield xl.load(g.word + here, step=7, sync="word in")
        lost = word % HEIR
        if lost == g.me:
            came = yield xl.poll_any(
                (g.over + here, xl.CMP_GE, 1), (g.word + here, xl.CMP_GE, (word // EPOCH + 1) * EPOCH), step=7,
                sync="taken in",
            )  # fmt: skip
    if came == 1:
        now = yield from go_on(g.iterations, 0, word, g)
    return now


def lived(lives):
    """Return in how many lives the die has begun before, and count this one before anybody hears of it."""
    yield xl.dcci(lives, step=7)
    before = yield xl.load(lives, step=7)
    yield xl.store(lives, before + 1, step=7)
    yield xl.dcci(lives, step=7)
    yield xl.quiet(step=7)
    return before


def say(iterations, rank, g: MembershipRank):
    """Leave how many iterations there are, and for whom somebody has waited in vain; -1: for nobody."""
    if g.said:
        yield xl.store(g.said, iterations, step=6)
        yield xl.store(g.said + 8, rank, step=6)


@xl.kernel
def rank(
    own: xl.Reads, spare: xl.Reads, out: xl.Writes, joined: xl.Writes, lives: xl.Updates, g: Member, w: MemberRows
):  # fmt: skip
    """Send the rows of ``own`` [iterations, nbytes], and of ``spare`` if it is inherited; ``out`` as in `receive`.

    One that is to be taken in first leaves from which iteration on, and up to which, it has rows in ``joined`` [2].
    Where its die may begin again, in how many ``lives`` it has; it is to be taken in from the second one on.
    """
    yield xl.v_fill(0, HEADER_BYTES)
    yield from hand_over(xl.VECTOR, xl.SCALAR, 0, "header empty")
    now = (g.heir * HEIR + g.lost) * EPOCH
    if joined:
        before = 1
        if lives:
            before = yield from lived(lives)
        if before:
            now = yield from taken_in(lives, g)
        yield xl.store(joined, max(now, 0) % EPOCH, step=7)
    through = max(now, 0) % EPOCH
    while now > END:
        i = now % EPOCH
        epoch = now // EPOCH // EPOCH
        lost = now // EPOCH % HEIR
        heir = now // EPOCH // HEIR % HEIR
        yield from send_row(own + i * w.nbytes, i, 0, g._replace(epoch=epoch, lost=lost, heir=heir), w)
        if heir == g.me:
            yield from send_row(spare + i * w.nbytes, i, 1, g._replace(epoch=epoch, lost=lost, heir=heir), w)
        came = yield from all_sent(i, g._replace(epoch=epoch, lost=lost, heir=heir), w)
        good = came == 0
        if good:
            yield from receive(spare, out, i, g._replace(epoch=epoch, lost=lost, heir=heir), w)
            through = max(through, i + 1)
        if came >= LATE:
            now = END - 1 - (came - LATE)
        else:
            now = yield from go_on(i + good, good, now // EPOCH, g)
    if joined:
        yield xl.store(joined + 8, through, step=7)
    yield from say(through, END - 1 - now, g)


@xl.kernel
def supervise(suspect, heir, g: Supervisor):
    """Wait until all ranks are through; until then say, whenever the time is up for one of them, that it is lost, and
    take it in again if it asks."""
    epoch = 0
    lost = g.lost
    joins = min(g.joins, 1)
    left = (suspect != NOBODY) + (joins and lost == NOBODY)
    rank = 0
    silent = -1
    while rank < g.ranks:
        late = 0
        asked = 0
        if left > 0 and lost == NOBODY:
            late = yield xl.choose(2, sync="suspicion")
        elif joins and lost != NOBODY:
            asked = yield from look(g.joins, 7)
        if late or asked:
            epoch += 1
            lost = suspect if late else NOBODY
            left -= late
            joins = joins and late
            rank = 0
            if epoch > 1:
                yield xl.fence(step=7, sync="older word first")
            for each in range(g.ranks):
                word = heir * HEIR + lost if late else WHOLE
                yield xl.put(g.word + each * g.pitch, epoch * EPOCH + word, sync="word")
        elif rank == lost:
            rank += 1
        elif g.said or (left > 0 and lost == NOBODY) or (joins and lost != NOBODY):
            if g.said:
                late = yield xl.choose(2, of=rank, step=6, sync="time-out")
            done = g.dones + rank * FIELD_BYTES
            yield xl.dcci(done, step=6, sync="done line")
            seen = yield xl.load(done, step=6, sync="done in")
            if seen > epoch:
                rank += 1
            elif late:
                silent = rank
                rank = g.ranks
        else:
            yield xl.poll_ge(g.dones + rank * FIELD_BYTES, epoch + 1, step=6, sync="done in")
            rank += 1
    for each in range(g.ranks):
        if each != lost or g.joins:
            yield xl.put(g.over + each * g.pitch, 1, step=6, sync="end")
    yield from say(0, silent, g)
