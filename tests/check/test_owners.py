"""When expected bytes are judged: when their owners have returned, or when all kernels are done."""

import numpy as np
import pytest

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION, WRONG_BITS
from xccl_emu.lang import add, fence, kernel, poll_eq, put
from xccl_emu.machine import small_pod
from xccl_emu.protocol import Bench, protocol

from .traps import OK, WRONG, Trap

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
def all_reduce(bench: Bench, fenced: int = 0, owners: str = "") -> None:
    """The sum of two values, on both dies."""
    pod = bench.pod(small_pod(2, app_bytes=32, meta_bytes=64, managed_bytes=0))
    for die in range(2):
        here, there = pod.meta(die), pod.meta(1 - die)
        bench.expect(here, np.array([12]), f"sum of die {die}", owners=owners or ())
        args = {"mine": 5 + 2 * die, "sums": here, "theirs": there, "told": here + 32, "tell": there + 32}
        pod.launch(reduce, die, [0], {**args, "fenced": fenced}, [pod.grant_meta("rw")])


@pytest.mark.parametrize("reduction", ["full", "merged"])
@pytest.mark.parametrize(
    ("sizes", "verdict", "due"),
    [
        ({}, VIOLATION, "die0 returned"),
        ({"fenced": 1}, VERIFIED, "die0 returned"),
        ({"owners": "drained"}, VERIFIED, "everything drained"),
        ({"owners": "die1"}, VIOLATION, "die1 returned"),
    ],
)
def test_a_result_must_be_there_when_its_kernel_returns(
    sizes: dict[str, object], verdict: str, due: str, reduction: str
) -> None:
    """A sum that comes only when all has drained is wrong, unless that is what was asked for; the verdict says it."""
    found = check(all_reduce(**sizes), reduction=reduction)
    assert (found.verdict, found.due[due][0]) == (verdict, "sum of die 0")
    sampled = check(all_reduce(**sizes), policy="portfolio", schedules=400)
    assert (sampled.ok, sampled.due) == (verdict == VERIFIED, found.due)
