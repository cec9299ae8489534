"""Bytes that are lost: who may read them how, in every judge; and what may be lost by which name."""

import numpy as np
import pytest

from xccl_emu.base.errors import ConfigError, ReplayError
from xccl_emu.check.check import check
from xccl_emu.check.faults import Fault, parse
from xccl_emu.check.verdict import UNDEFINED, VERIFIED
from xccl_emu.guards.campaign import judge
from xccl_emu.guards.campaign.generate import ProgramCase, draw
from xccl_emu.guards.campaign.programs import ORDERS, Small, program
from xccl_emu.lang import DMA, MTU_IN, SCALAR, dma, kernel, load, mtu_in, poll_any, poll_ge, set_flag, store, wait_flag
from xccl_emu.machine import Pod, small_pod
from xccl_emu.testing import Bench, protocol, witness_text

from .witness_support import shows_again

SPEC = small_pod(2, app_bytes=64, meta_bytes=64, managed_bytes=0)


@kernel
def read(how, data, told, out):
    """Read 32 bytes in some way, and perhaps look before whether they are lost."""
    if how == 0:
        yield load(data)
    elif how == 1:
        yield poll_ge(data, 1)
    elif how == 2:
        yield poll_any((data, 0, 1))
    elif how == 3:
        yield dma(data, out, 32, 0)
        yield wait_flag(DMA, SCALAR, 0)
    elif how == 4 or how == 5:
        yield mtu_in(data, 0, 32, tentative=how == 5)
        yield set_flag(MTU_IN, SCALAR, 0)
        yield wait_flag(MTU_IN, SCALAR, 0)
    elif how == 6:
        gone = yield load(told, sync="told")
        if gone == 0:
            yield load(data)
    else:
        yield store(data, 1)


@protocol
def reader(bench: Bench, how: int = 0) -> None:
    """Die 1 reads what die 0 may lose."""
    pod = bench.pod(SPEC)
    data = bench.filled(0, np.ones(4, np.int64))
    out = pod.alloc(1, 32)
    grants = [pod.grant(data, "rw"), pod.grant(out, "w"), pod.grant_meta("r", 0)]
    args = {"how": how, "data": data.address, "told": pod.meta(0), "out": out.address}
    pod.launch(read, 1, [0], args, grants)
    bench.may_lose("data", data.address, 32, told=pod.meta(0))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("how", range(8))
def test_who_reads_what_is_lost(how: int, order: str) -> None:
    """Plain reads are violations, also behind a look; a tentative one that nobody uses, and a write, are none."""
    right = how in (5, 7)
    for policy in ("exhaustive", "portfolio"):
        found = check(reader(how=how), fault="lose:die0:data", order=order, policy=policy, schedules=300, seconds=60)
        assert (found.violation is None) == right, policy
        assert right or (found.violation is not None and found.violation.kind == UNDEFINED)


def test_a_witness_says_what_is_lost() -> None:
    """It replays, and names the loss and the read; by the area of the die too."""
    for fault in ("lose:die0:data", "lose:die0:app", "lose:die0"):
        found = check(reader(), fault=fault, policy="exhaustive")
        assert found.violation is not None
        assert shows_again(reader().build("relaxed"), found.violation)
        told = witness_text(reader(), found)
        what = {"lose:die0": "die0"}.get(fault, fault.removeprefix("lose:").replace(":", "."))
        assert f"the bytes of {what.replace('die0.data', 'data')} are lost" in told
        assert "are lost, and are read" in found.violation.message


def test_other_areas_may_go() -> None:
    """Nobody reads metadata here, nor managed data, nor what die 1 has."""
    for fault in ("lose:die0:meta", "lose:die0:managed", "lose:die1"):
        assert check(reader(), fault=fault, policy="exhaustive").verdict == VERIFIED


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("lose:die1", Fault("lose", 1)),
        ("lose:die0:block 1@3", Fault("lose", 0, at=3, area="block 1")),
        ("lose:cpu0:meta", Fault("lose", 0, area="meta")),
    ],
)
def test_losses_as_text(text: str, fault: Fault) -> None:
    """They are read, and printed."""
    assert parse(text) == fault
    assert parse(str(fault)) == fault


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("meta", 0, 8), "name='meta': must be a new name"),
        (("data", 0, 8), "name='data': must be a new name"),
        (("a@b", 0, 8), "name='a@b': must be a new name"),
        (("x", 0, 0), "of at least one byte"),
        (("x", 1 << 40, 8), "are not all in the memory"),
        (("x", 0, 32, 24), "told=24: must be an aligned word of memory outside of the bytes"),
        (("x", 0, 8, 12), "told=12: must be an aligned word"),
    ],
)
def test_what_cannot_be_lost(asked: tuple[str, int, int], says: str) -> None:
    """Names that there are, bytes that there are not, and a word that would be lost with them."""
    pod = Pod(SPEC)
    pod.may_lose("data", 0, 8)
    with pytest.raises(ConfigError, match=says):
        pod.may_lose(*asked)
    for name in "bcd":
        pod.may_lose(name, 0, 8)
    with pytest.raises(ConfigError, match=r"may be lost \(at most 4\)"):
        pod.may_lose("e", 0, 8)


def test_a_loss_is_not_taken_for_another() -> None:
    """A schedule with a loss that the case does not name does not fit it."""
    found = check(reader(), fault="lose:die0:data", policy="exhaustive")
    assert found.violation is not None

    @protocol
    def nameless(bench: Bench) -> None:
        pod = bench.pod(SPEC)
        data = bench.filled(0, np.ones(4, np.int64))
        args = {"how": 0, "data": data.address, "told": 0, "out": 0}
        pod.launch(read, 1, [0], args, [pod.grant(data, "rw")])

    with pytest.raises(ReplayError):
        shows_again(nameless().build("relaxed"), found.violation)


@pytest.mark.parametrize(
    ("texts", "fault", "right"),
    [
        (("store m0.1 5; quiet; store 1.4 1", "ge 1.4 1; load m0.1"), "lose:die0:managed", False),
        (("store m0.1 5; quiet; store 1.4 1", "ge 1.4 1; load m0.1"), "lose:die1:managed", True),
        (("store m0.1 5; quiet; store 1.4 1", "ge 1.4 1; dma m0.1 1.0; wait 4 0"), "lose:die0:managed", False),
        (("in m0.0 0 2; quiet", "quiet"), "lose:die0:meta", True),
    ],
)
def test_judges_agree(texts: tuple[str, ...], fault: str, right: bool) -> None:
    """Brute force and drawn schedules, on programs as campaigns draw them."""
    case = ProgramCase(Small(tuple(map(program, texts)), memory={32: 1}), fault=fault)
    for found in judge.judge(case, ORDERS):
        assert not found.contradictions
    trial = case.small.trial("relaxed", None)
    from xccl_emu.check.search.every_fault import FaultySearch

    found = FaultySearch(trial, parse(fault, trial.pod.spec), max_states=20_000, seconds=20).run()
    assert (found.actions is None) == right


def test_the_campaign_draws_losses() -> None:
    """Judges agree on some of them."""
    cases = [case for number in range(6, 400, 16) if (case := draw(7, number)).fault.startswith("lose")]
    assert len(cases) > 10
    for case in cases[:8]:
        assert not [wrong for found in judge.judge(case, ("relaxed",)) for wrong in found.contradictions], str(case)
