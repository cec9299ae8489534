"""FusedDispatch, dummy expert and FusedCombine at full size: bytes copied against np.copyto, and each switch."""

from bench_dispatch import PROTOCOLS, Kind, command_of, measure, report_of
from harness import Report, Yardstick

from xccl_emu.papers.bench.phases import SWITCHES

FUSED = Kind("Fused dispatch and combine", "fused", 96, [16, 64, 320], 4, 16)


def report_switches(report: Report, ranks: int, cores: int, yardstick: Yardstick) -> None:
    """Instructions, bytes and speed with each optimization switched off on its own."""
    for name, switches in SWITCHES.items():
        sample = measure(FUSED, ranks, cores, 2, yardstick, **switches)
        asked = sum(sum(sample.later[0][p].run.instructions.values()) for p in PROTOCOLS)
        report.plain(f"{ranks} ranks, {name}: instructions", asked / 1e6, "million")
        report.plain(f"{ranks} ranks, {name}: copied", sample.copied(PROTOCOLS) / 1e9, "GB")
        report.plain(f"{ranks} ranks, {name}: bytes copied a second, of np.copyto", sample.of_copyto(PROTOCOLS))


def main() -> None:
    """Measure, and print the table."""
    command, yardstick = command_of(FUSED), Yardstick()
    command.add_argument("--switches", type=int, default=32, help="ranks for the comparison of switches; 0: none")
    options = command.parse_args()
    report = report_of(FUSED, options, yardstick)
    if options.switches:
        report_switches(report, options.switches, options.cores, yardstick)
    report.finish(options.json)


if __name__ == "__main__":
    main()
