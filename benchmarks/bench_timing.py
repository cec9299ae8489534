"""Virtual time at full size: instructions a second with and without payload, against round-robin on the same work."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bench_dispatch import HIDDEN, PROTOCOLS, PULL, Layer, Round, Stage
from bench_fused import FUSED
from harness import Report, parser

from xccl_emu.machine.spec import CLOUDMATRIX384, KIB, PodSpec, small_pod
from xccl_emu.protocol.pod_run import resident_gb
from xccl_emu.timing.run import VirtualTime

POLICIES: Mapping[str, Any] = {"round-robin": "round-robin", "virtual time": VirtualTime()}
SPEED, SECONDS = 3.0, 15.0
"""Million instructions a second, and seconds of dispatch and combine, that a later round should reach."""


def instructions(stages: Sequence[Stage]) -> float:
    """Million instructions that were granted."""
    return sum(sum(stage.run.instructions.values()) for stage in stages) / 1e6


def of(one: Round) -> list[Stage]:
    """Dispatch and combine of a round."""
    return [one[name] for name in PROTOCOLS]


def rounds(layer: Layer, policy: Any, repeats: int) -> list[Round]:
    """Run ``repeats`` rounds under a policy."""
    layer.pod.policy = policy
    return [layer.round() for _ in range(repeats)]


def report_run(report: Report, what: str, made: Sequence[Round], bounded: bool) -> float:
    """Speed and seconds of the best of some rounds; returns its CPU seconds."""
    best = min(made, key=lambda one: sum(stage.run_cpu for stage in of(one)))
    run, call = sum(s.run_cpu for s in of(best)), sum(s.cpu for s in of(best))
    speed = instructions(of(best)) / run
    if bounded:
        report.at_least(f"{what}: instructions a second, CPU", speed, SPEED, "million")
        report.at_most(f"{what}: dispatch + combine, CPU", call, SECONDS, "s")
    else:
        report.plain(f"{what}: instructions a second, CPU", speed, "million")
        report.plain(f"{what}: dispatch + combine, CPU", call, "s")
    report.plain(f"{what}: the same, wall", sum(s.seconds for s in of(best)), "s")
    return run


def report_with_data(report: Report, name: str, layer: Layer, repeats: int) -> None:
    """Both policies in turns on the same work, after a round that touches all memory."""
    first = layer.round()
    report.plain(f"{name}: instructions", instructions(of(first)), "million")
    report.plain(f"{name}, first round, round-robin: dispatch + combine, wall", sum(s.seconds for s in of(first)), "s")
    made: dict[str, list[Round]] = {policy: [] for policy in POLICIES}
    for _ in range(repeats):
        for policy, chosen in POLICIES.items():
            made[policy] += rounds(layer, chosen, 1)
    cpu = {policy: report_run(report, f"{name}, {policy}", made[policy], policy != "round-robin") for policy in made}
    report.plain(f"{name}: virtual time over round-robin, CPU", cpu["virtual time"] / cpu["round-robin"])


def report_without_data(report: Report, name: str, layer: Layer, repeats: int, before_gb: float) -> None:
    """The first round without payload, later ones, and what memory they take."""
    first = rounds(layer, VirtualTime(data=False), 1)
    report_run(report, f"{name}, no data, first round", first, True)
    report_run(report, f"{name}, no data, later round", rounds(layer, VirtualTime(data=False), repeats), True)
    report.plain(f"{name}, no data: resident", resident_gb() - before_gb, "GB")


def warm_up() -> None:
    """Compile or load what the rounds run."""
    spec: PodSpec = small_pod(2, ub_bytes=64 * KIB)
    for kind in (PULL, FUSED):
        layer = Layer(kind, spec, 2, 1, 1, 32, 1)
        for policy in (*POLICIES.values(), VirtualTime(data=False)):
            rounds(layer, policy, 1)


def main() -> None:
    """Measure, and print the table: without data first, as resident memory only grows."""
    command = parser(__doc__)
    command.add_argument("--cores", type=int, default=48, help="cores on each die")
    command.add_argument("--repeats", type=int, default=2, help="later rounds; the best one counts")
    command.add_argument("--pull", type=int, default=288, help="ranks of pull dispatch and combine, 60 tokens each")
    command.add_argument("--fused", type=int, default=256, help="ranks of fused operators, 128 tokens each; 0: none")
    options = command.parse_args()
    report = Report(f"Virtual time, hidden {HIDDEN}, {options.cores} cores a die")
    warm_up()
    jobs = (("pull", PULL, options.pull, 60), ("fused", FUSED, options.fused, 128))
    for data in (False, True):
        for operators, kind, ranks, tokens in (job for job in jobs if job[2]):
            name = f"EP{ranks} x {tokens}, {operators}"
            if data and not report.fits(f"{name}, with data", kind.need(ranks, options.cores) * tokens / kind.tokens):
                continue
            before = resident_gb()
            layer = Layer(kind, CLOUDMATRIX384, ranks, tokens, options.cores)
            if data:
                report_with_data(report, name, layer, options.repeats)
            else:
                report_without_data(report, name, layer, options.repeats, before)
            del layer
            print(name, "with data" if data else "without", "done", file=sys.stderr)
    report.finish(options.json)


if __name__ == "__main__":
    main()
