"""The pod as its users hold it: memory, launches, runs, snapshots."""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from xccl_emu.errors import CapacityError, ConfigError, ReplayError
from xccl_emu.lang import Kernel
from xccl_emu.lang.abi import REGISTERS, RESULT
from xccl_emu.lang.requests import OPERATIONS
from xccl_emu.machine import layout as at
from xccl_emu.machine import report
from xccl_emu.machine.address_space import commit, map_bytes
from xccl_emu.machine.launch import Grant, Launch, bind_arguments, check_grants
from xccl_emu.machine.schedule import Schedule
from xccl_emu.machine.spec import PodSpec

ORDERS = ("sc", "fifo", "relaxed")
POLICIES = ("round-robin", "random")
_SLICE_ACTIONS = 1 << 18  # then Python has a look: progress, Ctrl-C
_LOG_SLICE = 1 << 20
_SNAPSHOT_BYTES_MAX = 1 << 30


@dataclass(frozen=True)
class Buffer:
    """A range of a die's app data area."""

    die: int
    address: int
    """Global address of the first byte."""
    nbytes: int


@dataclass(frozen=True)
class RunStats:
    """What a run did."""

    seconds: float
    actions: int
    instructions: dict[str, int]
    """Granted requests by operation."""
    bytes_by_pipe: dict[str, int]
    """Bytes that went through each kind of pipe: scalar, mtu-in, vector, mtu-out, dma."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A copy of everything a small pod holds."""

    memory: NDArray[np.uint8]
    state: NDArray[np.int64]


