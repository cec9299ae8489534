"""``xccl-emu plan``: which parallel strategy serves a model on a cluster best."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from xccl_emu.cli.ending import WRONG
from xccl_emu.cli.options import JSON, command_of, file
from xccl_emu.errors import ConfigError
from xccl_emu.plan.options import Planning

if TYPE_CHECKING:
    from xccl_emu.plan.costs import Setting
    from xccl_emu.plan.strategies import Estimate, Workload


def _plan(options: Planning, as_json: bool, plot: Path | None) -> None:
    from xccl_emu.cli import plan_show
    from xccl_emu.plan.strategies import Workload, plan

    if plot is not None:
        from xccl_emu.cli.bench_plot import check_plot

        check_plot(plot)
    _check(options, plot)
    workload = Workload(options.rate, options.input, options.output, options.context)
    setting = _setting(options)
    if options.published:
        return _compare(setting, workload, as_json)
    found = plan(setting, workload, options.by)
    chosen = _chosen(options, setting, workload)
    shown = plan_show.Shown(found, chosen, options.by, options.top)
    plan_show.show(shown, as_json)
    if plot is not None and found.ranked:
        from xccl_emu.cli.plan_plot import draw

        draw(shown, plot)
    sentence = plan_show.outcome(shown)
    if sentence:
        typer.echo(f"xccl-emu: {sentence}", err=True)
        raise typer.Exit(WRONG)


def _check(options: Planning, plot: Path | None) -> None:
    """ConfigError for options that do not go together."""
    if options.correct and not options.literal:
        raise ConfigError(f"--correct {options.correct[0]}: needs --literal; without it all equations are corrected")
    chosen = (options.model, options.cluster, options.strategy) != (Planning.model, Planning.cluster, None)
    if options.published and (chosen or plot is not None):
        raise ConfigError("--published: cannot be combined with --model, --cluster, --strategy, --plot")


def _setting(options: Planning) -> "Setting":
    from xccl_emu.plan.cluster import load_cluster
    from xccl_emu.plan.costs import Setting
    from xccl_emu.plan.forms import CORRECTED, literal_but_for
    from xccl_emu.plan.model import load_model

    form = literal_but_for(options.correct) if options.literal else CORRECTED
    model, cluster = load_model(options.model), load_cluster(options.cluster)
    return Setting(model, cluster, options.batch, form, not options.sync, options.drop)


def _chosen(options: Planning, setting: "Setting", workload: "Workload") -> "Estimate | None":
    from xccl_emu.plan.grammar import parse
    from xccl_emu.plan.strategies import Estimate

    if options.strategy is None:
        return None
    cluster = setting.cluster
    return Estimate(parse(options.strategy, cluster.devices, cluster.devices_per_node), setting, workload)


def _compare(setting: "Setting", workload: "Workload", as_json: bool) -> None:
    from xccl_emu.cli.bench_show import show
    from xccl_emu.plan.published import compared

    about = {"form": setting.form.text, "batch": setting.batch, "workload": asdict(workload)}
    show(compared(setting, workload), as_json, "plan", about)


plan = command_of(Planning, _plan, JSON, file("plot", "Draw the terms to a PNG, SVG or PDF file."))
