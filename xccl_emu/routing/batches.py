"""One layer's batch: the choices and gate weights of every token of every rank."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.routing.files import RecordedChoices
from xccl_emu.routing.sampling import draw_gate_weights, draw_topk


@dataclass(frozen=True, eq=False)
class Routing:
    """Choices of a batch on all source ranks.

    `topk`: per rank INT32 [T, k], expert ids in 0 .. n_experts - 1 or -1 for none; `weights`: per rank FP32 [T, k];
    T may differ between ranks. `source` says where the choices come from. Raises ConfigError if they do not fit.
    """

    topk: tuple[NDArray[np.int32], ...]
    weights: tuple[NDArray[np.float32], ...]
    n_experts: int
    source: str

    def __post_init__(self) -> None:
        if len(self.topk) == 0 or len(self.topk) != len(self.weights):
            raise ConfigError(
                f"topk has {len(self.topk)} ranks and weights {len(self.weights)}; both need one array per rank"
            )
        k = self.topk[0].shape[-1] if self.topk[0].ndim else 0
        for rank, (ids, gates) in enumerate(zip(self.topk, self.weights, strict=True)):
            if ids.dtype != np.int32 or ids.shape != (len(ids), k) or k < 1:
                raise ConfigError(f"topk[{rank}] is {ids.dtype.name} {ids.shape}; it must be int32 [tokens, {k or 1}]")
            if gates.dtype != np.float32 or gates.shape != ids.shape:
                raise ConfigError(
                    f"weights[{rank}] is {gates.dtype.name} {gates.shape}; it must be float32 {ids.shape}"
                )
            if ids.size and not -1 <= ids.min() <= ids.max() < self.n_experts:
                raise ConfigError(
                    f"topk[{rank}] has ids in {ids.min()}..{ids.max()}; they must be in -1..{self.n_experts - 1}"
                )

    @property
    def n_ranks(self) -> int:
        """Source ranks."""
        return len(self.topk)

    @property
    def k(self) -> int:
        """Choices of a token."""
        return int(self.topk[0].shape[1])

    def loads(self) -> NDArray[np.int64]:
        """Choices of each expert, over all ranks: INT64 [n_experts]."""
        return np.bincount(np.concatenate([ids[ids >= 0] for ids in self.topk]), minlength=self.n_experts)


def draw_routing(
    loads: ArrayLike,
    n_ranks: int,
    tokens_per_rank: int,
    k: int,
    rng: np.random.Generator,
    source: str,
) -> Routing:
    """Draw choices by `loads` [experts] (see `draw_topk`) and gate weights (see `draw_gate_weights`) for all ranks.

    Weights fall along a token's choices, as a gate's do; which of its experts comes first is random. Raises
    ConfigError if there are no ranks, `tokens_per_rank` is negative, or as those two functions do.
    """
    n_tokens = _n_tokens(n_ranks, tokens_per_rank)
    topk = draw_topk(loads, n_tokens, k, rng)
    weights = draw_gate_weights(n_tokens, k, rng)
    return _dealt(topk, weights, n_ranks, len(np.asarray(loads)), source)


def deal_routing(choices: RecordedChoices, n_ranks: int, tokens_per_rank: int, first_token: int = 0) -> Routing:
    """Deal recorded tokens, in order from `first_token`, to ranks in consecutive blocks of `tokens_per_rank`.

    Starts over at the first recorded token when they run out. Raises ConfigError if there are no ranks or a number
    is negative.
    """
    n_tokens = _n_tokens(n_ranks, tokens_per_rank)
    if first_token < 0:
        raise ConfigError(f"first_token is {first_token}; it must not be negative")
    taken = (first_token + np.arange(n_tokens)) % len(choices.topk)
    return _dealt(choices.topk[taken], choices.weights[taken], n_ranks, choices.n_experts, choices.source)


def _n_tokens(n_ranks: int, tokens_per_rank: int) -> int:
    if n_ranks < 1 or tokens_per_rank < 0:
        raise ConfigError(f"n_ranks is {n_ranks} and tokens_per_rank {tokens_per_rank}; they must be at least 1 and 0")
    return n_ranks * tokens_per_rank


def _dealt(topk: NDArray[np.int32], weights: NDArray[np.float32], n_ranks: int, n_experts: int, source: str) -> Routing:
    return Routing(tuple(np.split(topk, n_ranks)), tuple(np.split(weights, n_ranks)), n_experts, source)
