"""Tables of [CloudMatrix384]."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from xccl_emu.base.options import option
from xccl_emu.papers.measurements import Measurement, Suite, Swept

if TYPE_CHECKING:
    from xccl_emu.papers.bench.result import Result
    from xccl_emu.papers.bench.setting import Setting


@dataclass(frozen=True)
class LinksMeasurement(Measurement):
    """Latency of 512 bytes and bandwidth of each path and direction, by kernels that read and write (Table 1)."""

    name = "links"
    suite = Suite(0, 5, 1.0, 1.0)


@dataclass(frozen=True)
class BuffersMeasurement(Measurement):
    """Sizes that must come out exactly: messages, buffers and metadata, as the protocols lay them out on the pod."""

    name, module = "buffers", "tables"
    suite = Suite(1, 7, 0.5, 0.5)


@dataclass(frozen=True)
class TablesMeasurement(Measurement):
    """Published tables that are arithmetic: Tables 3 to 5 and 11 of CloudMatrix-Infer, TPOT, gains by MTP."""

    name = "tables"


@dataclass(frozen=True)
class PoolMeasurement(Measurement):
    """Models loaded by the memory pool (Table 2) and prefixes reused (Figure 23), from a run read of a CPU's memory."""

    name = "pool"


@dataclass(frozen=True)
class StreamsMeasurement(Measurement):
    """What two streams on a die gain, and MTP costs, with dispatch and combine run on 16 or 48 cores (Figures 20, 22).

    Attention and computing of experts are put in. Prefill's streams are not here.
    """

    name = "streams"
    suite = Suite(15, 1, 6.0, 6.0)


@dataclass(frozen=True)
class FusedMeasurement(Swept):
    """FusedDispatch and FusedCombine with 128 tokens on 8 to 256 ranks (Table 7), with DeepEP on H800 and baselines.

    The baselines are no emulation: a start-up and the bytes at published rates, and between the rows of the fit.

    With --sweep, every EP degree with every batch instead, on all cores, with uniform choices.
    """

    name = "fused"
    suite = Suite(4, 1, 17.0, 4.0)

    def rows(self, setting: "Setting") -> "Iterator[Result]":
        """See the class."""
        from xccl_emu.papers.bench import published
        from xccl_emu.papers.bench.fused import fused

        theirs = {row.what: {"H800": row.value} for row in published.rows("fused_h800")}
        for row in fused(setting):
            yield replace(row, extra=theirs.get(row.what, {})) if not row.baseline else row


@dataclass(frozen=True)
class PhasesMeasurement(Measurement):
    """Where the time of dispatch and combine is spent, by EP degree: send, wait and receive, each by pipe and by wait.

    It is the critical path: from the first core's start to the last one's end, without the launch.
    """

    name = "phases"

    protocol: str = option("fused", "fused, dispatch or deepep-ll.")
    ranks: str = option("8,16,32,64", "EP degrees, 2 to 64.")
    tokens: int = option(128, "Tokens of each rank.", least=1, most=4096)

    def rows(self, setting: "Setting") -> "list[Result]":
        """See the class."""
        from xccl_emu.base.sizes import parse_whole
        from xccl_emu.papers.bench.phases import phases

        return phases(setting, self.protocol, parse_whole("--ranks", self.ranks), self.tokens)


@dataclass(frozen=True)
class AblationMeasurement(Measurement):
    """The fused operators on 64 dies with each optimization switched off alone, and the ratio to the whole."""

    name, module = "ablation", "phases"
    suite = Suite(8, 3, 8.0, 2.0)


@dataclass(frozen=True)
class CongestionMeasurement(Measurement):
    """What a die gets where 8, 128 or 768 dies write to each other, going round or at random, striped or by address."""

    name = "congestion"
    suite = Suite(10, 3, 3.0, 3.0)


@dataclass(frozen=True)
class KvMeasurement(Measurement):
    """KV caches of DeepSeek-R1 over each plane, by DMA, by protocol, and what they change of a dispatch (4.3.3).

    Published is how long their bytes take at the bandwidth of the plane. By protocol: pulled by a core or by DMA, or by
    send and receive through XCCL's ring (xDeepServe 5.1), from the grant of slots until all is there. What 16 dies
    read, and what goes at the same time as a dispatch, moves no payload.
    """

    name = "kv"
    suite = Suite(13, 7, 3.0, 1.0)
