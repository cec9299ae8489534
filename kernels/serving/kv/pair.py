"""Parameters of the kernels of a prefill rank and of a decode rank that it serves."""

from typing import NamedTuple

PLACES = 2
"""Pieces of blocks that the data buffer has room for."""
FIELD_BYTES = 32
"""Bytes of a task, a grant, an offer, an entry of a block table, and of each count."""
PLACES_MAX = 62
"""Number of blocks or slots that a word covers."""
PAIRING = 1
"""Code of `fail`: a request that the other side does not expect now."""


class Pair(NamedTuple):
    """Where the state of a pair is, and its sizes."""

    blocks: int
    """Prefill's pool of ``n_blocks``."""
    used: int
    """Word of the prefill die: which blocks are in use."""
    tables: int
    """[n_tasks] tables of ``table_bytes`` on the prefill die: address of each block."""
    done: int
    """[cores] counts on the prefill die: tasks that each core of the receiver has read."""
    offers: int
    """[n_slots] on the prefill die, for push: task + 1, request, slots, how many."""
    slots: int
    """Decode's ``n_slots`` blocks."""
    taken: int
    """Word of the decode die: which slots are taken."""
    tasks: int
    """[n_tasks] on the decode die: task + 1, request, address of the table, how many blocks."""
    grants: int
    """[n_slots] on the decode die: task + 1, slots, address of the table, how many."""
    ready: int
    """[cores] counts on the decode die: tasks for which each core's share is visible."""
    n_blocks: int
    quota: int
    """Blocks of the pool that this pair may have in use at once."""
    n_slots: int
    n_tasks: int
    table_bytes: int
    cores: int
    """Cores that move blocks, each those whose number is its own modulo ``cores``."""
    nbytes: int
    """Bytes of a block."""
    room: int
    """Bytes of a place in the data buffer."""
    layers: int
    first: int
    """Requests of the launches before."""
    requests: int
    waits: int
    """Does prefill wait in the end until all is pulled?"""
