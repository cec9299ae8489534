"""FusedDispatch, stand-in expert and FusedCombine as things to check (CloudMatrix384 4.2.1).

All rounds are one launch, so that a fast rank may be ahead of a slow one.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check.trial import Label, Trial
from xccl_emu.errors import ConfigError
from xccl_emu.kernels.counts import FIELD_BYTES
from xccl_emu.kernels.fused_layers import fused_layers
from xccl_emu.kernels.group import align
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import PodSpec
from xccl_emu.protocol.case import names_of_syncs
from xccl_emu.protocols.fused import FusedExpertParallel, FusedRounds
from xccl_emu.protocols.fused_layout import FusedConfig, fused_buffer_bytes
from xccl_emu.scenarios.common import (
    PROMISES,
    at_least,
    check_seed,
    cores_on,
    must_hold,
    of_buffer,
    set_switches,
    tight_pod,
)
from xccl_emu.scenarios.moe import ROOMY, tokens_of
from xccl_emu.scenarios.moe_data import Batch, Image, make_batches

_WRITTEN = ("recv_x", "route", "counts", "y", "out")
_SWITCHES = ("early_quantization", "preallocated", "pipelined", "double_buffered")


@dataclass(frozen=True)
class FusedCheck:
    """A small group that runs ``rounds`` rounds of a layer; sizes as those of `MoeCheck`.

    Raises ConfigError for sizes below their least, and what the group would refuse.
    """

    ranks: int = 2
    cores: int = 1
    tokens: int | str | Sequence[int] = 2
    """Of each rank, or of all; a rank may have none.  As text: ``"2,0"``."""
    pieces: int = 1
    top_k: int = 1
    rounds: int = 3
    """What a fast rank can do shows from the third on."""
    experts: int = 1
    """On each rank."""
    quantized: bool = True
    masked: bool = False
    """Is the first choice of each rank's last token masked?"""
    path: str = "aiv"
    early_quantization: bool = True
    preallocated: bool = True
    pipelined: bool = True
    double_buffered: bool = True
    seed: int = 0
    """Of hidden states and weights."""

    def __post_init__(self) -> None:
        at_least(1, cores=self.cores, pieces=self.pieces, rounds=self.rounds, top_k=self.top_k, experts=self.experts)
        at_least(2, ranks=self.ranks)
        check_seed(self.seed)
        set_switches(self, "quantized", "masked", *_SWITCHES)
        object.__setattr__(self, "tokens", tokens_of(self.tokens, self.ranks))
        if not self.quantized and self.pieces % 2:
            raise ConfigError(f"pieces={self.pieces}: must be even where nothing is quantized")
        self._config()  # refuses the rest

    @property
    def name(self) -> str:
        """As the command knows it."""
        return "fused"

    @property
    def configuration(self) -> Mapping[str, int | str]:
        """Sizes, in the order in which reports print them."""
        values = {name: int(v) if isinstance(v, bool) else v for name, v in vars(self).items()}
        return values | {"tokens": ",".join(map(str, self._lengths))}

    @property
    def syncs(self) -> tuple[str, ...]:
        """Names of the synchronizations of its kernel."""
        return names_of_syncs([fused_layers])

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """The pod with every rank launched, and what its app buffers must hold at the end."""
        batches = self._batches()
        rounds = self._rounds(Pod(self._spec(batches), order=order, without=without), batches)
        rounds.launch()
        expected, filled = [], []
        for rank in range(self.ranks):
            image, buffers = Image(rounds.config, batches, rank), vars(rounds.buffers[rank])
            cores = cores_on(rounds.pod, rank, [rounds.kernel])
            expected += [
                must_hold(f"{n} of rank {rank}", buffers[n], image.written[n], cores) for n in _WRITTEN
            ]
            filled += [part for name in image.given for part in image.parts(name, buffers[name])]
        labels = tuple(_labels(rounds))
        return Trial(rounds.pod, tuple(expected), tuple(filled), labels, promises=PROMISES)

    # ---- what it is made of

    @property
    def _lengths(self) -> tuple[int, ...]:
        assert isinstance(self.tokens, tuple)
        return self.tokens

    def _config(self) -> FusedConfig:
        return FusedConfig(
            n_ranks=self.ranks,
            local_experts=self.experts,
            hidden=self.pieces * (32 if self.quantized else 16),
            top_k=self.top_k,
            tokens_max=max(1, *self._lengths),
            quantized=self.quantized,
            cores=self.cores,
            path=self.path,
            **{name: getattr(self, name) for name in _SWITCHES},
        )

    def _batches(self) -> list[Batch]:
        drawn = make_batches(self._config(), self._lengths, self.rounds, self.top_k, self.seed)
        return [replace(batch, topk=self._choices(i)) for i, batch in enumerate(drawn)]

    def _choices(self, i: int) -> list[NDArray[np.int32]]:
        """[T, top_k] slots for each rank: its tokens go round the ranks, and all to one in every third round.

        So where a token goes its neighbour has gone the round before, which a core that is ahead could overwrite.
        """
        apart = 0 if i % 3 == 2 else 1
        n_slots, k = self.ranks * self.experts, np.arange(self.top_k)
        topk = []
        for rank, n in enumerate(self._lengths):
            first = (rank + 1 + i + apart * np.arange(n)) * self.experts
            choices = ((first[:, None] + k) % n_slots).astype(np.int32)
            if self.masked:
                choices[-1:, 0] = -1
            topk.append(choices)
        return topk

    def _rounds(self, pod: Pod, batches: Sequence[Batch]) -> FusedRounds:
        group = FusedExpertParallel(pod, self._config())
        return FusedRounds(group, [b.tokens for b in batches], [b.topk for b in batches], [b.weights for b in batches])

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
            ub=align(fused_buffer_bytes(roomy.group.config)),
        )


