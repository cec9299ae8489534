"""The process that has the pods: it gathers a call of all ranks of a group, makes it, and answers each.

    python -m xccl_emu.doors.torch.server LISTENING LIFE SETTINGS

with the number of the listening socket, the number of one which closes when the launcher is gone, and settings as JSON.
When the launcher has no more to say on it, what was counted goes back there.
"""

import contextlib
import json
import math
import selectors
import signal
import socket
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from xccl_emu.base.errors import ConfigError, RunError, UnfinishedError, ViolationError, XcclEmuError
from xccl_emu.doors.torch.gate import check_said
from xccl_emu.doors.torch.pods import ServedGroup, Settings
from xccl_emu.doors.torch.wire import Arrays, Line, Message

_FIRST_LINES, _LAST_LINES = 4, 30
"""Lines that are printed of a violation; all of it is in the replay file."""
_RANKS_MOST = 1 << 16
_SILENT_S = 30.0
"""Seconds after which it is said who is awaited; and again after twice as many, and so on."""
_TICK_S, _LAST_S = 1.0, 1.0
"""Seconds between looks at what waits; and for which ranks are heard when the launcher has no more to say."""
_REFUSED_MOST = 64
_STATES = {"T": "is stopped", "t": "is traced", "Z": "has ended", "R": "runs", "D": "waits for a device"}
"""By letter of Linux, what a process does; any other sleeps."""
_HELLO = {"group": str, "rank": int, "size": int, "shrinks": bool, "pid": int}


@dataclass
class Counted:
    """What a server has done."""

    calls: int = 0
    schedules: int = 0
    violations: int = 0
    unreceived: int = 0
    """Calls whose results a rank has never had."""
    failed: int = 0
    """Errors of the emulator itself."""


@dataclass(eq=False)
class _Rank:
    line: Line
    number: int
    pid: int
    asked: tuple[Message, Arrays] | None = None
    """A call that has no answer yet."""
    calls: int = 0
    """Calls that it has made, or refused to make."""
    last: str = ""
    """The last one that it was answered."""
    due: Counter[str] = field(default_factory=Counter)
    """By name, calls whose hook or event is awaited yet."""

    @property
    def sends(self) -> bool:
        """Return True if it has sent what nobody has received yet, for which it does not wait."""
        return self.asked is not None and self.asked[0]["call"] == "transfer" and "x" in self.asked[1]


@dataclass(eq=False)
class _Members:
    """The ranks of a group that are there."""

    group: ServedGroup
    shrinks: bool
    """Whether it goes on without those that have ended."""
    ranks: dict[int, _Rank] = field(default_factory=dict)
    lost: list[_Rank] = field(default_factory=list)
    """Ranks that have ended, the first one first."""
    refused: dict[int, tuple[int, str]] = field(default_factory=dict)
    """By number of the call, the rank that refused to make it, and why."""
    sent: dict[int, str] = field(default_factory=dict)
    """By handle, calls that were sent and are not received."""
    overdue: str = ""
    """Why no call is made any more: one of them took too long."""
    since: float = 0.0
    """When a call was first asked for that has no answer yet."""
    silent_s: float = _SILENT_S
    """After how many seconds it is said who is awaited."""

    def absent(self) -> set[int]:
        """Ranks that have ended, and those that a call that has no answer yet masks."""
        masks = (rank.asked[0].get("masked", ()) for rank in self.ranks.values() if rank.asked)
        return {rank.number for rank in self.lost}.union(*masks)

    def all_asked(self) -> bool:
        """Return True if there is a call, and all make it that are not absent."""
        asked = {number for number, rank in self.ranks.items() if rank.asked}
        return bool(asked) and asked | self.absent() >= {*range(self.group.size)}

    def waiting(self) -> list[_Rank]:
        """Return the ranks that have no answer yet."""
        return [rank for rank in self.ranks.values() if rank.asked]


