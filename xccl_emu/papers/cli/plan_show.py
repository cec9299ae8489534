"""What ``xccl-emu plan`` prints and draws: a table of strategies with why each is where it is, JSON, or bars."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.markup import escape
from rich.table import Column, Table

from xccl_emu.base import words as w
from xccl_emu.cli.app import print_json
from xccl_emu.cli.files import save_figure
from xccl_emu.cli.shown import right, stdout_console
from xccl_emu.papers.plan.grammar import WHOLE, Cut, DeviceShare, part
from xccl_emu.papers.plan.observed import FittedObservation
from xccl_emu.papers.plan.strategies import (
    DeviceBytes,
    Estimate,
    RankedStrategies,
    RequestStream,
    deciding,
    ms,
    reason,
    single_terms,
)

_COLOURS = ("#aeb6bf", "#1b4f72", "#ba4a00", "#2e86c1", "#17a589", "#d68910", "#7d3c98", "#85c1e9", "#566573")


@dataclass(frozen=True)
class ReportedStrategy(w.Printed):
    """What the equations say of a strategy."""

    RECORD = "Strategy"
    strategy: Annotated[str, "attention, experts [stages]"]
    refusal: Annotated[str, "why it cannot be; empty if it can"]
    ttft_s: Annotated[float | None, "time to the first token; null where there is no bound on it"]
    prefill_s: Annotated[float, "time of a prefill, without waiting"]
    wait_s: Annotated[float | None, "time in the queue; null where there is no bound on it"]
    itl_s: Annotated[float, "time between tokens"]
    tokens_per_s: Annotated[float, "throughput"]
    memory_bytes: Annotated[float, "memory of a device"]
    memory: Annotated[DeviceBytes, "bytes of one device, by what they are for"]
    load: Annotated[float, "share of what the strategy can serve"]
    load_unit: Annotated[str, "what `load` counts, such as `requests`"]
    saturated: Annotated[bool, "whether requests come faster than they are served"]
    loses_by: Annotated[str, "the term by which it loses most against the best"]
    loses_s: Annotated[float, "by how much"]
    prefill_terms_s: Annotated[dict[str, float], "each term of a prefill"]
    decode_terms_s: Annotated[dict[str, float], "each term of a token after it"]


@dataclass(frozen=True)
class DeviceWeights(w.Printed):
    """Weights that a device has."""

    layers: Annotated[tuple[int, int], "first, and one after the last"]
    experts: Annotated[tuple[int, int], "routed ones: first, and one after the last"]
    requests: Annotated[int, "DP rank: which share of the requests its attention is for"]
    cuts: Annotated[dict[str, dict[str, str]], "rows and columns of matrices of attention, an expert, a dense layer"]


@dataclass(frozen=True)
class PlanReport(w.Printed):
    """What is said of the strategies of a plan."""

    model: Annotated[str, "name of the model"]
    cluster: Annotated[str, "name of the cluster"]
    form: Annotated[str, "which equations: corrected or literal"]
    batch: Annotated[int, "requests at once"]
    overlapped: Annotated[bool, "whether transfers overlap, as without `--sync`"]
    dropping: Annotated[bool, "whether `--drop` was given"]
    workload: Annotated[RequestStream, "requests that a plan is for"]
    by: Annotated[str, "what strategies are ranked by"]
    ranked: Annotated[list[ReportedStrategy], "strategies that can be, the best first"]
    refused: Annotated[list[ReportedStrategy], "strategies that cannot be"]
    observed: Annotated[Sequence[FittedObservation], "measurements of `--observed`, and the equations next to them"]
    cluster_constants: Annotated[dict[str, Any], "fields of the cluster, as its file has them, or fitted"]
    weights: Annotated[DeviceWeights | None, "for `--device`"]
    chosen: Annotated[ReportedStrategy | None, "for `--strategy`"]
    reason: Annotated[str, "why the best is better"]
    outcome: Annotated[str, "why the exit code is 1; empty if it is not"]


@dataclass(frozen=True)
class Shown:
    """What is printed."""

    plan: RankedStrategies
    chosen: Estimate | None
    """The one that was asked for."""
    by: str
    top: int
    observed: Sequence[FittedObservation] = ()
    """What constants were fitted to."""
    device: int | None = None
    """Whose part of the weights is printed."""

    @property
    def best(self) -> Estimate | None:
        """The first; None if none can be."""
        return self.plan.ranked[0] if self.plan.ranked else None

    @property
    def part(self) -> DeviceShare | None:
        """Return what that device has under the strategy asked for, or else the best; None if neither is there."""
        one = self.chosen or self.best
        return None if one is None or self.device is None else part(one.strategy, one.setting.model, self.device)

    @property
    def any(self) -> Estimate:
        """Return any one of them, for what they share."""
        return (*self.plan.ranked, *self.plan.refused)[0]


def show(shown: Shown, as_json: bool) -> None:
    """Print it to stdout."""
    if as_json:
        return print_json("plan", report(shown))
    console, lines = stdout_console(), [*_lines(shown)]
    if shown.best is not None:
        console.print(_table(shown), highlight=False)
    for line in lines:
        console.print(escape(line), highlight=False)


def outcome(shown: Shown) -> str:
    """Why the command ends with exit code 1; empty if it does not."""
    if shown.chosen is not None and shown.chosen.refusal:
        return f"{shown.chosen.strategy}: {shown.chosen.refusal}"
    if shown.best is None:
        least = shown.plan.refused[0]
        nearest = "the one that needs least memory is" if least.too_large else "such as"
        none = f"no strategy of {_where(least)} can be, {len(shown.plan.refused)} are refused;"
        return f"{none} {nearest} {least.strategy}: {least.refusal}"
    return ""


def report(shown: Shown) -> PlanReport:
    """Return it as JSON has it; times in seconds, null where there is no bound on them."""
    one, plan = shown.any, shown.plan
    return PlanReport(
        one.setting.model.name, one.setting.cluster.name, one.setting.form.text, one.setting.batch,
        one.setting.overlapped, one.setting.dropping, one.workload, shown.by,
        [_reported(each, shown) for each in plan.ranked], [_reported(each, shown) for each in plan.refused],
        shown.observed, asdict(one.setting.cluster), None if shown.part is None else _weights(shown.part),
        None if shown.chosen is None else _reported(shown.chosen, shown), _reason(shown), outcome(shown),
    )  # fmt: skip


def _weights(of: DeviceShare) -> DeviceWeights:
    """Ranges as their first and last but one, matrices as NumPy cuts them."""
    kinds = (("attention", of.attention), ("expert", of.expert), ("dense", of.dense))
    return DeviceWeights(
        (of.layers.start, of.layers.stop), (of.experts.start, of.experts.stop), of.requests,
        {kind: {name: _cut(each) for name, each in cuts.items()} for kind, cuts in kinds},
    )  # fmt: skip


def _cut(of: Cut) -> str:
    """Return text such as ``[:, 0:24]``."""
    return f"[{', '.join(':' if each == WHOLE else f'{each.start}:{each.stop}' for each in of)}]"


def _reported(each: Estimate, shown: Shown) -> ReportedStrategy:
    loses_by, loses_s = ("", 0.0) if shown.best is None else deciding(each, shown.best, shown.by)
    return ReportedStrategy(
        str(each.strategy), each.refusal, _finite(each.ttft_s), each.prefill_s, _finite(each.load.wait_s), each.itl_s,
        each.throughput, each.memory.total, each.memory, each.load.utilization, each.load.unit, each.load.saturated,
        loses_by, loses_s, single_terms(each.prefill), single_terms(each.decode),
    )  # fmt: skip


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _where(one: Estimate) -> str:
    return f"{one.setting.model.name} on {one.setting.cluster.name}"


def _table(shown: Shown) -> Table:
    """The best strategies, and after them the one that was asked for."""
    ranked = shown.plan.ranked
    strategy = Column(escape("attention, experts [PP]"), no_wrap=True)
    numbers = right("TTFT, ms", "wait, ms", "ITL, ms", "tokens/s", "GB", "load")
    table = Table(*right("#"), strategy, *numbers, "loses most by")
    table.title = escape(f"{_where(ranked[0])}, equations {ranked[0].setting.form.text}, by {shown.by}")
    for place, each in enumerate(ranked[: shown.top], start=1):
        table.add_row(*_cells(f"{place}", each, shown))
    chosen = shown.chosen
    if chosen is not None:
        places = [place for place, each in enumerate(ranked, start=1) if each.strategy == chosen.strategy]
        table.add_section()
        table.add_row(*_cells(f"{places[0]}" if places else "-", chosen, shown))
    return table


def _cells(place: str, each: Estimate, shown: Shown) -> Iterator[str]:
    assert shown.best is not None
    yield place
    yield escape(str(each.strategy))
    if each.load.saturated:
        yield from (f"{each.prefill_s * 1e3:,.1f} + wait", "saturated")
    else:
        yield from (f"{each.ttft_s * 1e3:,.1f}", f"{each.load.wait_s * 1e3:,.1f}")
    yield f"{each.itl_s * 1e3:,.2f}"
    yield f"{each.throughput:,.0f}"
    yield f"{each.memory.total / 1e9:.1f}"
    yield f"{each.load.utilization:.2f}"
    name, seconds = deciding(each, shown.best, shown.by)
    yield "does not fit" if each.refusal else f"{name}, {ms(seconds)}" if name else ""


def _lines(shown: Shown) -> Iterator[str]:
    best, plan = shown.best, shown.plan
    yield from _observed(shown)
    if shown.part is not None:
        weights = _weights(shown.part)
        cuts = "; ".join((f"{kind}: " + " ".join(map("".join, each.items()))) for kind, each in weights.cuts.items())
        ranges = (("layers", weights.layers), ("experts", weights.experts))
        first = ", ".join(f"{what} {each[0]} to {each[1] - 1}" for what, each in ranges)
        yield f"device {shown.device}: DP rank {weights.requests}, {first}; {cuts}"
    if best is not None:
        yield _reason(shown)
        for what, terms in (("prefill", best.prefill), ("decode", best.decode)):
            parts = [f"{term.name} {term.seconds * 1e3:.3g} {term.equation}" for term in terms if term.seconds > 0]
            yield f"{what} of #1, ms: {', '.join(parts)}"
        saturated = sum(each.load.saturated for each in plan.ranked)
        rate = f"{best.workload.rate:g} requests/s"
        yield f"{len(plan.ranked)} strategies can be, {saturated} of them saturated at {rate}"
    if plan.refused:
        yield f"{len(plan.refused)} are refused, such as {plan.refused[-1].strategy}: {plan.refused[-1].refusal}"


def _observed(shown: Shown) -> Iterator[str]:
    """Yield what was fitted, and how far the equations then are from what was measured."""
    cluster = shown.any.setting.cluster
    for kind in dict.fromkeys(point.kind for point in shown.observed):
        points = [point for point in shown.observed if point.kind == kind]
        worst = max(points, key=lambda point: abs(point.off_percent))
        link = {"intra": cluster.intra, "inter": cluster.inter}.get(kind)
        flops = f"{cluster.tflops * cluster.efficiency:.3g} TFLOPS, {cluster.hbm_gb_s:.4g} GB/s of memory"
        fitted = (
            f"{flops}, {cluster.layer_us:.3g} us of any layer" if link is None
            else f"{link.gb_s:.3g} GB/s, {link.start_us:.3g} us before a round"
        )  # fmt: skip
        mean = math.fsum(abs(point.off_percent) for point in points) / len(points)
        off = f"off by {mean:.1f}% in the mean, at most by {worst.off_percent:+.1f}% ({worst.what})"
        yield f"{kind}: {fitted}; {len(points)} observations, {off}"


def _reason(shown: Shown) -> str:
    ranked = shown.plan.ranked
    if shown.best is None:
        return ""
    if shown.chosen is not None and not shown.chosen.refusal and shown.chosen.strategy != shown.best.strategy:
        return reason(shown.best, shown.chosen, shown.by)
    return reason(shown.best, ranked[1], shown.by) if len(ranked) > 1 else f"only {shown.best.strategy} can be"


# ---- drawn


def draw(shown: Shown, path: Path) -> None:
    """Draw what each of the best spends its prefill and its decode on, as bars of terms, the best on top.

    Raises OutputError if the file cannot be written.
    """
    from matplotlib.figure import Figure

    rows = [*shown.plan.ranked[: shown.top]]
    if shown.chosen is not None and shown.chosen.strategy not in [row.strategy for row in rows]:
        rows.append(shown.chosen)
    figure = Figure(figsize=(12.0, 1.6 + 0.3 * len(rows)), layout="constrained")
    prefill, decode = figure.subplots(1, 2, sharey=True)
    _add(prefill, rows, "prefill")
    _add(decode, rows, "decode")
    prefill.set_yticks(range(len(rows)), [str(row.strategy) for row in rows], fontsize="small")
    prefill.invert_yaxis()
    prefill.legend(frameon=False, fontsize="small")
    one = rows[0].setting
    figure.suptitle(f"{one.model.name} on {one.cluster.name}, equations {one.form.text}".replace("$", r"\$"))
    save_figure(figure, path)


def _add(panel: Any, rows: Sequence[Estimate], phase: str) -> None:
    terms = [single_terms(getattr(row, phase)) for row in rows]
    lefts = [0.0] * len(rows)
    for name, colour in zip(terms[0], _COLOURS, strict=True):
        widths = [1e3 * each[name] for each in terms]
        panel.barh(range(len(rows)), widths, left=lefts, color=colour, label=name)
        lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    panel.set(xlabel="ms", title=f"{phase}: {'TTFT without the wait' if phase == 'prefill' else 'ITL'}")
    panel.margins(x=0.03)
    panel.spines[["top", "right"]].set_visible(False)
