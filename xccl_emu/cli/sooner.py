"""An answer before the compiler: while this process compiles, another one runs the same command in plain Python.

Whoever is through first answers.  Both do the same steps, so verdicts, states and times in the model are the same; only
seconds differ.  A command whose answer depends on seconds is left to the compiled one.
"""

import atexit
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence

from xccl_emu import _early
from xccl_emu.bench import processes
from xccl_emu.cli import ending

COMMANDS = ("check", "trace")
BY_SECONDS = ("--seconds", "--certify", "--certify-seconds", "--each-sync", "--weakest", "--advice-seconds")
"""Options with which it depends on seconds what is found."""
PATIENCE_S = 45.0
"""How long plain Python may take: less than the search may by default."""

_once = threading.Lock()
"""Whoever holds it answers."""
_started: list[subprocess.Popen[bytes]] = []


def listen(family: str) -> None:
    """Start the other process when more than kernels is compiled, if this process is such a command."""
    if family != "kernels" and not _started and _applies(sys.argv[1:]):
        process = _start()
        _started.append(process)
        atexit.register(_end, process)
        threading.Thread(target=_answer_for, args=(process,), daemon=True).start()


def answer() -> None:
    """Whoever calls it is through and answers; the other process is ended."""
    if _started:
        _once.acquire()
        _end(_started[0])


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _applies(words: Sequence[str]) -> bool:
    if not _early.IS_COMMAND or os.environ.get("XCCL_EMU_PLAIN_FIRST") == "0":
        return False
    return words[0] in COMMANDS and {word.partition("=")[0] for word in words}.isdisjoint(BY_SECONDS)


def _start() -> subprocess.Popen[bytes]:
    size = shutil.get_terminal_size()
    shown = {"COLUMNS": str(size.columns), "LINES": str(size.lines), "FORCE_COLOR": "1"} if sys.stdout.isatty() else {}
    script = f"from xccl_emu.cli import sooner; sooner.run_plainly({os.getpid()})"
    return subprocess.Popen(
        [sys.executable, "-c", script, *sys.argv[1:]],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0,
        env={**os.environ, **shown, "XCCL_EMU_WITHOUT_NUMBA": "1"},
    )  # fmt: skip


def run_plainly(parent: int) -> None:
    """What the other process does; it ends with the one that has started it."""
    processes.end_with(parent)
    from xccl_emu import __main__

    __main__.main()


def _answer_for(process: subprocess.Popen[bytes]) -> None:
    """Print what the other process says, and end this one, unless this one was faster or the other one has failed."""
    try:
        said, _ = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return
    if process.returncode not in (0, ending.WRONG) or not _once.acquire(blocking=False):
        return
    if sys.stderr.isatty():
        os.write(2, b"\r\x1b[2K\x1b[?25h")  # the line that spins, and the cursor
    ending.say("answered by plain Python, before all was compiled")
    try:
        sys.stdout.buffer.write(said)
        sys.stdout.flush()
    except OSError:
        os._exit(ending.READER_GONE)
    os._exit(process.returncode)
