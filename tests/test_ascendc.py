"""Kernels in Ascend C: the example's verdicts, lines of its source, and what is refused by name."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import ascendc_twins
from tests.cli_support import as_json, printed
from tests.foreign_support import ROOT, has_clang, has_compiler
from xccl_emu.base.errors import ConfigError, KernelError, PointerError
from xccl_emu.check import check, verdict
from xccl_emu.cli import ending
from xccl_emu.doors import ascendc
from xccl_emu.doors.ascendc import sites
from xccl_emu.lang.in_turn import in_turn
from xccl_emu.machine.spec import small_pod
from xccl_emu.protocol import registry
from xccl_emu.protocol.streams import Streams
from xccl_emu.testing import Bench, protocol

pytestmark = pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: Ascend C is not tested here")
EXAMPLE = ROOT / "examples" / "ascendc" / "sendrecv.py"


def case_of(name: str, **sizes: Any) -> Any:
    """A case of the example."""
    return registry.make(f"{EXAMPLE}:{name}", **sizes)


def test_the_message_is_verified() -> None:
    """With a barrier and a `dsb` every schedule is fine by both readings, and the bits are right."""
    for barrier in ("visible", "empty"):
        found = check.check(case_of("Message", barrier=barrier))
        assert (found.verdict, found.violation) == (verdict.VERIFIED, None)


@pytest.mark.parametrize("name", ["NoBarrier", "NoDsb"])
def test_a_race_names_lines_of_the_source(name: str) -> None:
    """Without the barrier, or with one that only empties the pipes, the chunk races, at a line of the C++ source."""
    found = check.check(case_of(name))
    assert found.violation is not None
    assert found.violation.kind == verdict.DATA_RACE
    assert "sendrecv.cpp:" in found.violation.message


@pytest.mark.parametrize(
    ("name", "line", "codes"),
    [
        ("Message", "verified if barriers wait for visibility; verified if they only drain", (0, 0)),
        ("NoDsb", "verified if barriers wait for visibility; data race in 34 steps if they only drain", (1, 0)),
        ("NoBarrier", "", (1, 1)),
    ],
)
def test_both_readings_are_judged_where_nobody_chooses(
    name: str, line: str, codes: tuple[int, int], tmp_path: Path
) -> None:
    """One line says both, the exit code is that of the weaker, or of the chosen one; without a barrier none is read."""
    out = ("--out", str(tmp_path / "kept.json"))
    told = printed("check", f"{EXAMPLE}:{name}", *out, code=codes[0])
    assert (line in told, "if they only drain" in told) == (True, bool(line))
    assert "if they" not in printed("check", f"{EXAMPLE}:{name}", "--barrier", "visible", *out, code=codes[1])


def test_each_reading_that_is_verified_is_confirmed() -> None:
    """The stronger reading gets second opinions of its own, also where the weaker is refuted."""
    found = as_json("check", f"{EXAMPLE}:NoDsb", "--confirm-seconds", "20", "--out", "/dev/null", code=ending.WRONG)
    assert found["confirmation"] is None
    assert found["stronger"]["confirmation"]["opinions"]


def test_both_readings_are_in_the_json() -> None:
    """What was read, and the whole verdict by it, beside that of the weaker."""
    told = as_json("check", f"{EXAMPLE}:NoDsb", "--out", "/dev/null", code=ending.WRONG)
    assert (told["verdict"], told["stronger"]["verdict"]) == ("violation", "verified")
    assert told["stronger"]["read"] == {"barrier": "visible"}


def test_without_its_barrier_it_races() -> None:
    """A barrier is switched off by its name, and then the chunk races."""
    kernel = case_of("NoDsb").kernel("send")
    name = next(site.sync for site in kernel.sites if site.sync.startswith("PipeBarrier"))
    found = check.check(case_of("NoDsb", barrier="visible"), without=[name])
    assert found.violation is not None
    assert found.violation.kind == verdict.DATA_RACE


@pytest.mark.parametrize("name", ["in filled", "out filled", "in freed", "out freed"])
def test_each_event_of_a_queue_is_needed(name: str) -> None:
    """With more chunks than buffers the search finds the race without each of the events of both queues."""
    assert check.check(case_of("Message", chunks=4)).verdict == verdict.VERIFIED
    found = check.check(case_of("Message", chunks=4), without=[name])
    assert found.verdict == verdict.VIOLATION


@pytest.mark.parametrize("order", ["sc", "fifo", "relaxed", "unordered"])
@pytest.mark.parametrize(
    ("name", "sizes", "how"),
    [
        ("NoDsb", {"barrier": "visible"}, "visible"),
        ("NoDsb", {"chunks": 4, "barrier": "visible"}, "visible"),
        ("NoDsb", {}, "empty"),
        ("Message", {}, "empty, dsb"),
        ("Message", {"barrier": "visible"}, "visible, dsb"),
        ("NoBarrier", {}, "none"),
    ],
)
def test_a_search_sees_the_states_of_the_twins(
    name: str, sizes: dict[str, Any], how: str, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels in Python that make the same requests get the same verdict, by as many states and transitions."""
    found = check.check(case_of(name, **sizes), order=order)
    ascendc_twins.instead(monkeypatch, how)
    twin = check.check(case_of(name, **sizes), order=order)
    assert found.verdict == twin.verdict
    assert (found.violation and found.violation.kind) == (twin.violation and twin.violation.kind)
    assert (found.states, found.transitions, found.actions) == (twin.states, twin.transitions, twin.actions)
    if (name, order) == ("NoDsb", "relaxed") and how == "visible":
        assert found.states == {2: 16, 4: 113}[sizes.get("chunks", 2)]


