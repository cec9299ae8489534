"""Runs of a pod one after the other as a single one, in which each die goes on when its own cores have ended.

So what a fast die does in a run meets what a slow one still does in the run before; on the pod itself nobody begins
before all have ended.  The host of a die writes between two of its launches what it has written in between.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check.trial import Trial
from xccl_emu.kernels.host import ROW_WORDS, host_writes
from xccl_emu.lang import foreign
from xccl_emu.machine.device.layout import GRANULE_BYTES
from xccl_emu.machine.launch import Grant, Launch
from xccl_emu.machine.pod import POISON, Pod, Snapshot
from xccl_emu.protocol.bench import Bench
from xccl_emu.protocol.streams import Streams


class _Run(NamedTuple):
    """A run, as it was about to begin."""

    launches: tuple[Launch, ...]
    written: Mapping[int, list[tuple[int, bytes]]]
    """By die, addresses and bytes that its host had written since the run before."""
    before: Snapshot
    spoilt: tuple[tuple[int, int], ...]


class Together:
    """The last runs of a pod, ``most`` at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._runs: list[_Run] = []
        self._after: NDArray[np.uint8] | None = None

    def ended(self, pod: Pod) -> None:
        """Keep the memory after a run, so that later writes of the host show."""
        self._after = pod.memory.copy()

    def trial(self, pod: Pod) -> Trial | None:
        """Return what is about to run, with the runs before it.

        None if the run has no predecessor on this pod and these cores, or the host has written more than app data
        since.

        Raises CapacityError for a pod that is too large to copy, or has no app data left for what the hosts write.
        """
        launches = tuple(dict.fromkeys(launch for core in pod.active_cores() if (launch := pod.launch_of(core))))
        written = self._written(pod) if self._goes_on(pod, launches) else None
        if written is None:
            self._runs = []
        run = _Run(launches, written or {}, pod.snapshot(), tuple(pod.spoilt))
        self._runs = [*self._runs, run][-self._most :]
        return self._built(pod) if len(self._runs) > 1 else None

    def _goes_on(self, pod: Pod, launches: tuple[Launch, ...]) -> bool:
        """Return True if the run before was on this pod, with a launch on the same cores of each die."""
        if not self._runs or self._after is None or self._runs[-1].before.of != (pod.spec, pod.order, pod.without):
            return False
        each = [sorted((launch.die, launch.cores) for launch in some) for some in (self._runs[-1].launches, launches)]
        alone = len({die for die, _ in each[1]}) == len(each[1])
        return alone and each[0] == each[1] and not any(isinstance(of.kernel, foreign.CKernel) for of in launches)

    def _written(self, pod: Pod) -> dict[int, list[tuple[int, bytes]]] | None:
        """Return what hosts have written, poison aside, by die; None if it is not app data alone."""
        assert self._after is not None
        spec, now = pod.spec, pod.memory[: pod.spec.memory_bytes].reshape(pod.spec.n_homes, -1)
        changed = now != self._after[: spec.memory_bytes].reshape(now.shape)
        for address, nbytes in pod.spoilt:
            spoilt = slice(address, address + nbytes)
            changed.reshape(-1)[spoilt] &= now.reshape(-1)[spoilt] != POISON
        if changed[:, spec.app_bytes :].any():
            return None
        written: dict[int, list[tuple[int, bytes]]] = {}
        for die in np.flatnonzero(changed.any(axis=1)).tolist():
            granules = changed[die].reshape(-1, GRANULE_BYTES).any(axis=1).astype(np.int8)
            edges = GRANULE_BYTES * np.flatnonzero(np.diff(granules, prepend=0, append=0))
            ranges = edges.reshape(-1, 2).tolist()
            written[die] = [(die * spec.die_bytes + first, now[die, first:end].tobytes()) for first, end in ranges]
        return written

    def _built(self, pod: Pod) -> Trial:
        """A pod as the first of these runs found it, with all of them launched."""
        first = self._runs[0]
        copy = Pod(pod.spec, order=pod.order, without=pod.without)
        copy.restore(first.before)
        copy.clear()
        copy.release_app(pod.mark_app())
        copy.labels, copy.switches = pod.labels, pod.switches
        streams = Streams(Bench.around(copy), copy)
        for run in self._runs:
            for launch in run.launches:
                if run is not first:
                    self._launch_host(copy, streams, launch, run.written.get(launch.die, []))
                streams.append(launch)
        streams.put()
        return Trial(copy, (), spoilt=first.spoilt)

    def _launch_host(self, pod: Pod, streams: Streams, launch: Launch, written: list[tuple[int, bytes]]) -> None:
        """Make the writes of a die's host before a launch there, if it has any, on the first of its cores."""
        if not written:
            return
        die, rows = launch.die, np.zeros((len(written), ROW_WORDS), np.int64)
        held = pod.put(die, np.frombuffer(b"".join(each for _, each in written), np.uint8))
        rows[:, 1], rows[:, 2] = zip(*((address, len(each)) for address, each in written), strict=True)
        rows[:, 0] = held.address + np.cumsum(rows[:, 2]) - rows[:, 2]
        table = pod.put(die, rows)
        grants = [pod.grant(held, "r"), pod.grant(table, "r"), Grant(die, 0, pod.spec.app_bytes, "rw")]
        on_first = [len(rows), *([0] * (len(launch.cores) - 1))]
        pod.launch(host_writes, die, launch.cores, {"table": table.address, "rows": on_first}, grants, after=streams)
