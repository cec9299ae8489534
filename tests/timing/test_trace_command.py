"""``xccl-emu trace``: every protocol, and what a reader finds in the file."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.cli_support import as_json, invoke
from xccl_emu.protocol.registry import names

from .trace_format import check_events

Event = dict[str, Any]

SMALL = {
    "a2e": ("rounds=1",), "a2e-urma": ("rounds=1",), "a2e-pull": ("rounds=1",), "fused": ("rounds=2",),
    "probe": ("patient=1",),  # or the first time-out passes before anything has come
}  # fmt: skip


def traced(tmp_path: Path, protocol: str, *options: str) -> tuple[dict[str, Any], list[Event]]:
    """What the command says as JSON, and the events of its file."""
    out = tmp_path / "t.json"
    told = as_json("trace", protocol, "--out", str(out), *options)
    return told, json.loads(out.read_text("utf-8"))["traceEvents"]


@pytest.mark.parametrize("protocol", names())
def test_every_protocol_has_a_trace(protocol: str, tmp_path: Path) -> None:
    """Each protocol runs in virtual time with the right bytes, and its trace is one that the format allows."""
    sizes = [word for size in SMALL.get(protocol, ()) for word in ("--set", size)]
    told, events = traced(tmp_path, protocol, *sizes)
    check_events(events)
    assert (told["wrong"], told["wrong_bytes"]) == (0, {})
    assert told["slices"] == sum(event["ph"] == "X" and event["cat"] not in ("kernel", "step") for event in events)
    assert sum(told["critical_path_us"].values()) == pytest.approx(told["latency_us"])
    assert sum(told["critical_path_by_sync_us"].values()) <= told["latency_us"] * (1 + 1e-9)
    assert told["arrows"] > 0 or protocol == "block-map"  # of whose cores none reads what another has written


def test_the_eight_steps_of_a_transfer_can_be_read_off(tmp_path: Path) -> None:
    """With one slot, the first chunk's steps end one after the other in the trace, each where the paper has it."""
    _, events = traced(tmp_path, "sendrecv", "--set", "slots=1", "--set", "chunks=2", "--place", "nodes")
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    read_off = [
        (0, "core 0 mtu-in", "step 1: mtu_in"),  # the sender's app data into its data buffer
        (0, "core 0 mtu-out", "step 2: mtu_out"),  # into the receiver's ring
        (0, "core 0 mtu-out", "step 3: put, tail"),
        (1, "core 0 scalar", "step 5: poll, tail in"),
        (1, "core 0 mtu-in", "step 6: mtu_in"),  # out of the ring
        (1, "core 0 mtu-out", "step 7: add, slot ack"),
        (0, "core 0 scalar", "waits: step 4: poll, slot free"),  # for that acknowledgement, from the beginning on
        (0, "core 0 scalar", "step 8: poll, all acknowledged"),
    ]
    ends = []
    for die, thread, name in read_off:
        found = [e for e in events if e["ph"] == "X" and (e["pid"], threads[e["pid"], e["tid"]]) == (die, thread)]
        ends.append(next(e["ts"] + e["dur"] for e in found if e["name"] == name))
    assert ends == sorted(ends)
    assert len(set(ends)) == 8
    writes = {e["name"] for e in events if e["ph"] == "X" and "writes" in e["args"]}
    puts = {"step 3: put, tail", "step 7: add, slot ack", "step 7: put, ack"}
    assert writes == {"step 2: mtu_out", "step 6: mtu_out", *puts}


@pytest.mark.parametrize("kind", ["dispatch", "fused"])
def test_a_swap_can_be_told_from_the_layers_that_run_meanwhile(kind: str, tmp_path: Path) -> None:
    """The last die's loader writes weights while other dies dispatch; arrows join its maps and who adopts them."""
    sizes = [word for size in ("ranks=3", "rounds=3", "tokens=8,1,1") for word in ("--set", size)]
    told, events = traced(tmp_path, f"{kind}-swap", *sizes)
    check_events(events)
    assert told["wrong"] == 0
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    spans = [e for e in events if e["ph"] == "X" and threads[e["pid"], e["tid"]].endswith("kernels")]
    (loader,) = [e for e in spans if e["name"] == "reload"]
    assert (loader["pid"], threads[2, loader["tid"]]) == (2, "core 1 kernels")
    steps = [e for e in spans if (e["pid"], e["tid"], e["cat"]) == (2, loader["tid"], "step")]
    assert [e["name"] for e in steps] == ["step 1", "step 2", "step 1", "step 3", "step 2"]
    layers = [e["name"] for e in spans if e["cat"] == "kernel" and e["pid"] == 0]
    dispatch, combine = [name for name in dict.fromkeys(layers) if name.endswith(("dispatch", "combine"))]
    assert layers == ["begin", dispatch, "held_experts", combine] * 3 + ["end"]
    meets = [(e["pid"], e["name"]) for e in spans if e["cat"] == "kernel" and overlap(e, steps[3])]
    assert (1, dispatch) in meets
    assert {e["args"]["kernel"] for e in events if e["ph"] == "X" and "slot ver" in e["name"]} >= {"reload"}
    begun, ended = (
        {e["id"]: threads[e["pid"], e["tid"]] + f" of {e['pid']}" for e in events if e["ph"] == end} for end in "sf"
    )
    joined = {(begun[each], ended[each]) for each in begun}
    for die in range(3):
        assert ("core 1 mtu-out of 2", f"core 0 scalar of {die}") in joined  # a map's number
        assert (f"core 0 mtu-out of {die}", "core 1 scalar of 2") in joined  # that it is adopted


def overlap(one: Event, other: Event) -> bool:
    """Return whether there is a moment at which both slices are under way."""
    return one["ts"] < other["ts"] + other["dur"] and other["ts"] < one["ts"] + one["dur"]


def test_what_a_slice_and_an_arrow_say(tmp_path: Path) -> None:
    """A slice names what it touches and its line of the source; data and flag of a chunk each have their arrow."""
    _, events = traced(tmp_path, "sendrecv", "--set", "chunks=1", "--dies", "0-1")
    put = next(e for e in events if e["ph"] == "X" and e["name"] == "step 3: put, tail" and "writes" in e["args"])
    assert put["args"]["writes"] == "die1.meta.tail[0→1]"
    assert put["args"]["source"].startswith("kernels/sendrecv.py:")
    arrows = [(e["name"], e["pid"]) for e in events if e["ph"] == "s"]
    assert arrows.count(("data", 0)) == 1  # the chunk; loads of the tail's words and its poll see the flag
    assert ("flag", 0) in arrows
    assert ("flag", 1) in arrows  # the acknowledgement


def test_people_are_told_what_is_left_out(tmp_path: Path) -> None:
    """Without --json the command says how long it took, what bounds it, and how much the file lacks."""
    out = tmp_path / "t.json"
    code, shown, _ = invoke("trace", "sendrecv", "--events", "20", "--out", str(out))
    assert code == 0
    path = ("critical path, us: issue", "at synchronizations, us: ", "is no price")
    for text in (*path, "bytes: as they must be", "left out:"):
        assert text in shown


def test_a_trace_goes_through_a_fifo(tmp_path: Path) -> None:
    """What stands at --out and is no regular file stays what it is, and takes the trace."""
    fifo, got = tmp_path / "t.json", list[str]()
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: got.append(fifo.read_text("utf-8")))
    reader.start()
    code, _, _ = invoke("trace", "sendrecv", "--out", str(fifo))
    reader.join(30)
    assert (code, fifo.is_fifo()) == (0, True)
    assert json.loads(got[0])["traceEvents"]
