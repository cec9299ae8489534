"""Every strategy of a model on a cluster: what it takes, whether it can be, and which is best ([MixServe] III-B5)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from xccl_emu.base import words as w
from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import one_of
from xccl_emu.papers.plan.costs import CORRECTED, Form, PlanSetting, Term, service
from xccl_emu.papers.plan.grammar import LayerStrategy, strategies


@dataclass(frozen=True)
class DeviceBytes(w.Printed):
    """Bytes of one device; embeddings and activations are in none of them, as in Eq. (8)."""

    RECORD = "Memory"
    attention: Annotated[float, "weights of attention", w.As("attention_bytes")]
    experts: Annotated[float, "weights of experts", w.As("experts_bytes")]
    cache: Annotated[float, "keys and values", w.As("cache_bytes")]

    @property
    def total(self) -> float:
        """The left side of Eq. (8)."""
        return self.attention + self.experts + self.cache


def memory(strategy: LayerStrategy, of: PlanSetting, context: int) -> DeviceBytes:
    """Eq. (8): weights and cache of one device, in bytes, if every request has ``context`` tokens.

    Corrected, the cache is what the attention of the model keeps, of the requests of a device's own DP rank, and PP
    splits weights as it splits the cache.
    """
    model, attention = of.model, strategy.attention
    weights_stages = 1 if of.form.eq8 else strategy.stages
    if of.form.eq8:
        tokens, cached = of.batch * context, 2 * model.hidden
    else:
        tokens, cached = -(-of.batch // attention.spread) * context, model.attention.cached(attention.tensor)
    return DeviceBytes(
        of.weight_bytes * model.attention_parameters / attention.tensor / weights_stages,
        of.weight_bytes * model.expert_parameters(model.all_experts) / strategy.experts.devices / weights_stages,
        model.cache_bytes * cached * tokens * model.layers / strategy.stages,
    )


ORDERS = ("throughput", "ttft", "itl")
"""What strategies may be ranked by."""


@dataclass(frozen=True)
class RequestStream(w.Printed):
    """Requests: how many a second, and tokens of each; ``context`` is the longest that memory must have room for."""

    RECORD = "Workload"
    rate: Annotated[float, "requests a second"] = 2.0
    input: Annotated[int, "tokens of a prompt"] = 220
    output: Annotated[int, "tokens of an answer"] = 200
    context: Annotated[int, "tokens that memory must have room for"] = 4096

    def __post_init__(self) -> None:
        """Raises ConfigError for a number that is none or not above 0, or a context that is too short."""
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise ConfigError("rate", self.rate, "must be a number above 0 (requests a second)")
        for name in ("input", "output"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "must be at least 1 (tokens)")
        if self.context < self.input + self.output:
            raise ConfigError("context", self.context, f"must be at least input + output, {self.input + self.output}")


@dataclass(frozen=True)
class Load:
    """What arrives at a server, and what it can serve, both in ``unit`` a second."""

    arrivals: float
    services: float
    unit: str = "requests"

    @property
    def utilization(self) -> float:
        """ρ of Eq. (7)."""
        return self.arrivals / self.services

    @property
    def saturated(self) -> bool:
        """Return True if more arrives than can be served, so that no wait is long enough: ρ ≥ 1."""
        return self.utilization >= 1

    @property
    def wait_s(self) -> float:
        """Eq. (7): W_q = ρ / (μ (1 − ρ)) in s; infinite where it is saturated."""
        return math.inf if self.saturated else self.utilization / (self.services * (1 - self.utilization))


def load(rate: float, batch: int, output: int, prefill_s: float, decode_s: float, form: Form = CORRECTED) -> Load:
    """Arrivals and services of ``rate`` requests a second that make ``output`` tokens each.

    As printed, λ_a tokens arrive a second at μ = 1 / Δt_svc, one token an iteration. But an iteration makes a token of
    every request of the batch: corrected, a server takes ``batch`` requests through a prefill and ``output`` decodes,
    which is the denominator of Eq. (11).
    """
    if form.eq7:
        return Load(rate * output, 1 / decode_s, "tokens")
    return Load(rate, batch / (prefill_s + output * decode_s))


@dataclass(frozen=True)
class Estimate:
    """What the equations say of one strategy; times in seconds."""

    strategy: LayerStrategy
    setting: PlanSetting
    workload: RequestStream

    @cached_property
    def memory(self) -> DeviceBytes:
        """Memory of one device, Eq. (8)."""
        return memory(self.strategy, self.setting, self.workload.context)

    @cached_property
    def prefill(self) -> tuple[Term, ...]:
        """Terms of the iteration that makes the first token, Eq. (6) with s = L_in."""
        return service(self.strategy, self.setting, self.workload.input)

    @cached_property
    def decode(self) -> tuple[Term, ...]:
        """Terms of every other iteration, Eq. (6) with s = 1."""
        return service(self.strategy, self.setting, 1)

    @property
    def prefill_s(self) -> float:
        """Δt_svc of the prefill: TTFT without a wait."""
        return math.fsum(term.seconds for term in self.prefill)

    @property
    def itl_s(self) -> float:
        """Eq. (10): ITL."""
        return math.fsum(term.seconds for term in self.decode)

    @cached_property
    def load(self) -> Load:
        """Return what arrives and what can be served, Eq. (7)."""
        return load(self.workload.rate, self.setting.batch, self.workload.output, self.prefill_s, self.itl_s,
                    self.setting.form)  # fmt: skip

    @property
    def ttft_s(self) -> float:
        """Eq. (9): the wait and the prefill; infinite where the server is saturated."""
        return self.load.wait_s + self.prefill_s

    @property
    def throughput(self) -> float:
        """Eq. (11): tokens a second, of one request and its wait as printed; corrected, of a full batch."""
        busy_s = self.prefill_s + self.workload.output * self.itl_s
        tokens = self.workload.input + self.workload.output
        return tokens / (self.load.wait_s + busy_s) if self.setting.form.eq11 else self.setting.batch * tokens / busy_s

    @property
    def too_large(self) -> bool:
        """True if the strategy is refused for its memory only."""
        return self.refusal.startswith(_TOO_LARGE)

    @property
    def refusal(self) -> str:
        """Why this cannot be, with the numbers; empty if it can."""
        return next(iter(_refusals(self)), "")

    def key(self, by: str) -> tuple[float, ...]:
        """Return what is less for the better one of two; the others of `ORDERS` decide between equals, then memory.

        Of those that are equal in all, d_DP = d_EP is first, the easiest to implement (III-B3).
        """
        ranked = {"throughput": -self.throughput, "ttft": self.ttft_s, "itl": self.itl_s}
        values = *(ranked.pop(name) for name in (by, *ORDERS) if name in ranked), self.prefill_s, self.memory.total
        uneven = abs(self.strategy.attention.spread.bit_length() - self.strategy.experts.spread.bit_length())
        return *(float(f"{value:.12g}") for value in values), uneven


_TOO_LARGE = "does not fit"


def _refusals(of: Estimate) -> Iterable[str]:
    """Yield the reasons against a strategy, memory last."""
    model, attention, experts = of.setting.model, of.strategy.attention, of.strategy.experts
    counts = (
        ("PP", of.strategy.stages, "layers", model.layers, False),
        ("DP", attention.spread, "requests of the batch", of.setting.batch, False),
        ("TP", attention.tensor, "attention heads", model.attention.heads, True),
        ("EP", experts.spread, "routed experts", model.experts.routed, True),
        ("TP", experts.tensor, "inner elements of an expert", model.experts.intermediate, True),
    )
    for name, degree, what, count, divides in counts:
        if degree > count or (divides and count % degree):
            yield f"{name}={degree} {'does not divide' if divides else 'exceeds'} the {count} {what}"
    room, need = of.setting.cluster.memory_gb, of.memory
    if need.total >= room * 1e9:
        parts = f"weights {(need.attention + need.experts) / 1e9:.1f} GB + cache {need.cache / 1e9:.1f} GB"
        yield f"{_TOO_LARGE}: {parts} = {need.total / 1e9:.1f} GB, and a device has {room:g} GB (Eq. 8)"


@dataclass(frozen=True)
class RankedStrategies:
    """All strategies, the best first; and those that cannot be, first by memory alone, who needs least of it first."""

    ranked: Sequence[Estimate]
    refused: Sequence[Estimate]


def plan(setting: PlanSetting, workload: RequestStream, by: str = "throughput") -> RankedStrategies:
    """Every strategy of the grammar, ranked; ConfigError for an order that there is not."""
    one_of("by", by, ORDERS)
    cluster = setting.cluster
    every = [Estimate(s, setting, workload) for s in strategies(cluster.devices, cluster.devices_per_node)]
    ranked = sorted((one for one in every if not one.refusal), key=lambda one: one.key(by))
    refused = sorted((one for one in every if one.refusal), key=lambda one: (not one.too_large, one.memory.total))
    return RankedStrategies(ranked, refused)


def single_terms(terms: Iterable[Term]) -> dict[str, float]:
    """Seconds by name."""
    return {term.name: term.seconds for term in terms}


# ---- why one is better

_WAYS = {"A2A dispatch": "A2A", "A2A combine": "A2A", "expert AG": "expert AG+RS", "expert RS": "expert AG+RS"}
"""Terms of both ways count as one: mostly they are equal."""


def terms_s(of: Estimate, by: str = "throughput") -> Mapping[str, float]:
    """Seconds by term of what strategies are ranked by: a whole request, its prefill, or one decode."""
    prefills, decodes = {"throughput": (1, of.workload.output), "ttft": (1, 0), "itl": (0, 1)}[by]
    found: dict[str, float] = {}
    for a, b in zip(of.prefill, of.decode, strict=True):
        name = _WAYS.get(a.name, a.name)
        found[name] = found.get(name, 0.0) + prefills * a.seconds + decodes * b.seconds
    return found


def deciding(of: Estimate, other: Estimate, by: str = "throughput") -> tuple[str, float]:
    """The term by which ``of`` takes most longer than ``other``, and how many seconds; no term if none is longer."""
    mine, theirs = terms_s(of, by), terms_s(other, by)
    name, seconds = max(((name, mine[name] - theirs[name]) for name in mine), key=lambda item: item[1])
    return (name, seconds) if seconds > 1e-12 else ("", 0.0)


def reason(winner: Estimate, second: Estimate, by: str = "throughput") -> str:
    """One sentence on why the first is ahead of the second."""
    name, more_s = deciding(second, winner, by)
    of = {"throughput": "of a request", "ttft": "of a prefill", "itl": "of a decode"}[by]
    if not name:
        return f"{winner.strategy} and {second.strategy} take the same time; memory or the other order decides"
    back, less_s = deciding(winner, second, by)
    but = f", which {back} ({ms(less_s)}) does not make up for" if back else ""
    return f"{second.strategy} loses to {winner.strategy} by {name}: {ms(more_s)} {of}{but}"


def ms(seconds: float) -> str:
    """A difference in ms, with its sign and three figures."""
    value = 1e3 * seconds
    return f"{value:+,.0f} ms" if abs(value) >= 1000 else f"{value:+.3g} ms"
