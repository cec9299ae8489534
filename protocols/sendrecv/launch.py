"""How calls of send and receive get onto cores: arguments of the kernels, and what each core may touch."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeAlias

from xccl_emu.base.errors import CapacityError
from xccl_emu.kernels.channel import Channel
from xccl_emu.machine.device.layout import GRANULE_BYTES
from xccl_emu.machine.launch import Grant, Launch
from xccl_emu.machine.pod import Pod
from xccl_emu.protocol.streams import Streams
from xccl_emu.protocols.sendrecv.calls import OpenCalls, TransferCall
from xccl_emu.protocols.sendrecv.rings import RingLayout, part

Work: TypeAlias = tuple[TransferCall, list[int], list[int] | None]
"""A call, what its channels had counted before it, and what they have done of it if it is asynchronous."""


class Launcher:
    """Puts calls on cores that nothing has been launched on, each channel apart, so that it may touch its own part
    alone.

    whole: whether asynchronous calls repeat their passes until they are done.  ack_each: see `SendRecv`.  streams:
    the calls go after their launches, if any.
    """

    def __init__(
        self, pod: Pod, layout: RingLayout, calls: OpenCalls, whole: bool, ack_each: int, streams: Streams | None
    ) -> None:
        self._pod, self._layout, self._calls, self._whole = pod, layout, calls, whole
        self._ack_each, self._streams = ack_each, streams
        self._taken = set() if streams is not None else set(pod.active_cores())
        self._free: dict[int, Iterator[int]] = {}

    def put(self, work: Sequence[Work]) -> list[tuple[list[Launch], TransferCall]]:
        """Launch everything; the steps 1 and 5 of the paper begin.

        Returns each call with the launches of its channels, a receive before the send whose cores carry it out.
        """
        base_of = {call: base for call, base, _ in work}
        launched: list[tuple[list[Launch], TransferCall]] = []
        for call, base, done in work:
            if not call.own_cores:
                continue
            launches = self._launch(call, base, done, base_of.get(call.back) if call.back else None)
            if call.back is not None:
                launched.append((launches, call.back))
            launched.append((launches, call))
        return launched

    def _launch(
        self, call: TransferCall, base: list[int], done: list[int] | None, back: list[int] | None
    ) -> list[Launch]:
        die, kernel = call.buffer.die, call.whole if self._whole else call.kernel
        chosen = list(islice(self._cores(die), call.cores))
        if len(chosen) < call.cores:
            raise CapacityError("cores", call.cores, f"other launches leave only {len(chosen)} free on die {die}")
        launches = []
        for channel, core in enumerate(chosen):
            values = self._arguments(call, channel, base[channel])
            grants = self._grants(call, channel)
            if done is not None:
                values["done"] = done[channel]
            if call.back is not None and back is not None:
                other = self._arguments(call.back, channel, back[channel])
                values |= {"target": other["target"], "received": other["nbytes"], "back": other["c"]}
                grants += self._grants(call.back, channel)
            args = {name: values[name] for name in kernel.params}
            launches.append(self._pod.launch(kernel, die, [core], args, grants, after=self._streams))
        return launches

    def _cores(self, die: int) -> Iterator[int]:
        """The cores of a die that nothing has been launched on, each given once."""
        if die not in self._free:
            per_die, taken = self._pod.spec.cores_per_die, self._taken  # not self: a cycle would keep the pod alive
            self._free[die] = (core for core in range(per_die) if die * per_die + core not in taken)
        return self._free[die]

    def _arguments(self, call: TransferCall, number: int, base: int) -> dict[str, int | Channel]:
        """Return the arguments of all kernels, for a channel that had counted ``base`` before the call."""
        place, own = (call.source, call.target, number), part(call.nbytes, call.cores, number)
        layout, address = self._layout, call.buffer.address + own.start
        channel = Channel(
            layout.ack(*place), layout.tail(*place), call.event_id, call.shape, base, layout.slots, layout.slot_bytes,
            int(call.path == "dma"), self._ack_each, 0 if call.sends else layout.ring(*place),
        )  # fmt: skip
        return {
            "source": address,
            "target": address,
            "nbytes": own.nbytes,
            "sent": own.nbytes,
            "c": channel,
            "half_bytes": layout.half_bytes,
        }

    def _grants(self, call: TransferCall, number: int) -> list[Grant]:
        """The least that a channel of one side needs: its part of the own buffer, both fields, and its slots.

        By hand, since a sender reads in a field where it writes: no argument says that.
        """
        place, layout = (call.source, call.target, number), self._layout
        tail, ack = layout.tail(*place), layout.ack(*place)
        grants = [
            self._buffer(call, number, "r" if call.sends else "w"),
            self._window(ack if call.sends else tail, GRANULE_BYTES, "r"),
            self._window(tail if call.sends else ack, GRANULE_BYTES, "w"),
        ]
        partner = self._calls.partner(call)
        if call.path != "zero-copy":
            grants.append(self._window(layout.ring(*place), layout.channel_bytes, "w" if call.sends else "r"))
        elif call.sends and partner is not None and number < partner.cores:
            grants.append(self._buffer(partner, number, "w"))
        return grants

    def _buffer(self, call: TransferCall, number: int, rights: str) -> Grant:
        """A channel's part of the buffer."""
        own = part(call.nbytes, call.cores, number)
        return self._window(call.buffer.address + own.start, own.nbytes, rights)

    def _window(self, address: int, nbytes: int, rights: str) -> Grant:
        die, start = divmod(address, self._pod.spec.die_bytes)
        return Grant(die, start, start + nbytes, rights)
