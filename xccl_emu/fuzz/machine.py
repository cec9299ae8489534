"""The machine of a pod on which calls are made: its rules make a sequence longer, and each judges what it made."""

from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from xccl_emu.base import words as w
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.verdict import Violation
from xccl_emu.fuzz import draw
from xccl_emu.fuzz.judge import SKIPPED, JudgedSequence, SequenceBudget, judge
from xccl_emu.machine.clock import working_seconds
from xccl_emu.protocol.registry import Known
from xccl_emu.protocol.sequence import AGAIN, Sequence, Sizes, Stage, makes_rows, replayed

STAGES_MAX = 3
SHRINK_SECONDS = 10.0
"""Time that Hypothesis has to shrink a sequence; on a slow machine it gets less far."""


class SequenceViolation(AssertionError):
    """A sequence of calls, and what goes wrong in its last stage."""

    def __init__(self, sequence: Sequence, fault: str, violation: Violation) -> None:
        under = f" under {fault}" if fault else ""
        super().__init__(f"{sequence.name}, {sequence}{under}: {violation.kind}: {violation.message}")
        self.sequence, self.fault, self.violation = sequence, fault, violation


@dataclass(kw_only=True)
class Counts(w.Printed):
    """What was looked at."""

    sequences: Annotated[int, "sequences of calls that were drawn"] = 0
    """Attempts to shrink one in which something goes wrong are not counted."""
    calls: Annotated[int, "calls of them all"] = 0
    judged: Annotated[int, "sequences that were judged"] = 0
    """Different sequences, those with which another one begins too."""
    proved: Annotated[int, "of them on every schedule"] = 0
    """Every schedule of the last stage was covered."""
    schedules: w.Schedules = 0
    states: w.States = 0


COUNTS = tuple(each.name for each in fields(Counts))


@dataclass
class Counted(Counts):
    """What a run of the machine has looked at."""

    seen: dict[str, JudgedSequence] = field(default_factory=dict, repr=False)
    found_at: float = 0.0
    """When something was found; from then on nothing is counted any more."""

    @property
    def over(self) -> bool:
        """Return True if it is time to keep the finding as it is."""
        return bool(self.found_at) and working_seconds() > self.found_at + SHRINK_SECONDS

    def note(self, key: str, judged: JudgedSequence) -> None:
        """Remember what became of a sequence."""
        self.seen[key] = judged
        if self.found_at:
            return
        self.found_at = working_seconds() if judged.violation is not None else 0.0
        self.judged += not judged.skipped
        self.proved += judged.proved
        self.schedules += judged.schedules
        self.states += judged.states


