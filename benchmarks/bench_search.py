"""How fast the exhaustive search is, and the same ring in [SPIN].

The ring of `send` and `recv`: ``S`` slots, ``C`` chunks of ``W`` granules.  SPIN checks a model of it that was
written by hand: granules become visible in any order until the quiet, then the tail, then the acknowledgement.  The
search runs the kernels on the machine; "merged" explores when each granule becomes visible, as the model does, "full"
only when the flags do.

Left out if SPIN or a C compiler is missing: apt-get install spin gcc.
"""

import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from harness import Report, parser, stopwatch

from xccl_emu.check.search.exhaustive import Found, Search
from xccl_emu.check.search.setup import Setup
from xccl_emu.protocol import Case
from xccl_emu.protocol.registry import make
from xccl_emu.protocols.sendrecv.case import SendRecvCase

SIZES = ((4, 8, 4), (4, 32, 8))
"""(slots, chunks, granules); the last one is configuration (b), the target."""

PROTOCOLS: Mapping[str, dict[str, int | str]] = {
    "dispatch": {}, "a2e": {}, "all-gather-ring": {"ranks": 4}, "all-reduce-ring": {"ranks": 4}
}  # fmt: skip
"""Whose transitions are more than deliveries: what one costs depends on how much of the machine runs in it."""

STATES_MAX = 1_000_000
"""Where a search is cut off: enough to know its speed."""

MODEL = """
#define S {slots}
#define C {chunks}
#define W {granules}
int ring[S*W]; int value[W]; int place[W]; bool flying[W];
byte n_flying, tail_issued, tail, ack_issued, ack; bool finished;

active proctype sender() {{
    byte i, w;
    do
    :: i < C ->
        (ack + S >= i + 1);
        atomic {{ w = 0;
            do
            :: w < W -> flying[w] = true; value[w] = i * W + w + 1; place[w] = (i % S) * W + w; n_flying++; w++
            :: else -> break
            od }};
        (n_flying == 0 && tail == tail_issued);   /* the quiet */
        atomic {{ tail_issued = i + 1; i++ }}
    :: else -> break
    od;
    (ack >= C && tail == C);
    finished = true
}}

active proctype performing() {{
    byte w;
    do
    :: atomic {{ n_flying > 0 ->
            select (w : 0 .. (W - 1)); if :: flying[w] -> ring[place[w]] = value[w]; flying[w] = false;
            value[w] = 0; place[w] = 0; n_flying-- :: else fi; w = 0 }}
    :: atomic {{ tail < tail_issued -> tail = tail_issued }}
    :: atomic {{ ack < ack_issued -> ack++ }}
    :: finished -> break
    od
}}

active proctype receiver() {{
    byte i, w;
    do
    :: i < C ->
        (tail >= i + 1);
        w = 0;
        do
        :: w < W -> atomic {{ assert(ring[(i % S) * W + w] == i * W + w + 1); w++ }}
        :: else -> break
        od;
        atomic {{ w = 0; ack_issued = i + 1; i++ }}
    :: else -> break
    od
}}
"""


def search(slots: int, chunks: int, granules: int, full: bool) -> tuple[Found, float]:
    """Search a ring; return what was found and its CPU seconds, without learning and set-up."""
    return search_case(SendRecvCase(slots=slots, chunks=chunks, granules=granules), full)


def search_case(case: Case, full: bool, states: int = STATES_MAX) -> tuple[Found, float]:
    """The same of any case."""
    setup = Setup(case.build("relaxed"), full)
    with stopwatch() as taken:
        found = Search(setup, max_states=states, seconds=None, progress=None).run()
    return found, taken["cpu"]


def spin(slots: int, chunks: int, granules: int) -> tuple[int, int, float] | None:
    """States, transitions and CPU seconds of SPIN's verifier; None if it is missing."""
    if not shutil.which("spin") or not shutil.which("gcc"):
        return None
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "ring.pml").write_text(MODEL.format(slots=slots, chunks=chunks, granules=granules))
        subprocess.run(["spin", "-a", "ring.pml"], cwd=folder, check=True, capture_output=True)
        subprocess.run(["gcc", "-O2", "-DSAFETY", "-o", "pan", "pan.c"], cwd=folder, check=True, capture_output=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(["./pan", "-m1000000", "-w24"], cwd=folder, check=True, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    stored = re.search(r"([\d.e+]+) states, stored", done.stdout)
    made = re.search(r"([\d.e+]+) transitions", done.stdout)
    assert "errors: 0" in done.stdout, done.stdout
    assert stored, done.stdout
    assert made, done.stdout
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return int(float(stored[1])), int(float(made[1])), seconds


def main() -> None:
    """Print the table."""
    options = parser(__doc__).parse_args()
    report = Report("exhaustive search")
    search(2, 3, 2, True)  # compiled
    search(2, 3, 2, False)
    for slots, chunks, granules in SIZES:
        name = f"S{slots} C{chunks} W{granules}"
        (full, full_seconds), (merged, merged_seconds) = (search(slots, chunks, granules, how) for how in (True, False))
        model = spin(slots, chunks, granules)
        for how, found, seconds in (("full", full, full_seconds), ("merged", merged, merged_seconds)):
            report.plain(f"{name}, {how}: states", found.states)
            report.plain(f"{name}, {how}: seconds", seconds, "CPU s")
        speed = merged.transitions / merged_seconds / 1e6
        report.at_least(f"{name}, merged: transitions", speed, 3, "M/s")
        if model is None:
            report.notes.append("SPIN or gcc is missing: not compared")
            continue
        report.plain(f"{name}, SPIN: states", model[0])
        report.plain(f"{name}, SPIN: seconds", model[2], "CPU s")
        report.plain(f"{name}, SPIN: transitions", model[1] / model[2] / 1e6, "M/s")
        report.at_most(f"{name}: full search / SPIN", full_seconds / model[2], 1)
        if merged.complete:
            report.plain(f"{name}: merged search / SPIN", merged_seconds / model[2])
    for protocol, sizes in PROTOCOLS.items():
        found, seconds = search_case(make(protocol, **sizes), False, STATES_MAX // 4)
        report.plain(f"{protocol}, merged: transitions", found.transitions / seconds / 1e6, "M/s")
        report.plain(f"{protocol}, merged: a transition", 1e9 * seconds / found.transitions, "CPU ns")
        report.plain(f"{protocol}, merged: actions in one", found.actions_taken / found.transitions)
    report.finish(options.json)


if __name__ == "__main__":
    main()
