"""Send and receive as things to check (xDeepServe 3.1)."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check.trial import Expected, Label, Trial
from xccl_emu.errors import ConfigError
from xccl_emu.kernels import sendrecv as device
from xccl_emu.lang import Kernel
from xccl_emu.machine.device.layout import PIECE_BYTES
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import PodSpec
from xccl_emu.protocol.case import names_of_syncs
from xccl_emu.protocols.sendrecv import SendRecv
from xccl_emu.protocols.sendrecv_calls import PATHS
from xccl_emu.protocols.sendrecv_layout import RingLayout
from xccl_emu.scenarios.common import (
    PROMISES,
    at_least,
    cores_on,
    must_hold,
    of_buffer,
    payload,
    set_switches,
    tight_pod,
)

STOPS = {
    device.WRONG_EVENT: "the other side has another event ID",
    device.WRONG_SHAPE: "the other side has another payload size or number of cores",
}


@dataclass(frozen=True)
class SendRecvCheck:
    """Each die r but the last sends a payload to die r + 1, on ``cores`` cores a side.

    Each lane's payload is ``chunks`` chunks of ``pieces`` pieces of 32 bytes, a chunk fills a slot, and the lane's ring
    has ``slots`` slots.  Nothing outside of what is expected at the end can change: each lane may touch its part of
    the buffers alone.

    Raises ConfigError for sizes below their least, an unknown path, and what send and receive do not offer together.
    """

    ranks: int = 2
    cores: int = 1
    slots: int = 4
    chunks: int = 8
    pieces: int = 4
    rounds: int = 1
    """Transfers back to back, in one kernel a side."""
    path: str = "mtu"
    """``"mtu"``, ``"dma"`` or ``"zero-copy"``."""
    both_ways: bool = False
    """The last die sends to die 0 too, and each core sends and receives in turn: with two ranks, both directions."""
    asynchronous: bool = False
    """Both sides repeat passes of isend and irecv until they are done."""

    def __post_init__(self) -> None:
        at_least(2, ranks=self.ranks)
        at_least(1, cores=self.cores, slots=self.slots, chunks=self.chunks, pieces=self.pieces, rounds=self.rounds)
        set_switches(self, "both_ways", "asynchronous")
        if self.path not in PATHS:
            raise ConfigError(f"path={self.path!r}: must be one of {', '.join(PATHS)}")
        special = [self.rounds > 1, self.both_ways, self.asynchronous, self.path == "zero-copy"]
        if sum(special) > 1:
            raise ConfigError("rounds, both_ways, asynchronous and the zero-copy path: only one at a time")

    @property
    def name(self) -> str:
        """As the command knows it."""
        mode = "both" if self.both_ways else "async" if self.asynchronous else self.path
        return "sendrecv" if mode == "mtu" else f"sendrecv-{mode}"

    @property
    def configuration(self) -> Mapping[str, int | str]:
        """Sizes, in the order in which reports print them."""
        names = ("ranks", "cores", "slots", "chunks", "pieces", "rounds", "path")
        return {name: getattr(self, name) for name in names}

    @property
    def syncs(self) -> tuple[str, ...]:
        """Names of the synchronizations of its kernels."""
        return names_of_syncs(self._kernels)

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """The pod with all sides launched, and what the targets must hold at the end."""
        pod = Pod(self._spec(), order=order, without=without)
        comm = SendRecv(pod, slots=self.slots, slot_bytes=self._slot_bytes, lanes_max=self.cores)
        data = [payload(self._nbytes, source) for source, _ in self._pairs]
        sources = [pod.put(source, what) for (source, _), what in zip(self._pairs, data, strict=True)]
        targets = [pod.alloc(target, self._nbytes) for _, target in self._pairs]
        self._queue(comm, sources, targets)
        comm.launch()
        expected = [e for t, what in zip(targets, data, strict=True) for e in self._expected(pod, t, what)]
        labels = [of_buffer("source", buffer) for buffer in sources] + [of_buffer("target", t) for t in targets]
        labels += [label for pair in self._pairs for label in _of_pair(comm.layout, *pair)]
        return Trial(pod, tuple(expected), tuple(sources), tuple(labels), STOPS, PROMISES)

    def _expected(self, pod: Pod, target: Buffer, data: NDArray[np.uint8]) -> Iterator[Expected]:
        """Each lane's part of each round, for which that lane's core answers alone: so lanes have nothing in common."""
        nbytes = self.chunks * self._slot_bytes
        for lane, core in enumerate(cores_on(pod, target.die, self._kernels[-1:])):
            for r in range(self.rounds):
                start = (r * self.cores + lane) * nbytes
                part = Buffer(target.die, target.address + start, nbytes)
                name = f"target on die {target.die}, round {r}, lane {lane}"
                yield must_hold(name, part, data[start : start + nbytes], [core])

    def _queue(self, comm: SendRecv, sources: Sequence[Buffer], targets: Sequence[Buffer]) -> None:
        for source, target in zip(sources, targets, strict=True):
            event = 7 + 16 * source.die
            if self.both_ways:  # the die also receives, from the one before it
                before = (source.die - 1) % self.ranks
                arrives = 7 + 16 * before
                comm.exchange(
                    source, target.die, targets[before], before, event_id=event, recv_event_id=arrives,
                    cores=self.cores, path=self.path,
                )  # fmt: skip
            elif self.asynchronous:
                comm.isend(source, target.die, event_id=event, cores=self.cores, path=self.path)
                comm.irecv(target, source.die, event_id=event, cores=self.cores, path=self.path)
            else:
                comm.transfer(
                    source, target, event_id=event, cores=self.cores, path=self.path, rounds=self.rounds
                )  # fmt: skip

    @property
    def _kernels(self) -> tuple[Kernel, ...]:
        if self.both_ways:
            return (device.exchange,)
        if self.path == "zero-copy":
            return device.send_zero_copy, device.recv_zero_copy
        if self.asynchronous:
            return device.isend_all, device.irecv_all
        return (device.send_rounds, device.recv_rounds) if self.rounds > 1 else (device.send, device.recv)

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        """Source and target of each transfer."""
        return [(r, (r + 1) % self.ranks) for r in range(self.ranks if self.both_ways else self.ranks - 1)]

    @property
    def _slot_bytes(self) -> int:
        return self.pieces * PIECE_BYTES

    @property
    def _nbytes(self) -> int:
        return self.rounds * self.cores * self.chunks * self._slot_bytes

    def _spec(self) -> PodSpec:
        sides = 1 if self.ranks == 2 and not self.both_ways else 2
        lanes = self.ranks * self.cores
        return tight_pod(
            self.ranks,
            self.cores if self.both_ways else sides * self.cores,
            app=sides * self._nbytes,
            meta=2 * lanes * PIECE_BYTES,
            managed=lanes * self.slots * self._slot_bytes,
            ub=2 * self._slot_bytes,
        )


def _of_pair(layout: RingLayout, source: int, target: int) -> Iterator[Label]:
    """Fields and slots of an ordered pair of dies, those of each lane."""
    pair = f"[{source}→{target}]"
    for lane in range(layout.lanes):
        of_lane = f"{pair}.lane{lane}" if layout.lanes > 1 else pair
        yield Label(f"die{target}.meta.tail{of_lane}", layout.tail(source, target, lane), PIECE_BYTES)
        yield Label(f"die{source}.meta.ack{of_lane}", layout.ack(source, target, lane), PIECE_BYTES)
        ring = layout.ring(source, target, lane)
        for slot in range(layout.slots):
            name = f"die{target}.ring{of_lane}.slot{slot}"
            yield Label(name, ring + slot * layout.slot_bytes, layout.slot_bytes)
