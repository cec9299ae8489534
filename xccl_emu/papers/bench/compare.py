"""The protocols side by side on one layer of a mixture of experts: what each die asks of others, by running them.

`docs/records/compare.md` holds what it prints.

The counts of a run are lines by role, side by side, as `xccl-emu compare` prints them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu import routing
from xccl_emu.base import words as w
from xccl_emu.base.errors import ConfigError
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384
from xccl_emu.machine.stats import DieTraffic
from xccl_emu.papers.bench.layers import Layer
from xccl_emu.protocols.a2e import data
from xccl_emu.protocols.a2e.calls import AttentionExperts, Call, Calls
from xccl_emu.protocols.a2e.config import A2EConfig
from xccl_emu.protocols.a2e.layout import DiesLayout
from xccl_emu.protocols.a2e.pull import A2EPull
from xccl_emu.protocols.a2e.session import A2E
from xccl_emu.protocols.deepep.session import DeepEp, DeepEpConfig
from xccl_emu.protocols.experts.config import EpConfig
from xccl_emu.protocols.experts.data import count_wrong, draw_tokens
from xccl_emu.protocols.experts.group import ExpertGroup
from xccl_emu.protocols.fused.session import FusedConfig, FusedExpertParallel
from xccl_emu.protocols.pull.session import ExpertParallel


@dataclass(frozen=True)
class TrafficLine(w.Printed):
    """What the dies of one role asked of other dies: [mean, most] of a die."""

    RECORD = "Traffic"
    protocol: w.Protocol
    part: Annotated[str, "the operator, or the role of the dies"]
    n_dies: Annotated[int, "dies of the role"]
    writes: Annotated[tuple[float, float], "by mtu-out and DMA"]
    flags: Annotated[tuple[float, float], "writes of at most a granule"]
    reads: Annotated[tuple[float, float], "by mtu-in, DMA and scalar loads"]
    write_bytes: Annotated[tuple[float, float], "bytes of writes and flags"]
    read_bytes: Annotated[tuple[float, float], "bytes of reads"]
    dies_written: Annotated[tuple[float, float], "different dies that are written to"]
    dies_read: Annotated[tuple[float, float], "different dies that are read"]
    managed_bytes: Annotated[int, "reserved on a die"]
    meta_bytes: Annotated[int, "reserved on a die"]


@dataclass(frozen=True)
class Comparison(w.Printed):
    """All results; `wrong` counts elements of rows and outputs that are not the oracle's."""

    configuration: Annotated[dict[str, int | str], w.CONFIGURATION]
    results: Annotated[list[TrafficLine], "a line for each role of dies in each protocol"]
    wrong: Annotated[int, w.WRONG]


def line_of(
    protocol: str, part: str, traffic: DieTraffic, dies: Sequence[int], reserved: tuple[int, int]
) -> TrafficLine:
    """Return what these dies asked for; `reserved`: bytes of each in the managed and in the metadata area."""

    def of(values: NDArray[np.int64]) -> tuple[float, int]:
        chosen = values[list(dies)]
        return float(chosen.mean()), int(chosen.max())

    measured = {name: of(values) for name, values in vars(traffic).items()}
    return TrafficLine(protocol, part, len(dies), **measured, managed_bytes=reserved[0], meta_bytes=reserved[1])


_COLUMNS = ("writes", "flags", "reads", "kB written", "kB read", "dies written", "dies read")


