"""The litmus operator in Ascend C: outcomes of the Python twins, and results files that refute what they must."""

import csv
import itertools
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.cli_support import as_json, invoke, printed, refusal
from tests.foreign_support import has_compiler
from tests.litmus import orders, suite
from tests.litmus.model import Outcome
from tests.litmus.on_machine import run, whole
from xccl_emu.base.errors import UnfinishedError
from xccl_emu.doors.ascendc import litmus
from xccl_emu.doors.cli import litmus as command

pytestmark = pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: Ascend C is not tested here")

HOMES: Mapping[str, Mapping[str, int]] = {
    name: dict(zip("xyz", dies, strict=True)) for name, dies in litmus.HOMES.items()
}
SUITE = {re.sub(r"[+.\-]", "_", test.name): test for test in (*suite.FENCE_TESTS, *orders.TESTS, *suite.TESTS)}
FEW = ["MP", "MP_f_po", "SB", "CoWW", "MP_s", "n6", "MP_c", "MP_c_f", "MP_p"]
EVERY = [
    pytest.param(name, marks=[] if name in FEW else pytest.mark.slow) for name in litmus.programs()
]  # fmt: skip


def uses_copies(program: litmus.LitmusTest) -> bool:
    """Whether anything but the scalar unit reads or writes."""
    return "C(" in program.text or "P(" in program.text


def of_suite(program: litmus.LitmusTest, without: str = "") -> tuple[tuple[suite.Op, ...], ...]:
    """A program as the suite has it, but for some operations."""
    kinds = {"W": "w", "C": "w", "R": "r", "P": "r", "F": "f", "S": "s"}
    made = []
    for thread in program.threads:
        ops = [op for op in thread if op.kind not in without]
        made.append(tuple(suite._parsed(kinds[op.kind].upper() + _rest(op))[0][0] for op in ops))
    return tuple(made)


def _rest(op: litmus.LitmusOperation) -> str:
    return {"W": op.cell + op.what, "C": op.cell + op.what, "R": op.what + op.cell, "P": op.what + op.cell}.get(
        op.kind, ""
    )


def twin(program: litmus.LitmusTest, order: str, barrier: str, homes: str) -> set[Outcome]:
    """The outcomes of the same program as the Python suite runs it."""
    puts = "".join("y" if op.kind == "C" else "n" for op in program.threads[0] if op.kind in "WC") or "n"
    without, pulls = "FS" if barrier == "empty" else "", "P(" in program.text
    found, explored = run(of_suite(program, without), order, HOMES[homes], puts=puts, pulls=pulls)
    assert whole(explored)
    return found


@pytest.mark.parametrize("name", EVERY)
def test_the_operator_has_the_outcomes_of_its_twin(name: str) -> None:
    """In each order, by each reading, and wherever cells are; a barrier of empty pipes is none if none is used."""
    program = litmus.programs()[name]
    readings = ("visible",) if uses_copies(program) else ("visible", "empty")
    for homes in litmus.HOMES:
        for order, barrier in itertools.product(litmus.ORDERS, readings):
            assert litmus.allowed(program, order, barrier, homes) == twin(program, order, barrier, homes), order


@pytest.mark.parametrize("name", EVERY)
def test_a_stronger_machine_allows_no_more(name: str) -> None:
    """Orders, and readings of a barrier, allow what stronger ones do: so the strongest that fits is the one to set."""
    program = litmus.programs()[name]
    for homes in litmus.HOMES:
        found = {
            (order, barrier): litmus.allowed(program, order, barrier, homes)
            for order in litmus.ORDERS for barrier in ("visible", "empty")
        }  # fmt: skip
        for stronger, weaker in zip(litmus.ORDERS, litmus.ORDERS[1:], strict=False):
            assert all(found[stronger, barrier] <= found[weaker, barrier] for barrier in ("visible", "empty"))
        assert all(found[order, "visible"] <= found[order, "empty"] for order in litmus.ORDERS)


def test_the_programs_are_those_of_the_suite() -> None:
    """Each has the text of the suite's test of its name, and those without atomics are all there."""
    known = litmus.programs()
    scalar = {name for name, program in known.items() if not uses_copies(program)}
    assert {name: of_suite(known[name]) for name in scalar} == {name: SUITE[name].program for name in scalar}
    plain = [test for test in suite.TESTS if not {op[0] for thread in test.program for op in thread} & {"u", "c"}]
    assert {re.sub(r"[+.\-]", "_", test.name) for test in plain} <= scalar
    assert len(scalar) >= 65


