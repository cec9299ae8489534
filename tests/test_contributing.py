"""CONTRIBUTING.md: its recipes, taken step by step."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.testing.tutorial import UPDATE, Tutorial


def test_recipes_run_and_print_what_they_say(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A protocol in two files, the files that know a request, and a topology: all of it is as printed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    path = repository / "CONTRIBUTING.md"
    page = Tutorial(path.read_text(), tmp_path, dict(os.environ), [])
    text = page.run()
    if os.environ.get(UPDATE):
        path.write_text(text)
    assert not page.differences, "\n".join([f"set {UPDATE}=1 to write these into the page", *page.differences])
    assert page.examples > 15


def git(folder: Path, *arguments: str) -> list[str]:
    """Lines that git prints; the test is skipped where the sources are no clone with its history."""
    if not (folder / ".git").exists():
        pytest.skip("not a clone")
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else pytest.skip(done.stderr)


def test_subjects_of_commits_are_short(repository: Path) -> None:
    """From the commit on that brought the rule, no subject has more than 72 characters."""
    first = git(repository, "log", "--diff-filter=A", "--format=%H", "--", "CONTRIBUTING.md")
    subjects = git(repository, "log", "--no-merges", "--format=%s", f"{first[-1]}..HEAD") if first else []
    assert [subject for subject in subjects if len(subject) > 72] == []
