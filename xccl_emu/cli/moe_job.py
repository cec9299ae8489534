"""The main job: one MoE layer's decode step on the pod, held against the oracle bit for bit."""

import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from xccl_emu import oracle, routing
from xccl_emu.cli.memory import available_bytes
from xccl_emu.errors import CapacityError, ConfigError
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384, GIB
from xccl_emu.protocols.expert_parallel import ExpertParallel
from xccl_emu.protocols.layout import ROUTE, EpConfig

DEFAULT_RANKS = 288
_EXPERTS = 256
_TOP_K_MAX = 15  # and the shared expert
_INTERPRETER_BYTES = 700 << 20
"""Python, compiled code and the oracle's chunks."""

Stage = Callable[[str], Any]


@dataclass(frozen=True)
class JobOptions:
    """What the command line asks for."""

    ranks: int | None = None
    tokens: int = 60
    hidden: int = 7168
    top_k: int | None = None
    routing: Path | None = None
    layer: int | None = None
    rounds: int = 1
    order: str = "sc"
    policy: str = "round-robin"
    seed: int = 0
    cores: int = 4
    path: str = "mtu"
    dtype: str = "bf16"
    quantized: bool = True


@dataclass
class JobResult:
    """What the job measured; `wrong` counts elements that differ from the oracle's."""

    wrong: int = 0
    ranks: int = 0
    tokens: int = 0
    messages: int = 0
    routing: str = ""
    hottest_over_mean: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)
    rounds: list[dict[str, dict[str, Any]]] = field(default_factory=list)
    """For each round and protocol: seconds, actions, instructions, bytes by engine."""
    stages: dict[str, float] = field(default_factory=dict)
    """Wall seconds of each stage of the command."""
    seconds: float = 0.0
    resident_gb: float = 0.0


def bytes_needed(ranks: int, options: JobOptions, choices: int) -> int:
    """Memory that a job of so many ranks touches, estimated: tokens, blocks (in whole pages), rows, data buffers."""
    rows = ranks * options.tokens * choices
    row, payload = 2 * options.hidden, options.hidden * (1 if options.quantized else 2)
    page = 4096
    blocks = payload + oracle.SLOT_BYTES + row + min(2 * page, row)
    per_row = payload + ROUTE.itemsize + row + blocks
    return ranks * options.tokens * 3 * row + rows * per_row + ranks * options.cores * (192 << 10) + _INTERPRETER_BYTES


def choose_ranks(options: JobOptions, choices: int) -> tuple[int, str]:
    """Ranks to run, and a note if they are fewer than the default; CapacityError if those asked for do not fit."""
    free = available_bytes()

    def fits(ranks: int) -> bool:
        return bytes_needed(ranks, options, choices) <= free

    most = next((r for r in range(CLOUDMATRIX384.n_dies, 1, -1) if fits(r)), 0)
    wanted = options.ranks or DEFAULT_RANKS
    if fits(wanted):
        return wanted, ""
    need = bytes_needed(wanted, options, choices) / GIB
    if options.ranks is not None or most < 2:
        fits_text = f"--ranks {most} would fit" if most else "take fewer --tokens or a smaller --hidden"
        raise CapacityError(f"{wanted} ranks need about {need:.1f} GiB, {free / GIB:.1f} GiB are free; {fits_text}")
    return most, f"{wanted} ranks need about {need:.1f} GiB, {free / GIB:.1f} GiB are free: running {most} ranks"


