"""What trampolines do for A2E (xDeepServe 5.2): step 2, which the first stream of an expert die begins with."""

from typing import NamedTuple

from xccl_emu import lang as xl
from xccl_emu.kernels.a2e.parameters import (
    LIST,
    STOP,
    WRONG_CALL,
    Domains,
    Places,
    attention_die,
    dies_of,
    first_of,
    inbox_of,
    microbatch_of,
    part_begin,
)
from xccl_emu.kernels.aborts import Abort, agreed, until_first, until_least
from xccl_emu.kernels.common import drain_rings, ring
from xccl_emu.kernels.experts.counts import (
    COLUMNS,
    FIELD_BYTES,
    INDEX_BYTES,
    clear_tally,
    next_place,
    share_tallies,
    slot_of,
    streamed_work_at,
    tally_rows,
    totals_at,
)
from xccl_emu.kernels.experts.messages import SLOT_BYTES, field_of
from xccl_emu.kernels.experts.parameters import Group
from xccl_emu.kernels.group import align, barrier, drain_halves, hand_over

HEADER_BYTES = 32
"""Before the lists of a call: how many tokens it has."""


class Sent(NamedTuple):
    """What an attention die has sent in a call, and where its trampoline has what of it."""

    sender: int
    """Which attention die of its domain."""
    tokens: int
    slots: int
    """Its messages; an address, as ``kept`` is."""
    kept: int
    """Start of its lists, kept for the way back, after the word with their number."""
    messages: int
    """Where in the data buffer its messages are counted by expert slot."""
    lists: int
    """Place of the list of its token 0, whether or not that token is here."""


def lists_bytes(tokens_max: int) -> int:
    """Bytes of the lists of a call."""
    return HEADER_BYTES + tokens_max * INDEX_BYTES


def await_call(going, field, calls, x: Abort, step, sync):
    """Wait until a field reports ``calls`` calls.  It cannot report more before this die has answered.

    Returns 0 if an abort came sooner, or had before (``going``).
    """
    came = yield from until_least(going, field, calls, x, step, sync)
    if came:
        seen = yield xl.load(field, step=step)
        if seen != calls:
            yield xl.fail(WRONG_CALL, seen, step=step)
    return came


def all_await_call(core, going, field, calls, x: Abort, step, sync):
    """Wait as `await_call`, where cores agree the first one for all; they return the same."""
    if core == 0 or x.given_up == 0:
        going = yield from await_call(going, field, calls, x, step, sync)
    going = yield from agreed(going, x, step)
    return going


def messages_of(q: int, n_slots: int, tallies: int) -> int:
    """Return where in the data buffer of an A2E stream the messages of the q-th attention die are counted, by slot.

    Where choices are streamed, the counts that the cores exchange come before them.
    """
    return (streamed_work_at(n_slots) if tallies else 0) + q * align(4 * n_slots)


def place_at(choice: int, n_slots: int, fan_in: int) -> int:
    """Return where the data buffer has the count that places a token's choice: after the counts of all slots."""
    return messages_of(fan_in, n_slots, 0) + 4 * choice


def lists_at(n_slots: int, fan_in: int, tallies: int) -> int:
    """Return where in the data buffer of an A2E stream the lists begin: after those counts."""
    return messages_of(fan_in, n_slots, tallies) if tallies else place_at(COLUMNS, n_slots, fan_in)


def load_lists(low, high, s: Sent, c: Group):
    """Load the lists of choices of some tokens."""
    message = c.payload + SLOT_BYTES
    for t in range(low, high):
        yield xl.mtu_in(s.slots + t * message + c.payload + LIST, s.lists + t * INDEX_BYTES, INDEX_BYTES, step=2)
    yield from hand_over(xl.MTU_IN, xl.SCALAR, 0, "lists loaded")


def keep_lists(first, last, s: Sent):
    """Keep this core's lists for the way back; their place in the data buffer is for others when they have left."""
    if first < last:
        source = s.lists + first * INDEX_BYTES
        yield xl.mtu_out(source, s.kept + HEADER_BYTES + first * INDEX_BYTES, (last - first) * INDEX_BYTES, step=2)
        yield from hand_over(xl.MTU_OUT, xl.MTU_IN, 2, "lists left")


def find_places(t, s: Sent, c: Group, m: Domains):
    """Count, for each choice of a token, the choices of the same expert up to and including it.

    Where choices are streamed they are counted already.
    """
    if not c.tallies:
        for k in range(c.top_k):
            slot = yield xl.ub_load(s.lists + t * INDEX_BYTES + 4 * k, step=2)
            if slot >= 0:
                at = place_at(k, c.n_ranks * c.n_local, m.fan_in)
                yield xl.v_count(s.lists, at, t * COLUMNS + k + 1, slot, slot + 1, step=2)
        yield from hand_over(xl.VECTOR, xl.SCALAR, 0, "places found")


