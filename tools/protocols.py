"""Write the numbers of docs/records/compare.md again, as the commands of the page print them."""

import re
import subprocess
import sys
from collections.abc import Iterator

from pages import ROOT, command

PAGE = ROOT / "docs" / "records" / "compare.md"

_PART = re.compile(r"(?P<head>```console\n\$ xccl-emu (?P<command>compare[^\n]*)\n```\n\n)(?P<table>(?:\|[^\n]*\n)*)")


def parts(text: str) -> Iterator[tuple[list[str], str]]:
    """The arguments of each command of the page, and the table after it."""
    return ((found["command"].split(), found["table"]) for found in _PART.finditer(text))


def printed(arguments: list[str]) -> str:
    """Return what the command prints."""
    command = [sys.executable, "-m", "xccl_emu", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def page(text: str, check: bool = False) -> str:
    """The page with each table as its command prints it now."""
    return _PART.sub(lambda found: found["head"] + printed(found["command"].split()), text)


if __name__ == "__main__":
    sys.exit(command(__doc__, PAGE, page))
