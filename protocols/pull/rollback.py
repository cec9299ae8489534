"""Dispatch, and a whole layer, of which a supervisor may abort any iteration at any moment ([xDeepServe] 6.2)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from xccl_emu.kernels import rollback
from xccl_emu.kernels.experts.counts import FIELD_BYTES
from xccl_emu.kernels.experts.parameters import Buffers
from xccl_emu.kernels.pull import rollback as device
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol import Bench, Case, Preset, read_papers, size
from xccl_emu.protocol.streams import Streams, merged
from xccl_emu.protocols.experts import buffers as app
from xccl_emu.protocols.experts.config import EpConfig
from xccl_emu.protocols.experts.layout import COMBINE, DISPATCH, LAYER, EpLayout
from xccl_emu.protocols.pull.case import MoeCase
from xccl_emu.protocols.pull.session import ExpertParallel

ROLLBACK = "rollback"


class RollbackLayout(EpLayout):
    """Beside the regions of the layer the words of a rollback; `kernels/rollback` says what they are."""

    def _add_all(self) -> None:
        super()._add_all()
        n = self.config.n_ranks
        self.readies = self.meta("meta.ready", FIELD_BYTES, n, self._sources).used(ROLLBACK, "r", "w")
        self.dones = self.meta("meta.done", FIELD_BYTES, n, self._sources).used(ROLLBACK, "r", "w")
        self.over = self.meta("meta.end", FIELD_BYTES).used(ROLLBACK, "r")
        self.abort = self.meta("meta.abort", FIELD_BYTES).used(ROLLBACK, "r")
        self.told = self.meta("meta.go_on", FIELD_BYTES).used(ROLLBACK, "rw")
        self.errors = self.meta("meta.errors", FIELD_BYTES)

    def label(self, bench: Bench) -> None:
        """Name the regions in reports, on the supervisor's die too."""
        super().label(bench)
        for label in (each for region in self._all for each in region.labels(self.dies.stop, len(self.dies))):
            bench.label(*label)


class RestartedExperts(ExpertParallel):
    """A group whose rounds are launched at once, with a supervisor on the die behind those of the ranks.

    aborts, failures: as of `MoeRollback`.
    """

    lays_out = RollbackLayout
    layout: RollbackLayout

    def __init__(self, pod: Pod, config: EpConfig, *, aborts: int = 0, failures: int = 0, **more: int) -> None:
        super().__init__(pod, config, **more)
        self._aborts, self._failures = aborts, failures

    def launch_rounds(self, streams: Streams, rounds: int, parts: Collection[str] = LAYER) -> None:
        """Launch so many rounds, of all parts or of dispatch alone, and the supervisor."""
        layout, n, cores = self.layout, self.config.n_ranks, range(self.config.cores)
        supervisor = self.config.first_die + n
        known = rollback.Ranks(
            0, n, rounds, layout.first(layout.readies), layout.first(layout.dones), layout.first(layout.over),
            layout.first(layout.abort), layout.errors.at(supervisor), self.pod.spec.die_bytes,
        )  # fmt: skip
        rights = {"batches": "r", "x": "r", "topk": "r", "pos": "rw", "weights": "r", "out": "w"}
        rights |= dict.fromkeys(app.OF_ROWS, "rw")
        for rank, own in enumerate(self.buffers):
            todo = device.Rounds(
                int(COMBINE in parts), self._failures, layout.told.at(self.die_of(rank)), own["batches"].address,
                self.config.batch_bytes,
            )  # fmt: skip
            args: dict[str, Any] = {
                "core": cores, "n": todo, "c": self.shape(),
                "b": Buffers(*(own[name].address for name in Buffers._fields)),
                "stride": Buffers(*(own[name].nbytes // self.n_rounds for name in Buffers._fields)),
                "d": self.dispatch_areas(), "e": self.combine_areas(), "r": known._replace(me=rank),
            }  # fmt: skip
            grants = [self.pod.grant(own[name], right) for name, right in rights.items()]
            grants += [each for part in (*LAYER, ROLLBACK) for each in layout.grants(part, rank)]
            grants += [layout.errors.grant(supervisor, "w"), *([] if rank else [layout.over.grant(None, "w")])]
            streams.launch(device.rank, self.die_of(rank), args, merged(grants), cores)
        seen = [layout.errors.grant(supervisor, "r"), layout.over.grant(supervisor, "r")]
        grants = [layout.abort.grant(None, "w"), *seen]
        streams.launch(rollback.supervise, supervisor, {"aborts": self._aborts, "r": known}, grants)


@dataclass(frozen=True)
class MoeRollback(MoeCase):
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
    side_by_side = False
    more_dies = 1

    aborts: int = size(1, "Times that the supervisor aborts what is under way.", least=0, most=1 << 10)
    failures: int = size(0, "Iterations of each rank that may go wrong, whichever these are.", least=0, most=16)

    def _group(self, pod: Pod, **more: int) -> RestartedExperts:
        return RestartedExperts(pod, self._config(), aborts=self.aborts, failures=self.failures, **more)

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
