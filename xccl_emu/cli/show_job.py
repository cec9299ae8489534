"""What ``xccl-emu show`` does: it replays a witness as ``check --replay`` does, and writes what it has shown."""

from pathlib import Path

import typer

from xccl_emu.check.witness.replay_file import LINE
from xccl_emu.cli import check_job, check_show, ending
from xccl_emu.cli.check import CheckOptions
from xccl_emu.cli.show import ShowOptions
from xccl_emu.errors import ConfigError


def act(options: ShowOptions) -> None:
    """Run the command; raises ``typer.Exit``, ConfigError, and OutputError if a file cannot be written."""
    if not options.witness:
        raise ConfigError("WITNESS: must be a replay file, or a line that begins with xe1:")
    kept = Path(options.witness)
    page = options.html or Path("witness.html" if options.witness.startswith(LINE) else kept.with_suffix(".html"))
    asked = CheckOptions(protocol=options.protocol, replay=kept, html=page, svg=options.svg)
    with check_show.ticking() as progress:
        result = check_job.Job(asked, progress).run()
    check_show.print_and_draw(result)
    if result.verdict.violation is None:
        raise typer.Exit(ending.UNFINISHED)
    for path in filter(None, (page, options.svg)):
        typer.echo(f"written: {path}")
