"""What two streams on a die gain, and what multi-token prediction costs ([CloudMatrix384] 4.2.3, 5.4.1, 5.4.2).

Attention of a microbatch has two thirds of a die's cores, the experts' path (gate, dispatch, experts, combine) a third;
each takes 600 us for 96 requests a chip, which is put in.  Dispatch and combine are run, on 16 cores for a microbatch
and on all 48 for the whole batch.  What else there is in both paths is computing, in proportion to tokens and the
inverse of cores: an assumption.  A layer of two microbatches takes twice the longer path; without streams all goes one
after the other, on all cores.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.layers import CORES, Layer, time_layer
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import DEFAULT, Setting

USUAL, PART = 96, 1 / 3
"""Requests of a chip for which paths take as published, and the part of the cores that experts' path has."""
DIES, MTP = 320, 2
"""EP320, and tokens of a request in a step."""


@dataclass(frozen=True)
class Paths:
    """Layers with a batch of requests a chip; all times in us."""

    setting: Setting
    dies: int = DIES
    sent: dict[tuple[int, int], float] = field(default_factory=dict)
    """What was run, by tokens and cores."""

    @cached_property
    def stream_us(self) -> dict[str, float]:
        """Return what each path of a microbatch takes, as published."""
        return {row.what: row.value for row in published.rows("streams", "input")}

    def sent_us(self, tokens: int, cores: int) -> float:
        """FusedDispatch and FusedCombine of this many tokens of a die, run: mean rank, and launch."""
        if (tokens, cores) not in self.sent:
            layer = Layer(ranks=self.dies, tokens=tokens, cores=cores)
            timed = time_layer(replace(self.setting, data=False), layer, "fused")
            self.sent[tokens, cores] = sum(self.setting.operator_us(each) for _, each, _ in timed.operators)
        return self.sent[tokens, cores]

    @cached_property
    def computed_us(self) -> float:
        """Computing in the experts' path of the usual microbatch: what its published time leaves."""
        return self.stream_us["experts' path of a microbatch"] - self.sent_us(
            self.tokens(USUAL) // 2, int(CORES * PART)
        )

    def tokens(self, requests: int) -> int:
        """Tokens of a die."""
        return MTP * requests // 2

    def overlapped_us(self, tokens: int) -> float:
        """Twice the longer path of a microbatch of half of a die's tokens."""
        part = tokens / self.tokens(USUAL)
        experts = part * self.computed_us + self.sent_us(tokens // 2, int(CORES * PART))
        return 2 * max(part * self.stream_us["attention of a microbatch"], experts)

    def in_a_row_us(self, tokens: int) -> float:
        """The whole batch on all cores, one path after the other."""
        part = 2 * tokens / self.tokens(USUAL)
        attention = self.stream_us["attention of a microbatch"] * (1 - PART)
        return part * (attention + self.computed_us * PART) + self.sent_us(tokens, CORES)


def streams(setting: Setting = DEFAULT, dies: int = DIES) -> list[Result]:
    """Gains of streams by batch, the layer of the usual batch, and the same without multi-token prediction."""
    paths = Paths(setting, dies)
    made: dict[str, float] = {}
    for requests in (64, 96, 128):
        tokens = paths.tokens(requests)
        both, one = paths.overlapped_us(tokens), paths.in_a_row_us(tokens)
        made[f"throughput by streams, {requests} requests"] = 100 * (one / both - 1)
        if requests == USUAL:
            made |= {"layer by streams, 96 requests": 100 * (both / one - 1), "layer, 96 requests": both,
                     "layer without MTP, 96 requests": paths.overlapped_us(tokens // MTP)}  # fmt: skip
    more = made["layer, 96 requests"] / made["layer without MTP, 96 requests"]
    made["layer by MTP, 96 requests"] = 100 * (more - 1)
    made["throughput by MTP, 96 requests"] = 100 * (1.7 / more - 1)
    return [
        Result.of(row, made.get(row.what, row.value if row.role == "input" else None),
                  configuration={"ranks": dies, "cores": CORES},
                  note="" if row.what in made or row.role == "input" else "prefill-streams is checked, not timed")
        for row in published.rows("streams")
    ]  # fmt: skip