def inbox_for(t, k, s: Sent, c: Group, m: Domains, at: Places):
    """Return where the message of a choice goes, the next place of its expert; 0 if the choice is masked."""
    target = 0
    slot = yield xl.ub_load(s.lists + t * INDEX_BYTES + 4 * k, step=2)
    if slot >= 0:
        if c.tallies:
            place = yield from next_place(slot, 2)
        else:
            found = yield xl.ub_load(place_at(k, c.n_ranks * c.n_local, m.fan_in), step=2)
            place = found - 1
        offset = inbox_of(s.sender, slot % c.n_local, place, c.n_local, m.tokens_max, c.payload + SLOT_BYTES)
        target = at.inbox + slot // c.n_local * c.die_bytes + offset
    return target


def forward(first, last, work, s: Sent, c: Group, m: Domains, at: Places):
    """Step 2 through the data buffer: each message in once, and out to all experts that it is for."""
    message = c.payload + SLOT_BYTES
    for t in range(first, last):
        half = (t - first) % 2
        if t - first >= 2:
            yield xl.wait_flag(xl.MTU_OUT, xl.MTU_IN, half, sync="forward half free")
        yield xl.mtu_in(s.slots + t * message, work + half * message, message, step=2)
        yield from hand_over(xl.MTU_IN, xl.MTU_OUT, half, "forward half full")
        yield from find_places(t, s, c, m)
        for k in range(c.top_k):
            target = yield from inbox_for(t, k, s, c, m, at)
            if target > 0:
                yield xl.mtu_out(work + half * message, target, message, step=2)
        yield xl.set_flag(xl.MTU_OUT, xl.MTU_IN, half, sync="forward half free")
    yield from drain_halves(xl.MTU_OUT, xl.MTU_IN, last - first, "forward half free")


def forward_dma(first, last, s: Sent, c: Group, m: Domains, at: Places):
    """Step 2 by URMA: each message straight from its slot to all experts that it is for."""
    message = c.payload + SLOT_BYTES
    turn = 0
    for t in range(first, last):
        yield from find_places(t, s, c, m)
        for k in range(c.top_k):
            target = yield from inbox_for(t, k, s, c, m, at)
            if target > 0:
                yield from ring(s.slots + t * message, target, message, turn)
                turn = turn + 1
    yield from drain_rings(turn)


def keep_and_tally(first, last, s: Sent, c: Group, m: Domains):
    """Keep the lists of this core's tokens and count their choices by slot, as many at a time as there is room for."""
    yield from clear_tally(0, 2, c)
    t = first
    while t < last:
        some = min(m.listed, last - t)
        yield from load_lists(t, t + some, s._replace(lists=s.lists - t * INDEX_BYTES), c)
        yield from keep_lists(t, t + some, s._replace(lists=s.lists - t * INDEX_BYTES))
        yield from tally_rows(some, s.lists, 2, c)
        t = t + some


def go_on(messages, c: Group):
    """Let the places of a part's messages begin after all earlier parts', which are counted in ``messages``."""
    n_slots = c.n_ranks * c.n_local
    for slot in range(n_slots):
        before = yield xl.ub_load(messages + 4 * slot, step=2)
        place = yield xl.ub_load(4 * slot, step=2)
        yield xl.ub_store(4 * slot, before + place, step=2)
        n = yield xl.ub_load(totals_at(n_slots) + 4 * slot, step=2)
        yield xl.ub_store(messages + 4 * slot, before + n, step=2)


def forward_share(first, last, s: Sent, c: Group, m: Domains, at: Places):
    """Step 2 for this core's tokens, whose lists are in the data buffer, or are streamed through it."""
    t = first
    while t < last:
        some = last - t
        lists = s.lists
        if c.tallies:
            some = min(m.listed, some)
            lists = s.lists - t * INDEX_BYTES
            yield from load_lists(t, t + some, s._replace(lists=lists), c)
        if c.by_dma:
            yield from forward_dma(t, t + some, s._replace(lists=lists), c, m, at)
        else:
            work = s.lists + m.listed * INDEX_BYTES
            yield from forward(t, t + some, work, s._replace(lists=lists), c, m, at)
        t = t + some


def relay_part(core, die, low, high, s: Sent, c: Group, m: Domains, at: Places):
    """Step 2 for some tokens that have arrived: each core forwards its share, for which it needs the lists before."""
    first = low + (high - low) * core // c.cores
    last = low + (high - low) * (core + 1) // c.cores
    if c.tallies:
        yield from keep_and_tally(first, last, s, c, m)
        yield from share_tallies(die, core, 2, c)
        yield from go_on(s.messages, c)
    else:
        yield from load_lists(low, high, s, c)
        yield from keep_lists(first, last, s)
    yield from forward_share(first, last, s, c, m, at)


