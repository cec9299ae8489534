"""Waiting before service: the M/M/1 approximation of [MixServe], Eq. (7)."""

import math
from dataclasses import dataclass

from xccl_emu.plan.forms import CORRECTED, Form


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
