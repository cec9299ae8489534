"""The main job: one MoE layer's decode step on the pod, held against the oracle bit for bit."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from xccl_emu import oracle, routing
from xccl_emu.bench.compare import draw_tokens, wrong_rows, wrong_sums
from xccl_emu.bench.memory import available_bytes
from xccl_emu.errors import CapacityError
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384, small_pod
from xccl_emu.protocols.expert_group import ExpertGroup
from xccl_emu.protocols.expert_parallel import ExpertParallel
from xccl_emu.protocols.layout import ROUTE, EpConfig
from xccl_emu.protocols.rounds import in_parts
from xccl_emu.runs import GroupRun
from xccl_emu.runs.dispatch import Dispatch
from xccl_emu.runs.jobs import tables
from xccl_emu.runs.jobs.layer import (
    INTERPRETER_BYTES,
    Choices,
    LayerResult,
    Timed,
    as_plain,
    hottest_die,
    hottest_over_mean,
    ranks_that_fit,
    resident_gb,
)
from xccl_emu.stage import Stage

PerRank = Sequence[NDArray[Any]]
"""An array for each rank."""

DEFAULT_RANKS = 288
FEW_TOKENS = 256
"""Tokens of a rank that always go at once, if nothing else is asked for."""

REMEDY = "take fewer --tokens or a smaller --hidden"


@dataclass
class JobResult(LayerResult):
    """With what is particular where every rank has experts."""

    ranks: int = 0
    replicas: int = 0
    hottest_die_rows: int = 0
    """Rows that the die with the most receives, in the last round."""
    hottest_die_rows_without_replicas: int = 0

    table = tables.of_layers


def at_once(options: GroupRun) -> int:
    """Tokens of a rank that go at once."""
    return min(options.at_once or options.tokens, options.tokens)


def bytes_needed(ranks: int, options: GroupRun, choices: int) -> int:
    """Memory that a job of so many ranks touches, estimated: tokens, blocks (in whole pages), rows, data buffers."""
    rows = ranks * at_once(options) * choices
    row, payload = 2 * options.hidden, options.hidden * (1 if options.quantized else 2)
    page = 4096
    blocks = payload + oracle.SLOT_BYTES + row + min(2 * page, row)
    per_row = payload + ROUTE.itemsize + row + blocks
    return ranks * options.tokens * 3 * row + rows * per_row + ranks * options.cores * (192 << 10) + INTERPRETER_BYTES


class MoeJob:
    """Routing, tokens, rounds of dispatch, dummy expert and combine, and the comparison after each round.

    A batch that is too large for the memory goes in parts, one after the other.
    """

    usual_ranks: ClassVar[int] = DEFAULT_RANKS

    def __init__(self, options: GroupRun, stage: Stage) -> None:
        self.options = self._asked = options
        self.result = JobResult(options=as_plain(asdict(options)))
        self._timed = Timed(stage, self.result.stages)
        self._choices = Choices(options.routing, options.layer, options.top_k, options.seed)
        self.ranks, self.note = self._choose_ranks()
        self.result.options |= {"ranks": self.ranks, "top_k": self._choices.top_k}

    def tell(self, say: Callable[[str], None]) -> Self:
        """Say if there are fewer ranks than usual."""
        if self.note:
            say(self.note)
        return self

    def run(self) -> JobResult:
        """Do it all; the result says how many elements were wrong."""
        o, timed = self.options, self._timed
        with timed("routing"):
            placement = self._choices.place(self.ranks, o.redundant or 0, o.redundant_slots)
            group = self._make_group(placement)  # whatever does not fit is refused before the work begins
        with timed("tokens"):
            tokens = draw_tokens(self.ranks, o.tokens, o.hidden, o.dtype, o.seed)
        with timed("compile"):
            self._compile()
        for number in range(o.rounds):
            self._round(number, group, np.roll(tokens, number, axis=0), self._route(number, placement))
        self.result.options["at_once"] = group.config.tokens_max
        self.result.seconds, self.result.resident_gb = timed.total, resident_gb()
        return self.result

    def _route(self, number: int, placement: routing.Placement) -> routing.Routing:
        """Choices of a round, as expert slots, the shared expert last."""
        with self._timed("routing"):
            drawn = self._choices.of_round(number, self.ranks, self.options.tokens)
            result = self.result
            result.routing, result.hottest_over_mean = drawn.source, hottest_over_mean(drawn)
            result.replicas = placement.n_replicas
            result.hottest_die_rows, result.hottest_die_rows_without_replicas = hottest_die(drawn, placement)
            return routing.place_choices(drawn, placement)

    # ---- the protocols

    def _need(self, ranks: int) -> int:
        """Bytes that the job touches with so many ranks."""
        return bytes_needed(ranks, self.options, self._choices.top_k + 1)

    def _choose_ranks(self) -> tuple[int, str]:
        """Ranks to run, and a note if they are fewer than usual; CapacityError if those asked for do not fit."""
        wanted, free = self.options.ranks, available_bytes()
        while self._need(wanted or self.usual_ranks) > free and self._halve():
            pass
        return ranks_that_fit(self._need, free, wanted, self.usual_ranks, CLOUDMATRIX384.n_dies, REMEDY)

    def _halve(self) -> bool:
        """Let half as many tokens go at once, unless it was said how many, or they are few."""
        n = at_once(self.options)
        if self._asked.at_once is not None or n <= FEW_TOKENS:
            return False
        self.options = replace(self.options, at_once=-(-n // 2))
        return True

    def _group(self, pod: Pod, **shape: Any) -> ExpertGroup[Any]:
        """A group of the shape that the fields of `EpConfig` say."""
        back = isinstance(self.options, Dispatch) and self.options.quantized_back
        return ExpertParallel(pod, EpConfig(**shape, quantized_back=back))

    def _make_group(self, placement: routing.Placement) -> ExpertGroup[Any]:
        """The group, with as many tokens at once as the areas of its dies can take."""
        while True:
            o = self.options
            try:
                return self._group(
                    self._pod(), n_ranks=self.ranks, local_experts=placement.local_experts, hidden=o.hidden,
                    top_k=self._choices.top_k + 1, tokens_max=max(1, at_once(o)), dtype=o.dtype, quantized=o.quantized,
                    quantizer=o.quantizer, shared=True, cores=o.cores, path=o.path,
                    counting=o.counting,
                )  # fmt: skip
            except CapacityError:
                if not self._halve():
                    raise

    def _pod(self) -> Pod:
        o = self.options
        return Pod(CLOUDMATRIX384, order=o.order, policy=o.policy, seed=o.seed)

    def _compile(self) -> None:
        """Run a tiny layer, so that compilation (once, then cached) is not mistaken for the protocols' time."""
        pod = Pod(small_pod(2, ub_bytes=64 << 10), order=self.options.order, policy=self.options.policy)
        group = self._group(pod, n_ranks=2, hidden=32, top_k=1, tokens_max=1)
        group.dispatch([np.zeros((1, 32), ml_dtypes.bfloat16)] * 2, [np.zeros((1, 1), np.int32)] * 2)
        group.run_dummy()
        group.combine([np.ones((1, 1), np.float32)] * 2)

    def _round(self, number: int, group: ExpertGroup[Any], tokens: NDArray[Any], routed: routing.Routing) -> None:
        n = group.config.tokens_max
        parts = zip(*(in_parts(each, n) for each in ([*tokens], routed.topk, routed.weights)), strict=True)
        for part in parts:
            self._part(f" {number + 1}" if self.options.rounds > 1 else "", group, *part)
        self.result.ranks, self.result.tokens = self.ranks, sum(len(choices) for choices in routed.topk)
        self.result.messages = sum(int((choices >= 0).sum()) for choices in routed.topk)

    def _part(
        self, suffix: str, group: ExpertGroup[Any], tokens: PerRank, topk: PerRank, weights: PerRank
    ) -> None:
        with self._timed("dispatch" + suffix) as progress:
            group.dispatch(tokens, topk, progress)
        with self._timed("expert" + suffix) as progress:
            group.run_dummy(progress)
        with self._timed("combine" + suffix) as progress:
            group.combine(weights, progress)
        self.result.rounds.append({name: asdict(stats) for name, stats in group.stats.items()})
        with self._timed("verify" + suffix):
            self.result.wrong += count_wrong(group, tokens, topk, weights)


def count_wrong(group: ExpertGroup[Any], tokens: PerRank, topk: PerRank, weights: PerRank) -> int:
    """Elements of what was received and of the outputs that are not the oracle's, bit for bit."""
    c = group.config
    expected = oracle.dispatch(tokens, topk, c.n_ranks, c.local_experts, c.quantized, c.quantizer)
    wrong = 0
    for rank in range(c.n_ranks):
        wrong += wrong_rows(expected, rank, group.received(rank))
        back = c.quantizer if c.quantized_back else None
        wrong += wrong_sums(expected, rank, weights[rank], group.output(rank), back)
    return wrong
