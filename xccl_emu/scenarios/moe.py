"""Dispatch, combine, and both with the stand-in expert between them, as things to check (xDeepServe 3.2).

Everything runs in one launch for all rounds, so that a fast rank may be a round ahead of a slow one.
"""

import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xccl_emu.check.trial import Expected, Trial
from xccl_emu.errors import ConfigError
from xccl_emu.kernels.group import align
from xccl_emu.kernels.moe import COMBINE, DISPATCH, EXPERT, moe_layers
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import GIB, MIB, PodSpec
from xccl_emu.protocol.case import names_of_syncs
from xccl_emu.protocols.expert_parallel import ExpertParallel
from xccl_emu.protocols.layout import EpConfig, buffer_bytes
from xccl_emu.protocols.rounds import Rounds
from xccl_emu.scenarios.common import (
    PROMISES,
    at_least,
    check_seed,
    cores_on,
    must_hold,
    set_switches,
    tight_pod,
)
from xccl_emu.scenarios.moe_data import Batch, Image, make_batches
from xccl_emu.scenarios.moe_labels import labels_of

KINDS = {"dispatch": DISPATCH, "combine": COMBINE, "moe": DISPATCH | EXPERT | COMBINE}
_WRITTEN = {"dispatch": ("recv_x", "route", "counts", "pos"), "combine": ("out",)}
ROOMY = {"app": GIB, "meta": MIB, "managed": GIB, "ub": MIB}
"""Sizes of a pod on which every small group fits."""


