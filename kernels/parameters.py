"""The records that kernels take, so that what belongs together has one name."""

from typing import NamedTuple


class Channel(NamedTuple):
    """A channel in one transfer, as one of its sides uses it."""

    ack: int
    """Address of the field on the sender's die."""
    tail: int
    """Address of that on the receiver's."""
    event: int
    shape: int
    base: int
    """Chunks counted before this transfer."""
    slots: int
    slot_bytes: int
    by_dma: int
    ack_each: int
    """Whether each chunk is acknowledged although the payload fits the ring.  Only a receiver asks."""
    ring: int
    """Address of the first slot; 0 for a sender, which is told it by the ack field."""


class Group(NamedTuple):
    """The shape of the group and of what it moves; the same on all of its cores."""

    n_ranks: int
    n_local: int
    """Expert slots of a rank."""
    top_k: int
    """Choices of a token."""
    hidden: int
    """Elements of a hidden state."""
    payload: int
    """Bytes of a dispatched token without its slot."""
    dtype: int
    quantized: int
    """0 for no, else 1 + the rule."""
    shared: int
    """Whether the last choice is the shared expert."""
    by_dma: int
    cores: int
    """Cores used on each die."""
    die_bytes: int
    """From an address on one die to the same place on the next."""
    tallies: int = 0
    """Where rank 0's cores tell each other what they have counted in scalar loops; 0 if each counts all by itself."""
    narrowed: int = 0
    """Whether it is INT8 on the way back, too: 0 for no, else 1 + the rule."""


class Buffers(NamedTuple):
    """Addresses of a rank's app buffers; a kernel is given those that it needs, and 0 for the others."""

    x: int = 0
    topk: int = 0
    pos: int = 0
    weights: int = 0
    recv_x: int = 0
    route: int = 0
    counts: int = 0
    y: int = 0
    out: int = 0


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


class Fused(NamedTuple):
    """Where FusedDispatch and FusedCombine keep what, and which optimizations are on; addresses are those of rank 0."""

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
    """Messages that fit a half of it behind the counts of all sources."""
    list_room: int
    """Rows whose routes and numbers fit the data buffer of combine, behind the rows that are on their way."""
    wire: int
    """Bytes of a payload on its way."""
    exchange: int
    """If there is no allocation in advance: how many messages a source has for this rank, by parity and source, and
    then behind how many of others to begin, by parity and destination; else 0."""
    sdma: int
    pipelined: int


class Sets(NamedTuple):
    """Where the two buffer sets of DeepEP's low-latency mode are; addresses are those of rank 0, sizes in bytes."""

    signals: int
    """Signals, dispatch -n - 1, combine 1: by source and local expert, which are the writing rank and its expert."""
    signals_step: int
    """From a set to the other."""
    data: int
    """Messages of dispatch by source and local expert, contributions of combine by token and choice."""
    data_step: int
    slots: int
    """Messages of a block."""
    work: int
    """Where in the data buffer the room for messages begins."""
    room: int
    """Messages that fit a half of it."""
