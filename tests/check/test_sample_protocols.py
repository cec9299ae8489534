"""Sampling the shipped protocols: no false alarm, and what is found when a synchronization is switched off."""

import pytest

from xccl_emu.check import verdict
from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.sampling.sample import PORTFOLIO, monitor_of, sample, share
from xccl_emu.protocol.registry import make, names

from .monitor_support import ORDERS
from .witness_support import shows_again

A_FEW = 5 * len(PORTFOLIO)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", names())
def test_no_false_alarm(name: str, order: str) -> None:
    """Every shipped protocol passes some schedules of every policy, in every memory order."""
    result = sample(make(name).build(order), schedules=A_FEW)
    assert result.violation is None, result.violation
    assert result.schedules == A_FEW


def test_tails_by_dma_want_order_at_their_address() -> None:
    """Under an order in which an older tail may land on a newer one, send and receive by DMA wait for ever without the
    fence between them."""
    found = sample(make("sendrecv-dma").build("unordered", ["tails in order"]), schedules=A_FEW).violation
    assert found is not None
    assert found.kind == verdict.DEADLOCK


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("sendrecv", {"ranks": 4, "cores": 4, "chunks": 9}),
        ("sendrecv-dma", {"cores": 3, "granules": 3}),
        ("dispatch", {"ranks": 4, "cores": 3, "tokens": 3, "top_k": 2, "rounds": 3}),
        ("combine", {"ranks": 3, "cores": 2, "tokens": 2, "top_k": 2}),
        ("moe", {"ranks": 4, "cores": 2, "tokens": 2, "top_k": 2}),
        ("moe", {"ranks": 3, "tokens": 1, "path": "dma"}),
    ],
)
def test_no_false_alarm_where_it_is_larger(name: str, sizes: dict[str, int], order: str) -> None:
    """Several cores, DMA, more ranks than two: nothing is found in some seconds of the portfolio."""
    result = sample(make(name, **sizes).build(order), seconds=3)
    assert result.violation is None, result.violation


SENDRECV = [
    ("slot free", {verdict.DATA_RACE}),
    ("tail", {verdict.DEADLOCK}),
    ("chunk in buffer", {verdict.DATA_RACE, verdict.UNWRITTEN_READ}),
    ("data before tail", {verdict.DATA_RACE, verdict.UNWRITTEN_READ, verdict.BAD_INSTRUCTION}),
    ("tail in", {verdict.ASSERTION, verdict.UNWRITTEN_READ, verdict.DATA_RACE}),
    ("event", {verdict.TORN_METADATA}),
    ("shape", {verdict.TORN_METADATA}),
    ("ack", {verdict.DEADLOCK}),
    ("half free", {verdict.DATA_RACE}),
    ("slot read", {verdict.DATA_RACE, verdict.UNWRITTEN_READ}),
]
DISPATCH = [
    ("choices loaded", {verdict.DATA_RACE, verdict.UNWRITTEN_READ}),
    ("counts loaded", {verdict.DATA_RACE, verdict.UNWRITTEN_READ}),
    ("dispatch blocks free", {verdict.DATA_RACE}),
    ("message made", {verdict.DATA_RACE, verdict.UNWRITTEN_READ}),
    ("tokens visible", {verdict.DATA_RACE, verdict.UNWRITTEN_READ}),
    ("counts in", {verdict.TORN_METADATA, verdict.WRONG_BITS, verdict.UNWRITTEN_READ}),
    ("pull half full", {verdict.DATA_RACE, verdict.UNWRITTEN_READ}),
    ("dispatch ack", {verdict.DEADLOCK}),
]
COMBINE = [
    ("combine blocks free", {verdict.DATA_RACE}),
    ("rows visible", {verdict.DATA_RACE, verdict.UNWRITTEN_READ}),
    ("contribution in", {verdict.DATA_RACE, verdict.UNWRITTEN_READ}),
    ("combine ack", {verdict.DEADLOCK}),
]
NEEDED = [
    (name, sync, kinds)
    for name, rows in (("sendrecv", SENDRECV), ("dispatch", DISPATCH), ("combine", COMBINE))
    for sync, kinds in rows
]


@pytest.mark.parametrize(("name", "sync", "kinds"), NEEDED, ids=[f"{row[0]}-{row[1]}" for row in NEEDED])
def test_what_is_found_without_it(name: str, sync: str, kinds: set[str]) -> None:
    """A synchronization that is needed is found to be, at the first schedules, with a schedule that shows it again."""
    check = make(name)
    result = sample(check.build("relaxed", [sync]), schedules=A_FEW)
    assert result.violation.kind in kinds
    assert result.violation.found_after <= len(PORTFOLIO)
    assert shows_again(check.build("relaxed", [sync]), result.violation)


def test_slots_reused_before_they_are_acknowledged() -> None:
    """With 4 slots and 8 chunks every schedule shows the race, whoever goes first; the wrong bytes alone would show in
    at least 15 of 100 schedules of `pct` and `weights`, and of uniform random ones: no sender waits for a quiet."""
    trial = make("sendrecv", slots=4, chunks=8).build("relaxed", ["slot free"])
    assert [share(trial, policy, schedules=20) for policy in ml.POLICIES] == [1.0] * len(ml.POLICIES)
    alone = {policy: share(trial, policy, schedules=300, races=False) for policy in ("pct", "weights", "random")}
    assert min(alone.values()) >= 0.15


def test_what_several_cores_poll_is_learned() -> None:
    """Before anything is judged the monitor knows the fields of the protocol: one tail and one ack."""
    trial = make("sendrecv").build("relaxed")
    assert monitor_of(trial).learn()
    labels = {label.name: label for label in trial.labels}
    fields = sorted(labels[name].address // 32 for name in ("die1.meta.tail[0→1]", "die0.meta.ack[0→1]"))
    assert sorted(monitor_of(trial).known) == fields
