"""Machine code on disk: what changed is compiled again, what did not is loaded by the next process."""

import array
import errno
import os
from pathlib import Path

import numba
import numpy as np
import pytest

from tests.cli_support import python
from xccl_emu.lang import _machine_code
from xccl_emu.lang._machine_code import MachineCode

REPOSITORY = Path(__file__).resolve().parent.parent
KERNELS = """
from xccl_emu.lang import *
import cached_layout as layout
SLOTS = 4
def outer(a):
    return inner(a) + 1
def inner(a):
    return layout.offset(a) * SLOTS
def sub(a):
    yield load(outer(a))
@kernel
def k(a):
    yield from sub(a)
    yield quiet(step=1, sync="here")
@kernel
def other(a):
    yield from sub(a + 1)
"""
LAYOUT = """
FIELD = 32
UNUSED = 1
def offset(a):
    return a * FIELD
"""
PROGRAM = """
import sys
import numpy as np
from cached_kernels import k, other
from xccl_emu.lang import abi
assert "numba" not in sys.modules
source = k.source, k.sites, k.lowered
assert not {"numba", "llvmlite"} & {*sys.modules}
words = []
for kernel in (k, other):
    state = np.zeros(600, np.int64)
    state[abi.REGISTERS] = 3
    kernel.step(state, 0)
    words.append(int(state[abi.REQUEST + 1]))
print(k.step.path.name, *words, *(int(x.step.from_disk) for x in (k, other)))
"""
OFFSET = 3 * 32 * 4 + 1
NEXT = 4 * 32 * 4 + 1


class Project:
    """Two modules in a folder, and a process that compiles and runs their kernels."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.texts = {"cached_kernels.py": KERNELS, "cached_layout.py": LAYOUT}

    def run(self, *edit: str, **environment: str) -> tuple[str, list[int], list[int]]:
        """Replace ``edit[0]`` by ``edit[1]`` in both modules; return file name, requests and cache hits."""
        for name, text in self.texts.items():
            self.texts[name] = text.replace(*edit) if edit else text
            (self.folder / name).write_text(self.texts[name])
        env = {**os.environ, "PYTHONPATH": f"{self.folder}:{REPOSITORY}", "PYTHONDONTWRITEBYTECODE": "1", **environment}
        env["XCCL_EMU_CACHE_DIR"] = env["NUMBA_CACHE_DIR"] = str(self.folder / "cache")
        done = python(PROGRAM, env=env)
        assert done.returncode == 0, done.stderr
        name, *numbers = done.stdout.split()
        return name, [int(n) for n in numbers[:2]], [int(n) for n in numbers[2:]]


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_a_second_process_loads_and_an_edit_recompiles(tmp_path: Path) -> None:
    """What is the same is loaded; with a changed helper of a helper or constant, in any module, it is another file."""
    project = Project(tmp_path)
    first, words, hits = project.run()
    assert (words, hits) == ([OFFSET, NEXT], [0, 0])
    assert project.run() == (first, [OFFSET, NEXT], [1, 1])
    assert project.run("UNUSED = 1", "UNUSED = 2") == (first, [OFFSET, NEXT], [1, 1])
    names = [first]
    for edit, words in (
        (("a * FIELD", "a * FIELD + 1"), [OFFSET + 4, NEXT + 4]),
        (("FIELD = 32", "FIELD = 64"), [2 * OFFSET + 3, 2 * NEXT + 3]),
        (("SLOTS = 4", "SLOTS = 1"), [3 * 64 + 2, 4 * 64 + 2]),
    ):
        name, got, hits = project.run(*edit)
        assert (got, hits) == (words, [0, 0])
        names.append(name)
    assert len(set(names)) == 4


MODULE = "define i64 @f(i64* %state, i64 %base) {{\n  ret i64 {}\n}}\n"
"""A step function that returns a number."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the files, which is not there yet: that of kernels, whatever Numba's is called."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    return tmp_path / "kernels"


def code(number: int) -> MachineCode:
    """Return the step function that returns a number, and have it called."""
    made = MachineCode("name", MODULE.format(number), "f")
    assert made(array.array("q", [0]), 0) == number
    return made


def test_files(folder: Path) -> None:
    """A file that is there is loaded, a damaged one is compiled anew, and nothing else stays in the folder."""
    path = code(7).path
    assert code(7).from_disk
    good = path.read_bytes()
    for damaged in (good[:-1], good[:20], b"", good[:40] + bytes([good[40] ^ 1]) + good[41:]):
        path.write_bytes(damaged)
        assert not code(7).from_disk
        assert path.read_bytes() == good
    assert not code(8).from_disk
    assert len([*folder.iterdir()]) == 2


def test_the_last_used_files_stay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that was not used for longest goes when there are too many."""
    monkeypatch.setattr(_machine_code, "KEPT", 2)
    for age, number in ((300, 1), (100, 2), (200, 3)):
        path = code(number).path
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    code(4)
    assert [code(n).from_disk for n in (2, 4)] == [True, True]
    assert len([*folder.iterdir()]) == 2


def full_disk(handle: int, mode: str) -> None:
    """Stand in for `os.fdopen` where the disk is full."""
    os.close(handle)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_nothing_can_be_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the folder cannot be made or the disk is full, a warning says so, and the code runs."""
    folder.write_text("a file")
    with pytest.warns(RuntimeWarning, match="compiled code cannot be kept in .*kernels"):
        assert not code(5).from_disk
    folder.unlink()
    monkeypatch.setattr(os, "fdopen", full_disk)
    with pytest.warns(RuntimeWarning, match="compiled code cannot be kept"):
        assert not code(5).from_disk
    assert not [*folder.iterdir()]


def test_without_a_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NUMBA_CACHE_DIR unset the files go to a folder of this process alone."""
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    assert code(6).path.is_file()
    assert _machine_code.folder() == _machine_code.folder()


def test_what_is_no_state_is_refused(folder: Path) -> None:
    """A step takes an array of 64-bit integers and nothing else."""
    for state in (array.array("i", [0, 0]), np.zeros((4, 4), np.int64)[:, 0]):
        with pytest.raises(TypeError, match="array of 64-bit integers in one granule"):
            code(3)(state, 0)
