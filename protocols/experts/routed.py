"""What cases have in common whose tokens go to experts that they choose: by a pattern, by loads, or as recorded."""

import functools
import operator
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from xccl_emu import routing
from xccl_emu.base.errors import ConfigError
from xccl_emu.base.stage import silent
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.protocol import Bench, Call, Case, PodRun, choice, size, text
from xccl_emu.protocol.case import BATCH, SIZE_MAX, Twins
from xccl_emu.protocol.pod_run import INTERPRETER_BYTES
from xccl_emu.protocols.experts.config import DTYPES, QUANTIZERS, ROUTE, TokenConfig
from xccl_emu.protocols.experts.data import Batch, draw_tokens, places_of, plant, turn_choices
from xccl_emu.routing import Placement
from xccl_emu.routing.choices import ZIPF, Choices, hottest_die, hottest_over_mean


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


TOKENS_HELP = 'Tokens of each rank: 2, or "2,0" for each its own.'
EXAMPLES = (1, 3, "2,0", "0,2", "1,3", "0,1,2", "3,0,0")
"""Some of them with nothing to do."""


def as_text(given: Any) -> Any:
    """Numbers with commas between them of a sequence; anything else as it is."""
    if isinstance(given, int | str) or not isinstance(given, Iterable):
        return given
    return ",".join(map(str, given))


def tokens_of(given: Any, ranks: int, none: bool = False) -> tuple[int, ...]:
    """Tokens of each rank; ConfigError for what says something else, or no token at all unless ``none`` are right."""
    try:
        parts = given.split(",") if isinstance(given, str) else given if isinstance(given, Iterable) else [given]
        counts = tuple(int(part) if isinstance(part, str) else operator.index(part) for part in parts)
    except (TypeError, ValueError) as error:
        raise ConfigError("tokens", given, "must be a whole number, or one for each rank") from error
    if len(counts) == 1:
        counts *= ranks
    if len(counts) != ranks or min(counts) < 0 or (max(counts) == 0 and not none):
        raise ConfigError("tokens", given, f"must be one number or {ranks}, none negative and one above 0")
    if max(counts) > SIZE_MAX:
        raise ConfigError("tokens", max(counts), f"must be at most {SIZE_MAX}")
    return counts


PAGE = 4096
FEW_TOKENS = 256
"""Tokens of a rank or attention die that always go at once, if nothing else is asked for."""


