"""A campaign: many programs judged, in processes or on a Dask cluster, and what it came to."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from xccl_emu.base import words as w
from xccl_emu.base.errors import ConfigError
from xccl_emu.base.jobs import Gathered, in_parts
from xccl_emu.base.output import read_bytes, write_text
from xccl_emu.check import verdict as kinds
from xccl_emu.guards.campaign.ends import BY_ENDS, JUDGE, judge_ends
from xccl_emu.guards.campaign.generate import NOTHING, ProgramCase, draw
from xccl_emu.guards.campaign.judge import BUDGET, WEAKER, Contradiction, JudgeBudget, JudgedProgram, judge
from xccl_emu.guards.campaign.programs import DATA, ORDERS, Instruction, Small
from xccl_emu.guards.campaign.smallest import TOTAL, smallest

Still = Callable[[ProgramCase], bool]
Judge = Callable[[ProgramCase, Sequence[str], JudgeBudget], list[JudgedProgram]]


def contradicts_as(wrong: Contradiction, budget: JudgeBudget, judge: Judge) -> Still:
    """Does a case contradict in the same way, by what a judge says?"""
    orders = (*(weaker for weaker in WEAKER.get(wrong.order, ()) if f"under {weaker}" in wrong.kind), wrong.order)

    def still(case: ProgramCase) -> bool:
        found = [each for judged in judge(case, orders, budget) for each in judged.contradictions]
        return any((each.order, each.kind) == (wrong.order, wrong.kind) for each in found)

    return still


def shrunk(case: ProgramCase, still: Still) -> ProgramCase:
    """The smallest case that is still as asked, as far as small steps lead to it; the same if no step does."""
    while True:
        before = case
        for step in (_with_less, _with_fewer_cores, _with_fewer_instructions, _with_simpler_operands):
            case = _least(case, step, still)
        if case == before:
            return case


def _least(case: ProgramCase, step: Callable[[ProgramCase], Iterator[ProgramCase]], still: Still) -> ProgramCase:
    """Take what a step offers as long as it helps; where it does, it goes on from there."""
    helped = True
    while helped:
        helped = False
        for smaller in step(case):
            if smaller.size < case.size and still(smaller):
                case, helped = smaller, True
                break
    return case


def _with_less(case: ProgramCase) -> Iterator[ProgramCase]:
    """Try nothing expected, less memory filled, fewer dies, a pod as usual."""
    small, usual = case.small, Small(())
    yield replace(case, expects=NOTHING, pick=0)
    yield replace(case, pick=0)
    yield replace(case, fault="")
    for name in (
        "memory",
        "without",
        "dies",
        "asks",
        "atomic_bytes",
        "scalar_cache",
        "launched",
        "cpu",
        "flags",
        "filled",
        "gives_up",
    ):
        yield replace(case, small=replace(small, **{name: getattr(usual, name)}))
    for word in small.memory:
        yield replace(case, small=replace(small, memory={w: v for w, v in small.memory.items() if w != word}))


def _with_fewer_cores(case: ProgramCase) -> Iterator[ProgramCase]:
    """A core with nothing to do, or without it."""
    small = case.small
    for k, one in enumerate(small.programs):
        yield _of_programs(case, small.programs[:k] + small.programs[k + 1 :])
        if one:
            yield _of_programs(case, (*small.programs[:k], (), *small.programs[k + 1 :]))


def _with_fewer_instructions(case: ProgramCase) -> Iterator[ProgramCase]:
    """Half of a program, or one instruction less."""
    for k, one in enumerate(case.small.programs):
        for cut in (one[: len(one) // 2], one[len(one) // 2 :]):
            yield _with_program(case, k, cut)
        for i in range(len(one)):
            yield _with_program(case, k, one[:i] + one[i + 1 :])


def _with_simpler_operands(case: ProgramCase) -> Iterator[ProgramCase]:
    """An operand nearer to 0, or a word that is no data."""
    for k, one in enumerate(case.small.programs):
        for i, instruction in enumerate(one):
            for simpler in _simpler(instruction):
                yield _with_program(case, k, (*one[:i], simpler, *one[i + 1 :]))


def _simpler(one: Instruction) -> Iterator[Instruction]:
    for name in ("a", "b", "c"):
        value = getattr(one, name)
        for less in dict.fromkeys((0, value % DATA, value // 2, value - 1)):
            if 0 <= less < value:
                yield replace(one, **{name: less})


def _with_program(case: ProgramCase, k: int, one: tuple[Instruction, ...]) -> ProgramCase:
    programs = case.small.programs
    return _of_programs(case, (*programs[:k], one, *programs[k + 1 :]))


def _of_programs(case: ProgramCase, programs: tuple[tuple[Instruction, ...], ...]) -> ProgramCase:
    small: Small = replace(case.small, programs=programs)
    return replace(case, small=small) if programs else case


# ---- the campaign


CHUNK = 25
"""Programs of one task."""
FAILED = "a judge fails"
_FORMAT = "xccl_emu campaign 1"
REFUTED = "refuted"


@dataclass(frozen=True)
class CampaignPlan:
    """Which programs are judged, and how."""

    programs: int
    seed: int = 0
    first: int = 0
    """Number of the first one."""
    orders: tuple[str, ...] = ORDERS
    budget: JudgeBudget = BUDGET
    ends: bool = False
    """Whether each choice of the full search is judged by its ends, in place of its verdict by all other judges."""
    enumerated: bool = False
    """Whether the programs are `campaign.smallest`, in place of drawn ones."""

    def __post_init__(self) -> None:
        if not self.orders or set(self.orders) - set(ORDERS):
            raise ConfigError(f"--orders {','.join(self.orders)}: must be of {', '.join(ORDERS)}")
        if self.enumerated and not self.first + self.programs <= TOTAL:
            raise ConfigError(
                f"--first {self.first}, --programs {self.programs}: there are {TOTAL:,} smallest programs"
            )

    def case(self, number: int) -> ProgramCase:
        """The program of a number."""
        return smallest(number) if self.enumerated else draw(self.seed, number)

    def chunks(self, workers: int) -> list["CampaignPlan"]:
        """Split the plan into parts, small enough that all workers have something to do."""
        size = max(1, min(CHUNK, self.programs // (4 * workers)))
        end = self.first + self.programs
        return [replace(self, programs=min(size, end - first), first=first) for first in range(self.first, end, size)]


_Number = Annotated[int, "number of the program within its seed"]
_Text = Annotated[ProgramCase, "its text", w.As("program", text=True)]


@dataclass
class ContradictedProgram(w.Printed):
    """A program on which judges contradict each other."""

    RECORD = "Program"
    seed: w.Seed
    number: _Number
    case: _Text
    contradictions: list[Contradiction]

    def save(self, folder: Path) -> Path:
        """Write it to a file in a folder, which `load` reads again."""
        path = folder / f"{self.seed}-{self.number}.json"
        found = {"contradictions": [vars(each) for each in self.contradictions], "case": self.case.to_json()}
        content = {"format": _FORMAT, "seed": self.seed, "number": self.number, **found}
        write_text(path, json.dumps(content, indent=1) + "\n")
        return path

    @classmethod
    def load(cls, path: Path) -> "ContradictedProgram":
        """Read what `save` wrote; raises ConfigError for anything else."""
        try:
            content = json.loads(read_bytes(path))
            wrong = [Contradiction(**each) for each in content["contradictions"]]
            return cls(content["seed"], content["number"], ProgramCase.of_json(content["case"]), wrong)
        except OSError as error:
            raise ConfigError(f"--replay {path}: cannot be read ({error.strerror})") from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            why = f"{type(error).__name__}: {error}"
            raise ConfigError(f"--replay {path}: is no file that campaign --out has written ({why})") from error


@dataclass(frozen=True)
class SmallestExample(w.Printed):
    """The smallest program that is known to contradict in a certain way."""

    RECORD = "Example"
    order: w.Order
    kind: w.Kind
    seed: w.Seed
    number: _Number
    case: _Text


@dataclass
class CampaignSummary(Gathered):
    """What a campaign came to."""

    COUNTED = ("programs", "verdicts", "wrong", "states", "schedules", "findings")
    FIRST = ("seed", "programs", "verdicts", "contradictions", "findings", "smallest", "states", "schedules")
    seed: w.Seed = 0
    programs: Annotated[int, "programs that were judged"] = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    """Times by ``order, judge, verdict``; a verdict is verified, refuted, unfinished, or no violation found."""
    wrong: Counter[str] = field(default_factory=Counter)
    """Contradictions by ``order: kind``."""
    states: w.States = 0
    schedules: w.Schedules = 0
    findings: Annotated[list[ContradictedProgram], "programs on which judges contradict each other"] = field(
        default_factory=list
    )
    examples: Annotated[
        list[SmallestExample], "the smallest program of each kind of contradiction", w.As("smallest")
    ] = field(default_factory=list)

    def note(self, judged: Iterable[JudgedProgram]) -> list[Contradiction]:
        """Count one program; returns its contradictions."""
        self.programs += 1
        wrong = []
        for one in judged:
            self.states += one.states
            self.schedules += one.schedules
            for name, verdict in one.verdicts.items():
                known = verdict in (kinds.VERIFIED, kinds.UNFINISHED, kinds.NO_VIOLATION)
                self.verdicts[f"{one.order}, {name}, {verdict if known else REFUTED}"] += 1
            wrong += one.contradictions
        self.wrong.update(f"{each.order}: {each.kind}" for each in wrong)
        return wrong

    def count(self, order: str, judge: str, verdict: str) -> int:
        """Return the number of times that a judge came to a verdict."""
        return self.verdicts[f"{order}, {judge}, {verdict}"]

    @property
    def share(self) -> tuple[int, int]:
        """Count the verified that were judged by their ends, and all that were verified, over all orders."""
        counts = [
            sum(self.count(order, judge, verdict) for order in ORDERS)
            for judge, verdict in ((JUDGE, kinds.VERIFIED), (JUDGE, REFUTED), ("full", kinds.VERIFIED))
        ]
        return counts[0] + counts[1], counts[2]

    @property
    def sorted_verdicts(self) -> Annotated[dict[str, int], "how often, by `order, judge, verdict`", w.As("verdicts")]:
        """Return the times, by the names in their order."""
        return dict(sorted(self.verdicts.items()))

    @property
    def contradictions(self) -> Annotated[dict[str, int], "how often, by `order: kind`"]:
        """Return the times, the most frequent first."""
        return dict(self.wrong.most_common())


# ---- judging


def judge_all(plan: CampaignPlan) -> CampaignSummary:
    """Judge the programs of a plan one after the other."""
    summary = CampaignSummary()
    for number in range(plan.first, plan.first + plan.programs):
        case = plan.case(number)
        if wrong := summary.note(judged(case, plan)):
            summary.findings.append(ContradictedProgram(plan.seed, number, case, wrong))
    return summary


def judge_again(finding: ContradictedProgram, plan: CampaignPlan) -> CampaignSummary:
    """Judge a program that was kept, by its ends if that is how it was found."""
    by_ends = any(BY_ENDS in wrong.kind for wrong in finding.contradictions)
    summary, plan = CampaignSummary(plan.seed), replace(plan, ends=plan.ends or by_ends)
    if wrong := summary.note(judged(finding.case, plan)):
        summary.findings.append(ContradictedProgram(finding.seed, finding.number, finding.case, wrong))
    return summary


def judged(case: ProgramCase, plan: CampaignPlan) -> list[JudgedProgram]:
    """Return the verdicts of all judges on a program; a judge that fails is a contradiction."""
    try:
        return (judge_ends if plan.ends else judge)(case, plan.orders, plan.budget)
    except Exception as error:  # whatever a judge raises is a finding
        failed = JudgedProgram(plan.orders[0])
        failed.contradict(f"{FAILED}: {type(error).__name__}", str(error))
        return [failed]


# ---- many at once


def campaign(
    plan: CampaignPlan,
    workers: int,
    dask: str | None = None,
    seconds: float | None = None,
    progress: Callable[[CampaignSummary], None] | None = None,
) -> CampaignSummary:
    """Judge all, or as many as ``seconds`` allow; what stops it (Ctrl-C, a worker that dies) is in the summary."""
    summary = CampaignSummary(plan.seed)

    def enough() -> bool:
        return summary.programs < plan.programs and summary.late(seconds)

    chunks = plan.chunks(1 if workers == 1 and not dask else workers)
    summary.gather(in_parts(judge_all, chunks, workers, dask), enough, progress)
    summary.findings.sort(key=lambda finding: finding.number)
    return summary


def find_examples(summary: CampaignSummary, budget: JudgeBudget, seconds: float) -> None:
    """Shrink the smallest program of each kind of contradiction, the most frequent kinds first, for so long in all."""
    until = time.perf_counter() + seconds
    for key, _ in summary.wrong.most_common():
        finding, wrong = _smallest(summary.findings, key)
        still = contradicts_as(wrong, budget, judge_ends if BY_ENDS in wrong.kind else judge)

        def in_time(case: ProgramCase, still: Callable[[ProgramCase], bool] = still) -> bool:
            return time.perf_counter() < until and still(case)

        case = finding.case if wrong.kind.startswith(FAILED) else shrunk(finding.case, in_time)
        summary.examples.append(SmallestExample(wrong.order, wrong.kind, finding.seed, finding.number, case))


def _smallest(findings: Sequence[ContradictedProgram], key: str) -> tuple[ContradictedProgram, Contradiction]:
    found = [
        (finding, wrong)
        for finding in findings
        for wrong in finding.contradictions
        if f"{wrong.order}: {wrong.kind}" == key
    ]
    return min(found, key=lambda pair: pair[0].case.size)
