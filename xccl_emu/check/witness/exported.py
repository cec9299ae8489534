"""What a run is for others: a Mermaid sequence chart, a trace for Perfetto, and findings as SARIF."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import xccl_emu
from xccl_emu.check.verdict import KINDS, Verdict, Violation
from xccl_emu.check.witness.highlight import LOOP, ROUND
from xccl_emu.check.witness.render import RenderedRow, rows
from xccl_emu.check.witness.trace import PERFORM, RunTrace, TraceStep
from xccl_emu.lang import operations as ops

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_PLACE = re.compile(r"\(([^()]+):(\d+)[,)]")


def sarif(verdict: Verdict, origin: str = "") -> dict[str, Any]:
    """The log of one check: a result for each violation, none for what is right.

    A violation is located at the lines that its message names, the first of them its own; where it names none, at the
    first line of the file of ``origin`` (``FILE.py:NAME``).  Files below the working directory have relative URIs.
    """
    found = [one for one in (verdict.violation, *verdict.others) if one is not None]
    rules = [{"id": _id(kind), "shortDescription": {"text": kind}} for kind in KINDS]
    driver = {"name": "xccl-emu", "version": xccl_emu.__version__, "rules": rules}
    results = [_result(verdict, one, origin) for one in found]
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _id(kind: str) -> str:
    return kind.replace(" ", "-")


def _result(verdict: Verdict, found: Violation, origin: str) -> dict[str, Any]:
    places = dict.fromkeys((file, int(line)) for file, line in _PLACE.findall(found.message))
    locations = _located([*places] or [(origin.rpartition(":")[0], 1)] * bool(origin))
    without = f", without {', '.join(verdict.without)}" if verdict.without else ""
    text = f"{found.kind}: {verdict.protocol} under {verdict.order}{without}: {found.message}"
    related = [{"id": number, **one} for number, one in enumerate(locations[1:], 1)]
    return {
        "ruleId": _id(found.kind), "ruleIndex": KINDS.index(found.kind), "level": "error", "message": {"text": text},
        "locations": locations[:1], **({"relatedLocations": related} if related else {}),
    }  # fmt: skip


def _located(places: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    return [
        {"physicalLocation": {"artifactLocation": {"uri": _uri(file)}, "region": {"startLine": line}}}
        for file, line in places
    ]


def _uri(file: str) -> str:
    """Relative to the working directory where the file is below it; else the whole path as a URI."""
    path, here = Path(file).resolve(), Path.cwd().resolve()
    if not path.is_relative_to(here):
        return path.as_uri()
    return path.as_uri().removeprefix(f"{here.as_uri()}/")


# ---- a trace for Perfetto


Event = dict[str, Any]

_PIPES = ("scalar", "mtu-in", "vector", "mtu-out", "dma", PERFORM)
_WAITS = ops.names(ops.WAITS)


def perfetto(trace: RunTrace, marked: dict[int, str] | None = None) -> dict[str, Any]:
    """The trace, ready for `json.dump`."""
    events = [*_names(trace), *_slices(trace, marked or {}), *_flights(trace)]
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _place(trace: RunTrace, core: int, pipe: str) -> Event:
    """Process and thread of a core's pipe."""
    die, on_die = divmod(core, trace.cores_per_die)
    return {"pid": die, "tid": on_die * len(_PIPES) + _PIPES.index(pipe) + 1}


