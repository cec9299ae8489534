"""Each kind of violation: a small kernel that has it, found with the right words, and one beside it that has not."""

from dataclasses import replace

import numpy as np
import pytest

from tests.machine.support import small
from xccl_emu.base.errors import ConfigError
from xccl_emu.check import verdict
from xccl_emu.check.sampling.sample import replay, sample
from xccl_emu.check.trial import Expected, Trial
from xccl_emu.lang import MTU_IN, SCALAR, VECTOR, kernel, mtu_in, mtu_out, quiet, set_flag, v_add, v_fill, wait_flag
from xccl_emu.lang.requests import BF16, DMA, MTU_OUT, dma, load
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.pod import Buffer

from .monitor_support import ORDERS, app, found, kind_of, make_pod, trial_of


@kernel
def fill_granules(target, nbytes):
    """Write bytes of the data buffer to memory."""
    yield v_fill(0, 128, 9)
    yield set_flag(VECTOR, SCALAR, 0)
    yield wait_flag(VECTOR, SCALAR, 0)
    yield mtu_out(0, target, nbytes)


@kernel
def add_up(source, start):
    """Add to an accumulator in the data buffer that was filled before, if ``start``."""
    yield mtu_in(source, 64, 16)
    yield set_flag(MTU_IN, VECTOR, 0)
    yield wait_flag(MTU_IN, VECTOR, 0)
    if start:
        yield v_fill(0, 32)
    yield v_add(64, 0, 8, BF16)


@kernel
def copy_twice(source, target, event):
    """Copy two parts by DMA, by one descriptor if it is free, and read the first when one of them is there."""
    yield dma(source, target, 32, 0)
    yield dma(source + 32, target + 32, 32, 8)
    yield wait_flag(DMA, SCALAR, event)
    yield load(target)
    yield wait_flag(DMA, SCALAR, 8 - event)


@kernel
def divide(by):
    """Divide by an argument."""
    yield quiet()
    return 7 // by


def of_two_dies(text: str, without: tuple[str, ...] = ()) -> Trial:
    """Programs, each on a die of its own."""
    return small(text, dies=2, without=without).trial("relaxed", None)


REFUSED = [
    ("load 2.0", verdict.AREA_VIOLATION, "is not permitted"),
    ("set 2 1 1; set 2 1 1; eq 0.0 9", verdict.BAD_INSTRUCTION, "set while it is still set"),
    ("v_copy 63 0", verdict.BAD_INSTRUCTION, "outside of the data buffer"),
    ("fail_unless 17 1", verdict.ASSERTION, "failed with code 17"),
    ("set 2 1 1", verdict.LEFTOVER, "nothing has waited for it"),
    ("dma 1.0 1.4", verdict.LEFTOVER, "nothing has waited for it"),
    ("eq 0.0 9", verdict.DEADLOCK, "wants == 9"),
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("text", "kind", "words"), REFUSED)
def test_what_the_machine_refuses(text: str, kind: str, words: str, order: str) -> None:
    """Errors of the machine, a kernel's own failure and deadlock are found by kind, with the machine's message."""
    violation = found(small(f"store 0.4 1; {text}", dies=2).trial(order, None))
    assert violation.kind == kind
    assert words in violation.message
    assert "interpret" in violation.message


def test_codes_that_a_protocol_knows_are_explained() -> None:
    """The meaning of a code of `fail` stands in the message."""
    trial = replace(of_two_dies("fail_unless 17 1"), stops={17: "the other side is older"})
    assert "the other side is older" in found(trial).message


def test_a_store_replaces_what_an_addition_released() -> None:
    """Under `sc` who sees a store does not know what an addition to the same word released before it: a data race."""
    trial = small("store 0.4 1; add 1.0 1 | store 1.0 5 | ge 1.0 5; load 0.4", dies=3).trial("sc", None)
    assert _in_turn(trial, 0, 0, MTU_OUT, _NEXT, 2 * _NEXT, 2 * _NEXT) == verdict.TORN_METADATA


def test_a_dcci_that_is_switched_off_releases_nothing() -> None:
    """What its core has written is not known to who sees another core's flag in the line: a data race."""
    text = "store 1.0 5; put 0.4 1; quiet; dcci 1.0 | ge 1.0 5; load 0.4 | put 1.0 5"
    trial = small(text, dies=3, scalar_cache=2, without=("dcci",)).trial("sc", None)
    found = _in_turn(trial, 2 * _NEXT, 2 * _NEXT + MTU_OUT, 0, 0, MTU_OUT, 0, 0, _NEXT, _NEXT)
    assert found == verdict.TORN_METADATA


