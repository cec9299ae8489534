"""Parameters of FusedDispatch and FusedCombine, in addition to the group and its buffers."""

from typing import NamedTuple


class Fused(NamedTuple):
    """Places that FusedDispatch and FusedCombine use, and the optimizations that are on; addresses are on rank 0."""

    dispatch: int
    """Messages: a region of ``region`` messages for each source, or all packed."""
    combine: int
    """Contributions: a row for each choice of each token."""
    region: int
    fields: int
    """Counts, and where messages begin, by parity of the round, source and local expert."""
    arrivals: int
    """Contributions that a token has got since the group was made."""
    due: int
    """Contributions that a token has waited for; its home's own."""
    staging: int
    """Messages on their way to the DMA engine, of all cores."""
    work: int
    """Where in the data buffer the room for messages begins."""
    room: int
    """Messages that fit a half of it after the counts of all sources."""
    list_room: int
    """Rows whose routes and numbers fit the data buffer of combine, after the rows that are on their way."""
    wire: int
    """Bytes of a payload on its way."""
    exchange: int
    """If there is no allocation in advance: how many messages a source has for this rank, by parity and source, and
    then after how many messages of others to begin, by parity and destination; else 0."""
    sdma: int
    pipelined: int
