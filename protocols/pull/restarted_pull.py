"""Dispatch, and a whole layer, with a supervisor that may abort any iteration at any moment ([xDeepServe] 6.2)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from xccl_emu.kernels.pull import abortable_experts as device
from xccl_emu.protocol import Case, Preset, read_papers
from xccl_emu.protocols.experts.config import EpConfig
from xccl_emu.protocols.experts.group import Args
from xccl_emu.protocols.experts.layout import DISPATCH, EpLayout
from xccl_emu.protocols.experts.restarted import RestartedCase, RestartedGroup, RestartedLayout
from xccl_emu.protocols.pull.case import MoeCase
from xccl_emu.protocols.pull.session import ExpertParallel


class PullRestartedLayout(RestartedLayout[EpConfig], EpLayout):
    """The regions of `EpLayout` and the words of a rollback."""


class RestartedExperts(RestartedGroup[EpConfig], ExpertParallel):
    """A group that pulls, whose rounds are launched at once."""

    kernel = device.rank
    lays_out = PullRestartedLayout
    layout: PullRestartedLayout

    def _all_places(self) -> Args:
        return {"d": self.dispatch_areas(), "e": self.combine_areas()}


@dataclass(frozen=True)
class MoeRollback(RestartedCase, MoeCase):
    """Layers of `MoeCase`; a supervisor on one more die aborts what is under way, and it is executed again."""

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset(
            "rollback-moe",
            "Layers that are aborted at any moment, and executed again (xDeepServe 6.2)",
            {"tokens": 1, "granules": 2},
        ),
    )
    papers = (*read_papers("pull"), *read_papers("rollback"))
    group = RestartedExperts

    @classmethod
    def proofs(cls) -> Mapping[str, Case]:
        """An abort and two of them, rounds that go wrong, and two cores a rank."""
        usual = cls(ranks=2, tokens=1, granules=cls.least_granules)
        return {
            "two rounds, an abort": usual,
            "an abort of a rollback": replace(usual, aborts=2, rounds=1),
            "a round of each rank goes wrong": replace(usual, failures=1, aborts=0),
            "two cores a rank": replace(usual, cores=2, rounds=1),
        }


@dataclass(frozen=True)
class DispatchRollback(MoeRollback):
    """Dispatch alone of `MoeRollback`."""

    presets = (
        Preset(
            "rollback-dispatch",
            "Dispatch that is aborted at any moment, and executed again",
            {"tokens": 1, "granules": 1},
            {"cores": 2},
        ),
    )
    papers = (*read_papers("pull", "Pull dispatch"), *read_papers("rollback"))
    parts = (DISPATCH,)
    written = ("recv_x", "route", "counts", "pos")

    @classmethod
    def proofs(cls) -> Mapping[str, Case]:
        """And three ranks."""
        three = cls(ranks=3, tokens=1, granules=cls.least_granules, rounds=1)
        return {**super().proofs(), "three ranks": three}
