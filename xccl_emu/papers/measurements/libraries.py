"""Benchmarks that libraries for this hardware publish of themselves, and figures of [MixServe]."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import option
from xccl_emu.papers.measurements import Measurement, Suite

if TYPE_CHECKING:
    from xccl_emu.papers.bench.result import Result
    from xccl_emu.papers.bench.setting import Setting


@dataclass(frozen=True)
class HixlMeasurement(Measurement):
    """Copies of 128 MiB by the DMA engine, in blocks of 16 KiB to 8 MiB, to the same node or another (HIXL)."""

    name, module = "hixl", "links"
    suite = Suite(9, 8, 1.5, 1.0)


@dataclass(frozen=True)
class HcclMeasurement(Measurement):
    """All-gather of 74 KiB to 40 MiB of each of 16 dies of a server, and what HCCL takes for it.

    Above 2 MB of a rank no payload moves, and nothing is compared.
    """

    name, module = "hccl", "operators"
    suite = Suite(11, 9, 1.5, 1.0)


@dataclass(frozen=True)
class DeepEpMeasurement(Measurement):
    """DeepEP's low-latency mode on 8 to 256 of these dies, with 128 tokens each, with FusedDispatch and the H800.

    On another fabric it is DeepEP's own test: bench deepep --fabric h800, with DeepEP's table of that machine. With
    --cores, --dtype, --once or --normal it is that test in another way, on any fabric: bench deepep --dtype bf16
    """

    name = "deepep"
    suite = Suite(12, 2, 17.0, 4.5)

    cores: int = option(128, "Cores of each die in its own test, 128 of a GPU's 132.", least=1, most=1 << 10)
    dtype: str = option("fp8", "What dispatch sends: fp8 (made of BF16), bf16, or fp8-in (comes in as FP8).")
    once: bool = option(False, "A token goes once to each rank, not once to each of its experts.", named=("--once",))
    normal: bool = option(
        False, "Normal mode, 24 cores: once to each rank through channels, which add rows.", named=("--normal",)
    )  # fmt: skip

    def rows(self, setting: "Setting") -> "Iterator[Result]":
        """See the class."""
        from xccl_emu.papers.bench.deepep import Own, deepep

        if self.normal and (self.cores, self.dtype, self.once) != (128, "fp8", False):
            raise ConfigError("--normal: sends BF16 once to each rank on 24 cores; take it without the other options")
        return deepep(setting, Own(self.cores, self.dtype, self.once, self.normal))

    def rows_in_suite(self, setting: "Setting") -> "list[Result]":
        """Make both, that on its own machine too."""
        from xccl_emu.papers.bench.deepep import elsewhere

        rows = [*self.rows(setting)]
        setting.drop_kept()  # without a shared expert all lies elsewhere
        return [*rows, *elsewhere(setting.on("h800"))]


@dataclass(frozen=True)
class UnseenMeasurement(Measurement):
    """Tables that the model was not made by, each on the machine that it is of: HIXL, HCCL, NCCL EP, UCCL, MORI, an A3.

    No constant is fitted to any of them. No payload moves.
    """

    name = "unseen"
    own_fabric = True


@dataclass(frozen=True)
class OperatorsMeasurement(Measurement):
    """All-reduce and all-to-all by degree and by size on 910Bs, 4 nodes of 8 (MixServe, Figure 3).

    Compared with what the paper's text says of the figure, which has no numbers.
    """

    name = "operators"
    suite = Suite(16, 6, 1.0, 1.0)
    own_fabric = True


@dataclass(frozen=True)
class PlanMeasurement(Measurement):
    """What MixServe measured, and what its analyzer says: equations; nothing is run (xccl-emu plan --published)."""

    name = "plan"
    suite = Suite(17, 9, 0.5, 0.5)
    own_fabric = True

    def rows(self, setting: "Setting") -> "list[Result]":
        """See the class."""
        from xccl_emu.papers.plan.cluster import load_cluster
        from xccl_emu.papers.plan.costs import PlanSetting
        from xccl_emu.papers.plan.model import load_model
        from xccl_emu.papers.plan.published import compared
        from xccl_emu.papers.plan.strategies import RequestStream

        return compared(PlanSetting(load_model("DeepSeek-R1"), load_cluster("910B")), RequestStream())
