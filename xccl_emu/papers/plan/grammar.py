"""Parallel strategies by the grammar of [MixServe] III-B1: what they are, how they are written, and all there are.

The partitioner (III-C, Figure 7) says which part of every weight a device has under a strategy.  Weights are matrices
[in, out].  TP splits attention by heads and an expert by its inner elements, so that the device's product is a part of
a sum, which RS or AR adds up; EP gives each group of devices experts of its own; PP gives each stage layers of its own;
DP splits requests alone.  Shared experts, which the paper does not mention, are in each EP group, where Eq. (8) counts
them once in all of them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xccl_emu.base.errors import ConfigError
from xccl_emu.papers.plan.model import DecoderModel, Grouped

ATTENTION, EXPERTS = "DP", "EP"
"""What a block does with devices apart from splitting tensors: attention is split by request, experts by expert."""


@dataclass(frozen=True)
class StrategyBlock:
    """One block over ``tensor`` × ``spread`` devices.

    ``tensor`` is d_TP; ``spread`` is d_DP of attention, d_EP of experts.  ``tensor_outside`` says that ranks of a
    tensor group do not follow each other, as they do for TP=8 + EP=4, but stand ``spread`` apart (EP=4 + TP=8).
    """

    tensor: int
    spread: int
    tensor_outside: bool = False

    @property
    def devices(self) -> int:
        """Devices of the block."""
        return self.tensor * self.spread

    @property
    def tensor_span(self) -> int:
        """Consecutive devices that a tensor group lies within."""
        return self.devices if self.tensor_outside else self.tensor

    @property
    def spread_span(self) -> int:
        """Consecutive devices that a DP or EP group lies within."""
        return self.spread if self.tensor_outside or self.tensor == 1 else self.devices

    def ranks_of(self, device: int) -> tuple[int, int]:
        """Ranks of a device of the block in its tensor group, and in its DP or EP group."""
        if self.tensor_outside:
            return divmod(device, self.spread)
        spread, tensor = divmod(device, self.tensor)
        return tensor, spread

    def text(self, spread: str) -> str:
        """Such as ``TP=8 + DP=4``, what is inside first; degrees of 1 are not written."""
        parts = [f"TP={self.tensor}"] * (self.tensor > 1) + [f"{spread}={self.spread}"] * (self.spread > 1)
        return " + ".join(reversed(parts) if self.tensor_outside else parts) or "TP=1"


@dataclass(frozen=True)
class LayerStrategy:
    """How one decoder layer is spread over devices, and how many stages of layers there are."""

    attention: StrategyBlock
    experts: StrategyBlock
    stages: int = 1

    @property
    def devices(self) -> int:
        """Devices of all stages."""
        return self.stages * self.attention.devices

    @property
    def sharing(self) -> int:
        """min(d_DP, d_EP): devices of each group that A2A goes around in (III-B3)."""
        return min(self.attention.spread, self.experts.spread)

    def __str__(self) -> str:
        """Write it as the paper does: attention, experts [stages]."""
        stages = f" [PP={self.stages}]" if self.stages > 1 else ""
        return f"{self.attention.text(ATTENTION)}, {self.experts.text(EXPERTS)}{stages}"


def blocks(devices: int, devices_per_node: int) -> Iterator[StrategyBlock]:
    """Every block over this many devices: what the rules ``block`` and ``parallel`` derive, each once.

    The part inside lies within a node.  Two parts of one kind are one of their product, and a degree of 1 is left out.
    """
    for i in range(devices.bit_length()):
        tensor, spread = 1 << i, devices >> i
        one = 1 in (tensor, spread)
        if one or tensor <= devices_per_node:
            yield StrategyBlock(tensor, spread)
        if not one and spread <= devices_per_node:
            yield StrategyBlock(tensor, spread, tensor_outside=True)


def strategies(devices: int, devices_per_node: int) -> Iterator[LayerStrategy]:
    """Every sentence of the grammar that uses all devices, a power of two of them."""
    for i in range(devices.bit_length()):
        each = [*blocks(devices >> i, devices_per_node)]
        yield from (LayerStrategy(attention, experts, 1 << i) for attention in each for experts in each)


_PART = re.compile(r"(TP|DP|EP|PP)\s*=\s*(\d{1,9})")


def parse(text: str, devices: int, devices_per_node: int) -> LayerStrategy:
    """The strategy that a text such as ``TP=8 + DP=4, TP=8 + EP=4`` or ``TP=8, TP=8 [PP=4]`` names.

    Of one block alone, experts are split as attention is (the paper's ``TP=8 [PP=4]``).  Raises ConfigError unless the
    grammar derives it for this many devices.
    """
    body, _, rest = text.partition("[")
    stages = _degrees(rest.rstrip("] "), ("PP",), text) if rest else {}
    halves = body.split(",")
    if len(halves) > 2:
        raise ConfigError("strategy", text, "must be attention, experts [PP=degree], as TP=8 + DP=4, TP=8 + EP=4")
    attention = _block(halves[0], ATTENTION, text)
    found = LayerStrategy(attention, _block(halves[-1], EXPERTS if len(halves) == 2 else ATTENTION, text),
                     stages.get("PP", 1))  # fmt: skip
    if len(halves) == 1 and attention.spread > 1:
        raise ConfigError("strategy", text, "experts are missing; must be as TP=8 + DP=4, TP=8 + EP=4")
    if found not in [*strategies(devices, devices_per_node)]:
        raise ConfigError(
            "strategy", text, f"each block must use {devices} devices over PP, by powers of two, the first degree of"
            f" two within a node of {devices_per_node}",
        )  # fmt: skip
    return found


def _block(half: str, spread: str, strategy: str) -> StrategyBlock:
    degrees = _degrees(half, ("TP", spread), strategy)
    tensor, other = degrees.get("TP", 1), degrees.get(spread, 1)
    return StrategyBlock(tensor, other, next(iter(degrees)) == spread and min(tensor, other) > 1)


def _degrees(half: str, kinds: tuple[str, ...], strategy: str) -> dict[str, int]:
    """Degrees by kind, in the order of the text."""
    found: dict[str, int] = {}
    for part in half.split("+"):
        match = _PART.fullmatch(part.strip())
        if match is None or match[1] not in kinds or match[1] in found:
            wanted = " or ".join(f"{kind}=degree" for kind in kinds)
            raise ConfigError("strategy", strategy, f"{part.strip()!r} must be {wanted}, each kind once")
        found[match[1]] = int(match[2])
    return found


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
