"""How the command ends: its exit codes, and what becomes of signals, closed streams and errors that nobody foresaw.

Imports nothing that takes time, so that a Ctrl-C at once is heard too.

Python's handlers of signals wait until compiled code (a long run, a search, the compiler) comes back. So a thread sees
every signal too, and ends the process where no handler has answered within some seconds.
"""

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from xccl_emu.base import early

WRONG = 1
"""What was judged is wrong: a violation, wrong bits, a contradiction, a run that ended in an error."""
USAGE = 2
"""The command line or the configuration that it describes cannot be; typer uses the same code."""
UNFINISHED = 3
"""No answer: a check that is unfinished or unsupported, a killed process, points that failed, no memory left."""
BUG = 4
"""An error of the emulator itself, with its traceback; or two verdicts on the same that contradict each other."""
NOT_WRITTEN = 5
"""The answer could not be written: a full disk, a stream that takes no more."""
INTERRUPTED, TERMINATED, BY_SIGNAL = early.INTERRUPTED, early.TERMINATED, early.BY_SIGNAL
"""Ctrl-C and SIGTERM, and both by what is said of them."""
READER_GONE = 141
"""Broken pipe: 128 + SIGPIPE."""

EXIT_CODES = """
Exit codes of all commands: 0 what was asked for holds; 1 it does not (a violation, wrong bits, a failed run, no
strategy that fits); 2 wrong usage, or what cannot be run here; 3 no answer (unfinished, unsupported, killed, out of
memory, points of a sweep that failed); 4 a bug of xccl-emu, or two verdicts of its own that contradict; 5 the result
could not be written; 130 Ctrl-C; 141 broken pipe; 143 SIGTERM.
"""
"""For ``--help``."""

_NO_MEMORY = ("failed to map segment", "cannot allocate memory", "out of memory", "can't start new thread")
_heard, put_off, raise_by = early.heard, early.put_off, early.raise_by
_exit = os._exit
_AGAIN_S, _IMPORT_S = 0.02, 3.0
"""Ctrl-C waits for an import by looking again so soon, but no longer than that: a user's module may take for ever."""
_DROPPED_S = 0.5
"""What has been raised is raised again after so long, unless it is under way: libraries in C may clear any error."""
_GRACE_S, _FLUSH_S = 3.0, 1.0
"""A handler has so long to answer a signal, and then what has been printed to reach its reader."""
_woken = -1
"""A pipe into which every signal writes a byte; a handler that runs empties it."""
_answers = 0
"""How often a handler has run."""


def say(message: str) -> None:
    """A line on stderr, if somebody listens there."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"xccl-emu: {message}\n")
        sys.stderr.flush()


def drop_output() -> None:
    """Write nothing more to stdout: the interpreter would fail once more when it ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_to_end(command: Callable[[], None]) -> None:
    """Run the whole command, and leave through `SystemExit` with the code that fits what has become of it."""
    try:
        try:
            _prepare_streams()
            _listen()
            command()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except SystemExit as error:
        if error.code == TERMINATED:
            say("terminated")
        raise
    except KeyboardInterrupt:
        _leave("interrupted", INTERRUPTED)
    except BaseException as error:
        if signal.SIGTERM in _heard:
            _leave("terminated", TERMINATED)
        if signal.SIGINT in _heard:
            _leave("interrupted", INTERRUPTED)
        if is_lack_of_memory(error):
            _leave(out_of_memory(error), UNFINISHED)
        where = _in_file_of_user(error)
        if where:
            _leave(f"error: {where}: {type(error).__name__}: {error}", USAGE)
        _tell_bug()
        sys.exit(BUG)


def is_lack_of_memory(error: BaseException) -> bool:
    """Does an error say that there is no memory left, whatever its type?  Libraries that do not load have others."""
    text, cause = str(error).lower(), error.__cause__ or error.__context__
    if isinstance(error, MemoryError) or any(words in text for words in _NO_MEMORY):
        return True
    return cause is not None and is_lack_of_memory(cause)


def out_of_memory(error: BaseException) -> str:
    """The line that says so."""
    return f"error: not enough memory{f' ({error})' if str(error) else ''}; take less, or allow more (ulimit -v)"


def _leave(message: str, code: int) -> None:
    say(message)
    sys.exit(code)


