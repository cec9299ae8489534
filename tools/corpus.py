"""Write the table of docs/records/corpus.md: what `xccl-emu corpus` finds."""

import sys

from pages import ROOT, between, command, table

from xccl_emu.cli.corpus import find, finding_text, looked_at
from xccl_emu.protocol.corpus import Result

PAGE = ROOT / "docs" / "records" / "corpus.md"
COLUMNS = ("bug", "source", "shown by", "found by", "broken", "looked at", "mended", "looked at")


def row(result: Result) -> tuple[str, ...]:
    """A line of the table."""
    member, broken, mended = result.member, result.broken, result.mended
    sources = ", ".join(f"`{source}`" for source in member.sources)
    name = f"[{member.name}](../../corpus/{member.name}/README.md)"
    looked = (finding_text(broken), looked_at(broken), finding_text(mended), looked_at(mended))
    return name, sources, member.shown_by, f"`{member.tool}`", *looked


def page(text: str, check: bool = False) -> str:
    """The page with its table made again."""
    results, stopped = find((), 60.0)
    assert stopped is None, stopped
    return between(text, "corpus", table(COLUMNS, map(row, results)))


if __name__ == "__main__":
    sys.exit(command(__doc__, PAGE, page))
