"""Pages of docs that a tool writes in part: prose is written by hand, the text between two marks is made again.

    python tools/NAME.py            write the part
    python tools/NAME.py --check    say which lines of it are not true any more, and end with 1
    python tools/NAME.py fused ...  where a page has a part for each protocol: make only the parts of some again
"""

import argparse
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

Row = Callable[[str], Sequence[str]]

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


def rows(page: str, mark: str, names: Iterable[str], asked: Collection[str], make: Row) -> Iterator[Sequence[str]]:
    """Rows of a table whose first cells are ``names``: those that are asked for, or that are new, made again."""
    lines = page.partition(f"<!-- {mark}: ")[2].partition(f"<!-- {mark} end -->")[0].splitlines()
    old = {cells[0]: cells for cells in (line[2:-2].split(" | ") for line in lines)}
    yield from (old[name] if name in old and name not in asked else make(name) for name in names)


def part_of(page: str, title: str) -> str:
    """The text after a heading of the second level, up to the next one."""
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def svg_text(x: float, y: float, words: str, anchor: str = "start", fill: str = "#6e7781") -> str:
    """Words of a picture."""
    return f'<text x="{x}" y="{y}" fill="{fill}" text-anchor="{anchor}">{escape(words)}</text>'


def command(doc: str | None, page: Path, make: Callable[..., str], names: Sequence[str] = ()) -> int:
    """Write what ``make`` makes of a page, or say what in it is not so; the exit code.

    ``make`` is given the page as it is, and whether it is only checked, so that it may keep what takes long; and with
    ``names``, which of these are asked for.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="say what is not true any more, instead of writing")
    if names:
        parser.add_argument("names", nargs="*", choices=[[], *names], help="parts to make again; by default all")
    asked = parser.parse_args()
    old = page.read_text("utf-8")
    new = make(old, asked.check, *([asked.names or names] if names else []))
    if not asked.check:
        page.write_text(new, "utf-8")
        return 0
    wrong = [line for line in new.splitlines() if line not in old.splitlines()]
    print(*(f"not in {page.name}: {line}" for line in wrong), sep="\n", end="\n" * bool(wrong))
    return int(new != old)
