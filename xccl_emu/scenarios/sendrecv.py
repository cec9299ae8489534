"""Send and receive as things to check (xDeepServe 3.1)."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from xccl_emu.check.trial import Expected, Label, Trial
from xccl_emu.errors import ConfigError
from xccl_emu.kernels import sendrecv as device
from xccl_emu.lang import Kernel
from xccl_emu.machine.layout import PIECE_BYTES
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import PodSpec
from xccl_emu.protocols.sendrecv import SendRecv
from xccl_emu.protocols.sendrecv_calls import PATHS
from xccl_emu.protocols.sendrecv_layout import RingLayout
from xccl_emu.scenarios.common import at_least, must_hold, names_of_syncs, payload, tight_pod

STOPS = {device.WRONG_EVENT: "the other side has another event ID", device.WRONG_SHAPE: "the other side has a payload"}
_KERNELS: dict[str, tuple[Kernel, ...]] = {
    "mtu": (device.send, device.recv),
    "dma": (device.send, device.recv),
    "zero-copy": (device.send_zero_copy, device.recv_zero_copy),
}


@dataclass(frozen=True)
class SendRecvCheck:
    """Die r sends a payload to die r + 1, on ``cores`` cores a side.

    Each lane's payload is ``chunks`` chunks of ``pieces`` pieces of 32 bytes, a chunk fills a slot, and the lane's ring
    has ``slots`` slots.  Raises ConfigError for sizes below their least.
    """

    ranks: int = 2
    cores: int = 1
    slots: int = 4
    chunks: int = 8
    pieces: int = 4
    path: str = "mtu"
    """``"mtu"``, ``"dma"`` or ``"zero-copy"``."""

    def __post_init__(self) -> None:
        at_least(2, ranks=self.ranks)
        at_least(1, cores=self.cores, slots=self.slots, chunks=self.chunks, pieces=self.pieces)
        if self.path not in PATHS:
            raise ConfigError(f"path={self.path!r}: must be one of {', '.join(PATHS)}")

    @property
    def name(self) -> str:
        """As the command knows it."""
        return "sendrecv" if self.path == "mtu" else f"sendrecv-{self.path}"

    @property
    def configuration(self) -> Mapping[str, int | str]:
        """Sizes, in the order in which reports print them."""
        names = ("ranks", "cores", "slots", "chunks", "pieces", "path")
        return {name: getattr(self, name) for name in names}

    @property
    def syncs(self) -> tuple[str, ...]:
        """Names of the synchronizations of its kernels."""
        return names_of_syncs(_KERNELS[self.path])

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """The pod with all sides launched, and what the targets must hold at the end."""
        pod = Pod(self._spec(), order=order, without=without)
        comm = SendRecv(pod, slots=self.slots, slot_bytes=self._slot_bytes, lanes_max=self.cores)
        expected: list[Expected] = []
        filled: list[Buffer] = []
        labels: list[Label] = []
        for source in range(self.ranks - 1):
            data = payload(self._nbytes, source)
            buffer, target = pod.put(source, data), pod.alloc(source + 1, self._nbytes)
            comm.transfer(buffer, target, event_id=7 + source, cores=self.cores, path=self.path)
            expected.append(must_hold(pod, f"target on die {source + 1}", target, data))
            filled.append(buffer)
            labels += [_of_buffer("source", buffer), _of_buffer("target", target)]
            labels += labels_of_pair(comm.layout, source, source + 1)
        comm.launch()
        return Trial(pod, tuple(expected), tuple(filled), tuple(labels), STOPS)

    @property
    def _slot_bytes(self) -> int:
        return self.pieces * PIECE_BYTES

    @property
    def _nbytes(self) -> int:
        return self.cores * self.chunks * self._slot_bytes

    def _spec(self) -> PodSpec:
        sides = 1 if self.ranks == 2 else 2
        lanes = self.ranks * self.cores
        return tight_pod(
            self.ranks,
            sides * self.cores,
            app=sides * self._nbytes,
            meta=2 * lanes * PIECE_BYTES,
            managed=lanes * self.slots * self._slot_bytes,
            ub=2 * self._slot_bytes,
        )


def _of_buffer(name: str, buffer: Buffer) -> Label:
    return Label(f"die{buffer.die}.app.{name}", buffer.address, buffer.nbytes)


def labels_of_pair(layout: RingLayout, source: int, target: int) -> Iterator[Label]:
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