@pytest.mark.parametrize("order", litmus.ORDERS)
@pytest.mark.parametrize("barrier", ["visible", "empty"])
def test_results_of_a_machine_set_the_pod_as_it_is(order: str, barrier: str, tmp_path: Path) -> None:
    """All that a machine may come to, as a results file: it refutes exactly the machines that allow less."""
    chosen = ["SB", "MP", "CoWW", "MP_f_po", "SB_f_f", "R_f_f", "CoWW_f", "CoWW_s"]
    results = {
        name: dict.fromkeys(litmus.allowed(litmus.programs()[name], order, barrier), 3) for name in chosen
    }  # fmt: skip
    file = tmp_path / "results.csv"
    file.write_text(litmus.csv_of(results))
    told = as_json("litmus", "--read", str(file))
    is_visible = order == "sc" or barrier == "visible"  # where all is visible at once a barrier says nothing more
    assert told["set"] == [{"order": order, "barrier": "visible" if is_visible else "empty", "loads": "awaited"}]
    awaited = [model for model in told["models"] if model["loads"] == "awaited"]
    refuted = {(model["order"], model["barrier"]) for model in awaited if model["refuted_by"]}
    assert all(litmus.ORDERS.index(one) < litmus.ORDERS.index(order) or reads == "visible" for one, reads in refuted)


def test_three_programs_tell_the_orders_apart() -> None:
    """SB, MP and CoWW: no two orders allow the same of all three."""
    three = litmus.named(("SB", "MP", "CoWW"))
    sets = {tuple(litmus.allowed(program, order, "visible") for program in three) for order in litmus.ORDERS}
    assert len(sets) == len(litmus.ORDERS)


def test_the_counter_loop_comes_to_what_is_allowed_and_no_more(tmp_path: Path) -> None:
    """Many rounds on an emulated machine, by the operator that hardware runs: all allowed, a weak one seen."""
    text = printed("litmus", "SB", "MP", "MP_c_f", "--emulate", "relaxed", "--rounds", "300")
    file = tmp_path / "results.csv"
    file.write_text(text)
    results = litmus.read(file)
    assert {name: sum(told.values()) for name, told in results.items()} == dict.fromkeys(("SB", "MP", "MP_c_f"), 300)
    for name, told in results.items():
        assert told.keys() <= litmus.allowed(litmus.programs()[name], "relaxed", "visible")
    assert "set --order relaxed --barrier visible" in printed("litmus", "--read", str(file))


H200 = {"acq_block": True, "sc_block": True, "weak_block": True, "acq": False}
"""Results of an H200 (columns of litmus/h200.csv), and whether each load was awaited in them."""
IN_FLIGHT = {"LB", "WRC", "WWC", "IRIW", "ACK", "ACK_s", "ACKwait_f"}
"""Programs that came to what no machine has that awaits loads."""
FENCED = {"MP_po_f", "MP_f_f", "LB_f_f", "WRC_f_f", "IRIW_f_f", "CoRR", "SB_f_f"}
"""Programs in which no read may be made later."""
SOME = ("2_2W_s_s", "MP_s", "LB", "WRC", "CoWW")


