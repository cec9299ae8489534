"""The machine alone: steps a second, one remote copy, and bytes copied by instructions against `np.copyto`."""

from collections.abc import Callable

import device
from harness import Report, Yardstick, in_turns, parser, stopwatch

from xccl_emu.lang import Kernel
from xccl_emu.machine.launch import Grant
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384, KIB, MIB, small_pod

MESSAGE_BYTES = 7680
"""A token in INT8 at hidden 7168, with its slot."""

FAR_DIE = 767
AMOUNT = 256 * MIB // MESSAGE_BYTES * MESSAGE_BYTES


def run_once(pod: Pod, kernel: Kernel, args: dict[str, int], grants: list[Grant]) -> tuple[float, int]:
    """CPU seconds of one run of a kernel on core 0 of die 0, and its actions."""
    pod.launch(kernel, 0, [0], args, grants)
    with stopwatch() as taken:
        actions = pod.run().actions
    return taken["cpu"], actions


def steps_per_second(kernel: Kernel, rounds: int, repeats: int) -> float:
    """Return the rate of a kernel that only works on its own core."""
    pod = Pod(small_pod(1))
    run_once(pod, kernel, {"n": 1}, [])  # compile
    actions = run_once(pod, kernel, {"n": rounds}, [])[1]
    (best,) = in_turns(repeats, lambda: run_once(pod, kernel, {"n": rounds}, [])[0])
    return actions / best


def measure_steps(report: Report, repeats: int) -> None:
    """Steps that move no payload."""
    million = steps_per_second(device.scalar_steps, 4_000_000, repeats) / 1e6
    report.at_least("steps without payload: stores to the data buffer", million, 20, "M/s")
    million = steps_per_second(device.flag_steps, 1_000_000, repeats) / 1e6
    report.at_least("steps without payload: events set and waited for", million, 20, "M/s")


class Remote:
    """Two dies of the pod, and a buffer on each."""

    def __init__(self) -> None:
        self.pod = Pod(CLOUDMATRIX384)
        self.source = self.pod.alloc(FAR_DIE, AMOUNT)
        self.target = self.pod.alloc(0, AMOUNT)
        for buffer in (self.source, self.target):
            self.pod.view(buffer)[:] = 1  # touch the pages
        self.grants = [self.pod.grant(self.source, "r"), self.pod.grant(self.target, "w")]

    def _ends(self) -> dict[str, int]:
        return {"source": self.source.address, "target": self.target.address}

    def copy(self, nbytes: int, part: int, rounds: int = 1) -> float:
        """Seconds to copy through the data buffer in parts."""
        args = self._ends() | {"nbytes": nbytes, "half_bytes": part, "rounds": rounds}
        return run_once(self.pod, device.copies, args, self.grants)[0]

    def copy_by_dma(self, nbytes: int, part: int) -> float:
        """Seconds to copy by DMA in parts."""
        args = self._ends() | {"n": nbytes // part, "nbytes": part}
        return run_once(self.pod, device.dma_copies, args, self.grants)[0]


def measure_copies(report: Report, repeats: int) -> None:
    """Copies from a far die, of a message and of as much as half a data buffer, and np.copyto of the same amount.

    A byte that goes through the data buffer is copied twice, by mtu-in and by mtu-out, and counted twice.
    """
    remote, yardstick = Remote(), Yardstick(AMOUNT)
    jobs: list[tuple[str, int, Callable[[], float]]] = [
        ("copies of 7.5 KB through the data buffer", 2, lambda: remote.copy(AMOUNT, MESSAGE_BYTES)),
        ("copies of 96 KB through the data buffer", 2, lambda: remote.copy(AMOUNT, 96 * KIB)),
        ("copies of 7.5 KB by DMA", 1, lambda: remote.copy_by_dma(AMOUNT, MESSAGE_BYTES)),
    ]
    for _, _, job in jobs:
        job()  # compile
    *times, one, two = in_turns(
        repeats, *(job for _, _, job in jobs), lambda: yardstick.seconds(AMOUNT), lambda: yardstick.seconds(2 * AMOUNT)
    )
    n = AMOUNT // MESSAGE_BYTES
    report.at_most("one remote copy of 7.5 KB, all costs in, pages touched", times[0] / n * 1e6, 3, "us")
    report.plain("the same with 24 messages that stay in the cache", cached_copy_us(remote, repeats), "us")
    report.plain("np.copyto", AMOUNT / one / 1e9, "GB/s")
    for (what, counted, _), taken in zip(jobs, times, strict=True):
        report.plain(f"{what}, of np.copyto", (one if counted == 1 else two) / taken)
    report.plain("the first of these if every payload byte counts once", one / times[0])


def cached_copy_us(remote: Remote, repeats: int) -> float:
    """Microseconds for one of 24 messages that stay in the cache: what the steps of a copy cost."""
    rounds = 1000
    (best,) = in_turns(repeats, lambda: remote.copy(24 * MESSAGE_BYTES, MESSAGE_BYTES, rounds))
    return best / (rounds * 24) * 1e6


def main() -> None:
    """Measure, and print the table."""
    command = parser(__doc__)
    command.add_argument("--repeats", type=int, default=5, help="counts; the best one is reported")
    options = command.parse_args()
    report = Report("The machine")
    measure_steps(report, options.repeats)
    measure_copies(report, options.repeats)
    report.finish(options.json)


if __name__ == "__main__":
    main()
