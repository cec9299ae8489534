"""FusedDispatch, stand-in expert and FusedCombine at full size: bytes copied against np.copyto, and each switch."""

from collections.abc import Mapping
from typing import Any

from bench_dispatch import EXPERTS, PROTOCOLS, TOP_K, Layer, Sample, report_growth, report_largest, report_memory
from harness import Report, Yardstick, parser

from xccl_emu.bench.memory import available_bytes
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384, KIB, PodSpec, small_pod
from xccl_emu.protocols.fused import FusedExpertParallel
from xccl_emu.protocols.fused_layout import FusedConfig
from xccl_emu.runs.fused import Fused
from xccl_emu.runs.jobs.fused import fused_bytes_needed

TOKENS, HIDDEN = 96, 7168
SWITCHES: Mapping[str, dict[str, Any]] = {
    "SDMA": {"path": "sdma"},
    "late quantization": {"early_quantization": False},
    "counts exchanged first": {"preallocated": False},
    "no pipeline": {"pipelined": False},
}


class FusedLayer(Layer):
    """A group whose ranks write to each other, with its inputs."""

    def __init__(
        self, spec: PodSpec, ranks: int, tokens: int, hidden: int, cores: int, experts: int, **switches: Any
    ) -> None:
        self._switches = switches
        super().__init__(spec, ranks, tokens, hidden, cores, experts)

    def make_group(self, pod: Pod, **shape: Any) -> FusedExpertParallel:
        """See `Layer.make_group`."""
        return FusedExpertParallel(pod, FusedConfig(**shape, **self._switches))


def measure(ranks: int, cores: int, repeats: int, yardstick: Yardstick, **switches: Any) -> Sample:
    """The first round of a new pod, and ``repeats`` later ones."""
    layer = FusedLayer(CLOUDMATRIX384, ranks, TOKENS, HIDDEN, cores, EXPERTS, **switches)
    sample = Sample(ranks, layer.round())
    for _ in range(repeats):
        sample.later.append(layer.round())
        sample.copyto.append(yardstick.seconds(sample.copied(("dispatch", "expert", "combine"))))
    return sample


def report_switches(report: Report, ranks: int, cores: int, yardstick: Yardstick) -> None:
    """Instructions, bytes and speed with each optimization switched off on its own."""
    for name, switches in {"all": {}, **SWITCHES}.items():
        sample = measure(ranks, cores, 2, yardstick, **switches)
        asked = sum(sum(sample.later[0][p].run.instructions.values()) for p in PROTOCOLS)
        report.plain(f"{ranks} ranks, {name}: instructions", asked / 1e6, "million")
        report.plain(f"{ranks} ranks, {name}: copied", sample.copied(PROTOCOLS) / 1e9, "GB")
        report.plain(f"{ranks} ranks, {name}: bytes copied a second, of np.copyto", sample.of_copyto(PROTOCOLS))


def main() -> None:
    """Measure, and print the table."""
    command = parser(__doc__)
    command.add_argument("--ranks", type=int, nargs="+", default=[16, 64, 320], help="numbers of ranks")
    command.add_argument("--cores", type=int, default=Fused.cores, help="cores on each die")
    command.add_argument("--repeats", type=int, default=3, help="later rounds of which the best counts")
    command.add_argument("--switches", type=int, default=32, help="ranks for the comparison of switches; 0: none")
    options = command.parse_args()
    report = Report(f"Fused dispatch and combine: {TOKENS} tokens a rank, hidden {HIDDEN}, {options.cores} cores a die")
    FusedLayer(small_pod(2, ub_bytes=64 * KIB), 2, 1, 32, 1, 1).round()  # compiles
    yardstick = Yardstick()
    samples = []
    for ranks in sorted(options.ranks):
        need, free = fused_bytes_needed(ranks, Fused(cores=options.cores), TOP_K + 1), available_bytes()
        if need > free:
            report.notes.append(f"{ranks} ranks skipped: they need {need / 1e9:.1f} GB, {free / 1e9:.1f} GB are free")
            continue
        samples.append(measure(ranks, options.cores, options.repeats, yardstick))
    report_growth(report, samples)
    if samples:
        report_largest(report, samples[-1], 16)
        report_memory(report, samples[-1], yardstick)
    if options.switches:
        report_switches(report, options.switches, options.cores, yardstick)
    report.finish(options.json)


if __name__ == "__main__":
    main()