@pytest.mark.parametrize(("reads", "copied_first"), [
    ("in 1.4 4; tentative 1.4 8", False), ("tentative 1.4 8; in 1.4 4", True),
])  # fmt: skip
def test_a_tentative_read_does_not_stand_for_another(reads: str, copied_first: bool) -> None:
    """A copy over flags that were read races with that read, though the same pipe reads them tentatively, too."""
    trial = small(f"dma 0.0 1.4; wait 4 | {reads}; quiet", dies=2, flags=True).trial("sc", None)
    copies, looks = [0, DMA], [_NEXT, _NEXT, _NEXT + MTU_IN, _NEXT + MTU_IN]
    assert _in_turn(trial, *(copies + looks if copied_first else looks + copies)) == verdict.TORN_METADATA


@pytest.mark.parametrize("before", ["", "store m1.0 1; dcci m1.0; "])
def test_a_poll_begins_behind_a_line_that_is_written_back(before: str) -> None:
    """A copy over what a core polls races with it, also where a `dcci` that writes back is right before the poll."""
    text = f"dma 0.0 1.4; wait 4 | {before}ge 1.4 1"
    trial = small(text, dies=2, scalar_cache=3, memory={0: 1}).trial("sc", None)
    assert _in_turn(trial, *[_NEXT] * before.count(";"), 0, DMA) == verdict.TORN_METADATA


@pytest.mark.parametrize(("event", "kind"), [(0, None), (8, verdict.DATA_RACE)])
def test_a_descriptor_that_is_rung_again_does_not_stand_for_its_earlier_copy(event: int, kind: str | None) -> None:
    """The event of the second of two copies orders nothing after the first, which was made by the same descriptor."""
    pod = make_pod(order="sc")
    trial = trial_of(pod, [(copy_twice, 0, 0, {"source": app(pod), "target": app(pod) + 128, "event": event})])
    assert _in_turn(trial, 0, DMA, 0, DMA, 0, 0) == kind


@pytest.mark.parametrize(("flag", "kind"), [("store4 2.4 2", None), ("store4 2.4 1 8", verdict.DATA_RACE)])
def test_a_poll_of_half_a_word_sees_nothing_of_the_other_half(flag: str, kind: str | None) -> None:
    """Data behind a flag in one half of a word is not known to who polls the other half, which was there before."""
    text = f"store4 2.4 1 | store m2.0 5; quiet; {flag} | part_ge 2.4 1 2; load m2.0"
    trial = small(text, dies=3, memory={0o60: 1}).trial("sc", None)
    assert _in_turn(trial, 0, _NEXT, _NEXT, _NEXT, 2 * _NEXT, 2 * _NEXT) == kind


@pytest.mark.parametrize(("first", "late", "kind"), [
    ("load_named 1.4", True, verdict.DATA_RACE), ("load_named 1.5", True, verdict.DATA_RACE),
    ("load_named 1.5", False, None), ("store 1.4 7", False, verdict.DATA_RACE),
])  # fmt: skip
def test_a_load_of_an_old_line_sees_what_was_there_by_then(first: str, late: bool, kind: str | None) -> None:
    """Data behind a flag is known to who loads the flag if its line was fetched after the flag was set, and not else.

    Nor is it if the core has stored to the flag in its line: it sees that.
    """
    text = f"ub_store 5 0; out m1.0 0 0; quiet; put 1.4 1 | {first}; load_named 1.4; load m1.0"
    trial = small(text, dies=2, scalar_cache=4, memory={0o50: 1}).trial("sc", None)
    puts = [0, 0, MTU_OUT, 0, 0, MTU_OUT]
    assert _in_turn(trial, *([_NEXT, *puts] if late else [*puts, _NEXT]), _NEXT, _NEXT) == kind


_NEXT = ms.ACTORS_PER_CORE
"""From the scalar unit of a core to the next core's."""


def _in_turn(trial: Trial, *actors: int) -> str | None:
    """The kind of what a run in which these actors take one action each comes to; mtu-out takes all of a transfer."""
    whole = [ms.CHOICE_ALL if actor % _NEXT == MTU_OUT else 0 for actor in actors]
    violation = replay(trial, np.array(actors, np.int64) << ms.CHOICE_BITS | whole)
    return None if violation is None else violation.kind


