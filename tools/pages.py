"""Pages of docs that a tool writes in part: prose is written by hand, the text between two marks is made again.

    python tools/NAME.py            write the part
    python tools/NAME.py --check    say which lines of it are not true any more, and end with 1
    python tools/NAME.py fused ...  where a page has a part for each protocol: make only the parts of some again
    python tools/NAME.py --workers 4    these parts in processes; or --dask ADDRESS, on a cluster
"""

import argparse
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import TypeVar

from xccl_emu.base.jobs import Job, Stopped, collect
from xccl_emu.cli.ending import UNFINISHED
from xccl_emu.cli.shown import counting

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def between(page: str, name: str, *parts: str) -> str:
    """The page with these parts, a blank line before each, between the marks of that name."""
    before, begin, rest = page.partition(f"<!-- {name}: ")
    mark, _, rest = rest.partition("\n")
    _, end, after = rest.partition(f"<!-- {name} end -->")
    assert end, f"the page has no part {name}"
    return f"{before}{begin}{mark}\n\n" + "\n\n".join(part.strip("\n") for part in parts) + f"\n\n{end}{after}"


@dataclass
class Remade:
    """How parts of a page are made again, each a job; a part that failed, or that a signal left, stays as it is."""

    workers: int = 1
    dask: str | None = None
    stopped: Stopped | None = None
    """Why some are as they were."""

    def parts(
        self, old: Mapping[str, T], names: Iterable[str], asked: Collection[str], make: Callable[[str], T]
    ) -> list[T]:
        """The parts of these names: those that are asked for, or that are new, made again."""
        every = [*names]
        parts = {name: old[name] for name in every if name in old}
        again = [name for name in every if name in asked or name not in old]
        jobs = [Job(name, partial(make, name)) for name in again]
        with counting("parts", len(again)) as count:
            found = collect(jobs, lambda one, n: count(n, one.job.name), workers=self.workers, dask=self.dask)
        self.stopped = found.stopped
        parts |= {again[number]: made for number, made in found.done.items()}
        return [parts[name] for name in every if name in parts]


def rows(
    page: str, mark: str, names: Iterable[str], asked: Collection[str], make: Callable[[str], Sequence[str]], by: Remade
) -> list[Sequence[str]]:
    """Rows of a table whose first cells are ``names``, made again ``by`` jobs where they are asked for."""
    lines = page.partition(f"<!-- {mark}: ")[2].partition(f"<!-- {mark} end -->")[0].splitlines()
    old: dict[str, Sequence[str]] = {cells[0]: cells for cells in (line[2:-2].split(" | ") for line in lines)}
    return by.parts(old, names, asked, make)


def part_of(page: str, title: str) -> str:
    """The text after a heading of the second level, up to the next one."""
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def svg_text(x: float, y: float, words: str, anchor: str = "start", fill: str = "#6e7781") -> str:
    """Words of a picture."""
    return f'<text x="{x}" y="{y}" fill="{fill}" text-anchor="{anchor}">{escape(words)}</text>'


def command(doc: str | None, page: Path, make: Callable[..., str], names: Sequence[str] = ()) -> int:
    """Write what ``make`` makes of a page, or say what in it is not so; the exit code.

    ``make`` is given the page as it is, and whether it is only checked, so that it may keep what takes long; and with
    ``names``, which of these are asked for, and by which jobs they are made.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="say what is not true any more, instead of writing")
    if names:
        parser.add_argument("names", nargs="*", choices=[[], *names], help="parts to make again; by default all")
        parser.add_argument("--workers", type=int, default=1, help="processes that make parts; by default this one")
        parser.add_argument("--dask", help="make them on the cluster of this Dask scheduler, or local")
    asked = parser.parse_args()
    old, by = page.read_text("utf-8"), Remade(*((asked.workers, asked.dask) if names else ()))
    new = make(old, asked.check, *([asked.names or names, by] if names else []))
    if by.stopped is not None:
        print(by.stopped.why, file=sys.stderr)
    failed = by.stopped.code or UNFINISHED if by.stopped else 0
    if not asked.check:
        page.write_text(new, "utf-8")
        if by.stopped is not None and by.stopped.bug is not None:
            raise by.stopped.bug
        return failed
    wrong = [line for line in new.splitlines() if line not in old.splitlines()]
    print(*(f"not in {page.name}: {line}" for line in wrong), sep="\n", end="\n" * bool(wrong))
    return failed or int(new != old)
