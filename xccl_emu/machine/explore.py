"""Every schedule of a small pod, and every order of its writes, by brute force: what faster searches must equal.

From each state every action of every actor is tried, one sub-transfer or one write at a time; nothing is reduced.
States are distinguished by 128-bit fingerprints of what can influence the rest of the run: counters, the table of last
writers, random state and logs are left out, queues are read from their head, and of the writes in flight only that
order counts which the memory order keeps.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base.errors import CapacityError, ConfigError
from xccl_emu.lang.abi import REGISTERS, RESULT
from xccl_emu.machine import driver, report
from xccl_emu.machine.device import explore as device
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.driver import begin
from xccl_emu.machine.pod import Pod

Words = tuple[int, ...]
_STATE_WORDS_MAX = 1 << 17
_ROWS, _ROWS_LEAST = 1 << 12, 1 << 6  # outcomes, or errors, that are kept until Python fetches them
_ROW_WORDS = 1 << 22  # that all these rows have about; more if one state can have more
_SLICE_FIRST, _SLICE_SECONDS = 1 << 7, 0.05  # states expanded between two looks at the clock, and how long that takes


@dataclass(frozen=True)
class Bounds:
    """Limits of the machine within which a search is exhaustive."""

    subtransfers: int
    """Sub-transfers in which a transfer is read at most; one of more granules is read several granules at a time."""
    queue_depth: int
    """Instructions that a pipe's queue holds; a kernel that issues more waits."""
    dma_descriptors: int
    """Most descriptors of one core."""
    flight_granules: int
    """Writes in flight that a die holds; 0 under `sc`."""
    cache_lines: int = 0
    """Lines that the scalar unit of a core caches."""


@dataclass(frozen=True)
class Explored:
    """What a search found."""

    states: int
    """Different states, by 128-bit fingerprint."""
    transitions: int
    """Enabled actions over all these states, with those that end in a violation."""
    outcomes: frozenset[Words]
    """At each end with all kernels done: the observed words, then what each core returned, in the order of cores."""
    deadlocks: int
    """States in which some kernel is not done and nothing can go on, unless a cache evicts a line."""
    errors: frozenset[str]
    """Messages of the violations; the search does not go on after one."""
    complete: bool
    """False if the search met a limit: of states, seconds or bytes."""
    bounds: Bounds
    """What "every schedule" means: nothing is said of a machine with wider ones."""
    sites: NDArray[np.int64] = field(compare=False)
    """A word for each kernel and site, [kernels * `layout.MAX_SITES`]: `layout.CAME` where a core came to it, and
    `layout.MAY_WAIT` where one had to wait."""


