"""Choices of a layer's tokens, round after round, by generated loads, by a file's, or as recorded in one."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.routing.batches import Routing, deal_routing, draw_routing
from xccl_emu.routing.files import ExpertLoads, RecordedChoices, open_routing
from xccl_emu.routing.placement import Placement, Redundancy, place_choices, place_experts
from xccl_emu.routing.sampling import skewed_loads

ZIPF = "zipf"
"""Loads that are generated, in place of a file."""
EXPERTS = 256
"""Routed experts where no file says how many."""

_TOP_K = 8
_TOP_K_MAX = 15  # and the shared expert


class Choices:
    """Which experts the tokens of each round choose.

    routing: a file of expert loads (JSON) or of recorded choices (JSONL), or ``"zipf"`` for Zipf-like loads whose
    hottest expert carries about 6.6 times the mean.  layer: of the loads; the first MoE layer if below 0.  top_k:
    routed experts of a token; if 0, 8 or as recorded.

    Raises ConfigError for a layer or a number of choices that the file does not have, or too many of them.
    """

    def __init__(self, routing: str, layer: int, top_k: int, seed: int) -> None:
        self._routing, self._layer, self._seed = routing, layer, seed
        self._source = None if routing == ZIPF else open_routing(Path(routing))
        if layer >= 0 and not isinstance(self._source, ExpertLoads):
            raise ConfigError("layer", layer, "needs --routing with a file of expert loads by layer")
        self.top_k = self._choices_per_token(top_k)
        """Routed experts of a token."""

    def _choices_per_token(self, top_k: int) -> int:
        if not isinstance(self._source, RecordedChoices):
            wanted = top_k or _TOP_K
            if wanted > self.n_experts:
                where = f"--routing {self._routing} has" if self._source else "there are"
                raise ConfigError("top_k", wanted, f"{where} {self.n_experts} experts")
            recorded = wanted
        else:
            recorded = int(self._source.topk.shape[1])
        if top_k not in (0, recorded):
            raise ConfigError("top_k", top_k, f"{self._routing} has {recorded} choices a token")
        if recorded > _TOP_K_MAX:
            what = f"{self._routing} has {recorded} choices a token"
            raise ConfigError("top_k", recorded, f"{what}, {_TOP_K_MAX} are possible")
        return recorded

    @property
    def n_experts(self) -> int:
        """Routed experts, whether chosen or not."""
        if isinstance(self._source, RecordedChoices):
            return self._source.n_experts
        return self.loads().size

    def loads(self) -> NDArray[np.float64]:
        """[n_experts] loads by which choices are drawn; for recorded choices those generated in their place."""
        if not isinstance(self._source, ExpertLoads):
            return skewed_loads(EXPERTS, self._seed)
        layers = self._source.moe_layers
        if not layers:
            raise ConfigError(f"--routing {self._routing}: no layer of it routes any token")
        return self._source.layer(layers[0] if self._layer < 0 else self._layer)

    def history(self) -> NDArray[np.float64]:
        """[n_experts] loads by which experts get replicas: those that choices are drawn by, or all that is recorded."""
        if isinstance(self._source, RecordedChoices):
            return np.bincount(self._source.topk.ravel(), minlength=self.n_experts).astype(np.float64)
        return self.loads()

    def place(self, ranks: int, replicas: int = 0, slots_per_rank: int = 0) -> Placement:
        """Experts, replicas and the shared expert on this many ranks; ConfigError if they do not fit."""
        if not replicas and not slots_per_rank:
            return place_experts(ranks, self.n_experts)
        redundancy = Redundancy(replicas, self.history(), slots_per_rank, self.top_k)
        return place_experts(ranks, self.n_experts, redundancy=redundancy)

    def of_round(self, number: int, ranks: int, tokens: int) -> Routing:
        """Choices of expert ids and gate weights of ``tokens`` tokens on each of this many ranks; others each round."""
        if isinstance(self._source, RecordedChoices):
            return deal_routing(self._source, ranks, tokens, number * ranks * tokens)
        label = self._source.source if self._source else "generated, Zipf-like"
        rng = np.random.default_rng((self._seed, 1, number))
        return draw_routing(self.loads(), ranks, tokens, self.top_k, rng, label)


def hottest_over_mean(drawn: Routing) -> float:
    """Choices of the hottest expert, of what the mean expert has."""
    loads = drawn.loads()
    return float(loads.max() / max(loads.mean(), 1e-9))


def hottest_die(drawn: Routing, placement: Placement) -> tuple[int, int]:
    """Rows that the die with the most receives: as experts are placed, and if there were no replicas."""
    plain = place_experts(placement.n_ranks, placement.n_experts)
    most = [int(p.rank_loads(place_choices(drawn, p)).max()) for p in (placement, plain)]
    return most[0], most[1]
