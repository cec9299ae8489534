"""Programs as text, as JSON, as drawn; and what they do."""

from itertools import combinations

import pytest

from tests.machine.support import small
from xccl_emu.base.errors import ConfigError
from xccl_emu.guards.campaign.generate import CROSSED, ProgramCase, draw
from xccl_emu.guards.campaign.interpreter import OPERATIONS
from xccl_emu.guards.campaign.programs import DATA, EDGE, Instruction, Small, address_of, program
from xccl_emu.lang.requests import NO_ACQUIRE, ORDERS
from xccl_emu.machine.device.layout import ATOMIC_BYTES

CASES = [draw(7, number) for number in range(400)]


def test_text_is_read_as_it_was_written() -> None:
    """The text of each drawn program is that program again, pasted into a test or kept in a file."""
    for case in CASES:
        for one in case.small.programs:
            assert program("; ".join(map(str, one))) == one
        assert eval(str(case.small), {"Small": Small, "program": program}) == case.small
        assert ProgramCase.of_json(case.to_json()) == case


def test_a_program_is_told_by_seed_and_number() -> None:
    """The same numbers draw the same program, others hardly ever; all instructions are drawn, and all units."""
    assert draw(7, 3) == CASES[3]
    assert len({str(case) for case in CASES}) > 390
    assert {one.name for case in CASES for each in case.small.programs for one in each} == set(OPERATIONS)
    assert {case.small.atomic_bytes for case in CASES} == set(ATOMIC_BYTES)
    assert {case.small.cores_per_die for case in CASES} == {1, 2, 4}
    assert {far for case in CASES for far in case.small.far} == {EDGE, EDGE | DATA}
    assert all({case.fault != "" for case in CASES if case.small.launched == n} == {True, False} for n in (0, 1))
    cached = [case.small for case in CASES if case.small.scalar_cache]
    assert {order for small in cached for order in small.asks.values()} == {*ORDERS[1:], NO_ACQUIRE}


def features(case: ProgramCase) -> set[str]:
    """What of a program a reduction may know of."""
    small = case.small
    names = {one.name for each in small.programs for one in each}
    names &= {"tentative", "any", "v_add", "add_out", "choose", "signal", "dma"}
    pod = {"cache": small.scalar_cache, "flags": small.flags, "cpu": small.cpu, "units": small.atomic_bytes != 32}
    pod["gives up"] = small.gives_up
    return names | {name for name, has in pod.items() if has} | {case.fault.partition(":")[0]} - {""}


def test_features_meet() -> None:
    """Any two features that may stand in one program are drawn together within 8,000 programs."""
    met = {pair for n in range(8000) if n % 32 in CROSSED for pair in combinations(sorted(features(draw(7, n))), 2)}
    all_of_them = sorted({name for pair in met for name in pair})
    some = {"tentative", "any", "v_add", "add_out", "choose", "cache", "flags", "cpu", "gives up", "lose", "stop"}
    assert some <= set(all_of_them)
    faults = {"stop", "cut", "stall", "duplicate", "corrupt", "lose", "revive"}
    missing = {pair for pair in combinations(all_of_them, 2) if not faults.issuperset(pair)} - met
    assert missing == set()


@pytest.mark.parametrize("text", ["jump 1.0", "store 9.0", "store 1.x", "store 1.0 32", "store 1.0 -1"])
def test_what_is_no_program(text: str) -> None:
    """An unknown instruction, and an operand that is none or does not fit, are refused."""
    with pytest.raises(ConfigError, match="of a small program"):
        program(text)


def test_branches_and_data() -> None:
    """One branch is taken or the other, a put goes into one word, and words of managed memory hold data."""
    text = "load {}; skip_unless 0 1 1; store m0.1 5; skip_if 0 1 1; store m0.1 6; put_one 0.6 4; quiet"
    text += "; load m0.1; load 0.6"
    for word, seen in (("0.0", 1 * 64 + 5 * 8 + 4), ("0.1", 0 * 64 + 6 * 8 + 4)):
        small = Small((program(text.format(word)),), memory={0: 1})
        (outcome,) = small.naive("sc").outcomes
        assert outcome[8] == seen, "what was read stands behind the shared words"
        assert outcome[12 + 1] == seen // 8 % 8, "managed words stand behind those of metadata"


def test_dma_reaches_data() -> None:
    """DMA copies from any word to metadata, or to managed memory."""
    small = Small((program("dma m0.0 1; wait 4 0 0; dma_data 0.1 2; wait 4 0 0"),), memory={DATA: 3})
    (outcome,) = small.naive("relaxed").outcomes
    assert (outcome[1], outcome[12 + 2]) == (3, 3)


def ends(text: str, **more: object) -> set[tuple[int, ...]]:
    """All ends of a program of one core under `sc`: the words that are observed, without what the core returned."""
    one = small(text, **more)
    return {words[: one.n_words()] for words in one.naive("sc").outcomes}


def test_words_at_an_edge_and_of_a_cpu() -> None:
    """Stores side by side from the last word of die 0 on go to the first words of die 1; a CPU has words of its own."""
    (words,) = ends("stores m0.7 3 2; store c.1 4", dies=2)
    assert (words[24 + 7], words[40:42], words[48 + 1]) == (3, (3, 3), 4)
    pod = small("store e.0 1", dies=2).pod("sc")
    assert address_of(pod, program("store e.0")[0].a) == address_of(pod, program("store m0.7")[0].a) + 8


@pytest.mark.parametrize(("code", "copies"), list(enumerate((2, 4, 8, 9))))
@pytest.mark.parametrize("waits", [True, False])
def test_loops_of_copies(code: int, copies: int, waits: bool) -> None:
    """Two, four, eight or nine copies by DMA arrive, whoever waits for their events; the ninth waits for the first."""
    text = f"dmas 0.0 1.0 {code + 4 * waits}"
    for event in range(0 if waits else min(copies, 8)):
        text += f"; wait 4 0 {event}"
    pod = small(text, memory={0: 5}, dies=2).pod("relaxed")
    pod.run()
    words = pod.span(address_of(pod, program("load 1.0")[0].a), 64).view("int64").tolist()
    assert words == [5] * min(copies, 8) + [0] * (8 - min(copies, 8))


def test_launches_have_barriers_of_their_own() -> None:
    """Four cores in two launches meet in pairs: one pair goes on while the other one waits."""
    meeting = "arrive; await; store 0.0 1 | arrive; await | ge 0.0 1; arrive; await | arrive; await"
    assert small(meeting, cores_per_die=4).naive("sc").deadlocks
    assert not small(meeting, cores_per_die=4, launched=2).naive("sc").deadlocks


def test_a_word_has_its_name() -> None:
    """Words print as die and number, with an m before managed ones, e for an edge and c for a CPU."""
    assert str(Instruction("store", DATA | 1 << 3 | 2, 3)) == "store m1.2 3"
    assert str(Instruction("dma", EDGE | 2, EDGE)) == "dma e.2 e.0"
    assert str(Instruction("load", DATA | EDGE | 2)) == "load c.2"
    assert str(Instruction("dma", 1, 1 << 3)) == "dma 0.1 1.0"
