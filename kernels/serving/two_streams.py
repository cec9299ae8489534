"""Two streams on one die hand microbatches to each other ([CloudMatrix384] 4.2.3).

The attention stream, some cores of a die, computes attention of one microbatch while the MoE stream, other cores, sends
the tokens of the other one to their experts and gets them back.  A microbatch of a layer is a *turn*; both streams go
through the turns in the same order.  Two buffers each way, by the parity of the turn: ``ready`` from attention to MoE,
``back`` from MoE to attention.  Each buffer has two counts, to which every core of the stream that writes adds when its
share is there, and every core of the one that reads when it has read.

Steps: 1 attention reads what came back of its microbatch one layer earlier, and says so; 2 computes; 3 waits until the
buffer has been read two turns ago, writes it, and hands it over.  4 MoE takes a microbatch, and says so; 5 sends each
token to the rank of its expert, followed by a field; 6 computes what others sent; 7 waits for its own tokens'
results; 8 waits until the buffer has been read two turns ago, writes it, and returns it.

A count by buffer is enough for any number of cores: nobody adds to it for a turn before everybody has for the turn
two earlier, because each add waits for the counterpart's count of that turn.  Fields have the number of the turn, so
that fields of two microbatches, which are in flight in one layer, are apart.  Slots of tokens and results are reused
every turn: a core sends a token of the next turn when it has the result of this one, so its expert has read it.

A buffer is taken before anything else is waited for.  So up to five microbatches go through two buffers: with six,
MoE would wait for a buffer of results that attention reads only when it has handed over one more than there is room.
"""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.group import hand_over

FIELD_BYTES = 32


class StreamPlaces(NamedTuple):
    """Addresses of the own die, where not said otherwise, and sizes."""

    core: int
    """Number of the core in its stream."""
    rank: int
    ready: int
    """[2, tokens] rows from attention to MoE, by parity of the turn."""
    back: int
    """[2, tokens] rows from MoE to attention."""
    handed: int
    """[2] counts: cores of attention that have written a buffer of ``ready``, over all turns; so are the others."""
    taken: int
    """[2]: cores of MoE that have read one."""
    returned: int
    """[2]: cores of MoE that have written a buffer of ``back``."""
    read: int
    """[2]: cores of attention that have read one."""
    inbox: int
    """[ranks, tokens] rows of tokens for experts, by source; on rank 0."""
    sent: int
    """[ranks, tokens] fields of these: turn + 1; on rank 0."""
    results: int
    """[tokens] rows of what experts made of them; on rank 0."""
    answered: int
    """[tokens] fields of these; on rank 0."""
    pitch: int
    """From a rank to the next."""
    ranks: int
    layers: int
    microbatches: int
    tokens: int
    """Rows of a microbatch on a rank."""
    nbytes: int
    """Bytes of a row."""
    attention_cores: int
    moe_cores: int


class _Attends(StreamPlaces):
    ready: xl.Writes
    back: xl.Reads
    handed: xl.Writes
    taken: xl.Reads
    returned: xl.Reads
    read: xl.Writes


class Routes(StreamPlaces):
    """What a core of the MoE stream touches; of the others' slots, its rank's for tokens."""

    ready: xl.Reads
    back: xl.Writes
    handed: xl.Reads
    taken: xl.Writes
    returned: xl.Writes
    read: xl.Reads
    inbox: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    sent: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    results: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    answered: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]


def share(core, cores, rows):
    """Return the first row of a core."""
    return rows * core // cores


def compute(at, nbytes, factor, summand, step):
    """Multiply and add in the first word of each granule of the data buffer."""
    for i in range(at, at + nbytes, 32):
        word = yield xl.ub_load(i, 8, step=step)
        yield xl.ub_store(i, word * factor + summand, 8, step=step)


