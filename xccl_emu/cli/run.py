"""``xccl-emu run``: one protocol, run on the whole pod and held against its oracle."""

import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import one_of, option
from xccl_emu.base.sizes import some
from xccl_emu.base.stage import Stage, silent
from xccl_emu.cli.app import CTX, JSON, App, Protocol, command_of, parameter, print_json
from xccl_emu.cli.cases import ANY_SIZE, CaseGroup, check_runs, sizes_from
from xccl_emu.cli.ending import WRONG
from xccl_emu.cli.real import SECONDS, RealOptions, print_cpp, run_real
from xccl_emu.cli.shown import right, stages, stdout_console, table

if TYPE_CHECKING:
    from rich.table import Table

    from xccl_emu.machine.stats import RunStats
    from xccl_emu.protocol.pod_run import CaseRun
    from xccl_emu.protocol.sequence import Sizes

POLICIES = ("round-robin", "random")
_CAPTION = (
    "in, out: through mtu-in and mtu-out; vector: elements; GB/s: bytes that instructions copied;"
    " seconds and GB/s are this computer's"
)

app = App(cls=CaseGroup, no_args_is_help=True)


@app.callback(subcommand_metavar="NAME [SIZES]...")
def _group() -> None:
    """Run a protocol and hold its result against the oracle.

    NAME is one of xccl-emu list, or FILE.py:NAME. Sizes of the protocol are options.

    \b
      xccl-emu run dispatch --ranks 32
      xccl-emu run dispatch --help  its sizes, also of the whole pod
      xccl-emu run sendrecv --on native --runs 1000   real memory
      xccl-emu run sendrecv --cpp send                its kernel as C++
    """


@dataclass(frozen=True)
class CaseOptions:
    """Run a protocol, and compare what is in memory with what must be there; exit code 1 if anything is wrong.

    Sizes of the protocol are options too: --dies 4. xccl-emu run NAME --help and xccl-emu list NAME show them. What
    has sizes for the whole pod runs there, call after call, bit for bit against an independent NumPy oracle: "wrong"
    counts what differs. Anything else runs on a pod that it just fits.

    With --on native the same kernels run as C++ by threads of this computer, --runs times, and with --on cuda on an
    NVIDIA GPU: real memory. A run there may be right although a synchronization is missing.
    """

    order: str = option("sc", "Memory order: sc, fifo, relaxed or unordered.")
    policy: str = option("round-robin", "Which core steps next: round-robin or random.")
    on: str = option(
        "emulator", "The emulator, threads of this computer (native), or a GPU (cuda).", metavar="MACHINE"
    )  # fmt: skip
    runs: int = option(1, "How often, on native or cuda.")
    without: tuple[str, ...] = option((), "On native or cuda: switch a synchronization off.", metavar="SYNC")
    runs_seed: int = option(0, "On native or cuda: how soon queues go on, what is chosen.")
    runs_seconds: float = option(
        SECONDS, "On native or cuda: how long a run may take before it is a deadlock.", metavar="S"
    )  # fmt: skip
    cpp: str = option("", "Print a kernel as C++, as native and cuda have it, and run nothing.", metavar="KERNEL")

    @property
    def is_usual(self) -> bool:
        """Return whether all that real memory alone has is as by default."""
        return (self.runs, self.without, self.runs_seed, self.runs_seconds) == (1, (), 0, SECONDS)


def act(options: CaseOptions, ctx: typer.Context, protocol: str, as_json: bool) -> None:
    """Run the command; raises ``typer.Exit`` if anything is wrong."""
    sizes = sizes_from(ctx.args, protocol)
    if options.cpp:
        print_cpp(protocol, sizes, options.cpp)
    elif options.on != "emulator":
        if (options.order, options.policy) != ("sc", "round-robin"):
            why = "has an order and a schedule of its own; leave --order and --policy out"
            raise ConfigError(f"--on {options.on}: {why}")
        seeded = options.runs_seed, options.runs_seconds
        run_real(protocol, sizes, RealOptions(options.on, options.runs, options.without, *seeded, as_json))
    elif not options.is_usual:
        raise ConfigError("--on emulator: runs once, with all synchronizations; xccl-emu check switches them off")
    else:
        _run_emulated(protocol, sizes, options, as_json)


def _run_emulated(protocol: str, sizes: "Sizes", options: CaseOptions, as_json: bool) -> None:
    say = lambda note: typer.echo(f"xccl-emu: {note}", err=True)  # noqa: E731
    result = run(protocol, sizes, RunOptions(options.order, options.policy, stages(quiet=as_json), say))
    if as_json:
        print_json("run", result)
    else:
        typer.echo(pod_text(result) if result.on_pod else case_text(result))
    if result.wrong:
        raise typer.Exit(WRONG)


app.command("case", hidden=True, context_settings=ANY_SIZE)(
    command_of(CaseOptions, act, JSON, first=(CTX, parameter("protocol", Protocol, inspect.Parameter.empty)))
)


