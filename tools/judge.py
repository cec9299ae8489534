"""Write the table of docs/campaign.md: mistakes planted in the search, and after how many programs each is found.

    python tools/judge.py                    all of them, minutes on an idle machine
    python tools/judge.py loads-stay ...     some; the lines of others stay as they are
    python tools/judge.py --programs 2000    give up sooner

The package is copied once, with all mistakes in it, each behind a word of the checker state that says which one is
made.  For each a campaign runs on the copy, in a process of its own.  A program counts if judges contradict each other
on it there, and do not with the package as it is.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pages import ROOT, between, table

from xccl_emu.campaign import judge
from xccl_emu.campaign.generate import draw
from xccl_emu.check.device.search import checker_state

PAGE = ROOT / "docs" / "campaign.md"
COLUMNS = ("planted", "what is wrong", "programs", "order", "first contradiction")
MOST, SEED, CHUNK = 20_000, 0, 5
WORD = checker_state.HEADER - 1
"""Of the checker state: which mistake is made; no handle of a function stands there."""
SWITCH = "XCCL_EMU_PLANTED"
_SET = "        ck[at.FULL] = full\n"
_CHILD = """
import sys
from xccl_emu.campaign.run import Plan, judge_all
seed, end, chunk = map(int, sys.argv[1:])
for first in range(0, end, chunk):
    for found in judge_all(Plan(chunk, seed, first)).findings:
        print(found.number, found.contradictions[0].order, found.contradictions[0].kind, sep="\\t", flush=True)
"""


@dataclass(frozen=True)
class Mistake:
    """A piece of text of the checker, and what stands there instead: `PLANTED` in it is whether it is made."""

    name: str
    what: str
    """What the checker takes for granted then."""
    file: str
    """Below ``xccl_emu/check``."""
    old: str
    new: str

    def plant(self, text: str, number: int) -> str:
        """The text with the mistake, the one of this number; ValueError if its place is not there just once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.file} has its text {text.count(self.old)} times, not once")
        checker = "self.checker" if self.file == _SETUP else "ck"
        return text.replace(self.old, self.new.replace("PLANTED", f"({checker}[{WORD}] == {number})"))


