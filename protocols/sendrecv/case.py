"""Send and receive as cases ([xDeepServe] 3.1)."""

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.sizes import parse_size
from xccl_emu.kernels import sendrecv as device
from xccl_emu.kernels.group import align
from xccl_emu.lang import Kernel
from xccl_emu.machine.device.layout import GRANULE_BYTES
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.spec import PodSpec, small_pod
from xccl_emu.protocol import Bench, Call, PodRun, Preset, choice, payload, read_papers, size, switch, text
from xccl_emu.protocol.streams import StreamCase, Streams, of_call
from xccl_emu.protocols.sendrecv.calls import RING_PATHS
from xccl_emu.protocols.sendrecv.rings import PATHS, RingLayout, part
from xccl_emu.protocols.sendrecv.session import SendRecv

_RING = {"slots": 2, "chunks": 5, "granules": 2}
STOPS = {
    device.WRONG_EVENT: "the other side has another event ID",
    device.WRONG_SHAPE: "the other side has another payload size or number of cores",
    device.WRONG_CHUNK: "a tail has the ID of another chunk",
}


@dataclass(frozen=True)
class _Transfers(StreamCase):
    """Each die r but the last sends a payload to die r + 1, on ``cores`` cores a side.

    Each channel's payload is ``chunks`` chunks of ``granules`` granules of 32 bytes, a chunk fills a slot, and the
    channel's ring has ``slots`` slots.  Nothing outside of what is expected at the end can change: each channel may
    touch its part of the buffers alone.
    """

    side_by_side = hosts_wait = True
    papers = read_papers("sendrecv")

    ranks: int = size(2, "Dies; each of them sends to the next.", least=2, most=768)
    cores: int = size(1, "Cores of each side.", most=1 << 10)
    slots: int = size(4, "Slots of each core's ring.")
    chunks: int = size(8, "Chunks of a core's payload.", examples=(1, 2, 3), each_call=True)
    granules: int = size(4, "Granules of 32 bytes of a chunk.")
    rounds: int = size(1, "Transfers back to back, each in a launch of its own.", examples=(2,), each_call=True)
    path: str = choice("mtu", "How data is copied.", of=PATHS, each_call=True)
    ack_each: int = switch(0, "Acknowledge each chunk, although the payload fits the ring.")

    def lay_out_calls(self, bench: Bench, calls: Sequence[Call]) -> None:
        """Launch all sides, call by call; each core that receives owns its part of the target, so channels have
        nothing in common."""
        cases = [call.case for call in calls if isinstance(call.case, _Transfers)]
        pod = bench.pod(self._spec(cases, bench.corner.dies))
        each, slot_bytes = bool(self.ack_each), self._slot_bytes
        comm = SendRecv(
            pod, slots=self.slots, slot_bytes=slot_bytes, channels_max=self.cores, ack_each=each,
            managed_offset=bench.corner.managed, field_offset=bench.corner.meta,
        )  # fmt: skip
        rounds = [(call, r) for call, case in zip(calls, cases, strict=True) for r in range(case.rounds)]
        streams = Streams(bench, pod, [replace(call, waits=call.waits and r == 0) for call, r in rounds])
        targets = [case._lay_out_call(bench, pod, streams, comm, number) for number, case in enumerate(cases)]
        streams.put()
        for number, case in enumerate(cases):
            case._expect(bench, streams, targets[number], number)
        for pair in self._pairs:
            _label_pair(bench, comm.layout, *pair)
        for code, meaning in STOPS.items():
            bench.stop(code, meaning)
        bench.tolerates("stop", "cut", "stall")

    def _lay_out_call(self, bench: Bench, pod: Pod, streams: Streams, comm: SendRecv, number: int) -> list[Buffer]:
        """Launch the transfers of a call after those before it; returns the targets of all pairs."""
        name = f"app.source{of_call(number)}"
        sources = [bench.filled(source, self._sent(source, number), name) for source, _ in self._pairs]
        targets = [pod.alloc(target, self._nbytes) for _, target in self._pairs]
        for r in range(self.rounds):
            sent, got = ([_payload_of(each, r, self.rounds) for each in side] for side in (sources, targets))
            self._queue(comm, sent, got, number + r)
            comm.launch(streams)
        return targets

    def _expect(self, bench: Bench, streams: Streams, targets: Sequence[Buffer], number: int) -> None:
        """The payload is there when either side has returned."""
        sends, receives = self._sides
        for (source, die), target in zip(self._pairs, targets, strict=True):
            data = self._sent(source, number)
            bench.label_buffer(target, f"app.target{of_call(number)}")
            sides = streams.cores(source, [sends]), streams.cores(die, [receives])
            for r, (channel, cores) in itertools.product(range(self.rounds), enumerate(zip(*sides, strict=True))):
                own = part(self._payload_bytes, self.cores, channel)
                start = r * self._payload_bytes + own.start
                for core, side in zip(cores, ("sender", "receiver"), strict=True):
                    name = f"target{of_call(number)} on die {die}, round {r}, channel {channel}, for its {side}"
                    bench.expect(target.address + start, data[start : start + own.nbytes], name, [core])

    def _queue(self, comm: SendRecv, sources: Sequence[Buffer], targets: Sequence[Buffer], number: int) -> None:
        how = {"cores": self.cores, "path": self.path}
        for source, target in zip(sources, targets, strict=True):
            comm.transfer(source, target, event_id=_event(source.die, number), **how)  # type: ignore[arg-type]

    @property
    def _sides(self) -> tuple[Kernel, Kernel]:
        """Return the kernels that senders and receivers run."""
        if self.path == "zero-copy":
            return device.send_zero_copy, device.recv_zero_copy
        return device.send, device.recv

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        """Source and target of each transfer."""
        return [(r, r + 1) for r in range(self.ranks - 1)]

    @property
    def _dies(self) -> int:
        """Dies of the smallest pod."""
        return self.ranks

    @property
    def _slot_bytes(self) -> int:
        return self.granules * GRANULE_BYTES

    @property
    def _payload_bytes(self) -> int:
        return self.cores * self.chunks * self._slot_bytes

    @property
    def _nbytes(self) -> int:
        return self.rounds * self._payload_bytes

    def _payload(self, source: int, rounds: int = 1) -> NDArray[np.uint8]:
        """Return what a die sends in ``rounds`` rounds."""
        return payload(rounds * self._payload_bytes, source)

    def _sent(self, source: int, number: int) -> NDArray[np.uint8]:
        """Return what a die sends in a call."""
        return self._payload(source + 7919 * number, self.rounds)

    @property
    def _on_die(self) -> tuple[int, int]:
        """Payloads of a call, and cores, of a die that has the most."""
        sides = 1 if len(self._pairs) == 1 else 2
        return sides, sides * self.cores

    def _spec(self, cases: "Sequence[_Transfers]", dies: int) -> PodSpec:
        """The pod's spec with room for the payloads of all calls, and rings between all ``dies`` if these are more."""
        (payloads, cores), channels = self._on_die, max(dies, self._dies) * self.cores
        kernels = {kernel for case in cases for kernel in case._sides}
        tables = cores * Streams.table_bytes(sum(case.rounds for case in cases), *kernels)
        return small_pod(
            self._dies, cores, app_bytes=payloads * sum(align(case._nbytes) for case in cases) + tables,
            meta_bytes=2 * channels * GRANULE_BYTES, managed_bytes=channels * self.slots * self._slot_bytes,
            ub_bytes=2 * self._slot_bytes,
        )  # fmt: skip


