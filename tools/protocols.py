"""Write the numbers of docs/protocols.md anew: run each command of the page and put what it prints behind it.

    python tools/protocols.py            write the page
    python tools/protocols.py --check    say which numbers are not true any more, and end with 1
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "protocols.md"

_PART = re.compile(r"```console\n\$ xccl-emu (?P<command>compare[^\n]*)\n```\n\n(?P<table>(?:\|[^\n]*\n)*)")


def parts(page: str) -> Iterator[tuple[list[str], str]]:
    """The arguments of each command of the page, and the table behind it."""
    for found in _PART.finditer(page):
        yield found["command"].split(), found["table"]


def printed(arguments: list[str]) -> str:
    """What the command prints."""
    command = [sys.executable, "-m", "xccl_emu", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    page, wrong = PAGE.read_text(encoding="utf-8"), 0
    for arguments, table in parts(page):
        new = printed(arguments)
        if new != table:
            wrong += 1
            print(f"{PAGE.name}: other numbers for xccl-emu {' '.join(arguments)}")
        command = f"$ xccl-emu {' '.join(arguments)}\n```\n\n"
        page = page.replace(command + table, command + new)
    if not check:
        PAGE.write_text(page, encoding="utf-8")
    return 1 if check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
