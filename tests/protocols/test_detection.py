"""Cases that detect a fault return under it: they have a time-out of their own, and declare what they recover from."""

from collections.abc import Iterator

import pytest

from xccl_emu.check.check import check
from xccl_emu.check.faults import parse
from xccl_emu.check.trial import Trial
from xccl_emu.check.verdict import VERIFIED
from xccl_emu.protocol.registry import make, names

TIME_OUTS = ("time-out", "suspicion")
"""Synchronizations by which kernels ask the environment whether the time is up."""
DETECT = ("dispatch-membership", "fused-membership", "heartbeat", "kv-retry", "membership", "probe")


def detects(trial: Trial) -> bool:
    """Does a kernel end a wait because the time is up?"""
    sites = [site for kernel in trial.pod.kernels for site in kernel.sites]
    return any(site.operation == "choose" and site.sync in TIME_OUTS for site in sites)


def faults_of(trial: Trial) -> Iterator[str]:
    """Stops and cuts behind which no core that is left may wait for ever."""
    spec, per_die = trial.pod.spec, trial.pod.spec.cores_per_die
    homes = sorted({core // per_die for core in trial.pod.active_cores()})
    named = [spec.home(home) for home in homes]
    cuts = [f"cut:{one}-{other}".replace("die", "") for one in named for other in named if one != other]
    for text in (*(f"stop:{name}" for name in named), *cuts):
        fault = parse(text, spec)
        if fault.kind in trial.tolerated and not trial.may_wait(fault):
            yield text


def test_who_detects_is_known() -> None:
    """All shipped cases with a time-out, and no others, are those that are asked below."""
    assert tuple(name for name in names() if detects(make(name).build("relaxed"))) == DETECT


@pytest.mark.parametrize("name", DETECT)
def test_who_detects_a_fault_returns_under_it(name: str) -> None:
    """Each declares some, and every core that is left returns under each of them, at any moment."""
    faults = [*faults_of(make(name).build("relaxed"))]
    assert faults
    for fault in faults:
        found = check(make(name), fault=fault, policy="exhaustive", seconds=120)
        assert (found.verdict, found.recovery is None) == (VERIFIED, False), (fault, found.reason)