class Pod:
    """An emulated pod: its memory and everything else as two arrays, and the calls to put data in and run kernels.

    Parameters
    ----------
    spec: what the pod is made of.
    order: memory order, ``"sc"``, ``"fifo"`` or ``"relaxed"``.
    policy: who goes next, ``"round-robin"`` or ``"random"``.
    seed: of the random policy.
    record: keep the schedule of each run (`schedule`).
    without: names of synchronizations to switch off.
    generators: run the kernels' undecorated generators; only with the JIT off, for a debugger.

    Raises ConfigError for an unknown order or policy, CapacityError if the pod cannot be mapped.
    """

    def __init__(
        self,
        spec: PodSpec,
        *,
        order: str = "sc",
        policy: str = "round-robin",
        seed: int = 0,
        record: bool = False,
        without: Iterable[str] = (),
        generators: bool = False,
    ) -> None:
        self.spec, self.seed, self.record = spec, seed, record
        self.order, self.policy = _one_of("order", order, ORDERS), _one_of("policy", policy, POLICIES)
        self.without = frozenset(without)
        self.generators = generators
        self.memory = map_bytes(spec.n_dies * spec.die_bytes + spec.n_cores * spec.ub_bytes, spec.name)
        self.state = map_bytes(8 * self._lay_out(), spec.name).view(np.int64)
        self._write_header()
        self._app_used: dict[int, int] = {}
        self._launches: list[Launch] = []
        self._kernels: list[Kernel] = []
        self._owner: dict[int, Launch] = {}
        self._failed = False
        self._schedule: Schedule | None = None

    # ---- layout of the state array

    def _lay_out(self) -> int:
        """Place the regions of the state array; returns its length in words."""
        spec = self.spec
        flights = 0 if self.order == "sc" else spec.flight_pieces
        self._writer_slots = 1 << 12 if spec.n_cores <= 64 else 1 << 18
        sizes = {
            at.CORE_BASE: spec.n_cores * (REGISTERS + spec.registers),
            at.DIE_BASE: spec.n_dies * (at.FLIGHT_ENTRIES + flights * at.FLIGHT_WORDS),
            at.GROUP_BASE: spec.n_cores * at.GROUP_WORDS,
            at.SWITCH_BASE: at.MAX_KERNELS * at.MAX_SITES,
            at.WRITER_BASE: self._writer_slots * at.WRITER_WORDS,
            at.ACTIVE_BASE: spec.n_cores + spec.n_dies,
        }
        self._base: dict[int, int] = {}
        end = at.HEADER_WORDS
        for region, size in sizes.items():
            self._base[region] = end
            end += size
        return end

    def _write_header(self) -> None:
        spec, st = self.spec, self.state
        for region, base in self._base.items():
            st[region] = base
        st[at.N_CORES], st[at.CORES_PER_DIE], st[at.N_DIES] = spec.n_cores, spec.cores_per_die, spec.n_dies
        st[at.DIE_SHIFT] = spec.die_bytes.bit_length() - 1
        st[at.UB_BYTES], st[at.ORDER] = spec.ub_bytes, ORDERS.index(self.order)
        st[at.CORE_WORDS] = REGISTERS + spec.registers
        st[at.FLIGHT_CAPACITY] = 0 if self.order == "sc" else spec.flight_pieces
        st[at.DIE_WORDS] = at.FLIGHT_ENTRIES + int(st[at.FLIGHT_CAPACITY]) * at.FLIGHT_WORDS
        st[at.WRITER_SLOTS] = self._writer_slots
        st[at.RANDOM_1] = self.seed % 2147483562 + 1
        st[at.RANDOM_2] = self.seed // 2147483562 % 2147483398 + 1

    def core_base(self, core: int) -> int:
        """Index of a core's first word in the state array."""
        return self._base[at.CORE_BASE] + core * (REGISTERS + self.spec.registers)

    # ---- memory

    def address(self, die: int, offset: int) -> int:
        """Global address of an offset in a die's memory."""
        self._check_die(die)
        return die * self.spec.die_bytes + offset

    def meta(self, die: int, offset: int = 0) -> int:
        """Global address in a die's metadata area."""
        return self.address(die, self.spec.meta_start + offset)

    def managed(self, die: int, offset: int = 0) -> int:
        """Global address in a die's managed data area."""
        return self.address(die, self.spec.managed_start + offset)

    def alloc(self, die: int, nbytes: int) -> Buffer:
        """Reserve bytes in a die's app data area, aligned to 32; CapacityError if they do not fit."""
        self._check_die(die)
        if nbytes < 0:
            raise ConfigError(f"nbytes={nbytes}: must not be negative")
        used = self._app_used.get(die, 0)
        size = (nbytes + at.PIECE_BYTES - 1) // at.PIECE_BYTES * at.PIECE_BYTES
        if used + size > self.spec.app_bytes:
            free = self.spec.app_bytes - used
            raise CapacityError(f"die {die}: {nbytes} bytes do not fit the app data area, which has {free} left")
        self._app_used[die] = used + size
        return Buffer(die, self.address(die, used), nbytes)

    def put(self, die: int, array: NDArray[Any]) -> Buffer:
        """Copy an array into a die's app data area."""
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        buffer = self.alloc(die, raw.size)
        self.memory[buffer.address : buffer.address + raw.size] = raw
        return buffer

    def view(self, buffer: Buffer, dtype: DTypeLike = np.uint8, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
        """The bytes of a buffer as an array (no copy)."""
        flat = self.memory[buffer.address : buffer.address + buffer.nbytes].view(dtype)
        return flat if shape is None else flat.reshape(shape)

    def commit(self, buffer: Buffer, nbytes: int) -> None:
        """Commit the first bytes of a buffer that is about to be filled; a hint that only saves time."""
        commit(self.memory, buffer.address, min(nbytes, buffer.nbytes))

    def mark_app(self) -> dict[int, int]:
        """How much of each app data area is in use; `release_app` goes back to it."""
        return dict(self._app_used)

    def release_app(self, mark: Mapping[int, int]) -> None:
        """Give back what was allocated since the mark."""
        self._app_used = dict(mark)

    # ---- grants

    def grant(self, buffer: Buffer, rights: str) -> Grant:
        """Permission for a buffer."""
        start = buffer.address % self.spec.die_bytes
        return Grant(buffer.die, start, start + buffer.nbytes, rights)

    def grant_meta(self, rights: str, die: int | None = None) -> Grant:
        """Permission for the metadata area of one die, or of all."""
        return Grant(die, self.spec.meta_start, self.spec.managed_start, rights)

    def grant_managed(self, rights: str, die: int | None = None) -> Grant:
        """Permission for the managed data area of one die, or of all."""
        return Grant(die, self.spec.managed_start, self.spec.die_bytes, rights)

    # ---- launches

    def launch(
        self,
        kernel: Kernel,
        die: int,
        cores: Sequence[int],
        args: Mapping[str, int | Sequence[int]],
        grants: Sequence[Grant],
    ) -> Launch:
        """Put a kernel on cores of a die; it runs with the next `run`.

        Raises ConfigError for a die or core that the pod lacks, a core that is taken, wrong arguments, or a kernel
        with more registers than the pod has; then nothing was launched.
        """
        self._check_ready()
        self._check_die(die)
        numbers = self._check_cores(die, cores)
        check_grants(grants, self.spec.n_dies, self.spec.die_bytes)
        if kernel.n_registers > self.spec.registers:
            raise ConfigError(f"kernel {kernel.name}: {kernel.n_registers} registers, a core has {self.spec.registers}")
        launch = Launch(kernel, die, tuple(cores), bind_arguments(kernel, len(cores), args), tuple(grants))
        self._register(kernel)
        group = len(self._launches)
        self._launches.append(launch)
        self._write_group(group, len(numbers))
        for core, values in zip(numbers, launch.args, strict=True):
            self._owner[core] = launch
            self._write_core(core, launch, group, values)
        return launch

    def _register(self, kernel: Kernel) -> None:
        if kernel in self._kernels:
            return
        if len(self._kernels) == at.MAX_KERNELS:
            raise ConfigError(f"kernel {kernel.name}: a run has at most {at.MAX_KERNELS} different kernels")
        if len(kernel.sites) > at.MAX_SITES:
            raise ConfigError(
                f"kernel {kernel.name}: {len(kernel.sites)} requests, at most {at.MAX_SITES} are possible"
            )
        switches = self._base[at.SWITCH_BASE] + len(self._kernels) * at.MAX_SITES
        for i, site in enumerate(kernel.sites):
            self.state[switches + i] = bool(site.sync) and site.sync in self.without
        self._kernels.append(kernel)

    def _write_group(self, group: int, size: int) -> None:
        base = self._base[at.GROUP_BASE] + group * at.GROUP_WORDS
        self.state[base : base + at.GROUP_WORDS] = [size, 0, 0, 0]

    def _write_core(self, core: int, launch: Launch, group: int, values: Sequence[int]) -> None:
        st, base = self.state, self.core_base(core)
        st[base : base + REGISTERS + self.spec.registers] = 0
        st[base + at.KERNEL] = self._kernels.index(launch.kernel)
        st[base + at.DIE], st[base + at.GROUP] = launch.die, group
        st[base + at.UB_BASE] = self.spec.n_dies * self.spec.die_bytes + core * self.spec.ub_bytes
        st[base + at.N_WINDOWS] = len(launch.grants)
        for i, grant in enumerate(launch.grants):
            first = base + at.WINDOWS + i * at.WINDOW_WORDS
            st[first : first + at.WINDOW_WORDS] = grant.words()
        st[base + REGISTERS : base + REGISTERS + len(values)] = values

    # ---- runs

    def run(self, progress: Callable[[int], None] | None = None) -> RunStats:
        """Run all launched kernels to their end.

        ``progress`` is called now and then with the number of actions so far.  Raises DeadlockError, AccessError,
        ProtocolError or RunError; the pod is then as the run left it until `clear`.
        """
        from xccl_emu.machine import engine

        return self._drive(engine.policy(self.policy), None, progress)

    def replay(self, schedule: Schedule) -> RunStats:
        """Run all launched kernels by a recorded schedule; ReplayError if it does not fit them."""
        from xccl_emu.machine import engine

        if schedule.fingerprint != self.fingerprint():
            raise ReplayError("the schedule was recorded on another pod, memory order, or set of launches")
        return self._drive(engine.policy("replay"), schedule.actions, None)

    def _drive(
        self, policy: Callable[..., int], given: NDArray[np.int64] | None, progress: Callable[[int], None] | None
    ) -> RunStats:
        from xccl_emu.machine import engine

        self._check_ready()
        fingerprint = self.fingerprint()
        self._activate()
        self._failed = True  # until the run is over
        handles = engine.handles(self._kernels, self.generators)
        self.state[at.STEP_TABLE : at.STEP_TABLE + len(handles)] = handles
        log = given if given is not None else np.zeros(_LOG_SLICE if self.record else 0, np.int64)
        logged: list[NDArray[np.int64]] = []
        started = time.perf_counter()
        engine.start()(self.state)
        ended = at.ENDED_PAUSED
        while ended in (at.ENDED_PAUSED, at.ENDED_LOG_FULL):
            ended = policy(self.memory, self.state, log, _SLICE_ACTIONS)
            if self.record and given is None:
                logged.append(log[: self.state[at.LOG_COUNT]].copy())
                self.state[at.LOG_COUNT] = 0
            if given is not None and ended == at.ENDED_PAUSED and self.state[at.CURSOR] == len(given):
                ended = at.ENDED_NOT_ENABLED
            if progress is not None:
                progress(int(self.state[at.ACTIONS]))
        seconds = time.perf_counter() - started
        if self.record and given is None:
            self._schedule = Schedule(np.concatenate(logged), fingerprint)
        self._raise_for(ended)
        return self._finish(seconds)

    def _activate(self) -> None:
        """List the cores and dies that take part, and start the counters afresh."""
        st = self.state
        cores = sorted(self._owner)
        dies = sorted({launch.die for launch in self._launches})
        first = self._base[at.ACTIVE_BASE]
        st[first : first + len(cores)] = cores
        st[first + len(cores) : first + len(cores) + len(dies)] = dies
        st[at.N_ACTIVE], st[at.N_ACTIVE_DIES], st[at.N_LIVE] = len(cores), len(dies), len(cores)
        st[at.CURSOR] = st[at.LOG_COUNT] = st[at.ACTIONS] = 0
        st[at.COUNT_BY_OP : at.STEP_TABLE] = 0

    def _raise_for(self, ended: int) -> None:
        if ended == at.ENDED_ERROR:
            raise report.violation(self)
        if ended == at.ENDED_DEADLOCK:
            raise report.deadlock(self)
        if ended == at.ENDED_NOT_ENABLED:
            where = int(self.state[at.CURSOR])
            raise ReplayError(f"the schedule does not fit: action {where} is not enabled, or the run goes on behind it")

    def _finish(self, seconds: float) -> RunStats:
        st = self.state
        for launch in self._launches:
            first = launch.die * self.spec.cores_per_die
            launch.results[:] = [int(st[self.core_base(first + c) + RESULT]) for c in launch.cores]
        stats = RunStats(
            seconds,
            int(st[at.ACTIONS]),
            {name: int(st[at.COUNT_BY_OP + i]) for i, name in enumerate(OPERATIONS) if st[at.COUNT_BY_OP + i]},
            {name: int(st[at.BYTES_BY_PIPE + i]) for i, name in enumerate(report.PIPE_NAMES)},
        )
        self._retire()
        return stats

    def _retire(self) -> None:
        """Free all cores for the next launches."""
        for core in self._owner:
            base = self.core_base(core)
            self.state[base : base + REGISTERS + self.spec.registers] = 0
        self.state[at.ERROR : at.ERROR_B + 1] = 0
        self.state[at.N_ACTIVE] = self.state[at.N_ACTIVE_DIES] = self.state[at.N_LIVE] = 0
        self._launches, self._owner, self._failed = [], {}, False

    def clear(self) -> None:
        """After a failed run: stop every core and drop what is queued or in flight; memory stays as it is."""
        st = self.state
        first, dies = self._base[at.DIE_BASE], {launch.die for launch in self._launches}
        for die in dies:
            base = first + die * int(st[at.DIE_WORDS])
            st[base : base + int(st[at.DIE_WORDS])] = 0
        self._retire()

    @property
    def schedule(self) -> Schedule:
        """The schedule of the last run; ConfigError if none was recorded."""
        if self._schedule is None:
            raise ConfigError("record=False: no schedule was recorded; make the pod with record=True and run it")
        return self._schedule

    # ---- the pod as a value

    def fingerprint(self) -> str:
        """Of the pod, the memory order and everything that is launched."""
        parts = [repr(self.spec), self.order, repr(sorted(self.without))]
        for launch in self._launches:
            what = (launch.die, launch.cores, launch.args, launch.grants)
            parts += [launch.kernel.name, launch.kernel.source, repr(what)]
        return hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()

    def snapshot(self) -> Snapshot:
        """Copy the whole pod; CapacityError if it is not small."""
        self._check_small("snapshot")
        return Snapshot(self.memory.copy(), self.state.copy())

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot of this pod."""
        if snapshot.memory.shape != self.memory.shape or snapshot.state.shape != self.state.shape:
            raise ConfigError("snapshot: was taken of a pod of another shape")
        self.memory[:] = snapshot.memory
        self.state[:] = snapshot.state

    def digest(self) -> str:
        """Hash of all memory of a small pod's dies; CapacityError if it is not small."""
        self._check_small("digest")
        dies = self.memory[: self.spec.n_dies * self.spec.die_bytes]
        return hashlib.blake2b(dies.tobytes(), digest_size=16).hexdigest()

    # ---- for reports

    def launch_of(self, core: int) -> Launch | None:
        """What runs on a core."""
        return self._owner.get(core)

    def grants_of(self, core: int) -> tuple[Grant, ...]:
        """What a core may touch."""
        launch = self._owner.get(core)
        return launch.grants if launch else ()

    def active_cores(self) -> list[int]:
        """Global numbers of the cores that take part in the run."""
        return sorted(self._owner)

    # ---- checks

    def _check_die(self, die: int) -> None:
        if not 0 <= die < self.spec.n_dies:
            raise ConfigError(f"die={die}: the pod has dies 0 to {self.spec.n_dies - 1}")

    def _check_cores(self, die: int, cores: Sequence[int]) -> list[int]:
        last = self.spec.cores_per_die - 1
        if len(cores) == 0 or len(set(cores)) != len(cores) or not all(0 <= c <= last for c in cores):
            raise ConfigError(f"cores={list(cores)}: must be different ones of 0 to {last}")
        numbers = [die * self.spec.cores_per_die + c for c in cores]
        taken = [c for c in numbers if c in self._owner]
        if taken:
            raise ConfigError(f"cores={list(cores)}: core {taken[0] % self.spec.cores_per_die} of die {die} is taken")
        return numbers

    def _check_ready(self) -> None:
        if self._failed:
            raise ConfigError("the last run failed or was interrupted: call clear() before the next launch")

    def _check_small(self, what: str) -> None:
        size = self.memory.nbytes + self.state.nbytes
        if size > _SNAPSHOT_BYTES_MAX:
            raise CapacityError(
                f"{what}: the pod has {size} bytes, {_SNAPSHOT_BYTES_MAX} are possible; take a smaller one"
            )


def _one_of(name: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise ConfigError(f"{name}={value!r}: must be one of {', '.join(known)}")
    return value
