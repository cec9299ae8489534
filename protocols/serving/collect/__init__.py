"""Tokens of each expert, counted while they are served, as a case ([xDeepServe] 4.5, step 1)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu import protocol
from xccl_emu.kernels.group import align
from xccl_emu.kernels.serving import collect as device

FIELD = device.FIELD_BYTES


@dataclass(frozen=True)
class CollectCase(protocol.Case):
    """Dies whose cores serve tokens and count their experts, and a last die with the shell, which adds up."""

    presets: ClassVar[tuple[protocol.Preset, ...]] = (
        protocol.Preset("collect", "Tokens of each expert, counted while they are served", {}, {"dies": 1}),
    )
    papers = protocol.read_papers("serving.collect")

    dies: int = protocol.size(2, "Dies that serve tokens.", most=767)
    cores: int = protocol.size(1, "Cores of each that do; one more is the executor.", most=47)
    tokens: int = protocol.size(2, "Tokens of a core.", most=1 << 16)
    top_k: int = protocol.size(1, "Experts of a token.", most=16)
    quads: int = protocol.size(1, "Experts, in fours.", most=1 << 8)
    intervals: int = protocol.size(2, "Reports of each die.", most=1 << 10)
    seed: int = protocol.size(0, "Of the choices.", least=0, most=None)

    def chosen(self) -> NDArray[np.int32]:
        """Experts of all tokens, [dies, cores, choices]."""
        shape = self.dies, self.cores, self.tokens * self.top_k
        return np.random.default_rng(self.seed).integers(0, 4 * self.quads, shape, np.int32)

    def load(self) -> NDArray[np.int64]:
        """Tokens of each expert, [experts]; they add up to tokens x top-k."""
        return np.bincount(self.chosen().ravel(), minlength=4 * self.quads).astype(np.int64)

    def lay_out(self, bench: protocol.Bench) -> None:
        """Counts on each die, reports on the shell's."""
        n, chosen = self.dies, self.chosen()
        regions = protocol.Regions(n + 1)
        counts, reports = regions.meta("counts", FIELD, self.quads), regions.meta("report", FIELD, 2 * n * self.quads)
        counted, taken = regions.meta("counted", FIELD), regions.meta("taken", FIELD)
        reported = regions.meta("told", FIELD, n)
        app = max(self.cores * align(chosen[0, 0].nbytes), self.quads * FIELD)
        pod = regions.pod(bench, app_bytes=app, ub_bytes=FIELD, cores=self.cores + 1)
        half = range(n * self.quads)
        given = device.Counters(
            counts.at(1) - counts.at(0), counts.at(0), counted.at(0), taken.at(0),
            reports.at(n).only(half, range(half.stop, 2 * half.stop)).shared(range(n)), reported.at(n).shared(range(n)),
            n, self.cores, self.quads, chosen.shape[-1], self.intervals,
        )  # fmt: skip
        for die in range(n):
            for core in range(self.cores):
                of_core = bench.filled(die, chosen[die, core], f"chosen by core {core}")
                pod.launch(device.serve, die, [core], {"die": die, "chosen": of_core.address, "k": given})
            pod.launch(device.execute, die, [self.cores], {"die": die, "k": given})
        out = bench.wanted(n, self.load(), "out", owners=f"die{n}")
        pod.launch(device.shell, n, [0], {"out": out.address, "k": given})
        bench.stop(device.SHRUNK, "an expert has fewer tokens than an interval before")
        bench.tolerates("stop", "cut", "stall")

    proof_rows: ClassVar = {
        "two dies": {},
        "two cores of a die, two experts a token": dict(dies=1, cores=2, tokens=1, top_k=2),
        "three intervals": dict(dies=1, intervals=3),
        "eight experts": dict(dies=1, quads=2),
    }
