"""What ``xccl-emu trace`` does: one case in virtual time, its bytes checked, its trace written."""

from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from typing import Any

import typer

from xccl_emu.cli import sooner
from xccl_emu.cli.cases import named
from xccl_emu.cli.ending import WRONG
from xccl_emu.cli.files import check_file, writing
from xccl_emu.cli.schema import print_json
from xccl_emu.cli.shown import spinner
from xccl_emu.cli.trace import TraceOptions
from xccl_emu.errors import ConfigError
from xccl_emu.output import write_text
from xccl_emu.protocol.registry import make
from xccl_emu.timing import topologies
from xccl_emu.timing.costs import Costs
from xccl_emu.timing.critical import breakdown
from xccl_emu.timing.fabric import Fabric
from xccl_emu.timing.gantt import gantt
from xccl_emu.timing.gantt import lines as gantt_lines
from xccl_emu.timing.page import ACTIONS_MAX, page
from xccl_emu.timing.picture import Timeline
from xccl_emu.timing.run import VirtualTime
from xccl_emu.timing.trace import Trace, save_trace

PLACES = ("packed", "chips", "nodes")


@dataclass(frozen=True)
class Result:
    """What was run and written."""

    protocol: str
    configuration: dict[str, int | str]
    fabric: str
    latency_us: float
    critical_path_us: dict[str, float] | None
    """By resource; none if only some dies were written down."""
    wrong: int
    wrong_bytes: dict[str, int]
    """Wrong bytes of each buffer that has any, and of all together."""
    file: str
    slices: int
    arrows: int
    left_out: int
    until_us: float
    gantt_us: dict[str, list[tuple[float, float]]]
    """Begin and end of each bar of a Gantt chart, by its name; empty if none was asked for."""

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it."""
        return asdict(self)

    def render(self) -> str:
        """Return it as text for people."""
        sizes = " ".join(f"{name}={value}" for name, value in self.configuration.items())
        lines = [f"{self.protocol}: {self.latency_us:.3f} us on {self.fabric}", f"  {sizes}"]
        if self.critical_path_us:
            parts = [f"{what} {us:.3f}" for what, us in self.critical_path_us.items() if us]
            lines.append(f"  critical path, us: {', '.join(parts)}")
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
    sooner.answer()
    if as_json:
        print_json("trace", result.to_json())
    else:
        typer.echo(result.render())
        for path in filter(None, (options.html, options.svg)):
            typer.echo(f"written: {path}")
    if result.wrong:
        raise typer.Exit(WRONG)


def run(options: TraceOptions) -> Result:
    """Do it; ConfigError for options that make no sense, before anything runs."""
    fabric, costs = _model(options)
    for name in ("out", "html", "svg"):
        check_file(f"--{name}", getattr(options, name))
        if name != "out" and options.dies and getattr(options, name):
            raise ConfigError(f"--{name} {getattr(options, name)}: shows all dies; leave out --dies {options.dies}")
    case = make(options.protocol, **options.sizes)
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
        from xccl_emu.cli.gantt_plot import draw

        draw(result.gantt_us, f"{options.protocol} on {fabric.name}, die {options.gantt}", options.plot)
    return result


def _result(
    options: TraceOptions, configuration: dict[str, int | str], policy: VirtualTime, wrong: dict[str, int], made: Trace
) -> Result:
    timing = policy.timing
    path = breakdown(timing) if timing.complete else None
    bars = {} if options.gantt is None else {name: list(each) for name, each in gantt(timing, options.gantt).items()}
    return Result(
        options.protocol, configuration, policy.fabric.name, timing.latency_us, path, sum(wrong.values()),
        wrong, str(options.out), made.slices, made.arrows, made.left_out, made.until_us, bars,
    )  # fmt: skip


def _check_gantt(options: TraceOptions, dies: Collection[int]) -> None:
    """ConfigError for a chart of a die that is not shown, and for a plot of nothing or that cannot be drawn."""
    if options.gantt is not None and options.gantt not in dies:
        raise ConfigError(f"--gantt {options.gantt}: must be one of the dies that are shown")
    if options.plot is not None:
        from xccl_emu.cli.bench_plot import check_plot

        if options.gantt is None:
            raise ConfigError(f"--plot {options.plot}: needs --gantt")
        check_plot(options.plot)


def _model(options: TraceOptions) -> tuple[Fabric, Costs]:
    fabric, costs = topologies.model(options.fabric, options.cost)
    if options.place not in PLACES:
        raise ConfigError(f"--place {options.place}: must be one of {', '.join(PLACES)}")
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
