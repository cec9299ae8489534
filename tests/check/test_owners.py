"""When expected bytes are judged: when their owners have returned, or when all kernels are done."""

import numpy as np

from xccl_emu.check.check import check
from xccl_emu.check.sampling.sample import sample
from xccl_emu.check.verdict import VERIFIED, WRONG_BITS, Violation
from xccl_emu.lang import kernel, put, quiet, store
from xccl_emu.machine import small_pod
from xccl_emu.protocol.owners import Owners
from xccl_emu.testing import Bench, Case, protocol


@kernel
def push(target, value):
    """Write into the memory of another die."""
    yield put(target, value)
    yield quiet()


@kernel
def idle(word):
    """Do something unrelated."""
    yield store(word, 1)


def pushing(owners: Owners, sent: int = 7) -> Case:
    """Die 0 writes a word to die 1, which runs something unrelated."""

    @protocol
    def one_sided(bench: Bench) -> None:
        pod = bench.pod(small_pod(2, app_bytes=64, meta_bytes=64, managed_bytes=0))
        out = bench.wanted(1, np.array([7, 0, 0, 0]), "out", owners=owners)
        pod.launch(push, 0, [0], {"target": out.address, "value": sent}, [pod.grant(out, "w")])
        pod.launch(idle, 1, [0], {"word": pod.meta(1)}, [pod.grant_meta("w", 1)])

    return one_sided()


def sampled(case: Case) -> Violation | None:
    """What a few schedules of every policy show."""
    return sample(case.build("relaxed"), schedules=100).violation


def test_bytes_without_owners_are_judged_when_all_kernels_are_done() -> None:
    """It does not matter when the die returns that they are on; the message says when they were judged."""
    assert sampled(pushing(())) is None
    assert sampled(pushing("die0")) is None
    found = sampled(pushing((), sent=8))
    assert found.kind == WRONG_BITS
    assert "judged when all kernels were done" in found.message


def test_bytes_are_judged_when_their_owners_have_returned() -> None:
    """Whatever goes on elsewhere; the message names the owners."""
    found = sampled(pushing("die1"))
    assert found.kind == WRONG_BITS
    assert "0x00 instead of 0x07, judged when its owner die1.core0 had returned" in found.message


def test_a_search_judges_at_the_same_moments() -> None:
    """Without owners verified, with the wrong ones violated, and the message says when."""
    assert check(pushing(())).verdict == check(pushing("die0")).verdict == VERIFIED
    for owners, told in (("die1", "judged when its owner die1.core0 had returned"), ((), "judged when all kernels")):
        found = check(pushing(owners, sent=7 if owners else 8)).violation
        assert found.kind == WRONG_BITS
        assert told in found.message
