"""A run in the Chrome trace event format, which Perfetto and chrome://tracing open.

A process is a die, a thread one pipe of a core; a step takes a microsecond and begins at as many as its number.  A
write in flight is an asynchronous event from the step in which it left its core to the one that made it visible.
"""

from collections.abc import Iterator
from typing import Any

from xccl_emu.check.witness.trace import PERFORM, RunTrace, TraceStep
from xccl_emu.lang import operations as ops

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
