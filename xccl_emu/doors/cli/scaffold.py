"""``xccl-emu scaffold``: a case for an operator's folder, with a hole for each thing that the folder does not say."""

from dataclasses import dataclass
from pathlib import Path

import typer

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import option
from xccl_emu.base.output import write_text
from xccl_emu.cli.app import App, command_of
from xccl_emu.cli.files import writing


@dataclass(frozen=True)
class ScaffoldOptions:
    """Write a case for an operator in Ascend C from its folder, with holes to fill.

    PATH_case.py has sizes, inputs and outputs, windows, tiling values and the launch. What op_host and op_kernel do not
    say is a line with `# to fill:`, and a check that comes to such a line ends there, with its name.

    \b
      xccl-emu scaffold ops/pass_on
      xccl-emu check ops/pass_on_case.py:PassOn

    Exit code: 0, 2 wrong usage, no folder of an operator, or a file that is there.
    """

    path: str = option("", "Folder of the operator.", argument=True, metavar="PATH")
    op: str = option("", "Class of the operator, if the folder declares several.", metavar="NAME")
    output: str = option("", "File to write, - for stdout [default: PATH_case.py].", metavar="FILE")
    force: bool = option(False, "Overwrite the file if it is there.")


def act(options: ScaffoldOptions) -> None:
    """Run the command; raises ConfigError, before anything is written, and OutputError."""
    from xccl_emu.doors.ascendc import operator_folder, scaffold

    folder = Path(options.path) if Path(options.path).name not in ("", "..") else Path(options.path).resolve()
    given = Path(options.output) if options.output not in ("", "-") else folder.with_name(f"{folder.name}_case.py")
    operator = operator_folder.read(folder, options.op)
    text = scaffold.text_of(operator, given)
    if options.output == "-":
        return typer.echo(text, nl=False)
    if (given.exists() or given.is_symlink()) and not options.force:
        raise ConfigError(f"--output {given}: is there already; --force overwrites it")
    with writing("--output", given):
        write_text(given, text)
    typer.echo(f"written: {given}")
    for line, what in scaffold.holes_of(text):
        typer.echo(f"to fill: {what} (line {line})")
    typer.echo(f"now: xccl-emu check {given}:{operator.name}")


app = App.of(command_of(ScaffoldOptions, act), no_args_is_help=True)
