"""Attention and experts as two streams on each die, through which two microbatches go by turns, as cases.

The kernels between attention and attention are FusedDispatch, the dummy expert and FusedCombine as they ship.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from xccl_emu import protocol
from xccl_emu.base.errors import ConfigError
from xccl_emu.kernels.experts.counts import FIELD_BYTES
from xccl_emu.kernels.serving import two_streams as device
from xccl_emu.lang import Kernel
from xccl_emu.machine.pod import Pod
from xccl_emu.oracle import streams as oracle
from xccl_emu.protocol.streams import Streams
from xccl_emu.protocols.experts.case import columns
from xccl_emu.protocols.experts.data import Batch
from xccl_emu.protocols.experts.group import DUMMY, ExpertGroup, Phase, PhaseOfRound
from xccl_emu.protocols.experts.layout import LAYER
from xccl_emu.protocols.fused.case import FusedCase
from xccl_emu.protocols.fused.session import FusedConfig, FusedExpertParallel, FusedLayout

MICROBATCHES = 2
READY, BACK, RECEIVED, COMPUTED = range(4)
"""Events: what a microbatch has been through."""

Step = tuple[bool, int, tuple[Kernel, ...], int]
"""Whether it is attention's stream; the event that it waits for, what it launches, and the event that it records."""


class StreamsLayout(FusedLayout):
    """The regions of FusedDispatch and FusedCombine, and counts of events by event and microbatch."""

    suffix = ""

    def _add_all(self) -> None:
        super()._add_all()
        self.events = self.meta("meta.event", FIELD_BYTES, 4 * MICROBATCHES)

    def labels(self) -> Iterator[tuple[str, int, int]]:
        """Name, address and bytes of each part; in a later set parts have names that say so."""
        return ((name + self.suffix, at, nbytes) for name, at, nbytes in super().labels())


