"""Send and receive between any two dies of a pod: memory layout, launch and results ([xDeepServe] 3.1).

A payload goes from the sender's app data area through the ring that the receiver keeps for this sender to the
receiver's app data area; the kernels are in `xccl_emu.kernels.sendrecv`.  ::

    comm = SendRecv(pod)
    comm.transfer(source, target, event_id=7, cores=2)  # or send() and recv(), one side each
    comm.run()

Paths: ``"mtu"`` through the cores' data buffers, ``"dma"`` by the DMA engine past them (each side may choose its own),
``"zero-copy"`` from app data area to app data area without the ring (both sides must choose it).
"""

from collections.abc import Callable, Iterable, Sequence

from xccl_emu.base.errors import (
    CapacityError,
    ConfigError,
    DeadlockError,
    EventMismatchError,
    PayloadMismatchError,
    ProtocolError,
    RunError,
)
from xccl_emu.kernels import sendrecv as device
from xccl_emu.machine.launch import Launch
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.machine.state import ClaimedRegion
from xccl_emu.machine.stats import RunStats
from xccl_emu.protocol.streams import Streams
from xccl_emu.protocols.sendrecv.calls import Launcher, OpenCalls, TransferCall, Work, checked_buffer
from xccl_emu.protocols.sendrecv.rings import PairFields, RingLayout, split

_CODES = (device.WRONG_EVENT, device.WRONG_SHAPE, device.WRONG_CHUNK)


class Handle:
    """An asynchronous send or receive under way; it advances only in `test` and `wait` (of this or another handle).

    One pass of a sender's kernel fills the slots that are free when it starts, one pass of a receiver's kernel empties
    those that are full, and no pass waits.  So a payload larger than the ring needs passes of both sides in turn: the
    sender's own `test` refills the ring, the receiver's empties it, and `wait` runs a pass of every open handle.

    How far the call has come is in the fields of its channels.  So a handle that is not done goes on after
    `Pod.restore` from wherever the snapshot was, if that was taken since the call began; one that is done stays so.
    """

    def __init__(self, comm: "SendRecv", call: TransferCall, base: list[int]) -> None:
        self._comm = comm
        self.call = call
        self.base = base
        """What this side had counted on each channel before the call."""
        self.progress = [0] * call.cores
        """What the last pass returned on each channel: chunks sent or received; a sender adds 1 for the last ack."""
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
            handles = list(self._comm.handles)
            if not self._comm._pass(handles):
                waiting = "\n".join(f"  {h.call}: {h.progress} chunks on its channels" for h in handles)
                raise DeadlockError(f"no open handle can go on:\n{waiting}")

    def _check(self) -> None:
        if self.dropped:
            raise ConfigError(f"{self.call}: the handle was dropped by reset()")


