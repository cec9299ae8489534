"""What the jobs on layers of a mixture of experts share: choices, memory and stages."""

import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu import routing
from xccl_emu.errors import CapacityError, ConfigError
from xccl_emu.machine.spec import GIB
from xccl_emu.runs.jobs import tables
from xccl_emu.stage import Progress, Stage

EXPERTS = 256
"""Routed experts where no file says how many."""

INTERPRETER_BYTES = 700 << 20
"""Python, compiled code and the oracle's chunks."""

_TOP_K = 8
_TOP_K_MAX = 15  # and the shared expert


@dataclass
class LayerResult:
    """What such a job measured; `wrong` counts elements that differ from the oracle's."""

    wrong: int = 0
    tokens: int = 0
    messages: int = 0
    routing: str = ""
    hottest_over_mean: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)
    """What was asked for, or taken where nothing was."""
    rounds: list[dict[str, dict[str, Any]]] = field(default_factory=list)
    """For each round and protocol: seconds, actions, instructions, bytes by engine."""
    stages: dict[str, float] = field(default_factory=dict)
    """Wall seconds of each stage of the command."""
    seconds: float = 0.0
    resident_gb: float = 0.0

    closing = tables.told


class Choices:
    """Which experts the tokens of each round choose: by measured or generated loads, or recorded ones.

    path: a file of expert loads (JSON) or of recorded choices (JSONL), or None for Zipf-like loads.
    layer: of the loads; the first MoE layer if None. top_k: routed experts of a token; 8, or what is recorded, if None.

    Raises ConfigError for a layer or a number of choices that the file does not have, or too many of them.
    """

    def __init__(self, path: Path | None, layer: int | None, top_k: int | None, seed: int) -> None:
        self._path, self._layer, self._seed = path, layer, seed
        self._source = routing.open_routing(path) if path else None
        if layer is not None and not isinstance(self._source, routing.ExpertLoads):
            raise ConfigError(f"--layer {layer}: goes with --routing and a file of expert loads by layer")
        self.top_k = self._choices_per_token(top_k)
        """Routed experts of a token."""

    def _choices_per_token(self, top_k: int | None) -> int:
        if not isinstance(self._source, routing.RecordedChoices):
            wanted = _TOP_K if top_k is None else top_k
            if wanted > self.n_experts:
                where = f"--routing {self._path} has" if self._path else "there are"
                raise ConfigError(f"--top-k {wanted}: {where} {self.n_experts} experts")
            return wanted
        recorded = self._source.topk.shape[1]
        if top_k not in (None, recorded):
            raise ConfigError(f"--top-k {top_k}: {self._source.source} has {recorded} choices a token")
        if recorded > _TOP_K_MAX:
            name = self._source.source
            raise ConfigError(f"--routing: {name} has {recorded} choices a token, {_TOP_K_MAX} are possible")
        return int(recorded)

    @property
    def n_experts(self) -> int:
        """Routed experts, whether chosen or not."""
        if isinstance(self._source, routing.RecordedChoices):
            return self._source.n_experts
        return self.loads().size

    def loads(self) -> NDArray[np.float64]:
        """[n_experts] loads by which choices are drawn; for recorded choices those generated in their place."""
        if not isinstance(self._source, routing.ExpertLoads):
            return routing.skewed_loads(EXPERTS, self._seed)
        layers = self._source.moe_layers
        if not layers:
            raise ConfigError(f"--routing {self._path}: no layer of it routes any token")
        return self._source.layer(layers[0] if self._layer is None else self._layer)

    def history(self) -> NDArray[np.float64]:
        """[n_experts] loads by which experts get replicas: those that choices are drawn by, or all that is recorded."""
        if isinstance(self._source, routing.RecordedChoices):
            return np.bincount(self._source.topk.ravel(), minlength=self.n_experts).astype(np.float64)
        return self.loads()

    def place(self, ranks: int, replicas: int = 0, slots_per_rank: int = 0) -> routing.Placement:
        """Experts, replicas and the shared expert on so many ranks; ConfigError if they do not fit."""
        if not replicas and not slots_per_rank:
            return routing.place_experts(ranks, self.n_experts)
        redundancy = routing.Redundancy(replicas, self.history(), slots_per_rank, self.top_k)
        return routing.place_experts(ranks, self.n_experts, redundancy=redundancy)

    def of_round(self, number: int, ranks: int, tokens: int) -> routing.Routing:
        """Choices of expert ids and gate weights of ``tokens`` tokens on each of so many ranks; others each round."""
        if isinstance(self._source, routing.RecordedChoices):
            return routing.deal_routing(self._source, ranks, tokens, number * ranks * tokens)
        label = self._source.source if self._source else "generated, Zipf-like"
        rng = np.random.default_rng((self._seed, 1, number))
        return routing.draw_routing(self.loads(), ranks, tokens, self.top_k, rng, label)


def hottest_over_mean(drawn: routing.Routing) -> float:
    """Choices of the hottest expert, of what the mean expert has."""
    loads = drawn.loads()
    return float(loads.max() / max(loads.mean(), 1e-9))


def hottest_die(drawn: routing.Routing, placement: routing.Placement) -> tuple[int, int]:
    """Rows that the die with the most receives: as experts are placed, and if there were no replicas."""
    plain = routing.place_experts(placement.n_ranks, placement.n_experts)
    most = [int(p.rank_loads(routing.place_choices(drawn, p)).max()) for p in (placement, plain)]
    return most[0], most[1]


def ranks_that_fit(
    need: Callable[[int], int], free: int, wanted: int | None, usual: int, most: int, remedy: str
) -> tuple[int, str]:
    """Ranks to run, and a note if they are fewer than usual.

    need: bytes that so many ranks need; free: bytes there are; wanted: ranks asked for, or None; most: of the pod.
    CapacityError, with the remedy if not even two ranks fit, if those asked for do not fit.
    """
    largest = next((r for r in range(most, 1, -1) if need(r) <= free), 0)
    ranks = wanted or usual
    if need(ranks) <= free:
        return ranks, ""
    what = f"{ranks} ranks need about {need(ranks) / GIB:.1f} GiB, {free / GIB:.1f} GiB are free"
    if wanted is not None or largest < 2:
        raise CapacityError(f"{what}; {f'--ranks {largest} would fit' if largest else remedy}")
    return largest, f"{what}: running {largest} ranks"


class Timed:
    """Runs the stages of a job under a name, and keeps the wall seconds of each."""

    def __init__(self, stage: Stage, seconds: dict[str, float]) -> None:
        self._stage, self._seconds, self._started = stage, seconds, time.perf_counter()

    @contextmanager
    def __call__(self, name: str) -> Iterator[Progress]:
        """Times what is done inside; gives the stage's function for progress."""
        started = time.perf_counter()
        with self._stage(name) as progress:
            yield progress
        self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - started

    @property
    def total(self) -> float:
        """Wall seconds since this was made."""
        return time.perf_counter() - self._started


def resident_gb() -> float:
    """The most memory that this process had, in 10^9 bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def as_plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON can hold them: paths as text."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}
