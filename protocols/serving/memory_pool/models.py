"""Models in a memory pool, and blocks that many put, as cases ([CloudMatrix384] 4.4.2, 4.4.3)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu import protocol
from xccl_emu.kernels.serving import model_cache as device

FIELD_BYTES = 32


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
        model = device.CachedModel(word.at(0), home.at(0), nbytes, self.blocks, self.versions, (1 << self.bits) - 1)
        given = bench.filled(0, data.reshape(-1), "values")
        pod.launch(device.publish, 0, [0], {"values": given.address, "m": model})
        for die in range(1, self.loaders + 1):
            out = bench.wanted(die, data[-1].reshape(-1), "out", owners=f"die{die}")
            pod.launch(device.load, die, [0], {"out": out.address, "m": model})
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
            pod.launch(device.put_once, die, [0], {**args, "nbytes": nbytes, "waits": self.waits})
        bench.tolerates("stop", "cut", "stall")

    proof_rows: ClassVar = {
        "two, who wait": {},
        "two, who go on": dict(waits=0),
        "three, who wait": dict(putters=3),
        "three, who go on": dict(putters=3, waits=0),
    }
