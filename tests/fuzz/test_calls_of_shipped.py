"""Calls of shipped protocols that follow each other on one communicator, and communicators one after the other."""

from collections.abc import Sequence as Several
from dataclasses import dataclass
from typing import Any

import pytest

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.fuzz.run import FuzzPlan, fuzz_part
from xccl_emu.kernels import sendrecv as device
from xccl_emu.lang import Kernel
from xccl_emu.machine.pod import Buffer
from xccl_emu.protocol import choice
from xccl_emu.protocol.registry import known, known_of, names
from xccl_emu.protocol.sequence import Sequence, Stage, makes_rows
from xccl_emu.protocols.sendrecv.case import BothWaysCase
from xccl_emu.protocols.sendrecv.rings import PATHS
from xccl_emu.protocols.sendrecv.session import SendRecv

PAIR, ONCE = {"ranks": 2}, {"calls": 1}
CHANGING: dict[str, tuple[dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "all-gather-ring": (PAIR, (ONCE | {"elements": 40}, ONCE | {"elements": 1}, ONCE)),
    "all-reduce-lamport": (PAIR, (ONCE | {"lines": 2}, ONCE, ONCE | {"lines": 2})),
    "all-reduce-two-shot": (PAIR, (ONCE, ONCE | {"elements": 40, "in_place": 1})),
    "all-to-all-ring": (PAIR, (ONCE, ONCE | {"elements": 40}, {"calls": 2})),
    "barrier-sense": (PAIR, (ONCE, ONCE, ONCE)),
    "ll": ({"slots": 1}, ({"steps": 1}, {"steps": 2, "lines": 1})),
    "ll128": ({"slots": 1}, ({"steps": 2, "lines": 1}, {"steps": 1})),
    "mpsc-ring": ({"slots": 1}, ({"messages": 1}, {"messages": 1})),
    "mixserve-dispatch": ({}, ({"rounds": 1}, {"rounds": 2})),
    "sendrecv": ({"slots": 2}, ({"chunks": 3}, {"chunks": 1, "path": "zero-copy"}, {"chunks": 2, "path": "dma"})),
    "sendrecv-async": ({"slots": 1}, ({"chunks": 2}, {"chunks": 1})),
    "sendrecv-zero-copy": ({"cores": 2}, ({"chunks": 1}, {"chunks": 2, "waits": 1})),
    "sendrecv-both": ({"slots": 1}, ({"chunks": 1}, {"chunks": 2})),
    "sp-tp-sp": (PAIR, ({"layers": 1, "tokens": 3}, {"layers": 1, "tokens": 1})),
}


@pytest.mark.parametrize("name", CHANGING)
def test_calls_whose_sizes_change_are_verified(name: str) -> None:
    """Launches behind each other on one communicator, each with sizes of its own, are right under every schedule."""
    sizes, calls = CHANGING[name]
    verdict = check(Sequence(known(name), (Stage(sizes, calls),)))
    assert verdict.verdict == VERIFIED, verdict


@dataclass(frozen=True)
class EitherWay(BothWaysCase):
    """Exchanges, and zero-copy transfers from die 0 on the same cores."""

    path: str = choice("mtu", "How data is copied.", of=PATHS, each_call=True)

    def _queue(self, comm: SendRecv, sources: Several[Buffer], targets: Several[Buffer], number: int) -> None:
        if self.path != "zero-copy":
            super()._queue(comm, sources, targets, number)
            return
        comm.transfer(sources[0], targets[0], event_id=100 + number, cores=self.cores, path=self.path)

    @property
    def _sides(self) -> tuple[Kernel, Kernel]:
        return (device.send_zero_copy, device.recv_zero_copy) if self.path == "zero-copy" else super()._sides

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        return super()._pairs[:1] if self.path == "zero-copy" else super()._pairs


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("sendrecv", ("mtu", "zero-copy")),
        ("sendrecv", ("zero-copy", "dma")),
        ("sendrecv", ("zero-copy", "zero-copy")),
        ("exchange", ("zero-copy", "mtu")),
    ],
)
def test_with_a_cache_the_line_of_the_ack_is_cleaned(name: str, paths: tuple[str, str]) -> None:
    """It holds an offer, or the ring's address, of the call before: read again without a dcci, each counts as new."""
    of = known("sendrecv") if name == "sendrecv" else known_of(EitherWay)
    sizes = {"slots": 1, "chunks": 1, "granules": 1, "scalar_cache": 16}
    sequence = Sequence(of, (Stage(sizes, tuple({"path": path} for path in paths)),))
    assert check(sequence).verdict == VERIFIED
    assert check(sequence, without="ack line").verdict == VIOLATION


@pytest.mark.parametrize("name", ["ll", "ll128"])
def test_flags_of_an_earlier_communicator_are_not_taken_for_new_ones(name: str) -> None:
    """Slots are in managed data, which stay: without being cleared their old lines would be taken for new ones."""
    sequence = Sequence(known(name), (Stage(), Stage({"seed": 1})))
    assert check(sequence).verdict == VERIFIED


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names() if makes_rows(known(name))])
def test_nothing_is_found_in_what_is_shipped(name: str) -> None:
    """A few sequences of each shipped protocol are right, and there are calls that follow each other among them."""
    summary = fuzz_part(FuzzPlan(name, {}, 3))
    assert summary.findings == []
    assert summary.judged > 3