@dataclass(frozen=True)
class MoeCheck:
    """A small expert-parallel group, ``rounds`` times ``kind``: ``"dispatch"``, ``"combine"`` or ``"moe"`` (all of it).

    A dispatched token is ``pieces`` pieces of 32 bytes and the slot of 512 bytes behind them, which is always there:
    224 pieces are the 240 of the true message.  A hidden state has 32 elements for each piece if it is quantized and
    else 16; on the way back a row has two bytes an element.

    Raises ConfigError for sizes below their least, and what dispatch and combine would refuse.
    """

    kind: str = "dispatch"
    ranks: int = 2
    cores: int = 1
    tokens: int | str | Sequence[int] = 2
    """Of each rank, or of all; a rank may have none.  As text: ``"2,0"``."""
    pieces: int = 4
    top_k: int = 1
    rounds: int = 2
    experts: int = 1
    """On each rank."""
    quantized: bool = True
    path: str = "mtu"
    seed: int = 0
    """Of hidden states and weights."""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"kind={self.kind!r}: must be one of {', '.join(KINDS)}")
        at_least(1, cores=self.cores, pieces=self.pieces, rounds=self.rounds, top_k=self.top_k, experts=self.experts)
        at_least(2, ranks=self.ranks)
        check_seed(self.seed)
        set_switches(self, "quantized")
        object.__setattr__(self, "tokens", tokens_of(self.tokens, self.ranks))
        if not self.quantized and self.pieces % 2:
            raise ConfigError(f"pieces={self.pieces}: must be even where nothing is quantized")
        if self.top_k > self.ranks * self.experts:
            raise ConfigError(f"top_k={self.top_k}: there are {self.ranks * self.experts} experts")
        self._config()  # refuses the rest

    @property
    def name(self) -> str:
        """As the command knows it."""
        return self.kind

    @property
    def configuration(self) -> Mapping[str, int | str]:
        """Sizes, in the order in which reports print them."""
        names = ("ranks", "cores", "tokens", "pieces", "top_k", "rounds", "experts", "quantized", "path", "seed")
        values = {name: getattr(self, name) for name in names}
        return values | {"tokens": ",".join(map(str, values["tokens"])), "quantized": int(self.quantized)}

    @property
    def syncs(self) -> tuple[str, ...]:
        """Names of the synchronizations of its kernel, which has all phases."""
        return names_of_syncs([moe_layers])

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """The pod with every rank launched, and what its app buffers must hold at the end."""
        batches = make_batches(self._config(), self._lengths, self.rounds, self.top_k, self.seed)
        rounds = self._rounds(Pod(self._spec(batches), order=order, without=without), batches)
        images = [Image(rounds.config, batches, rank) for rank in range(self.ranks)]
        given = [rounds.buffers[rank] for rank in range(self.ranks)]
        if self.kind == "combine":
            for buffers, image in zip(given, images, strict=True):
                _fill(rounds.pod, vars(buffers), image)
        rounds.launch()
        ranks = range(self.ranks)
        expected = [e for r in ranks for e in self._expected(rounds.pod, r, vars(given[r]), images[r])]
        filled = [b for rank in range(self.ranks) for b in self._filled(vars(given[rank]), images[rank])]
        return Trial(rounds.pod, tuple(expected), tuple(filled), tuple(labels_of(rounds)), promises=PROMISES)

    def _expected(self, pod: Pod, rank: int, buffers: Mapping[str, Buffer], image: Image) -> list[Expected]:
        names = _WRITTEN.get(self.kind, tuple(image.written))
        cores = cores_on(pod, rank, [moe_layers])
        return [must_hold(f"{name} of rank {rank}", buffers[name], image.written[name], cores) for name in names]

    def _filled(self, buffers: Mapping[str, Buffer], image: Image) -> list[Buffer]:
        """The parts of the buffers that hold something when the run begins."""
        names = (*image.given, *(_COMBINE_INPUTS if self.kind == "combine" else ()))
        return [part for name in names for part in image.parts(name, buffers[name])]

    # ---- what it is made of

    @property
    def _lengths(self) -> tuple[int, ...]:
        assert isinstance(self.tokens, tuple)
        return self.tokens

    def _config(self) -> EpConfig:
        return EpConfig(
            n_ranks=self.ranks,
            local_experts=self.experts,
            hidden=self.pieces * (32 if self.quantized else 16),
            top_k=self.top_k,
            tokens_max=max(1, *self._lengths),
            quantized=self.quantized,
            cores=self.cores,
            path=self.path,
        )

    def _rounds(self, pod: Pod, batches: Sequence[Batch]) -> Rounds:
        group = ExpertParallel(pod, self._config())
        columns = ([b.tokens for b in batches], [b.topk for b in batches], [b.weights for b in batches])
        return Rounds(group, *columns, parts=KINDS[self.kind])

    def _spec(self, batches: Sequence[Batch]) -> PodSpec:
        """As large as everything is on a pod that is large enough."""
        roomy = self._rounds(Pod(tight_pod(self.ranks, self.cores, **ROOMY)), batches)
        layout = roomy.group.layout
        return tight_pod(
            self.ranks,
            self.cores,
            app=max(roomy.pod.mark_app().values()),
            meta=layout.meta_end,
            managed=align(layout.managed_end),
            ub=align(buffer_bytes(roomy.config)),
        )


_COMBINE_INPUTS = ("pos", "counts", "y")


def _fill(pod: Pod, buffers: Mapping[str, Buffer], image: Image) -> None:
    """What dispatch and expert would have left for combine."""
    for name in _COMBINE_INPUTS:
        raw = np.frombuffer(image.written[name].tobytes(), np.uint8)
        pod.view(buffers[name])[: raw.size] = raw


def tokens_of(given: Any, ranks: int) -> tuple[int, ...]:
    """Tokens of each rank; ConfigError for what says something else."""
    try:
        parts = given.split(",") if isinstance(given, str) else given if isinstance(given, Iterable) else [given]
        counts = tuple(int(part) if isinstance(part, str) else operator.index(part) for part in parts)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"tokens={given!r}: must be a whole number, or one for each rank") from error
    if len(counts) == 1:
        counts *= ranks
    if len(counts) != ranks or min(counts) < 0 or max(counts) == 0:
        raise ConfigError(f"tokens={given!r}: must be one number or {ranks}, none negative and one above 0")
    at_least(0, tokens=max(counts))
    return counts