_SETUP = "search/setup.py"
_CLASSIFY, _GRANULES, _INSIDE, _MOVES, _RACES, _RUN = (
    f"device/search/{name}.py" for name in ("classify", "granules", "inside", "moves", "races", "run_local")
)
MISTAKES = (
    Mistake(
        "first-granule", "which pipes write to a transfer is asked of its first granule alone", _GRANULES,
        '''in all of these ways?"""
    for p in range(start >> 5, (start + nbytes - 1 >> 5) + 1):''',
        '''in all of these ways?"""
    for p in range(start >> 5, ((start if PLANTED else start + nbytes - 1) >> 5) + 1):''',
    ),
    Mistake(
        "local-releases", "a write that nobody else can see ends loads and marks before it", _MOVES,
        "        if worst >= STABLE:\n            close_reads(",
        "        if worst >= STABLE or PLANTED:\n            close_reads(",
    ),
    Mistake(
        "quiet-is-local", "a quiet is taken at once, though data are marked before it", _CLASSIFY,
        "PLAINLY if ck[block + N_MARKS] == 0 else", "PLAINLY if ck[block + N_MARKS] == 0 or PLANTED else",
    ),
    Mistake(
        "arrival-is-local", "an arrival at a barrier is taken at once, though a load is open", _CLASSIFY,
        "PLAINLY if ck[block + N_READ] == 0 and", "PLAINLY if (ck[block + N_READ] == 0 or PLANTED) and",
    ),
    Mistake(
        "return-is-local", "an owner returns as soon as it can, whoever writes behind it", _CLASSIFY,
        "if op == OP_RETURN and ck[OWNERS] >> i & 1:", "if op == OP_RETURN and ck[OWNERS] >> i & 1 and not PLANTED:",
    ),
    Mistake(
        "loads-stay", "a flag is written at once behind a load that is still open", _CLASSIFY,
        "(any_read(ck, block, vector) or any_released(st, ck, block, vector))",
        "((any_read(ck, block, vector) and not PLANTED) or any_released(st, ck, block, vector))",
    ),
    Mistake(
        "fence-over-dies", "a write behind a fence tells of what was written to other dies before it", _RACES,
        "return st[ORDER] >= ORDER_RELAXED and one_die and",
        "return st[ORDER] >= ORDER_RELAXED and (one_die or PLANTED) and",
    ),
    Mistake(
        "no-fence", "a write to a die tells of all that its core wrote there, without a fence", _RACES,
        "_FENCES_MASK > fences", "_FENCES_MASK > fences - (1 if PLANTED else 0)",
    ),
    Mistake(
        "signals-tell-all", "a signal tells of what later signals of its core copy", _RACES,
        "        if told == number:", "        if told == number or (told > number and PLANTED):",
    ),
    Mistake(
        "late-writes", "a write behind the return of an owner is no new fact", _RACES,
        "max(start, ck[at]), min(start + nbytes, ck[at] + ck[at + 1]), USE_LATE)",
        "max(start, ck[at]), min(start + nbytes, ck[at] + ck[at + 1]), 0 if PLANTED else USE_LATE)",
    ),
    Mistake(
        "unordered-writes", "two writes that nothing orders leave their granule data", _GRANULES,
        "if uses & (USE_AS_SYNC | USE_UNORDERED):", "if uses & (USE_AS_SYNC | (0 if PLANTED else USE_UNORDERED)):",
    ),
    Mistake(
        "read-of-flag", "a flag that somebody reads plainly becomes visible at once", _GRANULES,
        "uses & (USE_READ | USE_EXACT | USE_UNSTABLE)",
        "uses & ((0 if PLANTED else USE_READ) | USE_EXACT | USE_UNSTABLE)",
    ),
    Mistake(
        "flags-fall", "a flag whose value has fallen still becomes visible at once", _MOVES,
        "(now < rows[ROWS_WORDS, w] or (own", "((now < rows[ROWS_WORDS, w] and not PLANTED) or (own",
    ),
    Mistake(
        "waiting-poll", "a poll that waits is not noted, and nothing begins anew for it", _RUN,
        "    classify(mem, st, ck, rows, named, i, pipe << 16 | choice)  # that",
        "    if not (waits and PLANTED):\n        classify(mem, st, ck, rows, named, i, pipe << 16 | choice)  # that",
    ),
    Mistake(
        "uses-alone", "a new use by a core that is known begins nothing anew", _GRANULES,
        "or uses != ck[at + SEEN_USES]:", "or (uses != ck[at + SEEN_USES] and not PLANTED):",
    ),
    Mistake(
        "before-its-turn", "under fifo data go before what other cores of the die have in flight", _CLASSIFY,
        "full or _flies_before_it(", "full or not PLANTED and _flies_before_it(",
    ),
    Mistake(
        "dma-overtakes", "DMA comes behind an own write that is in flight", _INSIDE,
        "(agent >= AGENT_DMA and st[ORDER] >= ORDER_RELAXED)  #",
        "(agent >= AGENT_DMA and st[ORDER] >= ORDER_RELAXED and not PLANTED)  #",
    ),
    Mistake(
        "descriptor-again", "a descriptor that is used again leaves no doubt", _INSIDE,
        "ck[DOUBT] = LIMIT_DMA", "ck[DOUBT] = ck[DOUBT] if PLANTED else LIMIT_DMA",
    ),
    Mistake(
        "events-tell-all", "whatever pipe of a core comes later knows all that others did", _INSIDE,
        "known = other & 15 == agent or knows(", "known = PLANTED or other & 15 == agent or knows(",
    ),
    Mistake(
        "unit-of-granules", "of 64 or 128 bytes that become visible at once each granule has own facts", _GRANULES,
        "    unit = ck[UNIT_GRANULES]\n", "    unit = 1 if PLANTED else ck[UNIT_GRANULES]\n",
    ),
    Mistake(
        "past-the-cache", "a line that its core also uses past its cache is local", _GRANULES,
        "uses & (USE_PAST | USE_AS_DATA)", "uses & ((0 if PLANTED else USE_PAST) | USE_AS_DATA)",
    ),
    Mistake(
        "evicted-behind", "a line that is evicted is behind the fence that its store is behind", _GRANULES,
        "uses & USE_BY_SCALAR and st[ORDER] >= ORDER_RELAXED:",
        "uses & USE_BY_SCALAR and st[ORDER] >= ORDER_RELAXED and not PLANTED:",
    ),
    Mistake(
        "data-apart", "cores that share data and no flag are searched apart", _SETUP,
        "granules.CLASS] != granules.LOCAL", "granules.CLASS] > (granules.DATA if PLANTED else granules.LOCAL)",
    ),
    Mistake(
        "unused-bytes", "expected bytes that nobody uses are not judged", _SETUP,
        "or not users[start // 32]:", "or not (users[start // 32] or PLANTED):",
    ),
    Mistake(
        "no-livelock", "depth first does not look for runs that never end", "search/exhaustive.py",
        "            if ck[at.CYCLES] and not (", "            if ck[at.CYCLES] and not PLANTED and not (",
    ),
)  # fmt: skip
"""All in the search, which alone says "verified"."""


