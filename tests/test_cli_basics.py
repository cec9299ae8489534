"""The command as a user meets it: help, version, and how it ends."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import xccl_emu
from xccl_emu.cli.main import ReportingGroup
from xccl_emu.errors import (
    CapacityError,
    ConfigError,
    DeadlockError,
    KernelError,
    ReplayError,
    RunError,
    XcclEmuError,
)

HELP_SECONDS_MAX = 0.5


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """``xccl-emu`` with `arguments` in a process of its own."""
    return subprocess.run([sys.executable, "-m", "xccl_emu", *arguments], capture_output=True, text=True)


def test_help_is_fast() -> None:
    """``--help`` takes less than half a second of processor time, whatever else the machine is doing."""

    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    durations = []
    for _ in range(3):
        before = used()
        assert run_command("--help").returncode == 0
        durations.append(used() - before)
    assert min(durations) < HELP_SECONDS_MAX


def test_the_command_line_loads_nothing_heavy() -> None:
    """All subcommands are known before Numba, NumPy or rich are imported; that happens when one of them runs."""
    code = (
        "import sys, typer.main, xccl_emu.cli.main as c; typer.main.get_command(c.app)\n"
        "print([m for m in ('numba', 'llvmlite', 'numpy', 'ml_dtypes', 'rich') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"


def test_help_names_the_subcommands() -> None:
    """``--help`` lists ``run``, and ``run --help`` answers."""
    shown = run_command("--help")
    assert shown.returncode == 0
    assert "Usage: xccl-emu" in shown.stdout
    assert "run" in shown.stdout.split("Commands:")[1]
    assert run_command("run", "--help").returncode == 0


def test_version_is_the_package_version() -> None:
    """``--version`` prints one line with the version that the package has."""
    shown = run_command("--version")
    assert (shown.returncode, shown.stdout) == (0, f"xccl-emu {xccl_emu.__version__}\n")


@pytest.mark.parametrize("arguments", [["--nonsense"], ["nonsense"], ["run", "nonsense"]])
def test_a_wrong_command_line_exits_with_2(arguments: list[str]) -> None:
    """An unknown option or command is named on stderr and is a usage error."""
    shown = run_command(*arguments)
    assert shown.returncode == 2
    assert "nonsense" in shown.stderr
    assert "Traceback" not in shown.stderr


def app_that_raises(error: BaseException) -> typer.Typer:
    """A command line like ours, with a subcommand ``sub fail`` that raises `error`."""
    app = typer.Typer(cls=ReportingGroup, rich_markup_mode=None, pretty_exceptions_enable=False)
    sub = typer.Typer()

    @sub.command()
    def fail() -> None:
        raise error

    @sub.callback()
    def group() -> None:
        pass

    app.add_typer(sub, name="sub")
    return app


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("n_ranks is 1, should be at least 2"), 2),
        (CapacityError("n_ranks is 1, should be at least 2"), 2),
        (RunError("core 3 stopped"), 1),
        (DeadlockError("core 3 waits\nfor address 64"), 1),
        (KernelError("ring.py:7: a yield in a lambda"), 1),
        (ReplayError("the schedule is damaged"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_an_error_of_the_emulator_is_a_message_and_a_code(error: XcclEmuError, code: int) -> None:
    """Whole message on stderr, nothing on stdout, no traceback; 2 for a wrong configuration, 1 for a failed run."""
    result = CliRunner().invoke(app_that_raises(error), ["sub", "fail"])
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == f"xccl-emu: error: {error}\n"


def test_a_bug_keeps_its_traceback() -> None:
    """An error that the emulator did not raise on purpose is not dressed up as a message."""
    result = CliRunner().invoke(app_that_raises(ZeroDivisionError("bug")), ["sub", "fail"])
    assert isinstance(result.exception, ZeroDivisionError)


def test_interrupting_a_command_is_one_line_and_130(tmp_path: Path, repository: Path) -> None:
    """Ctrl-C during a running command ends it with one line on stderr and the shell's code for SIGINT."""
    script = tmp_path / "long.py"
    script.write_text(
        "import time, typer\n"
        "from xccl_emu.cli.main import app, main, run\n"
        "@run.app.command()\n"
        "def wait() -> None:\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "@run.app.command()\n"
        "def other() -> None: ...\n"
        "main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script), "run", "wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(repository)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a background job ignores it
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "xccl-emu: interrupted\n")
