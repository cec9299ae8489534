"""What [MixServe] measured, and what its equations say: its baselines (Table II), its three cases, its ranges.

TTFT is without the wait: at the paper's rates some baselines are saturated, and then there is no finite one.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from xccl_emu.papers.bench.published import Published, rows
from xccl_emu.papers.bench.result import Result, Rows
from xccl_emu.papers.plan import cluster as clusters
from xccl_emu.papers.plan import model as models
from xccl_emu.papers.plan.costs import PlanSetting
from xccl_emu.papers.plan.grammar import LayerStrategy, StrategyBlock
from xccl_emu.papers.plan.strategies import Estimate, RequestStream, deciding, ms

EQUAL, MORE_DP, MORE_EP = "d_DP = d_EP", "d_DP > d_EP", "d_DP < d_EP"
"""The three cases of III-B3."""
RANGES = "mixserve ranges"
COMPUTED = "by the equations"


def cases(nodes: int, per_node: int) -> Mapping[str, LayerStrategy]:
    """The settings of IV-C1 for the 910B, and for other clusters by the same rule: half the TP, twice the DP or EP."""
    whole, half = StrategyBlock(per_node, nodes), StrategyBlock(per_node // 2, 2 * nodes)
    return {
        EQUAL: LayerStrategy(whole, whole),
        MORE_DP: LayerStrategy(half, whole),
        MORE_EP: LayerStrategy(whole, half),
    }


def baselines(nodes: int, per_node: int) -> Mapping[str, LayerStrategy]:
    """vLLM's of Table II."""
    whole, half, spread = (
        StrategyBlock(per_node, nodes),
        StrategyBlock(per_node // 2, 2 * nodes),
        StrategyBlock(1, nodes * per_node),
    )
    node = StrategyBlock(per_node, 1)
    by_stages, by_experts = LayerStrategy(node, node, nodes), LayerStrategy(whole, spread)
    return {"TP+PP": by_stages, "DP+EP": by_experts, "DP+EP, more DP": LayerStrategy(half, spread)}


@dataclass(frozen=True)
class PublishedStrategies:
    """The paper's strategies for one model on one cluster."""

    name: str
    of: Mapping[str, Estimate]
    """Cases, baselines, and Tutel's with TP and EP, which do not overlap (Table II: H20 alone)."""

    @property
    def baselines(self) -> list[Estimate]:
        """All that the paper compares with."""
        return [one for name, one in self.of.items() if name not in (EQUAL, MORE_DP, MORE_EP)]

    def tp_over_ep(self) -> float:
        """Return what experts by TP over all devices send over what they send by EP, in time (II-B, Figure 3)."""
        of = self.of["DP+EP"]
        by_tp = replace(of.strategy, experts=StrategyBlock(of.strategy.experts.devices, 1))
        tp, ep = (_of_experts(replace(of, strategy=one)) for one in (by_tp, of.strategy))
        return tp / ep

    def faster(self, name: str) -> float:
        """TTFT of a baseline over MixServe's."""
        return self.of[name].prefill_s / self.of[EQUAL].prefill_s

    def note(self, name: str, against: str, by: str) -> str:
        """The term that decides between two: by which the first is longer, or if none is, by which it is shorter."""
        term, seconds = deciding(self.of[name], self.of[against], by)
        if not term:
            term, less = deciding(self.of[against], self.of[name], by)
            seconds = -less
        return f"{name} against {against} by {by}: {term or 'nothing'} decides, {ms(seconds)}"


def _of_experts(of: Estimate) -> float:
    """Seconds that the experts' communication takes in a prefill."""
    return math.fsum(term.seconds for term in of.prefill if term.name not in ("compute", "attention AR", "P2P"))


def measured(setting: PlanSetting, workload: RequestStream) -> PublishedStrategies:
    """Return the computed values of one model on one cluster.  MixServe's own is d_DP = d_EP, as in III-C2."""
    nodes, per_node = setting.cluster.nodes, setting.cluster.devices_per_node
    every = {**cases(nodes, per_node), **baselines(nodes, per_node)}
    of = {name: Estimate(one, setting, workload) for name, one in every.items()}
    if setting.cluster.name == "H20":
        apart, half = replace(setting, overlapped=False), StrategyBlock(per_node // 2, 2 * nodes)
        of["TP+EP"] = Estimate(every[EQUAL], apart, workload)
        of["TP+EP, less TP"] = Estimate(LayerStrategy(half, half), apart, workload)
    return PublishedStrategies(f"mixserve {setting.model.name} on {setting.cluster.name}", of)


@dataclass(frozen=True)
class PublishedRows(Rows):
    """The paper's own strategies, next to its measurements."""

    FIRST = ("form", "batch", "workload")
    form: Annotated[str, "which equations: corrected or literal"]
    batch: Annotated[int, "requests at once"]
    workload: Annotated[RequestStream, "requests that a plan is for"]


def compared(
    setting: PlanSetting,
    workload: RequestStream,
    change: Callable[[clusters.Cluster], clusters.Cluster] = lambda of: of,
) -> list[Result]:
    """All published rows, for the paper's models and clusters, these changed as one likes.

    Of ``setting`` everything but these two is taken.
    """
    found = [
        measured(
            replace(setting, model=models.load_model(model), cluster=change(clusters.load_cluster(cluster))), workload
        )
        for cluster in clusters.SHIPPED
        for model in models.SHIPPED
    ]
    results = [_result(row, one) for one in found for row in rows(one.name)]
    return results + [_of_range(row, found) for row in rows(RANGES)]


_ONE: Mapping[str, Callable[[PublishedStrategies], float | None]] = {
    "TTFT": lambda of: 1e3 * of.of[EQUAL].prefill_s,
    "TTFT of d_DP < d_EP": lambda of: 1e3 * of.of[MORE_EP].prefill_s,
    "TTFT, times faster than TP+PP": lambda of: of.faster("TP+PP"),
    "TTFT, times faster than DP+EP": lambda of: of.faster("DP+EP"),
    "TTFT, times faster than DP+EP, least": lambda of: min(of.faster("DP+EP"), of.faster("DP+EP, more DP")),
    "TTFT, times faster than DP+EP, most": lambda of: max(of.faster("DP+EP"), of.faster("DP+EP, more DP")),
    "ITL of TP+PP": lambda of: 1e3 * of.of["TP+PP"].itl_s,
    "ITL": lambda of: 1e3 * of.of[EQUAL].itl_s,
    "ITL, times faster than TP+PP": lambda of: of.of["TP+PP"].itl_s / of.of[EQUAL].itl_s,
    "throughput of TP+PP": lambda of: of.of["TP+PP"].throughput,
    "throughput": lambda of: of.of[EQUAL].throughput,
    "throughput gained over TP+PP": lambda of: _gained(of.of[EQUAL], of.of["TP+PP"]),
}
"""What the equations say of a row of one model on one cluster, by its name; cases are in `_case`."""


_NONE = "saturated: Eq. (11) as printed has no throughput then"


def _gained(one: Estimate, other: Estimate) -> float | None:
    """Percent of throughput; None where the other one has none."""
    return 100 * (one.throughput / other.throughput - 1) if other.throughput else None


def _result(row: Published, of: PublishedStrategies) -> Result:
    """One row with its computed value, with the term that decides."""
    bench = f"{of.name}, {COMPUTED}"
    if row.what.startswith("experts by TP"):
        copies = "without copies" if of.of["DP+EP"].setting.dropping else "with all copies of (12)"
        return Result.of(row, of.tp_over_ep(), bench=bench, note=f"EP: A2A {copies}")
    if row.what in _ONE:
        against = "TP+PP" if "TP+PP" in row.what else "DP+EP"
        by = {"TT": "ttft", "IT": "itl", "th": "throughput"}[row.what[:2]]
        relative = "faster" in row.what or "gained" in row.what
        value = _ONE[row.what](of)
        because = of.note(against, EQUAL, by) if relative else ""
        return Result.of(row, value, bench=bench, note=_NONE if value is None else because)
    case, best, by = _case(row.what)
    mine, other = of.of[case], of.of[best]
    if by == "throughput" and not other.throughput:
        return Result.of(row, None, bench=bench, note=_NONE)
    value = mine.prefill_s / other.prefill_s if by == "ttft" else mine.throughput / other.throughput
    return Result.of(row, value, bench=bench, note=of.note(case, best, by))


def _case(what: str) -> tuple[str, str, str]:
    """Such as d_DP > d_EP, d_DP = d_EP, ttft."""
    case, rest = what.split(", ")
    quantity, best = rest.split(" over that of ")
    return case, best, "ttft" if quantity == "TTFT" else "throughput"


def _of_range(row: Published, found: list[PublishedStrategies]) -> Result:
    """The least or the most over all baselines that a row is about."""
    on_h20, with_ep = ", H20" in row.what, "over EP" in row.what
    values = [
        value
        for one in found
        if not on_h20 or one.name.endswith("H20")
        for other in one.baselines
        if not with_ep or other.strategy.experts.spread > 1
        for value in _values(row.what, one.of[EQUAL], other)
    ]
    end = min if row.what.endswith("least") else max
    return Result.of(row, end(values, default=None), bench=f"{RANGES}, {COMPUTED}", note="" if values else _NONE)


def _values(what: str, one: Estimate, other: Estimate) -> Iterator[float]:
    if what.startswith("TTFT"):
        yield other.prefill_s / one.prefill_s
    elif what.startswith("ITL"):
        yield other.itl_s / one.itl_s
    elif (gained := _gained(one, other)) is not None:
        yield gained
