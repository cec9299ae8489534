"""What the tests of the command share: running it in this process."""

import json
from typing import Any

from typer.testing import CliRunner

from xccl_emu.cli.main import app


def invoke(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command in this process; an error that it does not tell of is raised here."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def as_json(*arguments: str) -> dict[str, Any]:
    """The JSON of a command that must succeed."""
    code, out, err = invoke(*arguments, "--json")
    assert code == 0, err
    result: dict[str, Any] = json.loads(out)
    return result
