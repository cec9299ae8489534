"""The job of ``run a2e``: calls of all domains of attention dies through the expert dies, held against the oracle."""

from dataclasses import asdict, dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from xccl_emu import oracle, routing
from xccl_emu.bench.compare import draw_tokens, wrong_rows, wrong_sums
from xccl_emu.bench.memory import available_bytes
from xccl_emu.errors import CapacityError, ConfigError
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384, GIB, small_pod
from xccl_emu.protocols.a2e import A2E, A2EConfig, Call, Calls
from xccl_emu.runs.a2e import A2ERun
from xccl_emu.runs.jobs import tables
from xccl_emu.runs.jobs.layer import (
    INTERPRETER_BYTES,
    Choices,
    LayerResult,
    Timed,
    as_plain,
    hottest_over_mean,
    resident_gb,
)
from xccl_emu.stage import Stage


@dataclass
class A2EResult(LayerResult):
    """With what is particular where attention and experts are apart."""

    dies: int = 0
    compared: dict[str, list[int]] = field(default_factory=dict)
    """Of which calls outputs and received rows were compared; the expert dies keep the rows of the last ones."""

    table = tables.of_calls


def bytes_needed(c: A2EConfig, calls: int) -> int:
    """Memory that so many full calls touch, estimated, in whole pages: batches, buffers of all stages, data buffers."""
    page = 4096
    tokens = c.n_attention * c.tokens_max
    rows = tokens * c.top_k
    kept, domains = min(c.depth, max(calls, 1)), min(c.turns, calls)
    attention = calls * tokens * 2 * c.row_bytes + domains * rows * c.row_bytes
    experts = tokens * c.message_bytes + rows * (c.message_bytes + page)
    by_call = rows * (c.payload_bytes + 32 + 2 * (c.row_bytes + page // 4))
    cores = c.n_experts * c.expert_cores + c.n_attention * c.turns * c.cores
    drawn = tokens * (2 * c.row_bytes + c.payload_bytes)
    return attention + experts + kept * by_call + cores * (192 << 10) + drawn + INTERPRETER_BYTES


class A2EJob:
    """Routing, tokens, one launch of all kernels, and the comparison."""

    def __init__(self, options: A2ERun, stage: Stage) -> None:
        self.options = options
        self.result = A2EResult(options=as_plain(asdict(options)))
        self._timed = Timed(stage, self.result.stages)
        self._choices = Choices(options.routing, options.layer, options.top_k, options.seed)
        self._check_dies()
        self.placement = routing.place_experts(options.experts, self._choices.n_experts)
        self.config = self._config()
        self._check_memory()
        self.result.options |= {"calls": options.n_calls, "top_k": self._choices.top_k}

    def _config(self) -> A2EConfig:
        o = self.options
        return A2EConfig(
            o.domains, o.attention, o.experts, self.placement.local_experts, hidden=o.hidden,
            top_k=self._choices.top_k + 1, tokens_max=max(1, o.tokens), dtype=o.dtype, quantized=o.quantized,
            quantizer=o.quantizer, shared=True, path=o.path, depth=o.depth, cores=o.cores, a2e_cores=o.cores,
            compute_cores=o.cores, e2a_cores=o.cores, n_trampolines=o.trampolines, a2e_parts=o.a2e_parts,
            e2a_parts=o.e2a_parts, microbatches=o.microbatches,
        )  # fmt: skip

    def _check_dies(self) -> None:
        o, most = self.options, CLOUDMATRIX384.n_dies
        if o.domains * o.attention + o.experts > most:
            what = f"--domains {o.domains}, --attention {o.attention}, --experts {o.experts}"
            sum_ = f"{o.domains} x {o.attention} + {o.experts} = {o.domains * o.attention + o.experts}"
            raise ConfigError(f"{what}: that is {sum_} dies; the pod has {most}")

    def _check_memory(self) -> None:
        need, free = bytes_needed(self.config, self.options.n_calls), available_bytes()
        if need > free:
            remedy = "take fewer --tokens, --calls or --attention dies, or a smaller --hidden"
            raise CapacityError(f"this needs about {need / GIB:.1f} GiB, {free / GIB:.1f} GiB are free; {remedy}")

    def run(self) -> A2EResult:
        """Do it all; the result says how many elements were wrong."""
        o, timed = self.options, self._timed
        a2e = A2E(Pod(CLOUDMATRIX384, order=o.order, policy=o.policy, seed=o.seed), self.config)
        with timed("routing"):
            routed = [self._route(call) for call in range(o.n_calls)]
        with timed("tokens"):
            tokens = draw_tokens(o.attention, o.tokens, o.hidden, o.dtype, o.seed)
            calls = Calls(a2e, [self._call(number, tokens, choices) for number, choices in enumerate(routed)])
        with timed("compile"):
            self._compile()
        with timed("calls") as progress:
            calls.launch()
            a2e.run_launched(progress)
        self.result.rounds.append({name: asdict(stats) for name, stats in a2e.stats.items()})
        with timed("verify"):
            for number, choices in enumerate(routed):
                self.result.wrong += self._count_wrong(calls, number, self._call(number, tokens, choices))
        self.result.dies, self.result.tokens = self.config.n_dies, o.n_calls * o.attention * o.tokens
        self.result.messages = sum(int((choices >= 0).sum()) for one in routed for choices in one.topk)
        self.result.seconds, self.result.resident_gb = timed.total, resident_gb()
        return self.result

    def _route(self, call: int) -> routing.Routing:
        """Choices of a call, as expert slots, the shared expert last."""
        drawn = self._choices.of_round(call, self.options.attention, self.options.tokens)
        self.result.routing, self.result.hottest_over_mean = drawn.source, hottest_over_mean(drawn)
        return routing.place_choices(drawn, self.placement)

    def _call(self, number: int, tokens: NDArray[Any], routed: routing.Routing) -> Call:
        """Each call has the same tokens on other dies, and choices of its own."""
        dies = self.options.attention
        return Call([tokens[(i - number) % dies] for i in range(dies)], routed.topk, routed.weights)

    def _compile(self) -> None:
        """Run a tiny call, so that compilation (once, then cached) is not mistaken for the protocol's time."""
        config = A2EConfig(1, 1, 1, hidden=32, top_k=1, tokens_max=1)
        pod = Pod(small_pod(2, 3, ub_bytes=64 << 10), order=self.options.order, policy=self.options.policy)
        token, weight = np.zeros((1, 32), ml_dtypes.bfloat16), np.ones((1, 1), np.float32)
        A2E(pod, config).run([Call([token], [np.zeros((1, 1), int)], [weight])])

    def _count_wrong(self, calls: Calls, number: int, call: Call) -> int:
        """Elements of the outputs of a call, and of the rows that the expert dies still have, that are wrong."""
        c, wrong = self.config, 0
        expected = oracle.dispatch(
            call.tokens, call.topk, c.n_experts, c.local_experts, c.quantized, quantizer=c.quantizer
        )
        for i in range(c.n_attention):
            wrong += wrong_sums(expected, i, call.weights[i], calls.output(number, i))
        self.result.compared.setdefault("outputs", []).append(number)
        if number >= calls.n_calls - c.depth:
            wrong += sum(wrong_rows(expected, die, calls.received(number, die)) for die in range(c.n_experts))
            self.result.compared.setdefault("rows", []).append(number)
        return wrong
