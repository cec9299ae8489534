"""What pull dispatch and combine are told, beside the group and its buffers."""

from typing import NamedTuple


class Areas(NamedTuple):
    """Where a protocol keeps what in the managed and metadata areas; addresses are those of rank 0."""

    blocks: int
    """What a rank offers, a block for each other rank."""
    block_bytes: int
    fields: int
    """What other ranks tell."""
    done: int
    """Acknowledgements."""
    staging: int
    """Two rows for each core of a die, where combine pulls by DMA; else 0."""
    work: int
    """Where in the data buffer the room for messages begins."""
    room: int
    """Messages that fit a half of it."""
