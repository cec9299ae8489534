"""What ``--json`` prints: one object with a schema, the same words for the same things in all commands.

tools/json_page.py makes docs/records/json.md of the records that commands print, and a test holds what each command
prints against them.  Another schema number means that a word has gone or changed its type; new words come without one.
"""

import json
from dataclasses import dataclass
from typing import Annotated

import typer

from xccl_emu import __version__
from xccl_emu.words import Printed


@dataclass(frozen=True)
class Envelope(Printed):
    """Words of every object."""

    FIRST = ("schema",)
    command: Annotated[str, "the command that printed it"]
    schema: Annotated[str, "`xccl-emu/1`, this page"] = "xccl-emu/1"
    version: Annotated[str, "version of xccl_emu"] = __version__


def print_json(command: str, result: Printed) -> None:
    """Print the object of a command to stdout, in one line."""
    typer.echo(json.dumps(Envelope(command).to_json() | result.to_json()))
