"""Launching a transfer on a pod: prefill's side of a pair, and decode's."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xccl_emu import protocol
from xccl_emu.kernels.serving.kv import pair, transfer
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.protocol import streams as in_streams
from xccl_emu.protocols.serving.kv.layout import KvRegions, RankPair


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
    """``"mtu"``, ``"dma"`` or ``"push"``."""

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
        self.pod.launch(kernel, die, on, args, after=self.streams)
        return own

    def _decode(self, link: RankPair, places: pair.Pair, batch: PairBatch) -> Buffer:
        die, (_, cores) = link.target, cores_of(self.path, places.cores)
        *movers, last = range(link.instance * cores, (link.instance + 1) * cores)
        expected = self.bench.filled(die, batch.requests, f"expected from die{link.source}{batch.call}")
        args: dict[str, Any] = {"requests": expected.address, "k": places}
        kernel = transfer.offer
        if self.path != "push":
            kernel = transfer.receive
            args |= {"me": [*range(places.cores)], "dma": int(self.path == "dma")}
        self.pod.launch(kernel, die, movers, args, after=self.streams)
        name, owner = f"caches from die{link.source}{batch.call}", self.streams.owner(die, last)
        out = self.bench.wanted(die, batch.caches, name, owners=owner)
        self.pod.launch(transfer.decode, die, [last], {"out": out.address, "k": places}, after=self.streams)
        return out


def cores_of(path: str, cores: int) -> tuple[int, int]:
    """Return the number of cores of a pair on its prefill die, and on its decode die, if ``cores`` move blocks."""
    return (cores, 2) if path == "push" else (1, cores + 1)
