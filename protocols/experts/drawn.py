"""Tokens of a layer whose choices come from loads or a file, with a shared expert in addition to the routed ones."""

import functools
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from xccl_emu import routing
from xccl_emu.protocols.experts.compared import draw_tokens
from xccl_emu.protocols.experts.data import Batch
from xccl_emu.routing.choices import Choices, hottest_die, hottest_over_mean


@dataclass(frozen=True, eq=False)
class Drawn:
    """Batches of sources, that are ranks or attention dies, one each round; others in each."""

    choices: Choices
    placement: routing.Placement
    sources: int
    shape: tuple[int, int]
    """Tokens of a source, elements of a hidden state."""
    dtype: str
    seed: int

    @functools.cached_property
    def states(self) -> NDArray[Any]:
        """[sources, tokens, hidden]; each round has the same on other sources."""
        return draw_tokens(self.sources, *self.shape, self.dtype, self.seed)

    def round(self, number: int) -> tuple[Batch, dict[str, Any]]:
        """A round with its choices as expert slots, the shared expert last, and what there is to say of it."""
        drawn = self.choices.of_round(number, self.sources, self.shape[0])
        facts: dict[str, Any] = {"routing": drawn.source, "hottest_over_mean": hottest_over_mean(drawn)}
        if self.sources == self.placement.n_ranks:
            most, without = hottest_die(drawn, self.placement)
            facts |= {"hottest_die_rows": most, "hottest_die_rows_without_replicas": without}
        placed = routing.place_choices(drawn, self.placement)
        states = [self.states[(source - number) % self.sources] for source in range(self.sources)]
        return Batch(states, [*placed.topk], [*placed.weights]), facts
