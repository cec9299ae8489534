"""Launches that follow each other on a core, and sequences of calls as something that is checked."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED
from xccl_emu.errors import ConfigError
from xccl_emu.lang import kernel, load, store
from xccl_emu.machine import small_pod
from xccl_emu.protocol import Call
from xccl_emu.protocol.bench import Bench
from xccl_emu.protocol.registry import known, make
from xccl_emu.protocol.sequence import Sequence, Stage
from xccl_emu.protocol.streams import Streams

PREFIX_SUM = "examples/prefix_sum/prefix_sum.py:PrefixSum"


@kernel
def add_to(target, a, b):
    """Add both to a word."""
    value = yield load(target)
    yield store(target, value + a + b)


@kernel
def double(target):
    """Add a word to itself."""
    value = yield load(target)
    yield store(target, 2 * value)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.one_of(st.none(), st.tuples(st.integers(-9, 9), st.integers(-9, 9))), min_size=1, max_size=6))
def test_launches_follow_each_other(launches: list[tuple[int, int] | None]) -> None:
    """Two kernels in any order on one core leave what they would leave one after the other, each with its arguments."""
    bench = Bench("relaxed", ())
    pod = bench.pod(small_pod(1, app_bytes=1024))
    word, want = bench.filled(0, np.array([3])), 3
    streams = Streams(bench, pod)
    for each in launches:
        if each is None:
            want *= 2
            streams.launch(double, 0, {"target": word.address}, [pod.grant(word, "rw")])
        else:
            want += sum(each)
            args = {"target": word.address, "a": each[0], "b": each[1]}
            streams.launch(add_to, 0, args, [pod.grant(word, "rw")])
    streams.put()
    pod.run()
    assert pod.view(word, np.int64).tolist() == [want]


def test_wrong_arguments_of_a_launch_are_refused() -> None:
    """A stream takes what a launch would take, and says so at once."""
    bench = Bench("sc", ())
    streams = Streams(bench, bench.pod(small_pod(1)))
    with pytest.raises(ConfigError, match="arguments missing"):
        streams.launch(double, 0, {}, [])


def test_a_sequence_of_one_call_is_the_case() -> None:
    """It has the states of the case by itself; so sequences add nothing that a check would see."""
    case = make("sendrecv", chunks=2, slots=1)
    sequence = Sequence(known("sendrecv"), (Stage({"chunks": 2, "slots": 1}),))
    one, other = check(case), check(sequence)
    assert (one.verdict, one.states) == (other.verdict, other.states) == (VERIFIED, one.states)


def test_a_communicator_finds_managed_data_as_it_was_left() -> None:
    """Metadata and app data are zero again, managed data are not."""
    stages = (Stage({"chunks": 2}), Stage({"chunks": 1}))
    sequence = Sequence(known("sendrecv"), stages)
    pod, fresh = sequence.build("relaxed").pod, Sequence(known("sendrecv"), stages[1:]).build("relaxed").pod
    managed = slice(pod.spec.die_bytes + pod.spec.managed_start, 2 * pod.spec.die_bytes)
    assert pod.memory[managed].any()
    assert not fresh.memory[: fresh.spec.memory_bytes][fresh.spec.die_bytes + fresh.spec.managed_start :].any()


def test_tokens_change_from_call_to_call() -> None:
    """Calls of dispatch with other numbers of tokens, none at all among them, are verified on one communicator."""
    calls = ({"tokens": 1}, {"tokens": "0,2"})
    sequence = Sequence(known("dispatch"), (Stage({"granules": 1, "rounds": 1}, calls),))
    assert check(sequence).verdict == VERIFIED


def test_a_sequence_is_read_as_it_was_written() -> None:
    """The text of a sequence makes it again; anything else is refused."""
    sequence = Sequence(known("dispatch"), (Stage({"ranks": 3}, ({"tokens": 1}, {"tokens": "0,2,1"})), Stage()))
    again = Sequence.read("dispatch", sequence.configuration)
    assert again == sequence
    for text in ("{}", "[1]", "nonsense", json.dumps([{"sizes": {}}])):
        with pytest.raises(ConfigError, match="no sequence of calls"):
            Sequence.read("dispatch", {"stages": text})


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        ({"sizes": {"legs": 4}, "calls": [{}]}, "legs=4: dispatch has no such size, but ranks"),
        ({"sizes": {"ranks": [2]}, "calls": [{}]}, r"ranks=\[2\]: must be a whole number or a text"),
        ({"sizes": {"again": 0}, "calls": [{}]}, "again=0: dispatch has no such size"),
        ({"sizes": {}, "calls": [{"tokens": None}]}, "tokens=None: must be"),
    ],
)
def test_sizes_of_a_damaged_file_are_refused(stage: dict[str, object], said: str) -> None:
    """A replay file that names what the protocol has not is refused by name before anything is built."""
    with pytest.raises(ConfigError, match=said):
        Sequence.read("dispatch", {"stages": json.dumps([stage])})


def test_what_a_case_cannot_do_is_refused(repository: Path) -> None:
    """Two calls on a communicator that makes one, and a call made again before there is one."""
    with pytest.raises(ConfigError, match="makes one call"):
        Sequence(known(f"{repository}/{PREFIX_SUM}"), (Stage({}, ({}, {})),)).build("sc")
    with pytest.raises(ConfigError, match="again=0"):
        Sequence(known("dispatch"), (Stage({}, ({"again": 0},)),)).build("sc")


def test_calls_of_a_case_are_cases(repository: Path) -> None:
    """`lay_out` is `lay_out_calls` of one call."""
    case = make("dispatch")
    one, other = Bench("sc", ()), Bench("sc", ())
    case.lay_out(one)
    case.lay_out_calls(other, [Call(case)])
    assert one.trial().pod.fingerprint() == other.trial().pod.fingerprint()
