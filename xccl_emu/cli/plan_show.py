"""What ``xccl-emu plan`` prints: a table of strategies with why each is where it is, or JSON."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.markup import escape
from rich.table import Column, Table

from xccl_emu.cli.console import stdout_console
from xccl_emu.cli.schema import print_json
from xccl_emu.cli.shown import right
from xccl_emu.plan.explain import deciding, ms, reason
from xccl_emu.plan.observed import FittedObservation
from xccl_emu.plan.partition import WHOLE, Cut, DeviceShare, part
from xccl_emu.plan.strategies import Estimate, RankedStrategies, single_terms


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
        return print_json("plan", plain(shown))
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


def plain(shown: Shown) -> Mapping[str, Any]:
    """Return it as JSON has it; times in seconds, null where there is no bound on them."""
    one = shown.any
    return {
        "model": one.setting.model.name, "cluster": one.setting.cluster.name,
        "form": one.setting.form.text, "batch": one.setting.batch, "overlapped": one.setting.overlapped,
        "dropping": one.setting.dropping, "workload": asdict(one.workload), "by": shown.by,
        "ranked": [_plain(each, shown) for each in shown.plan.ranked],
        "refused": [_plain(each, shown) for each in shown.plan.refused],
        "observed": [{**asdict(each), "off_percent": each.off_percent} for each in shown.observed],
        "cluster_constants": asdict(one.setting.cluster),
        "weights": None if shown.part is None else _plain_part(shown.part),
        "chosen": None if shown.chosen is None else _plain(shown.chosen, shown),
        "reason": _reason(shown), "outcome": outcome(shown),
    }  # fmt: skip


def _plain_part(of: DeviceShare) -> dict[str, Any]:
    """Ranges as their first and last but one, matrices as NumPy cuts them."""
    ranges = {name: [each.start, each.stop] for name, each in (("layers", of.layers), ("experts", of.experts))}
    kinds = (("attention", of.attention), ("expert", of.expert), ("dense", of.dense))
    return {**ranges, "requests": of.requests, "cuts": {
        kind: {name: _cut(each) for name, each in cuts.items()} for kind, cuts in kinds}}  # fmt: skip


def _cut(of: Cut) -> str:
    """Return text such as ``[:, 0:24]``."""
    return f"[{', '.join(':' if each == WHOLE else f'{each.start}:{each.stop}' for each in of)}]"


def _plain(each: Estimate, shown: Shown) -> dict[str, Any]:
    loses_by, seconds = ("", 0.0) if shown.best is None else deciding(each, shown.best, shown.by)
    return {
        "strategy": str(each.strategy), "refusal": each.refusal, "ttft_s": _finite(each.ttft_s),
        "prefill_s": each.prefill_s, "wait_s": _finite(each.load.wait_s), "itl_s": each.itl_s,
        "tokens_per_s": each.throughput, "memory_bytes": each.memory.total,
        "memory": {f"{what}_bytes": nbytes for what, nbytes in asdict(each.memory).items()},
        "load": each.load.utilization, "load_unit": each.load.unit, "saturated": each.load.saturated,
        "loses_by": loses_by, "loses_s": seconds,
        "prefill_terms_s": single_terms(each.prefill), "decode_terms_s": single_terms(each.decode),
    }  # fmt: skip


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
        weights = _plain_part(shown.part)
        cuts = "; ".join((f"{kind}: " + " ".join(map("".join, each.items()))) for kind, each in weights["cuts"].items())
        first = ", ".join(f"{what} {weights[what][0]} to {weights[what][1] - 1}" for what in ("layers", "experts"))
        yield f"device {shown.device}: DP rank {weights['requests']}, {first}; {cuts}"
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
