"""Compare-and-swap: a lock of it excludes in every order, and one that fails changes nothing."""

import itertools

import numpy as np
import pytest

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.lang import compare_swap, kernel, load, quiet, store
from xccl_emu.machine import Pod, small_pod
from xccl_emu.machine.pod import POLICIES
from xccl_emu.testing import Bench, protocol
from xccl_emu.timing.run import VirtualTime

from .support import ORDERS


@kernel
def count_locked(lock, counter, released):
    """Count up under a lock, with a quiet before it is given back or without."""
    held = 1
    while held:
        held = yield compare_swap(lock, 0, 1, sync="lock")
    value = yield load(counter)
    yield store(counter, value + 1)
    if released:
        yield quiet()
    yield compare_swap(lock, 1, 0, sync="unlock")


@kernel
def swap_twice(word):
    """Swap what is there, then try again with what is there no more."""
    first = yield compare_swap(word, 5, 7)
    second = yield compare_swap(word, 5, 9)
    return first * 16 + second


@protocol
def locked(bench: Bench, released: int = 1) -> None:
    """Two dies count up once each; lock and counter are at die 0."""
    pod = bench.pod(small_pod(2, app_bytes=0, meta_bytes=64, managed_bytes=0))
    counter = pod.meta(0, 32)
    bench.expect(counter, np.array([2]), "counter", owners=("die0", "die1"))
    for die in range(2):
        args = {"lock": pod.meta(0), "counter": counter, "released": released}
        pod.launch(count_locked, die, [0], args, [pod.grant_meta("rw", 0)])


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_a_lock_of_swaps_excludes(order: str) -> None:
    """Two that count under a lock are verified in every order, by brute force too; so is who needs the quiet."""
    verdict = check(locked(), order=order, certify=1.0)
    assert (verdict.verdict, verdict.certificate.disagreement) == (VERIFIED, "")
    without = check(locked(released=0), order=order)
    assert without.verdict == (VERIFIED if order in ("sc", "fifo") else VIOLATION)


@pytest.mark.parametrize(("order", "policy"), [*itertools.product(ORDERS, POLICIES), ("sc", VirtualTime())])
def test_a_swap_returns_what_was_there_and_one_that_fails_changes_nothing(order: str, policy: object) -> None:
    """The second of two swaps of the same value fails, by every policy; in time, under sc."""
    pod = Pod(small_pod(2, app_bytes=64, meta_bytes=64, managed_bytes=0), order=order, policy=policy)
    pod.memory[pod.meta(1)] = 5
    launch = pod.launch(swap_twice, 0, [0], {"word": pod.meta(1)}, [pod.grant_meta("rw", 1)])
    pod.run()
    assert launch.results == [5 * 16 + 7]
    assert pod.memory[pod.meta(1)] == 7
