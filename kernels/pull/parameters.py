"""Parameters of pull dispatch and combine, in addition to the group and its buffers."""

from typing import NamedTuple


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