@dataclass(frozen=True)
class RoutedCase(Case, ABC):
    """A case whose tokens choose experts.  Subclasses must define the fields ``tokens``, ``top_k``, ``rounds`` and
    ``seed``, make rounds by ``_pattern``, and lay them out by ``_lay_out``.
    """

    by_routing: ClassVar[Collection[str]] = ("layer",)
    by_pattern: ClassVar[Collection[str]] = ()
    """Sizes that have a meaning with a routing alone, and without one."""
    by_token: ClassVar[bool] = True
    """Do the bits of a token depend on nothing but its hidden state, choices and weights?"""
    tiny: ClassVar[Mapping[str, Any]]
    """Sizes of a small one for two dies, in addition to tokens and what they choose."""

    hidden: int = size(
        0, "Elements of a hidden state, a multiple of 32, in place of granules.", least=0, advanced=True
    )  # fmt: skip
    dtype: str = choice("bf16", "Type of hidden states.", of=tuple(DTYPES), advanced=True)
    quantizer: str = choice(
        "xccl", "Whose rule makes the INT8, or in DeepEP's mode FP8.", of=tuple(QUANTIZERS), advanced=True
    )  # fmt: skip
    routing: str = text(
        "", f"{ZIPF}, or a file of expert loads (JSON) or recorded choices (JSONL): who chooses which of how many "
        "experts, plus a shared one; else neighbours choose neighbours.", advanced=True,
    )  # fmt: skip
    layer: int = size(-1, "Layer of the loads; -1 is the first MoE layer.", least=-1, advanced=True)
    at_once: int = size(
        0, "Tokens of a source that go at once, the others after them; 0 is all, or what fits.", least=0, advanced=True
    )  # fmt: skip

    def _check(self) -> None:
        """Check the sizes; raises ConfigError also for those that do not go with a routing, or not without one."""
        object.__setattr__(self, "tokens", as_text(self._tokens))
        super().__post_init__()
        lengths = self._lengths
        for each in self.sizes():
            value, wrong = getattr(self, each.name), self.by_pattern if self.routing else self.by_routing
            if each.name in wrong and value != each.default:
                raise ConfigError(each.name, value, f"goes {'without' if self.routing else 'with'} --routing")
        if self.routing and len({*lengths}) > 1:
            raise ConfigError("tokens", self._tokens, "must be one number for all with --routing")
        object.__setattr__(self, "tokens", max(lengths) if self.routing else as_text(lengths))

    @property
    def _tokens(self) -> int | str:
        return self.configuration["tokens"]

    @property
    @abstractmethod
    def _sources(self) -> int:
        """Return the number of ranks or attention dies that have tokens."""

    @property
    def _lengths(self) -> tuple[int, ...]:
        """Tokens of each of them."""
        return tokens_of(self._tokens, self._sources, none=bool(self.routing))

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

    def _draw(self, placement: Placement, hidden: int) -> Drawn:
        """Batches of all sources."""
        shape = int(self._tokens), hidden
        return Drawn(self._choices, placement, self._sources, shape, self.dtype, int(self.configuration["seed"]))

    @property
    def claims(self) -> tuple[str, ...]:
        """The bits of a token, where a pattern makes the batches."""
        return (BATCH,) if self.by_token and not self.routing else ()

    def twins(self, draw: int) -> Twins:
        """Return what is made of the same token in three batches, of other sizes and choices; with the case's own
        token in draw 0."""
        case = self.resized({"seed": int(self.configuration["seed"]) + draw})
        lengths = [[times * n for n in self._lengths] for times in (1, 3, 1)]
        places, batches = places_of(lengths), case._rounds(lengths)
        made = [case._made_of_tokens(batch) for batch in batches]
        i, source, token = places[0]
        turn_choices(batches, places[:1])
        return Twins([made[i][s][t] for i, s, t in places], case._made_of_tokens(batches[i])[source][token])

    def reordered(self) -> tuple[int, int]:
        """Return of how many tokens another order of choices makes other bits, and how many tokens there are."""
        batches = self._rounds([self._lengths] * int(self.configuration["rounds"]))
        rows = [row for batch in batches for rows in self._made_of_tokens(batch) for row in rows]
        turn_choices(batches, ((i, s, slice(None)) for i in range(len(batches)) for s in range(self._sources)))
        others = [row for batch in batches for rows in self._made_of_tokens(batch) for row in rows]
        return sum(a.tobytes() != b.tobytes() for a, b in zip(rows, others, strict=True)), len(rows)

    @abstractmethod
    def _made_of_tokens(self, batch: Any) -> list[NDArray[Any]]:
        """Return what the oracle makes of the tokens of each source, a row of each."""

    def _rounds(self, rounds: Sequence[Sequence[int]]) -> list[Any]:
        """Return the batches of a pattern; where outputs must not depend on the batch, with the same token in each."""
        batches = self._pattern(rounds)  # type: ignore[attr-defined]
        return plant(batches, places_of(rounds), self.dtype) if self.pod_sizes.get("invariant") == BATCH else batches

    # ---- several calls, and the whole pod

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """Lay out all rounds of all calls in one launch, with room for the most tokens of each source."""
        if len(calls) == 1:
            return calls[0].case.lay_out(bench)
        if self.routing:
            raise ConfigError("routing", self.routing, f"applies to a single call; there are {len(calls)}")
        each = [tokens_of(call.case.configuration["tokens"], self._sources) for call in calls]
        most: dict[str, Any] = {"tokens": as_text([max(lengths) for lengths in zip(*each, strict=True)])}
        whole: Any = replace(self, **most)
        rounds = int(self.configuration["rounds"])
        whole._lay_out(bench, whole._rounds([lengths for lengths in each for _ in range(rounds)]))

    def run_on_pod(self, run: PodRun) -> None:
        """Make all calls, one after the other; a tiny one first, so that compiling is not mistaken for their time."""
        with run.stage("compile"):
            plain: dict[str, Any] = {"tokens": 1, "hidden": 128, "top_k": 1, "routing": "", "layer": -1, "at_once": 0}
            pod = Pod(small_pod(2, 3, ub_bytes=64 << 10), order=run.pod.order, policy=run.pod.policy)
            replace(self, **plain, **self.tiny)._make_calls(PodRun(pod, silent, run.free_bytes))
        self._make_calls(run)

    @abstractmethod
    def _make_calls(self, run: PodRun) -> None:
        """Make all calls on a pod."""


def bytes_touched(c: TokenConfig, rows: int, under_way: int, cores: int) -> int:
    """Memory that rows of a layer touch on the whole pod, estimated, with data buffers and the interpreter.

    ``under_way`` are bytes of a row between its dies, where they take memory, in whole pages where it lies alone.
    """
    per_row = c.payload_bytes + ROUTE.itemsize + c.row_bytes + under_way
    return rows * per_row + cores * (192 << 10) + INTERPRETER_BYTES
