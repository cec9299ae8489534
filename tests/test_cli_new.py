"""`xccl-emu new`: what it writes passes as it is written, and nothing is overwritten."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import xccl_emu
from tests.cli_support import printed, refusal

FILES = ["my_ring.py", "my_ring_kernel.py", "test_my_ring.py"]


def made(folder: Path) -> Path:
    """The folder with the three files in it."""
    assert "written" in printed("new", "my_ring", "--folder", str(folder))
    assert sorted(path.name for path in folder.iterdir()) == FILES
    return folder


def run(folder: Path, *words: str) -> str:
    """What a module prints there, which must end well."""
    done = subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_proved_and_measured(tmp_path: Path) -> None:
    """By the commands that the file itself names."""
    name = f"{made(tmp_path / 'new' / 'one')}/my_ring.py:MyRing"
    assert "verified" in printed("check", name)
    assert "latency, us" in printed("bench", name, "--dies", "2,4")


def test_its_tests_pass(tmp_path: Path) -> None:
    """As they are, in a folder that knows nothing of this one."""
    assert "passed" in run(made(tmp_path), "pytest", "-q", "-p", "no:cacheprovider", "test_my_ring.py")


@pytest.mark.parametrize(("example", "file"), [("prefix_sum", "prefix_sum/prefix_sum.py"), ("notify", "notify.py")])
def test_examples_are_copied(example: str, file: str, repository: Path, tmp_path: Path) -> None:
    """As they are, with what belongs to them, and they can be checked there; a word that is none lists them."""
    printed("new", "--example", example, "--folder", str(tmp_path))
    assert (tmp_path / file).read_text() == (repository / "examples" / file).read_text()
    assert "states" in printed("check", f"{tmp_path / file}:{''.join(map(str.capitalize, example.split('_')))}")
    assert "is there already" in refusal("new", "--example", example, "--folder", str(tmp_path))
    assert "ascendc, c_ping" in refusal("new", "--example", "?")


@pytest.mark.slow
def test_it_is_clean(tmp_path: Path) -> None:
    """The linter and the type checker have nothing against what is written."""
    run(made(tmp_path), "ruff", "check", ".", "--isolated", "--line-length", "120", "--select", "E,F,I,B,D1")
    environment = {**os.environ, "MYPYPATH": str(Path(xccl_emu.__file__).parent.parent)}
    words = ("mypy", "--strict", "--follow-imports=silent", "--cache-dir", os.devnull, *FILES)
    done = subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["json", "numpy", "xccl_emu"])
def test_a_module_is_not_hidden(name: str, tmp_path: Path) -> None:
    """A file of that name would be imported in place of the module, by pytest and by all that is in the folder."""
    assert f"NAME {name!r}: " in refusal("new", name, "--folder", str(tmp_path))
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("there", FILES)
def test_nothing_is_overwritten(there: str, tmp_path: Path) -> None:
    """Not even by its other files, if one is there."""
    (tmp_path / there).write_text("mine")
    assert f"{there} is there already" in refusal("new", "my_ring", "--folder", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


@pytest.mark.parametrize("name", ["", "My", "1a", "a-b", "class", "own", "../x", "ä_b", "x y", "a_"])
def test_a_name_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    """Before anything is written."""
    assert "must be a name such as my_gather" in refusal("new", name, "--folder", str(tmp_path))
    assert [*tmp_path.iterdir()] == []
