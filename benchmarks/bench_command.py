"""The real command, `xccl-emu run dispatch --json`: wall seconds and resident memory, warm and cold."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Report, parser

_DEFAULT_RANKS = 288


@dataclass(frozen=True)
class Outcome:
    """How one run of the command went."""

    seconds: float
    cpu: float
    """CPU seconds, user and system."""
    resident_gb: float
    code: int
    result: dict[str, Any]
    """What the command printed; empty if it failed."""
    error: str
    """The last line of what it said on stderr."""

    def stage(self, *names: str) -> float:
        """Wall seconds of these stages, as the command measured them."""
        return sum(float(self.result["stage_seconds"][name]) for name in names)


def run_command(arguments: list[str], environ: dict[str, str]) -> Outcome:
    """Run the command in a process of its own and wait for it."""
    command = [sys.executable, "-m", "xccl_emu", "run", "dispatch", "--json", *arguments]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environ)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        result = json.load(out) if process.returncode == 0 else {}
        last = (err.read().strip().splitlines() or [""])[-1]
    cpu = usage.ru_utime + usage.ru_stime
    return Outcome(seconds, cpu, usage.ru_maxrss * 1024 / 1e9, process.returncode, result, last)


def good(report: Report, what: str, outcome: Outcome) -> bool:
    """Return whether this is a run to report; if not, note why."""
    if outcome.code != 0:
        report.notes.append(f"{what}: not measured, exit code {outcome.code}: {outcome.error}")
        return False
    if (ranks := outcome.result["configuration"]["ranks"]) < _DEFAULT_RANKS:
        report.notes.append(f"{what}: ran {ranks} ranks, the targets are for {_DEFAULT_RANKS}")
    return True


def measure_cold(report: Report) -> None:
    """With an empty cache: compilation included."""
    with tempfile.TemporaryDirectory(prefix="xccl_emu-bench-") as folder:
        outcome = run_command([], os.environ | {"XCCL_EMU_CACHE_DIR": folder})
    if good(report, "cold", outcome):
        report.at_most("cold: the whole command, compilation included", outcome.seconds, 120, "s")
        report.plain("cold: CPU seconds of it", outcome.cpu, "s")
        report.plain("cold: its stage of compilation", outcome.stage("compile"), "s")


def measure_warm(report: Report) -> None:
    """With a warm cache: the command as it is, and one with a second round."""
    run_command(["--ranks", "2", "--tokens", "1"], dict(os.environ))  # fill the cache
    outcome = run_command([], dict(os.environ))
    if good(report, "warm", outcome):
        report.at_most("warm: the whole command, with verification", outcome.seconds, 40, "s")
        report.plain("warm: CPU seconds of it", outcome.cpu, "s")
        report.at_most("warm: largest resident size", outcome.resident_gb, 14, "GB")
        report.plain("warm: dispatch + combine of the only round", outcome.stage("dispatch", "combine"), "s")
        report.plain("warm: verification", outcome.stage("verify"), "s")
        report.plain("warm: elements that are wrong", outcome.result["wrong"])
    outcome = run_command(["--rounds", "2"], dict(os.environ))
    if good(report, "two rounds", outcome):
        report.at_most("dispatch + combine of a second round", outcome.stage("dispatch 2", "combine 2"), 8, "s")
        report.plain("two rounds: the whole command", outcome.seconds, "s")
        report.plain("two rounds: largest resident size", outcome.resident_gb, "GB")


def main() -> None:
    """Measure, and print the table."""
    command = parser(__doc__)
    command.add_argument("--no-cold", action="store_true", help="leave out the run that compiles everything")
    options = command.parse_args()
    os.chdir(Path(__file__).resolve().parent.parent)
    report = Report("The command: xccl-emu run dispatch")
    measure_warm(report)
    if not options.no_cold:
        measure_cold(report)
    report.finish(options.json)


if __name__ == "__main__":
    main()