def _names(trace: RunTrace) -> Iterator[Event]:
    """Names of the processes and threads that have events."""
    used = sorted({(step.core, _PIPES.index(step.pipe)) for step in trace.steps})
    for die in sorted({core // trace.cores_per_die for core, _ in used}):
        yield {"ph": "M", "name": "process_name", "pid": die, "tid": 0, "args": {"name": trace.home(die)}}
    for core, pipe in used:
        name = f"core{core % trace.cores_per_die}.{_PIPES[pipe]}"
        yield {"ph": "M", "name": "thread_name", **_place(trace, core, _PIPES[pipe]), "args": {"name": name}}


def _slices(trace: RunTrace, marked: dict[int, str]) -> Iterator[Event]:
    """A slice for each step, and one for the time that a scalar unit waited for it."""
    before: dict[int, int] = {}
    for step in trace.steps:
        place = _place(trace, step.core, step.pipe)
        if step.pipe == "scalar":
            since = before.get(step.core, 0) + 1
            before[step.core] = step.number
            if step.operation in _WAITS and since < step.number and not step.issues:
                name, duration = f"waits: {step.action}", step.number - since
                yield {"ph": "X", "name": name, "cat": "waiting", "ts": since, "dur": duration, **place}
        mark = f"{marked[step.number]} " if step.number in marked else ""
        yield {
            "ph": "X", "name": mark + step.words(), "cat": step.operation, "ts": step.number, "dur": 1, **place,
            "args": _arguments(step),
        }  # fmt: skip


def _arguments(step: TraceStep) -> Event:
    source = step.source
    known = {"step": step.number, "address": step.place, "value": step.value}
    if source is not None:
        known |= {"paper step": source.step, "sync": source.sync, "source": f"{source.file}:{source.line}"}
    return {name: value for name, value in known.items() if value not in ("", 0)}


def _flights(trace: RunTrace) -> Iterator[Event]:
    """Beginning and end of each write's flight; one that nothing made visible ends after the last step."""
    for write in trace.writes:
        if write.visible == write.by.number:
            continue
        place = _place(trace, write.by.core, PERFORM)
        event = {"cat": "in flight", "id": write.number, "name": f"{write.by.action} {write.place}", **place}
        end = write.visible or len(trace.steps) + 1
        args = {"value": write.value, "visible": bool(write.visible)}
        yield {"ph": "b", "ts": write.by.number, "args": args, **event}
        yield {"ph": "e", "ts": end, **event}


# ---- a Mermaid sequence chart


_LOCAL = ops.names(ops.FLAGS)
_REPLACED = {";": ",", "#": "no. ", "\n": " ", "%": " percent "}


def mermaid(trace: RunTrace, marked: dict[int, str] | None = None) -> str:
    """The chart as text.  Flags, and what stays in a data buffer, are left out.

    Cores and memories of dies are participants.  An open arrow is a write that leaves its core, a closed one a write
    that becomes visible, a dashed one something that is read.
    """
    lines = rows(trace, marked)
    arrows = [text for line in lines for text in _marked(trace, line)]
    last = ["end"] if any(line.mark == LOOP for line in lines) else []
    last += [f"Note over {core_name(trace, one.step.core)}: blocked, {_text(one.why)}" for one in trace.waiting]
    return "\n".join(["sequenceDiagram", *(f"    {text}" for text in (*_participants(trace), *arrows, *last)), ""])


def core_name(trace: RunTrace, core: int) -> str:
    """The participant that a core is."""
    die, on_die = divmod(core, trace.cores_per_die)
    return f"d{die}c{on_die}"


def _participants(trace: RunTrace) -> Iterator[str]:
    """Yield the participants: for each die its cores, then its memory, as far as they take part."""
    cores = sorted({step.core for step in trace.steps})
    touched = {trace.die_of(access.start) for step in trace.steps for access in step.accesses}
    touched |= {trace.die_of(write.address) for write in trace.writes}
    for die in range(trace.n_homes):
        for core in cores:
            if core // trace.cores_per_die == die:
                yield f"participant {core_name(trace, core)} as {trace.home(die)}.core{core % trace.cores_per_die}"
        if die in touched:
            yield f"participant m{die} as memory of {trace.home(die)}"


def _marked(trace: RunTrace, line: RenderedRow) -> list[str]:
    """A line's arrow or note; on red ground, and in any case there, if it is marked.  A loop begins with its first."""
    texts = list(_arrows(trace, line))
    if line.mark == LOOP:
        return [f"loop {ROUND}", *texts]
    if not line.mark:
        return texts
    note = f"Note over {core_name(trace, line.step.core)}: {_text(f'{line.numbers} {line.mark} {line.step.words()}')}"
    return ["rect rgb(255, 210, 210)", *(f"    {text}" for text in texts or [note]), "end"]


def _arrows(trace: RunTrace, line: RenderedRow) -> Iterator[str]:
    """Yield what a line of the table is in the chart: an arrow, a note, or nothing."""
    step, core = line.step, core_name(trace, line.step.core)
    text = _text(f"{line.numbers} {line.mark} {step.words()} {step.value}")
    if step.switched_off or (step.operation == "fault" and not step.landed):
        yield f"Note over {core}: {text}"
    elif step.pipe == PERFORM and step.address is not None:
        yield f"{core}->>m{trace.die_of(step.address)}: {text} at {_text(step.place)}"
    elif step.issues or step.operation in _LOCAL:
        return
    elif step.left or step.landed:
        yield from _writes(trace, step, core, text)
    elif step.address is not None and (die := trace.die_of(step.address)) >= 0:
        yield f"m{die}-->>{core}: {text} at {_text(step.place)}"
    elif step.address is None:
        yield f"Note over {core}: {text}"


def _writes(trace: RunTrace, step: TraceStep, core: str, text: str) -> Iterator[str]:
    """Writes that leave their core; under `sc`, and of an atomic, they are visible at once."""
    first = trace.writes[step.left[0]]
    arrow = "->>" if first.visible == step.number else "-)"
    yield f"{core}{arrow}m{trace.die_of(first.address)}: {text} at {_text(step.place)}"


def _text(words: str) -> str:
    """Words that Mermaid takes as they are: no separators, comments or line breaks."""
    for bad, good in _REPLACED.items():
        words = words.replace(bad, good)
    return " ".join(words.split())