def _in_file_of_user(error: BaseException) -> str:
    """Return where a protocol in a file failed; nothing if the emulator failed, or a library that it calls."""
    import sysconfig
    import traceback

    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    libraries = ("<", *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(ours):
            break
        if not frame.filename.startswith(libraries):
            return f"{frame.filename}:{frame.lineno}, in {frame.name}"
    return ""


def _tell_bug() -> None:
    import traceback

    with contextlib.suppress(OSError, ValueError, AttributeError):
        traceback.print_exc()
    say("this is a bug of xccl-emu: please report it")


def _prepare_streams() -> None:
    """Streams that are closed lead nowhere, but stdout, on which an answer fails as on a full disk.

    A character that stdout does not have is shown as a question mark.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_RDWR)  # takes the lowest number that is free
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")


def _listen() -> None:
    """Note Ctrl-C before it becomes a KeyboardInterrupt, and end by SIGTERM as by Ctrl-C: with all processes.

    A signal that the parent process made ignored stays ignored.
    """
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, early.leave):
        signal.signal(signal.SIGINT, _on_interrupt)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_termination)
    _watch()
    sys.unraisablehook = _on_dropped
    os._exit = _exit_of_user  # type: ignore[assignment]


def _watch() -> None:
    """Let a thread see the signals; without room for one they are heard when compiled code is back."""
    global _woken
    _woken, writes = os.pipe()
    os.set_blocking(_woken, False)
    os.set_blocking(writes, False)
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    with contextlib.suppress(RuntimeError):
        threading.Thread(target=_end_what_hangs, daemon=True).start()


def _end_what_hangs() -> None:
    """End the process where a signal has come and no handler has run for a while."""
    while True:
        before = _answers
        select.select([_woken], [], [])
        time.sleep(_GRACE_S)
        if _answers != before:
            continue
        came = {*_taken_out(), *_heard}  # an alarm means what has been heard before
        for number, handler, said, code in _ENDS:
            if number in came and signal.getsignal(number) is handler:
                _end_at_once(said, code)


def _taken_out() -> bytes:
    """The signals that no handler has answered; now they count as answered."""
    try:
        return os.read(_woken, 1 << 12)
    except OSError:
        return b""


def _answered() -> None:
    """A handler runs: nobody need end the process."""
    global _answers
    _answers += 1
    _taken_out()


def _end_at_once(said: str, code: int) -> None:
    """End the process where it is, but for what has been printed."""
    with contextlib.suppress(RuntimeError):
        flushes = threading.Thread(target=sys.stdout.flush, daemon=True)
        flushes.start()
        flushes.join(_FLUSH_S)
    clear_line()
    with contextlib.suppress(OSError):
        os.write(2, f"xccl-emu: {said}\n".encode())
    _exit(code)


def clear_line() -> None:
    """Take the line that spins off a terminal, and show the cursor again."""
    if sys.stderr.isatty():
        os.write(2, b"\r\x1b[2K\x1b[?25h")


def _on_interrupt(number: int, frame: FrameType | None) -> None:
    """End by KeyboardInterrupt, but not within an import: one in C prints a traceback of it."""
    _answered()
    if number == signal.SIGALRM and _is_under_way():
        return _again(_on_interrupt, _DROPPED_S)
    _heard.append(signal.SIGINT)
    if len(_heard) * _AGAIN_S < _IMPORT_S and _in_import(frame):
        return _again(_on_interrupt, _AGAIN_S)
    _again(_on_interrupt, _DROPPED_S)
    raise KeyboardInterrupt


def _is_under_way() -> bool:
    """Does somebody clean up after a signal, or report it?"""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, (KeyboardInterrupt, SystemExit)):
        error = error.__cause__ or error.__context__
    return error is not None


def _in_import(frame: FrameType | None) -> bool:
    while frame is not None and "importlib._bootstrap" not in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None


def _on_termination(number: int, frame: FrameType | None) -> None:
    _answered()
    if number == signal.SIGALRM and _is_under_way():
        return _again(_on_termination, _DROPPED_S)
    _heard.append(signal.SIGTERM)
    _again(_on_termination, _DROPPED_S)
    raise SystemExit(TERMINATED)


_ENDS = (
    (signal.SIGTERM, _on_termination, "terminated", TERMINATED),
    (signal.SIGINT, _on_interrupt, "interrupted", INTERRUPTED),
)
"""What each signal comes to, where its handler is the command's own."""


def raise_heard() -> None:
    """Raise the exception of a signal that has come, in place of what has been made of it."""
    if signal.SIGTERM in _heard:
        raise_by(TERMINATED)
    if signal.SIGINT in _heard:
        raise_by(INTERRUPTED)


def _exit_of_user(code: int) -> None:
    """Replace ``os._exit``: a protocol that calls it must not look like an answer."""
    here = sys._getframe(1).f_code.co_filename
    if here.startswith(
        (os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep, os.path.dirname(os.__file__))
    ):
        _exit(code)
    raise SystemExit(code)


def _on_dropped(what: "sys.UnraisableHookArgs") -> None:
    """A signal is heard again if its exception came within what drops all: a callback of LLVM, of the collector."""
    if issubclass(what.exc_type, KeyboardInterrupt):
        _again(_on_interrupt, _AGAIN_S)
    elif issubclass(what.exc_type, SystemExit):
        _again(_on_termination, _AGAIN_S)
    else:
        sys.__unraisablehook__(what)


def _again(handler: Callable[[int, FrameType | None], None], seconds: float) -> None:
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, seconds)
