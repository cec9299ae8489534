"""Prefills that reuse blocks of earlier prompts, by a memory pool of several servers ([CloudMatrix384] 4.4.2)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu import protocol
from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.group import align
from xccl_emu.kernels.serving import context_cache as device
from xccl_emu.machine.pod import Pod
from xccl_emu.oracle import prefixes


@dataclass(frozen=True)
class ContextCase(protocol.Case):
    """Servers on the first dies, clients on the next, and on the last the tier's volumes and the controller."""

    presets: ClassVar[tuple[protocol.Preset, ...]] = (
        protocol.Preset(
            "pool-context", "A memory pool of two servers: a prefix is looked up, the rest computed and stored"
        ),
    )
    papers = protocol.read_papers("serving.memory_pool", "A memory pool of several servers")

    servers: int = protocol.size(2, "Dies that have a part of the pool.", most=32)
    clients: int = protocol.size(1, "Dies that prefill prompts.", most=600)
    requests: int = protocol.size(2, "Prompts of each client, one after the other.", most=1 << 10)
    length: int = protocol.size(2, "Blocks of a prompt.", most=1 << 10)
    shared: int = protocol.size(1, "First blocks of it that all prompts have.", least=0, most=1 << 10)
    places: int = protocol.size(1, "Blocks in the DRAM of a server.", most=1 << 16)
    volume: int = protocol.size(2, "Blocks in the volume of a server.", most=1 << 20)
    points: int = protocol.size(2, "Points of each server on the ring.", most=64)
    leaves: int = protocol.size(
        0, "Number of the server, from 1 on, that leaves the ring meanwhile; 0: none.", least=0, most=32
    )
    granules: int = protocol.size(1, "Granules of 32 bytes of a block.", most=1 << 16)
    seed: int = protocol.size(0, "Of tokens, and of points on the ring.", least=0, most=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shared > self.length:
            raise ConfigError("shared", self.shared, f"must be at most length={self.length}")
        if self.leaves > (most := self.servers if self.servers > 1 else 0):
            raise ConfigError("leaves", self.leaves, f"must be at most {most}, and one must stay")

    def prompts(self, client: int) -> NDArray[np.int64]:
        """[requests, length] the tokens of each block, as a word."""
        draw = np.random.default_rng([self.seed, 0])
        tokens = np.tile(draw.integers(1 << 31, size=self.length), (self.requests, 1))
        own = np.random.default_rng([self.seed, 1 + client])
        tokens[:, self.shared :] = own.integers(1 << 31, size=(self.requests, self.length - self.shared))
        return tokens

    def ring(self) -> NDArray[np.int64]:
        """[points, 2] position and server, by position."""
        at = np.random.default_rng([self.seed, 0, 0]).permutation(1 << 16)[: self.servers * self.points]
        drawn = np.stack([at << 15, np.arange(at.size) % self.servers], axis=1)
        return drawn[drawn[:, 0].argsort()]

    @property
    def _nbytes(self) -> int:
        return 32 * self.granules

    def lay_out(self, bench: protocol.Bench) -> None:
        """A client ends with the blocks of all its prompts, wherever they come from."""
        first, last = self.servers, self.servers + self.clients
        regions = protocol.Regions(last + 1)
        messages = self.clients * (self.requests * self.length + 1)
        parts = _Parts(
            regions.managed("block", self._nbytes, self.places), regions.meta("version", 8, self.places),
            regions.managed("volume", self._nbytes, self.servers * self.volume),
            regions.meta("volume version", 8, self.servers * self.volume),
            regions.managed("inbox", self._nbytes, messages), regions.meta("tail", 16, messages),
            regions.meta("tickets"), regions.meta("view"),
        )  # fmt: skip
        ring = self.ring()
        app = self.requests * self.length * (self._nbytes + 8) + 32 + align(ring.nbytes)
        pod = regions.pod(bench, app_bytes=app, ub_bytes=self._nbytes)
        record = self._record(pod, parts)
        for server in range(self.servers):
            pod.launch(device.serve, server, [0], {"c": self._of_server(record, parts, server)})
        for client in range(self.clients):
            die, tokens = first + client, self.prompts(client)
            bench.set_meta(die, parts.view.at(die) - pod.meta(die), np.array([(1 << self.servers) - 1]))
            blocks = np.concatenate([prefixes.cache(each, self._nbytes // 8) for each in tokens])
            given = bench.filled(die, tokens, "prompts")
            points = bench.filled(die, ring, "ring")
            out = bench.wanted(die, blocks, "out", owners=f"die{die}")
            its = record._replace(view=parts.view.at(die), points=points.address)
            pod.launch(device.prefill, die, [0], {"prompts": given.address, "out": out.address, "c": its})
        if self.leaves:
            view = (1 << self.servers) - 1 - (1 << self.leaves - 1)
            clients = record._replace(view=parts.view.at(first).on(*range(first, last)))
            pod.launch(device.change_view, last, [0], {"view": view, "c": clients})
        bench.tolerates("cut", "stall")
        bench.recovers(*range(self.servers))

    def _record(self, pod: Pod, parts: "_Parts") -> device.Cache:
        """Return what a client's kernel takes, but for what is on its own die."""
        servers, last = range(self.servers), self.servers + self.clients
        inbox, tails, tickets = (part.at(0).on(*servers) for part in (parts.inbox, parts.tails, parts.tickets))
        return device.Cache(
            parts.blocks.at(0).on(*servers), parts.versions.at(0).on(*servers), parts.volumes.at(last),
            parts.volume_versions.at(last), inbox, tails, tickets, 0, 0, self.servers * self.points, self.servers,
            pod.spec.die_bytes, self.places, self.volume, self._nbytes, self.clients, self.requests, self.length,
        )  # fmt: skip

    def _of_server(self, record: device.Cache, parts: "_Parts", server: int) -> device.Cache:
        """Return what a server's kernel takes: what is on its die, and its volume."""
        last = self.servers + self.clients
        return record._replace(
            blocks=parts.blocks.at(server), versions=parts.versions.at(server), inbox=parts.inbox.at(server),
            tails=parts.tails.at(server), tickets=parts.tickets.at(server),
            volumes=parts.volumes.at(last, server * self.volume, self.volume),
            volume_versions=parts.volume_versions.at(last, server * self.volume, self.volume),
        )  # fmt: skip

    proof_rows: ClassVar = {
        "a prefix that two prompts share": {},
        "a block that is asked for twice": dict(length=1),
        "a server leaves the ring": dict(length=1, leaves=1),
        "the other server leaves": dict(length=1, leaves=2),
        "places used again": dict(length=1, shared=0, volume=1, requests=3),
        "two clients, a prompt each": dict(clients=2, requests=1, length=1),
        "blocks of two granules": dict(length=1, granules=2),
        "one server": dict(servers=1, length=1),
    }


@dataclass(frozen=True)
class _Parts:
    """The regions; each is on all dies, and in use on those that `device.Cache` says."""

    blocks: protocol.Region
    versions: protocol.Region
    volumes: protocol.Region
    volume_versions: protocol.Region
    inbox: protocol.Region
    tails: protocol.Region
    tickets: protocol.Region
    view: protocol.Region
