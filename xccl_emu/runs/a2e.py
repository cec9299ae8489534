"""Options of ``xccl-emu run a2e``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from xccl_emu.options import option
from xccl_emu.runs import LayerRun

if TYPE_CHECKING:
    from xccl_emu.stage import Stage


@dataclass(frozen=True)
class A2ERun(LayerRun):
    """Attention dies and expert dies apart: A2E through trampolines, a dummy expert, E2A, with persistent kernels.

    Of 288 expert dies, 256 host one routed expert each and 32 the shared one; 160 of them are trampolines, or as many
    as --trampolines says. Three domains of 160 attention dies take turns, one call each. Every output of every call is
    compared bit for bit with the oracle, and what the expert dies received in the last calls (--depth of them) with its
    scales, routes and counts; exit code 1 if "wrong" is not 0.
    """

    name = "a2e"

    domains: int = option(3, "Domains of attention dies, which take turns.", least=1)
    attention: int = option(160, "Attention dies of each domain.", least=1)
    experts: int = option(288, "Expert dies.", least=2)
    tokens: int = option(96, "Tokens of each attention die in a call.", least=0)
    calls: int | None = option(None, "Calls [default: one of each domain and microbatch]", least=0)
    depth: int = option(1, "Calls that the expert dies have memory for.", least=1, most=8)
    cores: int = option(2, "Cores of an attention die, and of each stream.", least=1, most=16)
    path: str = option("mtu", "How data travels: mtu or urma.")
    microbatches: int = option(1, "Of each domain, each on cores of its own.", least=1, most=8)
    trampolines: int = option(0, "Expert dies that are one; 0 is as many as attention dies.", least=0)
    a2e_parts: int = option(1, "Parts in which a batch goes through a trampoline.", least=1, most=16)
    e2a_parts: int = option(1, "Parts in which it comes back.", least=1, most=16)
    quantized: bool = option(True, "INT8 on the way to the experts.", named=("--quantize/--no-quantize",))

    @property
    def n_calls(self) -> int:
        """Calls of all domains."""
        return self.domains * self.microbatches if self.calls is None else self.calls

    def start(self, stage: "Stage", say: Callable[[str], None]) -> Any:
        """As `Run.start`."""
        from xccl_emu.runs.jobs.a2e import A2EJob

        return A2EJob(self, stage).run()
