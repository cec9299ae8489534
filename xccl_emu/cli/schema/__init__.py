"""What ``--json`` prints: one object with a schema, the same words for the same things in all commands.

tools/json_page.py makes docs/records/json.md of the classes of this package, and a test holds what each command prints
against them.  A word has the same type everywhere.  Another schema number means that a word has gone or changed
its type; new words come without one.
"""

import json
from collections.abc import Mapping
from typing import Any

import typer

from xccl_emu import __version__

SCHEMA = "xccl-emu/1"


def print_json(command: str, fields: Mapping[str, Any]) -> None:
    """Print the object of a command to stdout, in one line."""
    typer.echo(json.dumps({"schema": SCHEMA, "command": command, "version": __version__, **fields}))