class Server:
    """Serves ranks until ``life`` is closed at its other end."""

    def __init__(self, listening: socket.socket, life: socket.socket, settings: Settings) -> None:
        self._listening, self._life, self._settings = listening, life, settings
        self._groups: dict[str, _Members] = {}
        self._watchers: dict[int, Line] = {}
        """By process, one that says where that is."""
        self.counted = Counted()
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ, self._accept)
        self._selector.register(life, selectors.EVENT_READ, None)

    def serve(self) -> None:
        """Serve; returns when there is nobody to serve, and says what was counted."""
        ends = math.inf
        while time.monotonic() < ends:
            ready = self._selector.select(_TICK_S if ends == math.inf else 0.0)
            for key, _ in ready:
                if key.data is None:  # what ranks have said until now is heard yet
                    ends = time.monotonic() + _LAST_S
                    self._selector.unregister(self._life)
                elif self._selector.get_map().get(key.fd) is key:  # else closed by what was just heard
                    key.data()
            if not ready and ends < math.inf:
                break
            self._speak()
        for members in self._groups.values():
            for rank in members.ranks.values():
                self._count_due(rank)
            self._close(members)
        lines = [rank.line for members in self._groups.values() for rank in members.ranks.values()]
        for line in [*lines, *self._watchers.values()]:
            line.close()
        self._selector.close()
        with contextlib.suppress(OSError):
            self._life.sendall(json.dumps(asdict(self.counted)).encode())

    # ---- lines

    def _accept(self) -> None:
        try:
            sock, _ = self._listening.accept()
        except OSError:  # gone already, or no number is free: it is asked again
            return
        self._selector.register(sock, selectors.EVENT_READ, lambda: self._greet(sock))

    def _greet(self, sock: socket.socket) -> None:
        """Hear what a process is; one that never says it keeps nobody waiting."""
        self._selector.unregister(sock)
        greeted = Line.greet(sock)
        if greeted is None:
            return
        line, said = greeted
        if "group" not in said:  # a process that wants to know when the server is gone, and says where it is
            if type(said.get("pid")) is int:
                self._watchers[said["pid"]] = line
            self._read(line, lambda: self._hear_watcher(line))
            return
        if any(type(said.get(name)) is not kind for name, kind in _HELLO.items()):
            self._forget(line, registered=False)
            return
        name, size = said["group"], said["size"]
        members = self._groups.get(name) or _Members(ServedGroup(self._settings, size), said["shrinks"])
        rank = _Rank(line, said["rank"], said["pid"])
        free = 0 <= rank.number < size <= _RANKS_MOST and rank.number not in members.ranks
        if size != members.group.size or not free:
            text = f"rank={rank.number}, size={size}: no free place in a group of {members.group.size}"
            self._send(rank, {"error": ConfigError.__name__, "text": text}, {})
            self._forget(line, registered=False)
            return
        self._send(rank, {}, {})
        self._groups[name] = members
        members.ranks[rank.number] = rank
        self._read(line, lambda: self._hear(name, members, rank))

    def _read(self, line: Line, then: Callable[[], None]) -> None:
        self._selector.register(line.socket, selectors.EVENT_READ, then)

    def _forget(self, line: Line, registered: bool = True) -> None:
        if registered:
            self._selector.unregister(line.socket)
        line.close()

    def _hear_watcher(self, line: Line) -> None:
        heard = line.receive()
        if heard is None:
            self._watchers = {pid: each for pid, each in self._watchers.items() if each is not line}
            self._forget(line)
        else:
            _say(f"process {heard[0].get('pid')} is at {heard[0].get('at')}")

    def _hear(self, name: str, members: _Members, rank: _Rank) -> None:
        """A rank calls, says something of its calls, or has ended."""
        try:
            heard = rank.line.receive()
        except ConfigError as error:
            _say(f"rank {rank.number} (process {rank.pid}): {error}; it is left out")
            heard = None
        if heard is None:
            self._lose(name, members, rank)
        elif "due" in heard[0]:
            rank.due[str(heard[0].get("of"))] += 1 if heard[0]["due"] is True else -1
            return
        elif rank.asked:
            _say(f"rank {rank.number} (process {rank.pid}) calls before it is answered; it is left out")
            self._lose(name, members, rank)
        else:
            rank.calls += 1
            self._ask(members, rank, heard)
        self._go_on(members)

    def _ask(self, members: _Members, rank: _Rank, heard: tuple[Message, Arrays]) -> None:
        """Keep what a rank asks; a call that it refuses to make, or that is none, is refused to all."""
        if not members.waiting():
            members.since = time.monotonic()
        refused, call = heard[0].get("refused"), heard[0].get("call")
        try:
            if refused is None:
                check_said(heard[0])
                rank.asked = heard
        except ConfigError as error:
            refused, rank.asked = str(error), ({"call": str(call)}, {})
        if refused is not None:
            members.refused[rank.calls] = rank.number, str(refused)
            members.refused.pop(rank.calls - _REFUSED_MOST, None)

    def _lose(self, name: str, members: _Members, rank: _Rank) -> None:
        self._forget(rank.line)
        del members.ranks[rank.number]
        members.lost.append(rank)
        self._count_due(rank)
        if not members.ranks:
            self._groups.pop(name, None)
            self._close(members)

    def _count_due(self, rank: _Rank) -> None:
        self._count_sent(rank)
        for call, n in rank.due.items():
            if n > 0:
                self.counted.unreceived += n
                _say(f"rank {rank.number} never waited for what {call} brings ({n} calls)")

    def _count_sent(self, rank: _Rank) -> None:
        if rank.sends:
            self.counted.unreceived += 1
            _say(f"what rank {rank.number} of two (process {rank.pid}) sent was never received")

    def _close(self, members: _Members) -> None:
        """Count what a group has done, and what it never received."""
        self.counted.schedules += members.group.drawn()
        self.counted.unreceived += len(members.sent)
        for number, call in members.sent.items():
            _say(f"{call} of dispatch {number} was sent, and its hook never called")

    def _go_on(self, members: _Members) -> None:
        """Make the call that all ranks ask for, or say why it is not made."""
        if members.overdue:
            self._answer_all(members, UnfinishedError, members.overdue)
        elif members.lost and not members.shrinks:
            lost = members.lost[0]
            for rank in members.waiting():
                assert rank.asked
                self._count_sent(rank)
                text = f"rank {lost.number} (process {lost.pid}) has ended"
                text = f"{rank.asked[0]['call']} of rank {rank.number}: {text}"
                self._send(rank, {"error": UnfinishedError.__name__, "text": text}, {})
        else:
            for rank in members.waiting():
                other, text = members.refused.get(rank.calls, (-1, ""))
                if other == rank.number or (text and not members.shrinks):
                    text = text if other == rank.number else f"rank {other}: {text}"
                    self._send(rank, {"error": ConfigError.__name__, "text": text}, {})
            if members.all_asked():
                self._answer(members)
        if not members.waiting():
            members.silent_s = _SILENT_S

    def _answer_all(self, members: _Members, kind: type[XcclEmuError], text: str) -> None:
        for rank in members.waiting():
            self._send(rank, {"error": kind.__name__, "text": text}, {})

    def _answer(self, members: _Members) -> None:
        asked = {number: rank.asked for number, rank in sorted(members.ranks.items()) if rank.asked}
        try:
            answers = self._called(members, asked)
        except XcclEmuError as error:
            text = str(error)
            if isinstance(error, ViolationError):  # a page of schedule: here, and not once for each rank
                self.counted.violations += 1
                _say(_short(text))
                text = f"{text.splitlines()[0]}; replay file: {error.witness}"
            if isinstance(error, RunError):  # its pod is as the run left it
                members.group.give_back([*members.group.sessions])
            self._answer_all(members, type(error), text)
        except Exception as error:
            self.counted.failed += 1
            failed = f"{next(iter(asked.values()))[0]['call']} failed inside the emulator"
            _say(f"{failed}; please report this\n{traceback.format_exc()}")
            members.group.give_back([*members.group.sessions])
            self._answer_all(members, XcclEmuError, f"{failed}: {type(error).__name__}: {error}")
        else:
            for number, answer in zip(asked, answers, strict=True):
                members.ranks[number].last = asked[number][0]["call"]
                self._send(members.ranks[number], *answer)

    def _called(self, members: _Members, asked: dict[int, tuple[Message, Arrays]]) -> list[tuple[Message, Arrays]]:
        """Make the call; returns the answer of each rank that asked, in the order of ranks."""
        absent = members.absent()
        if asked.keys() & absent:
            raise ConfigError(f"masked: rank {min(asked.keys() & absent)} is, and makes the call that masks it")
        _check_same(asked)
        first = next(iter(asked.values()))[0]
        call, said = first["call"], {name: value for name, value in first.items() if name != "call"}
        self.counted.calls += call not in ("clean", "agree")
        every = [(said, asked[number][1] if number in asked else {}) for number in range(members.group.size)]
        served = members.group.serve(call, every, absent)
        if call.endswith("_send"):
            members.sent[served[0][0]["handle"]] = call
        elif call.endswith("_recv"):
            members.sent.pop(said["handle"], None)
        lost = {"lost": sorted(rank.number for rank in members.lost)}
        return [({**served[number][0], **lost}, served[number][1]) for number in asked]

    def _send(self, rank: _Rank, message: Message, arrays: Arrays) -> None:
        rank.asked = None
        try:
            rank.line.send(message, arrays)
        except UnfinishedError:  # it has ended, or does not listen, which is heard next
            with contextlib.suppress(OSError):
                rank.line.socket.shutdown(socket.SHUT_RDWR)

    # ---- calls that wait

    def _speak(self) -> None:
        """Say which ranks are awaited, in which call, and what they do; end calls that have waited for too long."""
        for members in self._groups.values():
            waiting = [rank for rank in members.waiting() if not rank.sends]
            waited = time.monotonic() - members.since if waiting else 0.0
            if not waiting or waited < min(members.silent_s, self._settings.timeout_s or members.silent_s):
                continue
            missing = {*range(members.group.size)} - {rank.number for rank in waiting} - members.absent()
            call = waiting[0].asked[0]["call"] if waiting[0].asked else ""
            words = [self._where(members.ranks.get(number), number) for number in sorted(missing)[:8]]
            text = f"{call} of rank {waiting[0].number} has waited {waited:.0f} s; {'; '.join(words)}"
            members.silent_s *= 2
            _say(text)
            if 0 < self._settings.timeout_s <= waited:
                members.overdue = f"{text}; --timeout is {self._settings.timeout_s:g} s"
                self._answer_all(members, UnfinishedError, members.overdue)

    def _where(self, rank: _Rank | None, number: int) -> str:
        """Say what a rank does that is awaited; where its process is follows in a line of its own, if it can say it."""
        if rank is None:
            return f"rank {number} has never joined"
        try:
            letter = Path(f"/proc/{rank.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            letter = "Z"
        watcher = self._watchers.get(rank.pid)
        if watcher:
            with contextlib.suppress(UnfinishedError):
                watcher.send({"where": True})
        last = f"its last call was {rank.last}" if rank.last else "it has made no call"
        return f"rank {number} (process {rank.pid}) {_STATES.get(letter, 'sleeps')}, {last}"


def _say(text: str) -> None:
    print(f"xccl_emu: {text}", file=sys.stderr, flush=True)


def _check_same(asked: dict[int, tuple[Message, Arrays]]) -> None:
    """Raises ConfigError unless all ranks make the same call."""
    (first, (said, _)), *others = asked.items()
    for number, (other, _) in others:
        if other != said:
            asks = f"rank {number} asks {other}, rank {first} {said}"
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
