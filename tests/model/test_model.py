"""What the emulator says of random programs is what the model says, which shares no code with it."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.check.traps import TRAPS, Trap
from xccl_emu.check import verdict as kinds
from xccl_emu.guards.campaign.judge import SEARCHES
from xccl_emu.guards.campaign.programs import ORDERS, Small, program

from . import spec
from .compare import Limits, compare, compare_drawn
from .draw import draw, loose
from .translate import Unknown, said

MODEL = ("program", "state", "pipes", "cache", "scalar", "machine", "races", "spec")
SMALL = Limits(model=1_000, brute=2_000)


@pytest.mark.parametrize("module", MODEL)
def test_the_model_imports_nothing_of_the_project(module: str) -> None:
    """Modules of the model import the standard library's typing and each other, and nothing else."""
    tree = ast.parse((Path(__file__).parent / f"{module}.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert {name.name for name in node.names} <= {"itertools"}
        if isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else [each.name for each in node.names]
            assert set(names) <= set(MODEL if node.level else ("typing", "collections.abc"))


def agree(seed: int, first: int, programs: int, limits: Limits) -> int:
    """Assert that all say the same of so many programs under each order; returns how many verdicts were compared."""
    searched = 0
    for number in range(first, first + programs):
        small = draw(seed, number)
        for order in ORDERS:
            try:
                compared = compare(small, order, limits)
            except Unknown:
                continue
            assert not compared.differences, f"{small}\n{order}: {compared.differences}"
            searched += compared.searched
    return searched


def test_model_and_emulator_agree_on_a_few_programs() -> None:
    """Outcomes, deadlocks and errors of brute force, and the verdicts of three searches, under four orders."""
    assert agree(0, 0, 25, SMALL) > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_model_and_emulator_agree(seed: int) -> None:
    """The same of more programs, with more states."""
    assert agree(seed, 0, 100, Limits()) > 500


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(5, 15))
def test_model_and_emulator_agree_on_many_programs(seed: int) -> None:
    """The same of a thousand programs each."""
    assert agree(seed, 0, 1_000, Limits()) > 5_000


def agree_loosely(seed: int, programs: int) -> Counter[str]:
    """Assert that drawn schedules find something where the model does; returns how many programs are how."""
    counted = Counter[str]()
    for number in range(programs):
        small = loose(seed, number)
        for order in ORDERS:
            try:
                compared = compare_drawn(small, order, SMALL, 200)
                counted["by reads"] += compared.verdict == "race" and _is_right(small.acquiring, order)
            except Unknown:
                continue
            assert not compared.differences, f"{small}\n{order}: {compared.differences}"
            counted[compared.verdict] += 1
    return counted


def _is_right(small: Small, order: str) -> bool:
    race, complete = spec.find_race(said(small, order), SMALL.model)
    return complete and race is None


def test_reads_that_do_not_acquire_are_as_the_model_has_them() -> None:
    """Model and monitor: some programs have races by such reads alone, and some are right with them."""
    counted = agree_loosely(0, 12)
    assert counted["by reads"] > 0
    assert counted[kinds.VERIFIED] > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
def test_reads_that_do_not_acquire_are_as_the_model_has_them_in_many_programs(seed: int) -> None:
    """The same of more programs."""
    assert agree_loosely(seed, 120)["by reads"] > 20


GIVES = "store m0.4 3; quiet; store 0.0 1"
LOOSE = {"poll_ge0": "no-acquire"}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("programs", "asks", "expected"), [
    ((GIVES, "ge 0.0 1; load m0.4"), LOOSE, "race"),
    ((GIVES, "ge 0.0 1; quiet; load m0.4"), LOOSE, kinds.VERIFIED),
    ((GIVES, "ge 0.0 1; fence; load m0.4"), LOOSE, "race"),
    (("store m0.4 3; store 0.0 1", "ge 0.0 1; quiet; store 1.4 1", "ge 1.4 1; load 1.0"), LOOSE, kinds.VERIFIED),
    (("store m0.0 1", "ge m0.0 1; store m0.0 2; store m0.0 3"), LOOSE, kinds.VERIFIED),
    ((GIVES, "ge 0.0 1; store m0.4 2"), LOOSE, "race"),
    ((GIVES, "ge 0.0 1; store m0.4 2", "ge m0.4 1"), LOOSE, "race"),
    ((GIVES, "eq 0.0 1; quiet; load m0.4"), {"poll_eq0": "no-acquire", "quiet0": "no-acquire"}, "race"),
])  # fmt: skip
def test_what_a_read_that_does_not_acquire_orders(
    programs: tuple[str, ...], asks: dict[str, str], expected: str, order: str
) -> None:
    """A quiet that does not say otherwise lets it acquire; to overwrite the word that it has seen is no race, another's
    poll of a word does not make it a flag for all."""
    compared = compare_drawn(Small(tuple(map(program, programs)), dies=2, asks=asks), order, Limits(), 400)
    assert not compared.differences
    assert compared.verdict == expected


