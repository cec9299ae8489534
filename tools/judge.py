"""Write the table of docs/campaign.md: wrong reductions planted in the checker, and when a campaign contradicts them.

    python tools/judge.py                    all of them; hours
    python tools/judge.py loads-stay ...     some; the lines of others stay as they are
    python tools/judge.py --programs 2000    give up sooner

The package is copied, one piece of text in it is replaced, and a campaign runs on the copy, in a process of its own.  A
program counts if judges contradict each other on it there, and do not with the package as it is.
"""

import argparse
import json
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

PAGE = ROOT / "docs" / "campaign.md"
COLUMNS = ("planted", "what is wrong", "in", "programs", "order", "first contradiction")
MOST, SEED, CHUNK = 20_000, 0, 5
_CHILD = """
import sys
from xccl_emu.campaign.run import Plan, judge_all
seed, end, chunk = map(int, sys.argv[1:])
for first in range(0, end, chunk):
    for found in judge_all(Plan(chunk, seed, first)).findings:
        print(found.number, found.contradictions[0].order, found.contradictions[0].kind, sep="\\t", flush=True)
"""


@dataclass(frozen=True)
class Mutation:
    """A piece of text of the checker, and what stands there instead."""

    name: str
    what: str
    """What the checker takes for granted with it."""
    file: str
    """Below ``xccl_emu/check``."""
    old: str
    new: str

    def planted(self, text: str) -> str:
        """The text with the mistake; ValueError if it does not stand there just once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.file} has its text {text.count(self.old)} times, not once")
        return text.replace(self.old, self.new)


_SEARCH = "device/search/"
MUTATIONS = (
    Mutation(
        "first-granule", "which pipes write to a transfer is asked of its first granule alone", f"{_SEARCH}granules.py",
        '''in all of these ways?"""
    for p in range(start >> 5, (start + nbytes - 1 >> 5) + 1):''',
        '''in all of these ways?"""
    for p in range(start >> 5, (start >> 5) + 1):''',
    ),
    Mutation(
        "local-releases", "a write that nobody else can see ends loads and marks before it", f"{_SEARCH}moves.py",
        "        if worst >= STABLE:\n            close_reads(", "        if worst >= 0:\n            close_reads(",
    ),
    Mutation(
        "fence-over-dies", "a write behind a fence tells of what was written to other dies before it",
        f"{_SEARCH}races.py",
        "return st[ORDER] >= ORDER_RELAXED and one_die and", "return st[ORDER] >= ORDER_RELAXED and",
    ),
    Mutation(
        "no-fence", "a write to a die tells of all that its core wrote there, without a fence", f"{_SEARCH}races.py",
        "_FENCES_MASK > fences", "_FENCES_MASK >= fences",
    ),
    Mutation(
        "unordered-writes", "two writes that nothing orders leave their granule data", f"{_SEARCH}granules.py",
        "if uses & (USE_AS_SYNC | USE_UNORDERED):", "if uses & USE_AS_SYNC:",
    ),
    Mutation(
        "read-of-flag", "a flag that somebody reads plainly becomes visible at once", f"{_SEARCH}granules.py",
        "uses & (USE_READ | USE_EXACT | USE_UNSTABLE)", "uses & (USE_EXACT | USE_UNSTABLE)",
    ),
    Mutation(
        "flags-fall", "a flag whose value has fallen becomes visible at once, as before", f"{_SEARCH}moves.py",
        "(now < rows[ROWS_WORDS, w] or (own", "((own",
    ),
    Mutation(
        "data-apart", "cores that share data and no flag are searched apart", "search/setup.py",
        "granules.CLASS] != granules.LOCAL", "granules.CLASS] > granules.DATA",
    ),
    Mutation(
        "unused-bytes", "expected bytes that nobody uses are not judged", "search/setup.py",
        "if users[start // 32] & mask or not users[start // 32]:", "if users[start // 32] & mask:",
    ),
    Mutation(
        "waiting-poll", "a poll that waits is not noted, and nothing begins anew for it", f"{_SEARCH}run_local.py",
        "  # that it is polled must be known in any case\n    if waits:\n        return False\n",
        " if not waits else 0\n    if waits:\n        return False\n",
    ),
    Mutation(
        "returns-local", "an owner returns as soon as it can, whoever writes behind it", f"{_SEARCH}classify.py",
        "if op == OP_RETURN and ck[OWNERS] >> i & 1:", "if op == OP_RETURN and ck[OWNERS] >> i & 1 and i < 0:",
    ),
    Mutation(
        "quiet-of-others", "under fifo a quiet tells of what other cores of the die have in flight",
        f"{_SEARCH}classify.py", "st[entry + FLIGHT_CORE] != core and address", "core < -1 and address",
    ),
    Mutation(
        "dma-overtakes", "DMA comes behind an own write that is in flight", f"{_SEARCH}inside.py",
        "loose = not writes or (agent >= AGENT_DMA and st[ORDER] >= ORDER_RELAXED)", "loose = not writes",
    ),
    Mutation(
        "descriptor-again", "a descriptor that is used again leaves no doubt", f"{_SEARCH}inside.py",
        "ck[DOUBT] = LIMIT_DMA", "ck[DOUBT] |= 0",
    ),
    Mutation(
        "unit-of-granules", "of 64 or 128 bytes that become visible at once each granule has facts of its own",
        f"{_SEARCH}granules.py", "    unit = ck[UNIT_GRANULES]\n", "    unit = 1\n",
    ),
    Mutation(
        "events-tell-all", "whatever pipe of a core comes later knows all that others did", f"{_SEARCH}inside.py",
        "known = other & 15 == agent or knows(vector, other & 15, ck[at + 3])", "known = True",
    ),
    Mutation(
        "loads-stay", "a flag is written at once behind a load that is still open", f"{_SEARCH}classify.py",
        "(any_read(ck, block, vector) or any_released(st, ck, block, vector))",
        "any_released(st, ck, block, vector)",
    ),
    Mutation(
        "signals-tell-all", "a signal tells of what later signals of its core copy", f"{_SEARCH}races.py",
        "        if told == number:", "        if told >= number:",
    ),
    Mutation(
        "evicted-behind", "a line that is evicted is behind the fence that its store is behind",
        f"{_SEARCH}granules.py",
        "uses & USE_BY_SCALAR and st[ORDER] >= ORDER_RELAXED:", "uses & USE_BY_SCALAR and st[ORDER] < 0:",
    ),
)  # fmt: skip
"""Each is in the search, which alone says "verified"."""


@dataclass(frozen=True)
class Found:
    """The first program on which a campaign contradicts a checker."""

    number: int
    order: str
    kind: str


def copy_with(mutation: Mutation, folder: Path) -> None:
    """Copy the package to a folder, with a mistake in it."""
    shutil.copytree(ROOT / "xccl_emu", folder / "xccl_emu", ignore=shutil.ignore_patterns("__pycache__"))
    path = folder / "xccl_emu" / "check" / mutation.file
    path.write_text(mutation.planted(path.read_text("utf-8")), "utf-8")


def contradicted(mutation: Mutation, seed: int, programs: int) -> Iterator[Found]:
    """Programs on which a campaign with the mistake contradicts itself, as they come."""
    with tempfile.TemporaryDirectory() as folder:
        copy_with(mutation, Path(folder))
        environ = {"XCCL_EMU_CACHE_DIR": f"{folder}/cache"} | os.environ | {"PYTHONPATH": folder}
        arguments = [sys.executable, "-c", _CHILD, *map(str, (seed, programs, CHUNK))]
        with subprocess.Popen(arguments, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True) as child:
            try:
                assert child.stdout is not None
                for line in child.stdout:
                    number, order, kind = line.rstrip("\n").split("\t")
                    yield Found(int(number), order, kind)
                if child.wait():
                    raise SystemExit(f"{mutation.name}: the campaign on its copy failed")
            finally:
                child.kill()


def agreed(number: int, seed: int) -> bool:
    """Do all judges agree on a program, with the checker as it is?"""
    return not any(judged.contradictions for judged in judge.judge(draw(seed, number)))


def row(mutation: Mutation, seed: int, programs: int) -> tuple[str, ...]:
    """A line of the table."""
    what = (f"`{mutation.name}`", mutation.what, f"`{mutation.file}`")
    for found in contradicted(mutation, seed, programs):
        if agreed(found.number, seed):
            return *what, f"{found.number + 1:,}", found.order, found.kind
    return *what, f"not in {programs:,}", "", ""


def main(words: Sequence[str]) -> None:
    """Measure those that are asked for, and write the table after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *(each.name for each in MUTATIONS)])
    parser.add_argument("--programs", type=int, default=MOST)
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args(words)
    for mutation in MUTATIONS:
        if not asked.names or mutation.name in asked.names:
            line = row(mutation, asked.seed, asked.programs)
            print(json.dumps(line), flush=True)
            old = PAGE.read_text("utf-8")
            rows = {each.split(" | ")[0].strip("|` "): each for each in old.splitlines() if each.startswith("| `")}
            rows[mutation.name] = f"| {' | '.join(line)} |"
            lines = [rows[each.name] for each in MUTATIONS if each.name in rows]
            PAGE.write_text(between(old, "judge", "\n".join([table(COLUMNS, ()), *lines])), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
