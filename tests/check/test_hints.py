"""What messages of races say where a name is missing."""

import pytest

from xccl_emu.check.check import check
from xccl_emu.check.verdict import TORN_METADATA, UNFINISHED
from xccl_emu.lang import kernel, load, load_line, put
from xccl_emu.protocol import Bench, Regions, protocol
from xccl_emu.testing import witness_text

from .traps import RACES, WRONG, Trap

SPINNING = Trap("spinning", "store 1.0 1; quiet | spin_plain 1.0 1", RACES)
WRITING = Trap("writing", "store m1.0 1; quiet | store m1.0 1; quiet; store m1.0 2", RACES)
ALONE = Trap("alone", "| spin_plain 1.0 1", WRONG)


@pytest.mark.parametrize("policy", ["exhaustive", "portfolio"])
def test_a_spin_on_an_unnamed_load_is_told_to_name_it(policy: str) -> None:
    """The race of a plain load with a write of a flag says, in message and table, what a load that waits wants."""
    verdict = check(SPINNING, policy=policy, schedules=200)
    assert "load(word)` waits for a flag, it wants a name: load(..., sync=" in verdict.violation.message
    assert "it wants a name" in witness_text(SPINNING, verdict)


def test_other_races_get_no_hint() -> None:
    """Two writes that meet wait for nothing."""
    assert "wants a name" not in check(WRITING, policy="portfolio", schedules=200).violation.message


@kernel
def take(data, flag):
    """Waits for a flag by a plain load, or only reads a word of data."""
    seen = 0
    while flag:
        seen = yield load(data)
        if seen:
            break
    if not flag:
        seen = yield load(data + 0)
    return seen


@kernel
def take_line(data, flag):
    """Waits for a flag by a plain load of 16 bytes."""
    seen = 0
    while seen != flag:
        seen = yield load_line(data)


@kernel
def give(data):
    """Writes the word."""
    yield put(data, 1)


@protocol
def read_early(bench: Bench, flag: int = 0, line: int = 0) -> None:
    """Nothing orders the load and the write."""
    regions = Regions(2)
    word = regions.meta("word")
    pod = bench.pod(regions.tight_pod(app_bytes=32, ub_bytes=32))
    regions.place(bench, pod)
    pod.launch(give, 0, [0], {"data": word.at(1)}, [word.grant(1, "w")])
    pod.launch(take_line if line else take, 1, [0], {"data": word.at(1), "flag": flag}, [word.grant(1, "r")])


@pytest.mark.parametrize("flag", [0, 1])
def test_only_a_load_that_a_loop_waits_for_gets_the_hint(flag: int) -> None:
    """A load of data that comes too early is a plain race: a name would hide it."""
    violation = check(read_early(flag=flag), policy="portfolio", schedules=100).violation
    assert violation.kind == TORN_METADATA
    assert ("it wants a name" in violation.message) == bool(flag)


def test_a_load_of_16_bytes_that_a_loop_waits_for_gets_the_hint() -> None:
    """The name is wanted of that request, which the hint says."""
    violation = check(read_early(flag=1, line=1), policy="portfolio", schedules=100).violation
    assert 'load_line(data)` waits for a flag, it wants a name: load_line(..., sync="...")' in violation.message


def test_a_kernel_that_does_not_end_is_told_with_its_loop() -> None:
    """What goes round and round by itself leaves the search unfinished, which says where."""
    verdict = check(ALONE)
    assert verdict.verdict == UNFINISHED
    assert "does not come to an end by itself" in verdict.reason
    assert "last = yield lang.load(word)" in verdict.reason
