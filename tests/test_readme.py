"""The README's tour and the examples."""

import doctest
from pathlib import Path

import pytest


@pytest.mark.nojit
def test_tour_of_the_readme_runs_and_prints_what_it_says(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Python session in the README runs, and its output is the one printed there."""
    monkeypatch.syspath_prepend(str(repository))
    results = doctest.testfile(str(repository / "README.md"), module_relative=False)
    assert results.attempted > 20
    assert results.failed == 0
