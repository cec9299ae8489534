"""Parameters of the kernels of DeepEP, in addition to the group and its buffers."""

from typing import NamedTuple

from xccl_emu import lang as xl


class Sets(NamedTuple):
    """Places of the two buffer sets of DeepEP's low-latency mode; addresses are on rank 0, sizes in bytes."""

    signals: xl.Own[xl.Updates] | xl.Anywhere[xl.Writes]
    """Signals, dispatch -n - 1, combine 1: by source and local expert, which are the writing rank and its expert."""
    signals_step: int
    """From a set to the other."""
    data: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    """Messages of dispatch by source and local expert, contributions of combine by token and choice."""
    data_step: int
    slots: int
    """Messages of a block."""
    work: int
    """Where in the data buffer the room for messages begins."""
    room: int
    """Messages that fit a half of it."""


class Rings(NamedTuple):
    """Places of the channels of DeepEP's normal mode; addresses are on rank 0, sizes in bytes."""

    fields: int
    """Counts of rows, by source and channel."""
    fields_step: int
    """From a set of them to the other."""
    tails: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    """Rows that are in, by source and channel."""
    heads: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    """Rows that are taken out, by who takes them and channel."""
    rings: xl.Own[xl.Reads] | xl.Anywhere[xl.Writes]
    """Places for rows, by source and channel."""
    parts: int
    """What came back, by token and rank."""
    slots: int
    """Places of a ring."""
    slot_bytes: int
    chunk: int
    """Number of rows that are announced at once."""
    route_bytes: int
    """Bytes that follow a row in dispatch."""
    choices: int
    """From here on: places in the data buffer."""
    marks: int
    counts: int
    work: int


class Sums(NamedTuple):
    """What a combine of normal mode adds up besides rows, and in which order."""

    back: int = 0
    """Bytes that come back after a row, its route, if its weights do; else 0."""
    bias: xl.Reads = 0
    """Rows that the sums of a rank's own tokens begin with, token by token."""
    biases: int = 0
    """Such rows of a token."""
    by_choice: int = 0
    """Whether what ranks return is added in order of the last choice of each, and not of the ranks."""
