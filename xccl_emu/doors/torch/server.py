"""The process that has the pods: it gathers a call of all ranks of a group, makes it, and answers each.

    python -m xccl_emu.doors.torch.server LISTENING LIFE SETTINGS

with the number of the listening socket, the number of one which closes when the launcher is gone, and settings as JSON.
"""

import json
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from xccl_emu.base.errors import ConfigError, UnfinishedError, ViolationError, XcclEmuError
from xccl_emu.doors.torch.pods import ServedGroup, Settings
from xccl_emu.doors.torch.wire import Arrays, Line, Message

_FIRST_LINES, _LAST_LINES = 4, 30
"""Lines that are printed of a violation; all of it is in the replay file."""


@dataclass(eq=False)
class _Rank:
    line: Line
    number: int
    pid: int
    asked: tuple[Message, Arrays] | None = None
    """A call that has no answer yet."""


@dataclass(eq=False)
class _Members:
    """The ranks of a group that are there."""

    group: ServedGroup
    shrinks: bool
    """Whether it goes on without those that have ended."""
    ranks: dict[int, _Rank] = field(default_factory=dict)
    lost: list[_Rank] = field(default_factory=list)
    """Ranks that have ended, the first one first."""

    def absent(self) -> set[int]:
        """Ranks that have ended, and those that a call that has no answer yet masks."""
        masks = (rank.asked[0].get("masked", ()) for rank in self.ranks.values() if rank.asked)
        return {rank.number for rank in self.lost}.union(*masks)

    def all_asked(self) -> bool:
        """Return True if there is a call, and all make it that are not absent."""
        asked = {number for number, rank in self.ranks.items() if rank.asked}
        return bool(asked) and asked | self.absent() >= {*range(self.group.size)}


class Server:
    """Serves ranks until ``life`` is closed at its other end."""

    def __init__(self, listening: socket.socket, life: socket.socket, settings: Settings) -> None:
        self._listening, self._settings = listening, settings
        self._groups: dict[str, _Members] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ, self._accept)
        self._selector.register(life, selectors.EVENT_READ, None)

    def serve(self) -> None:
        """Serve; returns when there is nobody to serve."""
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    return
                key.data()

    def _accept(self) -> None:
        accepted = Line.accept(self._listening)
        if accepted is None:
            return
        line, said = accepted
        if "group" not in said:  # a process that only wants to know when the server is gone
            self._read(line, lambda: self._forget(line))
            return
        new = _Members(ServedGroup(self._settings, said["size"]), said["shrinks"])
        members = self._groups.setdefault(said["group"], new)
        rank = _Rank(line, said["rank"], said["pid"])
        if said["size"] != members.group.size or rank.number not in range(said["size"]) or rank.number in members.ranks:
            text = f"rank={said['rank']}, size={said['size']}: no free place in a group of {members.group.size}"
            self._send(rank, {"error": ConfigError.__name__, "text": text}, {})
            line.close()
            return
        self._send(rank, {}, {})
        members.ranks[rank.number] = rank
        self._read(line, lambda: self._hear(said["group"], members, rank))

    def _read(self, line: Line, then: Callable[[], None]) -> None:
        self._selector.register(line.socket, selectors.EVENT_READ, then)

    def _forget(self, line: Line) -> None:
        self._selector.unregister(line.socket)
        line.close()

    def _hear(self, name: str, members: _Members, rank: _Rank) -> None:
        """A rank calls, or has ended."""
        rank.asked = rank.line.receive()
        if rank.asked is None:
            self._forget(rank.line)
            del members.ranks[rank.number]
            members.lost.append(rank)
            if not members.ranks:
                self._groups.pop(name, None)
        if members.lost and not members.shrinks:
            self._tell_lost(members, members.lost[0])
        elif members.all_asked():
            self._answer(members)

    def _tell_lost(self, members: _Members, lost: _Rank) -> None:
        for rank in members.ranks.values():
            if rank.asked:
                call = rank.asked[0]["call"]
                text = f"{call} of rank {rank.number}: rank {lost.number} (process {lost.pid}) has ended"
                self._send(rank, {"error": UnfinishedError.__name__, "text": text}, {})

    def _answer(self, members: _Members) -> None:
        absent = members.absent()
        asked = {number: rank.asked for number, rank in sorted(members.ranks.items()) if rank.asked}
        ranks = [members.ranks[number] for number in asked]
        try:
            if asked.keys() & absent:
                raise ConfigError(f"masked: rank {min(asked.keys() & absent)} is, and makes the call that masks it")
            _check_same(ranks)
            said, _ = next(iter(asked.values()))
            every = [asked.get(number, (said, {})) for number in range(members.group.size)]
            lost = {"lost": sorted(rank.number for rank in members.lost)}
            served = members.group.serve(said["call"], every, absent)
            answers = [({**served[number][0], **lost}, served[number][1]) for number in asked]
        except XcclEmuError as error:
            text = str(error)
            if isinstance(error, ViolationError):  # a page of schedule: here, and not once for each rank
                print(f"xccl_emu: {_short(text)}", file=sys.stderr, flush=True)
                text = f"{text.splitlines()[0]}; replay file: {error.witness}"
            answers = [({"error": type(error).__name__, "text": text}, {})] * len(ranks)
        for rank, answer in zip(ranks, answers, strict=True):
            self._send(rank, *answer)

    def _send(self, rank: _Rank, message: Message, arrays: Arrays) -> None:
        rank.asked = None
        try:
            rank.line.send(message, arrays)
        except UnfinishedError:
            return  # it has ended, which is heard next


def _check_same(ranks: list[_Rank]) -> None:
    """Raises ConfigError unless all ranks make the same call."""
    for rank in ranks[1:]:
        mine, first = rank.asked, ranks[0].asked
        if mine and first and mine[0] != first[0]:
            asks = f"rank {rank.number} asks {mine[0]}, rank 0 {first[0]}"
            raise ConfigError(f"{asks}: all ranks must make the same call")


def _short(text: str) -> str:
    """The beginning and the end of a schedule's description, which may have a thousand steps."""
    lines = text.splitlines()
    left_out = len(lines) - _FIRST_LINES - _LAST_LINES
    if left_out <= 0:
        return text
    return "\n".join([*lines[:_FIRST_LINES], f"... {left_out} lines ...", *lines[-_LAST_LINES:]])


def main() -> None:
    """Run the server."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher's business
    listening, life = (socket.socket(fileno=int(fd)) for fd in sys.argv[1:3])
    settings = json.loads(sys.argv[3])
    Server(listening, life, Settings(**{**settings, "without": tuple(settings["without"])})).serve()


if __name__ == "__main__":
    main()