def explore(
    pod: Pod,
    observe: Sequence[tuple[int, int]] = (),
    max_states: int = 1_000_000,
    seconds: float | None = None,
    max_bytes: int | None = None,
    progress: Callable[[int, int, float], None] | None = None,
    gives_up: Collection[int] = (),
) -> Explored:
    """Explore every run of what is launched on `pod`, which is afterwards as it was before its first action.

    `observe` lists ranges of memory as (address, bytes), both multiples of 8.  It stops with more than ``max_states``
    states, after about ``seconds`` (to compile does not count), or before states that wait and fingerprints take
    ``max_bytes``.  ``progress`` is called now and then with states, transitions and seconds so far.
    ``gives_up`` are codes of `fail` with which a run may end.

    Raises CapacityError if more than a MiB of the pod can change, ConfigError for a bad range, a pod
    that is not ready to run or one of plain generators (their locals cannot be put back), KernelError where the
    arithmetic of a kernel fails.
    """
    observed = observed_words(pod, observe)
    begin(pod)
    parts = changing(pod)
    if parts[:, 2].sum() > _STATE_WORDS_MAX:
        most = 8 * _STATE_WORDS_MAX
        raise CapacityError(f"pod {pod.spec.name}: more than {most} bytes can change; take a smaller one")
    space = (pod.memory, pod.state, pod.memory.view(np.uint64), pod.state.view(np.uint64))
    stack, table = np.zeros((64, int(parts[:, 2].sum())), np.uint64), np.zeros((1 << 12, 2), np.uint64)
    n_rows = min(_ROWS, max(_ROWS_LEAST, _ROW_WORDS // max(len(observed), 1)))
    outcomes, errors = np.zeros((n_rows, len(observed)), np.int64), np.zeros((n_rows, device.ERROR_WORDS), np.int64)
    counted, at_once = np.zeros(7, np.int64), _SLICE_FIRST
    sites = np.zeros(ms.MAX_KERNELS * ms.MAX_SITES, np.int64)
    ends, bad = set[Words](), set[Words]()
    root = stack[:1].copy()
    device.save(space, parts, root, 0)
    why = device.ROWS_FULL
    try:
        # hashes wrap; with the JIT off NumPy would warn
        with np.errstate(over="ignore"), driver.arithmetic_of(pod.kernels):
            device.push(space, parts, stack, table, counted)
            device.search(space, parts, observed, stack, table, outcomes, errors, counted, sites, 0)  # only compiles
            started = time.perf_counter()
            while why != device.ENDED:
                looked, counted[device.SLICE] = time.perf_counter(), at_once
                why = device.search(space, parts, observed, stack, table, outcomes, errors, counted, sites, max_states)
                if why == device.ROWS_FULL and not counted[device.OUTCOMES] and not counted[device.ERRORS]:
                    # too few rows for one state
                    outcomes, errors = np.concatenate([outcomes] * 2), np.concatenate([errors] * 2)
                ends.update(map(tuple, outcomes[: counted[device.OUTCOMES]].tolist()))
                bad.update(map(tuple, errors[: counted[device.ERRORS]].tolist()))
                counted[device.OUTCOMES] = counted[device.ERRORS] = 0
                if progress is not None:
                    seen, moved = int(counted[device.STATES]), int(counted[device.TRANSITIONS])
                    progress(seen, moved, time.perf_counter() - started)
                if _over(started, seconds) or _too_large(why, stack, table, max_bytes):
                    break
                if why == device.PAUSED:
                    at_once = at_once * 2 if time.perf_counter() - looked < _SLICE_SECONDS else max(at_once // 2, 1)
                elif why == device.STACK_FULL:
                    stack = np.concatenate([stack, np.zeros_like(stack)])
                elif why == device.TABLE_FULL:
                    table = device.add_all(table, np.zeros((4 * len(table), 2), np.uint64))
    finally:
        device.restore(space, parts, root, 0)
        pod.state[[ms.N_ACTIVE, ms.N_ACTIVE_DIES, ms.N_LIVE]] = 0
    states, transitions, deadlocks = (int(counted[i]) for i in (device.STATES, device.TRANSITIONS, device.DEADLOCKS))
    ends_so = {(ms.ERR_FAIL, code) for code in gives_up}
    bad = {error for error in bad if (error[0], error[ms.ERROR_A - ms.ERROR]) not in ends_so}
    messages = frozenset(message_of(pod, error) for error in bad)
    flights, lines = int(pod.state[ms.FLIGHT_CAPACITY]), pod.spec.scalar_cache
    bounds = Bounds(ms.MAX_SUBTRANSFERS, ms.QUEUE_DEPTH, ms.N_DMA_SLOTS, flights, lines)
    return Explored(states, transitions, frozenset(ends), deadlocks, messages, not counted[device.STACK], bounds, sites)


def standing(pod: Pod) -> tuple[int, int]:
    """Return the fingerprint of the current state of a pod's run: equal for states that `explore` takes for one."""
    parts = changing(pod)
    space = (pod.memory, pod.state, pod.memory.view(np.uint64), pod.state.view(np.uint64))
    with np.errstate(over="ignore"):
        one, two = device.fingerprint(space, parts)
    return int(one), int(two)


def _over(started: float, seconds: float | None) -> bool:
    return seconds is not None and time.perf_counter() - started > seconds


def _too_large(why: int, stack: NDArray[np.uint64], table: NDArray[np.uint64], max_bytes: int | None) -> bool:
    """Would what has to grow now take too much memory?

    While it grows the old one is there too.
    """
    if max_bytes is None or why not in (device.STACK_FULL, device.TABLE_FULL):
        return False
    grown = 2 * stack.nbytes if why == device.STACK_FULL else 4 * table.nbytes
    return stack.nbytes + table.nbytes + grown > max_bytes


def observed_words(pod: Pod, ranges: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """Words that make an outcome, [n, 2]: 1 and index in memory, or 0 and index in state."""
    end = pod.spec.memory_bytes
    for address, nbytes in ranges:
        if address % 8 or nbytes % 8 or nbytes < 0 or not 0 <= address <= end - nbytes:
            raise ConfigError(f"observe: {nbytes} bytes at {address}: must be multiples of 8 inside of the pod")
    words = [(1, word) for address, nbytes in ranges for word in range(address // 8, (address + nbytes) // 8)]
    return np.array(words + [(0, pod.core_base(core) + RESULT) for core in pod.active_cores()], np.int64).reshape(-1, 2)


def changing(pod: Pod) -> NDArray[np.int64]:
    """Return what a run can change, [n, 3]: kind, first word, words."""
    spec, st, cores = pod.spec, pod.state, pod.active_cores()
    launches = [launch for core in cores if (launch := pod.launch_of(core)) is not None]
    parts = [(device.UNHASHED, ms.N_LIVE, 1), (device.UNHASHED, ms.ERROR, device.ERROR_WORDS)]
    parts.append((device.MEMORY, 0, spec.memory_bytes // 8))
    for core, launch in zip(cores, launches, strict=True):
        base = pod.core_base(core)
        parts.append((device.MEMORY, int(st[base + ms.UB_BASE]) // 8, spec.ub_bytes // 8))
        parts.append((device.PLAIN, base, ms.PIPES))
        parts += [(device.QUEUE, base + ms.PIPES + i * ms.PIPE_WORDS, ms.PIPE_WORDS) for i in range(3)]
        parts.append((device.PLAIN, base + ms.DMA_SLOTS, ms.WINDOWS - ms.DMA_SLOTS))
        parts.append((device.PLAIN, int(st[ms.CACHE_BASE]) + core * int(st[ms.CACHE_WORDS]), int(st[ms.CACHE_WORDS])))
        parts.append((device.PLAIN, base + REGISTERS, launch.kernel.n_registers))
    parts.append((device.PLAIN, int(st[ms.GROUP_BASE]), len(cores) * ms.GROUP_WORDS))
    for die in sorted({launch.die for launch in launches}):
        parts.append((device.FLIGHTS, int(st[ms.DIE_BASE]) + die * int(st[ms.DIE_WORDS]), int(st[ms.DIE_WORDS])))
    return np.array(parts, np.int64)


def message_of(pod: Pod, error: Words) -> str:
    """Return what a violation says, by the words from `layout.ERROR` on."""
    region = slice(ms.ERROR, ms.ERROR + device.ERROR_WORDS)
    pod.state[region] = error
    message = str(report.violation(pod))
    pod.state[region] = 0
    return message
