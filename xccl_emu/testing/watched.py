"""Calls under watch: `Pod(spec, order="relaxed", policy=Watched())`, then sessions are called as always.

Each run is judged first: some schedules of it, drawn by a sampling policy, go by under the monitor, which leaves the
pod as it was.  If one of them goes wrong, the call raises ViolationError.  Else the last one is carried out.
"""

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import CapacityError, ConfigError, ReplayError, ViolationError
from xccl_emu.base.options import one_of, whole
from xccl_emu.check.check import MOST_SCHEDULES, POLICIES
from xccl_emu.check.shrink import with_violation
from xccl_emu.check.trial import Trial
from xccl_emu.check.verdict import VIOLATION, Verdict, Violation
from xccl_emu.check.witness.replay_file import Witness
from xccl_emu.kernels.host import ROW_WORDS, host_writes
from xccl_emu.lang import foreign
from xccl_emu.machine.device.layout import GRANULE_BYTES
from xccl_emu.machine.launch import Grant, Launch
from xccl_emu.machine.pod import POISON, Pod, Snapshot
from xccl_emu.protocol.bench import Bench
from xccl_emu.protocol.streams import Streams
from xccl_emu.testing import witnesses

if TYPE_CHECKING:
    from xccl_emu.check.sampling.watch import Monitor

FOLDER = "witnesses"
_RUNS = 1 << 20  # schedules of a run and the next have seeds so far apart
_TOGETHER_MOST = 8


@dataclass(frozen=True)
class _Launched:
    """What is launched on a pod, as something to check: it is built already."""

    trial: Trial
    name: str
    configuration: dict[str, int | str]

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        return self.trial


