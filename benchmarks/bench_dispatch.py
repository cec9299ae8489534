"""Dispatch, dummy expert and combine at full size: first and later rounds, bytes copied, growth with the ranks."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from harness import Report, Yardstick, copied, exponent, first_touch_us, parser, stopwatch

from xccl_emu import routing
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384, KIB, PodSpec, small_pod
from xccl_emu.machine.stats import RunStats
from xccl_emu.papers.bench.layers import group_on
from xccl_emu.protocol.pod_run import resident_gb
from xccl_emu.protocol.registry import on_pod
from xccl_emu.protocols.experts.data import draw_tokens

EXPERTS, TOP_K, HIDDEN = 256, 8, 7168
STAGES = ("dispatch", "expert", "combine")
PROTOCOLS = ("dispatch", "combine")


@dataclass(frozen=True)
class Stage:
    """One stage of one round."""

    seconds: float
    """Wall time of the call: checks, loading and launching on the host, then the run."""
    cpu: float
    """CPU seconds of the call."""
    faults: float
    run_cpu: float
    """CPU seconds of the run alone."""
    run: RunStats

    @property
    def copied(self) -> int:
        """Bytes that instructions copied."""
        return copied(self.run)


Round = dict[str, Stage]


@dataclass(frozen=True)
class Kind:
    """A pair of operators: the case that has them, and how much it is measured by."""

    title: str
    case: str
    tokens: int
    """Tokens on each rank."""
    ranks: list[int]
    cores: int
    seconds_max: float
    """Time limit of a later round at the largest number of ranks."""

    def need(self, ranks: int, cores: int) -> float:
        """Bytes for ``ranks`` ranks with ``cores`` cores each."""
        case: Any = on_pod(self.case, cores=cores)
        return float(case.bytes_needed(ranks))


PULL = Kind("Dispatch and combine", "dispatch", 60, [8, 16, 32, 64, 128, 288], 4, 8)


@dataclass
class Sample:
    """What one number of ranks gave."""

    ranks: int
    first: Round
    later: list[Round] = field(default_factory=list)
    copyto: list[float] = field(default_factory=list)
    """CPU seconds of np.copyto for the bytes of a whole later round, timed after each of them."""

    def best(self, stages: Sequence[str], value: str) -> float:
        """Return the smallest sum over these stages of one of their fields, among the later rounds."""
        return min(sum(getattr(one[name], value) for name in stages) for one in self.later)

    def copied(self, stages: Sequence[str]) -> int:
        """Bytes copied by instructions in a later round; the same in each."""
        return sum(self.later[0][name].copied for name in stages)

    def of_copyto(self, stages: Sequence[str]) -> float:
        """Bytes copied a second, of what np.copyto reaches."""
        rate = self.copied(stages) / self.best(stages, "run_cpu")
        return rate / (self.copied(STAGES) / min(self.copyto))


class TimedPod(Pod):
    """A pod that keeps the CPU seconds of its last run."""

    cpu = 0.0

    def run(self, progress: Callable[[int], None] | None = None) -> RunStats:
        """See `Pod.run`."""
        with stopwatch() as taken:
            stats = super().run(progress)
        self.cpu = taken["cpu"]
        return stats


class Layer:
    """An expert-parallel group with its inputs, ready to run round after round."""

    def __init__(
        self, kind: Kind, spec: PodSpec, ranks: int, tokens: int, cores: int, hidden: int = HIDDEN,
        experts: int = EXPERTS, **switches: Any,
    ) -> None:  # fmt: skip
        rng = np.random.default_rng(0)
        placement = routing.place_experts(ranks, experts)
        top_k = min(TOP_K, experts)
        drawn = routing.draw_routing(routing.skewed_loads(experts, 0), ranks, tokens, top_k, rng, "generated")
        self.routed = routing.place_choices(drawn, placement)
        self.tokens = [*draw_tokens(ranks, tokens, hidden, "bf16", 0)]
        self.pod = TimedPod(spec)
        shape = {
            "n_ranks": ranks, "local_experts": placement.local_experts, "hidden": hidden, "top_k": top_k + 1,
            "tokens_max": tokens, "shared": True, "cores": cores,
        }  # fmt: skip
        self.group = group_on(self.pod, shape | switches, kind.case)

    def round(self) -> Round:
        """Run one round."""
        return {
            "dispatch": self._timed("dispatch", lambda: self.group.dispatch(self.tokens, list(self.routed.topk))),
            "expert": self._timed("expert", self.group.run_dummy),
            "combine": self._timed("combine", lambda: self.group.combine(list(self.routed.weights))),
        }

    def _timed(self, name: str, call: Callable[[], object]) -> Stage:
        with stopwatch() as taken:
            call()
        return Stage(taken["seconds"], taken["cpu"], taken["faults"], self.pod.cpu, self.group.stats[name])


def measure(kind: Kind, ranks: int, cores: int, repeats: int, yardstick: Yardstick, **switches: Any) -> Sample:
    """The first round of a new pod, and ``repeats`` later ones."""
    layer = Layer(kind, CLOUDMATRIX384, ranks, kind.tokens, cores, **switches)
    sample = Sample(ranks, layer.round())
    for _ in range(repeats):
        sample.later.append(layer.round())
        sample.copyto.append(yardstick.seconds(sample.copied(STAGES)))
    return sample


def report_growth(report: Report, samples: Sequence[Sample]) -> None:
    """Seconds of a later round by ranks, and the exponent."""
    for sample in samples:
        gigabytes = sample.copied(PROTOCOLS) / 1e9
        what = f"{sample.ranks} ranks, {gigabytes:.2f} GB: dispatch + combine, CPU"
        report.plain(what, sample.best(PROTOCOLS, "cpu"), "s")
    if len(samples) > 1:
        slope = exponent([s.copied(PROTOCOLS) for s in samples], [s.best(PROTOCOLS, "cpu") for s in samples])
        report.at_most("exponent of these seconds in bytes", slope, 1.1)


def report_largest(report: Report, sample: Sample, seconds_max: float) -> None:
    """Everything about the largest number of ranks: each stage, then the round, within ``seconds_max`` seconds."""
    for name in STAGES:
        report.plain(f"{name}, first round, wall", sample.first[name].seconds, "s")
        report.plain(f"{name}, later round, wall", sample.best([name], "seconds"), "s")
        report.plain(f"{name}, later round, CPU", sample.best([name], "cpu"), "s")
        report.plain(f"{name}, later round, CPU, the run alone", sample.best([name], "run_cpu"), "s")
        report.plain(f"{name}: bytes copied a second, of np.copyto", sample.of_copyto([name]))
    report.plain("np.copyto", sample.copied(STAGES) / min(sample.copyto) / 1e9, "GB/s")
    report.at_least("dispatch + combine: bytes copied a second, of np.copyto", sample.of_copyto(PROTOCOLS), 0.4)
    report.plain("the same with the dummy expert", sample.of_copyto(STAGES))
    report.at_most("dispatch + combine, later round, wall", sample.best(PROTOCOLS, "seconds"), seconds_max, "s")
    report.plain("the same with the dummy expert", sample.best(STAGES, "seconds"), "s")


def report_memory(report: Report, sample: Sample, yardstick: Yardstick) -> None:
    """First touch of pages, which the first round pays, and what is resident."""
    pages = sum(sample.first[name].faults for name in STAGES)
    extra = sum(sample.first[name].cpu for name in STAGES) - sample.best(STAGES, "cpu")
    report.plain("pages touched in the first round", pages / 1e6, "million")
    report.plain("first round over a later one, for each of these pages, CPU", extra / max(pages, 1) * 1e6, "us")
    report.plain("touching a page of a new mapping, CPU", first_touch_us(), "us")
    report.plain("resident, without np.copyto's arrays", resident_gb() - yardstick.gigabytes, "GB")


def command_of(kind: Kind) -> argparse.ArgumentParser:
    """The command line of a benchmark of it."""
    command = parser(f"{kind.title} at full size: rounds, bytes copied, growth with the ranks.")
    command.add_argument("--ranks", type=int, nargs="+", default=kind.ranks, help="numbers of ranks")
    command.add_argument("--cores", type=int, default=kind.cores, help="cores on each die")
    command.add_argument("--repeats", type=int, default=3, help="later rounds; the best one counts")
    return command


def report_of(kind: Kind, options: argparse.Namespace, yardstick: Yardstick) -> Report:
    """Measure each number of ranks."""
    size = f"{kind.tokens} tokens a rank, hidden {HIDDEN}, {options.cores} cores a die"
    report, samples = Report(f"{kind.title}: {size}"), list[Sample]()
    Layer(kind, small_pod(2, ub_bytes=64 * KIB), 2, 1, 1, 32, 1).round()  # compiled
    for ranks in sorted(options.ranks):
        if report.fits(f"{ranks} ranks", kind.need(ranks, options.cores)):
            samples.append(measure(kind, ranks, options.cores, options.repeats, yardstick))
    report_growth(report, samples)
    if samples:
        report_largest(report, samples[-1], kind.seconds_max)
        report_memory(report, samples[-1], yardstick)
    return report


def main() -> None:
    """Measure, and print the table."""
    options = command_of(PULL).parse_args()
    report_of(PULL, options, Yardstick()).finish(options.json)


if __name__ == "__main__":
    main()
