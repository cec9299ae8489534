"""Pairs of prefill and decode ranks: which go together, where the state of each is, and how a transfer is launched.

A decode rank pulls from the prefill rank with which all links carry as much ([CloudMatrix384] 4.3.3).  All ranks of a
prefill instance hold the same latent cache, so any would do.  The paper's equations divide twice and do not say how:
with whole numbers, as sizes are, they fail for most shapes; with exact fractions for none whose ratio is whole.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xccl_emu import protocol
from xccl_emu.base import errors
from xccl_emu.kernels import channel, sendrecv
from xccl_emu.kernels.serving.kv import by_ring, pair, transfer
from xccl_emu.lang import Kernel
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.protocol import streams as in_streams

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
    ring: int
    """Chunks of the ring that the pairs of a decode die share; 0: there is none."""


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
        if s.ring:
            self.ring, self.lock = regions.managed("ring", s.ring * s.room), regions.meta("ring taken")
            self.acks, self.posted = (regions.meta(name, FIELD, s.peers) for name in ("ack", "receive"))
            self.tails = regions.meta("tail", FIELD, s.instances)

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

    def channel(self, link: RankPair, base: int) -> channel.Channel:
        """The channel of a pair, after ``base`` chunks."""
        s, shape = self.sizes, self.sizes.nbytes * sendrecv.SHAPE_UNIT + 1
        return channel.Channel(
            self.acks.at(link.source, link.peer), self.tails.at(link.target, link.instance), link.instance, shape, base,
            s.ring, s.room, 0, 0, self.ring.at(link.target),
        )  # fmt: skip


def _part(region: protocol.Region, die: int, number: int, of: int) -> int:
    """Address of what a pair has of a region, ``of`` elements."""
    return region.at(die, number * of, of)


class InstancePair(NamedTuple):
    """Ranks of a prefill instance and of a decode instance."""

    prefill_tp: int
    decode_tp: int
    decode_dp: int

    def check(self, dp: int, tp: int) -> None:
        """Raises ConfigError for sizes below one, and for a decode rank that is not there."""
        for name, size in self._asdict().items():
            if size < 1:
                raise errors.ConfigError(name, size, "must be at least 1")
        if not (0 <= dp < self.decode_dp and 0 <= tp < self.decode_tp):
            raise errors.ConfigError(
                f"decode rank ({dp}, {tp}): ranks are (0, 0) to ({self.decode_dp - 1}, {self.decode_tp - 1})"
            )


def balanced(shape: InstancePair, dp: int, tp: int) -> int:
    """The rank by the same equations in exact fractions: each exists, and serves as many as any other, or one more.

    It is the rank of the equations in whole numbers where those have one for every rank.

    Raises ConfigError where ``decode_tp`` does not divide ``prefill_tp``.
    """
    shape.check(dp, tp)
    ratio, rest = divmod(shape.prefill_tp, shape.decode_tp)
    if rest or ratio == 0:
        raise errors.ConfigError(
            "prefill_tp",
            shape.prefill_tp,
            f"must be a multiple of decode_tp={shape.decode_tp}, so that ranks of a "
            f"decode group pull from as many prefill ranks",
        )
    return dp * ratio // shape.decode_dp * shape.decode_tp + tp


class PairBatch(NamedTuple):
    """Requests of a pair in a call."""

    requests: NDArray[np.int64]
    """[requests, 2]: ID, and blocks of a part."""
    caches: NDArray[np.uint8]
    """[blocks of all parts, bytes]"""
    first: int
    """Requests of the pair in the calls before."""
    call: str
    """What names of its buffers end with."""


class PairLaunch(NamedTuple):
    """A launch of both sides of a pair."""

    own: Buffer
    """The caches, on the prefill die."""
    out: Buffer
    """Where the decode steps leave what they have read; empty on a die that has stopped."""


@dataclass(frozen=True)
class Transfers:
    """What the launches of all calls are put on."""

    bench: protocol.Bench
    pod: Pod
    streams: in_streams.Streams
    areas: KvRegions
    path: str
    """``"mtu"``, ``"dma"``, ``"push"`` or ``"sendrecv"``."""
    counted: dict[RankPair, int] = field(default_factory=dict)
    """Chunks of each pair in the launches before, by send and receive."""

    def launch(self, link: RankPair, batch: PairBatch) -> PairLaunch:
        """Launch both sides of a pair, but for a die that has stopped."""
        places = self.areas.pair(link, batch.first, len(batch.requests))
        own = self._prefill(link, places, batch)
        return PairLaunch(own, Buffer(link.target, 0, 0) if link.stopped else self._decode(link, places, batch))

    def _prefill(self, link: RankPair, places: pair.Pair, batch: PairBatch) -> Buffer:
        bench, die, (cores, _) = self.bench, link.source, cores_of(self.path, places.cores)
        asked = bench.filled(die, batch.requests, f"requests for die{link.target}{batch.call}")
        own = bench.filled(die, batch.caches, f"caches for die{link.target}{batch.call}", travels=True)
        args: dict[str, Any] = {"requests": asked.address, "caches": own.address, "k": places}
        kernel, on = transfer.prefill, range(link.peer * cores, (link.peer + 1) * cores)
        if self.path == "push":
            kernel, args["me"] = transfer.push, [*range(cores)]
        if self.path == "sendrecv":
            sender, on = on[1], on[:1]
            if not link.stopped:
                sent = {"posted": self.areas.posted.at(die, link.peer), "c": self._channel(link), "k": places}
                self.pod.launch(by_ring.send, die, [sender], sent, after=self.streams)
        self.pod.launch(kernel, die, on, args, after=self.streams)
        return own

    def _channel(self, link: RankPair) -> channel.Channel:
        return self.areas.channel(link, self.counted.get(link, 0))

    def _decode(self, link: RankPair, places: pair.Pair, batch: PairBatch) -> Buffer:
        die, (_, cores) = link.target, cores_of(self.path, places.cores)
        *movers, last = range(link.instance * cores, (link.instance + 1) * cores)
        expected = self.bench.filled(die, batch.requests, f"expected from die{link.source}{batch.call}")
        args: dict[str, Any] = {"requests": expected.address, "k": places}
        kernel = transfer.offer
        if self.path == "sendrecv":
            kernel, where = by_ring.receive, self.areas
            args |= {"posted": where.posted.at(link.source, link.peer), "lock": where.lock.at(die)}
            args["c"] = self._channel(link)
            self.counted[link] = args["c"].base + len(batch.caches) * sendrecv.count_chunks(places.nbytes, places.room)
        elif self.path != "push":
            kernel = transfer.receive
            args |= {"me": [*range(places.cores)], "dma": int(self.path == "dma")}
        self.pod.launch(kernel, die, movers, args, after=self.streams)
        name, owner = f"caches from die{link.source}{batch.call}", self.streams.owner(die, last)
        out = self.bench.wanted(die, batch.caches, name, owners=owner)
        self.pod.launch(transfer.decode, die, [last], {"out": out.address, "k": places}, after=self.streams)
        return out


def cores_of(path: str, cores: int) -> tuple[int, int]:
    """Return the number of cores of a pair on its prefill die, and on its decode die, if ``cores`` move blocks."""
    if path == "push":
        return cores, 2
    return (2, 2) if path == "sendrecv" else (1, cores + 1)


def kernels_of(path: str) -> tuple[Kernel, ...]:
    """Return what both sides of a pair launch."""
    if path == "push":
        return transfer.push, transfer.offer, transfer.decode
    receives = (by_ring.send, by_ring.receive) if path == "sendrecv" else (transfer.receive,)
    return transfer.prefill, *receives, transfer.decode
