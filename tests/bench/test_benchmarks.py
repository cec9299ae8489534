"""Scripts of benchmarks/: they measure nothing here, but begin."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "benchmarks").glob("bench_*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_finds_what_it_is_made_of(script: Path) -> None:
    """What it imports, of the tests too, is still there: its --help is told without an error."""
    done = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
