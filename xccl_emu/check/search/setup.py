"""The host's side of a search: the book for a trial, its tables, and which cores can be searched apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check.search import book as at
from xccl_emu.check.search import linked, look, moves, pieces, races, record, settle
from xccl_emu.check.search.dfs import FRAME_WORDS
from xccl_emu.check.search.look import NAMED, TAKEN
from xccl_emu.check.search.races import ROWS
from xccl_emu.check.trial import Expected, Trial
from xccl_emu.errors import CapacityError
from xccl_emu.machine import layout, single
from xccl_emu.machine.driver import begin

CORES_MAX = 60
_PIECES_MAX = 1 << 21
_LOG_WORDS = 1 << 27  # committed as it is used
_FRAMES = 1 << 20
_RECORD_WORDS = 1 << 22

_LINKED = {
    linked.LOOK: look.look_at,
    linked.TAKE: moves.take_action,
    linked.SETTLE_ALL: settle.settle_everyone,
    linked.TRANSITION: settle.make_transition,
    linked.FIND_RACE: races.find_race_of,
    linked.RECORDED_STEP: record.step_recorded,
}


@dataclass(frozen=True)
class Initial:
    """Where a search begins, to be put back."""

    memory: NDArray[np.uint8]
    state: NDArray[np.int64]


class Setup:
    """A trial made ready to be searched: machine, book and what they looked like at first."""

    def __init__(self, trial: Trial, full: bool) -> None:
        self.trial, self.pod = trial, trial.pod
        self.cores = self.pod.active_cores()
        if not 0 < len(self.cores) <= CORES_MAX:
            raise CapacityError(f"{len(self.cores)} cores run: a search takes 1 to {CORES_MAX}")
        self.n_pieces = self.pod.spec.n_dies * self.pod.spec.die_bytes // 32
        if self.n_pieces > _PIECES_MAX:
            raise CapacityError(
                f"{self.n_pieces} pieces of memory: a search takes up to {_PIECES_MAX}; take a smaller pod"
            )
        begin(self.pod)
        self.memory, self.state = self.pod.memory, self.pod.state
        self.initial = Initial(self.memory.copy(), self.state.copy())
        self.rows = np.zeros((ROWS, 5), np.int64)
        self.named = self._named()
        self.book = self._book(full)
        self._mark_filled()
        self._mark_answers()

    # ---- the book

    def _book(self, full: bool) -> NDArray[np.int64]:
        sizes = {
            at.CORES: len(self.cores) * at.CORE_WORDS,
            at.MEMBERS: len(self.cores),
            at.DIES: self.pod.spec.n_dies,
            at.BLOCKS: len(self.cores) * at.BLOCK,
            at.PIECE_TABLE: self.n_pieces * pieces.PIECE_WORDS,
            at.EXPECTED_BASE: self._expected_words(),
            at.ON_PATH: at.ON_PATH_WORDS,
            at.RECORD_BASE: _RECORD_WORDS,
            at.FRAMES: _FRAMES * FRAME_WORDS,
            at.LOG_BASE: _LOG_WORDS,
        }
        starts, end = {}, at.HEADER
        for region, size in sizes.items():
            starts[region], end = end, end + size
        ck = np.zeros(end, np.int64)
        for region, start in starts.items():
            ck[region] = start
        ck[at.RECORD_END], ck[at.FRAMES_END], ck[at.LOG_END] = starts[at.FRAMES], starts[at.LOG_BASE], end
        ck[at.FULL] = full
        ck[at.MEMORY_END] = self.pod.spec.n_dies * self.pod.spec.die_bytes
        for number, function in _LINKED.items():
            ck[at.HANDLES + number] = linked.handle_of(function)
        ck[at.HANDLES + linked.STEP] = single.act_handle()
        for i, core in enumerate(self.cores):
            launch = self.pod.launch_of(core)
            assert launch is not None
            row = starts[at.CORES] + i * at.CORE_WORDS
            ck[row : row + 2] = core, launch.kernel.n_registers
        return ck

    def _expected_words(self) -> int:
        return sum(4 + 5 * (len(e.data) // 32 + 2) + len(e.data) // 8 + 2 for e in self.trial.expected) * 2

    def _named(self) -> NDArray[np.int64]:
        named = np.zeros(layout.MAX_KERNELS * layout.MAX_SITES, np.int64)
        for k, kernel in enumerate(self.pod.kernels):
            for s, site in enumerate(kernel.sites):
                named[k * layout.MAX_SITES + s] = (NAMED if site.sync else 0) | (TAKEN if site.used else 0)
        return named

    def _mark_filled(self) -> None:
        spec = self.pod.spec
        ranges = [(b.address, b.nbytes) for b in self.trial.filled]
        ranges += [(die * spec.die_bytes + spec.meta_start, spec.meta_bytes) for die in range(spec.n_dies)]
        self._written = np.zeros(self.n_pieces, bool)
        for address, nbytes in ranges:
            self._written[address // 32 : (address + nbytes + 31) // 32] = True

    def _mark_answers(self) -> None:
        """Who answers for expected bytes looks at them when it returns: a use like any other."""
        for expected in self.trial.expected:
            first, last = expected.address // 32, (expected.address + len(expected.data) + 31) // 32
            mask = self._mask(expected)
            self.table()[first:last, pieces.USERS] |= mask
            self.table()[first:last, pieces.USES] |= pieces.USE_READ if mask else 0

    def bounds(self) -> dict[str, int]:
        """Limits of the machine within which every schedule is searched."""
        return {
            "queue_depth": layout.QUEUE_DEPTH,
            "dma_descriptors": layout.N_DMA_SLOTS,
            "flight_pieces": int(self.state[layout.FLIGHT_CAPACITY]),
        }

    def table(self) -> NDArray[np.int64]:
        """Words of the pieces, [pieces, 4]."""
        start = int(self.book[at.PIECE_TABLE])
        return self.book[start : start + self.n_pieces * pieces.PIECE_WORDS].reshape(-1, pieces.PIECE_WORDS)

    # ---- where a search begins

    def reset(self, members: Sequence[int]) -> None:
        """Put everything back, and search these cores (their numbers) next."""
        np.copyto(self.memory, self.initial.memory)
        np.copyto(self.state, self.initial.state)
        ck = self.book
        for word in (at.RESTART, at.VIOLATION, at.LIMIT, at.HASH, at.RECORDING, at.RECORDED, at.DEPTH, at.TOUCHED):
            ck[word] = 0
        ck[at.LOG] = ck[at.LOG_BASE]
        ck[ck[at.BLOCKS] : ck[at.PIECE_TABLE]] = 0
        ck[ck[at.ON_PATH] : ck[at.ON_PATH] + at.ON_PATH_WORDS] = 0
        self.table()[:, pieces.WRITTEN] = self._written
        ck[at.N] = len(members)
        ck[ck[at.MEMBERS] : ck[at.MEMBERS] + len(members)] = list(members)
        ck[at.MASK] = sum(1 << i for i in members)
        per_die = self.pod.spec.cores_per_die
        dies = sorted({self.cores[i] // per_die for i in members})
        ck[at.N_DIES_HERE] = len(dies)
        ck[ck[at.DIES] : ck[at.DIES] + len(dies)] = dies
        self._expect(members)

    def _expect(self, members: Sequence[int]) -> None:
        """List the bytes that these cores answer for: all, or what some of them use if others are searched apart."""
        ck, mask = self.book, sum(1 << i for i in members)
        users = self.table()[:, pieces.USERS]
        row = int(ck[at.EXPECTED_BASE])
        rows: list[list[int]] = []
        for e, expected in enumerate(self.trial.expected):
            for start, end in _pieces_of(expected.address, len(expected.data)):
                if len(members) == len(self.cores) or users[start // 32] & mask:
                    if rows and rows[-1][0] == e and rows[-1][2] == start:
                        rows[-1][2] = end
                    else:
                        rows.append([e, start, end])
        place = row + at.EXPECTED_WORDS * len(rows)
        for e, start, end in rows:
            expected = self.trial.expected[e]
            data = expected.data[start - expected.address : end - expected.address]
            words = np.frombuffer(data + bytes(-len(data) % 8), np.int64)
            ck[row : row + 4] = start, end - start, place, self._mask(expected)
            ck[place : place + len(words)] = words
            row, place = row + at.EXPECTED_WORDS, place + len(words)
        ck[at.N_EXPECTED] = len(rows)

    def _mask(self, expected: Expected) -> int:
        """Who answers for expected bytes."""
        per_die, die = self.pod.spec.cores_per_die, expected.address // self.pod.spec.die_bytes
        cores = expected.cores or tuple(core for core in self.cores if core // per_die == die)
        return sum(1 << self.cores.index(core) for core in cores if core in self.cores)

    def explore_flags(self) -> None:
        """Take no flag for stable any more: from now on it matters when each of its writes becomes visible."""
        table = self.table()
        stable = table[:, pieces.CLASS] == pieces.STABLE
        table[stable, pieces.USES] |= pieces.USE_UNSTABLE
        table[stable, pieces.CLASS] = pieces.SYNC

    def components(self) -> list[list[int]]:
        """Numbers of the cores in parts that share nothing that any of them writes, as far as is known."""
        links = [
            int(users) for users in np.unique(self.table()[self.table()[:, pieces.CLASS] != pieces.LOCAL, pieces.USERS])
        ]
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


def _pieces_of(address: int, nbytes: int) -> list[tuple[int, int]]:
    """A range cut where pieces begin."""
    cuts = [address, *range((address // 32 + 1) * 32, address + nbytes, 32), address + nbytes]
    return [(a, b) for a, b in pairwise(cuts) if a < b]


def _connected(n: int, links: Sequence[int]) -> list[list[int]]:
    parts = [1 << i for i in range(n)]
    for link in links:
        touched = [part for part in parts if part & link]
        parts = [part for part in parts if not part & link] + ([sum(touched)] if touched else [])
    parts.sort(key=lambda part: part & -part)
    return [[i for i in range(n) if part >> i & 1] for part in parts]
