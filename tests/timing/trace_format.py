"""What the trace event format says, as assertions: what Perfetto would otherwise drop or draw in the wrong place."""

import itertools
from collections import defaultdict
from typing import Any

Event = dict[str, Any]

NAMES = {"process_name": str, "thread_name": str, "process_sort_index": int, "thread_sort_index": int}
"""Events of metadata, and what their one argument is."""

_NS = 1.0e-3


def check_events(events: list[Event]) -> None:
    """Every event is one that the format has, complete, in the order of time, and means what it seems to.

    Slices of a thread follow each other without overlapping, by whole nanoseconds, which is what Perfetto keeps; steps
    of a launch lie within it.  Each arrow has one beginning and one end, in this order, each within exactly one slice;
    every process and thread with events has a name, and each only one.
    """
    times = [event["ts"] for event in events if event["ph"] != "M"]
    assert times == sorted(times)
    assert all(isinstance(ts, float) and ts >= 0 and _is_whole_ns(ts) for ts in times)
    names, slices, arrows = _metadata(events), _slices(events), _arrows(events)
    for event in events:
        assert event["ph"] in "MXsfC"
        assert isinstance(event["pid"], int)
        assert event["name"]
        assert event["pid"] in names["process_name"]
        if event["ph"] in "Xsf":
            assert (event["pid"], event["tid"]) in names["thread_name"]
        if event["ph"] == "C":
            assert event["args"]
            assert all(isinstance(value, float) and value >= 0 for value in event["args"].values())
    launches = [_slices(events, kind) for kind in ("kernel", "step")]
    for spans in (spans for each in (slices, *launches) for spans in each.values()):
        assert all(b[0] >= a[1] - _NS / 10 for a, b in itertools.pairwise(spans))
    for thread, steps in launches[1].items():
        around = launches[0][thread]
        assert all(any(a <= begin and end <= b + _NS / 10 for a, b in around) for begin, end in steps)
    for begin, end in arrows:
        assert begin["ts"] <= end["ts"]
        assert (begin["name"], begin["cat"]) == (end["name"], end["cat"])
        for one in (begin, end):
            around = [s for s in slices[one["pid"], one["tid"]] if s[0] <= one["ts"] <= s[1]]
            assert len(around) == 1 or all(s[1] - s[0] < 2 * _NS for s in around[:-1])


def _is_whole_ns(us: float) -> bool:
    return abs(us * 1000 - round(us * 1000)) < 1e-3


def _metadata(events: list[Event]) -> dict[str, set[Any]]:
    found: dict[str, set[Any]] = {name: set() for name in NAMES}
    for event in events:
        if event["ph"] == "M":
            (value,) = event["args"].values()
            assert isinstance(value, NAMES[event["name"]])
            place = event["pid"] if event["name"].startswith("process") else (event["pid"], event["tid"])
            assert place not in found[event["name"]]
            found[event["name"]].add(place)
    return found


def _slices(events: list[Event], kind: str = "") -> dict[tuple[int, int], list[tuple[float, float]]]:
    """By thread, in the order in which they begin: actions, or launches or steps."""
    slices = defaultdict(list)
    for event in events:
        if event["ph"] == "X" and (event["cat"] if event["cat"] in ("kernel", "step") else "") == kind:
            assert isinstance(event["dur"], float)
            assert event["dur"] >= 0
            assert _is_whole_ns(event["dur"])
            assert isinstance(event["args"], dict)
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    return slices


def _arrows(events: list[Event]) -> list[tuple[Event, Event]]:
    """Beginning and end of each."""
    ends: dict[int, dict[str, Event]] = defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            assert event["ph"] not in ends[event["id"]]
            ends[event["id"]][event["ph"]] = event
            assert event.get("bp") == ("e" if event["ph"] == "f" else None)
    assert all(set(both) == {"s", "f"} for both in ends.values())
    return [(both["s"], both["f"]) for both in ends.values()]
