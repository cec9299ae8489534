"""The pod as its users hold it: memory, launches, runs, snapshots."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from xccl_emu.base.errors import CapacityError, ConfigError, ReplayError
from xccl_emu.base.options import one_of, whole
from xccl_emu.lang import Kernel
from xccl_emu.lang.abi import REGISTERS, RESULT
from xccl_emu.machine import limits
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.launch import Address, Grant, Launch, Queue, bind_arguments, check_grants, granted
from xccl_emu.machine.schedule import Schedule
from xccl_emu.machine.spec import PodSpec
from xccl_emu.machine.state import ORDERS, AddressSpace, Claims, Labels, StateArray, Switches, commit
from xccl_emu.machine.stats import DieTraffic, RunStats, traffic_of

POLICIES = ("round-robin", "random")
POISON = 0xFF
_SNAPSHOT_BYTES_MAX = 1 << 30
_AREAS = ("", "app", "meta", "managed")
"""What of a die may be lost without a name of its own, in the order of `device.memory`."""


class Driver(Protocol):
    """Runs what is launched on a pod in its own way; every action is the machine's (`machine/device/actions.py`)."""

    @property
    def name(self) -> str:
        """For reports."""

    @property
    def data(self) -> bool:
        """Return whether payload is moved; if not, it stays 0; the run takes `sparse_memory`, sets `layout.SPARSE`."""

    @property
    def poisons(self) -> bool:
        """Return whether pods fill what nobody may count on (`Pod.poison`)."""

    def look(self, pod: "Pod") -> None:
        """Look at what is about to run, and leave it as it is; ConfigError for what this driver cannot run."""

    def drive(self, pod: "Pod", progress: Callable[[int], None] | None) -> tuple[int, float, NDArray[np.int64]]:
        """Run the pod; return the end (`layout.ENDED_*`), seconds that it took here, and its schedule if it records."""


