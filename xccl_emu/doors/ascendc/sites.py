"""Where a source in Ascend C makes requests: the calls that the preprocessor leaves, each with the names of its sites.

A call has a site for each request that it may make.  What a run can switch off is named by what belongs together: a
flag that is set and waited for, a buffer of a queue that is filled or freed, a barrier.
"""

import itertools
import json
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from xccl_emu.doors.ascendc.source import EVENTS, FREE, REQUESTS, SourceCall, calls
from xccl_emu.lang import NOTHING, VECTOR_BARRIER
from xccl_emu.lang import requests as rq

BARRIER = {"visible": ("quiet", "fence"), "empty": ("set_flag", "wait_flag")}
"""What a barrier of all pipes asks for, by how it is read; a fence is the writing pipe's."""

_PIPE = re.compile(r"(?:\w+\s*::\s*)*(PIPE_\w+)")
_BETWEEN_BLOCKS = ("CrossCoreSetFlag", "CrossCoreWaitFlag")
_FILLED, _FREED = ("EnQue", "DeQue"), ("AllocTensor", "FreeTensor")


def names(found: Sequence[SourceCall], main: str = "") -> Iterator[str]:
    """The name of each call's synchronization, or nothing; with its file if that is not the main one.

    A flag is named by where it is set first.  What sets it and what waits for it has one name, so a cut takes both.
    Flags between blocks have one name, since a barrier is what all of them are.
    """
    of_events = _set_at(found)
    files = {call.place[0] for call in found}
    for i, call in enumerate(found):
        if call.name in EVENTS:
            yield f"{call.of}, {_shown(*of_events[i], main, files)}"
        elif call.name in _FILLED + _FREED:
            yield f"{call.of} {'filled' if call.name in _FILLED else 'freed'}"
        elif call.name in _BETWEEN_BLOCKS:
            yield "CrossCoreFlag"
        elif call.name in FREE:
            yield f"{call.name}, {_shown(call.file, call.line, main, files)}"
        else:
            yield ""


def _shown(file: str, line: int, main: str, files: Collection[str]) -> str:
    """A line in words, with the file if that is not the main one: its name, or all of its path if two are called so."""
    if not main or Path(file) == Path(main):
        return f"line {line}"
    alike = {each for each in files if Path(each).name == Path(file).name}
    return f"line {line} of {file if len(alike) > 1 else Path(file).name}"


def _set_at(found: Sequence[SourceCall]) -> dict[int, tuple[str, int]]:
    """Return, by the number of a call of `SetFlag` or `WaitFlag`, the place where its event is set first."""
    places = dict[int, tuple[str, int]]()
    of_events = sorted((i for i, call in enumerate(found) if call.name in EVENTS), key=lambda i: (found[i].at, i))
    for pipes in dict.fromkeys(found[i].of for i in of_events):
        for together in _together(found, [i for i in of_events if found[i].of == pipes]):
            is_set = (found[i].place for i in together if found[i].name == "SetFlag")
            places |= dict.fromkeys(together, next(is_set, found[together[0]].place))
    return places


def _together(found: Sequence[SourceCall], of_pipes: Sequence[int]) -> Iterator[list[int]]:
    """Calls of events between two pipes, in groups that are switched off together.

    An event that is set and then waited for in the same block is a group.  If other calls of that event are left, they
    may be partners of any whose calls do not follow each other at once.  What is left belongs to its event, or, where
    that is not said at a call, to any.
    """
    known = dict.fromkeys(found[i].event for i in of_pipes if found[i].event)
    pairs = {key: _pairs(found, [i for i in of_pipes if found[i].event in (key, "")]) for key in known}
    is_any = any(not found[i].event for i in of_pipes)
    rest = list[int]()
    for key, (groups, left) in pairs.items():
        tight = [each for each in groups if len({found[i].burst for i in each}) == 1]
        yield from tight if left else groups
        left = [i for i in of_pipes if found[i].event == key and not any(i in each for each in tight)] if left else []
        if left and not is_any:
            yield left
        rest += left
    if is_any:
        yield sorted({*rest, *(i for i in of_pipes if not found[i].event)}, key=of_pipes.index)


