"""Requests that signal, to all judges: who sees a signal may read what its own request copied, and nothing else."""

from collections.abc import Sequence

import pytest
from litmus.signals import COLUMNS, TESTS
from litmus.suite import Litmus

from tests.machine.support import small
from xccl_emu.check import verdict as kinds
from xccl_emu.check.sampling import sample
from xccl_emu.guards.campaign.judge import JudgeBudget, Scene, judge_scene
from xccl_emu.guards.campaign.programs import DATA, Instruction, Small

BUDGET = JudgeBudget(states=200_000, brute=60_000, schedules=400, seconds=60)
READERS = tuple(
    test
    for test in TESTS
    if "".join(op[0] for op in test.program[-1])[:2] == "rr"
    and not any(op[0] == "r" for ops in test.program[:-1] for op in ops)
    and list(test.asked.values())[-1] == 0
)
"""Tests whose last thread alone reads: a flag, and then what may not be there behind it."""

OVERWRITTEN = ("one word, set", "one word, written over")
"""Under `unordered` the flag that is waited for may not stand in the end."""


def _words(test: Litmus) -> dict[str, int]:
    """Where each address is: what signalling requests copy in managed memory, all else in metadata."""
    threads = list(zip(test.program, test.signals, strict=True))
    copied = {ops[k][1] for ops, signals in threads for k in range(len(ops) - 1) if signals[k + 1]}
    places, words = {}, {}
    for name in sorted(test.home):
        area = DATA if name in copied else 0
        words[name] = test.home[name] << 3 | area | places.setdefault((test.home[name], area), 0)
        places[test.home[name], area] += 4
    return words


def _thread(ops: Sequence[tuple], signals: Sequence[bool], words: dict[str, int]) -> list[Instruction]:
    """A thread that writes, as instructions; all its writes are mtu-out's."""
    steps = list[Instruction]()
    for k, op in enumerate(ops):
        if signals[k]:
            word, copied, value = words[op[1]], words[ops[k - 1][1]] & 7, op[2]
            steps.append(Instruction("ub_store", ops[k - 1][2], copied))
            how = 8 if op[0] == "a" else 0
            steps.append(Instruction("signal", word, copied | value - 1 << 3, how))
        elif op[0] == "w" and not (k + 1 < len(ops) and signals[k + 1]):
            steps.append(Instruction("put_one", words[op[1]], op[2]))
        elif op[0] in "fs":
            steps.append(Instruction("quiet" if op[0] == "f" else "fence"))
    return steps


def small_of(test: Litmus) -> Small:
    """The test, its last thread polling for the value of the flag that is asked for, and then reading plainly."""
    words, reader = _words(test), len(test.program) - 1
    flag, *data = test.program[reader]
    programs = [_thread(*each, words) for each in zip(test.program[:-1], test.signals[:-1], strict=True)]
    flags = Instruction("ge", words[flag[1]], test.asked[f"{reader}:{flag[2]}"])
    programs.append([flags, *(Instruction("load", words[op[1]]) for op in data)])
    memory = {word: 0 for word in words.values() if word & DATA}  # somebody has written there
    return Small(tuple(map(tuple, programs)), dies=3, memory=memory, asks=_asks(test))


def _asks(test: Litmus) -> dict[str, str]:
    """By line of the interpreter, what its requests ask for: in no test do two of a kind ask for different orders."""
    found = dict[str, str]()
    for ops, asks, signals in zip(test.program, test.asks, test.signals, strict=True):
        for k, op in enumerate(ops):
            copies = k + 1 < len(ops) and signals[k + 1]
            if op[0] in "wa" and asks[k]:
                found["put_signal0" if signals[k] or copies else "put1"] = asks[k]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("order", COLUMNS)
@pytest.mark.parametrize("test", READERS, ids=lambda test: test.name)
def test_what_a_signal_tells(test: Litmus, order: str) -> None:
    """Where the flag tells of the data all judges verify a plain read behind it, else it is a race that they show."""
    scene = Scene(small_of(test), order, None, BUDGET)
    judged = judge_scene(scene)
    assert not judged.contradictions
    drawn = sample.sample(scene.trial, schedules=BUDGET.schedules, seconds=BUDGET.seconds)
    told = drawn.violation.kind if drawn.violation else kinds.NO_VIOLATION
    if not test.allows[order]:
        assert (judged.verdicts["full"], judged.verdicts["merged"], told) == (
            kinds.VERIFIED, kinds.VERIFIED, kinds.NO_VIOLATION,
        )  # fmt: skip
    else:
        lost = {kinds.DEADLOCK} if test.name in OVERWRITTEN else set()
        found = {judged.verdicts["full"], judged.verdicts["merged"], told}
        assert found <= {kinds.DATA_RACE, kinds.TORN_METADATA} | lost


DATA_WRITTEN = {32: 0, 36: 0, 40: 0, 44: 0}
FOUND = {
    "copies that share a granule": small(
        "ub_store 3; signal 1.5 8 8; ub_store 3 1; signal 1.0 9 8; out m1.1 | ge_taken 1.0 2; load m1.0",
        dies=2, flight_granules=8, memory=DATA_WRITTEN,
    ),
    "a read that covers an earlier one": small(
        "ub_store 2 1; signal 1.4 1 8; ub_store 2; signal 1.0 8 11; ub_store 1; signal 1.5 8 3 | "
        "ge_taken 1.0 2; load m1.0", dies=2, flight_granules=8, memory=DATA_WRITTEN,
    ),
    "no room for the second side of a race": small(
        "ub_store 3 1; signal 0.5 9; out m1.1 1; ub_store 1; signal 1.0 0 3 | "
        "put_one 1.4 1; out m0.0 1; ub_store 1 1; signal 1.0 9 1 | eq 1.5 1; load m1.4 | "
        "load_named 1.5 2; load m1.0; ge 1.5 1; eq 1.0 2; load m1.0",
        cores_per_die=2, dies=2, flight_granules=8, together=False, memory=DATA_WRITTEN,
    ),
}  # fmt: skip
"""Programs of which judges once said different things."""


@pytest.mark.slow
@pytest.mark.parametrize("order", COLUMNS)
@pytest.mark.parametrize("name", FOUND)
def test_judges_agree(name: str, order: str) -> None:
    """Searches, brute force and the monitor contradict each other on none of them."""
    assert not judge_scene(Scene(FOUND[name], order, None, JudgeBudget(brute=20_000))).contradictions
