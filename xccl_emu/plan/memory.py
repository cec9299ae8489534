"""What a device must hold: the constraint of [MixServe], Eq. (8)."""

from dataclasses import dataclass
from typing import Annotated

from xccl_emu import words as w
from xccl_emu.plan.costs import PlanSetting
from xccl_emu.plan.grammar import LayerStrategy


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