def _pairs(found: Sequence[SourceCall], places: Sequence[int], depth: int = 0) -> tuple[list[list[int]], list[int]]:
    """Calls of one event that are balanced in a block; and those left, with each call that may be of another event."""
    groups, left, open_ = list[list[int]](), list[int](), list[int]()
    for block, run in itertools.groupby(places, key=lambda i: found[i].blocks[depth : depth + 1]):
        if block:
            more, rest = _pairs(found, list(run), depth + 1)
            groups += more
            left, open_ = ([*left, *open_, *rest], []) if rest else (left, open_)
            continue
        for i in run:
            if not found[i].event or not (open_ or found[i].name == "SetFlag"):
                left, open_ = [*left, *open_, i], []
                continue
            open_.append(i)
            if 2 * sum(found[each].name == "SetFlag" for each in open_) == len(open_):
                groups, open_ = [*groups, open_], []
    return groups, [*left, *open_]


def _asked(call: SourceCall, barrier: str, are_open: bool) -> tuple[tuple[str, str], ...]:
    """A call may ask for each of these: the request as it is shown, and its operation."""
    if call.name == "PipeBarrier" and (pipe := _PIPE.fullmatch(call.given)):
        silent = VECTOR_BARRIER if pipe[1] == "PIPE_V" and are_open else NOTHING
        nothing = ((silent, BARRIER[barrier][0]),)
        of_all = {"visible": ("quiet",), "empty": BARRIER["empty"]}[barrier]
        of_one = {"visible": (("fence", "fence"),), "empty": nothing}[barrier]
        known = {"PIPE_ALL": tuple((each, each) for each in of_all), "PIPE_MTE3": of_one}
        return known.get(pipe[1], nothing)
    if call.name == "dsb" and call.given in ("DSB_UB", "DSB_SEQ"):
        return ((NOTHING, "quiet"),)
    asked = call.requests
    if call.name in ("PipeBarrier", "SyncAll"):
        asked = (*BARRIER[barrier], *(("arrive", "await_group") if call.name == "SyncAll" else ()))
    is_map = call.name != "DataCopy"
    return tuple(("v_map" if each == "v_copy" and is_map else each, each.removesuffix("_ge")) for each in asked)


def tables(found: Sequence[SourceCall], main: str, barrier: str, are_open: bool = False) -> str:
    """The source of both tables, sites and calls, as C++.

    Parameters
    ----------
    main: the kernel's file, as the preprocessor calls it.
    are_open: whether hazards inside a core are judged.
    """
    sites, rows = list[str](), list[str]()
    for call, sync in zip(found, names(found, main), strict=True):
        file, caller = json.dumps(call.file), json.dumps(f"{call.caller[0]}:{call.caller[1]}") if call.caller[0] else 0
        for shown, operation in _asked(call, barrier, are_open):
            sites.append(f'{{{len(sites)}, "{shown}", {file}, {call.line}, {json.dumps(sync)}, 0, "", {caller}}}')
            code = rq.OPERATIONS.index(operation)
            rows.append(f"{{{call.line}, {call.mention}, XCCL_NAME_{call.name}, {code}, {file}}}")
    placed = '__attribute__((section("xccl_sites"), used))'
    return (
        f"extern const struct xccl_site xccl_table[];\nconst struct xccl_site xccl_table[] {placed} = {{"
        + ",\n".join(sites)
        + "};\nconst struct xccl_call xccl_calls[] = {"
        + ",\n".join(rows)
        + f"}};\nconst int64_t xccl_n_calls = {len(rows)};\n"
    )


def enumeration() -> str:
    """The number of each name, as C++."""
    return "enum { " + ", ".join(f"XCCL_NAME_{name}" for name in REQUESTS) + " };"


__all__ = ["BARRIER", "SourceCall", "calls", "enumeration", "names", "tables"]
