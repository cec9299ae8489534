"""The host's side of a search: the checker state for a trial, its tables, and which cores can be searched apart."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import CapacityError
from xccl_emu.check.messages import words_of_sites
from xccl_emu.check.search import limits
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import classify, frames, granules, kept, linked, moves, races, record, run_local
from xccl_emu.check.trial import RESULTS_MAX, Expected, Trial
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.driver import begin

_RECORD_WORDS = 1 << 22

_LINKED = {
    linked.CLASSIFY: classify.classify_action,
    linked.EXECUTE: moves.execute_action,
    linked.RUN_LOCAL_ALL: run_local.run_local_of_all,
    linked.TRANSITION: run_local.make_transition,
    linked.FIND_RACE: races.find_race_of,
    linked.RECORDED_STEP: record.step_recorded,
}


@dataclass(frozen=True)
class Initial:
    """Where a search begins, to be put back."""

    memory: NDArray[np.uint8]
    state: NDArray[np.int64]


class Setup:
    """A trial made ready to be searched: machine, checker state and what they looked like at first."""

    def __init__(self, trial: Trial, full: bool, most: bool = True) -> None:
        self.trial, self.pod = trial, trial.pod
        self.cores = self.pod.active_cores()
        if not self.cores:
            raise CapacityError("no core runs: a search takes one at least; launch a kernel")
        if len(self.cores) > limits.CORES_MAX:
            raise CapacityError(limits.CORES.said(f"{len(self.cores)} cores"))
        self.n_granules = self.pod.spec.memory_bytes // 32
        if self.n_granules > limits.GRANULES_MAX:
            raise CapacityError(limits.GRANULES.said(f"{self.n_granules} granules"))
        begin(self.pod)
        self.memory, self.state = self.pod.memory, self.pod.state
        self.explored = 0
        """Cores, a bit each; it matters when each of their flags is written (`explore_writes`)."""
        self.initial = Initial(self.memory.copy(), self.state.copy())
        self.rows = np.zeros((races.ROWS, 5), np.int64)
        self.named = words_of_sites(self.pod)
        self.judged = list[tuple[int, int, int, int]]()
        """The rows of what is expected now: which expectation, first byte, end, and where that is in a content."""
        self._judged_of: object = None
        """What these rows follow from: the cores, who uses what, and how many contents are known."""
        self._written = self._filled()
        self.checker = self._checker((cs.MOST if most else cs.LESS) if full else 0)
        self._mark_owners()

    # ---- the checker state

    def _checker(self, full: int) -> NDArray[np.int64]:
        spec = self.pod.spec
        sizes = {
            cs.CORES: len(self.cores) * cs.CORE_WORDS,
            cs.MEMBERS: len(self.cores),
            cs.DIES: self.pod.spec.n_homes,
            cs.BLOCKS: len(self.cores) * cs.BLOCK,
            cs.GRANULE_TABLE: self.n_granules * granules.GRANULE_WORDS,
            cs.WRITTEN_TABLE: len(self._written),
            cs.EXPECTED_BASE: self._expected_words(),
            cs.FIRST_MEMORY: spec.memory_bytes // 8,
            cs.ON_PATH: cs.ON_PATH_WORDS,
            cs.KEPT: len(self.cores) * int(kept.words_of_core(self.state)),
            cs.RECORD_BASE: _RECORD_WORDS,
            cs.FRAMES: limits.FRAMES * frames.WORDS,
            cs.LOG_BASE: limits.LOG_WORDS,
        }
        starts, end = {}, cs.HEADER
        for region, size in sizes.items():
            starts[region], end = end, end + size
        ck = np.zeros(end, np.int64)
        for region, start in starts.items():
            ck[region] = start
        ck[cs.RECORD_END], ck[cs.FRAMES_END], ck[cs.LOG_END] = starts[cs.FRAMES], starts[cs.LOG_BASE], end
        ck[cs.FULL] = full
        ck[cs.UNIT_GRANULES] = max(1, spec.atomic_bytes // ms.GRANULE_BYTES)
        ck[cs.MEMORY_END], ck[cs.DIE_BYTES] = spec.memory_bytes, spec.die_bytes
        ck[cs.META_START], ck[cs.META_END] = spec.meta_start, spec.managed_start
        first = starts[cs.FIRST_MEMORY]
        ck[first : first + spec.memory_bytes // 8] = self.initial.memory[: spec.memory_bytes].view(np.int64)
        ck[cs.GREW_FIRST], ck[cs.GREW_LAST] = granules.NO_GRANULE, -1
        codes = sorted(self.trial.gives_up)
        ck[cs.GIVES_UP : cs.GIVES_UP + 1 + len(codes)] = [len(codes), *codes]
        for number, function in _LINKED.items():
            ck[cs.HANDLES + number] = linked.handle_of(function)
        for i, core in enumerate(self.cores):
            launch = self.pod.launch_of(core)
            assert launch is not None
            row = starts[cs.CORES] + i * cs.CORE_WORDS
            ck[row : row + 2] = core, launch.kernel.n_registers
        return ck

    def _expected_words(self) -> int:
        return sum(_room(nbytes, e.judge is not None) for e in self.trial.expected for _, nbytes in e.ranges) * 2

    def _filled(self) -> NDArray[np.int64]:
        """A bit for each byte that holds something at first, buffers too; two words for each granule (`padding`)."""
        spec, written = self.pod.spec, np.zeros(self.memory.size, np.uint8)
        for buffer in self.trial.filled:
            written[buffer.address : buffer.address + buffer.nbytes] = 1
        for die in range(spec.n_homes):
            start = die * spec.die_bytes + spec.meta_start
            written[start : start + spec.meta_bytes] = 1
        bits = np.packbits(written, bitorder="little").view(np.uint32).astype(np.int64)
        return np.stack([bits, np.zeros_like(bits)], axis=1).ravel()

    def _mark_owners(self) -> None:
        """An owner of expected bytes looks at them when it returns: a use like any other."""
        for expected in self.trial.expected:
            mask = self._owners(expected)
            for address, nbytes in expected.ranges:
                first, last = address // 32, (address + nbytes + 31) // 32
                self.table()[first:last, granules.SEEN_USERS] |= mask
                self.table()[first:last, granules.SEEN_USES] |= granules.READ_BY_MANY if mask else 0
        self.checker[[cs.GREW_FIRST, cs.GREW_LAST]] = 0, self.n_granules - 1
        self.freeze()

    def freeze(self) -> None:
        """From now on use all that was seen of who uses what, and how."""
        granules.freeze(self.state, self.checker)
        if self.explored:
            granules.explore_written(self.state, self.checker, self.n_granules, self.explored)

    def explore_writes(self, cores: int) -> None:
        """Take no flag that one of these cores, a bit each, may write for visible early."""
        self.explored = cores
        self.freeze()

    def all_frozen(self) -> bool:
        """Return whether everything seen so far is frozen."""
        table = self.table()
        frozen, seen = (granules.USERS, granules.USES), (granules.SEEN_USERS, granules.SEEN_USES)
        return bool(np.array_equal(table[:, frozen], table[:, seen]))

    def bounds(self) -> dict[str, int]:
        """Limits of the machine within which every schedule is searched."""
        return {
            "queue_depth": ms.QUEUE_DEPTH,
            "dma_descriptors": ms.N_DMA_SLOTS,
            "flight_granules": int(self.state[ms.FLIGHT_CAPACITY]),
        } | ({"cache_lines": self.pod.spec.scalar_cache} if self.pod.spec.scalar_cache else {})

    def table(self) -> NDArray[np.int64]:
        """Words of the granules, [granules, `GRANULE_WORDS`]."""
        start = int(self.checker[cs.GRANULE_TABLE])
        end = start + self.n_granules * granules.GRANULE_WORDS
        return self.checker[start:end].reshape(-1, granules.GRANULE_WORDS)

    # ---- where a search begins

    def reset(self, members: Sequence[int]) -> None:
        """Put everything back, and search these cores (their numbers) next."""
        np.copyto(self.memory, self.initial.memory)
        np.copyto(self.state, self.initial.state)
        ck = self.checker
        for word in (cs.RESTART, cs.VIOLATION, cs.LIMIT, cs.HASH, cs.RECORDING, cs.RECORDED, cs.DEPTH, cs.TOUCHED):
            ck[word] = 0
        ck[cs.LOG] = ck[cs.LOG_BASE]
        ck[ck[cs.BLOCKS] : ck[cs.GRANULE_TABLE]] = 0
        ck[ck[cs.WRITTEN_TABLE] : ck[cs.WRITTEN_TABLE] + len(self._written)] = self._written
        ck[cs.N] = len(members)
        ck[ck[cs.MEMBERS] : ck[cs.MEMBERS] + len(members)] = list(members)
        ck[cs.MASK] = sum(1 << i for i in members)
        per_die = self.pod.spec.cores_per_die
        dies = sorted({self.cores[i] // per_die for i in members})
        ck[cs.N_DIES_HERE] = len(dies)
        ck[ck[cs.DIES] : ck[cs.DIES] + len(dies)] = dies
        self._expect(members)

    def _expect(self, members: Sequence[int]) -> None:
        """List what these cores have to leave in memory: bytes that one of them uses, and those that nobody does.

        A row has a range of an expectation, from a byte of its content on.  Rows that hang on nothing new stay.
        """
        ck, mask, table = self.checker, sum(1 << i for i in members), self.table()
        of = mask, table[:, (granules.USERS, granules.USES)].tobytes(), [len(e.contents) for e in self.trial.expected]
        if of == self._judged_of:
            return
        self._judged_of = of
        self.judged = [row for e in range(len(self.trial.expected)) for row in self._ranges(e, mask)]
        row = int(ck[cs.EXPECTED_BASE])
        place = row + cs.EXPECTED_WORDS * len(self.judged)
        ck[cs.OWNERS] = 0
        for n, (e, start, end, first) in enumerate(self.judged):
            expected = self.trial.expected[e]
            last = expected.judge is None or n + 1 == len(self.judged) or self.judged[n + 1][0] != e
            ranges = 1 if expected.judge is None else len(expected.ranges)
            ck[row : row + 4] = start, end - start, place, self._owners(expected)
            contents = expected.contents[:RESULTS_MAX]
            ck[row + 4 : row + 6] = (ranges, len(contents)) if last else (0, 0)
            if (table[start // 32 : (end + 31) // 32, granules.USES] & granules.USE_LATE).any():
                ck[cs.OWNERS] |= self._owners(expected)
            for content in contents:
                data = content[first : first + end - start]
                words = np.frombuffer(data + bytes(-len(data) % 8), np.int64)
                ck[place : place + len(words)] = words
                place += len(words)
            row += cs.EXPECTED_WORDS
        ck[cs.N_EXPECTED] = len(self.judged)

    def _ranges(self, e: int, mask: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield what some cores have to leave of an expectation: all of what is judged together, or none of it."""
        expected, users, at = self.trial.expected[e], self.table()[:, granules.USERS], 0
        if expected.judge is not None:
            used = self._users(expected)
            for start, nbytes in expected.ranges if used & mask or not used else ():
                yield e, start, start + nbytes, at
                at += nbytes
            return
        cuts = _granules_of(int(expected.address), len(expected.data))
        here = [(a, b) for a, b in cuts if users[a // 32] & mask or not users[a // 32]]
        for start, end in _joined(here):
            yield e, start, end, start - expected.address

    def _users(self, expected: Expected) -> int:
        """Cores that use some of the bytes of an expectation, a bit each."""
        users = self.table()[:, granules.USERS]
        return int(np.bitwise_or.reduce(users[_granules(expected)], initial=0))

    def learns(self) -> bool:
        """Return whether bytes that a search takes for wrong are right though nobody knew; they are known then."""
        expected = self.trial.expected[self.judged[int(self.checker[cs.WITNESS])][0]]
        return expected.learns(self.memory)

    def _owners(self, expected: Expected) -> int:
        """Return who owns expected bytes, as a mask; 0 if they are to be there only when all kernels are done."""
        return sum(1 << self.cores.index(core) for core in expected.cores if core in self.cores)

    def explore_flags(self) -> None:
        """Take no flag for stable any more: from now on it matters when each of its writes becomes visible."""
        granules.explore_flags(self.state, self.checker, self.n_granules)

    def components(self) -> list[list[int]]:
        """Numbers of the cores in parts that share nothing that any of them writes, as far as is known.

        Where a core may give up there is one part, since that ends the run of all.
        """
        if self.trial.gives_up:
            return [[*range(len(self.cores))]]
        table = self.table()
        links = [int(users) for users in np.unique(table[table[:, granules.CLASS] != granules.LOCAL, granules.USERS])]
        links += [self._users(each) for each in self.trial.expected if each.judge is not None]
        per_die = self.pod.spec.cores_per_die
        groups: dict[object, int] = {}
        for i, core in enumerate(self.cores):
            launch = self.pod.launch_of(core)
            keys: list[object] = (
                [id(launch)] if launch is not None and len(launch.cores) > 1 and _has_barrier(launch) else []
            )
            if self.pod.order == "fifo":
                keys.append(core // per_die)
            for key in keys:
                groups[key] = groups.get(key, 0) | 1 << i
        return _connected(len(self.cores), [*links, *groups.values()])


def _has_barrier(launch: object) -> bool:
    sites = launch.kernel.sites  # type: ignore[attr-defined]
    return any(site.operation in ("arrive", "await_group") for site in sites)


def _granules_of(address: int, nbytes: int) -> list[tuple[int, int]]:
    """A range cut where granules begin."""
    cuts = [address, *range((address // 32 + 1) * 32, address + nbytes, 32), address + nbytes]
    return [(a, b) for a, b in pairwise(cuts) if a < b]


def _joined(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ranges, those that meet made one."""
    starts, ends = {a for a, _ in ranges}, {b for _, b in ranges}
    return zip(sorted(starts - ends), sorted(ends - starts), strict=True)


def _granules(expected: Expected) -> list[int]:
    """Granules in which an expectation has bytes."""
    return [k for a, nbytes in expected.ranges for k in range(a // 32, (a + nbytes + 31) // 32)]


def _room(nbytes: int, judged: bool) -> int:
    """Words that a range takes at most: its rows, one a granule, and each content."""
    return cs.EXPECTED_WORDS * (nbytes // 32 + 2) + (nbytes // 8 + nbytes // 32 + 4) * (RESULTS_MAX if judged else 1)


def _connected(n: int, links: Sequence[int]) -> list[list[int]]:
    parts = [1 << i for i in range(n)]
    for link in links:
        touched = [part for part in parts if part & link]
        parts = [part for part in parts if not part & link] + ([sum(touched)] if touched else [])
    parts.sort(key=lambda part: part & -part)
    return [[i for i in range(n) if part >> i & 1] for part in parts]
