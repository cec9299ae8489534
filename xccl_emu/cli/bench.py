"""`xccl-emu bench NAME`: the published measurements, made again, with what was published beside."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from xccl_emu.bench.result import Result
    from xccl_emu.bench.stage import Stage

app = typer.Typer(
    help="Make published measurements again in virtual time: what was published, what comes out, and the error.",
    no_args_is_help=True,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON and nothing else.")]
Csv = Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the rows to a CSV file as well.")]


@app.callback()
def _group() -> None:
    """Make published measurements again in virtual time: what was published, what comes out, and the error.

    A row's role says what its published number may be used for: an "input" was put in as it is, free constants are
    fitted to "fit" rows, "check" rows are compared and never fitted to, "shown" ones are not scored, "exact" ones must
    come out exactly. Errors are signed. Exit code 1 if data that was moved is wrong, or an exact row differs.
    """


def _bench(make: "Callable[[Stage], Sequence[Result]]", as_json: bool, csv: Path | None) -> None:
    """Run a bench and show its rows; exit code 1 if one of them failed."""
    from xccl_emu.cli.bench_show import show, write_csv
    from xccl_emu.cli.show import Stages

    results = make(Stages(quiet=as_json))
    if csv is not None:
        write_csv(results, csv)
    show(results, as_json)
    if any(result.failed for result in results):
        raise typer.Exit(1)


@app.command()
def links(as_json: AsJson = False, csv: Csv = None) -> None:
    """Latency of 512 bytes and bandwidth of each path and direction, by kernels that read and write (Table 1)."""
    from xccl_emu.bench.links import links as make

    _bench(make, as_json, csv)


@app.command()
def buffers(as_json: AsJson = False, csv: Csv = None) -> None:
    """Sizes that must come out exactly: messages, buffers and metadata, as the protocols lay them out on the pod."""
    from xccl_emu.bench.buffers import buffers as make

    _bench(make, as_json, csv)
