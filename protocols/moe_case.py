"""Dispatch, combine, and both with the stand-in expert between them, as cases (xDeepServe 3.2).

Everything runs in one launch for all rounds, so that a fast rank may be a round ahead of a slow one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from xccl_emu.errors import ConfigError
from xccl_emu.kernels.moe import COMBINE, DISPATCH, EXPERT, moe_layers
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import PodSpec
from xccl_emu.protocol import Bench, Case, Preset, choice, size, switch, text, tight_pod
from xccl_emu.protocol.owners import cores_running
from xccl_emu.protocols.expert_parallel import ExpertParallel
from xccl_emu.protocols.layout import EpConfig, buffer_bytes
from xccl_emu.protocols.moe_data import Batch, Image, make_batches
from xccl_emu.protocols.moe_labels import label_all
from xccl_emu.protocols.rounds import Rounds
from xccl_emu.protocols.tokens import TOKENS_HELP, as_text, tokens_of

_COMBINE_INPUTS = ("pos", "counts", "y")
_PAIRS = {"ranks": 2, "cores": 2, "tokens": 3, "rounds": 2}


@dataclass(frozen=True)
class MoeCase(Case):
    """A small expert-parallel group that runs dispatch, a stand-in expert and combine, ``rounds`` times.

    A dispatched token is ``pieces`` pieces of 32 bytes and the slot of 512 bytes behind them, which is always there:
    224 pieces are the 240 of the true message.  A hidden state has 32 elements for each piece if it is quantized and
    else 16; on the way back a row has two bytes an element.
    """

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset("moe", "Dispatch, a stand-in expert, combine, in one launch", {}, _PAIRS | {"pieces": 2}),
    )
    parts: ClassVar[int] = DISPATCH | EXPERT | COMBINE
    written: ClassVar[tuple[str, ...]] = ("recv_x", "route", "counts", "pos", "y", "out")
    """Buffers that hold something new in the end."""
    least_pieces: ClassVar[int] = 1

    ranks: int = size(2, "Ranks, one a die.", least=2)
    cores: int = size(1, "Cores of each rank.")
    tokens: int | str | Sequence[int] = text(2, TOKENS_HELP)
    pieces: int = size(4, "Pieces of 32 bytes of a token; 224 are the true size.")
    top_k: int = size(1, "Experts of each token.")
    rounds: int = size(2, "Layers one after the other.")
    experts: int = size(1, "Experts on each rank.")
    quantized: int = switch(1, "INT8 on the wire in dispatch.")
    path: str = choice("mtu", "How data is pulled.", of=EpConfig.PATHS)
    seed: int = size(0, "Of hidden states and weights.", least=0, most=None)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", as_text(self.tokens))
        super().__post_init__()
        object.__setattr__(self, "tokens", as_text(self._lengths))
        if not self.quantized and self.pieces % 2:
            raise ConfigError(f"pieces={self.pieces}: must be even where nothing is quantized")
        if self.top_k > self.ranks * self.experts:
            raise ConfigError(f"top_k={self.top_k}: there are {self.ranks * self.experts} experts")
        self._config()  # refuses the rest

    def lay_out(self, bench: Bench) -> None:
        """Every rank launched, and what its app buffers must hold, which its cores own."""
        batches = make_batches(self._config(), self._lengths, self.rounds, self.top_k, self.seed)
        rounds = self._rounds(bench.pod(self._spec(batches)), batches)
        images = [Image(rounds.config, batches, rank) for rank in range(self.ranks)]
        for rank, image in enumerate(images):
            self._fill(bench, rounds.pod, vars(rounds.buffers[rank]), image)
        rounds.launch()
        for rank, image in enumerate(images):
            cores = cores_running(rounds.pod, rank, [moe_layers])
            for name in self.written:
                buffer = vars(rounds.buffers[rank])[name]
                bench.expect_whole(buffer, image.written[name], f"{name} of rank {rank}", cores)
        label_all(bench, rounds)
        bench.tolerates("stop", "cut", "stall")

    def _fill(self, bench: Bench, pod: Pod, buffers: Mapping[str, Buffer], image: Image) -> None:
        """Say which parts of the buffers hold something when the run begins."""
        for name in image.given:
            bench.already_filled(*image.parts(name, buffers[name]))

    # ---- what it is made of

    @property
    def _lengths(self) -> tuple[int, ...]:
        return tokens_of(self.tokens, self.ranks)

    def _config(self) -> EpConfig:
        return EpConfig(
            n_ranks=self.ranks,
            local_experts=self.experts,
            hidden=self.pieces * (32 if self.quantized else 16),
            top_k=self.top_k,
            tokens_max=max(1, *self._lengths),
            quantized=bool(self.quantized),
            cores=self.cores,
            path=self.path,
        )

    def _rounds(self, pod: Pod, batches: Sequence[Batch]) -> Rounds:
        group = ExpertParallel(pod, self._config())
        columns = ([b.tokens for b in batches], [b.topk for b in batches], [b.weights for b in batches])
        return Rounds(group, *columns, parts=self.parts)

    def _spec(self, batches: Sequence[Batch]) -> PodSpec:
        def lay_out(pod: Pod) -> tuple[int, int]:
            layout = self._rounds(pod, batches).group.layout
            return layout.meta_end, layout.managed_end

        return tight_pod(self.ranks, self.cores, buffer_bytes(self._config()), lay_out)

    @classmethod
    def proofs(cls) -> Mapping[str, Case]:
        """Two to four ranks, one with no tokens, and two cores a rank."""
        usual = cls(ranks=2, tokens=2, pieces=4, rounds=2)
        return {
            "two ranks, two tokens": usual,
            "three ranks, one token": replace(usual, ranks=3, tokens=1, pieces=2, rounds=3),
            "four ranks, one token": replace(usual, ranks=4, tokens=1, pieces=cls.least_pieces, rounds=1),
            "a rank with no tokens": replace(usual, tokens=(2, 0), rounds=3),
            "two cores a rank": replace(usual, cores=2),
        }


@dataclass(frozen=True)
class DispatchCase(MoeCase):
    """Dispatch alone, ``rounds`` times; sizes as those of `MoeCase`."""

    presets = (Preset("dispatch", "Pull dispatch of tokens to the dies of their experts", {}, _PAIRS | {"pieces": 1}),)
    parts = DISPATCH
    written = ("recv_x", "route", "counts", "pos")


@dataclass(frozen=True)
class CombineCase(MoeCase):
    """Combine alone, ``rounds`` times, of what dispatch and the experts would have left; sizes as of `MoeCase`."""

    presets = (Preset("combine", "Pull combine of what the experts return", {}, _PAIRS | {"pieces": 2}),)
    parts = COMBINE
    written = ("out",)
    least_pieces = 2
    """A row that comes back has at least two, because hidden states have a multiple of 32 elements."""

    quantized: int = switch(0, "INT8 on the wire in dispatch.")

    def _fill(self, bench: Bench, pod: Pod, buffers: Mapping[str, Buffer], image: Image) -> None:
        super()._fill(bench, pod, buffers, image)
        for name in _COMBINE_INPUTS:
            raw = np.frombuffer(image.written[name].tobytes(), np.uint8)
            pod.view(buffers[name])[: raw.size] = raw
            bench.already_filled(*image.parts(name, buffers[name]))
