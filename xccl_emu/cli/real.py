"""A protocol on real memory: ``run --on``, and ``check --on``, where what runs showed is put next to the verdict."""

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import one_of
from xccl_emu.cli.app import print_json
from xccl_emu.cli.cases import check_runs, check_syncs
from xccl_emu.cli.ending import WRONG

if TYPE_CHECKING:
    from xccl_emu.native.host import Real
    from xccl_emu.native.runs import RealRun, Runs
    from xccl_emu.protocol.case import Case
    from xccl_emu.protocol.sequence import Sizes

MACHINES = ("emulator", "native", "cuda")
SECONDS, SECONDS_MOST = 10.0, 1_000_000
"""The limit of a run, by default and at most."""
_LINE_EVERY_S = 5.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class RealOptions:
    """Options of runs on real memory."""

    on: str = "native"
    runs: int = 1
    without: tuple[str, ...] = ()
    seed: int = 0
    seconds: float = SECONDS
    """The limit of a run."""
    quiet: bool = False

    def __post_init__(self) -> None:
        one_of("on", self.on, MACHINES)
        if self.runs < 1:
            raise ConfigError("runs", self.runs, "must be 1 or more")
        if not 0 < self.seconds <= SECONDS_MOST:
            raise ConfigError("runs_seconds", self.seconds, f"must be more than 0, and at most {SECONDS_MOST}")

    @property
    def machine(self) -> "Real":
        """Return the way to run a pod."""
        from xccl_emu.native import Cuda, Native

        return (Native if self.on == "native" else Cuda)(self.seed, self.seconds)


def run_real(protocol: str, sizes: "Sizes", options: RealOptions) -> None:
    """Run it, print what came of it, and end with 1 if a run was wrong."""
    case = _made(protocol, sizes)
    check_syncs(case, options.without)
    result = real(case, protocol, options, _nothing if options.quiet else _now_and_then())
    if options.quiet:
        print_json("run", result)
    else:
        typer.echo(text(result))
    if result.done.n_bad:
        raise typer.Exit(WRONG)


def print_cpp(protocol: str, sizes: "Sizes", kernel: str) -> None:
    """Print the C++ of a kernel of a case, made of the same blocks as its machine code."""
    from xccl_emu.lang import cpp

    kernels = {each.name: each for each in _made(protocol, sizes).build("relaxed").pod.kernels}
    one_of("cpp", kernel, tuple(kernels))
    typer.echo(cpp.steps([kernels[kernel]]))


def _made(protocol: str, sizes: "Sizes") -> "Case":
    """Return the case; who says how often by ``--rounds``, as benchmarks do, hears what says it here."""
    from xccl_emu.protocol.registry import make

    try:
        case = make(protocol, **sizes)
    except ConfigError as error:
        if error.argument != "rounds":
            raise
        must = f"{error.must}; --runs {error.value} runs it so often on real memory"
        raise ConfigError("rounds", error.value, must) from error
    check_runs(case)
    return case


def real(
    case: "Case", protocol: str, options: RealOptions, say: Say, seconds: float = math.inf
) -> "RealRun":  # fmt: skip
    """Run it on a pod that it just fits, and hold memory against what must be there after each run.

    It says how far it is, and begins no run when ``seconds`` have passed.
    """
    from xccl_emu.native.runs import RealRun, repeat

    def progress(done: "Runs") -> None:
        say(f"{done.n_runs:,} of {options.runs:,} runs on {options.on}, {done.n_bad:,} wrong")

    done = repeat(case.build("relaxed", options.without), options.machine, options.runs, progress, seconds)
    return RealRun(protocol, case.configuration, options.on, options.without, options.seed, done)


def _nothing(text: str) -> None:
    pass


def _now_and_then() -> Say:
    due_s = time.monotonic() + _LINE_EVERY_S

    def say(text: str) -> None:
        nonlocal due_s
        if time.monotonic() >= due_s:
            due_s = time.monotonic() + _LINE_EVERY_S
            print(text, file=sys.stderr, flush=True)

    return say


def text(result: "RealRun") -> str:
    """Return what the runs did, as text for people."""
    done, sizes = result.done, " ".join(f"{name}={value}" for name, value in result.configuration.items())
    without = f", without {', '.join(result.without)}" if result.without else ""
    rate = "" if done.gb_per_s is None else f", {done.gb_per_s:.3g} GB/s"
    of = "this computer's" if result.machine == "native" else "this GPU's"
    lines = [f"{result.protocol} on {result.machine}{without}", f"  {sizes}"]
    lines += [f"  {done.n_runs:,} runs in {done.seconds:.1f} s; the runs alone {done.run_seconds:.3f} s{rate}, {of}"]
    lines += [f"  WRONG BYTES: {done.wrong:,} runs"] if done.wrong else []
    lines += [f"  FAILED: {n:,} runs: {why}" for why, n in sorted(done.ended_by.items(), key=lambda each: -each[1])]
    lines += [f"    {line}" for line in done.report.splitlines()[1:]]
    return "\n".join([*lines, f"#wrong {done.n_bad}"])
