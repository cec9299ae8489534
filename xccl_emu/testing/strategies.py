"""Hypothesis strategies for what a protocol is tested with: pods, payloads, routings, memory orders, seeds, faults.

Draw configurations and seeds here and leave schedules to the checker.  It tries all of them, or thousands a second by
policies made for it; drawn through Hypothesis choice by choice, a bug that it finds at once takes half a minute.  A
schedule that is to vary with the example is drawn by its seed: ``check(case, policy="pct", seed=seed)``.

And sequences of calls of a protocol of your own, as ``xccl-emu fuzz`` draws and judges them (docs/how-to.md):

    TestCalls = calls_machine(MyCase).TestCase     # for pytest or unittest

    @given(sequences(MyCase, ranks=2))
    def test_calls(sequence): assert_no_violation(sequence, schedules=100)
"""

from collections import abc
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.verdict import VIOLATION, Verdict, Violation
from xccl_emu.fuzz import draw
from xccl_emu.fuzz.judge import SequenceBudget
from xccl_emu.fuzz.machine import CallsMachine, machine_of
from xccl_emu.machine.spec import PodSpec, small_pod
from xccl_emu.protocol.registry import Maker, known_of
from xccl_emu.protocol.sequence import Sequence, Stage, makes_rows
from xccl_emu.testing.assertions import ProtocolViolation

ORDERS = ("sc", "fifo", "relaxed")
"""Orders that keep a core's writes to one address in order; under `unordered` most protocols are wrong, rightly."""
SAMPLING_POLICIES = ("portfolio", "random", "pct", "weights", "eager", "late", "lifo", "skew")
MASKED = -1
"""The expert of a choice that is switched off."""

_PATTERNS = ("counting", "constant", "random")


def orders() -> SearchStrategy[str]:
    """Memory orders, the strongest first."""
    return st.sampled_from(ORDERS)


def seeds() -> SearchStrategy[int]:
    """Seeds of schedules, payloads, anything."""
    return st.integers(0, (1 << 32) - 1)


def policies() -> SearchStrategy[str]:
    """Policies by which `check` draws schedules; to be drawn together with a seed."""
    return st.sampled_from(SAMPLING_POLICIES)


@st.composite
def pods(draw: st.DrawFn, dies_min: int = 2, dies_max: int = 4, cores_max: int = 2) -> PodSpec:
    """Small pods of ``dies_min`` to ``dies_max`` dies with room for a few KiB in each area and few writes in flight."""
    return small_pod(
        draw(st.integers(dies_min, dies_max)),
        draw(st.integers(1, cores_max)),
        app_bytes=4096,
        meta_bytes=1024,
        managed_bytes=2048,
        ub_bytes=2048,
        flight_granules=draw(st.sampled_from((64, 16, 8))),
    )


@st.composite
def payloads(draw: st.DrawFn, nbytes: int | SearchStrategy[int]) -> NDArray[np.uint8]:
    """Arrays of bytes, uint8 [nbytes], none of them zero: a byte that never arrived must not look right.

    They count up, are all the same, or random by a seed; what is found shrinks to fewer bytes that count up.
    """
    size = draw(nbytes) if isinstance(nbytes, SearchStrategy) else nbytes
    if size < 0:
        raise ConfigError("nbytes", size, "must not be negative")
    pattern = draw(st.sampled_from(_PATTERNS))
    if pattern == "counting":
        return (np.arange(size) % 255 + 1).astype(np.uint8)
    if pattern == "constant":
        return np.full(size, draw(st.integers(1, 255)), np.uint8)
    return np.random.default_rng(draw(seeds())).integers(1, 256, size, np.uint8)


