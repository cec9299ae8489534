"""The records that kernels take, so that what belongs together has one name."""

from typing import NamedTuple

from xccl_emu import lang as xl


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
    """Where rank 0's cores share what they have counted in scalar loops; 0 if each counts all by itself."""
    narrowed: int = 0
    """Whether it is INT8 on the way back, too: 0 for no, else 1 + the rule."""


class Counting(Group):
    """What cores touch that count together."""

    tallies: xl.Own[xl.Updates]


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
    version: int = 0
    """Address of the version of the map that the choices were made by, where maps change (`kernels/serving/swap`)."""


class Slots(NamedTuple):
    """Weights of a rank's expert slots, by number of the slot, where these may change; 0 for none."""

    held: int = 0
    nbytes: int = 0
    """From a slot's weights to the next ones."""
    since: int = 0
    """Fields: version of the map from which on a slot has its weights."""


class RoutedBuffers(Buffers):
    """What a combine touches that sends rows back by their routes."""

    y: xl.Reads
    route: xl.Reads
    counts: xl.Reads
    topk: xl.Reads
    weights: xl.Reads
    out: xl.Writes


class LayerBuffers(Buffers):
    """What a whole layer touches."""

    x: xl.Reads
    topk: xl.Reads
    pos: xl.Updates
    weights: xl.Reads
    recv_x: xl.Updates
    route: xl.Updates
    counts: xl.Updates
    y: xl.Updates
    out: xl.Writes


class Rounds(NamedTuple):
    """What a rank has to do where rounds may be rolled back."""

    whole: int
    """1 for dispatch, the dummy expert and combine, 0 for dispatch alone."""
    failures: int
    """How many rounds may go wrong, whichever these are."""
    resume: xl.Updates
    """Word in which the first core gives its siblings the round that they continue with."""
    batches: xl.Reads
    """How many tokens each round has."""
    batch_bytes: int
    """From a number to the next."""
