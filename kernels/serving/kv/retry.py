"""Requests whose transfer is given up and tried again: the user aborts one, or a prefill instance says no more.

Decode's receiver asks an instance for a request and pulls its parts, a block each, as they are ready ([xDeepServe] 5.1;
the steps of `kv.transfer`).  At any moment the user may abort, and the same request comes again; or a time-out
passes, and the receiver asks the next instance, which has the same prompt.  A time-out says nothing of the instance: it
may have died, or be slow, and then its blocks and tasks come while the receiver has long been elsewhere.

Each attempt has an *epoch*, one later than anything that the receiver has said before.  It is in the word by which the
receiver asks, and in every task.  So an instance hears of an abort where it hears of a request, and a task of an
earlier attempt is refused by its epoch, though it is of the same request.

Before slots are released, and before another attempt is asked for, nothing of the last one may be under way: the
receiver waits until all that it has issued is done.  What it has read counts in ``done`` then, so that an instance
which hears of a new epoch takes the count from there.

The last instance has no time-out, nor have waits for the receiver.  Or all have one of their own (``said``), so that
whichever die stops all others return: the receiver says which instance a request came from, if from any, and an
instance whether it has waited in vain.
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.common import ROWS, move_row
from xccl_emu.kernels.group import drain
from xccl_emu.kernels.serving.kv.transfer import claim, nth

FIELD_BYTES = 32
EPOCH = 1 << 16
"""Words are ``epoch * EPOCH`` and what is asked for, or the number of a part from 1 on."""
OFF, END, FIRST = range(3)
"""What is asked for: nothing any more; nothing ever again; a request, by its number from `FIRST` on."""
PAIRING = 1
"""Code of `fail`: a task of a request that was not asked for."""
WAITING, CAME, LATE, ABORTED = range(4)
NEVER = 1 << 60
"""As a count of parts that are pulled."""


class Retry(NamedTuple):
    """Where the state of a receiver is, and the sizes; what is on instances is on instance 0, by ``pitch`` further on
    for each next one."""

    blocks: int
    """[pool] on each instance."""
    ask: int
    """On each instance: epoch and what is asked for."""
    done: int
    """On each instance: parts that have been read, a count."""
    tasks: int
    """[instances x pool] fields on the decode die: epoch and part + 1, request."""
    slots: int
    taken: int
    """Word of the decode die, of all receivers: which slots are taken."""
    pitch: int
    instances: int
    pool: int
    n_slots: int
    layers: int
    """Parts of a request."""
    nbytes: int
    """Bytes of a block."""
    requests: int
    aborts: int
    """Times that the user aborts a request of this receiver, at most."""
    said: int
    """Receiver: [requests] words, one more than the instance that a request came from, 0 for none.  Instance: a word, 1
    where it has waited in vain.  0: only the receiver has a time-out, and none for the last instance."""


class _Answers(Retry):
    blocks: xl.Own[xl.Writes]
    ask: xl.Own[xl.Reads]
    done: xl.Own[xl.Reads]
    tasks: xl.Writes
    said: xl.Writes


class _Asks(Retry):
    blocks: xl.Anywhere[xl.Reads]
    ask: xl.Anywhere[xl.Writes]
    done: xl.Anywhere[xl.Writes]
    tasks: xl.Reads
    slots: xl.Updates
    taken: xl.Updates
    said: xl.Writes


def hear(ask, epoch, done, count):
    """Look until the receiver asks for something else (`ABORTED`), has pulled so much (`CAME`), or the time is up."""
    seen = WAITING
    while seen == WAITING:
        late = yield xl.choose(2, epoch, step=8, sync="time-out")
        yield xl.dcci(ask, sync="ask line")
        asked = yield xl.load(ask, sync="asked")
        yield xl.dcci(done, sync="done line")
        pulled = yield xl.load(done, step=8, sync="pulled in")
        if asked >= (epoch + 1) * EPOCH:
            seen = ABORTED
        elif pulled >= count:
            seen = CAME
        elif late:
            seen = LATE
    return seen


@xl.kernel
def answer(caches: xl.Reads, instance, mortal, r: _Answers):
    """Prefill what is asked for, ``caches`` [requests, layers] blocks; where it is mortal it may end at any part."""
    epoch = 0
    turn = 0
    over = 0
    heard = CAME
    ask = r.ask + instance * r.pitch
    done = r.done + instance * r.pitch
    while not over:
        heard = CAME
        if r.said:
            heard = yield from hear(ask, epoch, done, NEVER)
        else:
            yield xl.poll_ge(ask, (epoch + 1) * EPOCH, sync="asked")
        asked = epoch * EPOCH + END
        before = 0
        if heard != LATE:
            yield xl.dcci(ask, sync="ask line")
            asked = yield xl.load(ask, sync="asked")
            yield xl.dcci(done, sync="done line")
            before = yield xl.load(done, step=8)
        epoch = asked // EPOCH
        request = asked % EPOCH - FIRST
        over = asked % EPOCH == END
        layer = 0
        while request >= 0 and layer < r.layers:
            if layer >= r.pool:
                if r.said:
                    heard = yield from hear(ask, epoch, done, before + layer + 1 - r.pool)
                    came = heard == CAME
                else:
                    came = yield xl.poll_any(
                        (ask, xl.CMP_GE, (epoch + 1) * EPOCH), (done, xl.CMP_GE, before + layer + 1 - r.pool),
                        step=8, sync="part pulled",
                    )  # fmt: skip
                if came == 0:
                    request = -1
            if mortal:
                over = yield xl.choose(2, step=3, sync="dies")
            if over:
                request = -1
            if request >= 0:
                block = instance * r.pitch + r.blocks + layer % r.pool * r.nbytes
                yield from move_row(caches + (request * r.layers + layer) * r.nbytes, block, r.nbytes, 0, turn, 3)
                turn += 1
                yield xl.quiet(step=3, sync="block before task")
                task = r.tasks + (instance * r.pool + layer % r.pool) * FIELD_BYTES
                yield xl.put(task, epoch * EPOCH + layer + 1, request, step=3, sync="task")
                layer += 1
        over = over or heard == LATE
    if r.said:
        yield xl.store(r.said, heard == LATE)
    yield from drain(xl.MTU_OUT, xl.MTU_IN, turn, ROWS, "row left")


def await_task(field, tag, last, left, r: Retry):
    """Wait for the task with this tag, an abort if one is ``left``, or a time-out unless it is the ``last`` one."""
    seen = WAITING
    if last and left == 0:
        yield xl.poll_ge(field, tag, step=6, sync="task in")
    while seen == WAITING:
        yield xl.dcci(field, sync="task line")
        there = yield xl.load(field, step=6, sync="task in")
        if there >= tag:
            seen = CAME
        if seen == WAITING and not last:
            late = yield xl.choose(2, tag, step=6, sync="time-out")
            seen = late * LATE
        if seen == WAITING and left > 0:
            aborted = yield xl.choose(2, tag, step=6, sync="abort")
            seen = aborted * ABORTED
    return seen


def pull_part(instance, layer, request, slot, turn, r: Retry):
    """Read a block to its slot, and count it as read; nothing waits for that."""
    task = r.tasks + (instance * r.pool + layer % r.pool) * FIELD_BYTES
    number = yield xl.load(task + 8)
    if number != request:
        yield xl.fail(PAIRING, number, step=7)
    block = instance * r.pitch + r.blocks + layer % r.pool * r.nbytes
    yield from move_row(block, slot, r.nbytes, 0, turn, 7)
    # mtu-out, which had to wait for the block, comes to this after it
    yield xl.add(r.done + instance * r.pitch, 1, step=8, sync="done")


@xl.kernel
def request_all(out: xl.Writes, first, r: _Asks):
    """Ask for each request until it is there, and leave its cache at ``out``; ``first`` is the number of the first."""
    epoch = 0
    turn = 0
    left = r.aborts
    for request in range(first, first + r.requests):
        instance = 0
        there = 0
        while not there and instance < r.instances:
            epoch += 1
            yield xl.put(r.ask + instance * r.pitch, epoch * EPOCH + FIRST + request, sync="ask")
            mask = 0
            layer = 0
            seen = CAME
            while layer < r.layers and seen == CAME:
                task = r.tasks + (instance * r.pool + layer % r.pool) * FIELD_BYTES
                tag = epoch * EPOCH + layer + 1
                seen = yield from await_task(task, tag, r.said == 0 and instance + 1 == r.instances, left, r)
                if seen == CAME and layer == 0:
                    mask = yield from claim(r.taken, r.n_slots, r.layers, 1)
                if seen == CAME:
                    slot = r.slots + nth(mask, r.n_slots, layer) * r.nbytes
                    yield from pull_part(instance, layer, request, slot, turn, r)
                    turn += 1
                    layer += 1
            if seen == CAME and left > 0:
                aborted = yield xl.choose(2, epoch, step=6, sync="abort")
                if aborted:
                    seen = ABORTED
            yield xl.quiet(step=8, sync="nothing under way")
            if seen == CAME:
                there = 1
                for part in range(r.layers):
                    slot = r.slots + nth(mask, r.n_slots, part) * r.nbytes
                    place = out + ((request - first) * r.layers + part) * r.nbytes
                    yield from move_row(slot, place, r.nbytes, 0, turn, 8)
                    turn += 1
            if mask:
                yield xl.add(r.taken, -mask, step=8, sync="slots freed")
            if seen == ABORTED:
                left -= 1
            if seen == LATE:
                epoch += 1
                yield xl.put(r.ask + instance * r.pitch, epoch * EPOCH + OFF, sync="ask")
                instance += 1
        if r.said:
            yield xl.store(r.said + (request - first) * 8, there * (instance + 1), step=8)
    for each in range(r.instances):
        yield xl.put(r.ask + each * r.pitch, (epoch + 1) * EPOCH + END, sync="ask")
    yield from drain(xl.MTU_OUT, xl.MTU_IN, turn, ROWS, "row left")