@dataclass(frozen=True)
class SendRecvCase(_Transfers):
    """Each die r but the last sends a payload to die r + 1, on ``cores`` cores a side; or a file is sent, between any
    two dies, or every die sends to a random other one at once.

    Each channel's payload is ``chunks`` chunks of ``granules`` granules of 32 bytes, if nothing else is said of it; a
    chunk fills a slot, and the channel's ring has ``slots`` slots.
    """

    presets: ClassVar[tuple[Preset, ...]] = (
        Preset("sendrecv", "Send and receive through a ring of slots", {}, _RING | {"rounds": 2}, {"cores": 2}),
        Preset("sendrecv-dma", "Each chunk copied by a DMA engine", {"path": "dma"}, _RING | {"rounds": 2}),
        Preset("sendrecv-zero-copy", "Written to the receiver's buffer, no ring", {"path": "zero-copy"}, _RING),
    )

    nbytes: int | str = text("", "Payload, such as 3000 or 1.5M, in place of chunks; 1M on the pod.", advanced=True)
    file: str = text("", "File to send, in place of random bytes.", advanced=True)
    source: int = size(-1, "Die that sends, if only one does; -1 is the first.", least=-1, most=767, advanced=True)
    target: int = size(-1, "Die that receives; -1 is the last of the pod.", least=-1, most=767, advanced=True)
    permutation: int = switch(0, "Every die sends to a random other one at once.", advanced=True, also="permutation")
    seed: int = size(0, "Of the payloads.", least=0, most=None, advanced=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.file and self.nbytes:
            raise ConfigError("nbytes", self.nbytes, "cannot be combined with --file, which gives the size")
        for name, usual in (("file", ""), ("source", -1), ("target", -1)):
            if (self.permutation or self.ranks > 2) and getattr(self, name) != usual:
                raise ConfigError(name, getattr(self, name), "applies to two dies, not to more ranks or --permutation")
        self._payload_bytes  # noqa: B018  refuses what is none

    def fit_to_memory(self, given: Collection[str], run: PodRun) -> tuple[Self, str]:
        """A megabyte, and slots as large as may be, if nothing else is asked for."""
        slot_bytes = RingLayout.fit(run.pod.spec, self.slots, None, run.pod.spec.cores_per_die, 0, 0).slot_bytes
        usual: dict[str, Any] = {} if "granules" in given else {"granules": slot_bytes // GRANULE_BYTES}
        if not {"file", "chunks"} & {*given} and not self.nbytes:
            usual["nbytes"] = "1M"
        case = replace(self, **usual)
        n, ring = case._payload_bytes, 0
        if case.permutation:
            ring = case.slots * min(n, case.cores * case._slot_bytes)
        run.fits(len(case._pairs_of(run.pod.spec.n_dies)) * (3 * n + ring), "the payloads need", "send less")
        return case, ""

    def run_on_pod(self, run: PodRun) -> None:
        """Transfers one after the other over the same rings, of all pairs at once, each held against what was sent."""
        pod, pairs = run.pod, self._pairs_of(run.pod.spec.n_dies)
        comm = SendRecv(pod, slots=self.slots, slot_bytes=self._slot_bytes, ack_each=bool(self.ack_each))
        data = [self._payload(source) for source, _ in pairs]
        buffers = [(pod.put(s, what), pod.alloc(t, what.size)) for (s, t), what in zip(pairs, data, strict=True)]
        run.facts |= {"pairs": len(pairs), "nbytes": self._payload_bytes}
        for number in range(self.rounds):
            for source, target in buffers:
                comm.transfer(source, target, event_id=number + 1, cores=self.cores, path=self.path)
            with run.stage(f"send and receive {number + 1}") as progress:
                stats = comm.run(progress)
            run.rounds.append({"transfer": stats})
            for (_, target), what in zip(buffers, data, strict=True):
                run.wrong += int(np.count_nonzero(pod.view(target) != what))
                pod.view(target)[:] = 0

    def _pairs_of(self, dies: int) -> list[tuple[int, int]]:
        if self.permutation:  # each die sends to the next in a random circle, so never to itself
            ring: list[int] = np.random.default_rng(self.seed).permutation(dies).tolist()
            return list(zip(ring, ring[1:] + ring[:1], strict=True))
        if self.ranks > 2:
            return super()._pairs
        return [(max(self.source, 0), dies - 1 if self.target < 0 else self.target)]

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        return self._pairs_of(self._dies)

    @property
    def _dies(self) -> int:
        return max(self.ranks, self.source + 1, self.target + 1)

    @property
    def _payload_bytes(self) -> int:
        if self.file:
            return _size_of(str(self.file))
        return parse_size("--nbytes", str(self.nbytes)) if self.nbytes != "" else super()._payload_bytes

    def _payload(self, source: int, rounds: int = 1) -> NDArray[np.uint8]:
        if self.file:
            return np.tile(np.fromfile(str(self.file), np.uint8), rounds)
        return payload(rounds * self._payload_bytes, source + 1009 * self.seed)

    proof_rows: ClassVar = {
        "one core": {},
        "one core, payload fits the ring": dict(chunks=4),
        "one core, payload fits the ring, each acknowledged": dict(chunks=4, ack_each=1),
        "one core, longer": dict(chunks=32, granules=8),
        "four cores": dict(cores=4),
        "three transfers back to back": dict(slots=2, chunks=3, granules=2, rounds=3),
        "two slots, four chunks": dict(slots=2, chunks=4, path="dma"),
        "two slots, four chunks, no ring": dict(slots=2, chunks=4, path="zero-copy"),
    }


@dataclass(frozen=True)
class _OneRound(_Transfers):
    """What goes through the ring, once."""

    rounds: int = size(1, "Must be 1.", most=1, each_call=True)
    path: str = choice("mtu", "How data is copied.", of=RING_PATHS, each_call=True)


@dataclass(frozen=True)
class BothWaysCase(_OneRound):
    """The last die sends to die 0 too, and each core sends and receives in turn: with two ranks, both directions."""

    presets = (Preset("sendrecv-both", "Each core sends and receives in turn", {}, _RING | {"chunks": 6}),)

    def _queue(self, comm: SendRecv, sources: Sequence[Buffer], targets: Sequence[Buffer], number: int) -> None:
        for source, target in zip(sources, targets, strict=True):
            before = (source.die - 1) % self.ranks
            events = {"event_id": _event(source.die, number), "recv_event_id": _event(before, number)}
            comm.exchange(source, target.die, targets[before], before, **events, cores=self.cores, path=self.path)

    @property
    def _sides(self) -> tuple[Kernel, Kernel]:
        return device.exchange, device.exchange

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        return [(r, (r + 1) % self.ranks) for r in range(self.ranks)]

    @property
    def _on_die(self) -> tuple[int, int]:
        return 2, self.cores

    proof_rows: ClassVar = {"both directions on one core": dict(slots=2, chunks=4)}


@dataclass(frozen=True)
class AsyncCase(_OneRound):
    """Both sides repeat passes of isend and irecv until they are done."""

    presets = (Preset("sendrecv-async", "isend and irecv, in passes until both are done", {}, _RING | {"chunks": 4}),)

    def _queue(self, comm: SendRecv, sources: Sequence[Buffer], targets: Sequence[Buffer], number: int) -> None:
        for source, target in zip(sources, targets, strict=True):
            event = _event(source.die, number)
            comm.isend(source, target.die, event_id=event, cores=self.cores, path=self.path)
            comm.irecv(target, source.die, event_id=event, cores=self.cores, path=self.path)

    @property
    def _sides(self) -> tuple[Kernel, Kernel]:
        return device.isend_all, device.irecv_all

    proof_rows: ClassVar = {"asynchronous": dict(slots=2, chunks=4)}


def _payload_of(buffer: Buffer, r: int, rounds: int) -> Buffer:
    """The r-th of ``rounds`` payloads that a buffer holds."""
    nbytes = buffer.nbytes // rounds
    return Buffer(buffer.die, buffer.address + r * nbytes, nbytes)


def _event(source: int, number: int) -> int:
    return 7 + 16 * source + number


def _label_pair(bench: Bench, layout: RingLayout, source: int, target: int) -> None:
    """Name the fields and slots of an ordered pair of dies, channel by channel."""
    pair = f"[{source}→{target}]"
    for channel in range(layout.channels):
        of_channel = f"{pair}.channel{channel}" if layout.channels > 1 else pair
        bench.label(f"die{target}.meta.tail{of_channel}", layout.tail(source, target, channel), GRANULE_BYTES)
        bench.label(f"die{source}.meta.ack{of_channel}", layout.ack(source, target, channel), GRANULE_BYTES)
        ring = layout.ring(source, target, channel)
        for slot in range(layout.slots):
            start = ring + slot * layout.slot_bytes
            bench.label(f"die{target}.ring{of_channel}.slot{slot}", start, layout.slot_bytes)


def _size_of(file: str) -> int:
    """Bytes of a file; ConfigError if it cannot be read, or has none."""
    try:
        with open(file, "rb"):
            nbytes = Path(file).stat().st_size
    except (OSError, ValueError) as error:
        raise ConfigError(f"--file {file}: cannot be read ({getattr(error, 'strerror', error)})") from error
    if nbytes == 0:
        raise ConfigError(f"--file {file}: is empty, there is nothing to send")
    return nbytes
