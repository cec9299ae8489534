"""``xccl-emu show``: a violation that was kept, as a page to be gone through step by step."""

from dataclasses import dataclass
from pathlib import Path

import typer

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import option
from xccl_emu.cli import ending
from xccl_emu.cli.app import App, command_of
from xccl_emu.cli.check import print_and_draw, ticking
from xccl_emu.cli.check_options import CheckOptions


@dataclass(frozen=True)
class ShowOptions:
    """Write a violation as a page of HTML, which needs nothing else, and print it as a table.

    The page has a lane for each pipe and each memory, with arrows where writes leave and become visible; next to
    it the steps, and for the chosen one the line of source, and what flags hold then.

    \b
      xccl-emu show witnesses/found.json  a page in the same folder
      xccl-emu show xe1:eNp1kE...         a line that a failed test has printed
      xccl-emu show kept.json ring_all_gather.py:ring_all_gather --svg run.svg

    Exit code: 0, 2 wrong usage, 3 if the file shows no violation any more.
    """

    witness: str = option("", "A replay file, or a line that begins with xe1:.", argument=True, metavar="WITNESS")
    protocol: str | None = option(None, "FILE.py:NAME of a protocol of yours.", argument=True, metavar="PROTOCOL")
    html: Path | None = option(None, "Page to write [default: the file's name with .html, or witness.html]")
    svg: Path | None = option(None, "Draw the run to a file too.")


def act(options: ShowOptions) -> None:
    """Run the command; raises ``typer.Exit``, ConfigError, and OutputError if a file cannot be written."""
    from xccl_emu.check.witness.replay_file import LINE
    from xccl_emu.cli.check_job import CheckJob

    if not options.witness:
        raise ConfigError("WITNESS: must be a replay file, or a line that begins with xe1:")
    kept = Path(options.witness)
    page = options.html or Path("witness.html" if options.witness.startswith(LINE) else kept.with_suffix(".html"))
    asked = CheckOptions(protocol=options.protocol, replay=kept, html=page, svg=options.svg)
    with ticking() as (progress, _):
        result = CheckJob(asked, progress).run()
    print_and_draw(result)
    if result.verdict.violation is None:
        raise typer.Exit(ending.UNFINISHED)
    for path in filter(None, (page, options.svg)):
        typer.echo(f"written: {path}")


app = App.of(command_of(ShowOptions, act), no_args_is_help=True)