def verdicts(small: Small) -> dict[str, str]:
    """The model's verdict under each order, once all others have said the same."""
    told = {}
    for order in ORDERS:
        compared = compare(small, order)
        assert not compared.differences
        assert compared.outcomes
        assert compared.searched == len(SEARCHES)
        told[order] = compared.verdict
    return told


RACES = dict.fromkeys(ORDERS, "race")
PASSED_ON = {
    "quiet": ("store 0.0 3; quiet; store 1.4 1", dict.fromkeys(ORDERS, kinds.VERIFIED)),
    "nothing": ("store 0.0 3; store 1.4 1", {**RACES, "sc": kinds.VERIFIED}),
    "a fence over two dies": ("store 0.0 3; fence; store 1.4 1", {**RACES, "sc": kinds.VERIFIED}),
    "a fence on one die": ("store 1.0 3; fence; store 1.4 1", dict.fromkeys(ORDERS, kinds.VERIFIED)),
    "one die": ("store 1.0 3; store 1.4 1", {**RACES, "sc": kinds.VERIFIED, "fifo": kinds.VERIFIED}),
}


@pytest.mark.parametrize("how", PASSED_ON)
def test_what_passes_a_message_on(how: str) -> None:
    """A word is written, a flag set, and the word read behind a poll: what must stand between, under each order."""
    writes, expected = PASSED_ON[how]
    word = writes.split()[1]
    assert verdicts(Small((program(writes), program(f"ge 1.4 1; load {word}")), dies=2)) == expected


def test_reads_by_transfers_overtake_each_other() -> None:
    """A core that pulls a flag and then its data may get new flag and old data, not with an event between."""
    seen = []
    for between in ("", "set 1 0; wait 1 0; "):
        reads = f"in 0.0 0; {between}in 0.4 1; quiet; ub_load 0 0; ub_load 0 1"
        whole = said(Small((program("store 0.4 1; store 0.0 1"), program(reads)), dies=2), "sc")
        told = whole.cores[1].ops[-1].addr
        seen.append({end[told] for end in spec.explore(whole).outcomes})
    assert seen == [{0o00, 0o01, 0o10, 0o11}, {0o00, 0o01, 0o11}]


@pytest.mark.parametrize("writes", ["put m0.4 1 1; put e.0 1 1", "outs m0.4 0 1"])
@pytest.mark.parametrize("flag", ["0.0", "1.4"])
def test_a_fence_covers_what_is_on_one_side_of_a_dies_edge(writes: str, flag: str) -> None:
    """One site writes the last bytes of die 0 and the first of die 1; a flag behind a fence tells of its own die's."""
    small = Small((program(f"{writes}; fence; store {flag} 1"), program(f"ge {flag} 1; load e.0")), dies=2)
    behind = dict.fromkeys(ORDERS, kinds.VERIFIED)
    assert verdicts(small) == (behind if flag == "1.4" else {**RACES, "sc": kinds.VERIFIED})


@pytest.mark.parametrize(
    ("programs", "expected"),
    [
        (
            ("ub_store 3; out m1.0; ge m1.0 1; store 1.4 1", "ge 1.4 1; load m1.0"),
            dict.fromkeys(ORDERS, kinds.VERIFIED),
        ),
        (("put m0.4 3 1; store m0.6 3",), RACES),
        (("store m0.6 3; put m0.4 3 1",), dict.fromkeys(ORDERS, kinds.VERIFIED)),
        (
            ("store m0.4 3; store 0.0 1", "ge 0.0 1; store m0.4 2"),
            {**RACES, "sc": kinds.VERIFIED, "fifo": kinds.VERIFIED},
        ),
        (("ne m0.1 1; store 0.0 1",), dict.fromkeys(ORDERS, kinds.VERIFIED)),
    ],
)
def test_what_the_definition_of_a_race_says(programs: tuple[str, ...], expected: dict[str, str]) -> None:
    """A poll of one's own write acquires; writes are ordered if visible, or of one core in turn."""
    assert verdicts(Small(tuple(map(program, programs)), dies=2)) == expected


@pytest.mark.parametrize("unit", [32, 128])
def test_a_poll_past_a_cache_sees_memory(unit: int) -> None:
    """A poll does not see the line that its own core is writing back, whatever becomes visible at once."""
    small = Small((program("store 1.4 1; dcci 1.4; eq 1.4"),), dies=2, atomic_bytes=unit, scalar_cache=5)
    for order in ORDERS:
        compared = compare(small, order, Limits(model=20_000, brute=20_000))
        assert not compared.differences


@pytest.mark.parametrize("trap", [each for each in TRAPS if each.name.startswith("padding") and not each.expected])
def test_padding_travels_and_is_not_used(trap: Trap) -> None:
    """The model says of the traps with padding what they deserve, and the searches say the same."""
    for order, verdict in verdicts(trap.small()).items():
        assert (verdict == kinds.VERIFIED) == (kinds.VERIFIED in trap.allows(order)), order
