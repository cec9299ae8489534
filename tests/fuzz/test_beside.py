"""Two communicators at the same time on one pod: with areas of their own nothing is wrong, with shared ones it is."""

from collections.abc import Sequence as Several
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import find

from tests.testing.cases import hear
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.fuzz.judge import SequenceBudget
from xccl_emu.fuzz.machine import SequenceViolation, machine_of
from xccl_emu.fuzz.run import shrunk
from xccl_emu.lang import fence, kernel, load, put
from xccl_emu.protocol import Bench, Call, Regions, size
from xccl_emu.protocol.registry import known, known_of
from xccl_emu.protocol.sequence import Sequence, Stage
from xccl_emu.protocol.streams import StreamCase, Streams
from xccl_emu.testing import sequences


@kernel
def tell(own, word, flag):
    """Write a word, and say so."""
    value = yield load(own)
    yield put(word, value)
    yield fence()
    yield put(flag, 1, sync="flag")


@dataclass(frozen=True)
class Mail(StreamCase):
    """A word from die 0 to die 1."""

    side_by_side = True
    seed: int = size(1, "Of the word.", most=9)
    apart: ClassVar[int] = 1

    def lay_out_calls(self, bench: Bench, calls: Several[Call]) -> None:
        """A box and a flag on die 1."""
        regions = Regions(2)
        box, flag = regions.managed("box", 32), regions.meta("flag", 32)
        pod = bench.pod(regions.tight_pod(app_bytes=64, ub_bytes=32))
        regions.place(bench, pod)
        if not self.apart:  # in the areas of the first one
            regions.fit(pod.spec, 0, 0, "take a larger pod")
        word, streams = np.array([0x0101010101010101 * self.seed]), Streams(bench, pod)
        own, out = bench.filled(0, word, "own"), bench.wanted(1, word, "out", owners="die1")
        args = {"word": box.at(1), "flag": flag.at(1)}
        grants = [box.grant(1, "w"), flag.grant(1, "w"), pod.grant(own, "r")]
        pod.launch(tell, 0, [0], {"own": own.address, **args}, grants, after=streams)
        grants = [box.grant(1, "r"), flag.grant(1, "r"), pod.grant(out, "w")]
        pod.launch(hear, 1, [0], {"out": out.address, **args}, grants, after=streams)
        streams.put()


@dataclass(frozen=True)
class Shared(Mail):
    """Both have the same box."""

    apart = 0


BESIDE = (Stage({}, ({},), Stage({"seed": 2}, ({},))),)


def test_areas_of_their_own_are_right_and_shared_ones_are_not() -> None:
    """Every schedule of two communicators at once is right where nothing is shared, and one is wrong where all is."""
    assert check(Sequence(known_of(Mail), BESIDE)).verdict == VERIFIED
    assert check(Sequence(known_of(Shared), BESIDE)).verdict == VIOLATION


def test_what_goes_wrong_beside_another_is_found_and_stays_so_when_it_is_shortened() -> None:
    """The rule that adds a communicator finds it; alone neither shows anything, so both stay, and both are counted."""
    machine = machine_of(known_of(Shared), {}, SequenceBudget(schedules=30), 0)()
    machine.communicator({}, {})
    with pytest.raises(SequenceViolation) as caught:
        machine.beside({"seed": 3}, {})
    found = caught.value
    assert machine.counted.calls == 2
    short, _ = shrunk(found.sequence, "", found.violation, 0, SequenceBudget(schedules=30), {})
    (stage,) = short.stages
    assert stage.beside is not None
    assert short.n_calls == 2
    assert " beside " in str(short)


SENDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "all-gather-ring": ({"ranks": 2, "calls": 1}, {"ranks": 3, "calls": 1}),
    "deepep-ll": ({"tokens": 1, "rounds": 1}, {"tokens": "0,2", "rounds": 1}),
    "dispatch": ({"tokens": 1, "rounds": 1}, {"ranks": 3, "tokens": 1, "rounds": 1}),
    "fused": ({"cores": 1, "tokens": 1, "rounds": 2}, {"cores": 1, "tokens": "2,1", "rounds": 1}),
    "ll128": ({"slots": 1, "steps": 1}, {"slots": 2, "steps": 2}),
    "mixserve-dispatch": ({"rounds": 1}, {"ranks": 1, "rounds": 1}),
    "mpsc-ring": ({"producers": 1, "messages": 1}, {"slots": 1, "messages": 1}),
    "sendrecv": ({"slots": 1, "chunks": 1}, {"slots": 1, "cores": 2, "ranks": 3, "chunks": 1, "path": "zero-copy"}),
}


@pytest.mark.parametrize("name", SENDS)
def test_two_communicators_on_overlapping_ranks_are_verified(name: str) -> None:
    """Two of different sizes, on the same dies, at the same time; the text of the sequence makes it again."""
    one, other = SENDS[name]
    sequence = Sequence(known(name), (Stage(one, ({},), Stage(other, ({},))),))
    assert Sequence.read(name, sequence.configuration) == sequence
    verdict = check(sequence)
    assert verdict.verdict == VERIFIED, verdict


def test_what_has_one_communicator_at_a_time_says_so() -> None:
    """A case that lays itself out at fixed places is refused by name."""
    with pytest.raises(ConfigError, match="beside: a2e has one communicator at a time"):
        Sequence(known("a2e"), (Stage({}, ({},), Stage()),)).build("sc")


def test_the_strategy_draws_communicators_beside_each_other() -> None:
    """`sequences` has them where the case says so, with the sizes that are given."""
    found = find(sequences(Mail, seed=3), lambda drawn: drawn.stages[0].beside is not None)
    assert [one.sizes for one in found.stages[0].communicators] == [{"seed": 3}, {"seed": 3}]