class SendRecv:
    """Send and receive on a pod; owns a ring for each pair of dies and the metadata fields of their channels.

    >>> import numpy as np, xccl_emu as xe
    >>> pod = xe.Pod(xe.small_pod(2, 2))
    >>> source, target = pod.put(0, np.arange(1000, dtype=np.uint8)), pod.alloc(1, 1000)
    >>> ring = xe.SendRecv(pod)
    >>> ring.transfer(source, target, event_id=1)
    >>> ring.run().bytes_by_pipe["mtu-in"], bool((pod.view(target) == pod.view(source)).all())
    (2000, True)

    Parameters
    ----------
    pod: on which it works.
    slots: of each channel's ring.
    slot_bytes: size of a slot and so of a chunk, a multiple of 32; by default 64 KiB or the most that fits.  With
        more than half of a core's data buffer the ring is for the DMA engine alone.
    channels_max: most cores that one side of a transfer may use; by default all cores of a die.
    managed_offset, field_offset: bytes from the start of each die's managed data area and metadata area to the rings
        and fields; `layout` says where they end.  Two communicators on a pod, or one and another protocol,
        need offsets that keep them apart: one made later over the same bytes takes them over.
    ack_each: whether a receiver acknowledges each chunk as soon as its slot has been read, although the payload fits
        the ring; by default it acknowledges a payload that does once, when all is in the target.  The last
        acknowledgment always says that, so a send that has returned was received.

    One transfer at a time for each ordered pair of dies; different pairs, and both directions of a pair, go on at once.
    The payload is cut into one contiguous part a channel, of whole 32-byte granules but for the last.

    What has passed on each channel is read from its fields whenever a call begins, and nowhere else: a snapshot of
    the pod holds all there is to know about rings that no call is using.  A pair whose fields do not fit each other
    (it was never used, or a run on it failed) begins again with its next call.

    After any error in `run`, `Handle.test` or `Handle.wait` (but a wait without the other side) only `reset` helps.
    """

    def __init__(
        self,
        pod: Pod,
        *,
        slots: int = 4,
        slot_bytes: int | None = None,
        channels_max: int | None = None,
        managed_offset: int = 0,
        field_offset: int = 0,
        ack_each: bool = False,
    ) -> None:
        if not isinstance(pod, Pod):
            raise ConfigError("pod", pod, "must be a Pod")
        if not isinstance(ack_each, bool):
            raise ConfigError("ack_each", ack_each, "must be True or False")
        self._ack_each = int(ack_each)
        self.pod = pod
        channels = pod.spec.cores_per_die if channels_max is None else channels_max
        self.layout = RingLayout.fit(pod.spec, slots, slot_bytes, channels, managed_offset, field_offset)
        self.handles: list[Handle] = []
        """Asynchronous calls that are not done."""
        self._open = self._no_calls()
        self._launched: list[tuple[list[Launch], TransferCall]] = []
        self._broken = False
        self._ahead: dict[tuple[bool, int, int], list[int]] = {}
        """What a side will have counted when the streams have run that its calls were launched in."""
        layout = self.layout
        meta, managed = (layout.field_offset, layout.meta_end), (layout.managed_offset, layout.managed_end)
        pod.claims.take(self, ClaimedRegion((0, pod.spec.n_dies), meta, managed))

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
        that overlap each other or the buffers of another call, a busy pair, or an unknown path; nothing is queued then.
        """
        source, target = checked_buffer("source", source), checked_buffer("target", target)
        if target.nbytes < source.nbytes:
            raise CapacityError(f"target: a payload of {source.nbytes} bytes does not fit its {target.nbytes} bytes")
        inbox = Buffer(target.die, target.address, source.nbytes)
        expected = event_id if recv_event_id is None else recv_event_id
        send = TransferCall(True, source.die, target.die, source, event_id, cores, path, waits=True)
        self._admit(send, TransferCall(False, source.die, target.die, inbox, expected, cores, path, waits=True))

    def send(self, source: Buffer, target_die: int, *, event_id: int, cores: int = 2, path: str = "mtu") -> None:
        """Queue the sender's side alone; raises as `transfer` does."""
        source = checked_buffer("source", source)
        self._admit(TransferCall(True, source.die, target_die, source, event_id, cores, path, waits=True))

    def recv(self, target: Buffer, source_die: int, *, event_id: int, cores: int = 2, path: str = "mtu") -> None:
        """Queue the receiver's side alone, for a payload of the very size of ``target``; raises as `transfer` does."""
        target = checked_buffer("target", target)
        self._admit(TransferCall(False, source_die, target.die, target, event_id, cores, path, waits=True))

    def isend(self, source: Buffer, target_die: int, *, event_id: int, cores: int = 2, path: str = "mtu") -> Handle:
        """Start an asynchronous send; the other side must be an `irecv`. Raises as `transfer` does."""
        source = checked_buffer("source", source)
        return self._start(TransferCall(True, source.die, target_die, source, event_id, cores, path, waits=False))

    def irecv(self, target: Buffer, source_die: int, *, event_id: int, cores: int = 2, path: str = "mtu") -> Handle:
        """Start an asynchronous receive; the other side must be an `isend`. Raises as `transfer` does."""
        target = checked_buffer("target", target)
        return self._start(TransferCall(False, source_die, target.die, target, event_id, cores, path, waits=False))

    def exchange(
        self,
        source: Buffer,
        target_die: int,
        target: Buffer,
        source_die: int,
        *,
        event_id: int,
        recv_event_id: int | None = None,
        cores: int = 2,
        path: str = "mtu",
    ) -> None:
        """Queue a send of ``source`` and a receive to ``target`` on the same cores of a die, chunk by chunk in turn.

        The two may be of any sizes and go to and come from any dies; the other sides may be exchanges too, or not.
        Raises as `transfer` does, and ConfigError for buffers on different dies or the zero-copy path.
        """
        source, target = checked_buffer("source", source), checked_buffer("target", target)
        if source.die != target.die:
            raise ConfigError(f"target: must be on the die of the source, {source.die}, and is on die {target.die}")
        expected = event_id if recv_event_id is None else recv_event_id
        die = source.die
        back = TransferCall(False, source_die, die, target, expected, cores, path, waits=True, own_cores=False)
        self._admit(TransferCall(True, die, target_die, source, event_id, cores, path, waits=True, back=back), back)

    def run(self, progress: Callable[[int], None] | None = None) -> RunStats:
        """Carry out everything that is queued, all at once.

        Raises:
            EventMismatchError, PayloadMismatchError: the two sides of a transfer do not agree on the event ID, or on
                the size or number of cores; nothing of that payload has reached the target.
            DeadlockError: one side never came; its target is unchanged too.
            ConfigError: after an error, until `reset`.
        """
        self._check_ready()
        calls = self._open.queued()
        self._check_runnable(calls)
        stats = self._run([(call, self._begin(call), None) for call in calls], progress)
        for call in calls:
            self._open.remove(call)
        return stats

    def launch(self, streams: Streams | None = None) -> None:
        """Put everything that is open on cores and leave the run to somebody else, such as a check or a replay.

        Asynchronous calls repeat their passes until they are done.  What comes of the run is not noticed here: the
        communicator takes calls again only after `reset`.  With ``streams`` it takes further calls before the run, and
        each core carries them out one after the other.
        """
        self._check_ready()
        work: list[Work] = [(call, self._begin(call), None) for call in self._open.queued()]
        if streams is None:
            self._put_on_cores([*work, *((h.call, h.base, self._progress(h)) for h in self.handles)], whole=True)
            return
        work += [(h.call, h.base, [0] * h.call.cores) for h in self.handles]
        Launcher(self.pod, self.layout, self._open, True, self._ack_each, streams).put(work)
        self._ahead |= {call.key: [n + more for n, more in zip(base, self._chunks(call), strict=True)]
                        for call, base, _ in work}  # fmt: skip
        self.handles, self._open = [], self._no_calls()

    def reset(self) -> None:
        """Make the rings usable again after an error.

        Clears the pod if a run has failed (its cores stop, what they had in flight is dropped) and drops every queued
        call and every handle; the fields of their pairs are set again when the pair is next used.  App data areas stay
        as they are: targets of transfers that failed before their first chunk are unchanged, targets of others in
        the same run hold as much as had arrived.  What lies in the rings is never read again.
        """
        if self._broken:
            self.pod.clear()
        for handle in self.handles:
            handle.dropped = True
        self.handles = []
        self._open = self._no_calls()
        self._launched = []
        self._ahead = {}
        self._broken = False

    # ---- how they run

    def _admit(self, *calls: TransferCall) -> None:
        """Open all of the calls or none."""
        self._check_ready()
        for i, call in enumerate(calls):
            try:
                self._open.add(call)
            except BaseException:
                for opened in calls[:i]:
                    self._open.remove(opened)
                raise

    def _start(self, call: TransferCall) -> Handle:
        self._admit(call)
        try:
            handle = Handle(self, call, self._begin(call))
        except BaseException:
            self._open.remove(call)
            raise
        self.handles.append(handle)
        return handle

    def _no_calls(self) -> OpenCalls:
        return OpenCalls(self.pod.spec, self.layout.channels, self.layout.paths)

    def _check_ready(self) -> None:
        self.pod.claims.check(self)
        if self._broken:
            raise ConfigError("the last run failed or was interrupted: call reset() first")

    def _check_runnable(self, calls: Sequence[TransferCall]) -> None:
        """Raises ConfigError, before anything changes, if the pod cannot run the kernels of the calls."""
        self.pod.check_runnable([call.kernel for call in calls if call.own_cores])

    def _pass(self, handles: Sequence[Handle]) -> bool:
        """Run one pass of each handle, all at once, and close those that are done; False if it changed nothing."""
        self._check_ready()
        self._check_runnable([handle.call for handle in handles])
        before = [self._progress(handle) for handle in handles]
        self._run([(h.call, h.base, done) for h, done in zip(handles, before, strict=True)], None)
        moved = False
        for handle, (launches, call), done in zip(handles, self._launched, before, strict=True):
            handle.progress = [launch.results[0] for launch in launches]
            handle.done = handle.progress == [chunks + call.sends for chunks in self._chunks(call)]
            moved |= handle.done or handle.progress != done
            if handle.done:
                self.handles.remove(handle)
                self._open.remove(call)
        return moved

    def _run(self, work: Sequence[Work], progress: Callable[[int], None] | None) -> RunStats:
        self._put_on_cores(work)
        try:
            stats = self.pod.run(progress)
        except RunError as error:
            raise self._explain(error) from error
        self._broken = False
        return stats

    def _put_on_cores(self, work: Sequence[Work], whole: bool = False) -> None:
        self._broken = True  # until the run is over
        self._launched = Launcher(self.pod, self.layout, self._open, whole, self._ack_each, None).put(work)

    # ---- what the fields say

    def _fields(self, call: TransferCall) -> PairFields:
        return PairFields(self.pod, self.layout, call.source, call.target)

    def _begin(self, call: TransferCall) -> list[int]:
        """Return what this side has counted on each channel of the call, which begins; connects the pair if need
        be.

        An asynchronous side that begins second leaves the fields alone: they hold what the first one has done.
        """
        fields = self._fields(call)
        if (call.waits or self._open.partner(call) is None) and not fields.at_rest():
            fields.connect()
        return self._ahead.get(call.key, fields.counts(call.sends))[: call.cores]

    def _progress(self, handle: Handle) -> list[int]:
        """Return what a handle's passes have done so far, as the next one would if nothing can be done."""
        call, fields = handle.call, self._fields(handle.call)
        channels = list(zip(handle.base, self._chunks(call), strict=True))
        own, other = fields.counts(call.sends), fields.counts(not call.sends)
        if not fields.connected() or not all(0 <= n - base <= c for n, (base, c) in zip(own, channels, strict=False)):
            raise ConfigError(f"{call}: the pod was restored to a time when the call was not open; reset() drops it")
        all_acknowledged = [call.sends and n == base + c for n, (base, c) in zip(other, channels, strict=False)]
        return [n - base + a for n, base, a in zip(own, handle.base, all_acknowledged, strict=False)]

    # ---- how they end

    def _chunks(self, call: TransferCall) -> list[int]:
        """Return what the call adds to the count of each of its channels."""
        sizes = [channel.nbytes for channel in split(call.nbytes, call.cores)]
        if call.path == "zero-copy":
            return [device.ZERO_COPY_COUNTS if size else 0 for size in sizes]
        return [device.count_chunks(size, self.layout.slot_bytes) for size in sizes]

    def _explain(self, error: RunError) -> RunError:
        """Return the error in the words of the protocol; one that is not of this protocol's kernels unchanged."""
        if isinstance(error, DeadlockError):
            return DeadlockError("\n".join([str(error), *self._unanswered()]))
        if not isinstance(error, ProtocolError):
            return error
        running = self.pod.launch_of(error.core)
        call = next((call for launches, call in self._launched if running in launches), None)
        if call is None or error.code not in _CODES:  # it is another kernel's
            return error
        given = (error.code, error.value, error.core)
        if error.code == device.WRONG_CHUNK:
            return ProtocolError(f"{call}: the tail has chunk ID {error.value}, out of turn\n  {error}", *given)
        if error.code == device.WRONG_EVENT:
            return EventMismatchError(f"{call}: the other side has event ID {error.value}\n  {error}", *given)
        nbytes, cores = divmod(error.value, device.SHAPE_UNIT)
        theirs = f"the other side has {nbytes} bytes on {cores} cores"
        return PayloadMismatchError(f"{call} on {call.cores} cores: {theirs}\n  {error}", *given)

    def _unanswered(self) -> Iterable[str]:
        for _, call in self._launched:
            if self._open.partner(call) is None:
                yield f"  no matching {'recv' if call.sends else 'send'} was posted for the {call}"
