"""Flags that are read by copies to the data buffer, in a loop: what synchronizes is the window that they lie in."""

import numpy as np
import pytest

from xccl_emu import lang
from xccl_emu.check import check as judge
from xccl_emu.check import verdict
from xccl_emu.lang import kernel, maps
from xccl_emu.machine.spec import small_pod
from xccl_emu.testing import Bench, protocol

SUM = maps.function("sum", maps.INT32)
ORDERS = ("sc", "fifo", "relaxed", "unordered")


@kernel
def tell(own, slot, flag, fenced):
    """Write a granule, and behind it a flag, by copies from the data buffer."""
    yield lang.mtu_in(own, 0, 32)
    yield lang.set_flag(lang.MTU_IN, lang.MTU_OUT, 0, sync="in buffer")
    yield lang.wait_flag(lang.MTU_IN, lang.MTU_OUT, 0, sync="in buffer")
    yield lang.mtu_out(0, slot, 32)
    if fenced:
        yield lang.quiet(sync="visible")
    yield lang.ub_store(32, 1)
    for i in range(1, 8):
        yield lang.ub_store(32 + 4 * i, 0)
    yield lang.set_flag(lang.SCALAR, lang.MTU_OUT, 1, sync="flag in buffer")
    yield lang.wait_flag(lang.SCALAR, lang.MTU_OUT, 1, sync="flag in buffer")
    yield lang.mtu_out(32, flag, 32)


@kernel
def gather(flags, count, slots, out):
    """Copy all flags to the data buffer until their sum says that all are there; then copy the granules out."""
    there = 0
    while there != count:
        yield lang.set_flag(lang.SCALAR, lang.MTU_IN, 0, sync="sum read")
        yield lang.wait_flag(lang.SCALAR, lang.MTU_IN, 0, sync="sum read")
        yield lang.mtu_in(flags, 0, count * 32)
        yield lang.set_flag(lang.MTU_IN, lang.VECTOR, 0, sync="flags in buffer")
        yield lang.wait_flag(lang.MTU_IN, lang.VECTOR, 0, sync="flags in buffer")
        yield lang.v_map(0, 256, count * 8, SUM)
        yield lang.set_flag(lang.VECTOR, lang.SCALAR, 0, sync="sum there")
        yield lang.wait_flag(lang.VECTOR, lang.SCALAR, 0, sync="sum there")
        there = yield lang.ub_load(256)
    yield lang.mtu_in(slots, 288, count * 32)
    yield lang.set_flag(lang.MTU_IN, lang.MTU_OUT, 1, sync="slots in buffer")
    yield lang.wait_flag(lang.MTU_IN, lang.MTU_OUT, 1, sync="slots in buffer")
    yield lang.mtu_out(288, out, count * 32)


@protocol
def told(bench: Bench, count: int = 2, fenced: int = 1, flags: int = 1, missing: int = 0) -> None:
    """Dies 1 and on tell die 0, which waits for all of them."""
    pod = bench.pod(small_pod(count + 1, app_bytes=512, meta_bytes=256, managed_bytes=256, ub_bytes=512))
    data = np.arange(count * 32, dtype=np.uint8)
    out = bench.wanted(0, data, "out", owners="die0")
    grants = [pod.grant(out, "w"), pod.grant_managed("r", 0), pod.grant_meta("rf" if flags else "r", 0)]
    args = {"flags": pod.meta(0), "count": count + missing, "slots": pod.managed(0), "out": out.address}
    pod.launch(gather, 0, [0], args, grants)
    for i in range(count):
        own = bench.filled(i + 1, data[32 * i : 32 * i + 32], "own")
        at = {"own": own.address, "slot": pod.managed(0, 32 * i), "flag": pod.meta(0, 32 * i), "fenced": fenced}
        pod.launch(
            tell, i + 1, [0], at, [pod.grant(own, "r"), pod.grant_managed("w", 0), pod.grant_meta("w", 0)]
        )  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_spin_over_flags_is_verified(count: int, order: str) -> None:
    """A loop that copies k flags and sums them ends, under every schedule, with the data that the flags tell of."""
    found = judge.check(told(count=count), order=order)
    assert (found.verdict, found.violation) == (verdict.VERIFIED, None)


@pytest.mark.parametrize("order", ["relaxed", "unordered"])
def test_without_the_quiet_it_races(order: str) -> None:
    """Data that is not visible before its flag is a race with the copy behind the loop."""
    found = judge.check(told(fenced=0), order=order)
    assert found.violation is not None
    assert found.violation.kind == verdict.DATA_RACE


SYNCS = ["in buffer", "visible", "flags in buffer", "sum there", "slots in buffer"]
"""Not those that the scalar unit sets: what it did is behind it when it queues the next instruction."""


@pytest.mark.parametrize("name", SYNCS)
def test_each_synchronization_is_needed(name: str) -> None:
    """The search finds what goes wrong without any one of the events in the loop, before and behind it."""
    assert judge.check(told(), without=[name]).verdict == verdict.VIOLATION


def test_brute_force_agrees() -> None:
    """A certificate by brute force and sampled schedules contradicts nothing that the search says of the loop."""
    found = judge.check(told(count=1), certify=20.0)
    assert found.verdict == verdict.VERIFIED
    assert found.certificate is not None
    assert found.certificate.agrees
    assert found.certificate.complete


def test_a_flag_that_never_comes_is_a_livelock() -> None:
    """A loop for one flag more than there are goes round for ever, and the search says so."""
    found = judge.check(told(count=1, missing=1))
    assert found.violation is not None
    assert found.violation.kind == verdict.LIVELOCK


def test_outside_of_a_window_of_flags_it_races() -> None:
    """A copy from a window without flags is a plain read, and races with the flag."""
    found = judge.check(told(flags=0))
    assert found.violation is not None
    assert found.violation.kind == verdict.TORN_METADATA
