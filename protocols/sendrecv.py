"""Send and receive between any two dies of a pod: memory layout, launch and results (xDeepServe 3.1).

A payload goes from the sender's app data area through the ring that the receiver keeps for this sender to the
receiver's app data area; the kernels are in `xccl_emu.kernels.sendrecv`.  ::

    comm = SendRecv(pod)
    comm.transfer(source, target, event_id=7, cores=2)  # or send() and recv(), one side each
    comm.run()

Paths: ``"mtu"`` through the cores' data buffers, ``"dma"`` by the DMA engine past them (each side may choose its own),
``"zero-copy"`` from app data area to app data area without the ring (both sides must choose it).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from xccl_emu.errors import (
    CapacityError,
    ConfigError,
    DeadlockError,
    EventMismatchError,
    PayloadMismatchError,
    ProtocolError,
    RunError,
)
from xccl_emu.kernels import sendrecv as device
from xccl_emu.machine import layout as at
from xccl_emu.machine.launch import Grant, Launch
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.stats import RunStats
from xccl_emu.protocols.sendrecv_calls import Call, OpenCalls
from xccl_emu.protocols.sendrecv_layout import Lane, RingLayout, split


class Handle:
    """An asynchronous send or receive under way; it advances only in `test` and `wait` (of this or another handle).

    One pass of a sender's kernel fills the slots that are free when it starts, one pass of a receiver's kernel empties
    those that are full, and no pass waits.  So a payload larger than the ring needs passes of both sides in turn: the
    sender's own `test` refills the ring, the receiver's empties it, and `wait` runs a pass of every open handle.
    """

    def __init__(self, comm: "SendRecv", call: Call) -> None:
        self._comm = comm
        self.call = call
        self.progress = [0] * call.cores
        """What the last pass returned on each lane: chunks sent or received; a sender adds 1 for the last ack."""
        self.done = False
        self.dropped = False

    def test(self) -> bool:
        """Run one pass of this side and say whether it is done; raises as `SendRecv.run` does."""
        self._check()
        if not self.done:
            self._comm._pass([self])
        return self.done

    def wait(self) -> None:
        """Run passes of all open handles until this one is done.

        Raises DeadlockError when a pass changes nothing, which means that none will: the other side is missing.
        Nothing is lost then; start the other side and wait again.
        """
        self._check()
        while not self.done:
            handles = self._comm.handles
            before = [list(h.progress) for h in handles]
            self._comm._pass(handles)
            if before == [h.progress for h in handles]:
                waiting = "\n".join(f"  {h.call}: {h.progress} chunks on its lanes" for h in handles)
                raise DeadlockError(f"no open handle can go on:\n{waiting}")

    def _check(self) -> None:
        if self.dropped:
            raise ConfigError(f"{self.call}: the handle was dropped by reset()")


class SendRecv:
    """Send and receive on a pod; owns a ring for each pair of dies and the metadata fields of their lanes.

    Parameters
    ----------
    pod: on which it works.
    slots: of each lane's ring.
    slot_bytes: size of a slot and so of a chunk, a multiple of 32 and at most half of a core's data buffer; by default
        64 KiB or the most that fits.
    lanes_max: most cores that one side of a transfer may use; by default all cores of a die.
    managed_offset, field_offset: where in each die's managed data area and metadata area the rings and fields begin;
        `layout` says where they end.

    One transfer at a time for each ordered pair of dies; different pairs, and both directions of a pair, go on at once.
    The payload is cut into one contiguous part a lane, of whole 32-byte pieces but for the last.

    After any error in `run`, `Handle.test` or `Handle.wait` (but a wait without the other side) only `reset` helps.
    """

    def __init__(
        self,
        pod: Pod,
        *,
        slots: int = 4,
        slot_bytes: int | None = None,
        lanes_max: int | None = None,
        managed_offset: int = 0,
        field_offset: int = 0,
    ) -> None:
        self.pod = pod
        lanes = pod.spec.cores_per_die if lanes_max is None else lanes_max
        self.layout = RingLayout.fit(pod.spec, slots, slot_bytes, lanes, managed_offset, field_offset)
        self.handles: list[Handle] = []
        """Asynchronous calls that are not done."""
        self._open = OpenCalls(pod.spec, self.layout.lanes)
        self._connected: set[tuple[int, int]] = set()
        self._counts: dict[tuple[bool, int, int], list[int]] = {}
        self._launched: list[tuple[Launch, Call]] = []
        self._broken = False

    # ---- what callers ask for

    def transfer(
        self,
        source: Buffer,
        target: Buffer,
        *,
        event_id: int,
        recv_event_id: int | None = None,
        cores: int = 2,
        path: str = "mtu",
    ) -> None:
        """Queue both sides of a transfer of all of ``source`` to the beginning of ``target``; `run` carries it out.

        Raises CapacityError if the payload does not fit the target or a die lacks the cores, ConfigError for buffers
        that overlap each other or those of another call, a busy pair, or an unknown path; then nothing is queued.
        """
        if target.nbytes < source.nbytes:
            raise CapacityError(f"target: a payload of {source.nbytes} bytes does not fit its {target.nbytes} bytes")
        inbox = Buffer(target.die, target.address, source.nbytes)
        expected = event_id if recv_event_id is None else recv_event_id
        send = Call(True, source.die, target.die, source, event_id, cores, path, waits=True)
        recv = Call(False, source.die, target.die, inbox, expected, cores, path, waits=True)
        self._admit(send)
        try:
            self._admit(recv)
        except ConfigError:
            self._open.remove(send)
            raise

    def send(self, source: Buffer, target_die: int, *, event_id: int, cores: int = 2, path: str = "mtu") -> None:
        """Queue the sender's side alone; raises as `transfer` does."""
        self._admit(Call(True, source.die, target_die, source, event_id, cores, path, waits=True))

    def recv(self, target: Buffer, source_die: int, *, event_id: int, cores: int = 2, path: str = "mtu") -> None:
        """Queue the receiver's side alone, for a payload of the very size of ``target``; raises as `transfer` does."""
        self._admit(Call(False, source_die, target.die, target, event_id, cores, path, waits=True))

    def isend(self, source: Buffer, target_die: int, *, event_id: int, cores: int = 2, path: str = "mtu") -> Handle:
        """Start an asynchronous send; the other side must be an `irecv`. Raises as `transfer` does."""
        return self._start(Call(True, source.die, target_die, source, event_id, cores, path, waits=False))

    def irecv(self, target: Buffer, source_die: int, *, event_id: int, cores: int = 2, path: str = "mtu") -> Handle:
        """Start an asynchronous receive; the other side must be an `isend`. Raises as `transfer` does."""
        return self._start(Call(False, source_die, target.die, target, event_id, cores, path, waits=False))

    def run(self, progress: Callable[[int], None] | None = None) -> RunStats:
        """Carry out everything that is queued, all at once.

        Raises:
            EventMismatchError, PayloadMismatchError: the two sides of a transfer do not agree on the event ID, or on
                the size or number of cores; nothing of that payload has reached the target.
            DeadlockError: one side never came; its target is unchanged too.
            ConfigError: after an error, until `reset`.
        """
        calls = self._open.queued()
        stats = self._run([(call, None) for call in calls], progress)
        for call in calls:
            self._finish(call)
        return stats

    def reset(self) -> None:
        """Make the rings usable again after an error.

        Clears the pod if a run has failed (its cores stop, what they had in flight is dropped), drops every queued call
        and every handle, and sets all metadata fields of this communicator and its counts to zero.  App data areas stay
        as they are: the targets of the transfers that failed before their first chunk are unchanged, those of others in
        the same run hold as much as had arrived.  What lies in the rings is never read again.
        """
        if self._broken:
            self.pod.clear()
        for source, target in self._connected:
            for field in (self.layout.tail(source, target, 0), self.layout.ack(source, target, 0)):
                self.pod.memory[field : field + self.layout.fields_bytes] = 0
        for handle in self.handles:
            handle.dropped = True
        self.handles = []
        self._open = OpenCalls(self.pod.spec, self.layout.lanes)
        self._connected, self._counts, self._launched = set(), {}, []
        self._broken = False

    # ---- how they run

    def _admit(self, call: Call) -> None:
        self._check_ready()
        self._open.add(call)

    def _start(self, call: Call) -> Handle:
        self._admit(call)
        handle = Handle(self, call)
        self.handles.append(handle)
        return handle

    def _check_ready(self) -> None:
        if self._broken:
            raise ConfigError("the last run failed or was interrupted: call reset() first")

    def _pass(self, handles: Sequence[Handle]) -> None:
        """Run one pass of each handle, all at once, and close those that are done."""
        handles = list(handles)
        self._run([(handle.call, handle.progress) for handle in handles], None)
        for handle, (launch, call) in zip(handles, self._launched, strict=True):
            handle.progress = list(launch.results)
            ends = [count + call.sends for count in self._chunks(call)]
            if handle.progress == ends:
                handle.done = True
                self.handles.remove(handle)
                self._finish(call)

    def _run(self, work: Sequence[tuple[Call, list[int] | None]], progress: Callable[[int], None] | None) -> RunStats:
        self._check_ready()
        self._broken = True  # until the run is over
        cores = self._free_cores()
        self._launched = [(self._launch(call, cores, done), call) for call, done in work]
        try:
            stats = self.pod.run(progress)
        except RunError as error:
            raise self._explain(error) from error
        self._broken = False
        return stats

    def _free_cores(self) -> Callable[[int], Iterator[int]]:
        """For each die, its cores that nothing has been launched on, each given once."""
        per_die = self.pod.spec.cores_per_die
        taken = set(self.pod.active_cores())
        given: dict[int, Iterator[int]] = {}

        def on_die(die: int) -> Iterator[int]:
            if die not in given:
                given[die] = (core for core in range(per_die) if die * per_die + core not in taken)
            return given[die]

        return on_die

    def _launch(self, call: Call, cores: Callable[[int], Iterator[int]], done: list[int] | None) -> Launch:
        """Put the call's kernel on cores of its die; steps 1 and 5 of the paper begin."""
        self._connect(call.source, call.target)
        die = call.buffer.die
        chosen = list(islice(cores(die), call.cores))
        if len(chosen) < call.cores:
            raise CapacityError(f"cores={call.cores}: other launches leave only {len(chosen)} free on die {die}")
        lanes = split(call.buffer.nbytes, call.cores)
        values = self._lane_arguments(call, lanes)
        values |= {
            "event": call.event_id, "shape": call.shape, "slots": self.layout.slots,
            "slot_bytes": self.layout.slot_bytes, "half_bytes": self.layout.half_bytes,
        }  # fmt: skip
        if done is not None:
            values["done"] = done
        arguments = {name: values[name] for name in call.kernel.params}
        return self.pod.launch(call.kernel, die, chosen, arguments, self._grants(call))

    def _lane_arguments(self, call: Call, lanes: Sequence[Lane]) -> dict[str, int | Sequence[int]]:
        """What differs from lane to lane: addresses, sizes and the counts so far."""
        n, pair = range(len(lanes)), (call.source, call.target)
        addresses = [call.buffer.address + lane.start for lane in lanes]
        return {
            "source": addresses,
            "target": addresses,
            "nbytes": [lane.nbytes for lane in lanes],
            "ack": [self.layout.ack(*pair, lane) for lane in n],
            "tail": [self.layout.tail(*pair, lane) for lane in n],
            "ring": [self.layout.ring(*pair, lane) for lane in n],
            "base": self._count(call)[: len(lanes)],
        }

    def _grants(self, call: Call) -> list[Grant]:
        """The least that each side needs: its own buffer and field, and the other side's field and ring."""
        n, pair = call.cores, (call.source, call.target)
        zero_copy, partner = call.path == "zero-copy", self._open.partner(call)
        if call.sends:
            grants = [self._window(self.layout.ack(*pair, 0), n * at.PIECE_BYTES, "r")]
            grants += [self._window(self.layout.tail(*pair, 0), n * at.PIECE_BYTES, "w")]
            if zero_copy and partner is not None:
                grants += [self.pod.grant(partner.buffer, "w")]
        else:
            grants = [self._window(self.layout.tail(*pair, 0), n * at.PIECE_BYTES, "r")]
            grants += [self._window(self.layout.ack(*pair, 0), n * at.PIECE_BYTES, "w")]
        if not zero_copy:
            grants += [self._window(self.layout.ring(*pair, 0), n * self.layout.lane_bytes, "w" if call.sends else "r")]
        return [self.pod.grant(call.buffer, "r" if call.sends else "w"), *grants]

    def _window(self, address: int, nbytes: int, rights: str) -> Grant:
        die, start = divmod(address, self.pod.spec.die_bytes)
        return Grant(die, start, start + nbytes, rights)

    def _connect(self, source: int, target: int) -> None:
        """Before the first transfer of a pair: empty fields, and in each ack field the address of the lane's ring."""
        if (source, target) in self._connected:
            return
        for field in (self.layout.tail(source, target, 0), self.layout.ack(source, target, 0)):
            self.pod.memory[field : field + self.layout.fields_bytes] = 0
        acks = self.pod.memory[field : field + self.layout.fields_bytes].view(np.int64).reshape(-1, 4)
        first = self.layout.ring(source, target, 0)
        acks[:, device.WHERE // 8] = first + np.arange(self.layout.lanes) * self.layout.lane_bytes
        self._connected.add((source, target))

    # ---- how they end

    def _count(self, call: Call) -> list[int]:
        """What this side has counted on each lane of its pair so far."""
        return self._counts.setdefault(call.key, [0] * self.layout.lanes)

    def _chunks(self, call: Call) -> list[int]:
        """What the call adds to the count of each of its lanes."""
        sizes = [lane.nbytes for lane in split(call.buffer.nbytes, call.cores)]
        if call.path == "zero-copy":
            return [device.ZERO_COPY_COUNTS if size else 0 for size in sizes]
        return [device.count_chunks(size, self.layout.slot_bytes) for size in sizes]

    def _finish(self, call: Call) -> None:
        counts = self._count(call)
        for lane, chunks in enumerate(self._chunks(call)):
            counts[lane] += chunks
        self._open.remove(call)

    def _explain(self, error: RunError) -> RunError:
        """The same error in the words of the protocol."""
        if isinstance(error, DeadlockError):
            missing = "".join(f"\n  nobody answers the {call}" for call in self._unanswered())
            return DeadlockError(f"{error}{missing}")
        if not isinstance(error, ProtocolError):
            return error
        running = self.pod.launch_of(error.core)
        found = [call for launch, call in self._launched if launch is running]
        if error.code == device.WRONG_EVENT:
            return EventMismatchError(f"{found[0]}: the other side has event ID {error.value}\n  {error}")
        nbytes, cores = divmod(error.value, device.SHAPE_UNIT)
        own = f"on {found[0].cores} cores"
        return PayloadMismatchError(f"{found[0]} {own}: the other side has {nbytes} bytes on {cores} cores\n  {error}")

    def _unanswered(self) -> Iterable[Call]:
        return (call for _, call in self._launched if self._open.partner(call) is None)
