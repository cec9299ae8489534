"""Lowered files and Numba's cache: what changed is compiled again, what did not is loaded by the next process."""

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from xccl_emu import _cache
from xccl_emu.lang import _files

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
    yield fence(step=1, sync="here")
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
assert "numba" not in sys.modules
words = []
for kernel in (k, other):
    state = np.zeros(600, np.int64)
    state[abi.REGISTERS] = 3
    kernel.step(state, 0)
    words.append(int(state[abi.REQUEST + 1]))
hits = [sum(x.step.stats.cache_hits.values()) for x in (k, other)] if hasattr(k.step, "stats") else [0, 0]
print(k.path.name, *words, *hits)
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
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        name, *numbers = done.stdout.split()
        return name, [int(n) for n in numbers[:2]], [int(n) for n in numbers[2:]]


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_a_second_process_loads_and_an_edit_recompiles(tmp_path: Path) -> None:
    """The same text is a cache hit; a changed helper of a helper or constant, in any module, is another file."""
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


@pytest.mark.nojit
@pytest.mark.parametrize("name", ["NUMBA_BOUNDSCHECK", "NUMBA_FULL_TRACEBACKS", "NUMBA_LOOP_VECTORIZE"])
def test_switches_choose_the_folder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A switch that changes machine code gives another folder, and so other files, for the same text."""
    monkeypatch.setenv(name, "0")
    before = _cache.state_digest(str(REPOSITORY / "xccl_emu" / "lang"), os.environ)
    monkeypatch.setenv(name, "1")
    assert _cache.state_digest(str(REPOSITORY / "xccl_emu" / "lang"), os.environ) != before
    monkeypatch.setenv("NUMBA_CACHE_DIR", before)
    assert _files.folder() == Path(before) / "lowered"
    assert _files.digest("text") == _files.digest("text") != _files.digest("text ")


@pytest.mark.nojit
def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is there is left alone, a damaged one is written anew, and nothing else stays in the folder."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    path = _files.write("name", "x = 1\n")
    stamp = path.stat().st_mtime_ns
    assert path.parent == tmp_path / "lowered"
    assert _files.write("name", "x = 1\n") == path
    assert path.stat().st_mtime_ns == stamp
    path.write_text("x = 1")
    assert _files.write("name", "x = 1\n").read_text() == "x = 1\n"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.nojit
def test_without_a_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NUMBA_CACHE_DIR unset the files go to a folder of this process alone."""
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    assert _files.write("name", "x = 1\n").is_file()
    assert _files.folder() == _files.folder()
