"""Words that several commands use."""

from typing import Annotated, TypedDict

Configuration = Annotated[dict[str, int | float | str | bool], "sizes and choices of what was run, by name"]
Protocol = Annotated[str, "name of the protocol"]
About = Annotated[str, "a sentence on the protocol"]
Order = Annotated[str, "memory order: `sc`, `fifo`, `relaxed` or `unordered`"]
Policy = Annotated[str, "who chooses the next step"]
Seed = Annotated[int, "seed of all that is drawn"]
Wrong = Annotated[
    int | None,
    "how much differs from what must be there: elements, or bytes where `wrong_bytes` has any; null if nothing was"
    " compared",
]
WrongBytes = Annotated[dict[str, int], "wrong bytes of each buffer that has any"]
Seconds = Annotated[float, "wall time"]
Stopped = Annotated[str, "why it came to no end; empty if it did"]
Killed = Annotated[bool, "whether a worker was killed"]
States = Annotated[int, "states that were searched"]
Schedules = Annotated[int, "schedules that were drawn"]
ReplayFile = Annotated[str | None, "file that shows the violation again"]
Kernel = Annotated[str, "name of the kernel"]
File = Annotated[str, "file of the source, or the one that was written"]
Line = Annotated[int, "line of the source"]
Operation = Annotated[str, "operation of the request"]
Sync = Annotated[str, "name of the synchronization; empty for none"]
Callers = Annotated[list[list[str | int]], "where the subroutine was called: file and line, the innermost last"]
Kind = Annotated[str, "kind of the violation; of a row: whose latency it is"]
Fault = Annotated[str, "what broke; empty for nothing"]


class Envelope(TypedDict):
    """Words of every object."""

    schema: Annotated[str, "`xccl-emu/1`, this page"]
    command: Annotated[str, "the command that printed it"]
    version: Annotated[str, "version of xccl_emu"]