@dataclass(frozen=True)
class Buffer:
    """A range of a die's app data area."""

    die: int
    address: int
    """Global address of the first byte."""
    nbytes: int

    def __post_init__(self) -> None:
        for name in ("die", "address", "nbytes"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        object.__setattr__(self, "address", self.only(range(self.nbytes)))

    def only(self, some: range) -> Address:
        """Return its address, with leave for some of its bytes."""
        return Address.of(self.address, self.die, range(self.address, self.address + self.nbytes)).only(some)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A copy of everything a small pod holds."""

    of: tuple[PodSpec, str, frozenset[str]]
    """Specification, memory order and what was switched off of the pod that it was taken of."""
    memory: NDArray[np.uint8]
    state: NDArray[np.int64]
    books: tuple[dict[int, int], list[Launch], dict[int, Launch], list[Kernel], bool]
    """What the host side keeps: allocations, launches, who runs where, kernels, whether the last run failed."""


class Pod:
    """An emulated pod: its memory and everything else as two arrays, and the calls to put data in and run kernels.

    Parameters
    ----------
    spec: what the pod is made of.
    order: memory order, ``"sc"``, ``"fifo"``, ``"relaxed"`` or ``"unordered"``.
    policy: who goes next, ``"round-robin"``, ``"random"``, or an object that drives runs itself, as virtual time does.
    seed: of the random policy, and of answers that are drawn.
    record: keep the schedule of each run (`schedule`).
    without: names of synchronizations to switch off; each must be in a kernel when the first run begins (`without`).
    generators: run the kernels' undecorated generators; only with the JIT off, for a debugger.
    draw_answers: have answers to `choose` drawn by the seed under round-robin and virtual time too, which else say 0.

    A pod is a context manager, which closes it.

    Raises ConfigError for an unknown order or policy, CapacityError if the pod cannot be mapped.
    """

    def __init__(
        self,
        spec: PodSpec,
        *,
        order: str = "sc",
        policy: "str | Driver" = "round-robin",
        seed: int = 0,
        record: bool = False,
        without: Iterable[str] = (),
        generators: bool = False,
        draw_answers: bool = False,
    ) -> None:
        if not isinstance(spec, PodSpec):
            raise ConfigError("spec", spec, "must be a PodSpec, such as small_pod(2) or CLOUDMATRIX384")
        self.spec, self.seed, self.record = spec, whole("seed", seed), record
        self.order = one_of("order", order, ORDERS)
        self.policy = policy if hasattr(policy, "drive") else one_of("policy", policy, POLICIES)
        self.switches = Switches()
        """What of its kernels is not as it is written."""
        self.without = without
        self.generators = generators
        self.poison = not isinstance(self.policy, str) and self.policy.poisons
        """Fill what nobody may count on with 0xff (NaN in BF16, FP32 and e4m3)?  That is app data that a launch may
        only write, and what a session's calls leave in its managed areas: then a row of an earlier call is never right
        by accident.  May be assigned before the first launch."""
        self.spoilt: list[tuple[int, int]] = []
        """Address and bytes of what was filled with poison since the last run, and holds nothing."""
        self.closed = False
        self._memory = AddressSpace(spec.memory_bytes + spec.n_cores * spec.ub_bytes, spec.name)
        self._array = StateArray(spec, order, self.seed)
        self.state = self._array.words
        self.state[ms.DRAWS_ANSWERS] = bool(draw_answers)
        self.claims = Claims()
        """Which communicator owns which part of the metadata and managed areas."""
        self.labels = Labels()
        """Names of ranges of memory, for reports."""
        self._app_used: dict[int, int] = {}
        self._launches: list[Launch] = []
        self.kernels: list[Kernel] = []
        """The different kernels that are launched, in the order of the machine's table."""
        self._owner: dict[int, Launch] = {}
        self._failed = False
        self._schedule: Schedule | None = None
        self.losses: list[tuple[str, int, int, int]] = []
        """What may be lost by name (`may_lose`): first byte and last+1, and the word that reports it, or -1."""

    def close(self) -> None:
        """Give its memory back; each use of the pod from then on raises ConfigError.

        Arrays that were handed out keep what they are of.  A pod that is closed may be closed again.
        """
        self.__dict__ = {"closed": True}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    if not TYPE_CHECKING:  # or each attribute that there is not would be one for type checkers

        def __getattr__(self, name: str) -> Any:
            if self.__dict__.get("closed") and not name.startswith("__"):
                raise ConfigError("pod: was closed; make another one")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __repr__(self) -> str:
        if self.closed:
            return "<Pod: closed>"
        kernels = ", ".join(kernel.name for kernel in self.kernels) or "nothing launched"
        cores = f"{self.spec.n_dies} dies of {self.spec.cores_per_die} cores"
        return f"<Pod {self.spec.name!r}: {cores}, order {self.order}, {kernels}>"

    # ---- memory

    @property
    def memory(self) -> NDArray[np.uint8]:
        """[bytes] all memory, data buffers of the cores after it, in place.

        Its holder may write anywhere: from then on runs without payload look at bytes before they leave them out.
        `view` and `span` say where.
        """
        return self._memory.hand_out()

    def span(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        """[nbytes] bytes from a global address on, in place; ConfigError for what is not all on dies and CPUs."""
        if not 0 <= address <= address + nbytes <= self.spec.memory_bytes:
            raise ConfigError("address", address, f"the {nbytes} bytes there are not all in the memory of dies or CPUs")
        return self._memory.span(address, nbytes)

    def sparse_memory(self) -> tuple[NDArray[np.uint8], int]:
        """Memory with its dirty bits, and where these begin (`layout.SPARSE`); for a policy that moves no payload."""
        return self._memory.with_bits, self._memory.bits_at

    def address(self, die: int, offset: int) -> int:
        """Global address of an offset in a die's memory; like `meta` and `managed`, ConfigError for one outside."""
        return self._address(die, "memory", 0, self.spec.die_bytes, offset)

    def meta(self, die: int, offset: int = 0) -> int:
        """Global address in a die's metadata area."""
        return self._address(die, "metadata area", self.spec.meta_start, self.spec.meta_bytes, offset)

    def managed(self, die: int, offset: int = 0) -> int:
        """Global address in a die's managed data area."""
        return self._address(die, "managed data area", self.spec.managed_start, self.spec.managed_bytes, offset)

    def _address(self, die: int, area: str, start: int, nbytes: int, offset: int) -> int:
        """ConfigError for an offset outside of the area; its end is allowed, as the end of a range."""
        die, offset = self._check_home(die), whole("offset", offset)
        if not 0 <= offset <= nbytes:
            raise ConfigError("offset", offset, f"the {area} of a die has {nbytes} bytes")
        return die * self.spec.die_bytes + start + offset

    def cpu(self, number: int) -> int:
        """Number of a CPU where dies are numbered: CPUs come after them; ConfigError if there is none."""
        number, n = whole("number", number), self.spec.n_homes - self.spec.n_dies
        if not 0 <= number < n:
            raise ConfigError("number", number, f"the pod has {n} CPUs")
        return self.spec.n_dies + number

    def alloc(self, die: int, nbytes: int) -> Buffer:
        """Reserve bytes in the app data area of a die, or a `cpu`, aligned to 32; CapacityError if they do not fit."""
        die, nbytes = self._check_home(die), whole("nbytes", nbytes)
        if nbytes < 0:
            raise ConfigError("nbytes", nbytes, "must not be negative")
        used = self._app_used.get(die, 0)
        size = (nbytes + ms.GRANULE_BYTES - 1) // ms.GRANULE_BYTES * ms.GRANULE_BYTES
        if used + size > self.spec.app_bytes:
            free = self.spec.app_bytes - used
            raise CapacityError(f"die {die}: {nbytes} bytes do not fit the app data area, which has {free} left")
        self._app_used[die] = used + size
        return Buffer(die, self.address(die, used), nbytes)

    @property
    def app_used(self) -> int:
        """Bytes of the app data area that are reserved, of the die that has most."""
        return max(self._app_used.values(), default=0)

    def level_app(self, dies: Iterable[int]) -> None:
        """Reserve as much on each of these dies as the one that has most, so that what they allocate alike from then on
        is at the same offsets; kernels may count on it, as on the symmetric memory of SHMEM."""
        used = {self._check_die(die): self._app_used.get(die, 0) for die in dies}
        self._app_used.update(dict.fromkeys(used, max(used.values(), default=0)))

    def put(self, die: int, array: NDArray[Any]) -> Buffer:
        """Copy an array into a die's app data area; ConfigError for what is none, or holds objects."""
        raw = bytes_of(array)
        buffer = self.alloc(die, raw.size)
        self.span(buffer.address, raw.size)[:] = raw
        return buffer

    @property
    def moves_data(self) -> bool:
        """Do runs by this pod's policy move payload?"""
        return isinstance(self.policy, str) or self.policy.data

    def fill_payload(self, view: NDArray[Any], data: NDArray[Any]) -> None:
        """Copy into a view that `payload` gave; left out where no data is moved."""
        if self.moves_data:
            view[:] = data

    def spoil(self, address: int, nbytes: int) -> None:
        """Fill bytes that hold nothing any more, if this pod poisons such."""
        if self.poison and self.moves_data:
            self.span(address, nbytes)[:] = POISON
            self.spoilt.append((address, nbytes))

    def view(self, buffer: Buffer, dtype: DTypeLike = np.uint8, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
        """The bytes of a buffer as an array (no copy); ConfigError for a buffer not on this pod, or not so large."""
        self._check_buffer(buffer)
        return _shaped(self.span(buffer.address, buffer.nbytes), dtype, shape)

    def payload(
        self, buffer: Buffer, dtype: DTypeLike = np.uint8, shape: tuple[int, ...] | None = None
    ) -> NDArray[Any]:
        """Return what `view` does, of bytes that only travel, and decide nothing; read-only where no data is moved."""
        if self.moves_data:
            return self.view(buffer, dtype, shape)
        self._check_buffer(buffer)
        raw = self._memory.bytes[buffer.address : buffer.address + buffer.nbytes]
        raw.flags.writeable = False
        return _shaped(raw, dtype, shape)

    def commit(self, buffer: Buffer, nbytes: int) -> None:
        """Commit the first bytes of a buffer that is about to be filled; a hint that only saves time."""
        if self.moves_data:
            commit(self._memory.with_bits, buffer.address, min(nbytes, buffer.nbytes))

    def mark_app(self) -> dict[int, int]:
        """Return how much of each app data area is in use; `release_app` goes back to it."""
        return dict(self._app_used)

    def release_app(self, mark: Mapping[int, int]) -> None:
        """Give back what was allocated since the mark."""
        self._app_used = dict(mark)

    # ---- grants

    def grant(self, buffer: Buffer, rights: str) -> Grant:
        """Permission for a buffer; ConfigError for one that is not on this pod."""
        self._check_buffer(buffer)
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
        args: Mapping[str, Any],
        grants: Sequence[Grant] | None = None,
        *,
        after: Queue | None = None,
    ) -> Launch:
        """Put a kernel on cores of a die, or of a `cpu`; it runs with the next `run`.

        A core of a CPU has a scalar unit and DMA alone: a request that needs a pipe or the data buffer ends the run.

        Parameters
        ----------
        grants: what the cores may touch. Default: what the kernel's annotations say of its arguments (`xl.Reads`).
        after: streams of launches; it comes after what these cores run there already. Default: the cores are free.

        Raises ConfigError for a die or core that the pod lacks, a core that is taken, wrong arguments, or a kernel
        with more registers than the pod has; then nothing was launched.
        """
        self.check_ready()
        if not isinstance(kernel, Kernel):
            raise ConfigError("kernel", kernel, "must be a kernel, made by the decorator of that name")
        try:
            asked = list(cores)
        except TypeError as error:
            raise ConfigError("cores", cores, "must be a list of cores") from error
        if not isinstance(after, Queue | None):
            raise ConfigError("after", after, "must be streams of launches, or nothing")
        die, cores = self._check_home(die), [whole("cores", core) for core in asked]
        numbers = self._check_cores(die, cores) if after is None else []
        words = bind_arguments(kernel, len(cores), args)
        leave = granted(kernel, die, args, self.spec.die_bytes) if grants is None else grants
        check_grants(leave, self.spec, kernel, die)
        launch = Launch(kernel, die, tuple(cores), words, tuple(leave))
        if after is None:
            self._check_registers(kernel)
            self._put(launch, numbers)
        else:
            after.append(launch)
        return launch

    def _put(self, launch: Launch, numbers: Sequence[int]) -> None:
        """Put a launch, in which nothing is wrong, on cores of these numbers."""
        self._register(launch.kernel)
        for grant in launch.grants if self.poison else ():
            if grant.rights == "w" and grant.die is not None and grant.end <= self.spec.app_bytes:
                self.spoil(self.address(grant.die, grant.start), grant.end - grant.start)
        group = len(self._launches)
        self._launches.append(launch)
        self._array.group_block(group)[:] = [len(numbers), 0, 0, 0]
        self._write_cores(numbers, launch, group)

    def _register(self, kernel: Kernel) -> None:
        if kernel in self.kernels:
            return
        if len(self.kernels) == ms.MAX_KERNELS:
            raise ConfigError(limits.KERNELS.said(f"kernel {kernel.name}"))
        if len(kernel.sites) > ms.AT_PLACE:
            raise ConfigError(limits.REQUESTS.said(f"kernel {kernel.name}: {len(kernel.sites)} requests"))
        self.kernels.append(kernel)
        self.switches.know(kernel)

    def _write_cores(self, cores: Sequence[int], launch: Launch, group: int) -> None:
        kernel = self.kernels.index(launch.kernel)
        windows = np.array([word for grant in launch.grants for word in grant.words()], np.int64)
        self._owner.update(dict.fromkeys(cores, launch))
        numbers, args = np.array(cores), np.array(launch.args, np.int64)
        blocks = np.zeros((len(cores), self._array.core_words), np.int64)
        blocks[:, ms.KERNEL], blocks[:, ms.DIE], blocks[:, ms.GROUP] = kernel, launch.die, group
        blocks[:, ms.UB_BASE] = self.spec.memory_bytes + numbers * self.spec.ub_bytes
        blocks[:, ms.N_WINDOWS] = len(launch.grants)
        blocks[:, ms.WINDOWS : ms.WINDOWS + len(windows)] = windows
        blocks[:, REGISTERS : REGISTERS + args.shape[1]] = args
        self._array.core_blocks[numbers] = blocks
        self._array.launched[numbers] = blocks[:, REGISTERS:]  # by which the kernels of a die can begin again
        self.state[ms.SOME_FLAGS] |= any("f" in grant.rights for grant in launch.grants)

    # ---- what may be lost

    def may_lose(self, name: str, address: int, nbytes: int, told: int = -1) -> None:
        """Give bytes a name, by which a check has them lost (`xccl_emu.check.faults`).

        Parameters
        ----------
        told: a word of 8 bytes that is 1 from the loss on, as if the memory said so; -1 for none.

        Raises ConfigError for bytes or a word outside of memory, a word among the bytes, a name that there is already
        or that is no name, or more than `layout.LOSSES_MOST` of them.
        """
        self.span(address, nbytes)
        start, end = whole("address", address), address + whole("nbytes", nbytes)
        if told != -1 and (told % 8 or not 0 <= told <= self.spec.memory_bytes - 8 or start - 8 < told < end):
            raise ConfigError("told", told, "must be an aligned word of memory outside of the bytes, or -1")
        if not name or name in (*_AREAS, *(known for known, *_ in self.losses)) or "@" in name or nbytes < 1:
            raise ConfigError("name", name, "must be a new name, without an @, of at least one byte")
        if len(self.losses) == ms.LOSSES_MOST:
            raise ConfigError("name", name, limits.LOSSES.said())
        self.losses.append((name, start, end, told))

    def loss_number(self, die: int, area: str) -> int:
        """Number of what is lost of a die; ConfigError for a name that is none there."""
        names = {name: len(_AREAS) + k for k, (name, start, *_) in enumerate(self.losses)}
        here = [name for name, start, *_ in self.losses if start // self.spec.die_bytes == die]
        if area in _AREAS:
            return _AREAS.index(area)
        if area not in here:
            known = ", ".join([*_AREAS[1:], *here])
            raise ConfigError(f"fault: {area!r} is nothing that {self.spec.home(die)} may lose: must be one of {known}")
        return names[area]

    def loss_name(self, die: int, number: int) -> str:
        """In words what `loss_number` gave a number."""
        if number < len(_AREAS):
            return f"{self.spec.home(die)}{'.' * (number > 0)}{_AREAS[number]}"
        return self.losses[number - len(_AREAS)][0] if number < len(_AREAS) + len(self.losses) else "nothing"

    # ---- what is switched off

    @property
    def without(self) -> frozenset[str]:
        """Names of the synchronizations that are switched off; may be assigned between runs, for the next ones.

        A run, replay or search is refused (ConfigError) while a name is in no kernel that was ever launched on this
        pod, nor in one that a session on it launches: a misspelt name would switch off nothing, and look like a
        synchronization that nobody needs.
        """
        return self.switches.without

    @without.setter
    def without(self, names: Iterable[str]) -> None:
        self.switches.name(names)

    # ---- runs

    def run(self, progress: Callable[[int], None] | None = None) -> RunStats:
        """Run all launched kernels to their end.

        ``progress`` is called now and then with the number of actions so far.  Raises DeadlockError, AccessError,
        ProtocolError, RunError (an event set twice, or still set when its kernel returns) or KernelError; the pod is
        then as the run left it until `clear`.  Raises ConfigError if something is switched off that no kernel has.
        """
        from xccl_emu.machine import driver  # compiled code is imported only when something runs

        self.check_runnable()
        fingerprint = self.fingerprint() if self.record else ""
        if not isinstance(self.policy, str):
            self.policy.look(self)
        self._failed = True  # until the run is over
        if isinstance(self.policy, str):
            ended, seconds, actions = driver.drive(self, self.policy, progress)
        else:
            ended, seconds, actions = self.policy.drive(self, progress)
        self._schedule = Schedule(actions, fingerprint) if self.record else None
        return self._finish(driver.outcome(self, ended, seconds))

    def replay(self, schedule: Schedule) -> RunStats:
        """Run all launched kernels by a recorded schedule.

        Raises ReplayError if it does not fit them, and what `run` raises where the recorded run did.
        """
        from xccl_emu.machine import driver

        self.check_runnable()
        if schedule.fingerprint != self.fingerprint():
            raise ReplayError("the schedule was recorded on another pod, memory order, or set of launches")
        self._failed = True
        ended, seconds = driver.drive_replay(self, schedule.actions)
        return self._finish(driver.outcome(self, ended, seconds))

    def activate(self) -> None:
        """List who takes part in the run that begins, and what of it is switched off."""
        asked, signals = 0, False
        for number, kernel in enumerate(self.kernels):
            of = self.switches.words(number, kernel)
            self._array.switches(number)[: len(of.words)] = of.words
            asked, signals = max(asked, of.asked), signals or of.signals
        weak = self.order in ("relaxed", "unordered")
        self.state[ms.REQUEST_ORDERS], self.state[ms.SOME_SIGNAL] = (asked, signals) if weak else (0, 0)
        rows = self.state[ms.LOSSES : ms.LOSSES + ms.LOSS_WORDS * ms.LOSSES_MOST].reshape(-1, ms.LOSS_WORDS)
        rows[: len(self.losses)] = np.array([each[1:] for each in self.losses], np.int64).reshape(-1, ms.LOSS_WORDS)
        self._array.activate(self.active_cores(), sorted({launch.die for launch in self._launches}))

    def has_loose_reads(self) -> bool:
        """Return whether a kernel reads flags by what does not acquire."""
        return any(self.switches.words(number, kernel).is_loose for number, kernel in enumerate(self.kernels))

    def weaken(self, kernel: int, site: int, to: str) -> None:
        """Have the requests of a site, of the kernel with this number, ask for another order; or a quiet be a fence.

        Parameters
        ----------
        to: what it may ask for (`xccl_emu.lang.operations.orders_of`), or ``"fence"`` for a quiet.  Until the first
            run begins.

        Raises ConfigError for a kernel, site or order that is not there, or does not fit the request.
        """
        self.switches.weaken(self.kernels, kernel, site, to)

    def _finish(self, stats: RunStats) -> RunStats:
        for launch in self._launches:
            first = launch.die * self.spec.cores_per_die
            launch.results[:] = self._array.core_blocks[first + np.array(launch.cores), RESULT].tolist()
        self._retire()
        return stats

    def _retire(self) -> None:
        """Free all cores for the next launches."""
        self._array.deactivate(self._owner)
        self._launches, self._owner, self.kernels, self._failed, self.spoilt = [], {}, [], False, []

    def clear(self) -> None:
        """After a failed run: stop every core and drop what is queued or in flight; memory stays as it is."""
        for launch in self._launches:
            self._array.die_block(launch.die)[:] = 0
        self._retire()

    def traffic(self) -> DieTraffic:
        """Return what the cores of each die asked of other dies in the last run."""
        return traffic_of(self._array.traffic())

    @property
    def schedule(self) -> Schedule:
        """The schedule of the last run; ConfigError if none was recorded."""
        if self._schedule is None:
            raise ConfigError("record", False, "no schedule was recorded; make the pod with record=True and run it")
        return self._schedule

    # ---- the pod as a value

    def fingerprint(self) -> str:
        """Hash of the pod, the memory order, what is switched off and everything that is launched.

        What memory holds when the run begins is no part of it (48 TiB would have to be read): it is the caller's
        business that a replay begins with the bytes that the recorded run began with.
        """
        return hashlib.blake2b("\0".join(self._parts(self.order)).encode(), digest_size=16).hexdigest()

    def is_built_as(self, other: "Pod") -> bool:
        """Return whether both pods have the same memory and launches, whatever their memory orders; reads all bytes."""
        return self._parts("") == other._parts("") and np.array_equal(self._memory.bytes, other._memory.bytes)

    def _parts(self, order: str) -> list[str]:
        parts = [repr(self.spec), order, repr(sorted(self.without))]
        if self.switches.weaker:
            parts.append(repr(sorted(self.switches.weaker.items())))
        parts += [repr(self.losses)] if self.losses else []
        for launch in self._launches:
            what = (launch.die, launch.cores, launch.args, launch.grants)
            syncs = [site.sync for site in launch.kernel.sites]
            parts += [launch.kernel.name, launch.kernel.source, repr(syncs), repr(what)]
            parts += [repr(orders)] if any(orders := [site.order for site in launch.kernel.sites]) else []
        return parts

    def snapshot(self) -> Snapshot:
        """Copy the whole pod; CapacityError if it is not small."""
        self._check_small("snapshot")
        books = (dict(self._app_used), [*self._launches], dict(self._owner), [*self.kernels], self._failed)
        return Snapshot(self._identity(), self._memory.bytes.copy(), self.state.copy(), books)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot of this pod, or of one made and switched alike; ConfigError for any other."""
        if snapshot.of != self._identity():
            raise ConfigError("snapshot: was taken of another pod (spec, memory order, or what is switched off)")
        self.memory[:] = snapshot.memory
        self.state[:] = snapshot.state
        used, launches, owner, kernels, self._failed = snapshot.books
        self._app_used, self._launches, self._owner, self.kernels = dict(used), [*launches], dict(owner), [*kernels]

    def _identity(self) -> tuple[PodSpec, str, frozenset[str]]:
        return self.spec, self.order, self.without

    def digest(self) -> str:
        """Hash of all memory of a small pod's dies; CapacityError if it is not small."""
        self._check_small("digest")
        dies = self._memory.bytes[: self.spec.memory_bytes]
        return hashlib.blake2b(dies.tobytes(), digest_size=16).hexdigest()

    # ---- for reports and the driver

    def core_base(self, core: int) -> int:
        """Index of a core's first word in the state array."""
        return self._array.core(core)

    def launch_of(self, core: int) -> Launch | None:
        """Return what runs on a core."""
        return self._owner.get(core)

    def grants_of(self, core: int) -> tuple[Grant, ...]:
        """Return what a core may touch."""
        launch = self._owner.get(core)
        return launch.grants if launch else ()

    def active_cores(self) -> list[int]:
        """Global numbers of the cores that take part in the run."""
        return sorted(self._owner)

    # ---- checks

    def _check_die(self, die: int) -> int:
        die = whole("die", die)
        if not 0 <= die < self.spec.n_dies:
            raise ConfigError("die", die, f"the pod has dies 0 to {self.spec.n_dies - 1}")
        return die

    def _check_home(self, die: int) -> int:
        """Check as `_check_die` does; but CPUs, numbered after the dies, have memory too."""
        die = whole("die", die)
        return die if self.spec.n_dies <= die < self.spec.n_homes else self._check_die(die)

    def _check_buffer(self, buffer: Buffer) -> None:
        if not isinstance(buffer, Buffer):
            raise ConfigError("buffer", buffer, "must be a Buffer, as put and alloc give it")
        die, start = divmod(buffer.address, self.spec.die_bytes)
        if die != buffer.die or buffer.nbytes < 0 or start + buffer.nbytes > self.spec.app_bytes:
            raise ConfigError(f"{buffer}: does not lie in the app data area of that die of this pod")

    def _check_cores(self, die: int, cores: Sequence[int]) -> list[int]:
        last = self.spec.cores_per_die - 1
        if len(cores) == 0 or len(set(cores)) != len(cores) or not all(0 <= c <= last for c in cores):
            raise ConfigError("cores", list(cores), f"must be different ones of 0 to {last}")
        numbers = [die * self.spec.cores_per_die + c for c in cores]
        taken = [c for c in numbers if c in self._owner]
        if taken:
            core, home = taken[0] % self.spec.cores_per_die, self.spec.home(die, " ")
            raise ConfigError("cores", list(cores), f"core {core} of {home} is taken")
        return numbers

    def check_ready(self) -> None:
        """Raises ConfigError after a run that failed or was interrupted, until `clear`."""
        if self._failed:
            raise ConfigError("the last run failed or was interrupted: call clear() before the next launch")

    def check_runnable(self, kernels: Sequence[Kernel] = ()) -> None:
        """Raises ConfigError where `check_ready` does, or if something is switched off that no kernel has.

        ``kernels`` are about to be launched: what they have counts too, and a core must have registers for them.
        """
        self.check_ready()
        for kernel in kernels:
            self._check_registers(kernel)
        self.switches.check(kernels, bool(self._launches))

    def _check_registers(self, kernel: Kernel) -> None:
        if kernel.n_registers > self.spec.registers:
            raise ConfigError(f"kernel {kernel.name}: {kernel.n_registers} registers, a core has {self.spec.registers}")

    def _check_small(self, what: str) -> None:
        size = self._memory.bytes.nbytes + self.state.nbytes
        if size > _SNAPSHOT_BYTES_MAX:
            raise CapacityError(
                f"{what}: the pod has {size} bytes, {_SNAPSHOT_BYTES_MAX} are possible; take a smaller one"
            )


def bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of an array, one after the other; ConfigError for what is none, or holds objects or text."""
    try:
        flat = np.ascontiguousarray(array).reshape(-1)
        if flat.dtype.kind == "U":
            raise TypeError(f"{array!r} is text")
        return flat.view(np.uint8)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"array: must be one whose bytes are its values ({error})") from error


def _shaped(raw: NDArray[np.uint8], dtype: DTypeLike, shape: tuple[int, ...] | None) -> NDArray[Any]:
    """A view of bytes; ConfigError if there is none."""
    try:
        flat = raw.view(dtype)
        return flat if shape is None else flat.reshape(shape)
    except (TypeError, ValueError) as error:
        asked = f"dtype={dtype!r}" if shape is None else f"dtype={dtype!r}, shape={shape!r}"
        raise ConfigError(f"{asked}: no view of a buffer of {raw.nbytes} bytes ({error})") from error
