"""Trampoline A2E and E2A (xDeepServe 3.3, 5.2): attention dies and expert dies are disjoint and meet at trampolines.

The first expert dies are trampolines: of each domain a trampoline has one attention die, or several in a row, which
talk to nobody else.
Calls are numbered 0, 1, ...; the microbatches of all domains take turns, the first of each, then the second.  The
microbatches of a domain share its dies, each on its own cores: while one is on its way, another one computes.

Steps: 1 an attention die quantizes each token and writes it once, with the list of its choices, into the slots of its
trampoline; 2 the trampoline forwards it, as it is, to every chosen expert die, itself among them; 3 an expert die
gathers what it has got by expert, trampoline and token; 4 it computes; 5 it writes each result into the staging of the
trampoline that the token came through; 6 the trampoline forwards what has arrived to its attention die; 7 that weighs
and adds.  Steps 2 to 6 are persistent kernels: `trampoline`, `expert` and `e2a`.

**Push or pull?**  The paper leaves it open.  Here every stage pushes: a receiver that pulls pays a round trip after
the flag, and the sender's memory is held until it has; a push is one write one way followed by a flag, and an
attention die has a fan-out of one.  The price: the receiver's memory must be free for certain.

Every field counts calls (or messages) and only rises.  What says that memory may be used again:

    =====================  ==========================================================  =================================
    memory                 is written again when                                       field
    =====================  ==========================================================  =================================
    slots of a trampoline  it has read the messages of the call before                 ``credit``, on the attention die
    inbox of an expert     all expert dies have gathered the call before               ``acks``, on the trampoline
    rows of an expert      it has sent back the rows of ``depth`` calls before         ``sent``, own
    staging, lists         the rows of ``depth`` calls before are forwarded            ``relayed``, own
    returned rows          the attention die sends the microbatch's next call; its     ``tokens_in``
                           quiet and barrier before that cover what it has read
    =====================  ==========================================================  =================================

**In parts.**  A batch may go in parts, by the numbers of its tokens, so that a trampoline forwards one part while the
next arrives: there the attention die announces each, and here the expert dies send back, and count, part by part.  The
places of messages do not depend on parts.  A core whose writes wait for a busy port cannot forward meanwhile, so in an
E2A stream with parts half of the cores do nothing else.

**Large batches.**  Of up to 512 tokens each core of a trampoline has all lists of choices in its data buffer and counts
them there.  Of more, or on request, the lists are streamed: each core counts those that it forwards, and the cores
exchange the counts (`counts`), part by part; on the way back each counts what a part is due, then does its own share.

The arrivals are counted for each of the ``depth`` calls apart: a fast expert die may send back the next call's rows
before a slow one has sent back this one's.

The end is a call too: the attention dies whose turn it is announce -1 tokens instead of a batch, trampolines pass that
on as the count of every expert, and each stream passes it to the next and returns.
"""

from xccl_emu import lang as xl
from xccl_emu.kernels.a2e.parameters import LIST, STOP, Domains, Microbatch, part_begin
from xccl_emu.kernels.aborts import Abort, agreed, until_all, until_least
from xccl_emu.kernels.experts.counts import FIELD_BYTES, INDEX_BYTES
from xccl_emu.kernels.experts.dummy import busy
from xccl_emu.kernels.experts.messages import SLOT_BYTES, clear_slots, message_at, prepare
from xccl_emu.kernels.experts.parameters import Buffers, Group
from xccl_emu.kernels.experts.sums import sum_tokens
from xccl_emu.kernels.group import barrier, hand_over

# ---- step 1


def load_token(half, t, c: Group, b: Buffers):
    """Load a token and its choices into a half's message, and quantize it."""
    choices = message_at(half, c.hidden, c.payload, c.quantized, 0) + c.payload + LIST
    yield xl.mtu_in(b.topk + t * INDEX_BYTES, choices, INDEX_BYTES, step=1)  # -1 after the choices
    yield from prepare(half, b.x + t * 2 * c.hidden, c, 0, 1)


def send_tokens(first, last, index, target, c: Group, b: Buffers):
    """Write this core's tokens to ``target``, the place of token 0; one is loaded and quantized while one leaves."""
    message = c.payload + SLOT_BYTES
    base = message_at(0, c.hidden, c.payload, c.quantized, 0)
    yield from clear_slots(base, c.payload, message)
    if first < last:
        yield from load_token(0, first, c, b)
    for t in range(first, last):
        half = (t - first) % 2
        if t + 1 < last:
            yield from load_token(1 - half, t + 1, c, b)
        if c.quantized:
            yield xl.wait_flag(xl.VECTOR, xl.SCALAR, half, sync="message made")
        else:
            yield xl.wait_flag(xl.MTU_IN, xl.SCALAR, half, sync="message made")
        yield xl.ub_store(base + half * message + c.payload + 4, index, step=1)
        yield xl.ub_store(base + half * message + c.payload + 8, t, step=1)
        yield xl.mtu_out(base + half * message, target + t * message, message, step=1)
        yield from hand_over(xl.MTU_OUT, xl.SCALAR, half, "message left")