@dataclass(frozen=True)
class Found:
    """A program on which a campaign contradicts itself."""

    number: int
    order: str
    kind: str


def planted(folder: Path) -> None:
    """Copy the package to a folder, with all mistakes in it, none of them made unless `SWITCH` says so."""
    shutil.copytree(ROOT / "xccl_emu", folder / "xccl_emu", ignore=shutil.ignore_patterns("__pycache__"))
    for number, mistake in enumerate(MISTAKES, 1):
        path = folder / "xccl_emu" / "check" / mistake.file
        path.write_text(mistake.plant(path.read_text("utf-8"), number), "utf-8")
    path = folder / "xccl_emu" / "check" / _SETUP
    chosen = f'        ck[{WORD}] = int(__import__("os").environ["{SWITCH}"])\n'
    path.write_text(path.read_text("utf-8").replace(_SET, _SET + chosen), "utf-8")


def contradicted(folder: Path, number: int, seed: int, programs: int) -> Iterator[Found]:
    """Programs on which a campaign with a mistake contradicts itself, as they come."""
    environ = {"XCCL_EMU_CACHE_DIR": str(folder)} | os.environ | {"PYTHONPATH": str(folder), SWITCH: str(number)}
    arguments = [sys.executable, "-c", _CHILD, *map(str, (seed, programs, CHUNK))]
    with subprocess.Popen(arguments, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            for line in child.stdout:
                program, order, kind = line.rstrip("\n").split("\t")
                yield Found(int(program), order, kind)
            if child.wait():
                raise SystemExit(f"{MISTAKES[number - 1].name}: the campaign on its copy failed")
        finally:
            child.kill()


def agreed(number: int, seed: int) -> bool:
    """Do all judges agree on a program, with the checker as it is?"""
    return not any(judged.contradictions for judged in judge.judge(draw(seed, number)))


def row(folder: Path, number: int, seed: int, programs: int) -> tuple[str, ...]:
    """A line of the table."""
    mistake = MISTAKES[number - 1]
    for found in contradicted(folder, number, seed, programs):
        if agreed(found.number, seed):
            return f"`{mistake.name}`", mistake.what, f"{found.number + 1:,}", found.order, found.kind
    return f"`{mistake.name}`", mistake.what, f"not in {programs:,}", "", ""


def write(line: tuple[str, ...]) -> None:
    """Put a line into the table in the place of the one of that name."""
    old = PAGE.read_text("utf-8")
    rows = {each.split(" | ")[0].strip("| "): each for each in old.splitlines() if each.startswith("| `")}
    rows[line[0]] = f"| {' | '.join(line)} |"
    lines = [rows[name] for each in MISTAKES if (name := f"`{each.name}`") in rows]
    PAGE.write_text(between(old, "judge", "\n".join([table(COLUMNS, ()), *lines])), "utf-8")


def main(words: Sequence[str]) -> None:
    """Measure those that are asked for, and write the line of each as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *(each.name for each in MISTAKES)])
    parser.add_argument("--programs", type=int, default=MOST)
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        planted(Path(folder))
        for number, mistake in enumerate(MISTAKES, 1):
            if not asked.names or mistake.name in asked.names:
                line = row(Path(folder), number, asked.seed, asked.programs)
                print(*line, sep=" | ", flush=True)
                write(line)


if __name__ == "__main__":
    main(sys.argv[1:])
