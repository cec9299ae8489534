"""Write docs/corpus.md: what `xccl-emu corpus` finds.

    python tools/corpus.py
"""

from pathlib import Path

from xccl_emu.cli.corpus_job import Result, find, looked_at, told

PAGE = Path(__file__).parent.parent / "docs" / "corpus.md"

HEAD = """# Bugs that were found in the wild

Each was found in a published library, and has a public root cause or fix. It is written anew here from its
description, as small as shows it, as two cases that share all but the mend. The broken one is refuted, with a schedule
that replays; the mended one is verified under every schedule, or not refuted where sequences of calls are drawn.

    xccl-emu corpus                                                    all of them: this table
    xccl-emu check corpus/credit_in_flight/credit_in_flight.py:Broken  the schedule that shows one

Written by `make docs`; a test finds the same.

| bug | source | shown by | found by | broken | looked at | mended | looked at |
|---|---|---|---|---|---|---|---|
"""


def row(result: Result) -> str:
    """A line of the table."""
    member, broken, mended = result.member, result.broken, result.mended
    sources = ", ".join(f"`{source}`" for source in member.sources)
    looked = [f"{told(broken)} | {looked_at(broken)}", f"{told(mended)} | {looked_at(mended)}"]
    name = f"[{member.name}](../corpus/{member.name}/README.md)"
    return f"| {name} | {sources} | {member.shown_by} | `{member.tool}` | {' | '.join(looked)} |"


def main() -> None:
    """Write the page."""
    PAGE.write_text(HEAD + "\n".join(map(row, find((), 60.0))) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
