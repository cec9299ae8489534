"""What cases have in common whose tokens go to experts that they choose: by a pattern, by loads, or as recorded."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from xccl_emu.errors import ConfigError
from xccl_emu.protocol import Case, choice, size, text
from xccl_emu.protocols.drawn import Drawn
from xccl_emu.protocols.layout import DTYPES, QUANTIZERS
from xccl_emu.protocols.tokens import as_text, tokens_of
from xccl_emu.routing import Placement
from xccl_emu.routing.choices import ZIPF, Choices

FEW_TOKENS = 256
"""Tokens of a rank or attention die that always go at once, if nothing else is asked for."""


@dataclass(frozen=True)
class RoutedCase(Case, ABC):
    """Whoever derives from it has the fields ``tokens``, ``top_k`` and ``seed`` too."""

    by_routing: ClassVar[Collection[str]] = ("layer",)
    by_pattern: ClassVar[Collection[str]] = ()
    """Sizes that have a meaning with a routing alone, and without one."""

    hidden: int = size(
        0, "Elements of a hidden state, a multiple of 32, in place of granules.", least=0, beside=True
    )  # fmt: skip
    dtype: str = choice("bf16", "Type of hidden states.", of=tuple(DTYPES), beside=True)
    quantizer: str = choice("xccl", "Whose rule makes the INT8.", of=tuple(QUANTIZERS), beside=True)
    routing: str = text(
        "", f"{ZIPF}, or a file of expert loads (JSON) or recorded choices (JSONL): who chooses which of how many "
        "experts, beside a shared one; else neighbours choose neighbours.", beside=True,
    )  # fmt: skip
    layer: int = size(-1, "Layer of the loads; -1 is the first MoE layer.", least=-1, beside=True)
    at_once: int = size(
        0, "Tokens of a source that go at once, the others behind them; 0 is all, or what fits.", least=0, beside=True
    )  # fmt: skip

    def _check(self, sources: int) -> None:
        """Check the sizes; raises ConfigError also for those that do not go with a routing, or not without one."""
        object.__setattr__(self, "tokens", as_text(self._tokens))
        super().__post_init__()
        lengths = tokens_of(self._tokens, sources, none=bool(self.routing))
        for each in self.sizes():
            value, wrong = getattr(self, each.name), self.by_pattern if self.routing else self.by_routing
            if each.name in wrong and value != each.default:
                raise ConfigError(f"{each.name}={value}: goes {'without' if self.routing else 'with'} --routing")
        if self.routing and len({*lengths}) > 1:
            raise ConfigError(f"tokens={self._tokens}: must be one number for all with --routing")
        object.__setattr__(self, "tokens", max(lengths) if self.routing else as_text(lengths))

    @property
    def _tokens(self) -> int | str:
        return self.configuration["tokens"]

    @property
    @abstractmethod
    def _lengths(self) -> tuple[int, ...]:
        """Tokens of each source, that is a rank or an attention die."""

    @property
    def _at_once(self) -> int:
        """Tokens of a source that go at once, at most."""
        return min(self.at_once or max(self._lengths), max(self._lengths))

    def _fewer_at_once(self, given: Collection[str]) -> Self | None:
        """Half as many tokens at once, unless it was said how many, or they are few."""
        if "at_once" in given or self._at_once <= FEW_TOKENS:
            return None
        return replace(self, at_once=-(-self._at_once // 2))

    @functools.cached_property
    def _choices(self) -> Choices:
        return Choices(str(self.routing), self.layer, int(self.configuration["top_k"]), int(self.configuration["seed"]))

    def _draw(self, placement: Placement, sources: int, hidden: int) -> Drawn:
        """Batches of so many sources."""
        shape = int(self._tokens), hidden
        return Drawn(self._choices, placement, sources, shape, self.dtype, int(self.configuration["seed"]))
