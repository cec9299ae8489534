"""Goes to each state of a search again, and counts what made it and what a core keeps in it.

The states are found breadth first, as `check` finds them, and each is gone to again by the path on which it was first
reached.  Two that are alike but for what one core keeps, at the request where it is, are one situation to all
others: the words in which they differ are read later, or are dead and should be cleared.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import dfs, run_local
from xccl_emu.check.search.exhaustive import Graph, Search, path_to
from xccl_emu.check.search.setup import Setup
from xccl_emu.check.trial import Trial
from xccl_emu.check.verdict import ProfiledSite
from xccl_emu.lang import Kernel
from xccl_emu.lang import requests as rq
from xccl_emu.lang.abi import REGISTERS, REQUEST
from xccl_emu.machine import driver
from xccl_emu.machine.device import flight, pipes
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.explore import MEMORY
from xccl_emu.machine.explore import changing

_Place = tuple[int, int]
"""Number of a kernel, and of a site in it."""


def profile(trial: Trial, max_states: int) -> tuple[ProfiledSite, ...]:
    """The requests that make states, those that make most first; of states beyond ``max_states`` nothing is said.

    Raises CapacityError as a search does.
    """
    search = _Remembering(
        Setup(trial, full=True), max_states=max_states, seconds=None, progress=None, breadth_first=True
    )  # fmt: skip
    search.run()
    found = _Visits(search)
    with np.errstate(over="ignore"), driver.arithmetic_of(trial.pod.kernels):
        for members, queue in search.graphs:
            found.add(members, queue)
    return tuple(found.rows())


class _Remembering(Search):
    """Breadth first; keeps how states were reached."""

    graphs: list[tuple[list[int], NDArray[np.int64]]]

    def _search_parts(self) -> bool:
        self.graphs = []
        return super()._search_parts()

    def _breadth_first(self) -> Graph:
        ck = self.setup.checker
        members = ck[ck[cs.MEMBERS] : ck[cs.MEMBERS] + ck[cs.N]].tolist()
        queue, edges = super()._breadth_first()
        self.graphs.append((members, queue))
        return queue, edges


@dataclass
class _Visits:
    """Goes to each state again, and counts."""

    search: Search
    reached: Counter[_Place] = field(default_factory=Counter)
    kept: dict[tuple[int, _Place, bytes], set[bytes]] = field(default_factory=lambda: defaultdict(set))
    """By core, where it is, and all that other cores can know: what it keeps."""

    def add(self, members: Sequence[int], queue: NDArray[np.int64]) -> None:
        """Each state of a part of the cores."""
        setup = self.search.setup
        args = (setup.memory, setup.state, setup.checker, setup.rows, setup.named)
        for state in range(len(queue)):
            path = path_to(queue, state)
            setup.reset(members)
            dfs.begin(*args)
            dfs.follow(*args, path[:-1])
            if state:
                self.reached[self._place(members, *path[-1].tolist())] += 1
                dfs.follow(*args, path[-1:])
            self._note(members)

    def _place(self, members: Sequence[int], process: int, choice: int) -> _Place:
        """Return where an action comes from: the request of a scalar unit, the oldest entry of a queue, or a write."""
        setup, st = self.search.setup, self.search.setup.state
        if process >= len(members) * run_local.PER_CORE:
            die = setup.checker[setup.checker[cs.DIES] + process - len(members) * run_local.PER_CORE]
            write = flight.flight(st, flight.block_of_die(st, die), choice)
            core, site = int(st[write + ms.FLIGHT_CORE]), int(st[write + ms.FLIGHT_SITE]) & cs.LATENT - 1
            return int(st[setup.pod.core_base(core) + ms.KERNEL]), site
        base = setup.pod.core_base(setup.cores[members[process // run_local.PER_CORE]])
        pipe = process % run_local.PER_CORE
        if pipe == rq.DMA:
            slots = [base + ms.DMA_SLOTS + k * ms.ENTRY_WORDS for k in range(ms.N_DMA_SLOTS)]
            entry = next(slot for slot in slots if st[slot])
        else:
            entry = base + REQUEST if pipe == rq.SCALAR else pipes.entry_of(st, pipes.pipe_of(base, pipe), 0)
        return int(st[base + ms.KERNEL]), int(st[entry + ms.ENTRY_SITE])

    def _note(self, members: Sequence[int]) -> None:
        """Note what each core keeps in this state."""
        setup = self.search.setup
        words = (setup.state, setup.memory.view(np.int64))
        every = [words[kind == MEMORY][at : at + n].tobytes() for kind, at, n in self._parts]
        for place, core in self._registers.items():
            if setup.cores.index(core) in members:
                base = setup.pod.core_base(core)
                at = int(setup.state[base + ms.KERNEL]), int(setup.state[base + REQUEST + ms.ENTRY_SITE])
                rest = hashlib.blake2b(b"".join(every[:place] + every[place + 1 :]), digest_size=16).digest()
                self.kept[core, at, rest].add(every[place])

    @cached_property
    def _parts(self) -> list[tuple[int, int, int]]:
        return [(int(kind), int(at), int(n)) for kind, at, n in changing(self.search.setup.pod)]

    @cached_property
    def _registers(self) -> dict[int, int]:
        """The core whose registers a part has."""
        pod = self.search.setup.pod
        bases = {pod.core_base(core) + REGISTERS: core for core in self.search.setup.cores}
        return {i: bases[at] for i, (kind, at, _) in enumerate(self._parts) if kind != MEMORY and at in bases}

    def rows(self) -> Iterator[ProfiledSite]:
        """Each request that has made a state, or at which states are alike."""
        pod, alike, words = self.search.setup.pod, Counter[_Place](), defaultdict[_Place, set[int]](set)
        for (_, place, _), values in self.kept.items():
            if len(values) > 1:
                alike[place] += len(values) - 1
                rows = np.array([np.frombuffer(value, np.int64) for value in values])
                words[place].update(np.flatnonzero((rows != rows[0]).any(axis=0)).tolist())
        for number, site in sorted({*self.reached, *alike}, key=lambda each: -self.reached[each] - alike[each]):
            kernel, place = pod.kernels[number], (number, site)
            kept = tuple(kernel.registers[word] for word in sorted(words[place]))
            yield ProfiledSite(kernel.name, _request(kernel, site), self.reached[place], alike[place], kept)


def _request(kernel: Kernel, site: int) -> str:
    if not 0 <= site < len(kernel.sites):
        return "return"
    at = kernel.sites[site]
    return f"{at.operation} {at.file.rpartition('/')[2]}:{at.line}" + (f" ({at.sync})" if at.sync else "")