REFUSED = {name: f"AscendC::{name}(a);" for name in ("Barrier", "CastImpl", "OOMCheckAddrRange")}
"""The names that are refused, each in a statement."""


def test_what_is_missing_is_refused_by_name(tmp_path: Path) -> None:
    """Each name that the header has not is named by the compiler, and stands on the page."""
    file, body = tmp_path / "k.cpp", "\n".join(REFUSED.values())
    file.write_text(
        '#include "kernel_operator.h"\nextern "C" __global__ __aicore__ void k(GM_ADDR a)\n'
        f"{{ AscendC::PipeBarrier<PIPE_ALL>(); {body} }}\n"
    )
    with pytest.raises(KernelError, match="OOMCheckAddrRange is not in xccl_emu's header") as refused:
        assert ascendc.ascend_kernel(file, "k").sites
    page = (ROOT / "docs" / "records" / "ascendc.md").read_text("utf-8")
    assert [name for name in REFUSED if f"`{name}`" not in page or name not in str(refused.value)] == []


def test_what_is_there_is_found_by_name() -> None:
    """Each other name of the page compiles."""
    file = ROOT / "tests" / "ascendc_sources" / "names.cpp"
    assert ascendc.ascend_kernel(file, "names").sites
    page = (ROOT / "docs" / "records" / "ascendc.md").read_text("utf-8")
    there = set(re.findall(r"AscendC::(\w+);", file.read_text("utf-8")))
    assert sorted(name for name in there if f"`{name}`" not in page) == []


def test_a_tiling_struct_has_the_fields_of_the_source() -> None:
    """Fields that the struct does not have, or has, are refused by name; values have the layout of the compiler."""
    kernel = case_of("Message").kernel("send")
    packed = ascendc.Tiling("MessageTiling", {"chunks": 2, "chunkElements": 8}).packed(kernel)
    assert packed.view("u4").tolist() == [2, 8]
    with pytest.raises(ConfigError, match=r"missing: \['chunkElements'\], unknown: \['more'\]"):
        ascendc.Tiling("MessageTiling", {"chunks": 2, "more": 8}).packed(kernel)
    with pytest.raises(ConfigError, match="no such struct"):
        ascendc.Tiling("Other").packed(kernel)
    with pytest.raises(ConfigError, match="barrier='late'"):
        ascendc.ascend_kernel(kernel.file, "send", barrier="late")


