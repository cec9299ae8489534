"""What others take for races and is none: a ticket lock, a ring with credits of several readers, a sequence lock.

Each is verified under every order that keeps writes to one address, and refuted without what it needs.  (LL, the
barrier by dissemination and the one-shot all-reduce, which is double-buffered, ship: docs/records/proofs.md.)
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.lang import add, atomic_add, fence, kernel, load, poll_eq, poll_ge, put, quiet, store
from xccl_emu.machine import Pod, small_pod
from xccl_emu.testing import Bench, protocol

ORDERS = ("sc", "fifo", "relaxed")


@kernel
def count_by_ticket(ticket, serving, counter):
    """Count up when the own number is served, and serve the next."""
    mine = yield atomic_add(ticket, 1, sync="ticket")
    yield poll_eq(serving, mine, sync="served")
    value = yield load(counter)
    yield store(counter, value + 1)
    yield quiet(sync="count before serving")
    yield store(serving, mine + 1, sync="serve")


@kernel
def send_to_all(slots, tails, apart, credits, readers, chunks):
    """Write each chunk into the slot of every reader when all have given their credit for the one before."""
    for i in range(chunks):
        yield poll_ge(credits, readers * i, sync="credits")
        for r in range(readers):
            yield put(slots + r * apart, 100 + i)
            yield fence(sync="data before tail")
            yield put(tails + r * apart, i + 1)


@kernel
def take_all(slot, tail, credits, out, chunks):
    """Add up the chunks, and give a credit for each once it is read."""
    total = 0
    for i in range(chunks):
        yield poll_ge(tail, i + 1, sync="tail")
        value = yield load(slot)
        total += value
        yield add(credits, 1)
    yield store(out, total)


@kernel
def write_twice(sequence, first, second, times):
    """A writer of a sequence lock: odd while it writes, even when both words are the same again."""
    for i in range(times):
        yield store(sequence, 2 * i + 1, sync="odd")
        yield quiet(sync="odd before data")
        yield store(first, i + 1, sync="first")
        yield store(second, i + 1, sync="second")
        yield quiet(sync="data before even")
        yield store(sequence, 2 * i + 2, sync="even")


@kernel
def read_until_whole(sequence, first, second, out):
    """A reader: try again until the sequence was even and the same before and after."""
    before = 1
    after = 0
    a = 0
    b = 0
    while before != after or before % 2:
        before = yield load(sequence, sync="before")
        a = yield load(first, sync="read first")
        b = yield load(second, sync="read second")
        after = yield load(sequence, sync="after")
    yield store(out, b - a + 1)


def _pod(bench: Bench, dies: int) -> Pod:
    return bench.pod(small_pod(dies, app_bytes=0, meta_bytes=256, managed_bytes=0))


@protocol
def ticket_lock(bench: Bench) -> None:
    """Two dies count up once each; everything is at die 0."""
    pod = _pod(bench, 2)
    words = {"ticket": pod.meta(0), "serving": pod.meta(0, 32), "counter": pod.meta(0, 64)}
    bench.expect(words["counter"], np.array([2]), "counter", owners=["die0", "die1"])
    for die in range(2):
        pod.launch(count_by_ticket, die, [0], words, [pod.grant_meta("rw", 0)])


@protocol
def credit_ring(bench: Bench) -> None:
    """Die 0 sends three chunks to two others through one slot each."""
    readers, chunks = 2, 3
    pod = _pod(bench, 1 + readers)
    args: dict[str, Any] = {"slots": pod.meta(1), "tails": pod.meta(1, 32), "credits": pod.meta(0)}
    sizes = {"apart": pod.meta(2) - pod.meta(1), "readers": readers, "chunks": chunks}
    pod.launch(send_to_all, 0, [0], args | sizes, [pod.grant_meta("rw", die) for die in range(3)])
    for die in range(1, 1 + readers):
        own = {"slot": pod.meta(die), "tail": pod.meta(die, 32), "credits": pod.meta(0), "out": pod.meta(die, 64)}
        bench.expect(own["out"], np.array([sum(100 + i for i in range(chunks))]), f"sum {die}")
        pod.launch(take_all, die, [0], own | {"chunks": chunks}, [pod.grant_meta("rw", die), pod.grant_meta("rw", 0)])


@protocol
def sequence_lock(bench: Bench) -> None:
    """Die 0 writes two words twice, die 1 reads them."""
    pod = _pod(bench, 2)
    words = {"sequence": pod.meta(0), "first": pod.meta(0, 32), "second": pod.meta(0, 64)}
    out = pod.meta(1)
    bench.expect(out, np.array([1]), "equal")
    pod.launch(write_twice, 0, [0], words | {"times": 2}, [pod.grant_meta("rw", 0)])
    grants = [pod.grant_meta("r", 0), pod.grant_meta("rw", 1)]
    pod.launch(read_until_whole, 1, [0], words | {"out": out}, grants)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("what", [ticket_lock, credit_ring, sequence_lock])
def test_what_is_right_is_verified(what: Callable[[], Any], order: str) -> None:
    """No schedule of it is called a race or anything else."""
    found = check(what(), order=order)
    assert (found.verdict, found.violation) == (VERIFIED, None)


@pytest.mark.parametrize(
    ("what", "without"),
    [(ticket_lock, "count before serving"), (credit_ring, "data before tail"), (credit_ring, "credits"),
     (sequence_lock, "odd before data"), (sequence_lock, "data before even"), (sequence_lock, "after")],
)  # fmt: skip
def test_what_it_needs_is_needed(what: Callable[[], Any], without: str) -> None:
    """Without it something is found under relaxed, so what is verified could have been refuted."""
    assert check(what(), order="relaxed", without=[without]).verdict == VIOLATION
