"""In what a bench runs: the fabric and costs of its pods, whether payload moves, and how it says what it is doing."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import CapacityError
from xccl_emu.base.stage import Stage, silent
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384, PodSpec
from xccl_emu.papers.bench.result import Result
from xccl_emu.protocols.experts.data import draw_tokens
from xccl_emu.timing.arrival import Taken
from xccl_emu.timing.costs import Costs
from xccl_emu.timing.fabric import Fabric
from xccl_emu.timing.run import VirtualTime
from xccl_emu.timing.topologies import CLOUDMATRIX384 as UB

if TYPE_CHECKING:
    from xccl_emu.check.trial import Trial
    from xccl_emu.protocol.case import Case

TARGETS = {"sibling": 1, "node": 2, "pod": 16}
"""A die that die 0 reaches on its chip, within its node, and in another node."""


@dataclass(frozen=True)
class Setting:
    """What all benches of a command have in common."""

    fabric: Fabric = UB
    costs: Costs = field(default_factory=Costs)
    stage: Stage = silent
    seed: int = 0
    """Seed of payloads and routings."""
    data: bool = True
    """Does payload move, to be held against the oracle?  Times are the same without."""

    free_bytes: int = 1 << 62
    """Memory that a run may plan with."""

    def scored(self, result: Result) -> Result:
        """A row as it is, if it was published of the fabric that it ran on; else what was published is shown too."""
        on = result.configuration.get("fabric", self.fabric.name)
        kept = result.role not in ("fit", "check") or on == result.machine
        return result if kept else replace(result, role="shown")

    @property
    def fabric_words(self) -> dict[str, str]:
        """Return the fabric for the configuration of a row, if it is not the usual one."""
        return {} if self.fabric == UB else {"fabric": self.fabric.name}

    def check_memory(self, what: str, nbytes: int) -> None:
        """Raises CapacityError for a run that would touch more memory than is free."""
        if nbytes > self.free_bytes:
            need = f"needs about {nbytes / 1e9:.1f} GB, {self.free_bytes / 1e9:.1f} GB are free"
            raise CapacityError(f"{what} {need}; take --no-data, or less")

    def pod(
        self, spec: PodSpec = CLOUDMATRIX384, *, log: bool | Collection[int] = False, sites: Collection[str] = ()
    ) -> tuple[Pod, VirtualTime]:
        """A pod in virtual time, and its policy, which has the timing of each run."""
        policy = VirtualTime(self.fabric, self.costs, log=log, data=self.data, sites=sites)
        return Pod(spec, policy=policy), policy

    def run(self, case: "Case") -> "tuple[Trial, float]":
        """Run a case, on the pod that just fits it: the trial as it is then, and microseconds until the last core is
        done."""
        trial = case.build("sc", payload=self.data)
        policy = trial.pod.policy = VirtualTime(self.fabric, self.costs, data=self.data)
        trial.pod.run()
        return trial, policy.timing.latency_us

    def tokens(self, ranks: int, tokens: int, hidden: int) -> NDArray[Any]:
        """[ranks, tokens, hidden] hidden states in BF16, normally distributed; zeros without data."""
        if not self.data:
            return np.zeros((ranks, tokens, hidden), ml_dtypes.bfloat16)
        return draw_tokens(ranks, tokens, hidden, "bf16", self.seed)

    def operator_us(self, taken: Taken) -> float:
        """Latency of an operator that is launched for one call: of its mean rank, and of its launch."""
        return taken.mean_us + self.costs.launch_us


DEFAULT = Setting()
"""The whole CloudMatrix384 with the costs of the release."""
