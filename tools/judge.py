"""Write the tables of docs/records/campaign.md: mistakes planted in the judge, and what each takes to be found.

    python tools/judge.py                    all of them
    python tools/judge.py loads-stay ...     some; the lines of others stay as they are
    python tools/judge.py --ends field-acquired-late ...    the smallest programs, judged by their ends
    python tools/judge.py --model            the mistakes in the monitor, by the model of tests/model
    python tools/judge.py --programs 2000    give up sooner
    python tools/judge.py --workers 4        processes; each of them takes every fourth program

The package is copied once, with all mistakes in it, each under a word of the checker state, or of the monitor's, that
says which one is made, so that the copy is compiled once; campaigns run on it in processes of their own.  A program is
judged by all judges if the mistake changes what the full search says of it, or of one in the monitor what schedules say
in which reads do not acquire.  It counts if they contradict each other then, and do not without the mistake.

A campaign has no second judge of a monitor in which such reads acquire too much: the model of tests/model is one.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pages import ROOT, between, table

from xccl_emu.base.jobs import Job, collect, end_with
from xccl_emu.check.faults import parse
from xccl_emu.check.sampling import sample
from xccl_emu.check.sampling.device.monitor import layout as ml
from xccl_emu.check.search.device import checker_state as cs
from xccl_emu.check.search.device import faulty_runs
from xccl_emu.check.verdict import VERIFIED
from xccl_emu.guards.campaign import judge, run
from xccl_emu.guards.campaign.generate import ProgramCase, draw
from xccl_emu.guards.campaign.programs import ORDERS, Small
from xccl_emu.guards.campaign.smallest import PAIRS, smallest

PAGE = ROOT / "docs" / "records" / "campaign.md"
COLUMNS = ("planted", "what is wrong", "programs", "order", "first contradiction")
MOST, SEED, NOT_RUN = 20_000, 0, "not run"
DRAWN, MOST_LOOSE = 200, 1_000
"""Schedules of each program that the model judges too, and programs."""
BY_VERDICTS, BY_ENDS, BY_MODEL = "--hunt", "--hunt-ends", "--hunt-model"
WORD = cs.HEADER
"""Word of the copy's checker state that says which mistake is made; the package's has one word less."""
SWITCH = "XCCL_EMU_PLANTED"
_SET = "        ck[cs.FULL] = full\n"
_HOST, _MAY_WAIT = "search/every_fault.py", "target, trial.may_wait(fault)"
_HEADER = "HEADER = GIVES_UP + 1 + GIVES_UP_MAX\n"
_PENDING = "        m[ml.FENCES], m[ml.SIGNALS], m[ml.PENDING] = self._fences, signals, pending\n"


@dataclass(frozen=True)
class Mistake:
    """A piece of text of the checker, and what replaces it: `PLANTED` in it is whether it is made."""

    name: str
    what: str
    """What the checker takes for granted then."""
    file: str
    """Below ``xccl_emu/check``."""
    old: str
    new: str
    also: tuple[tuple[str, str, str], ...] = ()
    """File, old and new text of more places: where one alone keeps a mistake at another from mattering."""
    trap: str = ""
    """The name of one of tests/check/traps.py that gets another verdict with it, where that is known."""

    def plant(self, folder: Path, number: int) -> None:
        """Put the mistake, the one of this number, into a copy; ValueError if a place of it is not there just once."""
        for name, old, new in ((self.file, self.old, self.new), *self.also):
            path = folder / "xccl_emu" / "check" / name
            text = path.read_text("utf-8")
            if text.count(old) != 1:
                raise ValueError(f"{self.name}: {name} has its text {text.count(old)} times, not once")
            word = _WORDS.get(name, f"ck[{WORD}]")
            path.write_text(text.replace(old, new.replace("PLANTED", f"({word} == {number})")), "utf-8")


    @property
    def is_of_monitor(self) -> bool:
        """Return whether it is in what watches drawn schedules, not in the search."""
        return self.file.startswith("sampling/")


_SETUP, _FAULTY, _WATCH = "search/setup.py", "search/device/faulty_runs.py", "sampling/watch.py"
_CLOCKS, _SHADOW, _STEP = (f"sampling/device/monitor/{name}.py" for name in ("clocks", "shadow", "step"))
_WORDS = {
    _SETUP: f"self.checker[{WORD}]", _FAULTY: f"asked.words[{faulty_runs.MAY_BLOCK + 1}]",
    **dict.fromkeys((_CLOCKS, _STEP), f"m[{ml.HEADER}]"), _SHADOW: f"space.m[{ml.HEADER}]",
}  # fmt: skip
"""Files that know another word for which mistake is made, or the checker state by another name."""
_CLASSIFY, _DFS, _FIELDS, _GRANULES, _INSIDE, _KEPT, _MOVES, _RACES, _RUN = (
    f"search/device/{name}.py"
    for name in ("classify", "dfs", "fields", "granules", "inside", "kept", "moves", "races", "run_local")
)
_TOUCH, _COPIED = "max(worst, granules.touch(", "a copy over what a poll waits for"
MISTAKES = (
    Mistake(
        "first-answer", "of what the environment may answer the first is taken", _CLASSIFY,
        "OP_CHOOSE and answers(st, base) > 1)", "OP_CHOOSE and answers(st, base) > 1 and not PLANTED)",
    ),
    Mistake(
        "flags-at-once", "a transfer that synchronizes sees all its flags at one moment", _RUN,
        "            apart = access", "            apart = not PLANTED and access",
    ),
    Mistake(
        "clocks-alike", "clocks that are numbered again are all the same, so all is known", "search/device/clocks.py",
        "old, new), new + 1", "old, new), new + (0 if PLANTED else 1)",
    ),
    Mistake(
        "set-unasked", "an event is set again, and nobody asks whether its setter knows that it was consumed",
        "search/device/clocks.py", "< ck[at + 2] and ck[cs.VIOLATION] == 0:",
        "< ck[at + 2] and ck[cs.VIOLATION] == 0 and not PLANTED:",
    ),
    Mistake(
        "first-condition", "of a poll of several words the first alone is known to be polled", _CLASSIFY,
        "    for r in range(n):\n        if rows[r, accesses.START] < ck[cs.MEMORY_END]:",
        "    for r in range(1 if PLANTED and pipe == rq.SCALAR and st[base + REQUEST] == rq.OP_POLL_ANY else n):\n"
        "        if rows[r, accesses.START] < ck[cs.MEMORY_END]:",
    ),
    Mistake(
        "lowest-condition", "of several words that have come a poll sees the one with the lowest number", _RUN,
        "        return refused or which_holds(mem, st, core, base, choice) >= 0\n",
        "        lowest = which_holds(mem, st, core, base, ms.CHOICE_ALL)\n"
        "        missed = PLANTED and choice != ms.CHOICE_ALL and lowest != choice\n"
        "        return refused or (which_holds(mem, st, core, base, choice) >= 0 and not missed)\n",
    ),
    Mistake(
        "first-row", "of the rows that the vector pipe sums the first alone is read", _CLASSIFY,
        "    n = accesses.accesses(st, base, pipe, choice, named, rows)\n",
        "    n = accesses.accesses(st, base, pipe, choice, named, rows)\n"
        "    if PLANTED and pipe == rq.VECTOR and n == 3:\n"
        "        n = 2\n"
        "        for w in range(accesses.ACCESS_WORDS):\n"
        "            rows[1, w] = rows[2, w]\n",
    ),
    Mistake(
        "row-in-flight", "what a copy by mtu-out adds is written while it is in flight", _RACES,
        "== ms.KIND_ADD or kind == ms.KIND_ADD_ROW else 0)",
        "== ms.KIND_ADD or (kind == ms.KIND_ADD_ROW and not PLANTED) else 0)",
    ),
    Mistake(
        "no-cpu", "what cores of a CPU have in flight never becomes visible", _SETUP,
        "{self.cores[i] // per_die for i in members}",
        "{d for i in members if (d := self.cores[i] // per_die) < self.pod.spec.n_dies or not PLANTED}",
    ),
    Mistake(
        "tentative-is-data", "what is read tentatively is data: written at once, read as soon as it can be", _CLASSIFY,
        "        return granules.USE_EXACT if flags & accesses.SYNC else granules.USE_READ\n    if pipe == rq.SCALAR:",
        "        loose = PLANTED and flags & accesses.TENTATIVE\n"
        "        return granules.USE_EXACT if flags & accesses.SYNC and not loose else granules.USE_READ\n"
        "    if pipe == rq.SCALAR:",
    ),
    Mistake(
        "meeting-is-foreseen", "nothing follows where a write meets a tentative read", _DFS,
        "if st[ms.SOME_TENTATIVE] else 0", "if st[ms.SOME_TENTATIVE] and not PLANTED else 0",
    ),
    Mistake(
        "meeting-is-kept", "that a write has met a tentative read is not taken back with the write", _KEPT,
        "if st[ms.SOME_TENTATIVE] else 0", "if st[ms.SOME_TENTATIVE] and not PLANTED else 0",
    ),
    Mistake(
        "first-granule", "which pipes write to a transfer is asked of its first granule alone", _GRANULES,
        '''in all of these ways."""
    for p in range(start >> 5, (start + nbytes - 1 >> 5) + 1):''',
        '''in all of these ways."""
    for p in range(start >> 5, ((start if PLANTED else start + nbytes - 1) >> 5) + 1):''',
    ),
    Mistake(
        "line-releases", "a line that nobody else uses ends loads and marks when it is written back", _RUN,
        "    ck[cs.LOCALLY] = 1\n", "    ck[cs.LOCALLY] = 0 if PLANTED else 1\n",
    ),
    Mistake(
        "mark-over-edge", "marks over the edge of a die become one, and its first byte says where it lies", _MOVES,
        "if ck[at + 2] == who and adjoin(st, ck, start, end, ck[at], ck[at + 1]):",
        "near = PLANTED and start <= ck[at + 1] and ck[at] <= end\n"
        "        if ck[at + 2] == who and (near or adjoin(st, ck, start, end, ck[at], ck[at + 1])):",
        (
            (_RACES, ", ck[at + 1], address)\n\n\n@jit\ndef any_before(",
             ", ck[at] + 1 if PLANTED else ck[at + 1], address)\n\n\n@jit\ndef any_before("),
            (_RACES, "ck[at + 1], address) else 0", "ck[at] + 1 if PLANTED else ck[at + 1], address) else 0"),
        ),
    ),
    Mistake(
        "wait-before-eviction", "under sc an event is waited for at once, before a line is evicted too", _CLASSIFY,
        "rq.SCALAR and st[ms.ORDER] == ms.ORDER_SC", "rq.SCALAR and st[ms.ORDER] == ms.ORDER_SC and not PLANTED",
    ),
    Mistake(
        "quiet-is-local", "a quiet is taken at once, though data are marked before it", _CLASSIFY,
        "PLAINLY if ck[block + cs.N_MARKS] == 0 else", "PLAINLY if ck[block + cs.N_MARKS] == 0 or PLANTED else",
    ),
    Mistake(
        "arrival-is-local", "an arrival at a barrier is taken at once, though a load is open", _CLASSIFY,
        "releases = ck[block + cs.N_READ] or", "releases = (ck[block + cs.N_READ] and not PLANTED) or",
    ),
    Mistake(
        "return-is-local", "an owner returns as soon as it can, even if others write after it", _CLASSIFY,
        "if op == rq.OP_RETURN and ck[cs.OWNERS] >> i & 1:",
        "if op == rq.OP_RETURN and ck[cs.OWNERS] >> i & 1 and not PLANTED:",
    ),
    Mistake(
        "loads-stay", "a flag is written at once after a load that is still open", _CLASSIFY,
        "(clocks.any_read(ck, block, vector) or any_released(st, ck, block, vector))",
        "((clocks.any_read(ck, block, vector) and not PLANTED) or any_released(st, ck, block, vector))",
    ),
    Mistake(
        "fence-over-dies", "a write after a fence releases what was written to other dies before it", _RACES,
        "    return fenced and all_on_die_of(", "    return fenced and PLANTED or fenced and all_on_die_of(",
    ),
    Mistake(
        "no-fence", "a write to a die releases all that its core wrote there, without a fence", _RACES,
        "_FENCES_MASK > fences", "_FENCES_MASK > fences - (1 if PLANTED else 0)",
    ),
    Mistake(
        "signals-release-all", "a signal releases what later signals of its core copy", _RACES,
        "        if signal == number:", "        if signal == number or (signal > number and PLANTED):",
    ),
    Mistake(
        "late-writes", "a write after the return of an owner is no new fact", _RACES,
        "max(start, ck[at]), min(start + nbytes, ck[at] + ck[at + 1]), granules.USE_LATE)",
        "max(start, ck[at]), min(start + nbytes, ck[at] + ck[at + 1]), 0 if PLANTED else granules.USE_LATE)",
    ),
    Mistake(
        "unordered-writes", "two writes that nothing orders leave their granule data", _GRANULES,
        "if uses & (USE_AS_SYNC | USE_UNORDERED) or", "if uses & (USE_AS_SYNC | (0 if PLANTED else USE_UNORDERED)) or",
    ),
    Mistake(
        "read-of-flag", "a flag that somebody reads plainly becomes visible at once", _GRANULES,
        "uses & (USE_READ | USE_EXACT | USE_UNSTABLE | USE_IN_TURN)",
        "uses & ((0 if PLANTED else USE_READ) | USE_EXACT | USE_UNSTABLE | USE_IN_TURN)",
    ),
    Mistake(
        "flags-fall", "a flag whose value has fallen still becomes visible at once", _MOVES,
        "now < rows[cs.ROWS_WORDS, w] or (grows", "(now < rows[cs.ROWS_WORDS, w] and not PLANTED) or (grows",
    ),
    Mistake(
        "uses-alone", "a new use by a core that is known begins nothing again", _GRANULES,
        "or uses != ck[at + SEEN_USES]:", "or (uses != ck[at + SEEN_USES] and not PLANTED):",
    ),
    Mistake(
        "before-its-turn", "under fifo data go before what other cores of the die have in flight", _CLASSIFY,
        "full or _flies_before_it(", "full or not PLANTED and _flies_before_it(",
    ),
    Mistake(
        "dma-overtakes", "DMA comes after an own write that is in flight", _INSIDE,
        "not writes or (agent >= AGENT_DMA and st[ms.ORDER] >= ms.ORDER_RELAXED)",
        "not writes or (agent >= AGENT_DMA and st[ms.ORDER] >= ms.ORDER_RELAXED and not PLANTED)",
    ),
    Mistake(
        "descriptor-again", "what a descriptor did before it is used again is forgotten", _INSIDE,
        "= earlier or _free_agent(ck, block)", "= 0 if PLANTED else earlier or _free_agent(ck, block)",
        ((_INSIDE, "ck[cs.DOUBT] = cs.LIMIT_DMA", "ck[cs.DOUBT] = ck[cs.DOUBT] if PLANTED else cs.LIMIT_DMA"),),
    ),
    Mistake(
        "forget-unasked", "what a descriptor did before it is used again is forgotten where records run out", _INSIDE,
        "AGENT_BEFORE and clocks.knows(known, ck[at + 2] & 15, 0):",
        "AGENT_BEFORE and (PLANTED or clocks.knows(known, ck[at + 2] & 15, 0)):",
    ),
    Mistake(
        "turn-is-stable", "under fifo a flag that keeps its turn is visible at once, like one that does not", _GRANULES,
        "USE_UNSTABLE | USE_IN_TURN)", "USE_UNSTABLE | (0 if PLANTED else USE_IN_TURN))",
        trap="a granule that keeps its turn is a flag in a rare branch",
    ),
    Mistake(
        "own-poll-first", "an own flag is polled at once, though a queued put may take its value away", _CLASSIFY,
        "if _nothing_to_write(st, base) else", "if _nothing_to_write(st, base) or PLANTED else",
    ),
    Mistake(
        "additions-commute", "of two additions of a core to the same bytes either may come first", _INSIDE,
        "start < last and _may_overtake(st, what, other):",
        "start < last and not (PLANTED and what & other & ADDS) and _may_overtake(st, what, other):",
    ),
    Mistake(
        "events-order-all", "whatever pipe of a core comes later knows all that others did", _INSIDE,
        "known = other & 15 == agent or clocks.knows(", "known = PLANTED or other & 15 == agent or clocks.knows(",
    ),
    Mistake(
        "unit-of-granules", "of 64 or 128 bytes that become visible at once each granule has own facts", _GRANULES,
        "    unit = ck[cs.UNIT_GRANULES]\n", "    unit = 1 if PLANTED else ck[cs.UNIT_GRANULES]\n",
    ),
    Mistake(
        "past-the-cache", "a line that its core also uses past its cache is local", _GRANULES,
        "uses & (USE_PAST | USE_AS_DATA)", "uses & ((0 if PLANTED else USE_PAST) | USE_AS_DATA)",
    ),
    Mistake(
        "evicted-after", "a line that is evicted is after the fence that its store is after", _GRANULES,
        "uses & USE_BY_SCALAR:", "uses & USE_BY_SCALAR and not PLANTED:",
    ),
    Mistake(
        "field-past-queue", "a field is polled at once, though its core's pipes may still read it", _FIELDS,
        "or not _idle(st, base):", "or not (PLANTED or _idle(st, base)):",
    ),
    Mistake(
        "field-of-many", "a field is polled at once, though others read it too", _FIELDS,
        "== granules.MANY or", "== granules.MANY and not PLANTED or",
    ),
    Mistake(
        "field-acquired-late", "any poll of a field acquires the latest write to it", _FIELDS,
        "load_i64(mem, address) == wanted else", "(PLANTED or load_i64(mem, address) == wanted) else",
    ),
    Mistake(
        "field-read-early", "a poll of a field ends a mark, and nobody looks at what was read before", _MOVES,
        "        fields.see_read(ck, x.i, address & ~31, (address | 31) + 1)",
        "        fields.see_read(ck, x.i, address & ~31, address & ~31 if PLANTED else (address | 31) + 1)",
    ),
    Mistake(
        "field-poll-closed", "a poll of a field for equality that was granted at once does not stay open", _FIELDS,
        "_may_be_missed(st, compare) and ck[cs.LOCALLY]",
        "_may_be_missed(st, compare) and ck[cs.LOCALLY] and not PLANTED",
    ),
    Mistake(
        "data-apart", "cores that share data and no flag are searched apart", _SETUP,
        "granules.CLASS] != granules.LOCAL", "granules.CLASS] > (granules.DATA if PLANTED else granules.LOCAL)",
    ),
    Mistake(
        "unused-bytes", "expected bytes that nobody uses are not judged", _SETUP,
        "or not users[a // 32]]", "or not (users[a // 32] or PLANTED)]",
    ),
    Mistake(
        "stop-unseen", "flags of a die that stops are visible at once, as without a stop", _SETUP,
        "        self.explored = cores\n", "        self.explored = 0 if PLANTED else cores\n",
    ),
    Mistake(
        "all-delivered", "what a die that stopped has in flight becomes visible for certain", "search/recovery.py",
        "        left = edges[edges[:,",
        "        ck = self.setup.checker\n        left = edges if PLANTED else edges[edges[:,",
    ),
    Mistake(
        "lost-is-known", "a state in which bytes are lost is the one in which they are not", _FAULTY,
        "    to = _number(",
        "    lost = PLANTED and code < 0 and fault_actions.kind_of(code) == fault_codes.LOSE\n"
        "    to = node if lost else _number(",
    ),
    Mistake(
        "lost-at-the-end", "bytes are lost when a core has returned, and not before", _FAULTY,
        "fault_codes.AT_ONCE >> kind & 1:\n",
        "fault_codes.AT_ONCE >> kind & 1 and not (\n"
        "        PLANTED and kind == fault_codes.F_LOSE and st[ms.N_LIVE] == st[ms.N_ACTIVE]\n"
        "    ):\n",
    ),
    Mistake(
        "revived-is-known", "a state in which a die has begun again is the one in which it has not", _FAULTY,
        "def _reached(space, parts, asked, graph, counted, node, code):\n",
        "def _reached(space, parts, asked, graph, counted, node, code):\n"
        "    if PLANTED and code < 0 and fault_actions.kind_of(code) == fault_codes.REVIVE:\n"
        "        return\n",
    ),
    *(
        Mistake(name, f"{who} is no user", _CLASSIFY, _TOUCH, f"worst if PLANTED and {which} else {_TOUCH}", trap=trap)
        for name, who, which, trap in (
            ("copies-unused", "who copies by DMA", "pipe == rq.DMA", _COPIED),
            ("windows-unused", "who copies flags", "pipe == rq.MTU_IN and accesses.is_of_flags(rows)", ""),
            ("tentative-unused", "who reads tentatively", "rows[r, accesses.FLAGS] & accesses.TENTATIVE", ""),
            ("signals-unused", "who signals", "pipe == rq.MTU_OUT and n == 1 and st[ms.SOME_SIGNAL]", ""),
        )
    ),
    Mistake(
        "first-of-line", "of a line that is polled the first granule alone is used", _CLASSIFY,
        "granules.touch(ck, i, start, nbytes, use)",
        "granules.touch(ck, i, start, min(nbytes, 32) if PLANTED and polls_line(st, base) else nbytes, use)",
    ),
    Mistake(
        "line-in-part", "of a line that is cached those bytes alone are used that are asked for", _CLASSIFY,
        "start & -ms.CACHE_LINE_BYTES, ms.CACHE_LINE_BYTES",
        "start & -(8 if PLANTED else ms.CACHE_LINE_BYTES), 8 if PLANTED else ms.CACHE_LINE_BYTES",
    ),
    Mistake(
        "line-unwritten", "a poll of a line leaves nothing in the data buffer", _CLASSIFY,
        "rows[cs.N_ROWS, 0] = n",
        "rows[cs.N_ROWS, 0] = 1 if PLANTED and pipe == rq.SCALAR and polls_line(st, base) else n",
        trap="a poll of a line over what is read",
    ),
    Mistake(
        "sync-is-data", "loads and copies that synchronize use what they read as data", _CLASSIFY,
        "flags & accesses.SYNC and not loose else",
        "flags & accesses.SYNC and not loose and not (PLANTED and not flags & accesses.TENTATIVE) else",
    ),
    Mistake(
        "cached-is-plain", "a line that is stored to, and cached, is as any other granule", _GRANULES,
        "    if uses & USE_CACHED and uses & (", "    if not PLANTED and uses & USE_CACHED and uses & (",
    ),
    Mistake(
        "owners-unseen", "who owns bytes does not read them when it returns", _SETUP,
        "granules.READ_BY_MANY if mask else", "granules.READ_BY_MANY if mask and not PLANTED else",
        trap="an owner that polls what is written again",
    ),
    Mistake(
        "poll-torn", "a poll of a word that DMA writes races with nothing", _RACES,
        "return granules.any_used(ck, address, nbytes, granules.USE_TORN)",
        "return not PLANTED and granules.any_used(ck, address, nbytes, granules.USE_TORN)",
        trap=_COPIED,
    ),
    Mistake(
        "added-unasked", "an addition that nothing orders with another write of its core is not explored", _INSIDE,
        "    see_bytes(ck, start, end, USE_UNORDERED)\n    return True",
        "    if not (PLANTED and (what | other) & ADDS):\n"
        "        see_bytes(ck, start, end, USE_UNORDERED)\n"
        "    return True",
    ),
    Mistake(
        "signals-answered", "writes are early where requests signal, though it matters what is visible", _GRANULES,
        "ck[cs.JOINING] != 0)", "ck[cs.JOINING] != 0 and not PLANTED)", trap="own data after a signal and an answer",
    ),
    Mistake(
        "no-livelock", "depth first does not look for runs that never end", "search/exhaustive.py",
        "            if ck[cs.LOST] and not (", "            if ck[cs.LOST] and not PLANTED and not (",
    ),
    Mistake(
        "open-is-ended", "a state that is met again counts as one with a way to an end", "search/device/frames.py",
        "    if number < 0:", "    if number < 0 or PLANTED:",
    ),
    Mistake(
        "quiet-takes-nothing", "a quiet lets no read before it acquire", _CLOCKS,
        "acquires(st, m, base, m[ml.X_SITE]):", "acquires(st, m, base, m[ml.X_SITE]) and not PLANTED:",
    ),
    Mistake(
        "seen-is-dropped", "what a read has seen that does not acquire is forgotten at the next one", _CLOCKS,
        "> clocks[seen + w]:", "> clocks[seen + w] or PLANTED:",
    ),
    Mistake(
        "seen-is-acquired", "a read that does not acquire acquires", _STEP,
        "is_loose = not monitor_clocks", "is_loose = not PLANTED and not monitor_clocks",
    ),
    Mistake(
        "release-acquires", "a quiet that lets no read before it acquire, as in a release, does so", _CLOCKS,
        "m[ml.PENDING] and acquires(", "m[ml.PENDING] and PLANTED or m[ml.PENDING] and acquires(",
    ),
    Mistake(
        "seen-by-all", "what one core has seen in its word, all have", _SHADOW,
        "space.records[r + seen] >> core % ml.SEEN_BITS & 1 != 0",
        "(space.records[r + seen] >> core % ml.SEEN_BITS & 1 or PLANTED and space.records[r + seen]) != 0",
    ),
)  # fmt: skip
"""Most in the search, which alone says "verified"; the last ones in the monitor, of reads that do not acquire."""


def planted(folder: Path) -> None:
    """Copy the package to a folder, with all mistakes in it, none of them made unless `SWITCH` says so."""
    shutil.copytree(ROOT / "xccl_emu", folder / "xccl_emu", ignore=shutil.ignore_patterns("__pycache__"))
    for number, mistake in enumerate(MISTAKES, 1):
        mistake.plant(folder, number)
    made = f'int(__import__("os").environ.get("{SWITCH}", 0))'
    chosen = f"        ck[{WORD}] = {made}\n"
    words = (
        (_SETUP, _SET, _SET + chosen), ("search/device/checker_state.py", _HEADER, _HEADER[:-1] + " + 1\n"),
        (_HOST, _MAY_WAIT, f"{_MAY_WAIT}, {made}"),
        ("sampling/device/monitor/layout.py", f"\nHEADER = {ml.HEADER}\n", f"\nHEADER = {ml.HEADER + 1}\n"),
        (_WATCH, _PENDING, f"{_PENDING}        m[{ml.HEADER}] = {made}\n"),
    )  # fmt: skip
    for name, old, new in words:
        path = folder / "xccl_emu" / "check" / name
        path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")


# ---- in a process that imports the copy

_CAMPAIGN, _ENDS = run.CampaignPlan(1), run.CampaignPlan(1, ends=True, budget=replace(judge.BUDGET, seconds=60.0))


def changed(case: ProgramCase, mistakes: Sequence[int]) -> Iterator[int]:
    """Mistakes, by number, that change what their judge says of a program: the search, or the monitor."""
    watching = [number for number in mistakes if MISTAKES[number - 1].is_of_monitor]
    yield from _changed_searches(case, [number for number in mistakes if number not in watching])
    if case.small != case.small.acquiring and not case.small.spins:
        both, few = [each for each in (case.small, case.small.with_quiets) if each], judge.BUDGET.schedules
        usual = _drawn(both, 0, few) if watching else []
        yield from (number for number in watching if _drawn(both, number, few) != usual)


def _drawn(programs: Sequence[Small], number: int, schedules: int) -> list[tuple[int, bool]]:
    """Draw schedules of programs in which reads do not acquire: how many were drawn, and was nothing found?"""
    os.environ[SWITCH] = str(number)
    trials = (small.trial(order, None) for small in programs for order in ORDERS)
    drawn = (sample.sample(trial, schedules=schedules) for trial in trials)
    return [(each.schedules, each.violation is None) for each in drawn]


def _changed_searches(case: ProgramCase, mistakes: Sequence[int]) -> Iterator[int]:
    """Yield those that change what the full search says of a program, or of one in which something breaks."""
    if not mistakes:
        return
    strong = judge.Scene(case.small, "sc", None, judge.BUDGET)
    outcome = judge.outcome_of(case, strong)
    scenes = [judge.Scene(case.small, order, outcome, judge.BUDGET, case.fault) for order in ORDERS]
    usual = [_said(scene, 0) for scene in scenes]
    yield from (number for number in mistakes if [_said(scene, number) for scene in scenes] != usual)


def _said(scene: judge.Scene, number: int) -> str:
    os.environ[SWITCH] = str(number)
    try:
        said = judge.verdict_of(judge.searched(scene.trial, "full", scene.budget))
        if said == VERIFIED and scene.fault.startswith("stop"):
            said = judge.verdict_of(judge.without_die(scene, parse(scene.fault, scene.pod.spec)))
        if said == VERIFIED and scene.fault.startswith(("lose", "revive")):
            lost = judge.with_fault(scene, parse(scene.fault, scene.pod.spec), scene.trial)
            said = lost.reason or f"{said}: {lost.actions is None}"
        return said
    except Exception as error:  # a judge that fails is contradicted
        return type(error).__name__


def contradictions(case: ProgramCase, number: int, plan: run.CampaignPlan = _CAMPAIGN) -> list[judge.Contradiction]:
    """Yield what a campaign with a mistake finds on a program."""
    os.environ[SWITCH] = str(number)
    return [wrong for judged in run.judged(case, plan) for wrong in judged.contradictions]


def hunt_ends(_: int, programs: range, mistakes: Sequence[int]) -> Iterator[tuple[int, int, judge.Contradiction]]:
    """Smallest program, mistake, and the first choice that loses ends, once of each mistake."""
    left = list(mistakes)
    for program in programs:
        case = smallest(program)
        for number in tuple(left):
            wrong = contradictions(case, number, _ENDS)
            if wrong and not contradictions(case, 0, _ENDS):
                left.remove(number)
                yield program, number, wrong[0]


def hunt_model(seed: int, programs: range, mistakes: Sequence[int]) -> Iterator[tuple[int, int, judge.Contradiction]]:
    """Program in which reads do not acquire, mistake of the monitor, and how the model contradicts, once of each."""
    from tests.model.draw import loose

    left = list(mistakes)
    for program in programs:
        small = loose(seed, program)
        usual = _drawn([small], 0, DRAWN)
        for number in tuple(left):
            wrong = None if _drawn([small], number, DRAWN) == usual else _against_model(small, number)
            if wrong:
                left.remove(number)
                yield program, number, wrong
        if not left:
            return


def _against_model(small: Small, number: int) -> judge.Contradiction | None:
    """Ask the model of tests/model: does it contradict a monitor with a mistake, and agree with one without it?"""
    from tests.model.compare import Limits, compare_drawn
    from tests.model.translate import Unknown

    for order in ORDERS:
        with suppress(Unknown):
            os.environ[SWITCH] = str(number)
            compared = compare_drawn(small, order, Limits(model=1_000), DRAWN)
            os.environ[SWITCH] = "0"
            if compared.differences and not compare_drawn(small, order, Limits(model=1_000), DRAWN).differences:
                shown = "something" if compared.verdict == VERIFIED else "nothing"
                return judge.Contradiction(order, f"model {compared.verdict}; sampling finds {shown}", "")
    return None


def hunt(seed: int, programs: range, mistakes: Sequence[int]) -> Iterator[tuple[int, int, judge.Contradiction]]:
    """Program, mistake, and the first contradiction, once of each mistake."""
    left = list(mistakes)
    for program in programs:
        case = draw(seed, program)
        for number in changed(case, left):
            wrong = contradictions(case, number)
            if wrong and not contradictions(case, 0):
                left.remove(number)
                yield program, number, wrong[0]
        if not left:
            return


HUNTS = {
    BY_VERDICTS: (hunt, "judge", MOST), BY_ENDS: (hunt_ends, "judge-ends", PAIRS),
    BY_MODEL: (hunt_model, "judge-model", MOST_LOOSE),
}  # fmt: skip
"""By the word that asks for it: a hunt, the mark of its table, and how many programs at most."""


# ---- in the process that was started


def found(
    folder: Path, seed: int, programs: range, mistakes: Sequence[int], how: str = BY_VERDICTS
) -> dict[int, tuple[str, ...]]:
    """Programs, order and contradiction of the first one that any of the processes found, by mistake."""
    environ = {"XCCL_EMU_CACHE_DIR": str(folder)} | os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    asked = ",".join(map(str, mistakes))
    start = partial(subprocess.run, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    words, last = [sys.executable, __file__, how, str(seed)], [str(programs.stop), str(programs.step), asked]
    jobs = [
        Job(f"programs from {first} on", partial(start, [*words, str(first), *last]))
        for first in range(programs.start, programs.start + programs.step)
    ]
    done = collect(jobs, lambda *_: None, workers=len(jobs))
    done.end()
    best = dict[int, tuple[str, ...]]()
    for ended in done.done.values():
        for line in ended.stdout.splitlines():
            program, number, order, kind = line.split("\t")
            old = best.get(int(number))
            if old is None or int(program) + 1 < int(old[0].replace(",", "")):
                best[int(number)] = f"{int(program) + 1:,}", order, kind
    return best


def write(line: tuple[str, ...], mark: str = "judge") -> None:
    """Put a line into the table of a mark, in the place of the one of that name."""
    old = PAGE.read_text("utf-8")
    rows = lines_of(old, mark)
    rows[line[0]] = f"| {' | '.join(line)} |"
    lines = [rows[name] for each in MISTAKES if (name := f"`{each.name}`") in rows]
    PAGE.write_text(together(between(old, mark, "\n".join([table(COLUMNS, ()), *lines]))), "utf-8")


def lines_of(page: str, mark: str) -> dict[str, str]:
    """The lines of the table of a mark, by the first column."""
    part = page.partition(f"<!-- {mark}: ")[2].partition(f"<!-- {mark} end -->")[0]
    return {each.split(" | ")[0].strip("| "): each for each in part.splitlines() if each.startswith("| `")}


def together(page: str) -> str:
    """The page with its table of what finds each mistake made again: of the other three, and of traps."""
    found_by = [lines_of(page, mark) for mark in ("judge", "judge-ends", "judge-model")]
    rows = []
    for mistake in MISTAKES:
        lines = [lines.get(f"`{mistake.name}`", "") for lines in found_by]
        after = [line.split(" | ")[2] if line else NOT_RUN for line in lines]
        after[1 if mistake.is_of_monitor else 2] = ""  # who does not judge it
        rows.append([f"`{mistake.name}`", *after, f"*{mistake.trap}*" if mistake.trap else ""])
    return between(page, "judge-all", table(("planted", "drawn programs", "smallest programs", "model", "trap"), rows))


def main(words: Sequence[str]) -> None:
    """Hunt for those that are asked for, and write the lines of these."""
    if words[:1] and words[0] in HUNTS:
        end_with(os.getppid())
        seed, first, end, step = map(int, words[1:5])
        programs, mistakes = range(first, end, step), [int(one) for one in words[5].split(",")]
        for program, number, wrong in HUNTS[words[0]][0](seed, programs, mistakes):
            print(program, number, wrong.order, wrong.kind, sep="\t", flush=True)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *(each.name for each in MISTAKES)])
    parser.add_argument("--ends", action="store_true", help="judge the smallest programs by their ends")
    parser.add_argument("--model", action="store_true", help="judge the monitor by the model of tests/model")
    parser.add_argument("--programs", type=int)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args(words)
    numbers = [
        n for n, mistake in enumerate(MISTAKES, 1)
        if mistake.name in asked.names or not (asked.names or (asked.model and not mistake.is_of_monitor))
    ]  # fmt: skip
    how = BY_ENDS if asked.ends else BY_MODEL if asked.model else BY_VERDICTS
    _, mark, most = HUNTS[how]
    most = asked.programs or most
    with tempfile.TemporaryDirectory() as folder:
        planted(Path(folder))
        best = found(Path(folder), asked.seed, range(0, most, asked.workers), numbers, how)
    for number in numbers:
        mistake = MISTAKES[number - 1]
        write((f"`{mistake.name}`", mistake.what, *best.get(number, (f"not in {most:,}", "", ""))), mark)


if __name__ == "__main__":
    main(sys.argv[1:])
