"""``xccl-emu run --on native``: a protocol on real memory, run after run."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import one_of
from xccl_emu.cli.app import print_json
from xccl_emu.cli.cases import check_syncs
from xccl_emu.cli.ending import WRONG

if TYPE_CHECKING:
    from xccl_emu.native.runs import RealRun, Runs
    from xccl_emu.protocol.sequence import Sizes

MACHINES = ("emulator", "native", "cuda")
_LINE_EVERY_S = 5.0


@dataclass(frozen=True)
class RealOptions:
    """How ``run`` runs a case on real memory."""

    on: str = "native"
    runs: int = 1
    without: tuple[str, ...] = ()
    seed: int = 0
    quiet: bool = False

    def __post_init__(self) -> None:
        one_of("on", self.on, MACHINES)
        if self.runs < 1:
            raise ConfigError("runs", self.runs, "must be 1 or more")


def run_real(protocol: str, sizes: "Sizes", order: str, policy: str, options: RealOptions) -> None:
    """Run it, print what came of it, and end with 1 if a run was wrong."""
    if (order, policy) != ("sc", "round-robin"):
        raise ConfigError(f"--on {options.on}: has an order and a schedule of its own; leave --order and --policy out")
    result = real(protocol, sizes, options)
    if options.quiet:
        print_json("run", result)
    else:
        typer.echo(text(result))
    if result.done.n_bad:
        raise typer.Exit(WRONG)


def real(protocol: str, sizes: "Sizes", options: RealOptions) -> "RealRun":
    """Run it on a pod that it just fits, and hold memory against what must be there after each run."""
    from xccl_emu.native import Cuda, Native
    from xccl_emu.native.runs import RealRun, repeat
    from xccl_emu.protocol.registry import make

    case = make(protocol, **sizes)
    check_syncs(case, options.without)
    machine = (Native if options.on == "native" else Cuda)(seed=options.seed)
    trial = case.build("relaxed", options.without)
    done = repeat(trial, machine, options.runs, _says(options))
    return RealRun(protocol, case.configuration, options.on, options.without, options.seed, done)


def _says(options: RealOptions) -> Callable[["Runs"], None]:
    due_s = time.monotonic() + _LINE_EVERY_S

    def say(done: "Runs") -> None:
        nonlocal due_s
        if not options.quiet and time.monotonic() >= due_s:
            due_s = time.monotonic() + _LINE_EVERY_S
            print(f"{done.n_runs:,} of {options.runs:,} runs, {done.n_bad:,} wrong", file=sys.stderr, flush=True)

    return say


def text(result: "RealRun") -> str:
    """Return what the runs did, as text for people."""
    done, sizes = result.done, " ".join(f"{name}={value}" for name, value in result.configuration.items())
    without = f", without {', '.join(result.without)}" if result.without else ""
    lines = [f"{result.protocol} on {result.machine}{without}", f"  {sizes}"]
    lines += [f"  {done.n_runs:,} runs in {done.seconds:.1f} s; the runs alone {done.run_seconds:.3f} s"]
    lines += [f"  WRONG BYTES: {done.wrong:,} runs"] if done.wrong else []
    lines += [f"  FAILED: {n:,} runs: {why}" for why, n in sorted(done.ended_by.items(), key=lambda each: -each[1])]
    return "\n".join([*lines, f"#wrong {done.n_bad}"])