def test_memory_that_nobody_wrote() -> None:
    """A read of it is found, byte by byte; what the host filled and the metadata area may be read."""
    trial = of_two_dies("load m0.5; load 0.5")
    violation = found(trial)
    assert violation.kind == verdict.UNWRITTEN_READ
    assert "read (scalar) by die 0 core 0, kernel interpret" in violation.message
    for nbytes, kind in ((7, verdict.UNWRITTEN_READ), (8, None)):
        assert kind_of(replace(trial, filled=(Buffer(0, trial.pod.managed(0, 40), nbytes),))) == kind


@pytest.mark.parametrize(("start", "kind"), [(1, None), (0, verdict.UNWRITTEN_READ)])
def test_an_accumulator_is_read(start: int, kind: str | None) -> None:
    """Adding to bytes of the data buffer that nothing was put in is a read of them."""
    pod = make_pod()
    assert kind_of(trial_of(pod, [(add_up, 0, 0, {"source": app(pod), "start": start})])) == kind


@pytest.mark.parametrize("order", ORDERS)
def test_wrong_bits_name_the_first_byte_and_its_writer(order: str) -> None:
    """What must be in memory at the end is compared, and the message says where it differs and who wrote there."""
    pod = make_pod(order=order)
    sides = [(fill_granules, 0, 0, {"target": app(pod, 1), "nbytes": 70})]
    good = Expected("the block", app(pod, 1), bytes([9] * 70 + [0] * 10))
    bad = Expected("the other block", app(pod, 1) + 64, bytes([9] * 6 + [0, 0, 1]))
    assert kind_of(trial_of(pod, sides, expected=[good])) is None
    pod = make_pod(order=order)
    violation = found(trial_of(pod, sides, expected=[good, bad]))
    assert violation.kind == verdict.WRONG_BITS
    assert "the other block is wrong at die1.app+0x48, byte 8 of 9: 0x00 instead of 0x01" in violation.message
    assert "kernel fill_granules" in violation.message


WAITING = "spin 0.0 1; store 1.0 1 | " + "load_named 1.0; " * 9 + "store 0.0 1; spin 1.0 1"
"""Two that wait for each other by loads, the second one late."""
UNNAMED = ("spin", "spin again")


def test_a_loop_that_waits_is_no_livelock_if_it_ends() -> None:
    """Two sides that wait for each other by loads come through, whoever a policy prefers."""
    assert kind_of(of_two_dies(WAITING)) is None


def test_nothing_that_is_switched_off_is_taken_for_a_synchronization() -> None:
    """A load with a name that is switched off orders nothing: reading behind it is a race."""
    assert kind_of(of_two_dies(WAITING, UNNAMED)) == verdict.TORN_METADATA


def test_a_loop_that_waits_for_nobody_is_a_livelock() -> None:
    """A run that goes on and on is cut, and who is still running is named."""
    trial = of_two_dies("spin 0.0 1")
    violation = sample(trial, "random", schedules=2).violation
    assert violation.kind == verdict.LIVELOCK
    assert "kernel interpret" in violation.message
    assert replay(trial, violation.actions).kind == verdict.LIVELOCK


def test_arithmetic_of_a_kernel_that_fails() -> None:
    """A division by zero is a violation with its line, that replays, and leaves the pod as it was."""
    pod = make_pod()
    trial = trial_of(pod, [(divide, 0, 0, {"by": 0})])
    before = pod.memory.copy(), pod.state.copy()
    violation = sample(trial).violation
    assert violation.kind == replay(trial, violation.actions).kind == verdict.ARITHMETIC
    assert f"kernel divide ({divide.sites[0].file}:{divide.sites[0].line + 1})" in violation.message
    assert np.array_equal(pod.memory, before[0])
    assert np.array_equal(pod.state, before[1])


@pytest.mark.parametrize("without", [(), UNNAMED])
def test_the_trial_is_as_it_was(without: tuple[str, ...]) -> None:
    """After sampling and replay, found or not, memory and state are those of the pod before its first action."""
    trial = of_two_dies(WAITING, without)
    before = trial.pod.memory.copy(), trial.pod.state.copy()
    result = sample(trial, schedules=20)
    assert (result.violation is not None) == bool(without)
    if result.violation is not None:
        replay(trial, result.violation.actions)
    assert np.array_equal(trial.pod.memory, before[0])
    assert np.array_equal(trial.pod.state, before[1])


def test_a_policy_that_does_not_exist() -> None:
    """An unknown policy is refused, with the known ones."""
    pod = make_pod()
    with pytest.raises(ConfigError, match="policy='best': must be one of portfolio, random"):
        sample(trial_of(pod, [(divide, 0, 0, {"by": 1})]), "best")
