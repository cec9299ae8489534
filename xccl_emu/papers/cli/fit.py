"""`xccl-emu fit`: find the free constants of the timing model again."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xccl_emu.base.output import write_text
from xccl_emu.cli.app import App, AsJson, print_json
from xccl_emu.cli.files import check_file, writing
from xccl_emu.cli.shown import spinner, stdout_console, table

if TYPE_CHECKING:
    from xccl_emu.papers.bench.fit import FittedConstants

Out = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", dir_okay=False, help="Write constants and report to it, TOML.")
]


def fit(out: Out = None, as_json: AsJson = False) -> None:
    """Fit the free constants of the timing model to six rows of Table 7 and one of HIXL, and to no other row.

    Each step runs FusedDispatch and FusedCombine at EP8, EP64 and EP256, and copies by DMA, under other costs; it takes
    minutes. Printed are the constants, how far each may be (the others fitted again) before a row is off by 3%, the
    residual of each row with its sign, and how many percent a row moves for one percent of a constant. A release takes
    its constants from xccl_emu/timing/fitted.toml: write them there with --out.

    Needs scipy: pip install "xccl_emu[fit]".
    """
    from xccl_emu.papers.bench.fit import fit_published
    from xccl_emu.papers.bench.setting import Setting

    check_file("--out", out)
    with spinner("fit", as_json):
        found = fit_published(Setting(data=False), lambda step: typer.echo(step, err=True))
    _print(found, as_json)
    if out is not None:
        from xccl_emu.papers.bench.fit import as_toml

        with writing("--out", out):
            write_text(out, as_toml(found))


def _print(found: "FittedConstants", as_json: bool) -> None:
    """The report, as JSON or as tables."""
    if as_json:
        return print_json("fit", found)
    constants = table("constant", "value", "from", "to", title="Fitted constants")
    for name, value in found.constants.items():
        constants.add_row(name, f"{value:g}", *(f"{end:.3g}" for end in found.intervals[name]))
    names = ("row", "published", "emulated", "unit", "residual", *found.sensitivity)
    residuals = table(*names, title="Percent per percent")
    for row in found.rows:
        moved = [f"{by_row[row.what]:+.3f}" for by_row in found.sensitivity.values()]
        residual = f"{found.residual_percent(row):+.1f}%"
        residuals.add_row(row.what, f"{row.value:g}", f"{found.emulated[row.what]:.1f}", row.unit, residual, *moved)
    console = stdout_console()
    console.print(constants, residuals)
    console.print(f"{len(found.rows)} rows, {len(found.constants)} constants; MAPE {found.mape_percent:.2f}%")


app = App.of(fit)
