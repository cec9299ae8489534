"""Parallel strategies by the grammar of [MixServe] III-B1: what they are, how they are written, and all there are."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from xccl_emu.base.errors import ConfigError

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
