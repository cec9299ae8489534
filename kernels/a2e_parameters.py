"""What the kernels of A2E and E2A take, and what they all know; told in `a2e`."""

from typing import NamedTuple

LIST = 32
"""Where in a message's slot the list of its choices begins: an expert slot or -1 for each, 4 bytes, `INDEX_BYTES`."""

DMA_TURNS = 4
"""Transfers that a core has under way at most when it rings the DMA engine."""

STOP = -1
"""The number of tokens that ends it all."""

WRONG_CALL = 3
"""Code of `fail`: a field speaks of another call than the next; the value is the number of calls that it has."""


class Domains(NamedTuple):
    """What attention and expert dies have beyond an expert-parallel group; in its `Group`, ranks are expert dies."""

    n_domains: int
    n_attention: int
    """Attention dies of a domain, and trampolines."""
    tokens_max: int
    depth: int
    """Calls that an expert die has memory for."""
    rows_max: int
    """Rows that an expert die can have of a call."""


class Places(NamedTuple):
    """Where things are: addresses on die 0; on die d they are ``d * die_bytes`` higher.

    On trampolines ``slots`` (what comes from the attention die), ``lists`` and ``staging`` (by ``call % depth``); on
    expert dies ``inbox`` (by trampoline and local expert); on attention dies ``returned``, and ``outbox`` for URMA.
    The rest are fields.
    """

    slots: int
    lists: int
    staging: int
    inbox: int
    returned: int
    outbox: int
    credit: int
    """On attention dies: calls whose tokens the trampoline has read."""
    tokens_in: int
    """On trampolines, by domain: (calls, tokens)."""
    acks: int
    """On trampolines: how many calls the expert dies have gathered, all together."""
    counts: int
    """On expert dies, by trampoline and local expert: (calls, messages)."""
    arrivals: int
    """On trampolines, by ``call % depth``: how many rows have come back."""
    returned_in: int
    """On attention dies: calls that have come back."""
    assembled: int
    computed: int
    sent: int
    relayed: int
    """Own: calls that each stream is done with."""


def attention_die(call: int, i: int, n_domains: int, n_attention: int, n_experts: int) -> int:
    """The i-th attention die of the domain that has a call; the expert dies come first."""
    return n_experts + call % n_domains * n_attention + i
