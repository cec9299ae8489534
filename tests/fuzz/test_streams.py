"""Launches that follow each other on a core, and sequences of calls as something that is checked."""

import json
from collections.abc import Sequence as Several
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED
from xccl_emu.lang import kernel, load, quiet, store
from xccl_emu.machine import small_pod
from xccl_emu.machine.launch import Grant, merged
from xccl_emu.protocol import Call, protocol
from xccl_emu.protocol.bench import Bench
from xccl_emu.protocol.registry import known, known_of, make
from xccl_emu.protocol.sequence import Sequence, Stage
from xccl_emu.protocol.streams import StreamCase, Streams

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
            pod.launch(double, 0, [0], {"target": word.address}, [pod.grant(word, "rw")], after=streams)
        else:
            want += sum(each)
            args = {"target": word.address, "a": each[0], "b": each[1]}
            pod.launch(add_to, 0, [0], args, [pod.grant(word, "rw")], after=streams)
    streams.put()
    pod.run()
    assert pod.view(word, np.int64).tolist() == [want]


@kernel
def copy_word(source, target):
    """Leave a word somewhere else."""
    value = yield load(source)
    yield store(target, value)


@dataclass(frozen=True)
class Handed(StreamCase):
    """In its first call core 0 makes what core 1 takes in the second one."""

    hosts_wait = True

    def lay_out_calls(self, bench: Bench, calls: Several[Call]) -> None:
        """Core 0 copies word 0 to word 1, then core 1 that to word 2."""
        pod = bench.pod(small_pod(1, 2, app_bytes=1024))
        data = np.arange(1, 9) * 0x0101010101010101
        words = [bench.filled(0, data[i : i + 1], f"word {i}") for i in range(4)]
        streams = Streams(bench, pod, calls)
        for number in range(len(calls)):
            for core, (source, target) in enumerate(((0, 0), (1, 2)) if number else ((0, 1), (3, 3))):
                grants = [pod.grant(words[source], "rw"), pod.grant(words[target], "rw")]
                args = {"source": words[source].address, "target": words[target].address}
                pod.launch(copy_word, 0, [core], args, grants, after=streams)
        streams.put()
        bench.expect(words[2].address, data[:1] if len(calls) > 1 else data[2:3], "the last word", owners="die0")


@pytest.mark.parametrize(("waits", "right"), [(1, True), (0, False)])
def test_a_host_that_waits_orders_launches_of_two_cores(waits: int, right: bool) -> None:
    """What one core made in a call the other may take in the next one if the host has waited, and else may not."""
    sequence = Sequence(known_of(Handed), (Stage({}, ({}, {"waits": waits})),))
    assert Sequence(sequence.of, sequence.stages).n_calls == 2
    assert (check(sequence).verdict == VERIFIED) is right


@kernel
def copy_if(mine, source, target):
    """Leave a word somewhere else, if it is this core's to do so."""
    if mine:
        yield from copy_word(source, target)
    else:
        yield quiet()


@pytest.mark.parametrize("together", [True, False])
def test_a_launch_of_several_cores_ends_on_all_of_them(together: bool) -> None:
    """What one core made in a launch another may take in the next; where each has a stream of its own it may not."""

    @protocol
    def handed_on(bench: Bench) -> None:
        pod = bench.pod(small_pod(1, 2, app_bytes=1024))
        data = np.arange(1, 4) * 0x0101010101010101
        words = [bench.filled(0, data[i : i + 1], f"word {i}") for i in range(3)]
        streams, grants = Streams(bench, pod), [pod.grant(word, "rw") for word in words]
        for number in range(2):
            args = {"source": words[number].address, "target": words[number + 1].address}
            for cores in [[0, 1]] if together else [[0], [1]]:
                mine = [int(core == number) for core in cores]
                pod.launch(copy_if, 0, cores, {"mine": mine, **args}, grants, after=streams)
        streams.put()
        bench.expect(words[2].address, data[:1], "the last word", owners="die0")

    assert (check(handed_on()).verdict == VERIFIED) is together


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3), st.sampled_from(["r", "w", "rw"])), max_size=8))
def test_merged_grants_give_leave_for_the_same_bytes(given: list[tuple[int, int, str]]) -> None:
    """Whatever ranges there are, each byte may be read, and written, by the merged grants as by those given."""

    def leave(grants: Several[Grant]) -> set[tuple[int, str]]:
        return {(at, right) for each in grants for at in range(each.start, each.end) for right in each.rights}

    grants = [Grant(0, start, start + n, rights) for start, n, rights in given]
    assert leave(merged(grants)) == leave(grants)
    assert len(merged(grants)) <= len(grants)


def test_wrong_arguments_of_a_launch_are_refused() -> None:
    """A stream takes what a launch would take, and says so at once."""
    bench = Bench("sc", ())
    pod = bench.pod(small_pod(1))
    streams = Streams(bench, pod)
    with pytest.raises(ConfigError, match="arguments missing"):
        pod.launch(double, 0, [0], {}, [], after=streams)


def test_the_old_way_to_launch_warns() -> None:
    """A stream takes a launch as it did, in the old order of arguments, and says what to call."""
    bench = Bench("sc", ())
    pod = bench.pod(small_pod(1))
    word, streams = bench.filled(0, np.array([3])), Streams(bench, pod)
    with pytest.warns(DeprecationWarning, match="pod.launch"):
        streams.launch(double, 0, {"target": word.address}, [pod.grant(word, "rw")], 0)
    streams.put()
    assert pod.grants_of(0) == (pod.grant(word, "rw"),)


def test_a_sequence_of_one_call_is_the_case() -> None:
    """It has the states of the case by itself; so sequences add nothing that a check would see."""
    case = make("sendrecv", chunks=2, slots=1)
    sequence = Sequence(known("sendrecv"), (Stage({"chunks": 2, "slots": 1}),))
    one, other = check(case), check(sequence)
    assert (one.verdict, one.states) == (other.verdict, other.states) == (VERIFIED, one.states)


def test_a_case_says_what_its_pod_must_be() -> None:
    """It is the pod that it is built on, without what was chosen of that; more dies, of others, take more room."""
    case = known("sendrecv").made({"ranks": 3})
    assert case.spec() == case.build("sc").pod.spec == case.with_pod_options(scalar_cache=2).spec()
    assert case.spec(dies=5).managed_bytes > case.spec(dies=3).managed_bytes == case.spec().managed_bytes


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
    with pytest.raises(ConfigError, match="waits=2: must be 0 or 1"):
        Sequence(known("sendrecv"), (Stage({}, ({"waits": 2},)),)).build("sc")
    with pytest.raises(ConfigError, match="again=0"):
        Sequence(known("dispatch"), (Stage({}, ({"again": 0},)),)).build("sc")


def test_calls_of_a_case_are_cases(repository: Path) -> None:
    """`lay_out` is `lay_out_calls` of one call."""
    case = make("dispatch")
    one, other = Bench("sc", ()), Bench("sc", ())
    case.lay_out(one)
    case.lay_out_calls(other, [Call(case)])
    assert one.trial().pod.fingerprint() == other.trial().pod.fingerprint()
