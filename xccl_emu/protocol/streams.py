"""Launches that a core makes one after the other, as a rank's stream does, in one run of the pod."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from xccl_emu.kernels.group import align
from xccl_emu.lang import Kernel
from xccl_emu.lang.in_turn import in_turn, row_words
from xccl_emu.machine.device.layout import GRANULE_BYTES
from xccl_emu.machine.launch import Grant, Launch, Queue, merged
from xccl_emu.machine.pod import Buffer, Pod
from xccl_emu.protocol.bench import Bench
from xccl_emu.protocol.case import Call, Case


@dataclass(frozen=True)
class StreamCase(Case):
    """A case whose calls are launches in streams: a single call is a sequence of one."""

    def lay_out(self, bench: Bench) -> None:
        """One call."""
        self.lay_out_calls(bench, [Call(self)])


def of_call(number: int) -> str:
    """Return the suffix of names in a call: none in the first."""
    return f" of call {number}" if number else ""


def seed_of(seed: int, number: int) -> int | list[int]:
    """Return a seed for other values in each call; the first call has the seed's own."""
    return [seed, number] if number else seed


@dataclass
class _Stream:
    """What some cores of a die run together."""

    launches: list[Launch] = field(default_factory=list)
    """One after the other."""

    def table(self, more: int) -> NDArray[np.int64]:
        """[cores, launches, words] of `in_turn`, with ``more`` zero words appended to each row."""
        kernels = self.kernels
        table = np.zeros((len(self.launches[0].args), len(self.launches), row_words(kernels) + more), np.int64)
        for number, launch in enumerate(self.launches):
            table[:, number, 0] = kernels.index(launch.kernel)
            table[:, number, 1 : 1 + len(launch.kernel.words)] = launch.args
        return table

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The different ones."""
        return tuple(dict.fromkeys(launch.kernel for launch in self.launches))

    @property
    def grants(self) -> list[Grant]:
        """Return what their cores may touch."""
        return [*dict.fromkeys(grant for launch in self.launches for grant in launch.grants)]


class Streams(Queue):
    """The streams of a pod: a core has one, or several cores of a die one together.

    Between two launches of a stream everything that its cores have issued is done, and a launch begins when the one
    before it has ended on all of them; nothing orders the launches of two streams.

    `Pod.launch` ``after`` them collects, `Streams.put` launches; then app data has room for a table with a row for each
    launch (`table_bytes`).

    calls: given where each stream has a launch for each of them; before one that `Call.waits` its host has waited for
    all launches before it on the die, as for handles of asynchronous calls.
    """

    def __init__(self, bench: Bench, pod: Pod, calls: Sequence[Call] = ()) -> None:
        self._bench, self.pod = bench, pod
        self._waits = [call.waits for call in calls]
        self._streams: dict[tuple[int, tuple[int, ...]], _Stream] = {}

    def launch(
        self, kernel: Kernel, die: int, args: Mapping[str, int | Sequence[int]], grants: Sequence[Grant],
        core: int | Sequence[int] = 0,
    ) -> None:  # fmt: skip
        """Launch after what that core runs already, or those together; call `Pod.launch` ``after`` these instead."""
        warnings.warn("Streams.launch is pod.launch(..., after=streams) now", DeprecationWarning, stacklevel=2)
        self.pod.launch(kernel, die, [core] if isinstance(core, int) else core, args, grants, after=self)

    def append(self, launch: Launch) -> None:
        """Launch after what its cores run already together."""
        cores = tuple(self._bench.corner.core + each for each in launch.cores)
        self._streams.setdefault((launch.die, cores), _Stream()).launches.append(launch)

    def cores(self, die: int, kernels: Collection[Kernel]) -> list[int]:
        """Global numbers of the cores of a die that run one of the kernels, or one of that name (a changed one)."""
        names = {kernel.name for kernel in kernels}
        running = [where for where, stream in self._streams.items() if names & {of.name for of in stream.kernels}]
        return sorted(die * self.pod.spec.cores_per_die + core for on, cores in running if on == die for core in cores)

    def owner(self, die: int, core: int) -> str:
        """A core, as `Bench.expect` takes it."""
        return f"die{die}.core{self._bench.corner.core + core}"

    @staticmethod
    def table_bytes(calls: int, *kernels: Kernel) -> int:
        """Return the app data that a core's table takes for ``calls`` launches of these kernels; none for one."""
        return align(8 * calls * (row_words(kernels) + 1)) + GRANULE_BYTES if calls > 1 else 0

    def put(self) -> None:
        """Launch all of them, a single launch as it is; raises what `Pod.launch` raises."""
        for die in dict.fromkeys(die for die, _ in self._streams):
            streams = {cores: stream for (on, cores), stream in self._streams.items() if on == die}
            awaited = sum(map(len, streams)) if len(streams) > 1 and any(self._waits[1:]) else 0
            done = self._bench.filled(die, np.zeros(4, np.int64), "launches that are done") if awaited else None
            for cores, stream in streams.items():
                self._put(die, cores, stream, awaited, done)

    def _put(self, die: int, cores: tuple[int, ...], stream: _Stream, awaited: int, done: Buffer | None) -> None:
        """A stream; where a host waits it does so for ``awaited`` cores, which count in ``done``."""
        if len(stream.launches) == 1:
            only = stream.launches[0]
            self.pod.launch(only.kernel, die, cores, only.named, only.grants)
            return
        table = stream.table(int(done is not None))
        if done is not None:
            table[:, :, -1] = [number * awaited * wait for number, wait in enumerate(self._waits)]
        each = np.zeros((len(cores), align(table[0].nbytes)), np.uint8)
        each[:, : table[0].nbytes] = table.view(np.uint8).reshape(len(cores), -1)
        held = self._bench.filled(die, each, "launches of core " + " and ".join(map(str, cores)))
        args = {"table": [held.address + i * each.shape[1] for i in range(len(cores))], "launches": table.shape[1]}
        grants = [self.pod.grant(held, "r"), *merged(stream.grants)]
        if done is not None:
            args |= {"done": done.address}
            grants.append(self.pod.grant(done, "rw"))
        kernel = in_turn(stream.kernels, done is not None)
        given = dict.fromkeys(kernel.params, 0) | args  # some keep words for each launch
        self.pod.launch(kernel, die, cores, given, grants)
