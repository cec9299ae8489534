"""When expected bytes are judged: when their owners have returned, or when all kernels are done."""

from pathlib import Path

import numpy as np
import pytest
from cli_support import as_json, printed, refusal

from tests.testing import cases
from xccl_emu.base.errors import ReplayError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION, WRONG_BITS
from xccl_emu.check.witness.replay_file import Witness
from xccl_emu.lang import add, fence, kernel, poll_eq, put
from xccl_emu.machine import small_pod
from xccl_emu.protocol import Bench, protocol
from xccl_emu.protocol.registry import known, make
from xccl_emu.protocol.sequence import Sequence, Stage

from .traps import OK, WRONG, Trap

LATE = f"{cases.__file__}:late"

PUSHED = "put m1.0 7; quiet | store 1.4 1"
"""Die 0 writes a word to die 1, which runs something unrelated."""


@pytest.mark.parametrize("policy", ["exhaustive", "portfolio"])
@pytest.mark.parametrize(
    ("value", "owners", "told"),
    [
        (7, (), ""),
        (7, (0,), ""),
        (8, (), "judged when all kernels were done"),
        (7, (1,), "0x00 instead of 0x07, judged when its owner die1.core0 had returned"),
    ],
)
def test_bytes_are_judged_when_their_owners_have_returned(
    value: int, owners: tuple[int, ...], told: str, policy: str
) -> None:
    """Whatever goes on elsewhere; without owners it does not matter when the die returns that they are on."""
    pushed = Trap("pushed", PUSHED, WRONG if told else OK, {0o50: value}, owners)
    verdict = check(pushed, policy=policy, schedules=600)
    assert verdict.ok == (not told)
    assert (verdict.verdict == VERIFIED) == (not told and policy == "exhaustive")
    if told:
        assert verdict.violation.kind == WRONG_BITS
        assert told in verdict.violation.message


@kernel
def reduce(mine, sums, theirs, told, tell, fenced):
    """Add the own value to both sums, tell the other, and wait until it has told."""
    yield add(sums, mine)
    yield add(theirs, mine)
    if fenced:
        yield fence()
    yield put(tell, 1)
    yield poll_eq(told, 1)


@protocol
def all_reduce(bench: Bench, fenced: int = 0, named: str = "") -> None:
    """The sum of two values, on both dies."""
    pod = bench.pod(small_pod(2, app_bytes=32, meta_bytes=64, managed_bytes=0))
    for die in range(2):
        here, there = pod.meta(die), pod.meta(1 - die)
        bench.expect(here, np.array([12]), f"sum of die {die}", owners=named or ())
        args = {"mine": 5 + 2 * die, "sums": here, "theirs": there, "told": here + 32, "tell": there + 32}
        pod.launch(reduce, die, [0], {**args, "fenced": fenced}, [pod.grant_meta("rw")])


@pytest.mark.parametrize("reduction", ["full", "merged"])
@pytest.mark.parametrize(
    ("sizes", "owners", "verdict", "due"),
    [
        ({}, "returned", VIOLATION, "die0 returned"),
        ({"fenced": 1}, "returned", VERIFIED, "die0 returned"),
        ({"named": "drained"}, "returned", VERIFIED, "everything drained"),
        ({"named": "die1"}, "returned", VIOLATION, "die1 returned"),
        ({}, "drained", VERIFIED, "everything drained"),
        ({"named": "die1"}, "drained", VIOLATION, "die1 returned"),
    ],
)
def test_a_result_must_be_there_when_its_kernel_returns(
    sizes: dict[str, object], owners: str, verdict: str, due: str, reduction: str
) -> None:
    """A sum that comes only when all has drained is wrong, unless that is what was asked for; the verdict says it.

    What the case names is not changed by the option of the run.
    """
    case = all_reduce(**sizes).with_pod_options(owners=owners)
    found = check(case, reduction=reduction)
    assert (found.verdict, found.due[due][0]) == (verdict, "sum of die 0")
    sampled = check(case, policy="portfolio", schedules=400)
    assert (sampled.ok, sampled.due) == (verdict == VERIFIED, found.due)


def test_an_option_of_the_run_says_when_unnamed_bytes_are_due(tmp_path: Path) -> None:
    """By default a word is wrong that comes after the return, and the message names the option by which it is right."""
    out = ("--out", str(tmp_path / "found.json"))
    assert "owners='drained' or --owners drained waits" in " ".join(printed("check", LATE, *out, code=1).split())
    found = as_json("check", LATE, "--owners", "drained")
    assert (found["verdict"], found["due"]) == (VERIFIED, {"everything drained": ["word"]})
    assert found["configuration"] == {"value": 7, "written": 7, "owners": "drained"}
    assert "owners" not in as_json("check", LATE, "--owners", "returned", *out, code=1)["configuration"]
    assert "--owners die1: must be one of returned, drained" in refusal("check", LATE, "--owners", "die1")


def test_a_witness_is_replayed_as_its_owners_were_read(tmp_path: Path) -> None:
    """A file and a line say when bytes were due; on a case that reads it otherwise they are refused."""
    file = tmp_path / "found.json"
    printed("check", LATE, "--owners", "drained", "--written", "8", "--out", str(file), code=1)
    witness = Witness.load(file)
    for kept in (str(file), witness.to_line()):
        told = printed("check", LATE, "--replay", kept, code=1)
        assert ("judged when all kernels were done" in " ".join(told.split()), "owners drained" in told) == (True, True)
    with pytest.raises(ReplayError, match="owners='drained', not None"):
        witness.trial(make(LATE, written=8))


def test_a_sequence_of_calls_reads_owners_as_it_is_asked_to() -> None:
    """The bytes of all of its calls are due at the same moments."""
    drained = Sequence(known(LATE), (Stage({"owners": "drained"}),))
    assert [each.cores for each in drained.build("relaxed").expected] == [()]
    assert [each.cores for each in Sequence(known(LATE), (Stage(),)).build("relaxed").expected] == [(1,)]