class MoeJob:
    """Routing, tokens, rounds of dispatch, stand-in expert and combine, and the comparison after each round."""

    def __init__(self, options: JobOptions, stage: Stage) -> None:
        self.options, self._stage = options, stage
        self.result = JobResult(options={k: str(v) if isinstance(v, Path) else v for k, v in asdict(options).items()})
        self._source = routing.open_routing(options.routing) if options.routing else None
        if options.layer is not None and not isinstance(self._source, routing.ExpertLoads):
            raise ConfigError(f"--layer {options.layer}: goes with --routing and a file of expert loads by layer")
        self._k = self._choices_per_token()
        self.ranks, self.note = choose_ranks(options, self._k + 1)

    def _choices_per_token(self) -> int:
        if not isinstance(self._source, routing.RecordedChoices):
            return 8 if self.options.top_k is None else self.options.top_k
        recorded = self._source.topk.shape[1]
        if self.options.top_k not in (None, recorded):
            raise ConfigError(f"--top-k {self.options.top_k}: {self._source.source} has {recorded} choices a token")
        if recorded > _TOP_K_MAX:
            name = self._source.source
            raise ConfigError(f"--routing: {name} has {recorded} choices a token, {_TOP_K_MAX} are possible")
        return int(recorded)

    def run(self) -> JobResult:
        """Do it all; the result says how many elements were wrong."""
        started = time.perf_counter()
        with self._timed("routing"):
            placement = routing.place_experts(self.ranks, self._n_experts())
            group = self._make_group(placement)  # whatever does not fit is refused before the work begins
        with self._timed("tokens"):
            tokens = self._draw_tokens()
        with self._timed("compile"):
            self._compile()
        for number in range(self.options.rounds):
            self._round(number, group, np.roll(tokens, number, axis=0), self._route(number, placement))
        self.result.seconds = time.perf_counter() - started
        self.result.resident_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        return self.result

    @contextmanager
    def _timed(self, name: str) -> Iterator[Any]:
        started = time.perf_counter()
        with self._stage(name) as progress:
            yield progress
        self.result.stages[name] = self.result.stages.get(name, 0.0) + time.perf_counter() - started

    # ---- inputs

    def _n_experts(self) -> int:
        if isinstance(self._source, routing.RecordedChoices):
            return self._source.n_experts
        return self._loads().size

    def _loads(self) -> NDArray[np.float64]:
        if not isinstance(self._source, routing.ExpertLoads):
            return routing.skewed_loads(_EXPERTS, self.options.seed)
        layers = self._source.moe_layers
        if not layers:
            raise ConfigError(f"--routing {self.options.routing}: no layer of it routes any token")
        return self._source.layer(layers[0] if self.options.layer is None else self.options.layer)

    def _route(self, number: int, placement: routing.Placement) -> routing.Routing:
        """Choices of a round, as expert slots, the shared expert last."""
        o, rng = self.options, np.random.default_rng((self.options.seed, 1, number))
        with self._timed("routing"):
            if isinstance(self._source, routing.RecordedChoices):
                first = number * self.ranks * o.tokens
                drawn = routing.deal_routing(self._source, self.ranks, o.tokens, first)
            else:
                label = self._source.source if self._source else "generated, Zipf-like"
                drawn = routing.draw_routing(self._loads(), self.ranks, o.tokens, self._k, rng, label)
            loads = drawn.loads()
            self.result.routing = drawn.source
            self.result.hottest_over_mean = float(loads.max() / max(loads.mean(), 1e-9))
            return routing.place_choices(drawn, placement)

    def _draw_tokens(self) -> NDArray[Any]:
        """[ranks, tokens, hidden] normally distributed hidden states."""
        o, rng = self.options, np.random.default_rng((self.options.seed, 0))
        dtype = ml_dtypes.bfloat16 if o.dtype == "bf16" else np.float16
        tokens = np.empty((self.ranks, o.tokens, o.hidden), dtype)
        for rank in range(self.ranks):
            tokens[rank] = rng.standard_normal((o.tokens, o.hidden), dtype=np.float32)
        return tokens

    # ---- the protocols

    def _config(self, placement: routing.Placement) -> EpConfig:
        o = self.options
        return EpConfig(
            n_ranks=self.ranks, local_experts=placement.local_experts, hidden=o.hidden, top_k=self._k + 1,
            tokens_max=max(1, o.tokens), dtype=o.dtype, quantized=o.quantized, shared=True, cores=o.cores, path=o.path,
        )  # fmt: skip

    def _make_group(self, placement: routing.Placement) -> ExpertParallel:
        o = self.options
        pod = Pod(CLOUDMATRIX384, order=o.order, policy=o.policy, seed=o.seed)
        return ExpertParallel(pod, self._config(placement))

    def _compile(self) -> None:
        """Run a tiny layer, so that compilation (once, then cached) is not mistaken for the protocols' time."""
        from xccl_emu.machine.spec import small_pod

        config = EpConfig(n_ranks=2, hidden=32, top_k=1, tokens_max=1)
        pod = Pod(small_pod(2, ub_bytes=64 << 10), order=self.options.order, policy=self.options.policy)
        group = ExpertParallel(pod, config)
        group.dispatch([np.zeros((1, 32), ml_dtypes.bfloat16)] * 2, [np.zeros((1, 1), np.int32)] * 2)
        group.run_stand_in()
        group.combine([np.ones((1, 1), np.float32)] * 2)

    def _round(self, number: int, group: ExpertParallel, tokens: NDArray[Any], routed: routing.Routing) -> None:
        suffix = f" {number + 1}" if self.options.rounds > 1 else ""
        with self._timed("dispatch" + suffix) as progress:
            group.dispatch([tokens[rank] for rank in range(self.ranks)], routed.topk, progress)
        with self._timed("expert" + suffix) as progress:
            group.run_stand_in(progress)
        with self._timed("combine" + suffix) as progress:
            group.combine(routed.weights, progress)
        self.result.rounds.append({name: asdict(stats) for name, stats in group.stats.items()})
        with self._timed("verify" + suffix):
            self.result.wrong += self._count_wrong(group, tokens, routed)
        self.result.ranks, self.result.tokens = self.ranks, sum(len(choices) for choices in routed.topk)
        self.result.messages = sum(int((choices >= 0).sum()) for choices in routed.topk)

    def _count_wrong(self, group: ExpertParallel, tokens: NDArray[Any], routed: routing.Routing) -> int:
        """Elements of what was received and of the outputs that are not the oracle's, bit for bit."""
        c = group.config
        expected = oracle.dispatch([*tokens], routed.topk, c.n_ranks, c.local_experts, c.quantized)
        wrong = 0
        for rank in range(c.n_ranks):
            got, want = group.received(rank), expected.received_by(rank)
            wrong += _differ(got.slot - rank * c.local_experts, want.expert.astype(np.int32))
            wrong += sum(_differ(getattr(got, name), getattr(want, name)) for name in _SAME_NAMES)
            summed = expected.combined_for(rank, routed.weights[rank], shared=True)
            wrong += _differ(group.output(rank), summed)
        return wrong


_SAME_NAMES = ("x", "scales", "source", "token", "choice", "counts")


def _differ(got: NDArray[Any], want: NDArray[Any]) -> int:
    """How many elements differ in a bit; all of them if the shapes do."""
    if got.shape != want.shape:
        return max(got.size, want.size, 1)
    bits = {1: np.uint8, 2: np.uint16, 4: np.uint32}[got.dtype.itemsize]
    got, want = np.ascontiguousarray(got), np.ascontiguousarray(want, got.dtype)
    return int(np.count_nonzero(got.view(bits) != want.view(bits)))
