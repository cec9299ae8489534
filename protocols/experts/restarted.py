"""Layers with a supervisor that may abort any iteration at any moment ([xDeepServe] 6.2), however tokens travel."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

from xccl_emu.kernels import rollback
from xccl_emu.kernels.experts.counts import FIELD_BYTES
from xccl_emu.kernels.experts.parameters import Rounds
from xccl_emu.lang import Kernel
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol import size
from xccl_emu.protocol.streams import Streams
from xccl_emu.protocols.experts.case import LayerCase
from xccl_emu.protocols.experts.group import ExpertGroup
from xccl_emu.protocols.experts.layout import COMBINE, LAYER, C, GroupLayout
from xccl_emu.protocols.rollback import own_words


class SupervisedLayout(GroupLayout[C]):
    """The regions of the layer, and words of ranks and of a supervisor on the die after the ranks'."""

    supervised = True
    words: ClassVar[tuple[str, ...]]
    """Names of the words that are one for all."""

    def _add_all(self) -> None:
        super()._add_all()  # type: ignore[safe-super]  # of the layout that it is mixed into
        n = self.config.n_ranks
        self.readies = self.meta("meta.ready", FIELD_BYTES, n, self._sources)
        self.dones = self.meta("meta.done", FIELD_BYTES, n, self._sources)
        self.of_all = {name: self.meta(f"meta.{name}", FIELD_BYTES) for name in self.words}


class SupervisedGroup(ExpertGroup[C]):
    """A group whose rounds are launched at once, with a supervisor."""

    kernel: ClassVar[Kernel]
    """The rounds of a rank."""
    layout: SupervisedLayout[C]


class RestartedLayout(SupervisedLayout[C]):
    """The regions of the layer and the words of a rollback; `kernels/rollback` says what they are."""

    words = ("end", "abort", "go_on", "errors")


class RestartedGroup(SupervisedGroup[C]):
    """A group whose supervisor may abort rounds; aborts, failures: see `RestartedCase`."""

    def __init__(self, pod: Pod, config: C | None = None, *, aborts: int = 0, failures: int = 0, **more: Any) -> None:
        super().__init__(pod, config, **more)
        self._aborts, self._failures = aborts, failures

    def launch_rounds(self, streams: Streams, rounds: int, parts: Collection[str] = LAYER) -> None:
        """Launch ``rounds`` rounds, of all parts or of dispatch alone, and the supervisor."""
        layout, n, cores = self.layout, self.config.n_ranks, range(self.config.cores)
        first, supervisor, word = self.config.first_die, self.config.first_die + n, layout.of_all
        known = rollback.RankWords(
            0, n, rounds, layout.readies.at(first), layout.dones.at(first), word["end"].at(first),
            word["abort"].at(first), word["errors"].at(supervisor), self.pod.spec.die_bytes,
        )  # fmt: skip
        for rank, own in enumerate(self.buffers):
            todo = Rounds(
                int(COMBINE in parts), self._failures, word["go_on"].at(self.die_of(rank)), own["batches"].address,
                self.config.batch_bytes,
            )  # fmt: skip
            args: dict[str, Any] = {
                "n": todo, **self._whole_rounds(rank), **self._all_places(),
                "r": known._replace(me=rank, **own_words(rank, first, layout.readies, layout.dones, word["end"])),
            }  # fmt: skip
            self.pod.launch(self.kernel, self.die_of(rank), cores, args, after=streams)
        self.pod.launch(rollback.supervise, supervisor, [0], {"aborts": self._aborts, "r": known}, after=streams)


@dataclass(frozen=True)
class RestartedCase(LayerCase):
    """Layers; a supervisor on one more die aborts what is under way, and it is executed again."""

    group: ClassVar[type[RestartedGroup[Any]]]
    side_by_side = False
    more_dies = 1

    aborts: int = size(1, "Times that the supervisor aborts what is under way.", least=0, most=1 << 10)
    failures: int = size(0, "Iterations of each rank that may go wrong, whichever these are.", least=0, most=16)

    def _group(self, pod: Pod, **more: int) -> RestartedGroup[Any]:
        return self.group(pod, self._config(), aborts=self.aborts, failures=self.failures, **more)
