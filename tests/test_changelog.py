"""CHANGELOG.md: what is not yet released is in front, and then versions and days, the newest first."""

import re
from pathlib import Path

from xccl_emu import __version__

VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+) \((\d{4}-\d\d-\d\d)\)")
DAY = re.compile(r"\d{4}-\d\d-\d\d")


def test_the_newest_version_is_that_of_the_package(repository: Path) -> None:
    """Sections are *Unreleased*, then versions with their days, the newest first, which is `__version__`."""
    text = (repository / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *sections = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    versions = [found for found in map(VERSION.fullmatch, sections) if found]
    assert (first, ".".join(versions[0].groups()[:3])) == ("Unreleased", __version__)
    numbers = [tuple(map(int, version.groups()[:3])) for version in versions]
    assert numbers == sorted(set(numbers), reverse=True)


def test_sections_are_in_the_order_of_their_days(repository: Path) -> None:
    """Each section but the first names a day, and none is later than the one above it."""
    text = (repository / "CHANGELOG.md").read_text(encoding="utf-8")
    days = [DAY.findall(section) for section in re.findall(r"^## (.+)$", text, flags=re.MULTILINE)[1:]]
    assert all(len(day) == 1 for day in days)
    assert days == sorted(days, reverse=True)


def test_the_version_to_cite_is_that_of_the_package(repository: Path) -> None:
    """CITATION.cff names the version of the package."""
    text = (repository / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {__version__}\n" in text
