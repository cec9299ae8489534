"""``xccl-emu trace``: one case in virtual time, its bytes checked, as a picture for Perfetto."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xccl_emu.base import words as w
from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import Modelled, one_of, option
from xccl_emu.base.output import write_text
from xccl_emu.cli import plain_first
from xccl_emu.cli.app import JSON, SET, WORDS, App, command_of, print_json
from xccl_emu.cli.cases import ANY_SIZE, check_runs, named
from xccl_emu.cli.ending import WRONG
from xccl_emu.cli.files import check_file, check_plot, save_figure, writing
from xccl_emu.cli.shown import spinner

if TYPE_CHECKING:
    from xccl_emu.timing.costs import Costs
    from xccl_emu.timing.fabric import Fabric
    from xccl_emu.timing.gantt import Bars
    from xccl_emu.timing.run import VirtualTime
    from xccl_emu.timing.trace import Trace

_NO_PRICE = "  (a share of the path is no price: check --each-sync --price says what each costs)"
PLACES = ("packed", "chips", "nodes")
_COLOURS = ("#ba4a00", "#2e86c1", "#17a589", "#d68910", "#7d3c98", "#566573", "#1b4f72")


@dataclass(frozen=True)
class TraceOptions(Modelled):
    """Run a protocol in virtual time, and write what every pipe did as a trace for Perfetto (ui.perfetto.dev).

    Each process is a die. A core has a thread of the kernels that it runs, with their steps within, and threads of its
    pipes: the scalar unit, mtu-in, vector, mtu-out, DMA. A slice of a pipe is an action that took time, named
    "step 3: put, tail" by the step of the paper and the synchronization. On the scalar unit, "waits:" precedes what it
    waited for, and "issue" where it queues what a pipe then does. Click a slice to see its source line, its bytes, and
    what it reads or writes. An arrow leads from a write to who saw it: from a flag to the poll, from data to the
    transfer that read it. Counters show what each link carries.

    The sizes are small, as for `xccl-emu check`. Ask for more: sizes are options, and xccl-emu list PROTOCOL shows
    them. (--dies says what is shown; a protocol that has a size of that name takes it as --set dies=3.)

    \b
      xccl-emu trace sendrecv --slots 1 --chunks 2 --out t.json  the eight steps
      xccl-emu trace sendrecv --cores 4 --granules 256 --place nodes
      xccl-emu trace dispatch --ranks 8 --tokens 16 --granules 224 --dies 0,1
      xccl-emu trace fused --ranks 8 --cores 8 --tokens 16 --granules 224
      xccl-emu trace mixserve-dispatch --fabric atlas-800t-a2 --gantt 0
      xccl-emu trace a2e --tokens 8 --cores 2 --html a2e.html
      xccl-emu trace dispatch-swap --ranks 3 --rounds 3 --tokens 8,1,1  weights change while others dispatch

    A page (--html) needs no Perfetto: pipes over time, the critical path in red, the actions one after the other, and
    the source of the one that is chosen.

    Exit code: 0, 1 if the run fails or bytes are wrong, 2 wrong usage.
    """

    protocol: str = ""
    sizes: dict[str, int | str] = field(default_factory=dict)
    out: Path = option(Path("trace.json"), "File to write; JSON, whatever it is called.")
    dies: str | None = option(None, 'Dies to show, as in "0,1" or "0-3,8" [default: all that take part]')
    place: str = option("packed", "Where the dies are: packed (die by die on the chips), chips or nodes (one on each).")
    gantt: int | None = option(None, "Die to draw a Gantt chart of: when it computes, and writes to others.", least=0)
    plot: Path | None = option(None, "Draw that chart to a PNG, SVG or PDF file too.")
    html: Path | None = option(None, "Write a page of HTML too, with the critical path, to be gone through by keys.")
    svg: Path | None = option(None, "Draw the run, with the critical path, to an SVG file too.")
    events: int = option(
        200_000, "Most slices and ends of arrows; what begins later is left out, and counted.", least=1
    )  # fmt: skip


@dataclass(frozen=True)
class Result(w.Printed):
    """What was run and written."""

    protocol: w.Protocol
    configuration: w.Configuration
    fabric: Annotated[str, "model of the links"]
    latency_us: Annotated[float, "virtual time of the run"]
    critical_path_us: Annotated[dict[str, float] | None, "by resource; null if only some dies were written down"]
    critical_path_by_sync_us: Annotated[
        dict[str, float] | None, "by the synchronization that is named there; no price (`check --price`)"
    ]
    wrong: Annotated[int, w.WRONG]
    wrong_bytes: w.WrongBytes
    file: w.File
    slices: Annotated[int, "actions that the file shows"]
    arrows: Annotated[int, "from a write to who saw it"]
    left_out: Annotated[int, "actions that the file lacks"]
    until_us: Annotated[float, "the file ends here"]
    gantt_us: Annotated[
        dict[str, list[tuple[float, float]]], "begin and end of each bar, by engine; empty without `--gantt`"
    ]

    def render(self) -> str:
        """Return it as text for people."""
        from xccl_emu.timing.gantt import lines as gantt_lines

        sizes = " ".join(f"{name}={value}" for name, value in self.configuration.items())
        lines = [f"{self.protocol}: {self.latency_us:.3f} us on {self.fabric}", f"  {sizes}"]
        if self.critical_path_us:
            parts = [f"{what} {us:.3f}" for what, us in self.critical_path_us.items() if us]
            lines.append(f"  critical path, us: {', '.join(parts)}")
        if self.critical_path_by_sync_us:
            parts = [f"{name} {us:.3f}" for name, us in self.critical_path_by_sync_us.items()]
            lines += [f"  at synchronizations, us: {', '.join(parts)}", _NO_PRICE]
        lines.append(f"  bytes: {'WRONG in ' + ', '.join(self.wrong_bytes) if self.wrong else 'as they must be'}")
        lines.append(f"{self.file}: {self.slices:,} slices, {self.arrows:,} arrows; open it at ui.perfetto.dev")
        if self.left_out:
            what = f"{self.left_out:,} actions, from {self.until_us:.3f} us on"
            lines.append(f"  left out: {what}; choose --dies, or more with --events")
        if self.gantt_us:
            lines += ["", *gantt_lines(self.gantt_us, self.latency_us)]
        return "\n".join(lines)


def act(options: TraceOptions, words: list[str] | None, more: list[str] | None, as_json: bool) -> None:
    """Run the command; raises ``typer.Exit`` if bytes are wrong."""
    options = named(options, words, more)
    if not options.protocol:
        raise ConfigError("PROTOCOL: must be a name of xccl-emu list, or FILE.py:NAME")
    with spinner("trace", as_json):
        result = run(options)
    plain_first.answer()
    if as_json:
        print_json("trace", result)
    else:
        typer.echo(result.render())
        for path in filter(None, (options.html, options.svg)):
            typer.echo(f"written: {path}")
    if result.wrong:
        raise typer.Exit(WRONG)


def run(options: TraceOptions) -> Result:
    """Do it; ConfigError for options that make no sense, before anything runs."""
    from xccl_emu.protocol.registry import make
    from xccl_emu.timing.picture import ACTIONS_MAX, Timeline, page
    from xccl_emu.timing.run import VirtualTime
    from xccl_emu.timing.trace import save_trace

    fabric, costs = _model(options)
    for name in ("out", "html", "svg"):
        check_file(f"--{name}", getattr(options, name))
        if name != "out" and options.dies and getattr(options, name):
            raise ConfigError(f"--{name} {getattr(options, name)}: shows all dies; leave out --dies {options.dies}")
    case = make(options.protocol, **options.sizes)
    check_runs(case)
    trial = case.build("sc")
    dies = _dies(options.dies, trial.pod.spec.n_dies)
    _check_gantt(options, dies or range(trial.pod.spec.n_dies))
    policy = VirtualTime(fabric, costs, log=dies or True)
    trial.pod.policy = policy
    trial.pod.run()
    about = {name: str(value) for name, value in case.configuration.items()}
    about |= {"protocol": options.protocol, "fabric": fabric.name}
    with writing("--out", options.out):
        made = save_trace(policy.timing, options.out, dies, options.events, about)
    title = f"{options.protocol} ({', '.join(f'{name} {value}' for name, value in case.configuration.items())})"
    if options.html is not None:
        with writing("--html", options.html):
            write_text(options.html, page(policy.timing, title))
    if options.svg is not None:
        with writing("--svg", options.svg):
            write_text(options.svg, Timeline(policy.timing, ACTIONS_MAX).svg())
    result = _result(options, dict(case.configuration), policy, trial.wrong_bytes(), made)
    if options.plot is not None:
        draw(result.gantt_us, f"{options.protocol} on {fabric.name}, die {options.gantt}", options.plot)
    return result


def _result(
    options: TraceOptions,
    configuration: dict[str, int | str],
    policy: "VirtualTime",
    wrong: dict[str, int],
    made: "Trace",
) -> Result:
    from xccl_emu.timing.critical import breakdown, by_sync
    from xccl_emu.timing.gantt import gantt

    timing = policy.timing
    path, named = (breakdown(timing), by_sync(timing)) if timing.complete else (None, None)
    bars = {} if options.gantt is None else {name: list(each) for name, each in gantt(timing, options.gantt).items()}
    return Result(
        options.protocol, configuration, policy.fabric.name, timing.latency_us, path, named, sum(wrong.values()),
        wrong, str(options.out), made.slices, made.arrows, made.left_out, made.until_us, bars,
    )  # fmt: skip


def _check_gantt(options: TraceOptions, dies: Collection[int]) -> None:
    """ConfigError for a chart of a die that is not shown, and for a plot of nothing or that cannot be drawn."""
    if options.gantt is not None and options.gantt not in dies:
        raise ConfigError(f"--gantt {options.gantt}: must be one of the dies that are shown")
    if options.plot is not None:
        if options.gantt is None:
            raise ConfigError(f"--plot {options.plot}: needs --gantt")
        check_plot(options.plot)


def _model(options: TraceOptions) -> "tuple[Fabric, Costs]":
    from xccl_emu.timing import topologies

    fabric, costs = topologies.model(options.fabric, options.cost)
    one_of("place", options.place, PLACES)
    if options.place == "packed":
        return fabric, costs
    chips = fabric.chips_per_node if options.place == "chips" else 1
    return replace(fabric, dies_per_chip=1, chips_per_node=chips), costs


def _dies(text: str | None, n_dies: int) -> list[int] | None:
    """The dies of ``"0-3,8"``, of a pod that has ``n_dies``."""
    if text is None:
        return None
    dies: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise ConfigError(f"--dies {text}: must be numbers and ranges of them, for example 0,1 or 0-3,8")
        if int(last or first) >= n_dies:
            raise ConfigError(f"--dies {text}: die {last or first}: the run has dies 0 to {n_dies - 1} (sizes: --set)")
        dies.update(range(int(first), int(last or first) + 1))
    return sorted(dies)


def draw(bars: "Bars", title: str, path: Path) -> None:
    """Draw a bar for each step on each kind of path, the first on top; OutputError if the file cannot be written."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 1.2 + 0.4 * len(bars)), layout="constrained")
    panel = figure.add_subplot()
    for place, (each, colour) in enumerate(zip(bars.values(), _COLOURS * len(bars), strict=False)):
        panel.broken_barh([(begin, end - begin) for begin, end in each], (place - 0.4, 0.8), color=colour)
    panel.set_yticks(range(len(bars)), list(bars), fontsize="small")
    panel.invert_yaxis()
    panel.set(xlabel="us", title=title)
    panel.set_xlim(left=0)
    panel.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)


app = App.of(
    command_of(TraceOptions, act, SET, JSON, first=(WORDS,)),
    no_args_is_help=True, context_settings=ANY_SIZE,
)  # fmt: skip
