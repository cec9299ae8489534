"""Blocks of on-chip memory as a case; one of them may be lost ([xDeepServe] 6.2)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu import protocol
from xccl_emu.kernels.serving import block_map


@dataclass(frozen=True)
class BlockMap(protocol.Case):
    """Requests of some blocks each; block 0 may be lost, and then those that have it end in an error of their own."""

    papers = protocol.read_papers("serving.block_map")
    presets: ClassVar[tuple[protocol.Preset, ...]] = (
        protocol.Preset("block-map", "A block of on-chip memory is lost, and its map masks it (xDeepServe 6.2)"),
    )

    requests: int = protocol.size(2, "Requests.", most=1 << 10)
    each: int = protocol.size(2, "Blocks of a request.", most=64)
    blocks: int = protocol.size(3, "Blocks of the pool.", most=1 << 10)
    cores: int = protocol.size(1, "Cores that serve requests.", most=48)
    loses: int = protocol.switch(1, "May block 0 be lost?")
    granules: int = protocol.size(1, "Granules of 32 bytes of a block.", most=1 << 10)
    seed: int = protocol.size(0, "Of the blocks.", least=0, most=None)

    def table(self) -> NDArray[np.int64]:
        """Blocks of each request, [requests, each]: from its own number on, so that some have block 0 and some not."""
        return (np.arange(self.requests)[:, None] + np.arange(self.each)) % self.blocks

    def lay_out(self, bench: protocol.Bench) -> None:
        """Pool and map are on die 0, as are all cores."""
        nbytes, table = 32 * self.granules, self.table()
        data = protocol.payload(self.blocks * nbytes, self.seed).reshape(self.blocks, nbytes)
        regions = protocol.Regions(1)
        map_ = regions.meta("map", block_map.FIELD_BYTES, self.blocks)
        app = data.nbytes + 32 * self.requests + (8 + nbytes) * table.size + 64
        pod = regions.pod(bench, app_bytes=app, ub_bytes=self.each * nbytes, cores=self.cores)
        pool, rows = bench.filled(0, data, "pool"), bench.filled(0, table, "table")
        out, ended = pod.alloc(0, table.size * nbytes), pod.alloc(0, 8 * self.requests)
        bench.label_buffer(out, "out")
        bench.label_buffer(ended, "ended")
        for r in range(self.requests):
            if not self.loses or 0 not in table[r]:
                who = f"die0.core{r % self.cores}"
                bench.expect(out.address + r * self.each * nbytes, data[table[r]], f"request {r}", owners=who)
                bench.expect(ended.address + 8 * r, np.array([block_map.RIGHT]), f"end of request {r}", owners=who)
        blocks = block_map.Blocks(
            pool.address, map_.at(0), rows.address, out.address, ended.address, self.requests, self.each, nbytes,
            self.cores,
        )  # fmt: skip
        cores = range(self.cores)
        pod.launch(block_map.serve, 0, cores, {"core": cores, "b": blocks})
        bench.tolerates("stop")
        if self.loses:
            bench.may_lose("block", pool.address, nbytes, told=map_.at(0))

    proof_rows: ClassVar = {
        "one core": {},
        "two cores": dict(cores=2),
        "blocks of two granules": dict(granules=2),
        "nothing is lost": dict(loses=0),
    }