@st.composite
def routings(
    draw: st.DrawFn, ranks: int, tokens: int | abc.Sequence[int] | SearchStrategy[int], experts: int, top_k: int
) -> list[NDArray[np.int64]]:
    """Choices of experts for each rank: ``ranks`` arrays int64 [T, top_k], in a row no expert twice, or `MASKED`.

    ``tokens`` is T for all ranks, one for each, or a strategy that is drawn for each.  ``experts`` is the
    number on all ranks.  Raises ConfigError if a row cannot have that many different ones.
    """
    if not 1 <= top_k <= experts:
        raise ConfigError("top_k", top_k, f"must be 1 to {experts}, the number of experts")
    if isinstance(tokens, SearchStrategy):
        counts = [draw(tokens) for _ in range(ranks)]
    else:
        counts = [tokens] * ranks if isinstance(tokens, int) else list(tokens)
    if len(counts) != ranks:
        raise ConfigError("tokens", tokens, f"must be one number, or one for each of {ranks} ranks")
    row = st.lists(st.integers(0, experts - 1), max_size=top_k, unique=True).flatmap(
        lambda chosen: st.permutations([*chosen, *[MASKED] * (top_k - len(chosen))])
    )
    return [np.array([draw(row) for _ in range(n)], np.int64).reshape(n, top_k) for n in counts]


@st.composite
def faults(draw: st.DrawFn, dies: int, actions_max: int = 200) -> str:
    """Draw a fault of the hardware, for ``check(fault=...)``: a die stops, a link is cut or late, a write doubled.

    ``stop:die1`` at any moment, ``stop:die1@120`` after 120 actions of it, ``revive:die1`` too; ``cut:0-1``,
    ``stall:0-1``, ``duplicate:0-1`` and ``corrupt:0-1`` of the link from die 0 to die 1.
    """
    if dies < 2:
        raise ConfigError("dies", dies, "must be at least 2, there are no links else")
    kind = draw(st.sampled_from(("stop", "revive", "cut", "stall", "duplicate", "corrupt")))
    if kind in ("stop", "revive"):
        after = draw(st.none() | st.integers(1, actions_max))
        return f"{kind}:die{draw(st.integers(0, dies - 1))}" + ("" if after is None else f"@{after}")
    source, target = draw(st.permutations(range(dies)))[:2]
    return f"{kind}:{source}-{target}"


_EXAMPLES = 50
_CALLS_MAX = 4


@st.composite
def sequences(draw_one: st.DrawFn, /, maker: Maker, **sizes: Any) -> Sequence:
    """One or two communicators of a case, each with calls if it can make several, and with another one besides if the
    case says so; the ``sizes`` are fixed.

    Sizes of several fields need not go together: `Sequence.build` then raises ConfigError, as the case does.
    """
    of = known_of(maker)
    calls = st.lists(draw.calls(of, sizes), min_size=1, max_size=_CALLS_MAX if makes_rows(of) else 1)
    one = st.builds(lambda own, each: Stage({**sizes, **own}, tuple(each)), draw.communicators(of, sizes), calls)
    both = st.builds(lambda stage, other: replace(stage, beside=other), one, st.none() | one)
    stages = st.lists(both if getattr(of.maker, "side_by_side", False) else one, min_size=1, max_size=2)
    return Sequence(of, tuple(draw_one(stages)))


def calls_machine(
    maker: Maker, *, seed: int = 0, schedules: int = 120, states: int = 20_000, **sizes: Any
) -> type[CallsMachine]:
    """A state machine whose rules call a case, and fail with `ProtocolViolation` where something goes wrong.

    Each sequence is judged on this many ``schedules`` drawn by ``seed``, and searched as far as ``states`` go; the
    ``sizes`` are fixed.
    """
    budget = SequenceBudget(schedules=schedules, states=states)
    kind = machine_of(known_of(maker), sizes, budget, seed)

    class Calls(kind):  # type: ignore[valid-type, misc]
        def violation_of(self, sequence: Sequence, fault: str, violation: Violation) -> AssertionError:
            verdict = Verdict(
                VIOLATION, sequence.name, sequence.configuration, budget.order, "fuzz", seed, fault=fault,
                violation=violation,
            )  # fmt: skip
            return ProtocolViolation(sequence, verdict)

    Calls.TestCase.settings = settings(
        max_examples=_EXAMPLES, stateful_step_count=budget.calls_max, deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    return Calls