@dataclass(frozen=True)
class RunOptions:
    """How ``run`` runs a case."""

    order: str = "sc"
    policy: str = "round-robin"
    stages: Stage = silent
    say: Callable[[str], None] = lambda note: None
    """Called with a note before the run."""

    def __post_init__(self) -> None:
        from xccl_emu.machine.state import ORDERS

        one_of("order", self.order, ORDERS)
        one_of("policy", self.policy, POLICIES)


def case_text(result: "CaseRun") -> str:
    """Return what a run that the pod just fits did, as text for people."""
    sizes = " ".join(f"{name}={value}" for name, value in result.configuration.items())
    stats = result.rounds[0][result.protocol]
    moved = ", ".join(f"{pipe} {nbytes:,}" for pipe, nbytes in stats.bytes_by_pipe.items() if nbytes)
    count = f"{sum(stats.instructions.values()):,} instructions in {stats.seconds:.3f} s"
    lines = [result.protocol, f"  {sizes}", f"  {count}; bytes by {moved or 'no pipe'}"]
    lines += [f"  WRONG: {nbytes} bytes of {name}" for name, nbytes in result.wrong_bytes.items()]
    return "\n".join([*lines, f"#wrong {result.wrong}"])


def pod_text(result: "CaseRun") -> str:
    """Return what a run on the whole pod did, as text for people."""
    stages = ", ".join(f"{name} {seconds:.1f}" for name, seconds in result.stage_seconds.items())
    total = f"{result.seconds:.1f} s in all ({stages}), {result.resident_gb:.1f} GB resident"
    console = stdout_console()
    with console.capture() as captured:
        console.print(_table(result))
    return f"{captured.get()}{total}\n#wrong {result.wrong}"


def _table(result: "CaseRun") -> "Table":
    """A line for each protocol of each round."""
    facts = result.facts.items()
    counts = ", ".join(some(value, name).replace("_", " ") for name, value in facts if isinstance(value, int))
    words = "; ".join([counts, *(value for _, value in facts if isinstance(value, str))])
    numbers = right("in GB", "out GB", "dma GB", "vector G", "M instr", "seconds", "GB/s")
    shown = table("round", *numbers, title=f"{result.protocol}: {words}", caption=_CAPTION)
    for number, stats in enumerate(result.rounds, start=1):
        for name, one in stats.items():
            shown.add_row(f"{number} {name}", *_cells(one))
    return shown


def _cells(stats: "RunStats") -> Iterator[str]:
    moved = stats.bytes_by_pipe
    for n in (moved["mtu-in"], moved["mtu-out"], moved["dma"], stats.vector_elements):
        yield f"{n / 1e9:.{2 if n >= 1e7 or not n else 5}f}"
    yield f"{sum(stats.instructions.values()) / 1e6:.2f}"
    yield f"{stats.seconds:.2f}"
    yield f"{stats.copied_bytes / 1e9 / max(stats.seconds, 1e-9):.1f}"


def run(protocol: str, sizes: "Sizes", options: RunOptions) -> "CaseRun":
    """Run it once, on a pod that it just fits or on the whole one, and hold memory against what must be there."""
    from xccl_emu.protocol.pod_run import CaseRun, resident_gb
    from xccl_emu.protocol.registry import known, make

    if known(protocol).preset.on_pod is not None:
        return run_on_pod(protocol, sizes, options)
    started, case = time.perf_counter(), make(protocol, **sizes)
    check_runs(case)
    trial = case.build(options.order)
    trial.pod.policy = options.policy
    stats, wrong = trial.pod.run(), trial.wrong_bytes()
    return CaseRun(
        protocol, case.configuration, options.order, options.policy, sum(wrong.values()), wrong, [{protocol: stats}],
        {}, {}, time.perf_counter() - started, resident_gb(),
    )  # fmt: skip


def run_on_pod(protocol: str, sizes: "Sizes", options: RunOptions) -> "CaseRun":
    """Run it on the whole pod, call after call; sizes that are not given may be smaller, so as to fit the memory."""
    from xccl_emu.base.free_memory import available_bytes
    from xccl_emu.machine.pod import Pod
    from xccl_emu.machine.spec import CLOUDMATRIX384
    from xccl_emu.protocol.pod_run import CaseRun, PodRun, resident_gb
    from xccl_emu.protocol.registry import on_pod

    started, case = time.perf_counter(), on_pod(protocol, **sizes)
    for name, value in case.pod_sizes.items():
        raise ConfigError(name, value, "is nothing of a run on the whole pod; xccl-emu check has it")
    pod = Pod(CLOUDMATRIX384, order=options.order, policy=options.policy, seed=getattr(case, "seed", 0))
    pod_run = PodRun(pod, options.stages, available_bytes())
    case, note = case.fit_to_memory(sizes, pod_run)
    if note:
        options.say(note)
    case.run_on_pod(pod_run)
    chosen = {each.name: getattr(case, each.name) for each in case.sizes()}
    return CaseRun(
        protocol, chosen, options.order, options.policy, pod_run.wrong, {}, pod_run.rounds, pod_run.facts,
        pod_run.seconds, time.perf_counter() - started, resident_gb(), on_pod=True,
    )  # fmt: skip
