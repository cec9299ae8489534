"""Parameters of pull dispatch and combine, in addition to the group and its buffers."""

from typing import NamedTuple

from xccl_emu import lang as xl


class Areas(NamedTuple):
    """Places that a protocol uses in the managed and metadata areas; addresses are on rank 0."""

    blocks: int
    """What a rank offers, a block for each other rank."""
    block_bytes: int
    fields: int
    """Fields that other ranks write."""
    done: int
    """Acknowledgements."""
    staging: int
    """Two rows for each core of a die, where combine pulls by DMA; else 0."""
    work: int
    """Where in the data buffer the room for messages begins."""
    room: int
    """Messages that fit a half of it."""


class Pulls(Areas):
    """What a rank touches that both offers and pulls: on every die what is for it, or from it."""

    blocks: xl.Own[xl.Writes] | xl.Anywhere[xl.Reads]
    fields: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    done: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    staging: xl.Own[xl.Updates]