def _labels(rounds: FusedRounds) -> Iterator[Label]:
    """Metadata fields, both buffers by what is written into them at once, staging, and the app buffers."""
    group = rounds.group
    for rank in range(group.config.n_ranks):
        yield from _fields(group, rank)
        yield from _messages(group, rank)
        if group.config.double_buffered:
            yield from _contributions(group, rank)
        for name, buffer in vars(rounds.buffers[rank]).items():
            if buffer.nbytes:
                yield of_buffer(name, buffer)


def _fields(group: FusedExpertParallel, rank: int) -> Iterator[Label]:
    c, layout, die = group.config, group.layout, group.die_of(rank)
    names = [
        f"counts[{source}→{rank}].expert{e}.{parity}"
        for parity in ("even", "odd") for source in range(c.n_ranks) for e in range(c.local_experts)
    ]  # fmt: skip
    if not c.preallocated:
        names += [
            f"{kind}[{other}→{rank}].{parity}"
            for kind in ("asked", "granted") for parity in ("even", "odd") for other in range(c.n_ranks)
        ]  # fmt: skip
    names += [f"{kind}.token{t}" for kind in ("arrivals", "due") for t in range(c.tokens_max)]
    for i, name in enumerate(names):
        yield Label(f"die{die}.meta.{name}", group.pod.meta(die, layout.fields + i * FIELD_BYTES), FIELD_BYTES)


def _messages(group: FusedExpertParallel, rank: int) -> Iterator[Label]:
    c, layout, die = group.config, group.layout, group.die_of(rank)
    for i in range(c.n_ranks * c.max_tokens):
        what = f"[{i // c.max_tokens}→{rank}].message{i % c.max_tokens}" if c.preallocated else f".message{i}"
        at = group.pod.managed(die, layout.dispatch + i * c.message_bytes)
        yield Label(f"die{die}.dispatch_buffer{what}", at, c.message_bytes)
    if not c.double_buffered and c.combine_buffer_bytes > c.dispatch_buffer_bytes:
        rest = c.combine_buffer_bytes - c.dispatch_buffer_bytes
        yield Label(f"die{die}.dispatch_buffer.rest", group.pod.managed(die, c.dispatch_buffer_bytes), rest)
    staged = (layout.managed_end - layout.staging) // c.message_bytes
    for i in range(staged):
        at = group.pod.managed(die, layout.staging + i * c.message_bytes)
        yield Label(f"die{die}.staging.core{i // c.top_k}.choice{i % c.top_k}", at, c.message_bytes)


def _contributions(group: FusedExpertParallel, rank: int) -> Iterator[Label]:
    c, layout, die = group.config, group.layout, group.die_of(rank)
    start = group.pod.managed(die, layout.combine)
    rows = c.tokens_max * c.top_k
    for i in range(rows):
        name = f"die{die}.combine_buffer.token{i // c.top_k}.choice{i % c.top_k}"
        yield Label(name, start + i * c.row_bytes, c.row_bytes)
    spare = c.combine_buffer_bytes - rows * c.row_bytes
    if spare:
        yield Label(f"die{die}.combine_buffer.spare", start + rows * c.row_bytes, spare)
