"""What members of the corpus share: how kernels copy and start, and two ranks that send each other words in calls."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from xccl_emu.doors import ascendc
from xccl_emu.lang import MTU_IN, SCALAR, Kernel, load, mtu_in, set_flag, store, wait_flag
from xccl_emu.machine import Buffer, Pod, small_pod
from xccl_emu.machine.launch import Grant
from xccl_emu.protocol import Bench, Call, Case, size
from xccl_emu.protocol.streams import StreamCase, Streams


def read(source, nbytes):
    """Copy ``nbytes`` bytes to the start of the data buffer, and wait until they are there."""
    yield mtu_in(source, 0, nbytes)
    yield set_flag(MTU_IN, SCALAR, 0)
    yield wait_flag(MTU_IN, SCALAR, 0)


def copy(source, target, words):
    """Copy ``words`` words, one by one."""
    for i in range(words):
        value = yield load(source + 8 * i)
        yield store(target + 8 * i, value)


class OneCore(Case):
    """A case whose kernels run on the first cores of their dies."""

    def start(
        self, bench: Bench, pod: Pod, kernel: Kernel, die: int, args: Mapping[str, int], grants: Sequence[Grant]
    ) -> None:  # fmt: skip
        """Launch a kernel on a die."""
        pod.launch(kernel, die, [0], args, grants)


class InAscendC(OneCore):
    """The same with kernels of a source in Ascend C, found by the names of the Python ones and their parameters."""

    source: ClassVar[Path]

    def start(
        self, bench: Bench, pod: Pod, kernel: Kernel, die: int, args: Mapping[str, int], grants: Sequence[Grant]
    ) -> None:  # fmt: skip
        """Launch what has the name of a kernel, on a die."""
        ascendc.launch(bench, pod, ascendc.ascend_kernel(self.source, kernel.name), die, [0], args, grants)


class Both(NamedTuple):
    """One place in the areas of both ranks: two addresses."""

    own: int
    peer: int


@dataclass(frozen=True)
class Turn:
    """One of two ranks in one of the calls."""

    pod: Pod
    calls: Sequence[Call]
    number: int
    me: int
    kept: Any = None
    """What `Pair.keep` has given."""

    @property
    def peer(self) -> int:
        """The other rank."""
        return 1 - self.me

    @property
    def case(self) -> Any:
        """The sizes of this call."""
        return self.calls[self.number].case

    def managed(self, offset: int = 0) -> Both:
        """A place in the managed areas."""
        return Both(self.pod.managed(self.me, offset), self.pod.managed(self.peer, offset))

    def meta(self, offset: int = 0) -> Both:
        """A field in the metadata areas."""
        return Both(self.pod.meta(self.me, offset), self.pod.meta(self.peer, offset))

    def grants(self, managed: tuple[str, str] = ("r", "w"), meta: tuple[str, str] = ("r", "w")) -> list[Grant]:
        """List what the rank may do on its own die and on its peer's."""
        pod = self.pod
        return [
            pod.grant_managed(managed[0], self.me), pod.grant_managed(managed[1], self.peer),
            pod.grant_meta(meta[0], self.me), pod.grant_meta(meta[1], self.peer),
        ]  # fmt: skip

    def swap(
        self, bench: Bench, sent: Sequence[np.ndarray], owners: str = ""
    ) -> tuple[Buffer, Buffer, dict[str, Any], list[Grant]]:
        """Fill what the rank sends, and expect what its peer sends: buffers, arguments and grants."""
        own = bench.filled(self.me, sent[self.me], f"own of call {self.number}")
        what = f"received in call {self.number}"
        out = bench.wanted(self.me, sent[self.peer], what, owners=owners or f"die{self.me}")
        return own, out, {"own": own.address, "out": out.address}, [self.pod.grant(own, "r"), self.pod.grant(out, "w")]


def numbered(number: int, *words: int) -> list[np.ndarray]:
    """``words`` words of each rank that encode their call and rank."""
    return [100 * number + 10 * me + np.arange(1, n + 1) for me, n in enumerate(words)]


@dataclass(frozen=True)
class Pair(StreamCase, ABC):
    """Two ranks, each with launches for every call."""

    room: ClassVar[dict[str, int]] = {}
    """Areas of the pod that are not of these sizes: 2 KiB of app data and 32 bytes of each other one."""
    cores: ClassVar[int] = 1

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """On a pod with this room."""
        room = {"app_bytes": 2048, "meta_bytes": 32, "managed_bytes": 32, "ub_bytes": 32} | self.room_of(len(calls))
        pod = bench.pod(small_pod(2, self.cores, **room))
        streams, kept = Streams(bench, pod), self.keep(pod)
        for number in range(len(calls)):
            for me in range(2):
                self.launch(bench, streams, Turn(pod, calls, number, me, kept))
        streams.put()

    def room_of(self, n_calls: int) -> dict[str, int]:
        """The room for ``n_calls`` calls."""
        return self.room

    def keep(self, pod: Pod) -> Any:
        """Return what there is once for all calls."""

    @abstractmethod
    def launch(self, bench: Bench, streams: Streams, turn: Turn) -> None:
        """Launch a rank's part of a call."""


@dataclass(frozen=True)
class Swap(Pair):
    """Each sends its peer as many words, by one launch."""

    words: int = size(1, "Words of 8 bytes that a rank sends.", most=3, each_call=True)

    def launch(self, bench: Bench, streams: Streams, turn: Turn) -> None:
        """Its own words go out, its peer's come in."""
        words = turn.case.words
        _, _, buffers, grants = turn.swap(bench, numbered(turn.number, words, words))
        kernel, args, more = self.called(turn)
        turn.pod.launch(kernel, turn.me, [0], {**args, **buffers, "words": words}, [*grants, *more], after=streams)

    @abstractmethod
    def called(self, turn: Turn) -> tuple[Kernel, dict[str, Any], list[Grant]]:
        """The kernel, its arguments except for the words, and what else it may touch."""