def send_batch(first, last, c: Group, b: Buffers, at: Microbatch):
    """Step 1: this core's tokens into the slots at the trampoline; by URMA all at once, out of the own outbox."""
    message = c.payload + SLOT_BYTES
    if c.by_dma:
        yield from send_tokens(first, last, at.sender, at.outbox, c, b)
        yield xl.quiet(step=1, sync="outbox visible")
        if first < last:
            yield xl.dma(at.outbox + first * message, at.slots + first * message, (last - first) * message, 0, step=1)
            yield xl.wait_flag(xl.DMA, xl.SCALAR, 0, step=1, sync="tokens copied")
    else:
        yield from send_tokens(first, last, at.sender, at.slots, c, b)
        yield xl.quiet(step=1, sync="tokens visible")


# ---- the attention die


def send_parts(core, call, n, c: Group, b: Buffers, m: Domains, at: Microbatch):
    """Step 1: the parts of a batch one after the other, each announced when it is in the slots; the first always is."""
    for part in range(m.a2e_parts):
        low = min(n, part_begin(part, m.a2e_parts, m.tokens_max))
        tokens = min(n, part_begin(part + 1, m.a2e_parts, m.tokens_max)) - low
        if part == 0 or tokens > 0:
            first = low + tokens * core // c.cores
            yield from send_batch(first, low + tokens * (core + 1) // c.cores, c, b, at)
            yield from barrier(1, "all cores have sent")
            if core == 0:
                yield xl.put(at.tokens_in + part * FIELD_BYTES, call + 1, n, step=1, sync="tokens in")


def attend(core, number, m: Domains, at: Microbatch):
    """Attention of the die's microbatch ``number``, counted over all: vector instructions stand in for it.

    The microbatches of a die take turns, as it computes one at a time.
    """
    if core == 0:
        yield xl.poll_ge(at.attended, number, sync="die free")
        yield from busy(m.attention_work, 0, 0)
        yield xl.put(at.attended, number + 1, sync="die left")
    yield from barrier(0, "attention computed")


def calls_before(call: int, first: int) -> int:
    """Return how many calls the trampoline must have read before this one; before the first of an epoch none."""
    return call * (call > first)


def one_call(core, call, n, c: Group, b: Buffers, m: Domains, at: Microbatch, x: Abort):
    """A microbatch of ``n`` tokens there and back; 0 if an abort came sooner."""
    going = yield from until_all(core, 1, at.credit, calls_before(call, x.first), x, 1, "slots free")
    if going:
        yield from send_parts(core, call, n, c, b, m, at)
        going = yield from until_all(core, 1, at.returned_in, call + 1, x, 7, "rows returned")
    if going:
        yield from sum_tokens(n * core // c.cores, n * (core + 1) // c.cores, at.returned, 0, c, b, 7)
    return going


def serve(going, core, call, calls, batches, c: Group, b: Buffers, m: Domains, at: Microbatch, x: Abort):
    """Serve the microbatch's calls from ``call`` on, and announce the end; returns the first call that is not done.

    The fields count on from ``x.first``.  ``going``: 0 if this core cannot take part; then none does.
    """
    going = yield from agreed(going, x, 1)
    before = x.first - call
    call = call + (at.turn + m.turns - call % m.turns) % m.turns
    token = call // m.turns * m.tokens_max
    while going and call < calls:
        n = yield xl.load(batches + 4 * (call // m.turns), 4)
        if m.attention_work > 0:
            yield from attend(core, call // m.turns * (m.turns // m.domains) + at.number, m, at)
        going = yield from one_call(
            core, before + call, n, c,
            Buffers(
                x=b.x + token * 2 * c.hidden,
                topk=b.topk + token * INDEX_BYTES,
                weights=b.weights + token * INDEX_BYTES,
                out=b.out + token * 2 * c.hidden,
            ), m, at, x,
        )  # fmt: skip
        if going:
            token = token + m.tokens_max
            call = call + m.turns
    if going and call == calls and core == 0:
        going = yield from until_least(1, at.credit, calls_before(before + call, x.first), x, 1, "slots free")
        if going:
            yield xl.put(at.tokens_in, before + call + 1, STOP, step=1, sync="tokens in")
    return call


class AttentionBuffers(Buffers):
    """What an attention die touches of app data."""

    x: xl.Reads
    topk: xl.Reads
    weights: xl.Reads
    out: xl.Writes


@xl.kernel
def attention(core, calls, batches: xl.Reads, c: Group, b: AttentionBuffers, m: Domains, at: Microbatch):
    """A microbatch of an attention die, until ``calls`` calls of all are done; it ends the streams then if the next
    call would be its own.

    ``batches`` is a table of 4-byte numbers of tokens.  From call to call ``x`` and ``out`` move on by ``tokens_max``
    rows of hidden states, ``topk`` and ``weights`` by as many rows of a table.
    """
    yield from serve(1, core, 0, calls, batches, c, b, m, at, Abort())
