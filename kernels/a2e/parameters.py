"""Parameters of the kernels of A2E and E2A, and functions that all of them share; `attention` describes the steps."""

from typing import NamedTuple

from xccl_emu import lang as xl

LIST = 32
"""Where in a message's slot the list of its choices begins: an expert slot or -1 for each, 4 bytes, `INDEX_BYTES`."""

STOP = -1
"""The number of tokens that ends it all."""

WRONG_CALL = 3
"""Code of `fail`: a field speaks of another call than the next; the value is the number of calls that it has."""


class Domains(NamedTuple):
    """What attention and expert dies have beyond an expert-parallel group; in its `Group`, ranks are expert dies."""

    turns: int
    """Microbatches of all domains, which take turns: call c belongs to domain c % turns % domains."""
    domains: int
    n_attention: int
    """Attention dies of a domain."""
    trampolines: int
    """Expert dies that are one, the first ones; each has as many attention dies of a domain, but for one."""
    fan_in: int
    """Attention dies of a domain that a trampoline has at most."""
    a2e_parts: int
    """Parts in which a batch goes to the experts, a trampoline forwarding one while the next arrives."""
    e2a_parts: int
    """Parts in which it comes back."""
    senders: int
    """Cores of an E2A stream, the first ones, that send rows back."""
    relays: int
    """How many of them, the last ones, forward."""
    tokens_max: int
    depth: int
    """Calls that an expert die has memory for."""
    rows_max: int
    """Rows that an expert die can have of a call."""
    listed: int
    """Lists of choices that a core of an A2E stream has at a time: all of a batch, unless they are streamed."""
    room: int
    """Messages that fit half of what the counts leave of its data buffer."""
    attention_work: int
    """Vector instructions that stand in for attention, before each call."""
    expert_work: int
    """The same on each core of the compute stream, after the dummy expert."""


class Microbatch(NamedTuple):
    """A microbatch of an attention die, and where its calls find what: addresses."""

    turn: int
    """Its calls are ``turn``, ``turn + turns``, ..."""
    number: int
    """Number among the microbatches of its die, which take turns."""
    sender: int
    """Which attention die of its domain."""
    slots: xl.Writes
    """At the trampoline, as ``tokens_in``."""
    tokens_in: xl.Writes
    outbox: xl.Updates
    """For URMA; own, as the rest."""
    credit: xl.Reads
    returned: xl.Reads
    returned_in: xl.Reads
    attended: xl.Updates
    """How many microbatches the die has computed the attention of."""


class ReturnPlan(NamedTuple):
    """Layout of the data buffer of an E2A stream: where each part begins, after what ``due`` has at 0."""

    counts: int
    """Rows of the call, by local expert and attention die."""
    done: int
    """Rows of the call that this core has sent back, in the same order, for both laps through them."""
    sent: int
    """Rows of a part that this core has sent back, by attention die."""
    lists: int
    """Choices of a part, or of as many of its tokens as have room; before them a word with the number of tokens."""
    work: int
    """Rows on their way."""
    listed: int
    """Tokens whose choices have room."""


class Places(NamedTuple):
    """Where things are: addresses on die 0; on die d they are ``d * die_bytes`` higher.

    On trampolines, for each of their attention dies, ``slots`` (what comes from it), ``lists`` and ``staging`` (both by
    ``call % depth`` first); on expert dies ``inbox`` (by attention die and local expert); on attention dies
    ``returned``, by microbatch.  The rest are fields.
    """

    slots: int
    lists: int
    staging: int
    inbox: int
    returned: int
    credit: int
    """On attention dies, by microbatch: calls whose tokens the trampoline has read."""
    tokens_in: int
    """On trampolines, by domain, their attention die, and part: (calls, tokens of all parts)."""
    acks: int
    """On trampolines: how many calls the expert dies have gathered, all together."""
    counts: int
    """On expert dies, by attention die and local expert: (calls, messages)."""
    arrivals: int
    """On trampolines, by ``call % depth``, their attention die, and part: how many rows have come back."""
    returned_in: int
    """On attention dies, by microbatch: calls that have come back."""
    assembled: int
    computed: int
    sent: int
    relayed: int
    """Own: calls that each stream is done with."""
    tallies: int
    """Counts that the cores of a trampoline's A2E stream exchange, where choices are streamed."""


def attention_die(call: int, i: int, turns: int, domains: int, n_attention: int, n_experts: int) -> int:
    """The i-th attention die of the domain that has a call; the expert dies come first."""
    return n_experts + call % turns % domains * n_attention + i


def microbatch_of(call: int, turns: int, domains: int) -> int:
    """Return which microbatch of its domain a call moves; each has its own fields and rows on the attention dies."""
    return call % turns // domains


def first_of(trampoline: int, n_attention: int, trampolines: int) -> int:
    """The first attention die of a domain that a trampoline has; its last one is before the next one's first."""
    return trampoline * n_attention // trampolines


def dies_of(trampoline: int, n_attention: int, trampolines: int) -> int:
    """Return the number of attention dies of a domain that a trampoline serves."""
    return first_of(trampoline + 1, n_attention, trampolines) - first_of(trampoline, n_attention, trampolines)


def trampoline_of(index: int, n_attention: int, trampolines: int) -> int:
    """The trampoline of an attention die."""
    return ((index + 1) * trampolines - 1) // n_attention


def inbox_of(index: int, local: int, place: int, n_local: int, tokens_max: int, message: int) -> int:
    """Offset in an inbox of the place of a message that comes from an attention die for a local expert."""
    return ((index * n_local + local) * tokens_max + place) * message


def part_begin(part: int, parts: int, tokens_max: int) -> int:
    """Return the first token of a part of a batch; the last part ends at ``tokens_max``."""
    return tokens_max * part // parts
