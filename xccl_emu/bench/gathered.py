"""What many parts of one search come to, added up as they are done."""

import signal
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from xccl_emu import _early
from xccl_emu import words as w
from xccl_emu.errors import UnfinishedError


@dataclass(kw_only=True)
class Gathered(w.Printed):
    """Counts of the parts so far, and how it ended; derive with fields for what is counted."""

    COUNTED: ClassVar[tuple[str, ...]]
    """The fields that are added up."""
    seconds: Annotated[w.Seconds, w.As(digits=1)] = 0.0
    stopped: w.Stopped = ""
    killed: w.Killed = False

    @property
    def interrupted(self) -> bool:
        """Was it stopped by Ctrl-C or SIGTERM?"""
        return self.stopped in _early.BY_SIGNAL

    def add(self, other: Any) -> None:
        """Count what another part came to."""
        for name in self.COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def gather(self, parts: Generator[Any], enough: Callable[[], bool], progress: Callable[[Any], None] | None) -> None:
        """Add parts as they are done, until it is ``enough``; note what stops it: a signal, a killed worker."""
        started = time.perf_counter()
        with closing(parts):
            try:
                for part in parts:
                    self.add(part)
                    self.seconds = time.perf_counter() - started
                    if progress is not None:
                        progress(self)
                    if enough():
                        break
            except (KeyboardInterrupt, SystemExit) as error:
                if isinstance(error, SystemExit) and error.code != _early.TERMINATED:
                    raise
                signal.setitimer(signal.ITIMER_REAL, 0)  # it need not come again: what there is, is shown
                self.stopped = "terminated" if isinstance(error, SystemExit) else "interrupted"
            except UnfinishedError as error:
                self.stopped, self.killed = str(error), True

    def late(self, seconds: float | None) -> bool:
        """Has it taken longer than it may?  Then that is why it came to no end."""
        if seconds is None or self.seconds <= seconds:
            return False
        self.stopped = f"more than {seconds:g} seconds"
        return True
