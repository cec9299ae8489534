"""The records of layers that go on with fewer ranks, with what each rank has for them."""

from typing import NamedTuple

from xccl_emu import lang as xl


class Replicas(NamedTuple):
    """Which slots experts have, and what a rank keeps of that."""

    experts: int
    maps: xl.Reads
    """[1 + ranks, tokens, experts] slots, by the lost rank, no rank last."""
    map_bytes: int
    """Bytes of the slots for one lost rank."""
    held: xl.Reads
    """[1 + ranks, slots] experts."""
    slots: xl.Updates
    """[tokens, 16]: the choices of a round as slots."""
    held_routes: xl.Updates
    """[rows] routes, with the expert in place of its slot."""


class Attempts(NamedTuple):
    """What a rank has to do."""

    resume: xl.Updates
    """Word in which the first core gives its siblings the round that they continue with."""
    took_part: xl.Writes
    """[rounds] words: one more than the rank that was lost when the round was made, the number of ranks for none."""
    batches: xl.Reads
    """How many tokens each round has."""
    batch_bytes: int
    """From a number to the next."""
