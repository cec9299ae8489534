"""Sequences of calls of a protocol of your own, as Hypothesis tests them.

    TestCalls = calls_machine(MyCase).TestCase     # for pytest or unittest

    @given(sequences(MyCase, ranks=2))
    def test_calls(sequence): assert_no_violation(sequence, schedules=100)

What ``xccl-emu fuzz`` draws and judges is the same (docs/how-to.md).
"""

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from xccl_emu.check.verdict import VIOLATION, Verdict, Violation
from xccl_emu.fuzz import draw
from xccl_emu.fuzz.judge import SequenceBudget
from xccl_emu.fuzz.machine import CallsMachine, machine_of
from xccl_emu.protocol.registry import Maker, known_of
from xccl_emu.protocol.sequence import Sequence, Stage, makes_rows
from xccl_emu.testing.assertions import ProtocolViolation

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
