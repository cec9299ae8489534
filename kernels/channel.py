"""A channel between two dies, as the kernels of send and receive take it."""

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
    """Address of the first slot; 0 for a sender, which learns it from the ack field."""
