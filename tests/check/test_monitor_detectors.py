"""Each kind of violation: a small kernel that has it, found with the right words, and one beside it that has not."""

from collections.abc import Sequence

import numpy as np
import pytest

from xccl_emu.check import verdict
from xccl_emu.check.sampling.sample import replay, sample
from xccl_emu.check.trial import Expected, Trial
from xccl_emu.errors import ConfigError, KernelError
from xccl_emu.lang import (
    MTU_IN,
    SCALAR,
    VECTOR,
    dma,
    fail,
    kernel,
    load,
    mtu_in,
    mtu_out,
    poll_eq,
    quiet,
    set_flag,
    store,
    ub_load,
    v_add,
    v_fill,
    wait_flag,
)
from xccl_emu.lang.requests import BF16
from xccl_emu.machine.pod import Buffer

from .monitor_support import ORDERS, app, found, kind_of, make_pod, trial_of


@kernel
def read_word(word):
    """Read a word of memory."""
    yield load(word)


@kernel
def misbehave(data, how):
    """Do one thing that the machine refuses, after something that is fine."""
    yield store(data, 1)
    if how == 0:
        yield load(data + 100000)
    elif how == 1:
        yield set_flag(VECTOR, MTU_IN, 1)
        yield set_flag(VECTOR, MTU_IN, 1)
        yield poll_eq(data, 99)
    elif how == 2:
        yield load(data + 4)
    elif how == 3:
        yield fail(17, 4)
    elif how == 4:
        yield set_flag(VECTOR, MTU_IN, 1)
    elif how == 5:
        yield dma(data + 64, data + 128, 32, 0)
    elif how == 6:
        yield poll_eq(data, 99, step=4)
    elif how == 7:
        yield ub_load(4096)


@kernel
def wait_by_loads(flag, other):
    """Wait for a flag by loads, and then for a step of the other side to begin anew."""
    seen = 0
    while seen == 0:
        seen = yield load(flag, sync="flag")
    yield store(other, 1)


@kernel
def write_late(flag, other):
    """Write a flag that the other side waits for by loads, then wait likewise."""
    for _i in range(20):
        yield load(other, sync="other")
    yield store(flag, 1)
    seen = 0
    while seen == 0:
        seen = yield load(other, sync="other")


@kernel
def fill_pieces(target, nbytes):
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
def divide(by):
    """Divide by an argument."""
    yield quiet()
    return 7 // by


REFUSED = [
    (0, verdict.AREA_VIOLATION, "is not permitted"),
    (1, verdict.BAD_INSTRUCTION, "set while it is still set"),
    (2, verdict.BAD_INSTRUCTION, "must be a multiple of 8"),
    (3, verdict.ASSERTION, "failed with code 17"),
    (4, verdict.LEFTOVER, "nothing has waited for it"),
    (5, verdict.LEFTOVER, "nothing has waited for it"),
    (6, verdict.DEADLOCK, "wants == 99"),
    (7, verdict.BAD_INSTRUCTION, "outside of the data buffer"),
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("how", "kind", "words"), REFUSED)
def test_what_the_machine_refuses(how: int, kind: str, words: str, order: str) -> None:
    """Errors of the machine, a kernel's own failure and deadlock are found by kind, with the machine's message."""
    pod = make_pod(order=order)
    violation = found(trial_of(pod, [(misbehave, 0, 0, {"data": app(pod), "how": how})]))
    assert violation.kind == kind
    assert words in violation.message
    assert "misbehave" in violation.message


def test_a_kernel_that_behaves() -> None:
    """The same kernel with nothing wrong to do has no violation."""
    pod = make_pod()
    assert found(trial_of(pod, [(misbehave, 0, 0, {"data": app(pod), "how": 99})])) is None


def test_codes_that_a_protocol_knows_are_explained() -> None:
    """The meaning of a code of `fail` stands in the message."""
    pod = make_pod()
    trial = trial_of(pod, [(misbehave, 0, 0, {"data": app(pod), "how": 3})])
    violation = found(Trial(trial.pod, (), trial.filled, (), {17: "the other side is older"}))
    assert "the other side is older" in violation.message


@pytest.mark.parametrize("where", ["app", "managed"])
def test_memory_that_nobody_wrote(where: str) -> None:
    """A read of it is found, byte by byte; what the host filled and the metadata area may be read."""
    pod = make_pod()
    word = app(pod) + 40 if where == "app" else pod.managed(0, 40)
    trial = trial_of(pod, [(read_word, 0, 0, {"word": word})], filled=False)
    violation = found(trial)
    assert violation.kind == verdict.UNWRITTEN_READ
    assert "read (scalar) by die 0 core 0, kernel read_word" in violation.message
    if where == "app":
        some, rest = (Trial(trial.pod, (), (Buffer(0, word, n),)) for n in (7, 8))
        assert kind_of(some) == verdict.UNWRITTEN_READ
        assert kind_of(rest) is None


