"""FusedDispatch and FusedCombine with a supervisor that may abort any iteration at any moment ([xDeepServe] 6.2)."""

from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.kernels.fused import abortable_layer as device
from xccl_emu.protocol import Preset, read_papers
from xccl_emu.protocols.experts.group import Args
from xccl_emu.protocols.experts.restarted import RestartedCase, RestartedGroup, RestartedLayout
from xccl_emu.protocols.fused.case import FusedCase
from xccl_emu.protocols.fused.session import FusedConfig, FusedExpertParallel, FusedLayout


class FusedRestartedLayout(RestartedLayout[FusedConfig], FusedLayout):
    """The regions of `FusedLayout` and the words of a rollback."""


class RestartedFused(RestartedGroup[FusedConfig], FusedExpertParallel):
    """A group whose ranks write to each other, whose rounds are launched at once."""

    kernel = device.rank
    lays_out = FusedRestartedLayout
    layout: FusedRestartedLayout

    def _all_places(self) -> Args:
        return {"f": self.areas()}


@dataclass(frozen=True)
class FusedRollback(RestartedCase, FusedCase):
    """Layers of `FusedCase`; a supervisor on one more die aborts what is under way, and it is executed again."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            "rollback-fused",
            "FusedDispatch and FusedCombine that are aborted at any moment, and executed again",
            {"tokens": 1, "cores": 1, "rounds": 2},
        ),
    )
    papers = (*read_papers("fused"), *read_papers("rollback"))
    group = RestartedFused

    proof_usual: ClassVar = dict(ranks=2, tokens=1, cores=1, rounds=2)
    proof_rows: ClassVar = {
        "two rounds, an abort": {},
        "an abort of a rollback": dict(rounds=1, aborts=2),
        "a round of each rank goes wrong": dict(failures=1, aborts=0),
        "two cores a rank": dict(cores=2, rounds=1),
        "no allocation in advance": dict(preallocated=0),
        "SDMA": dict(path="sdma"),
    }