@pytest.mark.parametrize("programs", [SOME, pytest.param((), marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize("name", H200)
def test_results_of_an_h200(name: str, programs: tuple[str, ...], tmp_path: Path) -> None:
    """Under `relaxed` the weaker reading of barriers has all outcomes; of one file only if loads are in flight."""
    machine, of, *rows = Path(__file__).with_name("litmus").joinpath("h200.csv").read_text().splitlines()
    found = csv.DictReader(rows)
    chosen = [
        f"{row['program']},{row['outcome']},{row[name]}"
        for row in found if not programs or row["program"] in programs
    ]  # fmt: skip
    (tmp_path / "results.csv").write_text("\n".join([machine, of, "program,outcome,count", *chosen, ""]))
    told = as_json("litmus", "--read", str(tmp_path / "results.csv"))
    loads = "awaited" if H200[name] else "flight"
    assert told["set"] == [{"order": "relaxed", "barrier": "empty", "loads": loads}]
    assert {*told["in_flight"]} == (set() if H200[name] else IN_FLIGHT & {*(programs or IN_FLIGHT)})
    by = {(model["order"], model["barrier"], model["loads"]): model["refuted_by"] for model in told["models"]}
    without_fence = {each["program"] for each in by["relaxed", "visible", loads]}
    assert "2_2W_s_s" in without_fence
    with_s = {each.name for each in litmus.named(()) if any(op.kind == "S" for ops in each.threads for op in ops)}
    assert without_fence <= with_s
    assert "NVIDIA H200" in told["made_by"][0]
    if not programs:
        assert told["n_rounds"] == 163_200_000


def test_loads_in_flight_come_later_but_pass_no_fence_and_no_access_to_their_cell() -> None:
    """The texts of three programs with reads made later, in each way."""
    later = litmus.in_flight()
    assert [each.text for each in later["MP_f_po"]] == [
        "W(x, 1) F W(y, 1), R(y, a) R(x, b)", "W(x, 1) F W(y, 1), R(x, b) R(y, a)",
    ]  # fmt: skip
    assert len(later["LB"]) == 4
    assert [len(later[name]) for name in ("LB_f_f", "CoRR", "CoRW1", "SB", "2_2W")] == [1] * 5


@pytest.mark.parametrize("name", EVERY)
def test_loads_in_flight_allow_what_awaited_loads_do(name: str) -> None:
    """No fewer outcomes than awaited: more where an H200 has shown more, no more where a fence follows each read."""
    program, may = litmus.programs()[name], {}
    for loads in litmus.LOADS:
        tests = litmus.variants(program, loads)
        may[loads] = frozenset().union(*(litmus.allowed(test, "relaxed", "visible") for test in tests))
    assert may["awaited"] <= may["flight"]
    assert name not in IN_FLIGHT or may["awaited"] != may["flight"]
    assert name not in FENCED or may["awaited"] == may["flight"]


def test_a_machine_whose_loads_are_in_flight_is_told_from_one_that_awaits_them(tmp_path: Path) -> None:
    """Its results name the programs that show it and its comments; its list has more outcomes."""
    file = tmp_path / "results.csv"
    text = printed("litmus", "LB", "SB", "2_2W", "CoRR", "--emulate", "relaxed", "--loads", "flight", "--rounds", "400")
    file.write_text("# a machine of tests, 2026-11-29\n" + text)
    told = as_json("litmus", "--read", str(file))
    assert told["set"] == [{"order": "relaxed", "barrier": "visible", "loads": "flight"}]
    assert (told["in_flight"], told["made_by"], told["n_rounds"]) == (["LB"], ["a machine of tests, 2026-11-29"], 1600)
    shown = printed("litmus", "--read", str(file))
    assert shown.startswith("a machine of tests, 2026-11-29\n")
    assert "explains LB" in shown
    found = [as_json("litmus", "LB", "--loads", loads)["litmus"][0]["outcomes"] for loads in litmus.LOADS]
    assert [len(outcomes) for outcomes in found] == [3, 4]


def test_impossible_results_refute_every_model(tmp_path: Path) -> None:
    """A read that goes back in time is allowed by nothing: exit code 1, and nothing to set."""
    file = tmp_path / "results.csv"
    file.write_text("program,outcome,count\nCoRR,1:a=1 1:b=0 x=1,2\n")
    assert "no such machine" in printed("litmus", "--read", str(file), code=1)
    assert as_json("litmus", "--read", str(file), code=1)["set"] == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no results"),
        ("program,outcome,count\nMP,1:a=1 1:b=0 x=1,2\n", "an outcome of MP has 1:a, 1:b, x, y"),
        ("# a machine\n\nprogram,outcome,count\nXX,x=1,2\n", ":4: `XX,x=1,2`: must be program,outcome,count"),
        ('program,outcome,count\nCoWW,"x=1\nCoWW,x=1,2\n', ':2: `CoWW,"x=1`'),
        ("program,outcome,count\nCoWW\n", ":2: `CoWW`"),
        ("program,outcome,count\nCoWW,x=1,many\n", ":2: `CoWW,x=1,many`"),
        ("program,outcome,count\nCoWW,x=1,-1\n", "a count is not negative"),
        ("name,x\nCoWW,x=1\n", "must be program,outcome,count"),
    ],
)
def test_a_file_that_is_none_is_refused(text: str, says: str, tmp_path: Path) -> None:
    """With its line, and what would be right."""
    file = tmp_path / "results.csv"
    file.write_text(text)
    assert says in refusal("litmus", "--read", str(file))


def test_wrong_usage_says_what_would_be_right(tmp_path: Path) -> None:
    """Unknown programs, orders and files, and options that do not go together."""
    assert "must be one of MP, " in refusal("litmus", "XX")
    assert "--emulate 'tso': must be one of sc, fifo, relaxed, unordered" in refusal("litmus", "--emulate", "tso")
    assert "takes no programs" in refusal("litmus", "MP", "--read", "x.csv")
    assert "cannot be read" in refusal("litmus", "--read", str(tmp_path / "none.csv"))
    assert "leave out --json" in refusal("litmus", "--emulate", "sc", "--json")
    assert "--workers 2: takes no --read" in refusal("litmus", "--emulate", "sc", "--workers", "2")
    with pytest.raises(litmus.ConfigError, match="7 lines of 64 bytes for each round"):
        litmus.counted(litmus.programs()["MP"], np.zeros(8, np.int64))


def test_a_program_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other programs may come to is shown, and the exit code is 3."""

    def nothing(program: litmus.LitmusTest, homes: str, loads: str) -> list[command.LitmusOutcome]:
        if program.name == "SB":
            raise UnfinishedError("no end")
        return []

    monkeypatch.setattr(command, "_allowed", nothing)
    shown = as_json("litmus", "SB", "MP", "--workers", "1", code=3)["litmus"]
    assert [one["program"] for one in shown] == ["MP"]


def test_the_list_shows_what_tells_orders_apart() -> None:
    """As JSON and as a table: what a weaker order allows, and what only a weaker barrier does."""
    (told,) = as_json("litmus", "MP_f_po")["litmus"]
    stale = next(each["allowed"] for each in told["outcomes"] if each["outcome"].startswith("1:a=1 1:b=0"))
    assert stale == {"visible": [], "empty": ["relaxed", "unordered"]}
    (told,) = as_json("litmus", "MP", "--homes", "own")["litmus"]
    stale = next(each["allowed"] for each in told["outcomes"] if each["outcome"].startswith("1:a=1 1:b=0"))
    assert stale["visible"] == ["fifo", "relaxed", "unordered"]
    code, out, _ = invoke("litmus", "MP_f_po")
    assert (code, out.count("empty") > 2) == (0, True)