def test_the_metadata_area_counts_as_filled() -> None:
    """Fields are zero at the start, and may be read."""
    pod = make_pod()
    assert kind_of(trial_of(pod, [(read_word, 0, 0, {"word": pod.meta(0, 64)})], filled=False)) is None


@pytest.mark.parametrize(("start", "kind"), [(1, None), (0, verdict.UNWRITTEN_READ)])
def test_an_accumulator_is_read(start: int, kind: str | None) -> None:
    """Adding to bytes of the data buffer that nothing was put in is a read of them."""
    pod = make_pod()
    assert kind_of(trial_of(pod, [(add_up, 0, 0, {"source": app(pod), "start": start})])) == kind


@pytest.mark.parametrize("order", ORDERS)
def test_wrong_bits_name_the_first_byte_and_its_writer(order: str) -> None:
    """What must be in memory at the end is compared, and the message says where it differs and who wrote there."""
    pod = make_pod(order=order)
    sides = [(fill_pieces, 0, 0, {"target": app(pod, 1), "nbytes": 70})]
    good = Expected("the block", app(pod, 1), bytes([9] * 70 + [0] * 10))
    bad = Expected("the other block", app(pod, 1) + 64, bytes([9] * 6 + [0, 0, 1]))
    assert kind_of(trial_of(pod, sides, expected=[good])) is None
    pod = make_pod(order=order)
    violation = found(trial_of(pod, sides, expected=[good, bad]))
    assert violation.kind == verdict.WRONG_BITS
    assert "the other block is wrong at die1.app+0x48, byte 8 of 9: 0x00 instead of 0x01" in violation.message
    assert "kernel fill_pieces" in violation.message


def test_a_loop_that_waits_is_no_livelock_if_it_ends() -> None:
    """Two sides that wait for each other by loads come through, whoever a policy prefers."""
    pod = make_pod()
    arguments = {"flag": pod.meta(0), "other": pod.meta(1)}
    assert kind_of(trial_of(pod, [(wait_by_loads, 0, 0, arguments), (write_late, 1, 0, arguments)])) is None


def test_a_loop_that_waits_for_nobody_is_a_livelock() -> None:
    """A run that goes on and on is cut, and who is still running is named."""
    pod = make_pod()
    trial = trial_of(pod, [(wait_by_loads, 0, 0, {"flag": pod.meta(0), "other": pod.meta(1)})])
    violation = sample(trial, "random", schedules=2).violation
    assert violation.kind == verdict.LIVELOCK
    assert "kernel wait_by_loads" in violation.message
    again = replay(trial, violation.actions)
    assert again.kind == verdict.LIVELOCK


def test_arithmetic_of_a_kernel_that_fails() -> None:
    """A division by zero is an error of the kernel, not a violation, and leaves the pod as it was."""
    pod = make_pod()
    trial = trial_of(pod, [(divide, 0, 0, {"by": 0})])
    before = pod.memory.copy(), pod.state.copy()
    with pytest.raises(KernelError, match="division by zero"):
        sample(trial)
    assert np.array_equal(pod.memory, before[0])
    assert np.array_equal(pod.state, before[1])


@pytest.mark.parametrize("without", [[], ["flag"]])
def test_the_trial_is_as_it_was(without: Sequence[str]) -> None:
    """After sampling and replay, found or not, memory and state are those of the pod before its first action."""
    pod = make_pod(without=without)
    arguments = {"flag": pod.meta(0), "other": pod.meta(1)}
    trial = trial_of(pod, [(wait_by_loads, 0, 0, arguments), (write_late, 1, 0, arguments)])
    before = pod.memory.copy(), pod.state.copy()
    result = sample(trial, schedules=20)
    assert (result.violation is not None) == bool(without)
    if result.violation is not None:
        replay(trial, result.violation.actions)
    assert np.array_equal(pod.memory, before[0])
    assert np.array_equal(pod.state, before[1])


def test_a_policy_that_does_not_exist() -> None:
    """An unknown policy is refused, with the known ones."""
    pod = make_pod()
    with pytest.raises(ConfigError, match="policy='best': must be one of portfolio, random"):
        sample(trial_of(pod, [(divide, 0, 0, {"by": 1})]), "best")


def test_nothing_that_is_switched_off_is_taken_for_a_synchronization() -> None:
    """A load with a name that is switched off orders nothing: reading behind it is a race."""
    kinds = []
    for without in ((), ("flag",)):
        pod = make_pod(without=without)
        arguments = {"flag": pod.meta(0), "other": pod.meta(1)}
        kinds.append(kind_of(trial_of(pod, [(wait_by_loads, 0, 0, arguments), (write_late, 1, 0, arguments)])))
    assert kinds == [None, verdict.TORN_METADATA]
