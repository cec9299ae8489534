"""Groups whose rounds are launched at once, and go on when one of their ranks is lost."""

from collections.abc import Collection
from typing import Any

import numpy as np

from xccl_emu.kernels.experts.counts import INDEX_BYTES
from xccl_emu.kernels.experts.messages import ROUTE_BYTES
from xccl_emu.kernels.serving import membership, surviving_fused, surviving_pull
from xccl_emu.kernels.serving.replicas import Attempts, Replicas
from xccl_emu.machine.pod import Buffer
from xccl_emu.protocol import Bench
from xccl_emu.protocol.streams import Streams
from xccl_emu.protocols.experts.config import EpConfig
from xccl_emu.protocols.experts.group import Args
from xccl_emu.protocols.experts.layout import LAYER, C, EpLayout
from xccl_emu.protocols.experts.restarted import SupervisedGroup, SupervisedLayout
from xccl_emu.protocols.fused.session import FusedConfig, FusedExpertParallel, FusedLayout
from xccl_emu.protocols.pull.session import ExpertParallel
from xccl_emu.routing import Placement


class SurvivingLayout(SupervisedLayout[C]):
    """The regions of the layer and the words of a membership; `kernels/serving/membership` says what they are."""

    words = ("membership", "end", "go_on")


class SurvivingGroup(SupervisedGroup[C]):
    """A group whose supervisor may give up rank ``lost`` at any moment."""

    tables: list[dict[str, Buffer]]
    """What a rank has in addition to the layer's buffers, by the names of `Replicas` and `Attempts`."""
    n_experts: int

    def put_tables(self, bench: Bench, placement: Placement) -> None:
        """Put on each die which expert has which slot, for each rank that may be lost."""
        c, n = self.config, self.config.n_ranks
        placements = [*map(placement.without, range(n)), placement]
        maps = np.stack([each.expert_map(c.tokens_max) for each in placements])
        held = np.stack([each.held for each in placements])
        self.tables, self.n_experts = [], placement.n_experts
        for die in self.layout.dies:
            own = {
                "maps": bench.filled(die, maps, "maps"), "held": bench.filled(die, held, "held"),
                "slots": bench.filled(die, np.full((c.tokens_max, INDEX_BYTES), 0xFF, np.uint8), "slots"),
                "held_routes": bench.filled(die, np.zeros((c.rows_max, ROUTE_BYTES), np.uint8), "routes by expert"),
                "took_part": self.pod.alloc(die, 8 * self.n_rounds),
            }  # fmt: skip
            bench.label_buffer(own["took_part"], "took part")
            self.tables.append(own)

    def launch_rounds(
        self, streams: Streams, rounds: int, parts: Collection[str] = LAYER, lost: int = membership.NOBODY
    ) -> None:
        """Launch ``rounds`` rounds of whole layers, and the supervisor, which may give up rank ``lost``."""
        layout, n, cores = self.layout, self.config.n_ranks, range(self.config.cores)
        first, supervisor, word = self.config.first_die, self.config.first_die + n, layout.of_all
        readies, dones = layout.readies.at(first), layout.dones.at(supervisor)
        known = membership.MembershipRank(
            0, n, rounds, readies, word["membership"].at(first), word["end"].at(first), dones, self.pod.spec.die_bytes,
            0, membership.NOBODY, membership.NOBODY, 0, 0,
        )  # fmt: skip
        for rank, (own, more) in enumerate(zip(self.buffers, self.tables, strict=True)):
            args: dict[str, Any] = {
                "r": Replicas(
                    experts=self.n_experts, map_bytes=more["maps"].nbytes // (n + 1),
                    **{name: more[name].address for name in ("maps", "held", "slots", "held_routes")},
                ),
                "a": Attempts(
                    word["go_on"].at(self.die_of(rank)), more["took_part"].address, own["batches"].address,
                    self.config.batch_bytes,
                ),
                "g": known._replace(me=rank, readies=readies.only(rank), dones=dones.only(rank)),
                **self._whole_rounds(rank), **self._all_places(),
            }  # fmt: skip
            self.pod.launch(self.kernel, self.die_of(rank), cores, args, after=streams)
        args = {"suspect": lost, "heir": membership.NOBODY, "g": known}
        self.pod.launch(membership.supervise, supervisor, [0], args, after=streams)


class SurvivingPullLayout(SurvivingLayout[EpConfig], EpLayout):
    """The regions of `EpLayout` and the words of a membership."""


class SurvivingPull(SurvivingGroup[EpConfig], ExpertParallel):
    """A group that pulls."""

    kernel = surviving_pull.rank
    lays_out = SurvivingPullLayout
    layout: SurvivingPullLayout


class SurvivingFusedLayout(SurvivingLayout[FusedConfig], FusedLayout):
    """The regions of `FusedLayout`, contributions and arrivals double, and the words of a membership."""

    sets = 2


class SurvivingFused(SurvivingGroup[FusedConfig], FusedExpertParallel):
    """A group whose ranks write to each other."""

    kernel = surviving_fused.rank
    lays_out = SurvivingFusedLayout
    layout: SurvivingFusedLayout

    def _all_places(self) -> Args:
        sets = self.layout.combine.size // self.layout.sets
        return {**super()._all_places(), "sets": sets, "tokens_max": self.config.tokens_max}