def count_messages(core, s: Sent, c: Group):
    """Count what there is from an attention die for each expert of this core's share."""
    n_slots = c.n_ranks * c.n_local
    if s.tokens == 0:
        yield xl.v_fill(s.messages, 4 * n_slots, step=2)
    else:
        for i in range(n_slots * core // c.cores, n_slots * (core + 1) // c.cores):
            slot = slot_of(i, s.sender, c.n_ranks, c.n_local)
            yield xl.v_count(s.lists, s.messages + 4 * slot, s.tokens * COLUMNS, slot, slot + 1, step=2)
    yield from hand_over(xl.VECTOR, xl.SCALAR, 1, "messages counted")


def relay_batch(core, die, call, field, s: Sent, c: Group, m: Domains, at: Places, x: Abort):
    """Step 2 for a batch: forward each part when it has come, and keep the lists; 0 if an abort came sooner."""
    going = 1
    if c.tallies:
        yield from clear_tally(s.messages, 2, c)
    for part in range(m.a2e_parts):
        low = min(s.tokens, part_begin(part, m.a2e_parts, m.tokens_max))
        high = min(s.tokens, part_begin(part + 1, m.a2e_parts, m.tokens_max))
        if low < high:
            if part > 0:
                field_of_it = field + part * FIELD_BYTES
                going = yield from all_await_call(core, going, field_of_it, call + 1, x, 2, "tokens announced")
            if going:
                yield from relay_part(core, die, low, high, s, c, m, at)
    if going:
        if not c.tallies:
            yield from count_messages(core, s, c)
        if core == 0:
            yield xl.put(s.kept, s.tokens, step=2)
    return going


def relay(core, die, q, call, n, field, c: Group, m: Domains, at: Places, x: Abort):
    """Step 2 for the ``n`` tokens of the q-th attention die that the trampoline has; 0 if an abort came sooner."""
    here = die * c.die_bytes
    going = yield from relay_batch(
        core, die, call, field,
        Sent(
            sender=first_of(die, m.n_attention, m.trampolines) + q,
            tokens=n,
            slots=at.slots + here + q * m.tokens_max * (c.payload + SLOT_BYTES),
            kept=at.lists + here + (call % m.depth * m.fan_in + q) * lists_bytes(m.tokens_max),
            messages=messages_of(q, c.n_ranks * c.n_local, c.tallies),
            lists=lists_at(c.n_ranks * c.n_local, m.fan_in, c.tallies),
        ), c, m, at, x,
    )  # fmt: skip
    return going


def publish(core, index, call, more, totals, c: Group, at: Places):
    """Report to each expert of this core's share how many messages an attention die has for it, or the end."""
    n_slots = c.n_ranks * c.n_local
    for i in range(n_slots * core // c.cores, n_slots * (core + 1) // c.cores):
        slot = slot_of(i, index, c.n_ranks, c.n_local)
        count = STOP
        if more:
            count = yield xl.ub_load(totals + 4 * slot, step=2)
        field = field_of(at.counts + slot // c.n_local * c.die_bytes, index, c.n_local, slot % c.n_local)
        yield xl.put(field, call + 1, count, step=2, sync="counts of messages")


def announce(core, die, call, more, c: Group, m: Domains, at: Places):
    """Give the slots to the next domain once all is forwarded, and announce to the experts what there is for them."""
    for q in range(dies_of(die, m.n_attention, m.trampolines)):
        index = first_of(die, m.n_attention, m.trampolines) + q
        if more and core == 0:
            to = attention_die(call + 1, index, m.turns, m.domains, m.n_attention, c.n_ranks) * c.die_bytes
            to = to + microbatch_of(call + 1, m.turns, m.domains) * FIELD_BYTES
            yield xl.put(at.credit + to, call + 1, step=2, sync="credit")
        yield from publish(core, index, call, more, messages_of(q, c.n_ranks * c.n_local, c.tallies), c, at)


def pass_on(core, die, call, c: Group, m: Domains, at: Places, x: Abort):
    """Do a trampoline's part of a call: wait for tokens and for room, forward, give the slots to the next domain, and
    announce the counts to the experts.

    The attention dies are served one after the other.  Who has heard of an abort says nothing of the call.
    """
    here = die * c.die_bytes
    fields = at.tokens_in + here + call % m.turns * m.fan_in * m.a2e_parts * FIELD_BYTES
    going = yield from all_await_call(core, 1, fields, call + 1, x, 2, "tokens announced")
    n = STOP
    if going:
        n = yield xl.load(fields + 8, step=2)
    more = n >= 0
    going = yield from until_first(core, going, at.acks + here, c.n_ranks * call, x, 2, "inboxes free")
    if more:
        going = yield from until_first(core, going, at.relayed + here, call + 1 - m.depth, x, 2, "staging free")
    going = yield from agreed(going, x, 2)
    if more:
        for q in range(dies_of(die, m.n_attention, m.trampolines)):
            field = fields + q * m.a2e_parts * FIELD_BYTES
            if q > 0:
                going = yield from all_await_call(core, going, field, call + 1, x, 2, "tokens announced")
                if going:
                    n = yield xl.load(field + 8, step=2)
            if going:
                going = yield from relay(core, die, q, call, n, field, c, m, at, x)
    yield xl.quiet(step=2, sync="messages visible")
    yield from barrier(2, "all cores have forwarded")
    if going:
        yield from announce(core, die, call, more, c, m, at)
