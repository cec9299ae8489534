"""What the tests of the command share: running it in this process."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from typer.testing import CliRunner

from xccl_emu.cli.main import app


def invoke(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command in this process; an error that it does not tell of is raised here."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def printed(*arguments: str, code: int = 0) -> str:
    """What a command prints that must end so."""
    ended, out, err = invoke(*arguments)
    assert ended == code, err
    return out


def refusal(*arguments: str) -> str:
    """What is said of a command that makes no sense, in one line."""
    code, out, err = invoke(*arguments)
    assert (code, out) == (2, "")
    return " ".join(err.split())


def as_json(*arguments: str, code: int = 0) -> dict[str, Any]:
    """The JSON of a command that must end so."""
    result: dict[str, Any] = json.loads(printed(*arguments, "--json", code=code))
    return result


def hear_interrupts() -> None:
    """For ``preexec_fn``: a job in the background ignores Ctrl-C, and so would what it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def python(script: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """A script in a process of its own, and what it prints."""
    usual = {"capture_output": True, "text": True, "preexec_fn": hear_interrupts}
    return subprocess.run([sys.executable, "-c", script], **{**usual, **options})


def run_command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``xccl-emu`` with these words in a process of its own, with more in its environment."""
    command = [sys.executable, "-m", "xccl_emu", *words]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


def interrupted(
    words: Sequence[str], wait_s: float, said: str | None = None, sent: int = signal.SIGINT, **options: Any
) -> tuple[int, str, float]:
    """Exit code and stderr of Python with these words, which says a line, hears a signal so many seconds behind it, and
    is given half a minute to end; and the seconds that it took."""
    with subprocess.Popen(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=hear_interrupts, **options,
    ) as process:  # fmt: skip
        if said is not None:
            assert process.stdout is not None
            assert process.stdout.readline() == said
        time.sleep(wait_s)
        started = time.monotonic()
        process.send_signal(sent)
        try:
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()  # one that did not hear it would be waited for
    return process.returncode, errors, time.monotonic() - started
