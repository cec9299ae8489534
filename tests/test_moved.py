"""Modules that have moved are there by their old names, with a warning."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.cli_support import python, run_command
from xccl_emu.base.moved import MOVED


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_an_old_name_warns_and_gives_the_new_module(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script written for an earlier release goes on, and hears what to write."""
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{old} is {new} now") as heard:
        assert import_module(old) is import_module(new)
    assert heard[0].filename == import_module.__code__.co_filename


def test_a_protocol_file_hears_of_an_old_name(tmp_path: Path) -> None:
    """The command that loads the file says so once, with its line."""
    text = "from xccl_emu.errors import ConfigError\nfrom xccl_emu.protocol import protocol\n@protocol\ndef p(b): ...\n"
    (tmp_path / "own.py").write_text(text)
    said = run_command("list", f"{tmp_path / 'own.py'}:p").stderr
    assert said.count("own.py:1: DeprecationWarning: xccl_emu.errors is xccl_emu.base.errors now") == 1


MOVE = "import xccl_emu; from xccl_emu.base import moved as it; it.MOVED['xccl_emu.{0}'] = 'xccl_emu.{1}'; "


def test_what_is_below_a_package_moves_with_it() -> None:
    """By the old name of a package's module comes the one module that there is, and nothing is loaded twice."""
    script = MOVE.format("judge", "check") + "import xccl_emu.judge.faults as old, xccl_emu.check.faults as new"
    done = python(f"import warnings; {script}; print(old is new)", check=True)
    assert done.stdout == "True\n"


def test_a_package_runs_by_its_old_name() -> None:
    """``python -m`` of a package that has moved runs what it ran."""
    script = MOVE.format("gates", "torch") + "import runpy, sys; sys.argv[1:] = ['--help']; runpy.run_module(*what)"
    done = python(f"what = ('xccl_emu.gates', None, '__main__', True); {script}")
    assert (done.returncode, done.stdout[:6]) == (0, "usage:")


ROOMS = """
import xccl_emu.errors as old, xccl_emu.base.errors as new, xccl_emu.bench.result, xccl_emu.papers.bench.result
from xccl_emu.torch.wire import Line
print(old is new, xccl_emu.bench.result is xccl_emu.papers.bench.result)
"""


def test_a_script_finds_what_is_below_an_old_name() -> None:
    """Modules that went into rooms of the package are the same by either name, and run by the old one."""
    assert python(ROOMS, check=True).stdout == "True True\n"
    done = subprocess.run([sys.executable, "-m", "xccl_emu.torch", "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stdout[:6]) == (0, "usage:")
