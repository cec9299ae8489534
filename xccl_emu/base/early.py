"""Ctrl-C while the command is still being imported: one line and its exit code, until `cli.ending` listens."""

import os
import signal
import sys
from types import FrameType

INTERRUPTED, TERMINATED = 130, 143
BY_SIGNAL = {"interrupted": INTERRUPTED, "terminated": TERMINATED}
"""Exit codes by what is said of Ctrl-C and SIGTERM: 128 and the number of the signal, as shells have it."""
SAID = {code: said for said, code in BY_SIGNAL.items()}
heard: list[int] = []
"""Signals that have come: within an import or a library they may come out as any other error."""


def listen() -> None:
    """Leave at once at Ctrl-C, where this process is the command and the signal is not ignored."""
    if IS_COMMAND and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)


def leave(number: int, frame: FrameType | None) -> None:
    """End the process: nothing has begun, and an exception would come out of some import with a traceback."""
    try:
        os.write(2, b"xccl-emu: interrupted\n")
    finally:
        os._exit(INTERRUPTED)


def put_off(error: BaseException) -> int:
    """Return the exit code of the signal that became an error, or 0; it is not raised again."""
    if signal.SIGTERM in heard or (isinstance(error, SystemExit) and error.code == TERMINATED):
        code = TERMINATED
    elif signal.SIGINT in heard or isinstance(error, KeyboardInterrupt):
        code = INTERRUPTED
    else:
        return 0
    signal.setitimer(signal.ITIMER_REAL, 0)
    heard.clear()
    return code


def raise_by(code: int) -> None:
    """Raise the exception of the signal with an exit code; nothing for other codes."""
    if code == TERMINATED:
        raise SystemExit(TERMINATED)
    if code == INTERRUPTED:
        raise KeyboardInterrupt


def _is_command() -> bool:
    """Return whether this is a script or ``python -m``, not a process started by it, which has its ``sys.argv``."""
    name = sys.argv[0] if sys.argv else ""
    return "xccl_emu" in sys.orig_argv if name == "-m" else name in sys.orig_argv and name.endswith("xccl-emu")


IS_COMMAND = _is_command()
"""Python shows only while it begins that it was called by ``-m``."""
