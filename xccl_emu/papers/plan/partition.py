"""The partitioner of [MixServe] III-C and Figure 7: which part of every weight a device has under a strategy.

Weights are matrices [in, out].  TP splits attention by heads and an expert by its inner elements, so that the device's
product is a part of a sum, which RS or AR adds up; EP gives each group of devices experts of its own; PP gives each
stage layers of its own; DP splits requests alone.  Shared experts, which the paper does not mention, are in each EP
group, where Eq. (8) counts them once in all of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.plan.grammar import LayerStrategy
from xccl_emu.papers.plan.model import DecoderModel, Grouped

Cut = tuple[slice, slice]
"""Rows and columns of a matrix."""
WHOLE = slice(None)


@dataclass(frozen=True)
class DeviceShare:
    """What a device has.  Matrices are by name; of an expert, and of a dense layer, they are gate, up and down."""

    layers: range
    requests: int
    """DP rank: which share of the batch its attention is for."""
    experts: range
    """Routed experts; each shared one is here too."""
    attention: Mapping[str, Cut]
    expert: Mapping[str, Cut]
    dense: Mapping[str, Cut]


def part(strategy: LayerStrategy, model: DecoderModel, device: int) -> DeviceShare:
    """The part of a device; ConfigError for one that the strategy does not have.

    Shapes, with H heads: of grouped attention query [hidden, H·dim], key and value [hidden, kv_heads·dim], output
    [H·dim, hidden].  Of MLA query_down [hidden, query_rank], query_up [query_rank, H·(nope + rope)], cache_down
    [hidden, kv_rank + rope], key_up [kv_rank, H·nope], value_up [kv_rank, H·value], output [H·value, hidden].  Gate and
    up [hidden, inner], down [inner, hidden].
    """
    if not 0 <= device < strategy.devices:
        raise ConfigError("device", device, f"must be 0 to {strategy.devices - 1}")
    stage, on_stage = divmod(device, strategy.attention.devices)
    tensor, requests = strategy.attention.ranks_of(on_stage)
    inner, group = strategy.experts.ranks_of(on_stage)
    return DeviceShare(
        _share(model.layers, stage, strategy.stages), requests,
        _share(model.experts.routed, group, strategy.experts.spread),
        _attention(model, _share(model.attention.heads, tensor, strategy.attention.tensor)),
        _feed_forward(_share(model.experts.intermediate, inner, strategy.experts.tensor)),
        _feed_forward(_share(model.dense_intermediate, inner, strategy.experts.tensor)),
    )  # fmt: skip


def _share(n: int, rank: int, ranks: int) -> range:
    """The rank's share of n things, the same for all or one more."""
    return range(n * rank // ranks, n * (rank + 1) // ranks)


def _of(each: range, size: int) -> slice:
    """The elements of this many things of a size."""
    return slice(each.start * size, each.stop * size)


def _attention(model: DecoderModel, heads: range) -> Mapping[str, Cut]:
    of = model.attention
    if isinstance(of, Grouped):
        together = of.heads // of.kv_heads
        kv = _of(range(heads.start // together, -(-heads.stop // together)), of.head_dim)
        own = _of(heads, of.head_dim)
        return {"query": (WHOLE, own), "key": (WHOLE, kv), "value": (WHOLE, kv), "output": (own, WHOLE)}
    return {
        "query_down": (WHOLE, WHOLE), "query_up": (WHOLE, _of(heads, of.nope_dim + of.rope_dim)),
        "cache_down": (WHOLE, WHOLE), "key_up": (WHOLE, _of(heads, of.nope_dim)),
        "value_up": (WHOLE, _of(heads, of.value_dim)), "output": (_of(heads, of.value_dim), WHOLE),
    }  # fmt: skip


def _feed_forward(inner: range) -> Mapping[str, Cut]:
    own = _of(inner, 1)
    return {"gate": (WHOLE, own), "up": (WHOLE, own), "down": (own, WHOLE)}