@protocol
def twice(bench: Bench, events: str = "binary", count: int = 2) -> None:
    """Blocks copied by one core, with one event between the pipes that copy."""
    pod = bench.pod(small_pod(1, app_bytes=1024, ub_bytes=256))
    data = np.arange(1, 8 * count + 1, dtype=np.float32)
    own, out = bench.filled(0, data, "own"), bench.wanted(0, data, "out", owners="die0")
    kernel = ascendc.ascend_kernel(ROOT / "tests" / "ascendc_sources" / "twice.cpp", "twice", events=events)
    args = {"source": own.address, "target": out.address, "count": count}
    ascendc.launch(bench, pod, kernel, 0, [0], args, [pod.grant(own, "r"), pod.grant(out, "w")])


@pytest.mark.parametrize(
    ("events", "count", "said"),
    [
        ("binary", 1, ""),
        ("binary", 2, verdict.BAD_INSTRUCTION),
        ("counted", 2, ""),
        ("counted", 3, verdict.BAD_INSTRUCTION),
    ],
)
def test_two_readings_of_events(events: str, count: int, said: str) -> None:
    """An event that is set again while nobody has consumed it is told, or counted, which goes as far as two."""
    found = check.check(twice(events=events, count=count))
    assert (found.violation.kind if found.violation else "") == said


@protocol
def counts(bench: Bench, dies: int = 2, cores: int = 1, count: int = 1) -> None:
    """Blocks add their numbers to a row of die 0, and copy them to their own die."""
    pod = bench.pod(small_pod(dies, cores, app_bytes=2048, ub_bytes=128))
    numbers = np.arange(dies * cores * 8 * count, dtype=np.int32).reshape(dies, cores, -1) - 5
    sums = bench.wanted(0, numbers.sum((0, 1), dtype=np.int32), "sums", owners="drained")
    kernel = ascendc.ascend_kernel(ROOT / "tests" / "ascendc_sources" / "counts.cpp", "counts")
    for die in range(dies):
        own, copy = bench.filled(die, numbers[die], "own"), bench.wanted(die, numbers[die], "copy", owners=f"die{die}")
        starts = {"mine": own.address, "copy": copy.address}
        args = {name: [at + 32 * count * core for core in range(cores)] for name, at in starts.items()}
        grants = [pod.grant(own, "r"), pod.grant(copy, "w"), pod.grant(sums, "rw")]
        given = {**args, "all": sums.address, "count": count}
        ascendc.launch(bench, pod, kernel, die, list(range(cores)), given, grants)


@pytest.mark.parametrize(("order", "sizes"), [("sc", (2, 1, 1)), ("relaxed", (2, 1, 2)), ("unordered", (2, 2, 1))])
def test_copies_that_add(order: str, sizes: tuple[int, int, int]) -> None:
    """From SetAtomicAdd to SetAtomicNone copies add, in whatever order they come; behind it they do not."""
    found = check.check(counts(*sizes), order=order)
    assert found.violation is None
    assert found.verdict == verdict.VERIFIED


def test_copies_of_other_numbers_do_not_add(tmp_path: Path) -> None:
    """SetAtomicAdd of floats, of which a sum depends on the order, does not compile, and the compiler says why."""
    text = (ROOT / "tests" / "ascendc_sources" / "counts.cpp").read_text("utf-8")
    (tmp_path / "counts.cpp").write_text(text.replace("SetAtomicAdd<int32_t>", "SetAtomicAdd<float>"))
    with pytest.raises(KernelError, match="SetAtomicAdd of other elements than int32_t"):
        assert ascendc.ascend_kernel(tmp_path / "counts.cpp", "counts").sites


@protocol
def in_sequence(bench: Bench, times: int = 2, cores: int = 2) -> None:
    """The blocks of a die add to a row, several times, and then one kernel more copies the row for each block."""
    pod = bench.pod(small_pod(1, cores, app_bytes=4096, ub_bytes=128))
    numbers = np.arange(cores * 8, dtype=np.int32).reshape(cores, -1) + 3
    total = numbers.sum(0, dtype=np.int32) * times
    own, sums, copy = bench.filled(0, numbers), bench.wanted(0, total, "sums"), bench.wanted(0, numbers, "copy")
    out = bench.wanted(0, np.tile(total, (cores, 1)), "out", owners="die0")
    counts, twice = (
        ascendc.ascend_kernel(ROOT / "tests" / "ascendc_sources" / f"{name}.cpp", name, stack_words=200)
        for name in ("counts", "twice")
    )
    streams, block = Streams(bench, pod), 32 * np.arange(cores)
    grants = [pod.grant(own, "r"), pod.grant(copy, "w"), pod.grant(sums, "rw"), pod.grant(out, "w")]
    args = {"mine": [*(own.address + block)], "copy": [*(copy.address + block)], "all": sums.address, "count": 1}
    for _ in range(times):
        ascendc.launch(bench, pod, counts, 0, range(cores), args, grants, streams=streams)
    args = {"source": sums.address, "target": [*(out.address + block)], "count": 1}
    ascendc.launch(bench, pod, twice, 0, range(cores), args, grants, streams=streams)
    streams.put()


