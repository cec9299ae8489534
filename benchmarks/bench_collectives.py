"""An all-reduce of 64 MB over 16 dies, in bytes moved against `np.copyto`; MixServe on 4 x 8 ranks; bit for bit."""

from harness import Report, Yardstick, in_turns, parser, stopwatch

from xccl_emu.check.trial import Trial
from xccl_emu.protocols.collectives.case import CollectiveCase
from xccl_emu.protocols.mixserve.case import MixServeCase

RANKS = 16
NAMES = ("all-reduce-two-shot", "all-reduce-ring")


class Warm:
    """A trial that was run once, so that its pages are touched, and can be run again."""

    def __init__(self, case: CollectiveCase) -> None:
        self.trial: Trial = case.build("sc")
        pod = self.trial.pod
        found = (pod.launch_of(core) for core in pod.active_cores())
        self.launches = [launch for launch in found if launch is not None]
        pod.run()

    def seconds(self) -> float:
        """CPU seconds of another run: fields begin at zero, and nothing else is prepared."""
        pod = self.trial.pod
        for die in range(pod.spec.n_dies):
            start = pod.meta(die, 0)
            pod.memory[start : start + pod.spec.meta_bytes] = 0
        for launch in self.launches:
            words = dict(zip(launch.kernel.params, launch.kernel.arguments(launch.args[0]), strict=True))
            pod.launch(launch.kernel, launch.die, launch.cores, words, launch.grants)
        with stopwatch() as taken:
            self.stats = pod.run()
        return taken["cpu"]

    @property
    def moved(self) -> int:
        """Bytes that the last run copied into and out of data buffers."""
        return self.stats.bytes_by_pipe["mtu-in"] + self.stats.bytes_by_pipe["mtu-out"]


def measure(report: Report, name: str, megabytes: int, repeats: int) -> None:
    """One algorithm; it goes through the inboxes, and adds up on the way."""
    case = CollectiveCase(collective=name, ranks=RANKS, calls=1).of_bytes(megabytes << 20)
    warm = Warm(case)
    warm.seconds()
    yardstick = Yardstick()
    run, copied = in_turns(repeats, warm.seconds, lambda: yardstick.seconds(warm.moved))
    wrong = sum(warm.trial.wrong_bytes().values())
    what = f"{name}, {megabytes} MB on {RANKS} dies"
    report.at_most(f"{what}: wrong bytes", wrong, 0)
    report.plain(f"{what}: seconds", run, "s")
    report.plain(f"{what}: bytes moved", warm.moved / 1e9, "GB")
    report.at_least(f"{what}: bytes moved, of np.copyto", copied / run, 0.4)


def measure_mixserve(report: Report, tokens: int) -> None:
    """DeepSeek-R1 on four nodes of eight ranks, compiled: tables, oracle, dispatch, experts, combine, comparison."""
    sizes = {"nodes": 4, "ranks": 8, "hidden": 7168, "experts": 64, "top_k": 8, "rounds": 1}
    MixServeCase(**sizes | {"tokens": 1}).build("sc").pod.run()  # compile
    with stopwatch() as taken:
        trial = MixServeCase(**sizes, tokens=tokens).build("sc")
        with stopwatch() as run:
            trial.pod.run()
        wrong = sum(trial.wrong_bytes().values())
    what = f"mixserve, 4 x 8 ranks, {tokens} tokens a node"
    report.at_most(f"{what}: wrong bytes", wrong, 0)
    report.at_most(f"{what}: all", taken["cpu"], 10, "s")
    report.plain(f"{what}: the run alone", run["cpu"], "s")


def main() -> None:
    """Measure, and print the table."""
    command = parser(__doc__ or "")
    command.add_argument("--megabytes", type=int, default=64, help="of the payload of each die")
    command.add_argument("--tokens", type=int, default=128, help="of each node")
    command.add_argument("--repeats", type=int, default=3, help="counts; the best one is reported")
    options = command.parse_args()
    report = Report("Collectives")
    for name in NAMES:
        measure(report, name, options.megabytes, options.repeats)
    measure_mixserve(report, options.tokens)
    report.finish(options.json)


if __name__ == "__main__":
    main()