@xl.kernel
def attention(own: xl.Reads, out: xl.Writes, s: _Attends):
    """Take microbatches ``own`` [microbatches, tokens] through all layers; rows of the last one go to ``out``."""
    first = share(s.core, s.attention_cores, s.tokens)
    nbytes = (share(s.core + 1, s.attention_cores, s.tokens) - first) * s.nbytes
    turns = s.layers * s.microbatches
    for turn in range(turns + s.microbatches):
        source = own + (turn * s.tokens + first) * s.nbytes
        earlier = turn - s.microbatches
        place = earlier % 2 * FIELD_BYTES
        if earlier >= 0:
            yield xl.poll_ge(s.returned + place, (earlier // 2 + 1) * s.moe_cores, step=1, sync="returned in")
            source = s.back + (earlier % 2 * s.tokens + first) * s.nbytes
        yield xl.mtu_in(source, 0, nbytes, step=1)
        yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "rows in buffer", step=1)
        if earlier >= 0:
            yield xl.add(s.read + place, 1, step=1, sync="read")
        if turn < turns:
            yield from compute(0, nbytes, 3, turn + 1, 2)
            place = turn % 2 * FIELD_BYTES
            if turn >= 2:
                yield xl.poll_ge(s.taken + place, turn // 2 * s.moe_cores, step=3, sync="taken in")
            yield xl.mtu_out(0, s.ready + (turn % 2 * s.tokens + first) * s.nbytes, nbytes, step=3)
            yield xl.fence(step=3, sync="rows before handed")
            yield xl.add(s.handed + place, 1, step=3, sync="handed")
        else:
            yield xl.mtu_out(0, out + ((turn - turns) * s.tokens + first) * s.nbytes, nbytes)
        yield from hand_over(xl.MTU_OUT, xl.SCALAR, 1, "rows left", step=3)


def expert_of(rank, token, turn, ranks):
    """Return the rank to whose expert a token goes in a turn."""
    return (rank + token + turn) % ranks


def dispatch(turn, first, last, s: StreamPlaces):
    """Send the tokens that are in the data buffer to their experts, and then their fields."""
    for t in range(first, last):
        there = expert_of(s.rank, t, turn, s.ranks) * s.pitch
        slot = s.rank * s.tokens + t
        yield xl.mtu_out((t - first) * s.nbytes, s.inbox + there + slot * s.nbytes, s.nbytes, step=5)
    yield xl.fence(step=5, sync="tokens before fields")
    for t in range(first, last):
        there = expert_of(s.rank, t, turn, s.ranks) * s.pitch
        yield xl.put(s.sent + there + (s.rank * s.tokens + t) * FIELD_BYTES, turn + 1, step=5, sync="sent")


def experts(turn, at, s: StreamPlaces):
    """Compute this core's share of the tokens that come to this rank, at a place of the data buffer, and answer."""
    slots = s.ranks * s.tokens
    for n in range(share(s.core, s.moe_cores, slots), share(s.core + 1, s.moe_cores, slots)):
        source = n // s.tokens
        token = n % s.tokens
        if expert_of(source, token, turn, s.ranks) == s.rank:
            here = s.rank * s.pitch
            yield xl.poll_ge(s.sent + here + n * FIELD_BYTES, turn + 1, step=6, sync="sent in")
            yield xl.mtu_in(s.inbox + here + n * s.nbytes, at, s.nbytes, step=6)
            yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "token in buffer", step=6)
            yield from compute(at, s.nbytes, 5, s.rank, 6)
            there = source * s.pitch
            yield xl.mtu_out(at, s.results + there + token * s.nbytes, s.nbytes, step=6)
            yield xl.fence(step=6, sync="result before field")
            yield xl.put(s.answered + there + token * FIELD_BYTES, turn + 1, step=6, sync="answered")
            yield from hand_over(xl.MTU_OUT, xl.SCALAR, 1, "result left", step=6)


@xl.kernel
def moe(s: Routes):
    """Take each microbatch to its experts and back."""
    first = share(s.core, s.moe_cores, s.tokens)
    last = share(s.core + 1, s.moe_cores, s.tokens)
    nbytes = (last - first) * s.nbytes
    for turn in range(s.layers * s.microbatches):
        place = turn % 2 * FIELD_BYTES
        rows = (turn % 2 * s.tokens + first) * s.nbytes
        yield xl.poll_ge(s.handed + place, (turn // 2 + 1) * s.attention_cores, step=4, sync="handed in")
        yield xl.mtu_in(s.ready + rows, 0, nbytes, step=4)
        yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "microbatch in buffer", step=4)
        yield xl.add(s.taken + place, 1, step=4, sync="taken")
        yield from dispatch(turn, first, last, s)
        yield from experts(turn, nbytes, s)
        for t in range(first, last):
            yield xl.poll_ge(
                s.answered + s.rank * s.pitch + t * FIELD_BYTES, turn + 1, step=7, sync="answered in"
            )
        yield xl.mtu_in(s.results + s.rank * s.pitch + first * s.nbytes, 0, nbytes, step=7)
        yield from hand_over(xl.MTU_IN, xl.MTU_OUT, 0, "results in buffer", step=7)
        if turn >= 2:
            yield xl.poll_ge(s.read + place, turn // 2 * s.attention_cores, step=8, sync="read in")
        yield xl.mtu_out(0, s.back + rows, nbytes, step=8)
        yield xl.fence(step=8, sync="rows before returned")
        yield xl.add(s.returned + place, 1, step=8, sync="returned")
        yield from hand_over(xl.MTU_OUT, xl.SCALAR, 1, "microbatch left", step=8)
