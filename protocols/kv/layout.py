"""Pairs of prefill and decode ranks, and where the state of each is."""

from typing import NamedTuple

from xccl_emu import protocol
from xccl_emu.kernels.kv import pair
from xccl_emu.machine.launch import Grant

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
        s, pool = self.sizes, self._pool(link)
        source, target, peer, mine = link.source, link.target, link.peer, link.instance
        return pair.Pair(
            self.blocks.at(source, pool * s.pool), self.used.at(source, pool), self.tables.at(source, peer * s.tasks),
            self.done.at(source, peer * s.cores), self.offers.at(source, peer * s.slots), self.slots.at(target),
            self.taken.at(target), self.tasks.at(target, mine * s.tasks), self.grants.at(target, mine * s.slots),
            self.ready.at(target, mine * s.cores), s.pool, s.quota, s.slots, s.tasks, self.table_bytes, s.cores,
            s.nbytes, s.room, s.layers, first, requests, int(not link.stopped),
        )  # fmt: skip

    def prefill(self, link: RankPair) -> list[Grant]:
        """List what prefill may touch where decode pulls."""
        s, pool, die = self.sizes, self._pool(link), link.source
        return [
            self.blocks.grant(die, "w", pool * s.pool, s.pool), self.used.grant(die, "rw", pool),
            self.tables.grant(die, "w", link.peer * s.tasks, s.tasks),
            self.done.grant(die, "r", link.peer * s.cores, s.cores),
            self.tasks.grant(link.target, "w", link.instance * s.tasks, s.tasks),
        ]  # fmt: skip

    def push(self, link: RankPair) -> list[Grant]:
        """List what it may touch where it writes to slots."""
        return [
            self.offers.grant(link.source, "r", link.peer * self.sizes.slots, self.sizes.slots),
            self.slots.grant(link.target, "w"), self._ready(link, "w"),
        ]  # fmt: skip

    def receive(self, link: RankPair) -> list[Grant]:
        """List what decode's receiver may touch."""
        s, pool, die = self.sizes, self._pool(link), link.source
        return [
            self.blocks.grant(die, "r", pool * s.pool, s.pool),
            self.tables.grant(die, "r", link.peer * s.tasks, s.tasks),
            self.done.grant(die, "w", link.peer * s.cores, s.cores), self.slots.grant(link.target, "w"),
            self.taken.grant(link.target, "rw"), self.tasks.grant(link.target, "r", link.instance * s.tasks, s.tasks),
            self._grants(link, "rw"), self._ready(link, "w"),
        ]  # fmt: skip

    def offer(self, link: RankPair) -> list[Grant]:
        """List what it may touch where prefill writes."""
        offers = self.offers.grant(link.source, "w", link.peer * self.sizes.slots, self.sizes.slots)
        return [self.taken.grant(link.target, "rw"), self._grants(link, "w"), offers]

    def decode(self, link: RankPair) -> list[Grant]:
        """List what a decode step may touch."""
        slots, taken = self.slots.grant(link.target, "r"), self.taken.grant(link.target, "w")
        return [slots, taken, self._grants(link, "r"), self._ready(link, "r")]

    def _pool(self, link: RankPair) -> int:
        return link.peer if self.sizes.pools > 1 else 0

    def _grants(self, link: RankPair, rights: str) -> Grant:
        return self.grants.grant(link.target, rights, link.instance * self.sizes.slots, self.sizes.slots)

    def _ready(self, link: RankPair, rights: str) -> Grant:
        return self.ready.grant(link.target, rights, link.instance * self.sizes.cores, self.sizes.cores)
