"""The protocols side by side on one layer of a mixture of experts: what each die asks of others, by running them.

`docs/protocols.md` holds what it prints.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu import oracle, routing
from xccl_emu.bench.traffic import Comparison, Line, line_of
from xccl_emu.errors import ConfigError
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384
from xccl_emu.machine.stats import Traffic
from xccl_emu.protocols.a2e.calls import AttentionExperts, Call, Calls
from xccl_emu.protocols.a2e.config import A2EConfig
from xccl_emu.protocols.a2e.layout import DiesLayout
from xccl_emu.protocols.a2e.pull import A2EPull
from xccl_emu.protocols.a2e.session import A2E
from xccl_emu.protocols.deepep.session import DeepEp, DeepEpConfig
from xccl_emu.protocols.experts.compared import draw_tokens, wrong_rows, wrong_sums
from xccl_emu.protocols.experts.config import EpConfig
from xccl_emu.protocols.experts.group import ExpertGroup
from xccl_emu.protocols.fused.session import FusedConfig, FusedExpertParallel
from xccl_emu.protocols.pull.session import ExpertParallel
from xccl_emu.runs.compare import LayerCompared


@dataclass(frozen=True, eq=False)
class Layer:
    """Tokens [source][T, hidden] and their choices as expert slots, of sources that are ranks or attention dies."""

    placement: routing.Placement
    tokens: NDArray[Any]
    routed: routing.Routing

    @classmethod
    def drawn(cls, o: LayerCompared, sources: int) -> "Layer":
        """A layer of so many sources."""
        experts = routing.place_experts(o.ranks, 1).routed_ranks
        placement = routing.place_experts(o.ranks, experts)
        rng = np.random.default_rng((o.seed, sources))
        loads = routing.skewed_loads(experts, o.seed)
        drawn = routing.draw_routing(loads, sources, o.tokens, min(o.top_k, experts), rng, "")
        tokens = draw_tokens(sources, o.tokens, o.hidden, "bf16", o.seed)
        return cls(placement, tokens, routing.place_choices(drawn, placement))

    def expected(self) -> oracle.Dispatched:
        """What the oracle sends."""
        p = self.placement
        return oracle.dispatch([*self.tokens], self.routed.topk, p.n_ranks, p.local_experts, True)


Found = tuple[list[Line], int]
"""Lines of a protocol, and its wrong elements."""


def run(options: LayerCompared) -> Comparison:
    """Run every protocol; ConfigError for sizes that one of them refuses."""
    if options.attention > options.ranks:
        raise ConfigError(f"attention={options.attention}: must be at most ranks={options.ranks}")
    found = [protocol(options) for protocol in PROTOCOLS]
    lines = [line for lines, _ in found for line in lines]
    return Comparison(asdict(options), lines, sum(wrong for _, wrong in found))


# ---- where every rank has tokens and experts


def _colocated(name: str, kind: type[ExpertGroup[Any]], config: type[EpConfig], o: LayerCompared) -> Found:
    """Dispatch and combine by themselves, and both with the dummy expert between them in one run."""
    layer = Layer.drawn(o, o.ranks)
    group = kind(Pod(CLOUDMATRIX384), config(**_ep_sizes(o, layer)))
    pod, dies, reserved = group.pod, range(o.ranks), (group.layout.managed_end, group.layout.meta_end)
    tokens, topk, weights = [*layer.tokens], [*layer.routed.topk], [*layer.routed.weights]
    group.dispatch(tokens, topk)
    lines = [line_of(name, "dispatch", pod.traffic(), dies, reserved)]
    group.run_dummy()
    group.combine(weights)
    lines.append(line_of(name, "combine", pod.traffic(), dies, reserved))
    expected = layer.expected()
    wrong = sum(wrong_rows(expected, rank, group.received(rank)) for rank in dies)
    wrong += sum(wrong_sums(expected, rank, weights[rank], group.output(rank)) for rank in dies)
    (outputs,) = group.run_rounds([tokens], [topk], [weights])
    lines.append(line_of(name, "both", pod.traffic(), dies, reserved))
    return lines, wrong + sum(wrong_sums(expected, rank, weights[rank], outputs[rank]) for rank in dies)


def _ep_sizes(o: LayerCompared, layer: Layer) -> dict[str, Any]:
    return {
        "n_ranks": o.ranks, "local_experts": layer.placement.local_experts, "hidden": o.hidden,
        "top_k": layer.routed.k, "tokens_max": max(1, o.tokens), "shared": True, "cores": o.cores,
    }  # fmt: skip


# ---- where attention and experts are on different dies

_ON_ATTENTION = ("returned", "outbox", "credit", "returned_in")
_ON_TRAMPOLINES = ("slots", "lists", "staging", "tokens_in", "acks", "arrivals")
_ON_EXPERTS = ("inbox", "counts", "assembled", "computed", "sent", "relayed")
_PULL_ON_ATTENTION = ("staging", "blocks", "messages_pulled", "rows_offered")
_PULL_ON_EXPERTS = ("offered", "counts", "rows_pulled")
"""Regions and fields that dies of each role use."""


def _a2e_config(o: LayerCompared, layer: Layer, depth: int) -> A2EConfig:
    return A2EConfig(
        n_domains=1, n_attention=o.attention, n_experts=o.ranks, local_experts=layer.placement.local_experts,
        hidden=o.hidden, top_k=layer.routed.k, tokens_max=o.tokens, shared=True, depth=depth, cores=o.cores,
        a2e_cores=o.cores, compute_cores=o.cores, e2a_cores=o.cores,
    )  # fmt: skip


def _let_through(owner: AttentionExperts, layer: Layer, n_calls: int) -> tuple[Traffic, int]:
    """Let the layer through as one call or several alike; returns the traffic, and the wrong elements of the last."""
    tokens, weights = [*layer.tokens], [*layer.routed.weights]
    calls = Calls(owner, [Call(tokens, [*layer.routed.topk], weights)] * n_calls)
    calls.launch()
    owner.run_launched()
    expected, c, last = layer.expected(), owner.config, n_calls - 1
    wrong = sum(wrong_rows(expected, die, calls.received(last, die)) for die in range(c.n_experts))
    wrong += sum(wrong_sums(expected, i, weights[i], calls.output(last, i)) for i in range(c.n_attention))
    return owner.pod.traffic(), wrong


def _difference(more: Traffic, less: Traffic) -> Traffic:
    """What the first had more than the second; which dies took part is taken to be the same."""
    counted = {name: getattr(more, name) - values for name, values in vars(less).items()}
    return Traffic(**counted | {"dies_written": less.dies_written, "dies_read": less.dies_read})


def _a2e(o: LayerCompared) -> Found:
    """A call is what two have more than one: without the end of the streams, which follows the last one only."""
    layer = Layer.drawn(o, o.attention)
    owner = A2E(Pod(CLOUDMATRIX384), _a2e_config(o, layer, depth=2))
    (once, wrong), (twice, wrong_again) = _let_through(owner, layer, 1), _let_through(owner, layer, 2)
    traffic = _difference(twice, once)
    roles = {
        "attention die": (range(o.ranks, o.ranks + o.attention), _ON_ATTENTION),
        "trampoline": (range(o.attention), _ON_TRAMPOLINES + _ON_EXPERTS),
        "other expert die": (range(o.attention, o.ranks), _ON_EXPERTS),
    }
    layout = owner.layout
    return [
        line_of("a2e", role, traffic, dies, _reserved_of(layout, names))
        for role, (dies, names) in roles.items()
        if dies
    ], wrong + wrong_again


def _a2e_pull(o: LayerCompared) -> Found:
    layer = Layer.drawn(o, o.attention)
    owner = A2EPull(Pod(CLOUDMATRIX384), _a2e_config(o, layer, depth=1))
    traffic, wrong = _let_through(owner, layer, 1)
    attention, experts = range(o.ranks, o.ranks + o.attention), range(o.ranks)
    return [
        line_of("a2e-pull", "attention die", traffic, attention, _reserved_of(owner.layout, _PULL_ON_ATTENTION)),
        line_of("a2e-pull", "expert die", traffic, experts, _reserved_of(owner.layout, _PULL_ON_EXPERTS)),
    ], wrong


def _reserved_of(layout: DiesLayout, names: Sequence[str]) -> tuple[int, int]:
    """Bytes in the managed and in the metadata area of the regions that dies of a role use."""
    regions = [layout.of[name] for name in names if name in layout.of]
    managed = sum(region.size for region in regions if region.area == "managed")
    return managed, sum(region.size for region in regions) - managed


PROTOCOLS: tuple[Callable[[LayerCompared], Found], ...] = (
    partial(_colocated, "pull", ExpertParallel, EpConfig),
    partial(_colocated, "fused", FusedExpertParallel, FusedConfig),
    partial(_colocated, "deepep", DeepEp, DeepEpConfig),
    _a2e,
    _a2e_pull,
)