class StreamedFused(FusedExpertParallel):
    """A group whose launches are on two streams; microbatches are dealt out to ``sets`` of places for transfers."""

    lays_out = StreamsLayout
    layout: StreamsLayout

    def __init__(self, pod: Pod, config: FusedConfig, *, sets: int = 1, **more: Any) -> None:
        super().__init__(pod, config, **more)
        self.layouts = [self.layout]
        for number in range(1, sets):
            before = self.layouts[-1]
            self.layouts.append(StreamsLayout(config, pod, before.managed_end, before.meta_end))
            self.layouts[-1].suffix = f".set{number}"

    def launch_on(self, streams: Streams, cores: range, step: PhaseOfRound, event: int, **more: int) -> None:
        """Launch a kernel on some cores of all ranks; ``event``: number of the count that it may touch."""
        sets = len(self.layouts)
        self.layout = self.layouts[step.number % sets]
        places = {**self._places(step.phase, step.ahead // sets), **more}
        places |= {"c": self.shape()._replace(cores=len(cores)), "core": range(len(cores))}
        for rank in range(self.config.n_ranks):
            word = self.layouts[0].events.at(self.die_of(rank), event)
            args = self._args(rank, step, {**places, "word": word})
            self.pod.launch(step.phase.kernel, self.die_of(rank), cores, args, after=streams)


@dataclass(frozen=True)
class TwoStreams(FusedCase):
    """Each die has cores for attention and cores for experts; microbatches go from these to those and back."""

    papers = (*protocol.read_papers("fused"), *protocol.read_papers("serving.two_streams"))
    presets: ClassVar[tuple[protocol.Preset, ...]] = (
        protocol.Preset(
            "two-streams",
            "Microbatches between two streams of a die (CloudMatrix384 4.2.3)",
            {"cores": 1, "tokens": 1, "rounds": 2},
            {"cores": 1, "tokens": 2, "rounds": 2},
        ),
    )
    group: ClassVar[type[StreamedFused]] = StreamedFused
    sets: ClassVar[int] = 1
    """Buffers and fields for dispatch and combine, to which microbatches are dealt out."""
    side_by_side = False
    lay_out_calls = protocol.Case.lay_out_calls

    attention: int = protocol.size(1, "Cores of a die for attention; 32 in the paper.", most=47)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("routing", "masked", "repeats", "at_once"):
            if getattr(self, name):
                raise ConfigError(name, getattr(self, name), "goes without streams: the gate chooses, of all at once")

    @property
    def _own_cores(self) -> int:
        return self.cores + self.attention

    def _steps(self, group: StreamedFused) -> Iterator[Step]:
        """Yield what the streams do for each microbatch of a layer, in the order of each stream."""
        moe = (device.gate, group.dispatches.kernel, DUMMY.kernel, group.combines.kernel)
        yield True, BACK, (device.attend,), READY
        yield False, READY, moe, BACK

    def _batches(self) -> list[Batch]:
        """Return the microbatches before all layers."""
        return self._pattern([self._lengths] * MICROBATCHES)

    def _all_turns(self, batches: Sequence[Batch]) -> list[Batch]:
        """Return the microbatches as dispatch gets them in each layer, by turns."""
        c = self._config()
        through = [
            oracle.layers(
                batch.tokens, batch.weights, range(m, self.rounds * MICROBATCHES, MICROBATCHES), c.local_experts,
                c.quantizer if c.quantized else None,
            )
            for m, batch in enumerate(batches)
        ]  # fmt: skip
        return [
            replace(batch, tokens=tokens, topk=topk)
            for layer in zip(*through, strict=True)
            for batch, (tokens, topk) in zip(batches, layer, strict=True)
        ]

    def _launched(self, bench: protocol.Bench, pod: Pod, batches: Sequence[Batch]) -> tuple[StreamedFused, Streams]:
        corner, streams = bench.corner, Streams(bench, pod)
        group = self.group(
            pod, self._config(), rounds=MICROBATCHES, sets=self.sets, managed_offset=corner.managed,
            field_offset=corner.meta,
        )  # fmt: skip
        group.fill_rounds(*columns(batches))
        for layer in range(self.rounds):
            for step in self._steps(group):
                for m in range(MICROBATCHES):
                    self._put_turn(group, streams, step, layer * MICROBATCHES + m)
        streams.put()
        return group, streams

    def _put_turn(self, group: StreamedFused, streams: Streams, step: Step, turn: int) -> None:
        """Launch what a stream does in a turn; in the first layer nothing has come back."""
        attention, awaited, kernels, recorded = step
        cores = range(self.cores, self._own_cores) if attention else range(self.cores)
        layer, m = divmod(turn, MICROBATCHES)
        least = layer + (awaited != BACK)
        for kernel in ((device.await_event,) if least else ()) + kernels + (device.record,):
            event = MICROBATCHES * (awaited if kernel is device.await_event else recorded) + m
            here = PhaseOfRound(Phase(LAYER[0], kernel), m, turn)
            group.launch_on(streams, cores, here, event, least=least, turn=turn, first=int(layer == 0))

    def _judge(
        self, bench: protocol.Bench, group: ExpertGroup[Any], streams: Streams, batches: Sequence[Batch]
    ) -> None:
        super()._judge(bench, group, streams, self._all_turns(batches))
        assert isinstance(group, StreamedFused)
        for layout in group.layouts[:-1]:
            layout.label(bench)

    proof_usual: ClassVar = dict(cores=1, tokens=1, rounds=2)
    proof_rows: ClassVar = {
        "two layers": {},
        "three layers": dict(rounds=3),
        "two cores for attention": dict(attention=2, tokens=2),
        "two cores for experts": dict(cores=2, tokens=2, rounds=1),
        "a rank with no tokens": dict(tokens="2,0"),
        "SDMA": dict(path="sdma"),
    }


@dataclass(frozen=True)
class PrefillStreams(TwoStreams):
    """Attention and experts share a stream; the other one does what is around transfers, which the DMA engine makes."""

    presets: ClassVar[tuple[protocol.Preset, ...]] = (
        protocol.Preset(
            "prefill-streams",
            "Microbatches between AIC, AIV and SDMA of a die (CloudMatrix384 4.3.2)",
            {"cores": 1, "tokens": 1, "rounds": 2, "path": "sdma"},
            {"cores": 1, "tokens": 2, "rounds": 2, "path": "sdma"},
        ),
    )
    sets: ClassVar[int] = MICROBATCHES

    def _steps(self, group: StreamedFused) -> Iterator[Step]:
        """Yield what the streams do: dispatch of both microbatches comes before combine of one."""
        yield True, BACK, (device.attend,), READY
        yield False, READY, (device.gate, group.dispatches.kernel), RECEIVED
        yield True, RECEIVED, (DUMMY.kernel,), COMPUTED
        yield False, COMPUTED, (group.combines.kernel,), BACK

    proof_usual: ClassVar = dict(cores=1, tokens=1, rounds=2, path="sdma")
    proof_rows: ClassVar = {what: sizes for what, sizes in TwoStreams.proof_rows.items() if what != "SDMA"}
