"""The monitor as the host holds it: its arrays, one set for a trial, and runs in them.

A sampled run is judged action by action: races by vector clocks (`monitor.clocks`, `monitor.shadow`), reads of memory
that nobody wrote, what the machine itself refuses, deadlock and livelock, and at its end the bytes that are expected.
The detectors are the same for every policy and for a replay.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import CapacityError
from xccl_emu.check.faults import Fault
from xccl_emu.check.messages import words_of_sites
from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.trial import Trial
from xccl_emu.lang.abi import REGISTERS
from xccl_emu.machine.clock import working_seconds
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.pod import Pod

Words = NDArray[np.int64]
_LEARNING_RUNS = 4
_LEARNING_SEED = 271828
_EVENT_ROWS = ms.N_PIPES * ms.N_PIPES * ms.N_EVENTS
_GROUP_ROWS = 3
_PIECE_FIRST, _PIECE_MAX, _PIECE_SECONDS = 1 << 12, 1 << 18, 0.05
"""Actions of one call of compiled code: then the host looks at the clock, and hears signals."""


@dataclass(frozen=True)
class Limits:
    """How many actions a run may have; learned from the first runs."""

    typical: int
    fair_after: int
    """After this many a policy that may be unfair gives way to a fair one."""
    most: int
    """A run that is longer does not end: livelock."""


def limits_for(actions: int) -> Limits:
    """Limits for runs of that many actions; one that does not end is given no more time than it had."""
    if actions >= _ACTIONS_MAX:
        return Limits(_ACTIONS_MAX, _ACTIONS_MAX // 2, _ACTIONS_MAX)
    return Limits(actions, 8 * actions + 20_000, 40 * actions + 120_000)


_ACTIONS_MAX = 4_000_000
_LEARNING = Limits(2_000, _ACTIONS_MAX, _ACTIONS_MAX)


class Monitor:
    """Runs of one trial under watch.

    What several cores use for synchronization, and how long runs are, is learned first, from a few runs that are not
    judged.
    The trial's pod is as it was before after every call.
    """

    def __init__(self, trial: Trial) -> None:
        from xccl_emu.machine.driver import check_steppable

        check_steppable(trial.pod)
        self.trial = trial
        self._parts, self._all = _parts(trial.pod, False), _parts(trial.pod, True)
        self._before = _words(trial.pod.state, self._all)
        self._sync_max, self._record_words, self._undo_words = 64, 1 << 16, 1 << 14
        self.known: list[int] = []
        """Granules that are synchronizations in every run."""
        self.m: Words = np.zeros(0, np.int64)
        self.log: Words = np.zeros(0, np.int64)
        self.endings: Words = np.zeros(0, np.int64)
        """How runs ended in which something broke, by `breaks.ENDED_RIGHT` and so on; of the last `runs`."""
        self.sites = words_of_sites(trial.pod)
        """What is known of sites (`accesses.NAMED`), and whether runs come to them, and wait (`machine.MAY_WAIT`)."""
        self._filled = _filled(trial)
        self._wanted = (_answers(trial), np.array(list(trial.stops), np.int64))
        self._results = trial.results()
        self._judged = ml.JUDGE_NOTHING
        self._rings, self._fences = ms.N_EVENTS, True
        self.limits = _LEARNING
        self._piece = _PIECE_FIRST

    # ---- runs

    def runs(
        self,
        policy: int,
        seed: int,
        first: int,
        end: int,
        depth: int = 3,
        races: bool = True,
        fault: Fault | None = None,
        until: float = math.inf,
    ) -> int:
        """Runs ``first`` to ``end`` - 1 by a policy, up to one that finds something; returns its code.

        `m` and `log` then describe the last one.  With a fault something breaks in each of them, if it comes to that.
        After ``until``, by `working_seconds`, it is `RUN_PAUSED`: a piece of a run is taken in any case, and one that
        is not through is given up.
        """
        from xccl_emu.check.sampling.device.run import many_runs

        self.endings = self._no_endings()
        if not self.learn(until):
            return ml.RUN_PAUSED
        self._judged = ml.JUDGE_ALL if races else ml.JUDGE_NO_RACES
        code = ml.GROW
        done = (0, 0, 0)
        while code in (ml.GROW, ml.LEARNT):
            space, run = self._open()
            self.m[[ml.SCHEDULES, ml.TOTAL, ml.FAULTS]] = done
            self.m[[ml.DEPTH, ml.NEXT_NUMBER]] = depth, first
            if fault is not None:
                when, target = -1 if fault.at is None else fault.at, fault.target_on(self.trial.pod)
                self.m[ml.FAULT : ml.FAULT_AT + 1] = fault.number, fault.source, target, when
            code = self._call(many_runs, space, run, policy, seed, end, True, until=until)
            first = int(self.m[ml.NEXT_NUMBER])
            done = int(self.m[ml.SCHEDULES]), int(self.m[ml.TOTAL]), int(self.m[ml.FAULTS])
        return code

    def replay(self, actions: Words, stop: bool = False) -> int:
        """Take the actions one by one, up to one that finds something; returns the code of that, or of the end.

        With ``stop`` it is not asked whether the run could go on after them.
        `m[TAKEN]` is the number of actions taken.  The pod stays as the run left it until `close`.
        """
        from xccl_emu.check.sampling.device.replay import replay_run

        self.learn()
        self._judged = ml.JUDGE_ALL
        code = ml.GROW
        while code in (ml.GROW, ml.LEARNT):
            space, run = self._open()
            code = self._call(replay_run, space, run, np.ascontiguousarray(actions, np.int64), stop, keep=True)
        return code

    def close(self) -> None:
        """Put the pod back to where it was before the first run."""
        from xccl_emu.check.sampling.device.begin import undo_writes

        undo_writes(self._space)
        _restore(self.trial.pod.state, self._all, self._before)
        self.trial.pod.state[self._tables] = 0

    def _call(
        self, function: Any, space: ml.Space, run: ml.Run, *arguments: Any, keep: bool = False, until: float = math.inf
    ) -> int:
        """Call compiled code, piece after piece; grow what turned out too small."""
        from xccl_emu.machine import driver

        code = ml.BAD_ACTION
        try:
            with driver.arithmetic_of(self.trial.pod.kernels), np.errstate(over="ignore"):
                code = self._piece_of(function, space, run, *arguments)
                while code == ml.RUN_PAUSED and working_seconds() < until:
                    code = self._piece_of(function, space, run, *arguments)
                code = ml.LEARNT if code == ml.FOUND_WRONG and self._learns() else code
        finally:
            if not keep or code in (ml.GROW, ml.LEARNT):
                self.close()
        if code == ml.GROW:
            self._rings = ms.N_EVENTS if self.m[ml.RUNG] > self._rings else self._rings
            self._fences = self._fences or bool(self.m[ml.FENCED])
            self._sync_max, self._record_words, self._undo_words = (
                2 * n for n in (self._sync_max, self._record_words, self._undo_words)
            )
        return code

    def _piece_of(self, function: Any, *arguments: Any) -> int:
        """One piece; the next one is longer or shorter, by the time that it took."""
        self.m[ml.PAUSE_AT] = self.m[ml.TOTAL] + self.m[ml.PAUSED] + self._piece
        started = working_seconds()
        code = int(function(*arguments))
        longer = working_seconds() - started < _PIECE_SECONDS
        self._piece = min(2 * self._piece, _PIECE_MAX) if longer else max(self._piece // 2, 1)
        return code

    def _learns(self) -> bool:
        """Return whether bytes that nobody knew are right: then the run is to be taken again, and is not counted."""
        if not self.trial.expected[int(self.m[ml.V_SITE])].learns(self.trial.pod.memory):
            return False
        self._results = self.trial.results()
        self.m[[ml.SCHEDULES, ml.TOTAL, ml.FAULTS]] -= (
            1, int(self.m[ml.TAKEN]), int(self.trial.pod.state[ms.FAULT_HAPPENED] != 0),
        )  # fmt: skip
        return True

    def learn(self, until: float = math.inf) -> bool:
        """Learn about the trial, unless that is done; False if it is not done at ``until``."""
        from xccl_emu.check.sampling.device.run import many_runs

        if self.limits is not _LEARNING:
            return True
        longest, rings, fences, number = 200, 0, False, 0
        while number < _LEARNING_RUNS and longest < _ACTIONS_MAX:
            space, run = self._open()
            self.m[ml.NEXT_NUMBER] = number
            code = self._call(many_runs, space, run, ml.P_RANDOM, _LEARNING_SEED, number + 1, False, until=until)
            if code in (ml.GROW, ml.LEARNT):
                continue
            if code == ml.RUN_PAUSED:
                return False
            longest = max(longest, int(self.m[ml.TAKEN]))
            rings, fences = max(rings, int(self.m[ml.RUNG])), fences or bool(self.m[ml.FENCED])
            table = int(self.m[ml.SYNC_GRANULES])
            self.known = [int(granule) for granule in self.m[table : table + int(self.m[ml.N_SYNC])]]
            number += 1
        self.limits, self._rings, self._fences = limits_for(longest), rings, fences
        return True

    @property
    def taken(self) -> Words:
        """[n] actions of the last schedule."""
        return self.log[: int(self.m[ml.TAKEN])].copy()

    # ---- arrays

    def _open(self) -> tuple[ml.Space, ml.Run]:
        """The arrays, and the pod at the first requests of its kernels."""
        from xccl_emu.check.sampling.device.monitor.calls import handle_of
        from xccl_emu.check.sampling.device.monitor.step import judge, watched
        from xccl_emu.machine.driver import begin

        pod = self.trial.pod
        begin(pod)
        self._space = self._arrays()
        self.m[ml.JUDGE], self.m[ml.WATCHED] = (handle_of(function, self._space) for function in (judge, watched))
        return self._space, self._run_arrays()

    def _arrays(self) -> ml.Space:
        pod = self.trial.pod
        granules = pod.memory.size // ms.GRANULE_BYTES
        m, clock_words = self._header(pod)
        shadow = np.zeros(granules * ml.SHADOW_WORDS, np.int64)
        shadow[self._filled[0]] = self._filled[1]
        for number, granule in enumerate(self.known):
            shadow[granule * ml.SHADOW_WORDS + ml.S_FIXED] |= number + 1 << ml.SYNC_SHIFT
        self.m = m
        places = int(m[ml.CAPACITY]) * len(_dies(pod)) + 1
        return ml.Space(
            mem=pod.memory,
            st=pod.state,
            m=m,
            clocks=_clocks(pod, clock_words),
            shadow=shadow,
            records=np.empty(self._record_words, np.int64),
            undo=np.empty(self._undo_words * ml.UNDO_WORDS, np.int64),
            flights=np.zeros(2 * places, np.int64),
            keys=np.zeros(places, np.float64),
            sites=self.sites,
            rows=np.zeros((4, 5), np.int64),
        )

    def _header(self, pod: Pod) -> tuple[Words, int]:
        """`m` with its tables, and how many words of clocks there are."""
        cores, dies, spec = pod.active_cores(), _dies(pod), pod.spec
        fifo, sc = pod.order == "fifo", pod.order == "sc"
        capacity = int(pod.state[ms.FLIGHT_CAPACITY])
        strong = int(pod.state[ms.REQUEST_ORDERS]) == ms.ASKS_SOME_STRONG
        targets = 0 if sc else spec.n_homes if fifo or self._fences or strong else 1
        signals = ml.SIGNAL_WORDS if pod.state[ms.SOME_SIGNAL] else 0
        pending = pod.has_loose_reads()
        per_core = ml.ENGINE_DMA + self._rings + (4 if strong else 2) * targets + signals
        words = per_core * len(cores)
        wanted = [each for expected in self.trial.expected for each in expected.ranges]
        groups, cached = _groups(pod), int(pod.state[ms.CACHE_LINES]) * len(cores)
        tables = {
            ml.CORE_INDEX: spec.n_cores, ml.CORE_NUMBER: len(cores), ml.CORE_DIE: len(cores),
            ml.DMA_EPOCHS: len(cores) * ms.N_EVENTS, ml.DMA_RINGS: len(cores) * ms.N_DMA_SLOTS,
            ml.DIE_INDEX: spec.n_homes,
            ml.FREE_ROWS: len(dies) * (capacity + 1), ml.SYNC_GRANULES: self._sync_max, ml.SIGNALLED: len(cores),
            ml.CHAINED: len(cores) * signals, ml.CONSUMED: len(cores) * _EVENT_ROWS * ml.CONSUMED_WORDS,
            ml.RELEASED: self._sync_max, ml.LINES: 2 * cached, ml.WANTED: 2 * len(wanted),
        }  # fmt: skip
        rows = {
            ml.PIPE_ROWS: 4 * len(cores), ml.QUEUE_ROWS: 3 * ms.QUEUE_DEPTH * len(cores),
            ml.DMA_ROWS: ms.N_DMA_SLOTS * len(cores), ml.EVENT_ROWS: _EVENT_ROWS * len(cores),
            ml.GROUP_ROWS: _GROUP_ROWS * groups, ml.FLIGHT_ROWS: capacity * len(dies), ml.SCRATCH_ROW: 1,
            ml.SYNC_ROWS: 8 * self._sync_max, ml.FENCE_ROWS: len(cores) if self._fences else 0,
            ml.AHEAD_ROWS: len(cores) if fifo else 0, ml.KEPT_ROWS: 8 * self._sync_max if strong or signals else 0,
            ml.LINE_ROWS: ms.CACHE_LINE_BYTES // 4 * cached, ml.PENDING_ROWS: 2 * len(cores) if pending else 0,
        }  # fmt: skip
        m = np.zeros(ml.HEADER + sum(tables.values()), np.int64)
        _place(m, tables, ml.HEADER, 1)
        clock_words = _place(m, rows, 0, words)
        _table(m, ml.CORE_INDEX, cores, range(len(cores)))
        _table(m, ml.CORE_NUMBER, range(len(cores)), cores)
        _table(m, ml.CORE_DIE, range(len(cores)), [core // spec.cores_per_die for core in cores])
        _table(m, ml.DIE_INDEX, dies, range(len(dies)))
        _table(m, ml.WANTED, range(2 * len(wanted)), [end for a, n in wanted for end in (a, a + n)])
        m[ml.N_WANTED] = len(wanted)
        _table(m, ml.SYNC_GRANULES, range(len(self.known)), self.known)
        m[[ml.WORDS, ml.PER_CORE, ml.N_DMA, ml.TARGETS]] = words, per_core, self._rings, targets
        m[[ml.JUDGED, ml.ASKED]] = self._judged
        m[ml.FENCES], m[ml.SIGNALS], m[ml.PENDING] = self._fences, signals, pending
        m[ml.SEEN_WORDS] = -(-len(cores) // ml.SEEN_BITS) * pending
        m[[ml.CAPACITY, ml.N_GROUPS, ml.SYNC_MAX]] = capacity, groups, self._sync_max
        m[[ml.N_SYNC, ml.N_SYNC_KNOWN]] = len(self.known)
        m[[ml.META_START, ml.META_END, ml.BUFFERS_START]] = _bounds(self.trial)
        m[[ml.LENGTH, ml.FAIR_AFTER, ml.DEPTH]] = self.limits.typical, self.limits.fair_after, 3
        return m, clock_words

    def _run_arrays(self) -> ml.Run:
        pod = self.trial.pod
        n_actors = ms.ACTORS_PER_CORE * len(pod.active_cores())
        most = n_actors + int(self.m[ml.CAPACITY]) * len(_dies(pod))
        if self.log.size != self.limits.most:
            self.log = np.empty(self.limits.most, np.int64)
        (expected, data), (answers, stops) = self._results, self._wanted
        return ml.Run(
            rng=np.zeros(1, np.uint64),
            candidates=np.zeros(most, np.int64),
            candidate_keys=np.zeros(most, np.float64),
            serials=np.zeros(most, np.int64),
            actor_keys=np.zeros(n_actors, np.float64),
            asleep=np.zeros(n_actors, np.int64),
            loads=np.zeros(n_actors, np.int64),
            changes=np.zeros(64, np.int64),
            log=self.log,
            start=_words(pod.state, self._parts),
            parts=self._parts,
            expected=expected,
            expected_bytes=data,
            owners=answers,
            stops=stops,
            gives_up=np.array(sorted(self.trial.gives_up), np.int64),
            may_block=np.array([self.trial.may_block, *_recovering(self.trial)], np.int64),
            endings=self.endings,
        )

    def _no_endings(self) -> Words:
        from xccl_emu.check.sampling.device.breaks import ENDED_DECLARED

        return np.zeros(ENDED_DECLARED + len(self.trial.stops), np.int64)

    @property
    def _tables(self) -> slice:
        """The tables of writers and large writes, which reports alone read."""
        st = self.trial.pod.state
        return slice(int(st[ms.WRITER_BASE]), int(st[ms.LARGE_BASE]) + int(st[ms.LARGE_SLOTS]))


def _recovering(trial: Trial) -> list[int]:
    """For each die: may cores of others wait for ever when it has stopped?"""
    return [die not in trial.recovers for die in range(trial.pod.spec.n_homes)]


def _dies(pod: Pod) -> list[int]:
    return sorted({core // pod.spec.cores_per_die for core in pod.active_cores()})


def _groups(pod: Pod) -> int:
    return 1 + max(int(pod.state[pod.core_base(core) + ms.GROUP]) for core in pod.active_cores())


def _parts(pod: Pod, everything: bool) -> Words:
    """Return what a run can change of the state, [n, 2]: first word, words.

    With ``everything``, the bytes of writes in flight too, and what beginning a run changes.
    """
    st = pod.state
    parts = [(0, ms.HEADER_WORDS)]
    words = int(st[ms.CORE_WORDS])
    length = int(st[ms.DIE_WORDS]) if everything else ms.FLIGHT_ENTRIES
    for core in pod.active_cores():
        launch = pod.launch_of(core)
        used = REGISTERS + launch.kernel.n_registers if launch is not None else words
        parts.append((pod.core_base(core), used))
        if cached := int(st[ms.CACHE_WORDS]):
            parts.append((int(st[ms.CACHE_BASE]) + core * cached, cached))
    parts += [(int(st[ms.DIE_BASE]) + die * int(st[ms.DIE_WORDS]), length) for die in _dies(pod)]
    parts.append((int(st[ms.GROUP_BASE]), _groups(pod) * ms.GROUP_WORDS))
    if everything:
        parts.append((int(st[ms.SWITCH_BASE]), ms.MAX_KERNELS * ms.MAX_SITES))
        parts.append((int(st[ms.ACTIVE_BASE]), pod.spec.n_cores + pod.spec.n_homes))
        parts.append((int(st[ms.TRAFFIC_BASE]), pod.spec.n_homes * int(st[ms.TRAFFIC_WORDS])))
    return np.array(parts, np.int64)


def _words(state: Words, parts: Words) -> Words:
    return np.concatenate([state[first : first + n] for first, n in parts])


def _restore(state: Words, parts: Words, words: Words) -> None:
    source = 0
    for first, n in parts:
        state[first : first + n] = words[source : source + n]
        source += n


def _place(m: Words, sizes: dict[int, int], start: int, each: int) -> int:
    """Lay regions of these sizes one after the other; returns where they end."""
    for word, size in sizes.items():
        m[word] = start
        start += size * each
    return start


def _table(m: Words, table: int, places: Sequence[int], values: Sequence[int]) -> None:
    for place, value in zip(places, values, strict=True):
        m[int(m[table]) + place] = value


def _bounds(trial: Trial) -> tuple[int, int, int]:
    """Return what of a die counts as filled, first byte and end, and where data buffers begin."""
    spec = trial.pod.spec
    filled = (spec.meta_start, spec.managed_start) if trial.spoilt is None else (0, spec.die_bytes)
    return *filled, spec.memory_bytes


def _filled(trial: Trial) -> tuple[Words, Words]:
    """Return which words of the shadow have bytes that are filled at first, or spoilt, and a bit for each such byte.

    In areas that count as filled a bit says that the byte is spoilt, so filled bytes of metadata have none.
    """
    spec, (first, end, buffers) = trial.pod.spec, _bounds(trial)
    ranges = trial.spoilt or [(buffer.address, buffer.nbytes) for buffer in trial.filled]
    words, bits = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for address, nbytes in ranges:
        granules = np.arange(address // ms.GRANULE_BYTES, -(-(address + nbytes) // ms.GRANULE_BYTES))
        start = granules * ms.GRANULE_BYTES
        ends = np.minimum(address + nbytes - start, ms.GRANULE_BYTES)
        offset = start % spec.die_bytes
        inside = (start < buffers) & (offset >= first) & (offset < end)
        said = ~inside | bool(trial.spoilt)
        words.append((granules * ml.SHADOW_WORDS + ml.S_FIXED)[said])
        bits.append(((1 << ends) - (1 << np.maximum(address - start, 0)))[said])
    named, which = np.unique(np.concatenate(words), return_inverse=True)
    together = np.zeros(len(named), np.int64)
    np.bitwise_or.at(together, which, np.concatenate(bits))
    return named, together


def _clocks(pod: Pod, n_words: int) -> Words:
    """Room for all clocks, committed as it is used; CapacityError if there is none."""
    try:
        return np.zeros(n_words, np.int64)
    except (MemoryError, ValueError) as error:  # a ValueError if it is larger than any memory
        cores, gib = len(pod.active_cores()), n_words / (1 << 27)
        raise CapacityError(f"{cores} cores: to watch them takes {gib:.0f} GiB for clocks; take fewer cores") from error


def _answers(trial: Trial) -> Words:
    """Return which cores own which expectation, [n, 2]: its number, the core's."""
    rows = [(number, core) for number, expected in enumerate(trial.expected) for core in trial.owners(expected)]
    return np.array(rows, np.int64).reshape(-1, 2)
