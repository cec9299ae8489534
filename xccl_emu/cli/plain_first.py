"""Plain Python first: while this process compiles, another one runs the same command in plain Python.

The first to finish answers.  Both do the same steps, so verdicts, states and times in the model are the same; only
seconds differ.  A command whose answer depends on seconds is left to the compiled one.

Where plain Python was first, a third process compiles on after the answer, at low priority, so that a next command has
the machine code.  One at a time does; a command that comes meanwhile waits for it, with plain Python of its own.
"""

import atexit
import fcntl
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO

from xccl_emu.base import early, jobs
from xccl_emu.cli import ending
from xccl_emu.jit import cache

COMMANDS = ("check", "trace")
BY_SECONDS = (
    "--certify", "--certify-seconds", "--confirm-seconds", "--each-sync", "--weakest", "--advice-seconds", "--on",
)  # fmt: skip
"""Options with which it depends on seconds what is found."""
DRAWN = ("--policy", "--fault")
"""With these ``--seconds`` is one of them: a search that does not end in that time gives no answer that is taken."""
PATIENCE_S = 45.0
"""How long plain Python may take: less than the search may by default."""
BEHIND_CPU_S = 600
"""What compiling after an answer may take: ten times what all functions of a check take."""
NICENESS = 10

_once = threading.Lock()
"""The thread that holds it answers."""
_started: list[subprocess.Popen[bytes]] = []
_locks: list[IO[bytes]] = []
"""What this process holds as long as it lives."""
_behind = threading.Event()
"""Set where this process compiles after an answer that has been given."""


def listen(family: str) -> None:
    """Start the other process when more than kernels is compiled, if this process is such a command.

    As long as it runs, wait for a process that is compiling the same after an earlier answer.
    """
    if family == "kernels" or _once.locked() or not (_started or _applies(sys.argv[1:])):
        return
    if not _started:
        process = _start()
        _started.append(process)
        atexit.register(_end, process)
        threading.Thread(target=_answer_for, args=(process,), daemon=True).start()
    while _started[0].poll() is None and not _is_free():
        time.sleep(0.1)


def answer(is_last: bool = True) -> None:
    """Claim the right to answer, by files as well: the first caller wins, and the other process is ended.

    If this answer is not the last, a process that still compiles goes on, since the next one needs machine code too.
    """
    if _behind.is_set() and is_last:
        os._exit(0)
    _once.acquire(blocking=bool(_started))  # within one process there may be several commands
    if _started:
        _end(_started[0])


def is_plain() -> bool:
    """Return True if this is the process that runs a command in plain Python, while another one compiles."""
    return "XCCL_EMU_WITHOUT_NUMBA" in os.environ


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _applies(words: Sequence[str]) -> bool:
    if not early.IS_COMMAND or os.environ.get("XCCL_EMU_PLAIN_FIRST") == "0":
        return False
    given = {word.partition("=")[0] for word in words}
    drawn = "--seconds" in given and not given.isdisjoint(DRAWN)
    return words[0] in COMMANDS and given.isdisjoint(BY_SECONDS) and not drawn


def _start() -> subprocess.Popen[bytes]:
    size = shutil.get_terminal_size()
    shown = {"COLUMNS": str(size.columns), "LINES": str(size.lines), "FORCE_COLOR": "1"} if sys.stdout.isatty() else {}
    return _same_command(f"run_plainly({os.getpid()})", subprocess.PIPE, {**shown, "XCCL_EMU_WITHOUT_NUMBA": "1"})


_COMMAND = """
from xccl_emu.__main__ import main
from xccl_emu.cli import plain_first
if plain_first.{}:
    main()
"""


def _same_command(call: str, stdout: int, more: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the same command line, by a function of this module, in a session of its own, out of Ctrl-C's reach."""
    return subprocess.Popen(
        [sys.executable, "-c", _COMMAND.format(call), *sys.argv[1:]],
        stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, **more},
    )  # fmt: skip


def run_plainly(parent: int) -> bool:
    """Prepare the other process, which runs the command; it ends with the one that has started it."""
    jobs.end_with(parent)
    return True


def compile_behind() -> bool:
    """Prepare a third process to compile: the same command up to its answer. False if another one is at it."""
    try:
        _locks.append(_lock(fcntl.LOCK_EX))
    except OSError:
        return False
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CPU, (BEHIND_CPU_S, BEHIND_CPU_S))
    _behind.set()
    return True


def _go_on_behind() -> str:
    """Have the rest compiled, and say by whom."""
    if os.environ.get("XCCL_EMU_COMPILE_BEHIND") == "0":
        return ""
    if not _is_free():
        return "; a process of an earlier answer is still compiling"
    number = _same_command("compile_behind()", subprocess.DEVNULL, {}).pid
    return f"; process {number} compiles on, at low priority (XCCL_EMU_COMPILE_BEHIND=0 forbids it)"


def _lock(kind: int) -> IO[bytes]:
    """Held until the file is closed, or this process ends; OSError if another process has it, or nobody can."""
    file = open(os.path.join(os.path.dirname(cache.folder_of("numba")), "compiling.lock"), "ab")  # noqa: SIM115
    fcntl.flock(file, kind | fcntl.LOCK_NB)
    return file


def _is_free() -> bool:
    try:
        _lock(fcntl.LOCK_SH).close()
    except BlockingIOError:
        return False
    except OSError:  # a folder that cannot be written
        return True
    return True


def _answer_for(process: subprocess.Popen[bytes]) -> None:
    """Print what the other process says, and end this one, unless this one was faster or the other one has failed."""
    try:
        said, _ = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return
    if process.returncode not in (0, ending.WRONG) or not _once.acquire(blocking=False):
        return
    ending.clear_line()
    asked = "" if process.returncode or sys.argv[1] != "check" else ", and asked for no second opinion"
    ending.say(f"answered by plain Python, before all was compiled{asked}{_go_on_behind()}")
    try:
        sys.stdout.buffer.write(said)
        sys.stdout.flush()
    except OSError:
        os._exit(ending.READER_GONE)
    os._exit(process.returncode)
