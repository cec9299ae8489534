"""The console for results: stdout, as wide as the terminal or 120 columns, but never too narrow for a table."""

import errno
import os
import shutil
import sys

from rich.console import Console

_LEAST_WIDTH = 72
"""A terminal that is narrower breaks the lines of a table; narrower columns would hold a letter a line."""


class _Stdout(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error again: the caller knows the exit code for it."""
        self.quiet = True
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def stdout_console() -> Console:
    """A console for stdout."""
    terminal = sys.stdout.isatty() or "FORCE_COLOR" in os.environ
    width = max(shutil.get_terminal_size().columns, _LEAST_WIDTH) if terminal else 120
    return _Stdout(width=width, emoji=False)  # mailbox.py:Mailbox: is a name
