"""A contradicting program made smaller as long as it contradicts in the same way."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from xccl_emu.guards.campaign.generate import NOTHING, ProgramCase
from xccl_emu.guards.campaign.judge import WEAKER, Contradiction, JudgeBudget, JudgedProgram
from xccl_emu.guards.campaign.programs import DATA, Instruction, Small

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
    for field in ("a", "b", "c"):
        value = getattr(one, field)
        for less in dict.fromkeys((0, value % DATA, value // 2, value - 1)):
            if 0 <= less < value:
                yield replace(one, **{field: less})


def _with_program(case: ProgramCase, k: int, one: tuple[Instruction, ...]) -> ProgramCase:
    programs = case.small.programs
    return _of_programs(case, (*programs[:k], one, *programs[k + 1 :]))


def _of_programs(case: ProgramCase, programs: tuple[tuple[Instruction, ...], ...]) -> ProgramCase:
    small: Small = replace(case.small, programs=programs)
    return replace(case, small=small) if programs else case
