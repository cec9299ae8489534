"""What a schedule did, step by step: the form from which tables, charts and traces are drawn.

`steps` replays a schedule, `drawn` makes one up; the classes here say what was found.  They hold numbers and words, no
machine.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xccl_emu.lang import Site
from xccl_emu.machine.spec import home_name

PERFORM = "perform"
"""The pipe of a step in which writes in flight become visible."""


@dataclass(frozen=True)
class RequestSource(Site):
    """The request in a kernel that an action carries out."""

    kernel: str = ""

    def __str__(self) -> str:
        return self.of(self.kernel)


@dataclass(frozen=True)
class SubTransfer:
    """Which granules of a transfer: ``first`` to ``last`` of ``count``, from 1 on."""

    first: int
    last: int
    count: int

    def __str__(self) -> str:
        if self.first == self.last:
            return f"granule {self.first}/{self.count}"
        return f"granules {self.first}-{self.last}/{self.count}"


@dataclass(frozen=True)
class TracedAccess:
    """Bytes that an action reads or writes, as indices into the pod's memory array."""

    start: int
    nbytes: int
    writes: bool
    synchronizes: bool
    """A poll, an atomic, an add, or a load with a name: never one half of a race."""
    place: str = ""
    """In the core's data buffer ``ub+0x20``."""

    def races(self, other: "TracedAccess") -> bool:
        """Return whether two accesses are plain, to the same byte, and one of them is a write."""
        overlap = self.start < other.start + other.nbytes and other.start < self.start + self.nbytes
        return overlap and (self.writes or other.writes) and not (self.synchronizes or other.synchronizes)


@dataclass(frozen=True)
class TraceStep:
    """One action of a run."""

    number: int
    """From 1 on."""
    code: int
    """``actor << 16 | choice``."""
    core: int
    """Global number; where writes become visible, of the core whose write is the first."""
    who: str
    """The core in words, for example ``die0.core1``."""
    pipe: str
    """``scalar``, ``mtu-in``, ``vector``, ``mtu-out``, ``dma`` or ``perform``."""
    operation: str
    """One of `xccl_emu.lang.requests.OPERATIONS`."""
    action: str
    """In words, for example ``poll >= 3``."""
    source: RequestSource | None
    address: int | None = None
    """Index of the first byte in the pod's memory array."""
    nbytes: int = 0
    """Bytes of the whole instruction."""
    place: str = ""
    """The address in words, for example ``die1.meta.tail[0→1]+0x10``."""
    value: str = ""
    instruction: int = 0
    """Number of the step that issued the instruction; its own for what the scalar unit does itself."""
    part: SubTransfer | None = None
    issues: bool = False
    """The instruction is only queued by this step."""
    switched_off: bool = False
    left: tuple[int, ...] = ()
    """Numbers of the writes that left their core."""
    landed: tuple[int, ...] = ()
    """Numbers of the writes that became visible."""
    accesses: tuple[TracedAccess, ...] = ()
    failed: bool = False
    """It is the violation that ends the run."""
    fault: str = ""
    """What is wrong with the write that becomes visible."""
    blocked: bool = False
    """It has not been taken, and never can be."""
    room: "TraceStep | None" = None
    """The same action first writes a line of the cache back, to make room for another one."""

    def words(self) -> str:
        """Say what it does, with its granules if they are not all, and a scalar unit's with the name of its sync."""
        whole = self.part is None or self.part.last - self.part.first + 1 == self.part.count
        words = self.action if whole else f"{self.action}, {self.part}"
        if self.pipe == PERFORM:
            if self.operation == "fault" and not self.landed:
                return f"FAULT: {self.action}"
            return f"FAULT: {self.fault}: {words}" if self.fault else f"visible: {words}"
        named = self.pipe == "scalar" and self.source is not None and self.source.sync
        sync = f" ({named})" if named else ""
        starts = {"blocked: ": self.blocked, "SWITCHED OFF: ": self.switched_off, "issue ": self.issues}
        return f"{next((start for start, is_so in starts.items() if is_so), '')}{words}{sync}"


@dataclass
class Write:
    """A write to memory, from when it left its core until everybody could see it."""

    number: int
    by: TraceStep
    """In which it left its core."""
    address: int
    nbytes: int
    place: str
    value: str
    part: SubTransfer | None = None
    visible: int = 0
    """Number of the step that made it visible; 0 if none did."""

    @property
    def range(self) -> tuple[int, int]:
        """First byte, and the one after the last."""
        return self.address, self.address + self.nbytes

    def covers(self, address: int) -> bool:
        """Return whether a byte is one that it writes."""
        return self.address <= address < self.address + self.nbytes


@dataclass(frozen=True)
class Waiting:
    """A core that is blocked after a deadlock."""

    step: TraceStep
    """The request that is never granted, as a step without a number."""
    why: str
    """The line about it in the report of the deadlock."""
    on: tuple[int, ...]
    """Blocked cores (global numbers) that it waits for: they wrote what it polls last, or would write it next, or are
    still to come to its barrier."""


@dataclass(frozen=True)
class RunTrace:
    """A whole run."""

    steps: tuple[TraceStep, ...]
    writes: tuple[Write, ...]
    """Write n has index n."""
    end: str
    """``"done"``, ``"deadlock"``, ``"error"`` or ``"open"``: the schedule ends before the run does."""
    die_bytes: int
    n_dies: int
    n_homes: int
    """Dies, and CPUs after them."""
    cores_per_die: int
    waiting: tuple[Waiting, ...] = ()
    """After a deadlock, each blocked core and what it waits for."""

    def parts(self) -> Iterator[TraceStep]:
        """The steps, and before each the line that makes room for it."""
        for step in self.steps:
            yield from (step,) if step.room is None else (step.room, step)

    @property
    def cycle(self) -> tuple[Waiting, ...]:
        """Blocked cores that wait for each other in a ring, each for the next; none if there is no ring."""
        by_core = {one.step.core: one for one in self.waiting}
        seen: set[int] = set()
        for core in by_core:
            if ring := _ring(by_core, [core], seen):
                return tuple(by_core[core] for core in ring)
        return ()

    def die_of(self, address: int) -> int:
        """Return whose memory a byte is in, a die's or a CPU's, numbered after them; -1 for one of a data buffer."""
        return address // self.die_bytes if address < self.n_homes * self.die_bytes else -1

    def home(self, number: int) -> str:
        """A die, or a CPU, numbered after the dies, in words."""
        return home_name(number, self.n_dies)


def _ring(by_core: Mapping[int, Waiting], path: list[int], seen: set[int]) -> list[int]:
    """A ring that the path leads into; what is seen leads into none."""
    for core in by_core[path[-1]].on:
        if core in path:
            return path[path.index(core) :]
        if core not in seen and (ring := _ring(by_core, [*path, core], seen)):
            return ring
    seen.add(path[-1])
    return []