class Watched:
    """The policy of a pod whose runs are judged before they are carried out.

    policy: of `xccl_emu.check`, ``"portfolio"`` for all in turn.  schedules: how many of each run.  seed: of them; the
    n-th run of a pod is judged by the same schedules whenever it has the same seed.  witnesses: the folder for replay
    files of violations.  replay: such a file; then the run of that number takes its schedule, and each other run is
    judged by one, not by ``schedules``.

    together: each run is judged by itself, when what went before it counts as done, and from 2 on also together with
    those before it, ``together`` in all, if they are on the same cores: then a die goes on when its cores have ended,
    as it does after launches in a stream, and what orders a call and the next shows.  That is for sessions whose hosts
    need not wait for each other between calls.  The pod is poisoned (`Pod.poison`).

    Raises ConfigError for what is out of range, ReplayError for a file that is damaged.
    """

    data = poisons = True

    def __init__(
        self, policy: str = "portfolio", *, schedules: int = 12, seed: int = 0, witnesses: str | Path = FOLDER,
        replay: str | Path | None = None, together: int = 1,
    ) -> None:  # fmt: skip
        one_of("policy", policy, [name for name in POLICIES if name != "exhaustive"])
        if not 1 <= whole("schedules", schedules) <= MOST_SCHEDULES:
            raise ConfigError("schedules", schedules, f"must be 1 to {MOST_SCHEDULES}")
        if not 1 <= whole("together", together) <= _TOGETHER_MOST:
            raise ConfigError("together", together, f"must be 1 to {_TOGETHER_MOST}")
        if not 0 <= whole("seed", seed) < 1 << 40:
            raise ConfigError("seed", seed, "must be 0 to 2^40 - 1")
        self.policy, self.schedules, self.seed, self.folder = policy, schedules, seed, Path(witnesses)
        self._file = Path(replay or "")
        self._again = None if replay is None else Witness.load(replay)
        self.runs = 0
        """Runs that were judged so far."""
        self.drawn = 0
        """Schedules by which they were."""
        self._actions: NDArray[np.int64] = np.zeros(0, np.int64)
        self._error: ViolationError | None = None
        self._together = Together(together) if together > 1 else None

    @property
    def name(self) -> str:
        """For reports."""
        return f"{self.policy}, watched"

    def look(self, pod: Pod) -> None:
        """Judge what is about to run, and the runs before it together with it."""
        from xccl_emu.check.sampling.watch import Monitor

        self.runs, self._error = self.runs + 1, None
        alone = _Launched(Trial(pod, (), spoilt=tuple(pod.spoilt)), "run", {"run": self.runs})
        together = self._together.trial(pod) if self._together else None
        if not self._replayed(alone):
            monitor = Monitor(alone.trial)
            self._judge(alone, monitor, 1 if self._again is not None else self.schedules)
            self._actions = monitor.taken
        if together is not None and self._error is None:
            last = _Launched(together, "runs", {"run": self.runs})
            if not self._replayed(last) and self._again is None:
                self._judge(last, Monitor(together), self.schedules)

    def _replayed(self, launched: _Launched) -> bool:
        """Take the schedule of the replay file, if it is of this."""
        from xccl_emu.check.sampling.sample import replay

        again = self._again
        if again is None or (again.protocol, again.configuration) != (launched.name, launched.configuration):
            return False
        found = replay(again.trial(launched), again.actions, again.loop)
        if found is None:
            raise ReplayError(f"run {self.runs}: its schedule in the replay file shows no violation now")
        self.drawn += 1
        self._error = self._told(launched, self._verdict(launched, found), self._file)
        return True

    def _judge(self, launched: _Launched, monitor: "Monitor", schedules: int) -> None:
        """Take this many schedules, and keep what goes wrong."""
        from xccl_emu.check.sampling.sample import sample  # with it comes compiled code

        seed = self.seed * _RUNS + self.runs
        sampled = sample(launched.trial, self.policy, seed=seed, schedules=schedules, monitor=monitor)
        self.drawn, found = self.drawn + sampled.schedules, sampled.violation
        if found is not None:
            verdict = self._verdict(launched, found)
            with contextlib.suppress(CapacityError):  # a pod too large to copy: as it was found
                verdict = with_violation(launched, verdict, found)
            path = witnesses.keep_witness(launched, verdict, self.folder, f"{launched.name}-{self.runs}")
            self._error = self._told(launched, verdict, path)

    def drive(self, pod: Pod, progress: Callable[[int], None] | None) -> tuple[int, float, NDArray[np.int64]]:
        """Carry out the last schedule; raises ViolationError where one went wrong."""
        from xccl_emu.machine.driver import drive_replay

        if self._error is not None:
            error, self._error = self._error, None
            raise error
        ended, seconds = drive_replay(pod, self._actions)
        if self._together:
            self._together.ended(pod)
        return ended, seconds, self._actions

    def _verdict(self, launched: _Launched, found: Violation) -> Verdict:
        pod = launched.trial.pod
        return Verdict(
            VIOLATION, launched.name, launched.configuration, pod.order, self.policy, self.seed,
            tuple(sorted(pod.without)), violation=found,
        )  # fmt: skip

    def _told(self, launched: _Launched, verdict: Verdict, path: Path) -> ViolationError:
        assert verdict.violation is not None
        text = f"{witnesses.headline(verdict)}\n\n{witnesses.witness_text(launched, verdict)}\n\nreplay file: {path}"
        return ViolationError(text, verdict.violation.kind, path)


# ---- runs one after the other as a single one


class _Run(NamedTuple):
    """A run, as it was about to begin."""

    launches: tuple[Launch, ...]
    written: Mapping[int, list[tuple[int, bytes]]]
    """By die, addresses and bytes that its host had written since the run before."""
    before: Snapshot
    spoilt: tuple[tuple[int, int], ...]


class Together:
    """The last runs of a pod, ``most`` at once, as a single one: each die goes on when its own cores have ended.

    So what a fast die does in a run meets what a slow one still does in the run before; on the pod itself nobody begins
    before all have ended.  The host of a die writes between two of its launches what it has written in between.
    """

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
