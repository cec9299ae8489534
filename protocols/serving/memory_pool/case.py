"""A memory pool whose blocks are put, read by many, and evicted, as a case ([CloudMatrix384] 4.4.1, 4.4.2)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu import protocol
from xccl_emu.kernels.group import align
from xccl_emu.kernels.serving import memory_pool as device


@dataclass(frozen=True)
class MemoryPoolCase(protocol.Case):
    """A server with few places, clients that get blocks while it puts more, and a second tier on the last die."""

    presets: ClassVar[tuple[protocol.Preset, ...]] = (
        protocol.Preset("pool", "A memory pool: Put, pinned Get, eviction to a second tier", {}, {"gets": 1}),
        protocol.Preset(
            "pool-unpinned", "A memory pool whose clients pin nothing: version, block, version again", {"unpinned": 1}
        ),
    )  # fmt: skip

    papers = protocol.read_papers("serving.memory_pool", "Memory pool")

    clients: int = protocol.size(1, "Dies that get blocks.", most=700)
    buckets: int = protocol.size(1, "Places of the server, in each namespace.", most=1 << 12)
    puts: int = protocol.size(2, "Blocks that are put, one for each key of a namespace.", most=1 << 12)
    gets: int = protocol.size(2, "Blocks that each client gets.", most=1 << 12)
    granules: int = protocol.size(1, "Granules of 32 bytes of a block.", most=1 << 20)
    unpinned: int = protocol.switch(0, "Do clients look at a version twice, in place of a pin?", advanced=True)
    cpu: int = protocol.switch(0, "Is the server a CPU socket, in place of a die?", advanced=True)
    spaces: int = protocol.size(1, "Namespaces; clients take turns, and may touch nothing of another.", most=64)
    seed: int = protocol.size(0, "Of the blocks.", least=0, most=None)

    def wanted(self, client: int) -> NDArray[np.int64]:
        """Keys that a client gets, [gets]: of its namespace, from its own number on."""
        return client % self.spaces * self.puts + (client + np.arange(self.gets)) % self.puts

    def lay_out(self, bench: protocol.Bench) -> None:
        """The server is die 0 or a CPU, clients follow from die 1 on, the second tier is the last die."""
        nbytes, n = 32 * self.granules, self.clients
        places, puts = self.spaces * self.buckets, self.spaces * self.puts
        values = protocol.payload(puts * nbytes, self.seed).reshape(puts, nbytes)
        regions, last = protocol.Regions(n + 2, cpus=self.cpu), n + 1
        blocks, tier = regions.managed("block", nbytes, places), regions.managed("tier", nbytes, puts)
        pins, keys = regions.meta("pins", 8, places), regions.meta("key", device.FIELD_BYTES, places)
        stored = regions.meta("stored", device.FIELD_BYTES, puts)
        app = max(values.nbytes, self.gets * nbytes + align(8 * self.gets))
        pod = regions.pod(bench, app_bytes=app, ub_bytes=nbytes)
        server = pod.cpu(0) if self.cpu else 0
        closed = np.zeros((places, pins.step // 8), np.int64)
        closed[:, 0] = device.CLOSED
        bench.set_meta(server, pins.at(server) - pod.meta(server), closed)
        pool = device.Pool(
            blocks.at(server), pins.at(server), keys.at(server), tier.at(last), stored.at(last), self.buckets, nbytes,
            puts, self.puts, self.gets, self.cpu,
        )  # fmt: skip
        given = bench.filled(server, values, "values")
        serve, get = (device.serve_unpinned, device.get_unpinned) if self.unpinned else (device.serve, device.get)
        pod.launch(serve, server, [0], {"values": given.address, "p": pool})
        for client in range(n):
            keys_wanted, die = self.wanted(client), client + 1
            asked = bench.filled(die, keys_wanted, "wanted")
            out = bench.wanted(die, values[keys_wanted], "out", owners=f"die{die}")
            space = client % self.spaces
            own, put = (range(space * each, (space + 1) * each) for each in (self.buckets, self.puts))
            its = pool._replace(
                blocks=blocks.at(server).only(own), pins=pins.at(server).only(own), keys=keys.at(server).only(own),
                tier=tier.at(last).only(put), stored=stored.at(last).only(put),
            )  # fmt: skip
            pod.launch(get, die, [0], {"wanted": asked.address, "out": out.address, "p": its})
        bench.tolerates("stop", "cut", "stall")

    proof_rows: ClassVar = {
        "a version, a block, the version again": dict(unpinned=1),
        "two clients, no pins": dict(unpinned=1, clients=2),
        "a place used three times, no pins": dict(unpinned=1, puts=3, gets=3),
        "blocks of two granules, no pins": dict(unpinned=1, granules=2),
        "two namespaces, no pins": dict(unpinned=1, clients=2, spaces=2, gets=1),
        "one client, a place used twice": {},
        "two clients": dict(clients=2, gets=1),
        "two clients, two blocks each": dict(clients=2),
        "two places, three blocks": dict(buckets=2, puts=3, gets=3),
        "a place used three times": dict(puts=3, gets=3),
        "blocks of two granules": dict(granules=2),
        "two namespaces": dict(clients=2, spaces=2, gets=1),
        "the server on a CPU": dict(cpu=1),
        "the server on a CPU, no pins": dict(unpinned=1, cpu=1),
    }
