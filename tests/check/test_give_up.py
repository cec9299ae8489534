"""A right result or a declared give-up: a failure that a case declares is no violation."""

import numpy as np
import pytest

from tests.machine.support import small
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import ASSERTION, DATA_RACE, DEADLOCK, VERIFIED, VIOLATION, WRONG_BITS
from xccl_emu.guards.campaign.generate import ProgramCase
from xccl_emu.guards.campaign.judge import judge
from xccl_emu.guards.campaign.programs import ORDERS
from xccl_emu.lang import arrive, await_group, choose, fail, kernel, load, poll_eq, put, store
from xccl_emu.machine import small_pod
from xccl_emu.protocol import Bench, protocol

LATE = 7


@kernel
def ask_in_time(flag, out, early):
    """Wait for a flag until the time is up, which ends the run, or take the flag for set then."""
    late = 0
    seen = yield load(flag, sync="flag")
    while seen == 0 and late == 0:
        late = yield choose(2, sync="time-out")
        seen = yield load(flag, sync="flag")
    if seen == 0 and early == 0:
        yield fail(LATE)
    yield store(out, 5 + (seen == 0))


@kernel
def answer(flag, other, more):
    """Set the flag; then wait for what nobody writes, or write where nobody else does."""
    yield put(flag, 1)
    if more == 1:
        yield poll_eq(other, 1)
    if more == 2:
        yield store(other, 3)


@protocol
def in_time(bench: Bench, declared: int = 1, early: int = 0, more: int = 0, owners: str = "die1") -> None:
    """Die 1 asks die 0, and gives up when the time is up, at any moment."""
    pod = bench.pod(small_pod(2, app_bytes=32, meta_bytes=96, managed_bytes=0), draw_answers=True)
    if declared:
        bench.may_give_up(LATE, "no answer in time")
    bench.expect(pod.meta(1, 32), np.array([5]), "answer", owners=owners)
    bench.expect(pod.meta(0), np.array([0 if more < 2 else 4]), "other", owners="die0")
    pod.launch(answer, 0, [0], {"flag": pod.meta(1), "other": pod.meta(0), "more": more}, [pod.grant_meta("rw")])
    args = {"flag": pod.meta(1), "out": pod.meta(1, 32), "early": early}
    pod.launch(ask_in_time, 1, [0], args, [pod.grant_meta("rw", 1)])


@pytest.mark.parametrize("reduction", ["full", "merged"])
@pytest.mark.parametrize(
    ("sizes", "kind"),
    [
        ({}, ""),
        ({"owners": "drained"}, ""),
        ({"declared": 0}, ASSERTION),
        ({"early": 1}, WRONG_BITS),
        ({"more": 1}, DEADLOCK),
        ({"more": 2}, WRONG_BITS),
    ],
)
def test_a_declared_failure_ends_a_run_without_blame(sizes: dict[str, object], kind: str, reduction: str) -> None:
    """Everything else is found as before: another result, whoever blocks or is wrong while nobody has given up."""
    found = check(in_time(**sizes), reduction=reduction)
    assert found.verdict == (VIOLATION if kind else VERIFIED), found.reason
    assert kind in ("", found.violation and found.violation.kind)
    drawn = check(in_time(**sizes), policy="portfolio", schedules=200)
    assert kind in ("", drawn.violation and drawn.violation.kind)
    assert drawn.ok == (not kind)
    if not kind:
        certified = check(in_time(**sizes), certify=2.0)
        assert certified.certificate.complete, certified.reason
        assert certified.verdict == VERIFIED


@pytest.mark.parametrize("order", ORDERS)
def test_what_is_queued_before_a_give_up_is_judged(order: str) -> None:
    """A transfer that its core does not await races with a load, though the core then gives up."""
    racing = small("out m0.0; fail_unless 7 1 | load m0.0", gives_up=(LATE,))
    judged = judge(ProgramCase(racing), (order,))[0]
    assert judged.verdicts["full"] == DATA_RACE
    assert judged.contradictions == []


@kernel
def wait_alone():
    """Await a barrier of one core, without an arrival if the environment says so."""
    which = yield choose(2)
    if which == 0:
        yield arrive()
    yield await_group(0, sync="await")


@kernel
def give_up():
    """Give up at once."""
    yield fail(LATE)


@protocol
def hidden(bench: Bench) -> None:
    """A core that may wait for ever, in runs that another core ends."""
    pod = bench.pod(small_pod(2, app_bytes=32, meta_bytes=32, managed_bytes=0), draw_answers=True)
    bench.may_give_up(LATE, "at once")
    pod.launch(wait_alone, 0, [0], {}, [])
    pod.launch(give_up, 1, [0], {}, [])


def test_a_wait_that_a_give_up_ends_is_not_said_never_to_be() -> None:
    """Brute force sees the core wait, so the verdict must not say that nobody waits there."""
    found = check(hidden(), certify=2.0)
    assert (found.verdict, found.certificate.disagreement) == (VERIFIED, "")
    assert found.reach.never_waited == ()


def test_a_code_is_a_whole_number() -> None:
    """Anything else is refused where the case is laid out."""
    bench = Bench("relaxed", ())
    for declare in (bench.may_give_up, bench.stop):
        with pytest.raises(ConfigError, match="code='x': must be a whole number"):
            declare("x", "late")
