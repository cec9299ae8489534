"""``xccl-emu plan``: which parallel strategy serves a model on a cluster best."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import option
from xccl_emu.cli.app import JSON, App, command_of, file
from xccl_emu.cli.ending import WRONG
from xccl_emu.cli.files import check_plot

if TYPE_CHECKING:
    from xccl_emu.papers.plan.costs import PlanSetting
    from xccl_emu.papers.plan.strategies import Estimate, RequestStream


@dataclass(frozen=True)
class Planning:
    """Rank every parallel strategy of a model on a cluster, by the analyzer of MixServe (III-B), and say why.

    \b
      xccl-emu plan                                   DeepSeek-R1 on 910B
      xccl-emu plan --model Qwen3-235B-A22B --cluster H20 --rate 4
      xccl-emu plan --model mine.toml --cluster 910B  a file of yours
      xccl-emu plan --strategy "TP=8 + DP=4, EP=32"   this one
      xccl-emu plan --observed mine.toml              as it was measured
      xccl-emu plan --published                       and what was measured

    A strategy is attention, experts [stages]: TP splits tensors, DP requests, EP experts, PP layers. What is written
    first is within a node. Times are sums of terms: compute, all-reduce (AR) or its halves (RS, AG), all-to-all (A2A),
    P2P. No device is at hand, none is emulated: these are equations.

    Several equations are wrong as printed: docs/records/mixserve.md says how, and gives corrected ones, which are used
    unless --literal asks for the others. Exit code 1: no strategy is possible, or the one of --strategy is not.
    """

    model: str = option("DeepSeek-R1", "DeepSeek-R1, Qwen3-235B-A22B, or a TOML file.", metavar="NAME|FILE")
    cluster: str = option("910B", "910B, H20, or a TOML file.", metavar="NAME|FILE")
    rate: float = option(2.0, "Requests a second; the paper has 2, 4 and 8.")
    batch: int = option(16, "Requests at once.", least=1)
    input: int = option(220, "Tokens of a prompt; the paper does not say how many.", least=1)
    output: int = option(200, "Tokens of an answer; the same.", least=1)
    context: int = option(4096, "Tokens that memory must have room for in every request.", least=1)
    by: str = option("throughput", "What strategies are ranked by: throughput, ttft or itl.", metavar="ORDER")
    strategy: str | None = option(None, "One strategy, such as: TP=8 + DP=4, TP=8 + EP=4 [PP=1]")
    device: int | None = option(None, "Say which weights this device has, under --strategy or the best one.", least=0)
    top: int = option(10, "Rows of the table.", least=1)
    literal: bool = option(False, "The equations as they are printed.")
    correct: tuple[str, ...] = option(
        (), "With --literal: but this one corrected, 1, 2, 4, 7, 8, 11 or 13; may be given again.", metavar="EQUATION"
    )
    sync: bool = option(False, "Nothing overlaps: Eq. (13) as printed.")
    drop: bool = option(False, "Experts without TP get each token once, Eq. (5), not from a whole TP group, (12).")
    observed: str | None = option(
        None, "Your own measurements, to which constants of the cluster are fitted.", metavar="FILE"
    )  # fmt: skip
    published: bool = option(False, "The paper's own strategies, next to its measurements.")


def _plan(options: Planning, as_json: bool, plot: Path | None) -> None:
    from xccl_emu.papers.cli import plan_show
    from xccl_emu.papers.plan.observed import load_observed
    from xccl_emu.papers.plan.strategies import RequestStream, plan

    check_plot(plot)
    _check(options, plot)
    workload = RequestStream(options.rate, options.input, options.output, options.context)
    setting = _setting(options)
    if options.published:
        return _compare(setting, workload, as_json)
    setting, points = (setting, ()) if options.observed is None else load_observed(options.observed).fit(setting)
    found = plan(setting, workload, options.by)
    chosen = _chosen(options, setting, workload)
    shown = plan_show.Shown(found, chosen, options.by, options.top, points, options.device)
    plan_show.show(shown, as_json)
    if plot is not None and found.ranked:
        plan_show.draw(shown, plot)
    sentence = plan_show.outcome(shown)
    if sentence:
        typer.echo(f"xccl-emu: {sentence}", err=True)
        raise typer.Exit(WRONG)


def _check(options: Planning, plot: Path | None) -> None:
    """ConfigError for options that do not go together."""
    if options.correct and not options.literal:
        raise ConfigError(f"--correct {options.correct[0]}: needs --literal; without it all equations are corrected")
    asked = options.model, options.cluster, options.strategy, options.observed, options.device
    chosen = asked != (Planning.model, Planning.cluster, None, None, None)
    if options.published and (chosen or plot is not None):
        raise ConfigError(
            "--published: cannot be combined with --model, --cluster, --strategy, --observed, --device, --plot"
        )


def _setting(options: Planning) -> "PlanSetting":
    from xccl_emu.papers.plan.cluster import load_cluster
    from xccl_emu.papers.plan.costs import CORRECTED, PlanSetting, literal_but_for
    from xccl_emu.papers.plan.model import load_model

    form = literal_but_for(options.correct) if options.literal else CORRECTED
    model, cluster = load_model(options.model), load_cluster(options.cluster)
    return PlanSetting(model, cluster, options.batch, form, not options.sync, options.drop)


def _chosen(options: Planning, setting: "PlanSetting", workload: "RequestStream") -> "Estimate | None":
    from xccl_emu.papers.plan.grammar import parse
    from xccl_emu.papers.plan.strategies import Estimate

    if options.strategy is None:
        return None
    cluster = setting.cluster
    return Estimate(parse(options.strategy, cluster.devices, cluster.devices_per_node), setting, workload)


def _compare(setting: "PlanSetting", workload: "RequestStream", as_json: bool) -> None:
    from xccl_emu.papers.cli.bench_show import show
    from xccl_emu.papers.plan.published import PublishedRows, compared

    rows = compared(setting, workload)
    show(PublishedRows(rows, setting.form.text, setting.batch, workload), as_json, "plan")


app = App.of(command_of(Planning, _plan, JSON, file("plot", "Draw the terms to a PNG, SVG or PDF file.")))
