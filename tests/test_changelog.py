"""CHANGELOG.md: what is not yet released is in front, and then the versions."""

import re
from pathlib import Path

from xccl_emu import __version__


def test_the_newest_version_is_that_of_the_package(repository: Path) -> None:
    """Sections are *Unreleased* and then versions, the newest first, which is `__version__`."""
    text = (repository / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *versions = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    assert (first, versions[0]) == ("Unreleased", __version__)
    numbers = [tuple(map(int, version.split("."))) for version in versions]
    assert numbers == sorted(set(numbers), reverse=True)
    assert all(len(number) == 3 for number in numbers)
