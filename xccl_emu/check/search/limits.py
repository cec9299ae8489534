"""Limits at which a search ends, or proves nothing, each with its usual cause and its remedy; and who came to one."""

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import clocks, inside, races, run_local
from xccl_emu.machine import report
from xccl_emu.machine.device import layout as ms
from xccl_emu.machine.device.cache import n_cached
from xccl_emu.machine.limits import Limit
from xccl_emu.machine.pod import Pod

CORES_MAX = 60
GRANULES_MAX = 1 << 21
LOG_WORDS = 1 << 27
"""Words of the log; they are committed as they are used."""
FRAMES = 1 << 20

CORES = Limit("more cores run than a search takes", f"{CORES_MAX}", "ranks of a real run",
              "take fewer ranks, or --policy portfolio, which has no such limit")  # fmt: skip
GRANULES = Limit("more granules of memory than a search takes", f"{GRANULES_MAX}", "areas of the usual pod",
                 "take a smaller pod, as Regions.tight_pod makes it")  # fmt: skip
LIMITS = {
    cs.LIMIT_RECORDS: Limit(
        "a core has more unordered accesses under way than the checker keeps", f"{cs.RECORDS_MAX}",
        "a loop copies from or to places that are not adjacent, and waits for none of it",
        "wait for an event, or a quiet, in the loop",
    ),
    cs.LIMIT_EVENTS: Limit(
        "a core has more events set than the checker keeps", f"{cs.EVENTS_SET_MAX}",
        "events are set in a loop far ahead of their waits", "wait for one before more are set",
    ),
    cs.LIMIT_MARKS: Limit(
        "a core has more writes of shared data before a quiet than the checker keeps",
        f"{cs.MARKS_MAX}, or {cs.FLYING_MAX} flags of mtu-out", "a loop writes to places that are not adjacent",
        "put a quiet into the loop that writes, or take fewer rounds",
    ),
    cs.LIMIT_CLOCK: Limit(
        "a core does more between two quiets than its clocks can count", f"{clocks._LANE_MASK}",
        "a loop goes round until others answer, and writes nothing", "a quiet in the loop ends that",
    ),
    cs.LIMIT_FLIGHT: Limit(
        "the writes in flight that a die holds were used up", "flight_granules", "a loop writes and never waits for it",
        "give the pod more (flight_granules), or the loop a quiet",
    ),
    cs.LIMIT_DMA: Limit(
        "DMA descriptors were used again, too many at a time whose completion was not waited for",
        f"{inside.N_BEFORE}", "a loop rings them by other events than it waits for",
        "wait for the event of a descriptor before it is used again",
    ),
    cs.LIMIT_LOG: Limit(
        "the log of changes is full", f"{LOG_WORDS} words", "a run is long, and writes much in each step",
        "take smaller sizes, or --policy portfolio",
    ),
    cs.LIMIT_DEPTH: Limit(
        "a run is longer than the search is deep", f"{FRAMES} transitions", "a loop has many rounds",
        "take fewer rounds, or --policy portfolio",
    ),
    cs.LIMIT_BARRIER: Limit(
        "a core arrives at a barrier twice, or awaits it without arriving", "", "a branch skips one of the two",
        "let one await_group follow each arrive",
    ),
    cs.LIMIT_SPIN: Limit(
        "a kernel does not come to an end by itself", f"{run_local._SPIN} actions that no other core can change",
        "a loop looks at what nobody else writes", "let it wait by a poll, or bound it",
    ),
    cs.LIMIT_OPEN: Limit(
        "a core has more accesses under way than the checker compares", f"{races.OPEN_MAX}",
        "transfers, descriptors and writes are issued ahead, and none is waited for", "wait for some before more",
    ),
    cs.LIMIT_CACHE: Limit(
        "the lines that the scalar unit of a core caches were used up", "scalar_cache",
        "a kernel loads or stores over more lines than there are", "give the pod more (scalar_cache), or dcci them",
    ),
    cs.LIMIT_QUEUE: Limit(
        "a queue was full, which orders nothing, and nothing else orders what was in it before what came next",
        f"{ms.QUEUE_DEPTH} instructions", "copies or writes are issued ahead, and none is waited for",
        "wait for an event before more, or --policy portfolio",
    ),
    cs.LIMIT_GUIDED: Limit(
        "a kernel uses what a switched-off poll has returned, and then touches what others use", "",
        "the poll says how much has come, and what has come is read", "draw schedules: --policy portfolio",
    ),
}  # fmt: skip

_FULL = {
    cs.LIMIT_RECORDS: ((cs.N_RECORDS, cs.RECORDS_MAX),),
    cs.LIMIT_EVENTS: ((cs.N_EVENTS_SET, cs.EVENTS_SET_MAX), (cs.N_CONSUMED, cs.EVENTS_SET_MAX)),
    cs.LIMIT_MARKS: ((cs.N_MARKS, cs.MARKS_MAX), (cs.N_FLYING, cs.FLYING_MAX)),
    cs.LIMIT_OPEN: ((cs.N_READ, cs.READ_MAX),),
}
"""By limit, which counts of a core's block are then as large as they can be."""


def met(pod: Pod, ck: NDArray[np.int64], cores: list[int]) -> str:
    """Say which limit a search has come to, with the kernel or die where that can be seen."""
    ended, doubt = int(ck[cs.LIMIT]), int(ck[cs.DOUBT])
    if not ended:
        return LIMITS[doubt].said()
    of_pod = {cs.LIMIT_FLIGHT: ms.FLIGHT_CAPACITY, cs.LIMIT_CACHE: ms.CACHE_LINES}.get(ended)
    return LIMITS[ended].said(_where(pod, ck, cores, ended), None if of_pod is None else int(pod.state[of_pod]))


def _where(pod: Pod, ck: NDArray[np.int64], cores: list[int], limit: int) -> str:
    st = pod.state
    if limit == cs.LIMIT_FLIGHT:
        dies = sorted({core // pod.spec.cores_per_die for core in cores})
        counts = [int(st[st[ms.DIE_BASE] + die * st[ms.DIE_WORDS] + ms.FLIGHT_COUNT]) for die in dies]
        return pod.spec.home(dies[counts.index(max(counts))], " ")
    touched = [i for i in range(len(cores)) if ck[cs.TOUCHED] >> i & 1]
    full = [cores[i] for i in touched if _is_full(st, ck[ck[cs.BLOCKS] + i * cs.BLOCK :], cores[i], limit)]
    return report.named(pod, full[0]) if len(full) == 1 else ""


def _is_full(st: NDArray[np.int64], block: NDArray[np.int64], core: int, limit: int) -> bool:
    """Return whether a core has as much of something as a limit lets it."""
    if limit == cs.LIMIT_CACHE:
        return bool(n_cached(st, core) == st[ms.CACHE_LINES])
    if limit == cs.LIMIT_CLOCK:
        clock = (int(block[cs.VECTORS + pipe]) >> clocks._LANE * pipe & clocks._LANE_MASK for pipe in range(4))
        return clocks._LANE_MASK in clock
    return any(block[count] == most for count, most in _FULL.get(limit, ()))
