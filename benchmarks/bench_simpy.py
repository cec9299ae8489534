"""A word that goes to and fro between two cores, against two SimPy processes that do the same.

Left out if SimPy is not installed: pip install -e '.[bench]'.
"""

import device
from harness import Report, in_turns, parser, stopwatch

from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod


def simpy_seconds(simpy: object, rounds: int) -> float:
    """CPU seconds of ``rounds`` rounds between two processes, each with a store that the other puts into."""
    env = simpy.Environment()  # type: ignore[attr-defined]
    stores = simpy.Store(env), simpy.Store(env)  # type: ignore[attr-defined]

    def player(mine, other, first):  # type: ignore[no-untyped-def]
        for i in range(rounds):
            if first:
                yield other.put(i)
                yield mine.get()
            else:
                yield mine.get()
                yield other.put(i)

    env.process(player(stores[0], stores[1], True))
    env.process(player(stores[1], stores[0], False))
    with stopwatch() as taken:
        env.run()
    return taken["cpu"]


class Court:
    """Two dies with one core each, and a word on each."""

    def __init__(self) -> None:
        self.actions = 0

    def seconds(self, rounds: int) -> float:
        """CPU seconds of ``rounds`` rounds between the two cores."""
        pod = Pod(small_pod(2))
        words = [pod.alloc(die, 8) for die in range(2)]
        for die in range(2):
            args = {"mine": words[die].address, "other": words[1 - die].address, "first": 1 - die, "n": rounds}
            grants = [pod.grant(words[die], "r"), pod.grant(words[1 - die], "w")]
            pod.launch(device.ping_pong, die, [0], args, grants)
        with stopwatch() as taken:
            self.actions = pod.run().actions
        return taken["cpu"]


def main() -> None:
    """Measure, and print the table."""
    options = parser(__doc__).parse_args()
    try:
        import simpy
    except ImportError:
        print("left out: SimPy is not installed (pip install -e '.[bench]')")
        return
    report = Report("A word to and fro")
    court = Court()
    court.seconds(1)  # compile
    ours, theirs = 1_000_000, 20_000
    here, there = in_turns(3, lambda: court.seconds(ours), lambda: simpy_seconds(simpy, theirs))
    report.plain("hand-overs, two a round: xccl_emu", 2 * ours / here / 1e6, "M/s")
    report.plain("steps of these: xccl_emu", court.actions / here / 1e6, "M/s")
    report.plain("hand-overs, two a round: SimPy", 2 * theirs / there / 1e6, "M/s")
    report.plain("xccl_emu over SimPy", (ours / here) / (theirs / there))
    report.finish(options.json)


if __name__ == "__main__":
    main()
