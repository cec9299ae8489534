"""Pairs of prefill and decode ranks, and where the state of each is."""

from typing import NamedTuple

from xccl_emu import protocol
from xccl_emu.kernels.serving.kv import pair

FIELD = pair.FIELD_BYTES


class RankPair(NamedTuple):
    """A prefill rank and a decode rank that it serves."""

    source: int
    """Die of the prefill rank."""
    peer: int
    """Number of the pair among the pairs of that die."""
    target: int
    """Die of the decode rank."""
    instance: int
    """Number of the pair among the pairs of the decode die."""
    stopped: bool
    """Whether nothing runs on the decode die."""


class PairSizes(NamedTuple):
    """Sizes of all pairs."""

    peers: int
    """Most pairs of a prefill die."""
    instances: int
    """Pairs of a decode die."""
    pool: int
    pools: int
    """Pools of a prefill die: one for each pair, or one for all."""
    quota: int
    slots: int
    tasks: int
    blocks: int
    """Most blocks of a task."""
    cores: int
    nbytes: int
    """Bytes of a block."""
    room: int
    """Bytes of a place in the data buffer."""
    layers: int


class KvRegions:
    """Regions of a pod; prefill dies use some and decode dies others."""

    def __init__(self, regions: protocol.Regions, sizes: PairSizes) -> None:
        self.regions, self.sizes, s = regions, sizes, sizes
        self.table_bytes = FIELD * s.blocks
        self.blocks = regions.managed("block", s.nbytes, s.pools * s.pool)
        self.slots = regions.managed("slot", s.nbytes, s.slots)
        self.used, self.taken = regions.meta("used", 8, s.pools), regions.meta("taken")
        self.tables = regions.meta("table", self.table_bytes, s.peers * s.tasks)
        self.done = regions.meta("done", FIELD, s.peers * s.cores)
        self.offers = regions.meta("offer", FIELD, s.peers * s.slots)
        self.tasks = regions.meta("task", FIELD, s.instances * s.tasks)
        self.grants = regions.meta("grant", FIELD, s.instances * s.slots)
        self.ready = regions.meta("ready", FIELD, s.instances * s.cores)

    @property
    def ub_bytes(self) -> int:
        """Places for pieces of blocks, and after them a table, or the blocks that each open task has."""
        return pair.PLACES * self.sizes.room + max(8 * self.sizes.tasks, self.table_bytes)

    def pair(self, link: RankPair, first: int, requests: int) -> pair.Pair:
        """The parameters of its kernels, for a launch after ``first`` requests."""
        s, source, target, peer, mine = self.sizes, link.source, link.target, link.peer, link.instance
        pool = peer if s.pools > 1 else 0
        return pair.Pair(
            _part(self.blocks, source, pool, s.pool), self.used.at(source, pool),
            _part(self.tables, source, peer, s.tasks), _part(self.done, source, peer, s.cores),
            _part(self.offers, source, peer, s.slots), self.slots.at(target), self.taken.at(target),
            _part(self.tasks, target, mine, s.tasks), _part(self.grants, target, mine, s.slots),
            _part(self.ready, target, mine, s.cores), s.pool, s.quota, s.slots, s.tasks, self.table_bytes, s.cores,
            s.nbytes, s.room, s.layers, first, requests, int(not link.stopped),
        )  # fmt: skip


def _part(region: protocol.Region, die: int, number: int, of: int) -> int:
    """Address of what a pair has of a region, ``of`` elements."""
    return region.at(die, number * of, of)
