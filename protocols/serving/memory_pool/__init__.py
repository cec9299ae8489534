"""A memory pool as cases: blocks that are put, read by many, and evicted; models in it; and blocks that many put
([CloudMatrix384] 4.4.1 to 4.4.3)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu import protocol
from xccl_emu.kernels.group import align
from xccl_emu.kernels.serving import memory_pool as device
from xccl_emu.kernels.serving import model_cache
from xccl_emu.machine.pod import Buffer, Pod

FIELD_BYTES = 32


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
        places = PoolPlaces(self)
        nbytes, puts = places.nbytes, self.spaces * self.puts
        values = protocol.payload(puts * nbytes, self.seed).reshape(puts, nbytes)
        app = max(values.nbytes, self.gets * nbytes + align(8 * self.gets))
        pod = places.regions.pod(bench, app_bytes=app, ub_bytes=nbytes)
        server, pins = places.server(pod), places.pins
        bench.set_meta(server, pins.at(server) - pod.meta(server), places.closed())
        places.serve(pod, bench.filled(server, values, "values"), self.puts)
        for client in range(self.clients):
            keys_wanted, die = self.wanted(client), client + 1
            asked = bench.filled(die, keys_wanted, "wanted")
            out = bench.wanted(die, values[keys_wanted], "out", owners=f"die{die}")
            places.get(pod, client, asked, out, self.puts)
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


class PoolPlaces:
    """Regions of a pool, and its launches."""

    def __init__(self, case: MemoryPoolCase) -> None:
        self.case, self.nbytes = case, 32 * case.granules
        self.regions = protocol.Regions(case.clients + 2, cpus=case.cpu)
        places, puts = case.spaces * case.buckets, case.spaces * case.puts
        self.blocks = self.regions.managed("block", self.nbytes, places)
        self.tier = self.regions.managed("tier", self.nbytes, puts)
        self.pins = self.regions.meta("pins", 8, places)
        self.keys = self.regions.meta("key", device.FIELD_BYTES, places)
        self.stored = self.regions.meta("stored", device.FIELD_BYTES, puts)

    def server(self, pod: Pod) -> int:
        """Die or CPU of the server."""
        return pod.cpu(0) if self.case.cpu else 0

    def closed(self) -> NDArray[np.int64]:
        """[places, words] the pins of a pool that holds nothing."""
        words = np.zeros((self.pins.count, self.pins.step // 8), np.int64)
        words[:, 0] = device.CLOSED
        return words

    def _pool(self, pod: Pod, each: int, gets: int) -> device.Pool:
        """Return what kernels take, of a pool with ``each`` keys in a namespace."""
        server, last = self.server(pod), self.regions.dies.stop - 1
        return device.Pool(
            self.blocks.at(server), self.pins.at(server), self.keys.at(server), self.tier.at(last),
            self.stored.at(last), self.case.buckets, self.nbytes, self.case.spaces * each, each, gets, self.case.cpu,
        )  # fmt: skip

    def serve(self, pod: Pod, values: Buffer, each: int) -> None:
        """Launch the server, which puts ``values`` [spaces * each, bytes]."""
        kernel = device.serve_unpinned if self.case.unpinned else device.serve
        args = {"values": values.address, "p": self._pool(pod, each, self.case.gets)}
        pod.launch(kernel, self.server(pod), [0], args)

    def get(self, pod: Pod, client: int, asked: Buffer, out: Buffer, each: int) -> None:
        """Launch a client, which gets as many blocks as it has ``asked`` for, INT64 keys of its namespace."""
        kernel, space = device.get_unpinned if self.case.unpinned else device.get, client % self.case.spaces
        own, put = (range(space * n, (space + 1) * n) for n in (self.case.buckets, each))
        server, last = self.server(pod), self.regions.dies.stop - 1
        its = self._pool(pod, each, asked.nbytes // 8)._replace(
            blocks=self.blocks.at(server).only(own), pins=self.pins.at(server).only(own),
            keys=self.keys.at(server).only(own), tier=self.tier.at(last).only(put),
            stored=self.stored.at(last).only(put),
        )  # fmt: skip
        pod.launch(kernel, client + 1, [0], {"wanted": asked.address, "out": out.address, "p": its})


@dataclass(frozen=True)
class ModelCase(protocol.Case):
    """A model whose versions are published one after the other, and dies that load it meanwhile."""

    papers = protocol.read_papers("serving.memory_pool", "Blocks of a model, and blocks that many put")
    presets: ClassVar[tuple[protocol.Preset, ...]] = (
        protocol.Preset("model-cache", "Versions of a model: a load has blocks of one, or none"),
    )

    loaders: int = protocol.size(1, "Dies that load the model until they have its last version.", most=700)
    blocks: int = protocol.size(2, "Blocks of a version.", most=8)
    versions: int = protocol.size(2, "Versions that are published.", most=1 << 10)
    granules: int = protocol.size(1, "Granules of 32 bytes of a block.", most=1 << 10)
    bits: int = protocol.size(48, "Of the version's word; with few it comes round to an old one.", least=2, most=48)
    seed: int = protocol.size(0, "Of the blocks.", least=0, most=None)

    def values(self) -> NDArray[np.uint8]:
        """Blocks, [versions, blocks, bytes]; each begins with its version's number."""
        nbytes = 32 * self.granules
        data = protocol.payload(self.versions * self.blocks * nbytes, self.seed)
        data = data.reshape(self.versions, self.blocks, nbytes).copy()
        data[:, :, :8] = np.arange(1, self.versions + 1, dtype=np.int64).view(np.uint8).reshape(-1, 1, 8)
        return data

    def lay_out(self, bench: protocol.Bench) -> None:
        """Publish from die 0, which has the model; loaders follow."""
        data, nbytes = self.values(), 32 * self.granules
        regions = protocol.Regions(self.loaders + 1)
        home, word = regions.managed("block", nbytes, self.blocks), regions.meta("version", FIELD_BYTES)
        whole = self.blocks * nbytes
        pod = regions.pod(bench, app_bytes=data.nbytes, ub_bytes=whole)
        sizes = nbytes, self.blocks, self.versions, (1 << self.bits) - 1
        model = model_cache.CachedModel(word.at(0), home.at(0), *sizes)
        given = bench.filled(0, data.reshape(-1), "values")
        pod.launch(model_cache.publish, 0, [0], {"values": given.address, "m": model})
        for die in range(1, self.loaders + 1):
            out = bench.wanted(die, data[-1].reshape(-1), "out", owners=f"die{die}")
            pod.launch(model_cache.load, die, [0], {"out": out.address, "m": model})
        bench.tolerates("stop", "cut", "stall")

    proof_rows: ClassVar = {
        "two versions of two blocks": {},
        "three versions": dict(versions=3),
        "one block": dict(blocks=1, versions=3),
        "two loaders": dict(loaders=2),
    }


