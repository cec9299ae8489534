"""[DeepEP]'s normal dispatch and combine as a case; what ranks return is there before, and of no expert.

Nobody waits for all ranks between two launches, so that a fast rank may be ahead of a slow one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xccl_emu.oracle import normal as oracle
from xccl_emu.protocol import Bench, Preset, read_papers, size, switch
from xccl_emu.protocols.deepep.normal import NormalConfig, NormalMode
from xccl_emu.protocols.experts import layout as app
from xccl_emu.protocols.experts.case import LayerCase
from xccl_emu.protocols.experts.data import Batch, states


@dataclass(frozen=True)
class NormalCase(LayerCase):
    """A small group that runs ``rounds`` rounds of dispatch and combine."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            "deepep-normal", "DeepEP's normal dispatch and combine, through channels", {},
            {"tokens": 6, "places": 1, "rounds": 1},
        ),
    )  # fmt: skip
    papers = read_papers("deepep", "Normal dispatch", "Normal combine")
    group, config = NormalMode, NormalConfig
    written = ("recv_x", "route", "counts", "out")

    cores: int = size(2, "Cores of each rank, two for a channel.", least=2, most=48)
    granules: int = size(2, "Granules of 32 bytes of a token; 448 are the true size.")
    quantized: int = switch(0, "Must be off: rows go as they are.", also="quantize", examples=(0,))
    places: int = size(2, "Rows that a ring has room for.", most=1 << 10)
    chunk: int = size(1, "Rows that are announced at once.", most=1 << 10)
    seed: int = size(0, "Of tokens, weights and what is returned.", least=0, most=None)

    def _config(self) -> NormalConfig:
        return NormalConfig(**self._shape, places=self.places, chunk=self.chunk)

    @property
    def _under_way(self) -> int:
        return self._config().slot_bytes

    def _lay_out(self, bench: Bench, batches: Sequence[Batch]) -> None:
        pod = bench.pod(self._spec(batches))
        group, streams = self._launched(bench, pod, batches)
        c, rng = self._config(), np.random.default_rng((self.seed, 1))
        wanted: dict[tuple[int, str], list[np.ndarray]] = {}
        for i, batch in enumerate(batches):
            for rank, buffers in enumerate(group.buffers):
                bench.already_filled(*app.filled(c, buffers, i, len(batch.tokens[rank])))
            given = batch.tokens, batch.topk, batch.weights
            rows = [oracle.rows_of(*given, rank, c.local_experts) for rank in range(c.n_ranks)]
            returned = [states(rng, len(each.x), c.hidden, c.dtype) for each in rows]
            for rank, (each, back) in enumerate(zip(rows, returned, strict=True)):
                own = group.buffers[rank]
                for j, row in enumerate(back):
                    place = app.row_of(c, own, "y", i, j, c.row_bytes)
                    pod.view(place)[:] = row.view(np.uint8)
                    bench.already_filled(place)
                sums = oracle.sums_of(rows, returned, rank, len(batch.tokens[rank]))
                left = each.x, _route(c, each), _counts(c, each, batch), sums
                for name, held in zip(self.written, left, strict=True):
                    wanted.setdefault((rank, name), []).append(held)
        for (rank, name), rounds in wanted.items():
            image = app.image_of(c, name, len(rounds), enumerate(rounds))
            cores = [streams.owner(group.die_of(rank), core) for core in range(self.cores)]
            bench.expect_whole(group.buffers[rank][name], image, f"{name} of rank {rank}", cores)
        for buffers in group.buffers:
            for name, buffer in buffers.items():
                bench.label_buffer(buffer, f"app.{name}")
        group.layout.label(bench)
        bench.tolerates("stop", "cut", "stall")

    proof_usual: ClassVar = dict(tokens=2)
    proof_rows: ClassVar = {
        "two ranks, two tokens": {},
        "three ranks, one token": dict(tokens=1, ranks=3, top_k=2, rounds=1),
        "a ring of one place": dict(tokens=3, places=1, rounds=1),
        "two rows at once": dict(tokens=3, chunk=2, rounds=1),
        "a rank with no tokens": dict(tokens="2,0"),
        "two channels a rank": dict(tokens="2,0", cores=4, rounds=1),
        "two experts a rank": dict(tokens=1, experts=2, top_k=3),
    }


def _route(c: NormalConfig, rows: oracle.NormalRows) -> np.ndarray:
    """[rows, words] that follow the rows."""
    route = np.zeros((len(rows.x), c.route_bytes // 4), np.int32)
    route[:, 0] = rows.token
    route[:, 1 : 1 + 2 * c.top_k] = np.hstack([rows.experts, rows.weights.view(np.int32)])
    return route


def _counts(c: NormalConfig, rows: oracle.NormalRows, batch: Batch) -> np.ndarray:
    """[1, n_ranks * channels] rows by source and channel, a part of the source's tokens."""
    counts = np.zeros((c.n_ranks, c.channels), np.int32)
    for source, token in zip(rows.source, rows.token, strict=True):
        n = len(batch.tokens[source])
        bounds = [n * channel // c.channels for channel in range(c.channels + 1)]
        counts[source, np.searchsorted(bounds, token, "right") - 1] += 1
    return counts.reshape(1, -1)
