"""What messages of races say to whoever forgot a name."""

import numpy as np
import pytest

from xccl_emu.check.check import check
from xccl_emu.check.verdict import UNFINISHED
from xccl_emu.lang import kernel, load, quiet, store
from xccl_emu.testing import Bench, protocol, witness_text

from .small import on_dies, say


@kernel
def spin_unnamed(flag):
    """Wait for a flag by loads that nobody can tell from plain ones."""
    seen = 0
    while seen != 1:
        seen = yield load(flag)


@kernel
def write_twice(flag):
    """Two writes that a reader may meet."""
    yield store(flag, 1)
    yield quiet()
    yield store(flag, 2)


@protocol
def spinning(bench: Bench) -> None:
    """Die 1 spins on a word of die 0."""
    on_dies(bench, {0: say, 1: spin_unnamed})


@protocol
def writing(bench: Bench) -> None:
    """Two dies write a word, nobody loads."""
    pod = on_dies(bench, {0: say, 1: write_twice})
    bench.expect(pod.meta(1), np.array([2]), "word")


@pytest.mark.parametrize("policy", ["exhaustive", "portfolio"])
def test_a_spin_on_an_unnamed_load_is_told_to_name_it(policy: str) -> None:
    """The race of a plain load with a write of a flag says, in message and table, what a load that waits wants."""
    verdict = check(spinning(), policy=policy, schedules=200)
    assert "load(flag)` waits for a flag, it wants a name: load(..., sync=" in verdict.violation.message
    assert "it wants a name" in witness_text(spinning(), verdict)


def test_other_races_get_no_hint() -> None:
    """Two writes that meet wait for nothing."""
    verdict = check(writing(), policy="portfolio", schedules=200)
    assert "wants a name" not in verdict.violation.message


@protocol
def alone(bench: Bench) -> None:
    """A die spins on a word that nobody writes."""
    on_dies(bench, {1: spin_unnamed})


def test_a_kernel_that_does_not_end_is_told_with_its_loop() -> None:
    """What goes round and round by itself leaves the search unfinished, which says where."""
    verdict = check(alone())
    assert verdict.verdict == UNFINISHED
    assert "does not come to an end by itself" in verdict.reason
    assert "seen = yield load(flag)" in verdict.reason
