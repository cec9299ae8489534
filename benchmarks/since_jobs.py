"""The child of `bench_since`: measures one job on one checkout, as often as it is asked.

Called with the folder of the checkout, whose modules alone it imports, and the job.  For each line on standard input it
answers with a rate by CPU seconds, larger is better, or with nothing where this checkout cannot do the job.
"""

import contextlib
import sys
from collections.abc import Callable, Mapping

Job = Callable[[], float]

SEARCHES = 40
"""How often a ring is searched: once takes milliseconds."""
MESSAGES, ROUNDS = 24, 4000
"""Messages that stay in the cache, and how often they are copied."""


def steps(kernel: str, n: int) -> Job:
    """Actions of a kernel that works on its own core."""
    import bench_machine
    import device

    from xccl_emu.machine.pod import Pod
    from xccl_emu.machine.spec import small_pod

    def job() -> float:
        taken, actions = bench_machine.run_once(Pod(small_pod(1)), getattr(device, kernel), {"n": n}, [])
        return actions / taken

    return job


def hand_overs(rounds: int) -> Job:
    """Words to and fro between two cores."""
    import bench_simpy

    court = bench_simpy.Court()
    return lambda: 2 * rounds / court.seconds(rounds)


def copies(how: str) -> Job:
    """Bytes from a far die, in parts, or of messages that stay in the cache."""
    import bench_machine

    remote, part = bench_machine.Remote(), bench_machine.MESSAGE_BYTES
    few, amount = MESSAGES * part, bench_machine.AMOUNT
    seconds: Mapping[str, Job] = {
        "cached": lambda: remote.copy(few, part, ROUNDS) * amount / (few * ROUNDS),
        "messages": lambda: remote.copy(amount, part),
        "halves": lambda: remote.copy(amount, 96 << 10),
        "dma": lambda: remote.copy_by_dma(amount, part),
    }
    return lambda: amount / seconds[how]()


def experts(ranks: int) -> Job:
    """Bytes that dispatch and combine copy, memory touched before."""
    import bench_dispatch

    from xccl_emu.machine.spec import CLOUDMATRIX384

    layer = bench_dispatch.Layer(bench_dispatch.PULL, CLOUDMATRIX384, ranks, 60, 4)

    def job() -> float:
        stages = layer.round()
        parts = [stages[name] for name in bench_dispatch.PROTOCOLS]
        return sum(part.copied for part in parts) / sum(part.run_cpu for part in parts)

    return job


def transitions(full: bool) -> Job:
    """Transitions of the search of a ring of send and receive."""
    import bench_search

    def job() -> float:
        runs = [bench_search.search(4, 8, 4, full) for _ in range(SEARCHES)]
        return float(sum(found.transitions for found, _ in runs)) / sum(taken for _, taken in runs)

    return job


def searched(protocol: str) -> Job:
    """Transitions of the merged search of a protocol, whose kernels run in them."""
    import bench_search

    from xccl_emu.protocol.registry import make

    def job() -> float:
        case = make(protocol, **bench_search.PROTOCOLS[protocol])
        found, taken = bench_search.search_case(case, False, bench_search.STATES_MAX // 4)
        return float(found.transitions) / taken

    return job


JOBS: Mapping[str, Callable[[], Job]] = {
    "events set and waited for": lambda: steps("flag_steps", 1_000_000),
    "stores to the data buffer": lambda: steps("scalar_steps", 4_000_000),
    "words to and fro between two cores": lambda: hand_overs(500_000),
    "copies of 24 messages that stay in the cache": lambda: copies("cached"),
    "copies of 7.5 KB through the data buffer": lambda: copies("messages"),
    "copies of 96 KB through the data buffer": lambda: copies("halves"),
    "copies of 7.5 KB by DMA": lambda: copies("dma"),
    "dispatch + combine at 32 ranks": lambda: experts(32),
    "transitions of a search, merged": lambda: transitions(False),
    "transitions of a search, full": lambda: transitions(True),
    "transitions of dispatch, merged": lambda: searched("dispatch"),
    "transitions of all-reduce-ring, merged": lambda: searched("all-reduce-ring"),
}


def main() -> None:
    """Measure once for each line, compiled and with its pages touched before."""
    tree, name = sys.argv[1:]
    sys.path[:1] = [f"{tree}/benchmarks", tree]
    job: Job | None = None
    with contextlib.suppress(ImportError, AttributeError, TypeError):
        job = JOBS[name]()
        job()
    for _ in sys.stdin:
        print(job() if job else "", flush=True)


if __name__ == "__main__":
    main()