def as_markdown(comparison: Comparison) -> str:
    """A table; of what a die asks of others, the mean over the dies and, where another one differs, the most."""
    head, *lines = cells(comparison)
    rows = [head, ("---", "---", *["---:"] * (len(head) - 2)), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cells(comparison: Comparison) -> list[tuple[str, ...]]:
    """The names of the columns, then the rows."""
    head = ("protocol", "what", "dies", *_COLUMNS, "managed KiB", "metadata KiB")
    return [head, *(tuple(_cells(line)) for line in comparison.results)]


def _cells(line: TrafficLine) -> Iterator[str]:
    yield from (line.protocol, line.part, str(line.n_dies))
    for mean, most in (line.writes, line.flags, line.reads):
        yield _mean_and_most(mean, f"{mean:.1f}", most, f"{most}")
    for mean, most in (line.write_bytes, line.read_bytes):
        yield _mean_and_most(mean, f"{mean / 1e3:,.1f}", most, f"{most / 1e3:,.1f}")
    for mean, most in (line.dies_written, line.dies_read):
        yield _mean_and_most(mean, f"{mean:.1f}", most, f"{most}")
    yield from (f"{nbytes / (1 << 10):,.1f}" for nbytes in (line.managed_bytes, line.meta_bytes))


def _mean_and_most(mean: float, mean_text: str, most: float, most_text: str) -> str:
    return most_text if mean == most else f"{mean_text} ({most_text})"


Found = tuple[list[TrafficLine], int]
"""Lines of a protocol, and its wrong elements."""


def compare(ranks: int, attention: int, tokens: int, hidden: int, top_k: int, cores: int, seed: int) -> Comparison:
    """Run a layer by every protocol, on this many ranks, or attention dies and as many expert dies as ranks.

    Each has ``tokens`` tokens of ``hidden`` elements, with ``top_k`` routed experts and the shared one.  Raises
    ConfigError for sizes that one of the protocols refuses.
    """
    configuration = dict(locals())
    if attention > ranks:
        raise ConfigError("attention", attention, f"must be at most ranks={ranks}")
    experts = routing.place_experts(ranks, 1).routed_ranks
    layer = Layer(ranks, tokens, hidden, experts, min(top_k, experts), cores)
    found = [protocol(layer, seed) for protocol in COLOCATED]
    found += [protocol(layer, attention, seed) for protocol in APART]
    return Comparison(configuration, [line for lines, _ in found for line in lines], sum(wrong for _, wrong in found))


def _drawn(layer: Layer, sources: int, seed: int) -> tuple[routing.Placement, Call]:
    """Return where the experts are, and the batches of this many ranks or attention dies."""
    placement = routing.place_experts(layer.ranks, layer.experts)
    rng, loads = np.random.default_rng((seed, sources)), routing.skewed_loads(layer.experts, seed)
    drawn = routing.draw_routing(loads, sources, layer.tokens, layer.top_k, rng, "")
    routed = routing.place_choices(drawn, placement)
    tokens = draw_tokens(sources, layer.tokens, layer.hidden, "bf16", seed)
    return placement, Call([*tokens], [*routed.topk], [*routed.weights])


# ---- where every rank has tokens and experts


def _colocated(name: str, kind: type[ExpertGroup[Any]], config: type[EpConfig], layer: Layer, seed: int) -> Found:
    """Dispatch and combine by themselves, and both with the dummy expert between them in one run."""
    placement, (tokens, topk, weights) = _drawn(layer, layer.ranks, seed)
    group = kind(Pod(CLOUDMATRIX384), config(**layer.config(placement.local_experts)))
    pod, dies, reserved = group.pod, range(layer.ranks), (group.layout.managed_end, group.layout.meta_end)
    group.dispatch(tokens, topk)
    lines = [line_of(name, "dispatch", pod.traffic(), dies, reserved)]
    group.run_dummy()
    group.combine(weights)
    lines.append(line_of(name, "combine", pod.traffic(), dies, reserved))
    wrong = sum(count_wrong(group, tokens, topk, weights))
    group.run_rounds([tokens], [topk], [weights])
    lines.append(line_of(name, "both", pod.traffic(), dies, reserved))
    return lines, wrong + sum(count_wrong(group, tokens, topk, weights))


# ---- where attention and experts are on different dies

_ON_ATTENTION = ("returned", "outbox", "credit", "returned_in")
_ON_TRAMPOLINES = ("slots", "lists", "staging", "tokens_in", "acks", "arrivals")
_ON_EXPERTS = ("inbox", "counts", "assembled", "computed", "sent", "relayed")
_PULL_ON_ATTENTION = ("staging", "blocks", "messages_pulled", "rows_offered")
_PULL_ON_EXPERTS = ("offered", "counts", "rows_pulled")
"""Regions and fields that dies of each role use."""


def _apart(kind: type[AttentionExperts], layer: Layer, attention: int, seed: int, depth: int) -> tuple[Any, Call]:
    """Dies of a kind on a pod, and a call for them."""
    placement, call = _drawn(layer, attention, seed)
    config = A2EConfig(
        1, attention, layer.ranks, local_experts=placement.local_experts, hidden=layer.hidden, top_k=layer.top_k + 1,
        tokens_max=layer.tokens, shared=True, depth=depth, cores=layer.cores, a2e_cores=layer.cores,
        compute_cores=layer.cores, e2a_cores=layer.cores,
    )  # fmt: skip
    return kind(Pod(CLOUDMATRIX384), config), call


def _let_through(owner: AttentionExperts, call: Call, n_calls: int) -> tuple[DieTraffic, int]:
    """Let a call through, or several alike; returns the traffic, and the wrong elements of the last."""
    calls = Calls(owner, [call] * n_calls)
    calls.launch()
    owner.run_launched()
    return owner.pod.traffic(), sum(data.count_wrong(calls, n_calls - 1, call))


def _difference(more: DieTraffic, less: DieTraffic) -> DieTraffic:
    """Return what the first had more than the second; which dies took part is taken to be the same."""
    counted = {name: getattr(more, name) - values for name, values in vars(less).items()}
    return DieTraffic(**counted | {"dies_written": less.dies_written, "dies_read": less.dies_read})


def _a2e(layer: Layer, attention: int, seed: int) -> Found:
    """A call is what two have more than one: without the end of the streams, which follows the last one only."""
    owner, call = _apart(A2E, layer, attention, seed, depth=2)
    (once, wrong), (twice, wrong_again) = _let_through(owner, call, 1), _let_through(owner, call, 2)
    traffic = _difference(twice, once)
    roles = {
        "attention die": (range(layer.ranks, layer.ranks + attention), _ON_ATTENTION),
        "trampoline": (range(attention), _ON_TRAMPOLINES + _ON_EXPERTS),
        "other expert die": (range(attention, layer.ranks), _ON_EXPERTS),
    }
    layout = owner.layout
    return [
        line_of("a2e", role, traffic, dies, _reserved_of(layout, names))
        for role, (dies, names) in roles.items()
        if dies
    ], wrong + wrong_again


def _a2e_pull(layer: Layer, attention: int, seed: int) -> Found:
    owner, call = _apart(A2EPull, layer, attention, seed, depth=1)
    traffic, wrong = _let_through(owner, call, 1)
    on_attention, on_experts = range(layer.ranks, layer.ranks + attention), range(layer.ranks)
    return [
        line_of("a2e-pull", "attention die", traffic, on_attention, _reserved_of(owner.layout, _PULL_ON_ATTENTION)),
        line_of("a2e-pull", "expert die", traffic, on_experts, _reserved_of(owner.layout, _PULL_ON_EXPERTS)),
    ], wrong


def _reserved_of(layout: DiesLayout, names: Sequence[str]) -> tuple[int, int]:
    """Bytes in the managed and in the metadata area of the regions that dies of a role use."""
    regions = [layout.of[name] for name in names if name in layout.of]
    managed = sum(region.size for region in regions if region.area == "managed")
    return managed, sum(region.size for region in regions) - managed


COLOCATED: tuple[Callable[[Layer, int], Found], ...] = (
    partial(_colocated, "pull", ExpertParallel, EpConfig),
    partial(_colocated, "fused", FusedExpertParallel, FusedConfig),
    partial(_colocated, "deepep", DeepEp, DeepEpConfig),
)
APART: tuple[Callable[[Layer, int, int], Found], ...] = _a2e, _a2e_pull
