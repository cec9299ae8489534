"""The litmus suite as a check: if the outcome asked for comes out a kernel fails, so what forbids it is verified.

Every thread compares what it has read, and goes on only while it is as asked.  The last of the threads to agree fails;
if values in memory are asked for too, a further thread does, which looks at them when the others are through.
"""

from collections.abc import Iterable, Mapping, Sequence

import pytest
from litmus import orders, requests
from litmus.suite import FENCE_TESTS, TESTS, Column, Litmus

from xccl_emu.check import verdict as kinds
from xccl_emu.guards.campaign.judge import JudgeBudget, searched, verdict_of
from xccl_emu.guards.campaign.programs import DATA, Instruction, Small

LARGE = JudgeBudget(states=1_000_000, seconds=60)
MACHINE: dict[Column, tuple[str, bool]] = {
    "sc": ("sc", True),
    "c": ("relaxed", True),
    "fifo_one": ("fifo", False),
    "fifo_two": ("fifo", True),
}
"""Column: memory order, and whether each address has a die of its own."""
DONE, AGREED = 1 << 3 | 4, 1 << 3 | 5
"""Words in a granule that no address is in: threads that are through, threads whose values are as asked."""
INSTRUCTION = {"": "store", "relaxed": "store", "no-order": "store4", "strong": "store_named"}
STORES = {"store": ("store0", ""), "store4": ("store2", "no-order"), "store_named": ("store3", "strong")}
"""By what a store asks for, the instruction that stands for it; and the lines of the interpreter that these are."""
NEVER = 31
"""No value of any test."""
TABLES = {"fences": FENCE_TESTS, "orders": orders.TESTS, "requests": requests.TESTS}
Question = tuple[str, Small, str, bool]
"""A test's name and configuration, a memory order, and whether the outcome may come out."""


def small_of(test: Litmus, own_die: bool) -> Small:
    """The test as a configuration, a thread on each die."""
    return small_at(test, {name: k << 3 if own_die else 4 * k for k, name in enumerate("xyz")})


def small_at(test: Litmus, words: dict[str, int]) -> Small:
    """The test with each address at a word of its own."""
    memory = {name: value for name, value in test.asked.items() if ":" not in name}
    asking = {int(name.split(":")[0]) for name in test.asked if ":" in name}
    threads = [_thread(test, t, words, len(asking), bool(memory)) for t in range(len(test.program))]
    if memory:
        threads.append(_observer(len(threads), len(asking), {words[name]: value for name, value in memory.items()}))
    orders = {line: order for line, order in STORES.values() if order} if any(map(any, test.asks)) else {}
    for ops, each in zip(test.program, test.asks, strict=True):
        for op, order in zip(ops, each, strict=True):
            line = {"u": "atomic_add1", "c": "compare_swap0"}.get(op[0])
            orders |= {line: order} if line and order else {}
    return Small(tuple(map(tuple, threads)), dies=3, asks=orders)


def _thread(test: Litmus, t: int, words: dict[str, int], asking: int, observed: bool) -> list[Instruction]:
    steps: list[tuple[Instruction, int | None]] = []  # with the value that must have come out
    for op, order in zip(test.program[t], test.asks[t], strict=True):
        if op[0] == "w":
            steps.append((Instruction(INSTRUCTION[order], words[op[1]], op[2]), None))
        elif op[0] == "r":
            steps.append((Instruction("load_named", words[op[1]]), test.asked.get(f"{t}:{op[2]}")))
        elif op[0] == "u":
            steps.append((Instruction("atomic_taken", words[op[1]], op[3]), test.asked.get(f"{t}:{op[2]}")))
        elif op[0] == "c":
            steps.append((Instruction("swap", words[op[1]], op[3], op[4]), test.asked.get(f"{t}:{op[2]}")))
        else:
            steps.append((Instruction("quiet" if op[0] == "f" else "fence"), None))
    agrees = any(value is not None for _, value in steps)
    through = [Instruction("quiet"), Instruction("atomic", DONE, 1)] if observed else []
    if not agrees:
        return [step for step, _ in steps] + through
    last = [Instruction("atomic", AGREED, 1)] if observed else _fail_as_last(asking)
    return _guarded(steps, last) + through


def _fail_as_last(asking: int) -> list[Instruction]:
    if asking == 1:
        return [Instruction("fail_unless", 7, NEVER)]
    taken = Instruction("atomic_taken", AGREED, 1)
    return [taken, Instruction("skip_unless", 0, asking - 1, 1), Instruction("fail_unless", 7, NEVER)]


def _guarded(steps: Sequence[tuple[Instruction, int | None]], last: list[Instruction]) -> list[Instruction]:
    """The steps and then the last ones, left for the end as soon as a value is not as it must be."""
    guarded = last
    for step, value in reversed(steps):
        guard = [] if value is None else [Instruction("skip_unless", 0, value, len(guarded))]
        guarded = [step, *guard, *guarded]
    return guarded


def _observer(threads: int, asking: int, values: dict[int, int]) -> list[Instruction]:
    steps: list[tuple[Instruction, int | None]] = [(Instruction("ge", DONE, threads), None)]
    # looked at in any case: two may write where somebody looks by name, else it is a race
    steps += [(Instruction("load_named", word), None) for word in values]
    wanted = {AGREED: asking, **values} if asking else values
    steps += [(Instruction("load_named", word), value) for word, value in wanted.items()]
    return _guarded(steps, [Instruction("fail_unless", 7, NEVER)])


def fits(test: Litmus, own_die: bool) -> bool:
    """Two addresses have room on one die."""
    return own_die or "z" not in test.addresses


@pytest.mark.parametrize(
    "column", ["c", *(pytest.param(other, marks=pytest.mark.slow) for other in ("sc", "fifo_one", "fifo_two"))]
)
def test_what_the_order_forbids_is_verified_and_what_it_allows_is_found(column: Column) -> None:
    """Both searches verify a test where its outcome is forbidden, and find the failing kernel where it is not."""
    order, own_die = MACHINE[column]
    tests = [test for test in TESTS if fits(test, own_die)]
    assert not _wrong((test.name, small_of(test, own_die), order, test.allows[column]) for test in tests)


@pytest.mark.parametrize(
    ("table", "order"), [(name, order) for name, tests in TABLES.items() for order in tests[0].allows]
)
def test_what_is_tabled_is_verified_or_found(table: str, order: str) -> None:
    """Both searches say what is tabled of fences, of writes to one address, and of requests that ask for orders."""
    assert not _wrong((t.name, small_at(t, _words_of(t.home)), order, t.allows[order]) for t in TABLES[table])


def _words_of(home: Mapping[str, int]) -> dict[str, int]:
    """A word for each address, those of a die in granules of their own."""
    granules: dict[int, int] = {}
    words = {}
    for name, die in sorted(home.items()):
        words[name] = die << 3 | (0, 4, DATA)[granules.setdefault(die, 0)]
        granules[die] += 1
    return words


def _wrong(questions: Iterable[Question]) -> list[str]:
    """Where a search says something else than is deserved."""
    wrong = []
    for name, small, order, allowed in questions:
        deserved = kinds.ASSERTION if allowed else kinds.VERIFIED
        for search in ("full", "merged"):
            said = verdict_of(searched(small.trial(order, None), search, LARGE))
            if said != deserved:
                wrong.append(f"{name}, {search}: {said}, not {deserved}")
    return wrong
