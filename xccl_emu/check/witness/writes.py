"""Follows each write of a run from its core to the memory where everybody sees it."""

from collections.abc import Iterable
from dataclasses import replace

from xccl_emu.check.witness import trace
from xccl_emu.check.witness.format import number, numbers, some_bytes
from xccl_emu.lang import operations as ops
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.flight import flight
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.report import symbolic

_ATOMICS = ops.names(ops.ATOMICS)
COPIES_TO_MEMORY = ops.names(ops.COPIES_TO_MEMORY)


def granules(address: int, nbytes: int, start: int, size: int) -> trace.SubTransfer:
    """Return which granules of a transfer to ``nbytes`` at ``address`` its bytes from ``start`` on are."""
    first = address // ms.GRANULE_BYTES
    count = (address + nbytes - 1) // ms.GRANULE_BYTES - first + 1
    last = (start + size - 1) // ms.GRANULE_BYTES - first + 1
    return trace.SubTransfer(start // ms.GRANULE_BYTES - first + 1, last, count)


class Writes:
    """The writes of a run; `flying` holds the writes in flight of each die, in the order of the machine's ring."""

    def __init__(self, pod: Pod) -> None:
        self._pod, self._st, self._mem = pod, pod.state, pod.memory
        self.all: list[trace.Write] = []
        self.flying: dict[int, list[trace.Write]] = {die: [] for die in range(pod.spec.n_homes)}

    def again(self) -> "Writes":
        """Another one that goes on from here, and has none of the writes that are visible."""
        other = Writes(self._pod)
        other.flying = {die: [replace(write) for write in flying] for die, flying in self.flying.items()}
        return other

    def left_in_flight(self, die: int) -> int:
        """Count what the machine has in flight for a die."""
        return int(self._st[self._ring(die) + ms.FLIGHT_COUNT])

    def note_left(self, step: trace.TraceStep) -> list[trace.Write]:
        """After a core's action: the writes to memory that it has begun, or done at once."""
        die = step.core // self._pod.spec.cores_per_die
        flying, ring = self.flying[die], self._ring(die)
        begun = range(len(flying), self.left_in_flight(die))
        writes = [self._in_flight(step, int(flight(self._st, ring, k))) for k in begun]
        flying += writes
        if self._st[ms.ORDER] == ms.ORDER_SC or step.operation in _ATOMICS:
            end = self._pod.spec.memory_bytes
            writes = [self._done(step, access) for access in step.accesses if access.writes and access.start < end]
        for write in writes:
            write.number = len(self.all)
            self.all.append(write)
        return writes

    def _ring(self, die: int) -> int:
        return int(self._st[ms.DIE_BASE] + die * self._st[ms.DIE_WORDS])

    def _in_flight(self, step: trace.TraceStep, entry: int) -> trace.Write:
        address, nbytes = int(self._st[entry + ms.FLIGHT_ADDRESS]), int(self._st[entry + ms.FLIGHT_NBYTES])
        data = self._st[entry + ms.FLIGHT_DATA : entry + self._st[ms.FLIGHT_WORDS]]
        if step.operation == "put" and nbytes == ms.GRANULE_BYTES:
            value = numbers(data[:4].tolist())
        elif step.operation in COPIES_TO_MEMORY or nbytes > 8:
            value = some_bytes(data.tobytes()[:nbytes])
        else:
            value = number(int(data[0]))
        return self._new(step, address, nbytes, value)

    def _done(self, step: trace.TraceStep, access: trace.TracedAccess) -> trace.Write:
        """A write that was visible at once."""
        value = step.value
        if step.operation not in ("put", "store"):
            data = self._mem[access.start : access.start + access.nbytes].tobytes()
            value = number(int.from_bytes(data, "little", signed=True)) if access.nbytes <= 8 else some_bytes(data)
        write = self._new(step, access.start, access.nbytes, value)
        write.visible = step.number
        return write

    def _new(self, step: trace.TraceStep, address: int, nbytes: int, value: str) -> trace.Write:
        part = None
        if step.operation in COPIES_TO_MEMORY and step.address is not None:
            part = granules(step.address, step.nbytes, address, nbytes)
        return trace.Write(0, step, address, nbytes, symbolic(self._pod, address), value, part)


def joined(writes: Iterable[trace.Write]) -> trace.SubTransfer | None:
    """The granules that writes of one transfer are, together."""
    parts = [write.part for write in writes if write.part is not None]
    if not parts:
        return None
    return trace.SubTransfer(min(part.first for part in parts), max(part.last for part in parts), parts[0].count)