@pytest.mark.parametrize(("times", "order"), [(1, "sc"), (2, "relaxed"), (3, "unordered")])
def test_launches_in_sequence(times: int, order: str) -> None:
    """A kernel is launched several times on the same memory, and another one behind it; each sees what came before."""
    found = check.check(in_sequence(times), order=order)
    assert (found.verdict, found.violation) == (verdict.VERIFIED, None)


def test_launches_that_are_not_compiled_alike_are_refused() -> None:
    """Kernels with two readings of events, or one in C, cannot share a core's stream."""
    file = ROOT / "tests" / "ascendc_sources" / "twice.cpp"
    kernels = tuple(ascendc.ascend_kernel(file, "twice", events=events) for events in ascendc.EVENTS)
    with pytest.raises(KernelError, match="all in Ascend C, with one barrier, events, defines, paddings and include"):
        in_turn(kernels)


@pytest.mark.nojit
@pytest.mark.parametrize("raw", ["(__ubuf__ int32_t *)AscendC::get_imm(64)", "(__gm__ int32_t *)a"])
def test_a_pointer_that_is_followed_is_a_request_or_told(raw: str, tmp_path: Path) -> None:
    """A raw store to the data buffer or to global memory is made, or ends the run by an error with its line."""
    (tmp_path / "k.cpp").write_text(
        '#include "kernel_operator.h"\nextern "C" __global__ __aicore__ void k(GM_ADDR a)\n'
        f"{{\n    AscendC::PipeBarrier<PIPE_ALL>();\n    auto *raw = {raw};\n    *raw = 1;\n"
        "    AscendC::PipeBarrier<PIPE_ALL>();\n}\n"
    )
    bench = Bench("sc", ())
    pod = bench.pod(small_pod(1, app_bytes=1024))
    kernel = ascendc.ascend_kernel(tmp_path / "k.cpp", "k")
    ascendc.launch(bench, pod, kernel, 0, [0], {"a": pod.meta(0)}, [pod.grant_meta("rw")])
    if has_clang():
        pod.run()
        return
    with pytest.raises(PointerError, match=r"k\.cpp:6.*cannot be judged"):
        pod.run()


@protocol
def through(bench: Bench, source: str, count: int = 3) -> None:
    """Blocks copied by one core, by a kernel of a source in tests/ascendc_sources."""
    pod = bench.pod(small_pod(1, app_bytes=1024, ub_bytes=256))
    data = np.arange(1, 8 * count + 1, dtype=np.float32)
    own, out = bench.filled(0, data, "own"), bench.wanted(0, data, "out", owners="die0")
    kernel = ascendc.ascend_kernel(ROOT / "tests" / "ascendc_sources" / f"{source}.cpp", source)
    args = {"source": own.address, "target": out.address, "count": count}
    ascendc.launch(bench, pod, kernel, 0, [0], args, [pod.grant(own, "r"), pod.grant(out, "w")])


def test_a_cut_of_an_event_takes_all_that_sets_it_and_waits_for_it() -> None:
    """Buffers in turns, whose events are set at two places: without them the third copy races, and nothing hangs."""
    assert check.check(through("pingpong")).verdict == verdict.VERIFIED
    kinds = {"MTE3_MTE2, line 15": verdict.DATA_RACE, "MTE2_MTE3, line 21": verdict.UNWRITTEN_READ}
    assert list(through("pingpong").syncs) == [*kinds]
    for name, kind in kinds.items():
        found = check.check(through("pingpong"), without=[name])
        assert (found.violation and found.violation.kind) == kind
    assert check.check(through("pingpong", count=2), without=["MTE3_MTE2, line 15"]).verdict == verdict.VERIFIED


