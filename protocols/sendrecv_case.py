"""Send and receive as cases (xDeepServe 3.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xccl_emu.errors import ConfigError
from xccl_emu.kernels import sendrecv as device
from xccl_emu.lang import Kernel
from xccl_emu.machine.device.layout import GRANULE_BYTES
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import PodSpec, small_pod
from xccl_emu.protocol import Bench, Case, Preset, choice, payload, size, switch
from xccl_emu.protocol.owners import cores_running
from xccl_emu.protocols import sendrecv_paper
from xccl_emu.protocols.sendrecv import SendRecv
from xccl_emu.protocols.sendrecv_calls import RING_PATHS
from xccl_emu.protocols.sendrecv_layout import PATHS, RingLayout

_RING = {"slots": 2, "chunks": 5, "granules": 2}
STOPS = {
    device.WRONG_EVENT: "the other side has another event ID",
    device.WRONG_SHAPE: "the other side has another payload size or number of cores",
    device.WRONG_CHUNK: "a tail has the ID of another chunk",
}


@dataclass(frozen=True)
class SendRecvCase(Case):
    """Each die r but the last sends a payload to die r + 1, on ``cores`` cores a side.

    Each channel's payload is ``chunks`` chunks of ``granules`` granules of 32 bytes, a chunk fills a slot, and the
    channel's ring has ``slots`` slots.  Nothing outside of what is expected at the end can change: each channel may
    touch its part of the buffers alone.
    """

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset("sendrecv", "Send and receive through a ring of slots", {}, _RING | {"rounds": 2}),
        Preset("sendrecv-dma", "Each chunk copied by a DMA engine", {"path": "dma"}, _RING | {"rounds": 2}),
        Preset("sendrecv-zero-copy", "Read from the sender's buffer, no ring", {"path": "zero-copy"}, _RING),
    )
    papers = (sendrecv_paper.SEND_RECV,)

    ranks: int = size(2, "Dies, each of which sends to the next.", least=2)
    cores: int = size(1, "Cores of each side.")
    slots: int = size(4, "Slots of each core's ring.")
    chunks: int = size(8, "Chunks of a core's payload.")
    granules: int = size(4, "Granules of 32 bytes of a chunk.")
    rounds: int = size(1, "Transfers back to back, in one kernel a side.")
    path: str = choice("mtu", "How data is copied.", of=PATHS)
    ack_each: int = switch(0, "Acknowledge each chunk, although the payload fits the ring.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds > 1 and self.path == "zero-copy":
            raise ConfigError(f"rounds={self.rounds}: must be 1 on the zero-copy path")

    def lay_out(self, bench: Bench) -> None:
        """All sides launched; each core that receives owns its part of the target, so channels have nothing in
        common."""
        pod = bench.pod(self._spec())
        each, slot_bytes = bool(self.ack_each), self._slot_bytes
        comm = SendRecv(pod, slots=self.slots, slot_bytes=slot_bytes, channels_max=self.cores, ack_each=each)
        data = [payload(self._nbytes, source) for source, _ in self._pairs]
        sources = [bench.filled(pair[0], what, "app.source") for pair, what in zip(self._pairs, data, strict=True)]
        targets = [pod.alloc(target, self._nbytes) for _, target in self._pairs]
        self._queue(comm, sources, targets)
        comm.launch()
        for (source, _), target, what in zip(self._pairs, targets, data, strict=True):
            self._expect(bench, pod, source, target, what)
        for pair in self._pairs:
            _label_pair(bench, comm.layout, *pair)
        for code, meaning in STOPS.items():
            bench.stop(code, meaning)
        bench.tolerates("stop", "cut", "stall")

    def _expect(self, bench: Bench, pod: Pod, source: int, target: Buffer, data: NDArray[np.uint8]) -> None:
        """The payload is there when either side has returned."""
        bench.label_buffer(target, "app.target")
        nbytes = self.chunks * self._slot_bytes
        sends, receives = self._sides
        sides = cores_running(pod, source, [sends]), cores_running(pod, target.die, [receives])
        for channel, cores in enumerate(zip(*sides, strict=True)):
            for r in range(self.rounds):
                start = (r * self.cores + channel) * nbytes
                for core, side in zip(cores, ("sender", "receiver"), strict=True):
                    name = f"target on die {target.die}, round {r}, channel {channel}, for its {side}"
                    bench.expect(target.address + start, data[start : start + nbytes], name, [core])

    def _queue(self, comm: SendRecv, sources: Sequence[Buffer], targets: Sequence[Buffer]) -> None:
        how = {"cores": self.cores, "path": self.path, "rounds": self.rounds}
        for source, target in zip(sources, targets, strict=True):
            comm.transfer(source, target, event_id=_event(source.die), **how)  # type: ignore[arg-type]

    @property
    def _sides(self) -> tuple[Kernel, Kernel]:
        """What senders run, and receivers."""
        if self.path == "zero-copy":
            return device.send_zero_copy, device.recv_zero_copy
        return (device.send_rounds, device.recv_rounds) if self.rounds > 1 else (device.send, device.recv)

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        """Source and target of each transfer."""
        return [(r, r + 1) for r in range(self.ranks - 1)]

    @property
    def _slot_bytes(self) -> int:
        return self.granules * GRANULE_BYTES

    @property
    def _nbytes(self) -> int:
        return self.rounds * self.cores * self.chunks * self._slot_bytes

    def _spec(self) -> PodSpec:
        sides = 1 if self.ranks == 2 else 2
        return self._pod(sides, sides * self.cores)

    def _pod(self, sides: int, cores: int) -> PodSpec:
        """With room for so many payloads on a die, which has so many cores."""
        channels = self.ranks * self.cores
        return small_pod(
            self.ranks, cores, app_bytes=sides * self._nbytes, meta_bytes=2 * channels * GRANULE_BYTES,
            managed_bytes=channels * self.slots * self._slot_bytes, ub_bytes=2 * self._slot_bytes,
        )  # fmt: skip

    @classmethod
    def proofs(cls) -> Mapping[str, Case]:
        """One core and several, a longer payload, the other paths, and transfers back to back."""
        return {
            "one core": cls(),
            "one core, payload fits the ring": cls(chunks=4),
            "one core, payload fits the ring, each acknowledged": cls(chunks=4, ack_each=1),
            "one core, longer": cls(chunks=32, granules=8),
            "four cores": cls(cores=4),
            "three transfers back to back": cls(slots=2, chunks=3, granules=2, rounds=3),
            "two slots, four chunks": cls(slots=2, chunks=4, path="dma"),
            "two slots, four chunks, no ring": cls(slots=2, chunks=4, path="zero-copy"),
        }


@dataclass(frozen=True)
class _OneRound(SendRecvCase):
    """What goes through the ring, once."""

    rounds: int = size(1, "Must be 1.", most=1)
    path: str = choice("mtu", "How data is copied.", of=RING_PATHS)


@dataclass(frozen=True)
class BothWaysCase(_OneRound):
    """The last die sends to die 0 too, and each core sends and receives in turn: with two ranks, both directions."""

    presets = (Preset("sendrecv-both", "Each core sends and receives in turn", {}, _RING | {"chunks": 6}),)

    def _queue(self, comm: SendRecv, sources: Sequence[Buffer], targets: Sequence[Buffer]) -> None:
        for source, target in zip(sources, targets, strict=True):
            before = (source.die - 1) % self.ranks
            events = {"event_id": _event(source.die), "recv_event_id": _event(before)}
            comm.exchange(source, target.die, targets[before], before, **events, cores=self.cores, path=self.path)

    @property
    def _sides(self) -> tuple[Kernel, Kernel]:
        return device.exchange, device.exchange

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        return [(r, (r + 1) % self.ranks) for r in range(self.ranks)]

    def _spec(self) -> PodSpec:
        return self._pod(2, self.cores)

    @classmethod
    def proofs(cls) -> Mapping[str, Case]:
        """A short one."""
        return {"both directions on one core": cls(slots=2, chunks=4)}


@dataclass(frozen=True)
class AsyncCase(_OneRound):
    """Both sides repeat passes of isend and irecv until they are done."""

    presets = (Preset("sendrecv-async", "isend and irecv, in passes until both are done", {}, _RING | {"chunks": 4}),)

    def _queue(self, comm: SendRecv, sources: Sequence[Buffer], targets: Sequence[Buffer]) -> None:
        for source, target in zip(sources, targets, strict=True):
            event = _event(source.die)
            comm.isend(source, target.die, event_id=event, cores=self.cores, path=self.path)
            comm.irecv(target, source.die, event_id=event, cores=self.cores, path=self.path)

    @property
    def _sides(self) -> tuple[Kernel, Kernel]:
        return device.isend_all, device.irecv_all

    @classmethod
    def proofs(cls) -> Mapping[str, Case]:
        """A short one."""
        return {"asynchronous": cls(slots=2, chunks=4)}


def _event(source: int) -> int:
    return 7 + 16 * source


def _label_pair(bench: Bench, layout: RingLayout, source: int, target: int) -> None:
    """Fields and slots of an ordered pair of dies, those of each channel."""
    pair = f"[{source}→{target}]"
    for channel in range(layout.channels):
        of_channel = f"{pair}.channel{channel}" if layout.channels > 1 else pair
        bench.label(f"die{target}.meta.tail{of_channel}", layout.tail(source, target, channel), GRANULE_BYTES)
        bench.label(f"die{source}.meta.ack{of_channel}", layout.ack(source, target, channel), GRANULE_BYTES)
        ring = layout.ring(source, target, channel)
        for slot in range(layout.slots):
            start = ring + slot * layout.slot_bytes
            bench.label(f"die{target}.ring{of_channel}.slot{slot}", start, layout.slot_bytes)
