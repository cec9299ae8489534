"""Where a source in Ascend C makes requests: the calls that the preprocessor leaves, each with the names of its sites.

A call has a site for each request that it may make.  What a run can switch off is named by what belongs together: a
flag that is set and waited for, a buffer of a queue that is filled or freed, a barrier.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xccl_emu.lang import requests as rq

VECTOR = (
    "Add", "Sub", "Mul", "Div", "Max", "Min", "And", "Or", "Adds", "Muls", "Maxs", "Mins", "Abs", "Duplicate",
    "CreateVecIndex", "Cast", "ReduceSum", "ReduceMax", "ReduceMin", "Sum", "WholeReduceSum", "WholeReduceMax",
    "WholeReduceMin", "BlockReduceSum", "BlockReduceMax", "BlockReduceMin", "CompareScalar", "Select", "Brcb", "Copy",
)  # fmt: skip
"""Instructions of the vector pipe."""

REQUESTS = {
    **dict.fromkeys(VECTOR, ("v_copy",)),
    "DataCopy": ("mtu_in", "mtu_out", "mtu_add", "v_copy"), "DataCopyPad": ("mtu_in", "mtu_out", "mtu_add"),
    "GetValue": ("load", "ub_load"), "SetValue": ("store", "ub_store"), "xccl_tiling": ("load",),
    "xccl_assert": ("fail",),
    "element": ("load", "ub_load", "store", "ub_store"),
    "SetFlag": ("set_flag",), "WaitFlag": ("wait_flag",), "DataCacheCleanAndInvalid": ("dcci",),
    "AllocTensor": ("wait_flag",), "EnQue": ("set_flag",), "DeQue": ("wait_flag",),
    "FreeTensor": ("set_flag", "wait_flag"), "PipeBarrier": (), "SyncAll": (), "dsb": ("quiet",),
    "xccl_launches": ("arrive", "await_group", "load", "poll_ge", "quiet", "atomic_add"),
    "GatherMask": ("v_copy", "set_flag", "wait_flag", "ub_load"),
    **dict.fromkeys(("InitBuffer", "SetAtomicMax", "SetAtomicMin", "SetDeqScale"), ("fail",)),
}  # fmt: skip
"""The requests that a call of each name may make; a barrier's are `BARRIER`."""

BARRIER = {"visible": ("quiet", "fence"), "empty": ("set_flag", "wait_flag")}
"""What a barrier of all pipes asks for, by how it is read; a fence is the writing pipe's."""

_MARKER = re.compile(r'# (\d+) "((?:[^"\\]|\\.)*)"([ \d]*)')
_OF_SYSTEM = "3"
_NAMES = "|".join(name for name in REQUESTS if name != "element")
_CALL = re.compile(rf"(?:(\w+)\s*(?:\[[^\]]*\])?\s*(?:\.|->)\s*(?:template\s+)?)?\b({_NAMES})\s*(?=[<(])")
_TENSOR = re.compile(r"\b(Local|Global)Tensor\s*<[^;()]*?>\s*&?\s*(\w+(?:\s*,\s*\w+)*)")
_EVENT = re.compile(r"\s*(?:<\s*(?:\w+\s*::\s*)*(\w+)\s*>)?\s*\(?([^;)]*)")
_NUMBER = re.compile(r"(?:EVENT_ID)?\d+")
_EVENTS = ("SetFlag", "WaitFlag")
_FILLED, _FREED = ("EnQue", "DeQue"), ("AllocTensor", "FreeTensor")


@dataclass(frozen=True)
class SourceCall:
    """A call in the source."""

    file: str
    line: int
    name: str
    of: str
    """The queue or tensor whose method it is, or the event between pipes; or empty."""
    event: str = ""
    """How the source writes the number of its event."""
    where: str = ""
    """``Local`` or ``Global``, if all tensors of that name are so."""

    @property
    def requests(self) -> tuple[str, ...]:
        """The requests that it may make."""
        asked = REQUESTS[self.name]
        kinds = {"Local": True, "Global": False}
        if self.name not in ("element", "GetValue", "SetValue") or self.where not in kinds:
            return asked
        return tuple(each for each in asked if each.startswith("ub_") == kinds[self.where])