@dataclass(frozen=True)
class PutCase(protocol.Case):
    """Dies that put the same block, which one of them writes, and get it."""

    papers = protocol.read_papers("serving.memory_pool", "Blocks of a model, and blocks that many put")
    presets: ClassVar[tuple[protocol.Preset, ...]] = (
        protocol.Preset("pool-put", "A block that many put: one writes it, others wait or go on"),
    )

    putters: int = protocol.size(2, "Dies that put the block.", most=700)
    waits: int = protocol.switch(1, "Does who finds it claimed wait, or use its own?")
    granules: int = protocol.size(1, "Granules of 32 bytes of the block.", most=1 << 10)
    seed: int = protocol.size(0, "Of the block.", least=0, most=None)

    def lay_out(self, bench: protocol.Bench) -> None:
        """The block is on die 0, which puts it too."""
        data, nbytes = protocol.payload(32 * self.granules, self.seed), 32 * self.granules
        regions = protocol.Regions(self.putters)
        block, word = regions.managed("block", nbytes, 1), regions.meta("word", FIELD_BYTES)
        pod = regions.pod(bench, app_bytes=2 * nbytes, ub_bytes=nbytes)
        for die in range(self.putters):
            value, out = bench.filled(die, data, "value"), bench.wanted(die, data, "out", owners=f"die{die}")
            args = {"value": value.address, "word": word.at(0), "block": block.at(0), "out": out.address}
            pod.launch(model_cache.put_once, die, [0], {**args, "nbytes": nbytes, "waits": self.waits})
        bench.tolerates("stop", "cut", "stall")

    proof_rows: ClassVar = {
        "two, who wait": {},
        "two, who go on": dict(waits=0),
        "three, who wait": dict(putters=3),
        "three, who go on": dict(putters=3, waits=0),
    }
