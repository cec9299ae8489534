"""The command as a user meets it: help, version, and how it ends."""

import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import xccl_emu
from tests.cli_support import interrupted, python, refusal, run_command
from xccl_emu.base import errors
from xccl_emu.cli import ending
from xccl_emu.cli.main import ORDER, SECTIONS, ReportingGroup
from xccl_emu.cli.shown import stdout_console

HELP_MOST = 4.0
"""Processor time of ``--help``, in that of importing the library that prints it, which is less than half of it."""


def test_help_is_fast() -> None:
    """``--help`` takes little more than its library does to load, whatever else the machine is doing."""

    def used(*words: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert subprocess.run([sys.executable, *words], capture_output=True).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    ratios = [used("-m", "xccl_emu", "--help") / used("-c", "import typer.main") for _ in range(3)]
    assert min(ratios) < HELP_MOST


def test_the_command_line_loads_nothing_heavy() -> None:
    """All subcommands are known before Numba, NumPy or rich are imported; that happens when one of them runs."""
    code = (
        "import sys, typer.main, xccl_emu.cli.main as c; [*typer.main.get_command(c.app).commands.values()]\n"
        "print([m for m in ('numba', 'llvmlite', 'numpy', 'ml_dtypes', 'rich') if m in sys.modules])"
    )
    assert python(code, check=True).stdout.strip() == "[]"


def test_without_a_command_there_is_help() -> None:
    """``xccl-emu`` alone shows its help as wrong usage, though that speaks of memory that is not enough."""
    shown = run_command()
    assert (shown.returncode, shown.stdout) == (ending.USAGE, "")
    assert shown.stderr.startswith("Usage: xccl-emu")


def test_help_names_the_subcommands() -> None:
    """``--help`` lists all in their sections, each with a whole sentence, and ``run --help`` answers."""
    shown = run_command("--help")
    assert shown.returncode == 0
    assert "Usage: xccl-emu" in shown.stdout
    commands = shown.stdout.partition("Write and run:")[2].partition("Exit codes")[0]
    assert [line.split()[0] for line in commands.splitlines() if line[:2] == "  " and line[2:3].strip()] == list(ORDER)
    assert [line.rstrip(":") for line in commands.splitlines() if line and line[0] != " "] == list(SECTIONS)[1:]
    assert "..." not in commands
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
        (errors.ConfigError("n_ranks is 1, should be at least 2"), 2),
        (errors.CapacityError("n_ranks is 1, should be at least 2"), 2),
        (errors.RunError("core 3 stopped"), 1),
        (errors.DeadlockError("core 3 waits\nfor address 64"), 1),
        (errors.KernelError("ring.py:7: a yield in a lambda"), 2),
        (errors.KernelArithmeticError("division by zero"), 1),
        (errors.ReplayError("the schedule is damaged"), 2),
        (errors.UnfinishedError("2 of 3 failed"), 3),
        (errors.OutputError("--out x: cannot be written"), 5),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_an_error_of_the_emulator_is_a_message_and_a_code(error: errors.XcclEmuError, code: int) -> None:
    """Whole message on stderr, nothing on stdout, no traceback; a code for each outcome."""
    result = CliRunner().invoke(app_that_raises(error), ["sub", "fail"])
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == f"xccl-emu: error: {error}\n"


@pytest.mark.parametrize(
    ("error", "kept"), [(ZeroDivisionError("bug"), ZeroDivisionError), (EOFError("ran out of input"), RuntimeError)]
)
def test_a_bug_keeps_its_traceback(error: Exception, kept: type[Exception]) -> None:
    """An error that the emulator did not raise on purpose is not dressed up as a message; nor is the end of a file
    taken for a user who has left, of whom all that is said is "Aborted!"."""
    result = CliRunner().invoke(app_that_raises(error), ["sub", "fail"])
    assert isinstance(result.exception, kept)


NOT_LOADED = OSError("could not load libx.so")
NOT_LOADED.__cause__ = OSError("libx.so: failed to map segment from shared object")


@pytest.mark.parametrize("error", [MemoryError("Unable to allocate 106. GiB"), NOT_LOADED])
def test_no_memory_is_no_answer(error: Exception) -> None:
    """One line that says so, and the code of what could not be finished; what caused the error of a library counts."""
    result = CliRunner().invoke(app_that_raises(error), ["sub", "fail"])
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr.startswith("xccl-emu: error: not enough memory")
    assert ("(Unable to allocate 106. GiB)" in result.stderr) == isinstance(error, MemoryError)


@pytest.mark.parametrize(
    ("error", "code", "last"),
    [
        ("ZeroDivisionError('x')", 4, "xccl-emu: this is a bug of xccl-emu: please report it"),
        ("KeyboardInterrupt", 130, "xccl-emu: interrupted"),
        ("MemoryError", 3, "xccl-emu: error: not enough memory; take less, or allow more (ulimit -v)"),
        ("ImportError('libx.so: failed to map segment from shared object')", 3, "(ulimit -v)"),
        ("SystemExit(143)", 143, "xccl-emu: terminated"),
        ("SystemExit(1)", 1, ""),
    ],
)
def test_every_end_has_a_code(error: str, code: int, last: str) -> None:
    """Outside of any command too: while it is imported, or in the library that reads the command line."""
    script = f"from xccl_emu.cli.ending import run_to_end\ndef f(): raise {error}\nrun_to_end(f)"
    done = python(script)
    assert (done.returncode, done.stderr.strip().endswith(last)) == (code, True), done.stderr
    assert ("Traceback" in done.stderr) == (code == 4)


@pytest.mark.parametrize(("sent", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize("made", ["RuntimeError('flaky')", "ConfigError('cannot be imported')"])
def test_a_signal_that_a_library_makes_an_error_of(made: str, sent: str, code: int) -> None:
    """Hypothesis takes it for a test that is flaky, an import for a file that fails; it ends as the signal says."""
    done = python(MADE_AN_ERROR.format(made=made, sent=sent))
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


MADE_AN_ERROR = """
import os, signal, time, typer
from xccl_emu.cli import ending, main
from xccl_emu.base.errors import ConfigError
def command():
    with main._reported():
        try:
            os.kill(os.getpid(), signal.{sent})
            time.sleep(5)
        except BaseException:
            raise {made}
ending.run_to_end(command)
"""


def test_names_are_no_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    """A name between colons is printed as it is."""
    stdout_console().print("mailbox.py:Mailbox: 3")
    assert capsys.readouterr().out == "mailbox.py:Mailbox: 3\n"


def test_a_protocol_that_ends_the_process_is_no_answer(tmp_path: Path) -> None:
    """``os._exit(0)`` in a case would look like a proof."""
    (tmp_path / "leaves.py").write_text(BY_A_USER.partition("@dataclass")[0] + LEAVES)
    done = python(f"import sys; sys.argv[1:] = ['check', '{tmp_path}/leaves.py:Leaves']\n{MAIN}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the protocol ended the process (SystemExit: 0)" in done.stderr


MAIN = "from xccl_emu.__main__ import main; main()"
LEAVES = """
import os
@dataclass(frozen=True)
class Leaves(Case):
    def lay_out(self, bench):
        os._exit(0)
"""


@pytest.mark.parametrize("words", [("run", "sendrecv", "--nbytes", "３２"), ("campaign", "--words=３")])
def test_numbers_are_written_with_ascii_digits(words: tuple[str, ...]) -> None:
    """Digits of other scripts, which Python takes, are refused before anything is read."""
    assert "must be written with the digits 0 to 9" in refusal(*words)


@pytest.mark.parametrize(("sent", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize("within", ["ctypes.CFUNCTYPE(None)(wait)()", "Dropped() and None"])
def test_a_signal_within_a_callback_is_heard_behind_it(within: str, sent: str, code: int) -> None:
    """What ctypes and the garbage collector call drops every exception, that of a signal too; then it comes again."""
    done = python(IN_A_CALLBACK.format(within=within, sent=sent))
    assert done.returncode == code, done.stderr
    assert "ignored" not in done.stderr


IN_A_CALLBACK = """
import ctypes, os, signal, time
from xccl_emu.cli.ending import run_to_end
def wait():
    os.kill(os.getpid(), signal.{sent})
    time.sleep(0.5)
class Dropped:
    def __del__(self):
        wait()
def command():
    {within}
    time.sleep(5)
run_to_end(command)
"""


@pytest.mark.parametrize(("sent", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_that_a_library_drops_comes_again(sent: str, code: int) -> None:
    """Twice an error is cleared with what it stood for; cleaning up behind the third one takes its time in peace."""
    done = python(DROPPED.format(sent=sent))
    assert (done.returncode, done.stdout) == (code, "clean\n"), done.stderr
    assert "Traceback" not in done.stderr


DROPPED = """
import contextlib, os, signal, time
from xccl_emu.cli import ending
ending._DROPPED_S = 0.1
def command():
    for _ in range(2):
        with contextlib.suppress(BaseException):
            os.kill(os.getpid(), signal.{sent}) if not ending._heard else None
            time.sleep(5)
    try:
        time.sleep(5)
    finally:
        time.sleep(0.3)
        print("clean")
ending.run_to_end(command)
"""

BY_A_USER = """
from dataclasses import dataclass
from xccl_emu.protocol import Case, Regions, size
@dataclass(frozen=True)
class Own(Case):
    '''One of a user.'''
    dies: int = DEFAULT
    def lay_out(self, bench):
        FAILS
"""


@pytest.mark.parametrize(
    ("default", "fails", "told"),
    [
        ("size(2)", "pod", "own.py:9, in lay_out: NameError: name 'pod' is not defined"),
        ("size(2)", "[].pop()", "own.py:9, in lay_out: IndexError: pop from empty list"),
        ("size(2)", "Regions(2).meta('tail', 8, 'x')", "count='x': must be a whole number (FOLDER/own.py:9)"),
        ("size(2.5)", "pass", "Own.dies: must have a number or text as its default, as size(2)"),
        ("none", "pass", "own.py:7: NameError: name 'none' is not defined)"),
    ],
)
def test_a_bug_of_a_user_is_none_of_the_emulator(default: str, fails: str, told: str, tmp_path: Path) -> None:
    """What a protocol in a file does wrong is told by file and line in one sentence, and is wrong usage."""
    (tmp_path / "own.py").write_text(BY_A_USER.replace("DEFAULT", default).replace("FAILS", fails))
    shown = run_command("list", f"{tmp_path}/own.py:Own")
    assert (shown.returncode, shown.stdout) == (ending.USAGE, "")
    assert shown.stderr.startswith("xccl-emu: error: ")
    assert shown.stderr.endswith(f"{told.replace('FOLDER', os.path.relpath(tmp_path))}\n")


def test_all_codes_are_told() -> None:
    """``--help`` lists every exit code that there is."""
    shown = " ".join(run_command("--help").stdout.split("Exit codes")[1].split())
    named = [value for name, value in vars(ending).items() if name.isupper() and isinstance(value, int)]
    assert len(named) == 8
    assert all(str(code) in shown for code in named)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["check", "--help"]])
def test_a_reader_who_has_gone(arguments: list[str]) -> None:
    """The code of SIGPIPE and no word, wherever it is noticed."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        command = [sys.executable, "-m", "xccl_emu", *arguments]
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.slow
def test_a_page_for_a_reader_who_has_gone(tmp_path: Path) -> None:
    """`check --html FILE | head` writes the page, whether or not somebody reads the table to its end."""
    reading, writing = os.pipe()
    os.close(reading)
    for more in ([], ["--json"]):
        page = tmp_path / f"page{len(more)}.html"
        check = ["check", "sendrecv", "--slots", "1", "--chunks", "1", "--without", "tail", "--html", str(page), *more]
        done = subprocess.run([sys.executable, "-m", "xccl_emu", *check], stdout=writing, stderr=subprocess.PIPE)
        assert (done.returncode, page.read_text()[-8:]) == (141, "</html>\n")
    os.close(writing)


def test_a_table_for_a_reader_who_has_gone() -> None:
    """A table on a broken pipe raises the error that it is, so that the command can tell it from others."""
    script = "import os; os.close(1); r, w = os.pipe(); os.close(r); os.dup2(w, 1)\n"
    script += "from xccl_emu.cli.shown import stdout_console as c\n"
    script += "try: c().print('x')\nexcept BrokenPipeError: os._exit(77)"
    assert python(script, capture_output=False).returncode == 77


def test_streams_that_are_closed_lead_nowhere() -> None:
    """Without stdin, stdout and stderr the code says what came of it, also that an answer could not be written."""
    for arguments, code in ((["--version"], 5), (["list"], 5), (["check", "ring"], 2)):
        command = f"{shlex.join([sys.executable, '-m', 'xccl_emu', *arguments])} <&- >&- 2>&-"
        assert subprocess.run(["sh", "-c", command]).returncode == code


def test_characters_that_stdout_does_not_have() -> None:
    """They are shown as question marks, where stdout has another encoding."""
    script = "from xccl_emu.cli.ending import run_to_end\nrun_to_end(lambda: print('0→1 \\udcff'))"
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = python(script, env=environment, text=False)
    assert (done.returncode, done.stdout) == (0, b"0?1 ?\n")


def test_interrupted_before_it_has_begun() -> None:
    """Ctrl-C while the command still imports what it needs ends it with one line, too."""
    seen = {interrupted(["-c", SLOW_START], wait_s, "begun\n")[:2] for wait_s in (0.1, 0.2, 0.4, 0.6)}
    assert seen == {(130, "xccl-emu: interrupted\n")}


def test_interrupted_before_the_package_is_there(tmp_path: Path, repository: Path) -> None:
    """Ctrl-C while the package itself is imported ends the command with one line, and no traceback."""
    (tmp_path / "hashlib.py").write_text(
        "print('begun', flush=True)\nimport time\nfor _ in range(300): time.sleep(0.1)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{repository}"}
    code, errors, _ = interrupted(["-m", "xccl_emu", "--version"], 0, "begun\n", env=environment)
    assert (code, errors) == (130, "xccl-emu: interrupted\n")


SLOW_START = """
def command():
    print("begun", flush=True)
    import numba, rich.table, xccl_emu.protocol.registry, xccl_emu.cli.main
    import time
    for _ in range(300):
        time.sleep(0.1)
from xccl_emu.cli.ending import run_to_end
run_to_end(command)
"""


def test_interrupting_a_command_is_one_line_and_130(tmp_path: Path, repository: Path) -> None:
    """Ctrl-C during a running command ends it with one line on stderr and the shell's code for SIGINT."""
    script = tmp_path / "long.py"
    script.write_text(
        "import time, typer\n"
        "from xccl_emu.__main__ import main\nfrom xccl_emu.cli import run\n"
        "@run.app.command()\n"
        "def wait() -> None:\n"
        "    print('ready', flush=True)\n"
        "    for _ in range(600):\n"  # a signal in front of the call that sleeps is heard behind it
        "        time.sleep(0.1)\n"
        "@run.app.command()\n"
        "def other() -> None: ...\n"
        "main()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    code, errors, _ = interrupted([str(script), "run", "wait"], 0, "ready\n", env=environment)
    assert (code, errors) == (130, "xccl-emu: interrupted\n")


def test_the_command_says_what_it_compiles() -> None:
    """Whoever starts the command is told of each family that is compiled, once, on stderr."""
    script = (
        "import sys; from xccl_emu import __main__, _cache\n"
        "sys.argv = ['xccl-emu', '--version']\n"
        "try: __main__.main()\n"
        "except SystemExit: pass\n"
        "for family in ('machine', 'machine', 'kernels'): _cache.tell_compiling(family)\n"
    )
    done = python(script, check=True)
    assert done.stderr.splitlines() == ["xccl-emu: compiling, once: the machine", "xccl-emu: compiling, once: kernels"]