def calls(text: str, own: str) -> list[SourceCall]:
    """The calls in a preprocessed text, but for those in files of a folder and in the compiler's headers, in order."""
    found, rows, file, line = list[SourceCall](), list[tuple[str, int, str]](), "", 0
    is_system = False
    for row in text.splitlines():
        marker = _MARKER.match(row)
        if marker:
            line, file = int(marker[1]), json.loads(f'"{marker[2]}"')
            is_system = _OF_SYSTEM in marker[3].split()
            continue
        if not is_system and not file.startswith((own, "<", "the call of")):
            rows.append((file, line, row))
        line += 1
    tensors = defaultdict[str, set[str]](set)
    for m in (m for _, _, row in rows for m in _TENSOR.finditer(row)):
        for name in m[2].split(","):
            tensors[name.strip()].add(m[1])
    where = {name: of.copy().pop() for name, of in tensors.items() if len(of) == 1}
    element = re.compile(rf"\b({'|'.join(sorted(tensors)) or '(?!)'})\s*\(")
    for file, line, row in rows:
        found += [SourceCall(file, line, m[2], *_of(m, row), where.get(m[1] or "", "")) for m in _CALL.finditer(row)]
        found += [SourceCall(file, line, "element", m[1], "", where.get(m[1], "")) for m in element.finditer(row)]
    return found


def _of(match: re.Match[str], row: str) -> tuple[str, str]:
    """Return what a call belongs to, and its event, if it has one."""
    event = _EVENT.match(row, match.end()) if match[2] in _EVENTS else None
    return (event[1] or match[1] or "", event[2].strip()) if event else (match[1] or "", "")


def names(found: list[SourceCall]) -> Iterator[str]:
    """The name of each call's synchronization, or nothing.

    A flag is named by where it is set first.  What sets it and what waits for it has one name, so a cut takes both.
    Where numbers of events are no literals, or a flag is set in more places than it is waited for, it may be any of
    them: then all of them have one name.
    """
    lines = _set_at(found)
    for i, call in enumerate(found):
        if call.name in _EVENTS:
            yield f"{call.of}, line {lines[i]}"
        elif call.name in _FILLED + _FREED:
            yield f"{call.of} {'filled' if call.name in _FILLED else 'freed'}"
        elif call.name in ("PipeBarrier", "SyncAll", "DataCacheCleanAndInvalid", "dsb"):
            yield f"{call.name}, line {call.line}"
        else:
            yield ""


def _set_at(found: list[SourceCall]) -> dict[int, int]:
    """Return, by the place of a call of `SetFlag` or `WaitFlag`, the line where its event is set first."""
    of_pipes, lines = defaultdict[str, list[int]](list), dict[int, int]()
    for i, call in enumerate(found):
        if call.name in _EVENTS:
            of_pipes[call.of].append(i)
    for places in of_pipes.values():
        is_known = all(_NUMBER.fullmatch(found[i].event) for i in places)
        of_event = defaultdict[str, list[int]](list)
        for i in places:
            of_event[found[i].event if is_known else ""].append(i)
        for together in (each for calls in of_event.values() for each in _balanced(found, calls)):
            is_set = (found[i].line for i in together if found[i].name == "SetFlag")
            lines |= dict.fromkeys(together, next(is_set, found[together[0]].line))
    return lines


def _balanced(found: list[SourceCall], places: list[int]) -> Iterator[list[int]]:
    """Calls of one event, cut where it has been waited for as often as it was set."""
    together, n = list[int](), 0
    for i in places:
        together.append(i)
        n += 1 if found[i].name == "SetFlag" else -1
        if n == 0:
            yield together
            together = []
    if together:
        yield together


def tables(text: str, own: str, barrier: str, more: Sequence[SourceCall] = ()) -> str:
    """The source of both tables, sites and calls, as C++; with more calls than those in the text."""
    found = calls(text, own)
    sites, rows = list[str](), list[str]()
    found = [*found, *more]
    for call, sync in zip(found, names(found), strict=True):
        asked = call.requests
        if call.name in ("PipeBarrier", "SyncAll"):
            asked = (*BARRIER[barrier], *(("arrive", "await_group") if call.name == "SyncAll" else ()))
        for request in asked:
            file = json.dumps(call.file)
            shown = "v_map" if request == "v_copy" and call.name != "DataCopy" else request
            sites.append(f'{{{len(sites)}, "{shown}", {file}, {call.line}, "{sync}", 0, ""}}')
            code = rq.OPERATIONS.index(request.removesuffix("_ge"))
            rows.append(f"{{{call.line}, XCCL_NAME_{call.name}, {code}, {file}}}")
    placed = '__attribute__((section("xccl_sites")))'
    return (
        f"extern const struct xccl_site xccl_table[] {placed};\nconst struct xccl_site xccl_table[] = {{"
        + ",\n".join(sites)
        + "};\nconst struct xccl_call xccl_calls[] = {"
        + ",\n".join(rows)
        + f"}};\nconst int64_t xccl_n_calls = {len(rows)};\n"
    )


def enumeration() -> str:
    """The number of each name, as C++."""
    return "enum { " + ", ".join(f"XCCL_NAME_{name}" for name in REQUESTS) + " };"
