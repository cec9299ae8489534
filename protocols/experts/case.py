"""What cases of a layer of experts have in common, where every rank has tokens and experts."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from xccl_emu.base.errors import CapacityError, ConfigError
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import GIB, PodSpec
from xccl_emu.protocol import Bench, PodRun, size, switch, text, tight_pod
from xccl_emu.protocol.streams import Streams
from xccl_emu.protocols.experts import layout as app
from xccl_emu.protocols.experts.config import EpConfig
from xccl_emu.protocols.experts.data import Batch, PhasesImage, count_wrong, make_batches, rows_of_tokens
from xccl_emu.protocols.experts.group import ExpertGroup
from xccl_emu.protocols.experts.layout import LAYER
from xccl_emu.protocols.experts.routed import EXAMPLES, TOKENS_HELP, Drawn, RoutedCase, bytes_touched
from xccl_emu.routing.choices import ZIPF

COUNTING_HELP = "Who counts where messages go, and how."
USUAL_RANKS, REPLICAS = 320, 32
"""A deployment: 288 dies serve routed experts, 32 of them replicas of the hottest, and 32 the shared one."""
USUAL: Mapping[str, int | str] = {"hidden": 7168, "top_k": 0, "rounds": 1, "routing": ZIPF}
"""On the whole pod."""


@dataclass(frozen=True)
class LayerCase(RoutedCase, ABC):
    """Sizes of the group and of its layers, and a pod on which they just fit.

    A token is ``granules`` granules of 32 bytes and then the slot of 512 bytes, which is always there: 224
    granules are the 240 of the true message.  A hidden state has 32 elements for each granule if it is quantized and
    else 16; on the way back a row has two bytes an element.
    """

    group: ClassVar[type[ExpertGroup[Any]]]
    config: ClassVar[type[EpConfig]]
    """Class of the group's configuration, which bounds its sizes."""
    parts: ClassVar[tuple[str, ...]] = LAYER
    """What each round has of a layer."""
    written: ClassVar[tuple[str, ...]]
    """Buffers that hold something new in the end."""
    side_by_side = True
    more_dies: ClassVar[int] = 0
    """Dies after the ranks' dies, that take part too."""
    more_cores: ClassVar[int] = 0
    """Cores of each die after the ranks' cores."""
    by_routing = ("layer", "redundant", "redundant_slots")
    by_pattern = ("experts", "repeats", "masked")
    tiny: ClassVar[Mapping[str, int]] = {
        "ranks": 2, "cores": 1, "rounds": 1, "experts": 1, "redundant": 0, "redundant_slots": 0
    }  # fmt: skip

    ranks: int = size(2, "Ranks, one a die.", least=2, most=768)
    cores: int = size(1, "Cores of each rank.", most=1 << 10)
    tokens: int | str | Sequence[int] = text(2, TOKENS_HELP, examples=EXAMPLES, each_call=True)
    granules: int = size(4, "Granules of 32 bytes of a token; 224 are the true size.")
    top_k: int = size(1, "Experts of each token, with a routing but for the shared one; 0 is 8 or as it has.", least=0)
    rounds: int = size(2, "Layers one after the other.")
    experts: int = size(1, "Experts on each rank.")
    quantized: int = switch(1, "INT8 for the experts.", also="quantize")
    repeats: int = switch(0, "Does each token choose an expert twice, and so on with the next?")

    redundant: int = size(
        0, f"Replicas of the hottest routed experts; -1 is {REPLICAS} on {USUAL_RANKS} ranks, else none.", least=-1,
        advanced=True,
    )  # fmt: skip
    redundant_slots: int = size(
        0, "Slots for replicas alone on every die; 0: on dies or in slots after the experts.", least=0,
        advanced=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        self._check()
        if not self.quantized and self.granules % 2 and not self.hidden:
            raise ConfigError("granules", self.granules, "must be even where nothing is quantized")
        most = self.top_k if self.repeats else self.ranks * self.experts
        if not self.routing and not 1 <= self.top_k <= most:
            raise ConfigError("top_k", self.top_k, f"there are {self.ranks * self.experts} experts")
        self._config()  # refuses the rest

    @abstractmethod
    def _config(self) -> EpConfig:
        """Configuration of the group."""

    def _pattern(self, rounds: Sequence[Sequence[int]]) -> list[Batch]:
        """Batches of rounds with these numbers of tokens of each rank, where no routing is given."""
        return make_batches(self._config(), rounds, int(self.configuration["seed"]))

    @property
    @abstractmethod
    def _under_way(self) -> int:
        """Bytes of a choice between its dies, where it takes memory, in whole pages where it lies alone."""

    def _group(self, pod: Pod, **more: int) -> ExpertGroup[Any]:
        """The group on a pod."""
        return self.group(pod, self._config(), **more)

    def _launched(self, bench: Bench, pod: Pod, batches: Sequence[Batch]) -> tuple[ExpertGroup[Any], Streams]:
        """The group with its inputs, and a stream for each rank with all its launches."""
        corner, streams = bench.corner, Streams(bench, pod)
        group = self._group(pod, rounds=len(batches), managed_offset=corner.managed, field_offset=corner.meta)
        group.fill_rounds(*columns(batches))
        group.launch_rounds(streams, len(batches), self.parts)
        streams.put()
        return group, streams

    @property
    def _sources(self) -> int:
        return self.ranks

    @property
    def _hidden(self) -> int:
        return self.hidden or self.granules * (32 if self.quantized else 16)

    @property
    def _replicas(self) -> int:
        return self.redundant if self.redundant >= 0 else REPLICAS if self.ranks == USUAL_RANKS else 0

    @functools.cached_property
    def _drawn(self) -> Drawn:
        """The choices that a routing draws."""
        placement = self._choices.place(self.ranks, self._replicas, self.redundant_slots)
        return self._draw(placement, self._hidden)

    @property
    def _shape(self) -> Mapping[str, Any]:
        """Arguments that every configuration is made of."""
        experts, top_k = self.experts, self.top_k
        if self.routing:
            experts, top_k = self._drawn.placement.local_experts, self._choices.top_k + 1
        return {
            "n_ranks": self.ranks, "local_experts": experts, "hidden": self._hidden, "top_k": top_k,
            "tokens_max": max(1, self._at_once), "dtype": self.dtype, "quantized": bool(self.quantized),
            "quantizer": self.quantizer, "shared": bool(self.routing), "cores": self.cores,
            "repeats": bool(self.repeats),
        }  # fmt: skip

    def lay_out(self, bench: Bench) -> None:
        """One call: all parts of all its rounds."""
        self._lay_out(bench, self._batches())

    def _lay_out(self, bench: Bench, batches: Sequence[Batch]) -> None:
        """Every rank launched, and what its app buffers must hold, which its cores own."""
        pod = bench.pod(self._spec(batches))
        group, streams = self._launched(bench, pod, batches)
        self._judge(bench, group, streams, batches)
        bench.tolerates("stop", "cut", "stall")

    def _judge(self, bench: Bench, group: ExpertGroup[Any], streams: Streams, batches: Sequence[Batch]) -> None:
        """Say what a group's app buffers must hold, and whose they are."""
        for rank, buffers in enumerate(group.buffers):
            image = PhasesImage(group.config, batches, rank, group.n_rounds)
            for i, batch in enumerate(batches[: group.n_rounds] if bench.payload else ()):
                bench.already_filled(*app.filled(group.config, buffers, i, len(batch.tokens[rank])))
            self._fill(bench, group.pod, buffers, image)
            cores = [streams.owner(group.die_of(rank), core) for core in range(self._own_cores)]
            for name in self.written if bench.payload else ():
                bench.expect_whole(buffers[name], image.written(name), f"{name} of rank {rank}", cores)
            for name, buffer in buffers.items():
                bench.label_buffer(buffer, f"app.{name}")
        group.layout.label(bench)

    @property
    def _own_cores(self) -> int:
        """Cores of a die that write what a rank has in the end."""
        return self.cores

    def _fill(self, bench: Bench, pod: Pod, buffers: app.Buffered, image: PhasesImage) -> None:
        """Put there what the parts of the layer before these would have left."""

    # ---- what goes through it

    def _made_of_tokens(self, batch: Batch) -> list[NDArray[Any]]:
        return rows_of_tokens(self._config(), batch, "out" in self.written)

    def _given(self) -> Iterator[tuple[list[Batch], dict[str, Any]]]:
        """The parts of each round, and what there is to say of it."""
        usual = [self._lengths] * self.rounds
        rounds = map(self._drawn.round, range(self.rounds)) if self.routing else ((b, {}) for b in self._rounds(usual))
        for batch, facts in rounds:
            columns = (in_parts(rows, max(1, self._at_once)) for rows in vars(batch).values())
            counted = {
                "ranks": self.ranks, "tokens": sum(map(len, batch.tokens)),
                "messages": sum(int((choices >= 0).sum()) for choices in batch.topk),
                "replicas": self._drawn.placement.n_replicas if self.routing else 0,
            }  # fmt: skip
            yield [Batch(*part) for part in zip(*columns, strict=True)], counted | facts

    def _batches(self) -> list[Batch]:
        """All parts of all rounds."""
        return [part for parts, _ in self._given() for part in parts]

    # ---- on the least pod, and on the whole one

    def _spec(self, batches: Sequence[Batch]) -> PodSpec:
        ub_bytes = self.group.lays_out.ub_bytes(self._config())
        dies, cores = self.ranks + self.more_dies, self._own_cores + self.more_cores
        return tight_pod(dies, cores, ub_bytes, lambda pod: self._launched(Bench.around(pod), pod, batches)[0].layout)

    def bytes_needed(self, ranks: int) -> int:
        """Memory that this many ranks touch on the whole pod, estimated: tokens, rows in all their places, buffers."""
        c = self._config()
        rows = ranks * self._at_once * c.top_k
        tokens = ranks * max(self._lengths) * 3 * c.row_bytes
        return tokens + bytes_touched(c, rows, self._under_way, ranks * self.cores)

    def fit_to_memory(self, given: Collection[str], run: PodRun) -> tuple[Self, str]:
        """Fit the tokens at once, and the ranks, to the memory and the dies that there are."""
        case, note = self, ""
        while case.bytes_needed(case.ranks) > run.free_bytes and (fewer := case._fewer_at_once(given)):
            case = fewer
        if case.bytes_needed(case.ranks) > run.free_bytes:
            most = run.pod.spec.n_dies
            largest = next((r for r in range(most, 1, -1) if case.bytes_needed(r) <= run.free_bytes), 0)
            what = f"{case.ranks} ranks need"
            if "ranks" in given or not largest:
                remedy = f"--ranks {largest} would fit" if largest else "take fewer --tokens or a smaller --hidden"
                run.fits(case.bytes_needed(case.ranks), what, remedy)
            note = f"{what} about {case.bytes_needed(case.ranks) / GIB:.1f} GiB: running {largest} ranks"
            case = replace(case, ranks=largest)
        while not case._has_room(run.pod):
            fewer = case._fewer_at_once(given)
            if fewer is None:
                case._group(run.pod)  # says what there is no room for
            else:
                case = fewer
        taken: dict[str, Any] = {"redundant": case._replicas, "at_once": max(1, case._at_once)}
        if case.routing:
            taken["top_k"] = case._drawn.choices.top_k
        return replace(case, **taken), note

    def _has_room(self, pod: Pod) -> bool:
        mark = pod.mark_app()
        try:
            self._group(pod)
        except CapacityError:
            return False
        pod.release_app(mark)
        return True

    def _make_calls(self, run: PodRun) -> None:
        """Dispatch, the dummy expert and combine, one after the other; the parts of a batch follow each other."""
        group, rounds = self._group(run.pod), self._given()
        for number in range(self.rounds):
            suffix = f" {number + 1}" if self.rounds > 1 else ""
            with run.stage("routing"):
                parts, facts = next(rounds)
            run.facts |= facts
            for batch in parts:
                with run.stage(f"dispatch{suffix}") as progress:
                    group.dispatch(batch.tokens, batch.topk, progress)
                with run.stage(f"expert{suffix}") as progress:
                    group.run_dummy(progress)
                with run.stage(f"combine{suffix}") as progress:
                    group.combine(batch.weights, progress)
                run.rounds.append(dict(group.stats))
                with run.stage(f"verify{suffix}"):
                    run.wrong += sum(count_wrong(group, batch.tokens, batch.topk, batch.weights))


def columns(batches: Sequence[Batch]) -> tuple[list[Any], list[Any], list[Any]]:
    """Tokens, choices and weights of all rounds."""
    return [b.tokens for b in batches], [b.topk for b in batches], [b.weights for b in batches]


def in_parts(batch: Sequence[NDArray[Any]], tokens_max: int) -> list[list[NDArray[Any]]]:
    """A batch [rank] whose arrays have a row for each token, in parts of at most ``tokens_max`` tokens: [part][rank].

    What is too large for the buffers of a group goes through them in rounds, a part in each.
    """
    parts = max(1, -(-max(map(len, batch)) // tokens_max))
    return [[rows[i * tokens_max : (i + 1) * tokens_max] for rows in batch] for i in range(parts)]