@pytest.mark.parametrize(
    ("calls", "names"),
    [
        ("S0 W0 S0 W0", "1 1 3 3"),
        ("S0 S1 W0 W1", "1 2 1 2"),
        ("Si Sj Wi Wj", "1 1 1 1"),
        ("Wi Si", "2 2"),
        ("Si Si Wi", "1 1 1"),
        ("S0 S0 W0 S1 W1", "1 1 1 4 4"),
    ],
)
def test_what_a_cut_of_an_event_takes(calls: str, names: str) -> None:
    """Literal numbers are told apart; pairs that follow each other too; else all of one direction go together."""
    kinds = {"S": "SetFlag", "W": "WaitFlag"}
    lines = [f"{kinds[each[0]]}<HardEvent::MTE2_V>({each[1:]});" for each in calls.split()]
    text = "\n".join(['# 1 "k.cpp"', *lines])
    found = list(sites.names(sites.calls(text, "own")))
    assert found == [f"MTE2_V, line {n}" for n in names.split()]


@pytest.mark.parametrize(
    ("cut", "line", "says"),
    [
        ("S_MTE3, line 26", 28, "that the scalar unit wrote are used before an event"),
        ("PipeBarrier, line 21", 22, "wrote are used by another one before a PipeBarrier<PIPE_V>"),
        ("V_S, line 23", 25, ""),
    ],
)
def test_hazards_inside_a_core_are_a_reading(cut: str, line: int, says: str) -> None:
    """Bytes that a core may use too early are a violation where hazards are open, at the line that uses them."""
    resolved, case = through("hazards"), through("hazards").with_pod_options(hazards="open")
    assert check.check(resolved, without=[cut]).verdict == (verdict.VERIFIED if says else verdict.VIOLATION)
    assert check.check(case).verdict == verdict.VERIFIED
    found = check.check(case, without=[cut]).violation
    assert found is not None
    assert f"hazards.cpp:{line})" in found.message
    assert (found.kind == verdict.ASSERTION, says in found.message) == (bool(says), True)


def test_more_ranges_than_are_kept_are_told() -> None:
    """Ranges that nothing has settled are kept to a number; one more, and the run says that it judges no further."""
    for count in (12, 13):
        found = check.check(through("scattered", count=count).with_pod_options(hazards="open")).violation
        assert (found is None) == (count == 12)
        assert found is None or "are not judged" in found.message


def test_more_ranges_than_are_kept_matter_to_open_hazards_alone() -> None:
    """Where hazards are resolved nothing is kept."""
    assert check.check(through("scattered", count=13)).verdict == verdict.VERIFIED


@protocol
def together(bench: Bench) -> None:
    """A row that one block hands to another, with a `SyncAll` in between and nothing else."""
    pod = bench.pod(small_pod(1, 2, app_bytes=512, ub_bytes=64))
    data = np.arange(1, 9, dtype=np.float32)
    own, slot = bench.filled(0, data, "own"), bench.wanted(0, data, "slot", owners="drained")
    out = bench.wanted(0, data, "out", owners="die0.core1")
    kernel = ascendc.ascend_kernel(ROOT / "tests" / "ascendc_sources" / "together.cpp", "together")
    args = {"own": own.address, "slot": slot.address, "out": out.address}
    grants = [pod.grant(own, "r"), pod.grant(slot, "rw"), pod.grant(out, "w")]
    ascendc.launch(bench, pod, kernel, 0, [0, 1], args, grants)


@pytest.mark.parametrize("barrier", ["visible", "empty"])
@pytest.mark.parametrize("sync_all", ["drains", "arrives"])
def test_two_readings_of_sync_all(barrier: str, sync_all: str) -> None:
    """Who rests on it alone is right if it holds a barrier that waits for visibility, and else races."""
    found = check.check(together().with_pod_options(barrier=barrier, sync_all=sync_all))
    assert (found.violation is None) == ((barrier, sync_all) == ("visible", "drains"))
    assert together().build("relaxed").open_readings == {"barrier", "sync_all"}
