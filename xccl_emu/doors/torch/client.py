"""A rank's end of its line to the server: calls that all ranks of a group make together."""

import contextlib
import os
import select
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from xccl_emu.base import errors
from xccl_emu.doors.torch.wire import POLICY, Arrays, Line, Message


class ProfiledKernel(NamedTuple):
    """A kernel of a rank, for profilers."""

    name: str
    start_us: float
    duration_us: float


@dataclass
class Clock:
    """The time of a process: virtual if the pod runs in virtual time, else this computer's."""

    virtual: bool = os.environ.get(POLICY, "time") == "time"
    us: float = 0.0
    """Virtual time that the calls took."""
    events: list[ProfiledKernel] = field(default_factory=list)

    def now_us(self) -> float:
        """The time now."""
        return self.us if self.virtual else time.perf_counter() * 1e6


CLOCK = Clock()


class Rank:
    """A rank of a group of ranks that call together.

    group: a name that all of them have, and no other group.  rank, size: its number, and how many there are.
    shrinks: whether the group, all of it, goes on without ranks that have left.

    Raises ConfigError if there is no server, or no such place in the group.
    """

    def __init__(self, group: str, rank: int, size: int, shrinks: bool = False) -> None:
        self.group, self.rank, self.size = group, rank, size
        hello = {"group": group, "rank": rank, "size": size, "shrinks": shrinks, "pid": os.getpid()}
        self._line = Line.connect(hello)
        try:
            self._answer("joining")
        except errors.XcclEmuError:
            self.close()
            raise

    def call(
        self, call: str, arrays: Mapping[str, NDArray[Any]], kernel: str = "", **said: Any
    ) -> tuple[Message, Arrays]:
        """Make a call with all other ranks; returns what the server says, with arrays valid until the next call.

        kernel: by which name profilers list it.

        Raises what the call raised, in each rank, and UnfinishedError if a rank that it needs has ended.
        """
        self.begin(call, arrays, **said)
        return self.end(call, kernel)

    def begin(self, call: str, arrays: Mapping[str, NDArray[Any]], **said: Any) -> None:
        """Make a call, and go on before its answer, which `end` returns, is there."""
        self._began_us = CLOCK.now_us()
        self._line.send({"call": call, **said}, arrays)

    def end(self, call: str, kernel: str = "") -> tuple[Message, Arrays]:
        """Wait for the answer of a call that was begun; returns and raises what `call` does."""
        answer = self._answer(call)
        began_us = CLOCK.us if CLOCK.virtual else self._began_us
        CLOCK.us += answer[0].get("us", 0.0)
        if kernel:
            CLOCK.events.append(ProfiledKernel(kernel, began_us, CLOCK.now_us() - began_us))
        return answer

    def answered(self) -> bool:
        """Say whether `end` need not wait."""
        return bool(select.select([self._line.socket], [], [], 0)[0])

    def _answer(self, call: str) -> tuple[Message, Arrays]:
        """Return the server's answer, or raise its error."""
        answer = self._line.receive()
        if answer is None:
            raise errors.UnfinishedError(f"{call} of rank {self.rank}: the server is gone")
        if "error" in answer[0]:
            raise getattr(errors, answer[0]["error"], errors.XcclEmuError)(answer[0]["text"])
        return answer

    def refuse(self, text: str) -> None:
        """Have the others hear that this rank does not make the call that they make now or next, and why."""
        self._line.send({"refused": text})

    def note_due(self, call: str, due: bool) -> None:
        """Have the server know that what a call brings is awaited yet, or is there."""
        self._line.send({"due": due, "of": call})

    def close(self) -> None:
        """Leave the group; what others call from then on fails."""
        self._line.close()


def hold_on() -> None:
    """Have this process end when the server does, and say where it is when it is asked."""

    def watch() -> None:
        with contextlib.suppress(errors.XcclEmuError):
            line = Line.connect({"pid": os.getpid()})
            while line.receive():
                line.send({"pid": os.getpid(), "at": _place()})
        os._exit(70)

    threading.Thread(target=watch, daemon=True, name="xccl_emu: watches the server").start()


def _place() -> str:
    """The line of the script that the main thread is at, and the innermost one if that is another."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    frames = traceback.extract_stack(frame)
    library = (str(Path(os.__file__).parent), str(Path(errors.__file__).parents[1]))
    own = [each for each in frames if not each.filename.startswith((*library, "<"))]
    own = [each for each in own if "site-packages" not in each.filename]
    shown = dict.fromkeys((each.filename, each.lineno, each.name) for each in (*own[-1:], *frames[-1:]))
    return ", then ".join(f"{filename}:{line} in {name}" for filename, line, name in shown)