class CallsMachine(RuleBasedStateMachine):
    """Calls on one pod; derive by `machine_of`."""

    of: ClassVar[Known]
    fixed: ClassVar[Sizes]
    budget: ClassVar[SequenceBudget]
    seed: ClassVar[int]
    counted: ClassVar[Counted]

    def __init__(self) -> None:
        super().__init__()
        self.stages: list[Stage] = []
        self.counted.sequences += self._counts

    @property
    def _counts(self) -> bool:
        """Return True if what is drawn now counts: it neither shrinks a finding nor comes too late."""
        return not (self.counted.found_at or self.budget.spent)

    def take(self, stages: list[Stage]) -> None:
        """Go on to a longer sequence, if there can be one; SequenceViolation if something goes wrong in it."""
        sequence = Sequence(self.of, tuple(stages))
        if sequence.n_calls > self.budget.calls_max:
            return
        counts = self._counts
        judged = self._judged(sequence, "")
        if not judged.skipped:
            self.stages = stages
            self.counted.calls += counts
        self._stop_if_wrong(sequence, "", judged)

    def _judged(self, sequence: Sequence, fault: str) -> JudgedSequence:
        key = f"{sequence.configuration} {fault}"
        if key not in self.counted.seen:
            if self.counted.over or (self.budget.spent and not self.counted.found_at):
                return SKIPPED
            try:
                judged = judge(sequence, fault, self.seed, self.budget)
            except ConfigError:
                judged = SKIPPED
            self.counted.note(key, judged)
        return self.counted.seen[key]

    def communicator(self, sizes: Sizes, call: Sizes) -> None:
        """A communicator on the pod at rest, and a call on it."""
        stage, replays = Stage({**self.fixed, **sizes}, (call,)), self.budget.replays
        if replays or len(self.stages) < STAGES_MAX:
            self.take([stage] if replays else [*self.stages, stage])
        for number in range(replays if self.stages == [stage] else 0):
            self.take([*self.stages, replayed(stage, number + 1)])

    def first(self, sizes: Sizes, call: Sizes) -> None:
        """Begin every sequence."""
        self.communicator(sizes, call)

    def again(self) -> None:
        """The last communicator once more."""
        self.communicator(self.stages[-1].sizes, {})

    def call(self, call: Sizes) -> None:
        """A further call on the last communicator."""
        last = self.stages[-1]
        self.take([*self.stages[:-1], replace(last, calls=(*last.calls, call))])

    def replay(self, number: int) -> None:
        """Replay one of its calls, with its arguments frozen."""
        self.call({AGAIN: number % len(self.stages[-1].calls)})

    def beside(self, sizes: Sizes, call: Sizes) -> None:
        """Add a communicator at the same time as the last one, or a further call on it."""
        last = self.stages[-1]
        other = last.beside
        if other is None:
            other = Stage({**self.fixed, **sizes}, (call,))
        else:
            other = replace(other, calls=(*other.calls, call))
        self.take([*self.stages[:-1], replace(last, beside=other)])

    def fault(self, fault: tuple[int, int, int]) -> None:
        """Repeat the last call with one fault."""
        sequence = Sequence(self.of, tuple(self.stages))
        named = draw.fault_in(sequence.build(self.budget.order, self.budget.without), self.budget.faults, *fault)
        if named:
            self._stop_if_wrong(sequence, named, self._judged(sequence, named))

    def _stop_if_wrong(self, sequence: Sequence, fault: str, judged: JudgedSequence) -> None:
        if judged.violation is not None:
            raise self.violation_of(sequence, fault, judged.violation)

    def violation_of(self, sequence: Sequence, fault: str, violation: Violation) -> AssertionError:
        """Return the error that is raised where something goes wrong."""
        return SequenceViolation(sequence, fault, violation)


def machine_of(of: Known, fixed: Sizes, budget: SequenceBudget, seed: int) -> type[CallsMachine]:
    """The machine of one protocol: its rules draw from the sizes of its case, but for those that are ``fixed``."""
    sizes, calls, small = draw.communicators(of, fixed), draw.calls(of, fixed), st.integers(0, 7)
    later = precondition(lambda self: self.stages)
    rules: dict[str, Any] = {
        "first": initialize(sizes=sizes, call=calls)(CallsMachine.first),
        "communicator": rule(sizes=sizes, call=calls)(CallsMachine.communicator),
    }
    given = {"of": of, "fixed": fixed, "budget": budget, "seed": seed, "counted": Counted(), "__module__": __name__}
    if budget.replays:
        return type("Calls", (CallsMachine,), given | rules)
    rules["fault"] = later(rule(fault=st.tuples(small, small, small))(CallsMachine.fault))
    if not makes_rows(of):
        rules["again"] = later(rule()(CallsMachine.again))
    else:
        rules["call"] = later(rule(call=calls)(CallsMachine.call))
        if of.maker.replayed:  # type: ignore[attr-defined]
            rules["replay"] = later(rule(number=small)(CallsMachine.replay))
    if getattr(of.maker, "side_by_side", False):
        rules["beside"] = later(rule(sizes=sizes, call=calls)(CallsMachine.beside))
    return type("Calls", (CallsMachine,), given | rules)
