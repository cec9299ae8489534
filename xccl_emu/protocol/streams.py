"""Launches that a core makes one behind the other, as a rank's stream does, in one run of the pod."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from xccl_emu.kernels.group import align
from xccl_emu.lang import Kernel
from xccl_emu.lang.in_turn import in_turn, row_words
from xccl_emu.machine.device.layout import GRANULE_BYTES
from xccl_emu.machine.launch import Grant, bind_arguments
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
    """What names say behind the first call."""
    return f" of call {number}" if number else ""


def seed_of(seed: int, number: int) -> int | list[int]:
    """For other values in each call; those of the first are those of the seed."""
    return [seed, number] if number else seed


@dataclass
class _Stream:
    """What one core runs."""

    rows: list[tuple[Kernel, tuple[int, ...]]] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)
    args: Mapping[str, int | Sequence[int]] = field(default_factory=dict)
    """Arguments of the last launch."""


class Streams:
    """The streams of a pod, a core each.  Between two launches everything that the core has issued is done; nothing
    orders the launches of two cores.

    `Streams.launch` collects, `Streams.put` launches; then app data has room for a table with a row for each launch
    (`table_bytes`).

    calls: given where each core has a launch for each of them; before one that `Call.waits` its host has waited for all
    launches before it on the die, as for handles of asynchronous calls.
    """

    def __init__(self, bench: Bench, pod: Pod, calls: Sequence[Call] = ()) -> None:
        self._bench, self._pod = bench, pod
        self._waits = [call.waits for call in calls]
        self._streams: dict[tuple[int, int], _Stream] = {}

    def launch(
        self, kernel: Kernel, die: int, args: Mapping[str, int | Sequence[int]], grants: Sequence[Grant], core: int = 0
    ) -> None:
        """Behind what that core runs already; raises ConfigError for arguments that the kernel does not take."""
        core += self._bench.corner.core
        stream = self._streams.setdefault((die, core), _Stream())
        (words,) = bind_arguments(kernel, 1, args)
        stream.rows.append((kernel, words))
        stream.args = args
        stream.grants += [grant for grant in grants if grant not in stream.grants]

    def cores(self, die: int, kernels: Collection[Kernel]) -> list[int]:
        """Global numbers of the cores of a die that run one of the kernels, or one of that name (a changed one)."""
        names = {kernel.name for kernel in kernels}
        running = [where for where, stream in self._streams.items() if any(of.name in names for of, _ in stream.rows)]
        return [die * self._pod.spec.cores_per_die + core for where, core in sorted(running) if where == die]

    def owner(self, die: int, core: int) -> str:
        """A core, as `Bench.expect` takes it."""
        return f"die{die}.core{self._bench.corner.core + core}"

    @staticmethod
    def table_bytes(calls: int, *kernels: Kernel) -> int:
        """App data that the table of a core takes which makes so many launches of these kernels; none for one."""
        return align(8 * calls * (row_words(kernels) + 1)) + GRANULE_BYTES if calls > 1 else 0

    def put(self) -> None:
        """Launch all of them, a single launch as it is; raises what `Pod.launch` raises."""
        for die in dict.fromkeys(die for die, _ in self._streams):
            streams = {core: stream for (on, core), stream in self._streams.items() if on == die}
            awaited = len(streams) if len(streams) > 1 and any(self._waits[1:]) else 0
            done = self._bench.filled(die, np.zeros(4, np.int64), "launches that are done") if awaited else None
            for core, stream in streams.items():
                self._put(die, core, stream, awaited, done)

    def _put(self, die: int, core: int, stream: _Stream, awaited: int, done: Buffer | None) -> None:
        """A core's stream; where a host waits it does so for ``awaited`` cores, which count in ``done``."""
        if len(stream.rows) == 1:
            self._pod.launch(stream.rows[0][0], die, [core], stream.args, stream.grants)
            return
        kernels = tuple(dict.fromkeys(kernel for kernel, _ in stream.rows))
        table = np.zeros((len(stream.rows), row_words(kernels) + (done is not None)), np.int64)
        for row, (kernel, words) in zip(table, stream.rows, strict=True):
            row[: 1 + len(words)] = kernels.index(kernel), *words
        if done is not None:
            table[:, -1] = [number * awaited * wait for number, wait in enumerate(self._waits)]
        held = self._bench.filled(die, table, f"launches of core {core}")
        args, grants = {"table": held.address, "launches": len(table)}, [self._pod.grant(held, "r"), *stream.grants]
        if done is not None:
            args |= {"done": done.address}
            grants.append(self._pod.grant(done, "rw"))
        self._pod.launch(in_turn(kernels, done is not None), die, [core], args, grants)
