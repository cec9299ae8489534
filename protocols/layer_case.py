"""What cases of a layer of experts have in common, where every rank has tokens and experts."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xccl_emu.errors import ConfigError
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import PodSpec
from xccl_emu.protocol import Case, choice, size, switch, text, tight_pod
from xccl_emu.protocols.layout import EpConfig
from xccl_emu.protocols.moe_data import Batch
from xccl_emu.protocols.rounds import GroupRounds
from xccl_emu.protocols.tokens import TOKENS_HELP, as_text, tokens_of


@dataclass(frozen=True)
class LayerCase(Case, ABC):
    """Sizes of the group and of its layers, and a pod on which they just fit.

    A token is ``granules`` granules of 32 bytes and the slot of 512 bytes behind them, which is always there: 224
    granules are the 240 of the true message.  A hidden state has 32 elements for each granule if it is quantized and
    else 16; on the way back a row has two bytes an element.
    """

    ranks: int = size(2, "Ranks, one a die.", least=2)
    cores: int = size(1, "Cores of each rank.")
    tokens: int | str | Sequence[int] = text(2, TOKENS_HELP)
    granules: int = size(4, "Granules of 32 bytes of a token; 224 are the true size.")
    top_k: int = size(1, "Experts of each token.")
    rounds: int = size(2, "Layers one after the other.")
    experts: int = size(1, "Experts on each rank.")
    quantized: int = switch(1, "INT8 for the experts.")
    repeats: int = switch(0, "Does each token choose an expert twice, and so on with the next?")
    counting: str = choice("auto", "Who counts where messages go, and how.", of=EpConfig.COUNTINGS)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", as_text(self.tokens))
        super().__post_init__()
        object.__setattr__(self, "tokens", as_text(self._lengths))
        if not self.quantized and self.granules % 2:
            raise ConfigError(f"granules={self.granules}: must be even where nothing is quantized")
        if self.top_k > self.ranks * self.experts and not self.repeats:
            raise ConfigError(f"top_k={self.top_k}: there are {self.ranks * self.experts} experts")
        self._config()  # refuses the rest

    @abstractmethod
    def _config(self) -> EpConfig:
        """That of the group."""

    @abstractmethod
    def _rounds(self, pod: Pod, batches: Sequence[Batch]) -> GroupRounds:
        """The group on a pod, with its inputs."""

    @abstractmethod
    def _ub_bytes(self) -> int:
        """Of the data buffer, that the kernels use."""

    @property
    def _lengths(self) -> tuple[int, ...]:
        return tokens_of(self.tokens, self.ranks)

    @property
    def _shape(self) -> Mapping[str, Any]:
        """What every configuration is made of."""
        hidden = self.granules * (32 if self.quantized else 16)
        return {
            "n_ranks": self.ranks, "local_experts": self.experts, "hidden": hidden, "top_k": self.top_k,
            "tokens_max": max(1, *self._lengths), "quantized": bool(self.quantized), "cores": self.cores,
            "repeats": bool(self.repeats), "counting": self.counting,
        }  # fmt: skip

    def _spec(self, batches: Sequence[Batch]) -> PodSpec:
        def lay_out(pod: Pod) -> tuple[int, int]:
            group: Any = self._rounds(pod, batches).group
            return group.layout.meta_end, group.layout.managed_end

        return tight_pod(self.ranks, self.cores, self._ub_bytes(), lay_out)


def columns(batches: Sequence[Batch]) -> tuple[list[Any], list[Any], list[Any]]:
    """Tokens, choices and weights of all rounds."""
    return [b.tokens for b in batches], [b.topk for b in batches], [b.weights for b in batches]
