"""The folder of Numba's cache: what changes it, where it goes, what is removed."""

import contextlib
import os
import stat
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli_support import python
from xccl_emu.jit import cache


def run_python(code: str, **environment: str) -> str:
    """Output of `code` in a new interpreter with `environment` added to this one's."""
    return python(code, env={**os.environ, **environment}, check=True).stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A small package with a subpackage that is a link to a folder beside it, as kernels/ is."""
    root = tmp_path / "package"
    (root / "part").mkdir(parents=True)
    (tmp_path / "kernels").mkdir()
    for path in (root / "__init__.py", root / "part" / "helper.py", tmp_path / "kernels" / "ring.py"):
        path.write_text(f"NAME = {path.name!r}\n")
    (root / "kernels").symlink_to(Path("..") / "kernels")
    return root


@pytest.mark.parametrize("edited", ["__init__.py", "part/helper.py", "kernels/ring.py"])
def test_editing_or_moving_any_source_changes_the_digest(package: Path, edited: str) -> None:
    """An edit of a module, of a helper in a subpackage or of a file behind a link gives another folder; so does another
    name, for the digest covers which file holds what, not only the text of all files in a row."""
    before = cache.state_digest(str(package), {})
    (package / edited).write_text("NAME = 'edited'\n")
    after = cache.state_digest(str(package), {})
    (package / edited).rename((package / edited).with_name("other.py"))
    assert len({before, after, cache.state_digest(str(package), {})}) == 3


def test_the_digest_ignores_what_is_no_source(package: Path) -> None:
    """Byte code, data, an editor's dangling lock file and the place of the package leave the folder as it is."""
    before = cache.state_digest(str(package), {})
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "helper.py").write_text("stale")
    (package / "notes.txt").write_text("data")
    (package / ".#helper.py").symlink_to("someone@somewhere:1")
    moved = package.rename(package.with_name("elsewhere"))
    assert cache.state_digest(str(moved), {}) == before


@pytest.mark.parametrize(
    ("name", "matters"),
    [
        *((f"NUMBA_{switch}", True) for switch in ("BOUNDSCHECK", "OPT", "FULL_TRACEBACKS", "LOOP_VECTORIZE")),
        *((name, False) for name in ("NUMBA_CACHE_DIR", "PATH")),
    ],
)
def test_numba_settings_change_the_digest(package: Path, name: str, matters: bool) -> None:
    """Settings that shape machine code are in the digest, among them the one that a cache hit would ignore."""
    changed = cache.state_digest(str(package), {name: "1"}) != cache.state_digest(str(package), {})
    assert changed is matters


def test_versions_change_the_digest(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another NumPy gives another folder: Numba itself does not notice."""
    before = cache.state_digest(str(package), {})
    monkeypatch.setattr(cache, "_installed_versions", lambda search_path: {"numpy": "0.0"})
    assert cache.state_digest(str(package), {}) != before


def test_the_versions_are_the_installed_ones() -> None:
    """Reading the names of metadata folders finds what importlib.metadata finds, for all three."""
    from importlib.metadata import version

    expected = {name: version(name) for name in ("numba", "llvmlite", "numpy")}
    assert cache._installed_versions(sys.path) == expected


@pytest.mark.parametrize("first", ["xccl_emu, numba", "numba, xccl_emu"])
def test_numba_uses_the_folder_in_either_order_of_imports(tmp_path: Path, first: str) -> None:
    """Numba's own setting is the folder that the package chose, also if Numba was imported before."""
    code = f"import {first}, os; print(numba.config.CACHE_DIR); print(os.environ['NUMBA_CACHE_DIR'])"
    seen, exported = run_python(code, XCCL_EMU_CACHE_DIR=str(tmp_path)).splitlines()
    assert seen == exported
    assert Path(seen).parent == tmp_path / "xccl_emu"


def test_a_child_process_does_not_nest_its_folder(tmp_path: Path) -> None:
    """A child with other settings takes a folder beside its parent's, not below it."""
    code = "import xccl_emu, os; print(os.environ['NUMBA_CACHE_DIR'])"
    parent = run_python(code, NUMBA_CACHE_DIR=str(tmp_path), XCCL_EMU_CACHE_DIR="", NUMBA_BOUNDSCHECK="0")
    child = run_python(code, NUMBA_CACHE_DIR=parent, XCCL_EMU_CACHE_DIR="", NUMBA_BOUNDSCHECK="1")
    assert Path(parent).parent == Path(child).parent == tmp_path / "xccl_emu"
    assert parent != child


def test_bounds_checks_work_after_a_run_without(tmp_path: Path) -> None:
    """With bounds checks on, code cached without them is not used: the wrong index raises."""
    module = tmp_path / "reads.py"
    module.write_text(
        "import xccl_emu, numpy, numba\n"
        "@numba.njit(cache=True)\n"
        "def read(values, index):\n"
        "    return values[index]\n"
        "try:\n"
        "    read(numpy.zeros(2), 2)\n"
        "    print('read')\n"
        "except IndexError:\n"
        "    print('refused')\n"
    )
    code = f"exec(compile(open({str(module)!r}).read(), {str(module)!r}, 'exec'))"
    common = {"XCCL_EMU_CACHE_DIR": str(tmp_path), "NUMBA_DISABLE_JIT": "0"}
    assert run_python(code, **common, NUMBA_BOUNDSCHECK="0") == "read"
    assert run_python(code, **common, NUMBA_BOUNDSCHECK="1") == "refused"


def test_the_base_follows_the_documented_precedence(tmp_path: Path) -> None:
    """Own variable, then Numba's, then XDG's; a relative XDG_CACHE_HOME is ignored, as its standard asks."""
    names = ("XCCL_EMU_CACHE_DIR", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
    environment = {name: str(tmp_path / name) for name in names}
    for name in names:
        assert cache.base_folder(environment) == str(tmp_path / name)
        del environment[name]
    assert cache.base_folder({"XDG_CACHE_HOME": "relative"}) == os.path.expanduser("~/.cache")


def test_a_base_that_cannot_be_written_falls_back_to_private_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fallback belongs to this user alone, is the same next time, and an explicit wish is not dropped silently."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.warns(RuntimeWarning, match="cannot write the cache folder"):
        first = cache.base_folder({"XCCL_EMU_CACHE_DIR": str(blocked)})
    assert cache.base_folder({"XDG_CACHE_HOME": str(blocked)}) == first
    assert stat.S_IMODE(os.stat(first).st_mode) == 0o700


def test_a_base_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    """Each family of functions has a folder there; the fallback is chosen, and warned of, for all of them."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    code = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always')\n"
        "    from xccl_emu.jit import cache\n"
        "    for family in cache.FAMILIES: cache.folder_of(family)\n"
        "print(len(told))\n"
    )
    assert run_python(code, XCCL_EMU_CACHE_DIR=str(blocked), TMPDIR=str(tmp_path)) == "1"


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o702])
def test_a_folder_that_others_can_write_is_not_trusted(tmp_path: Path, mode: int) -> None:
    """What is kept is executed, so a folder that someone else may have filled is left alone, with a warning."""
    planted = tmp_path / "xccl_emu"
    planted.mkdir()
    planted.chmod(mode)
    with pytest.warns(RuntimeWarning, match="others can write or replace the cache folder .*chmod go-w"):
        assert cache.base_folder({"XCCL_EMU_CACHE_DIR": str(tmp_path)}) != str(tmp_path)
    planted.chmod(0o755)
    assert cache.base_folder({"XCCL_EMU_CACHE_DIR": str(tmp_path)}) == str(tmp_path)


@pytest.mark.parametrize(("mode", "trusted"), [(0o777, False), (0o1777, True), (0o755, True)])
def test_a_folder_that_others_can_replace_is_not_trusted(tmp_path: Path, mode: int, trusted: bool) -> None:
    """Where all may rename what is not theirs, it may be another one at the next look; the sticky bit forbids that."""
    tmp_path.chmod(mode)
    with contextlib.nullcontext() if trusted else pytest.warns(RuntimeWarning, match="replace"):
        assert (cache.base_folder({"XCCL_EMU_CACHE_DIR": str(tmp_path)}) == str(tmp_path)) == trusted


def test_what_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    """Files in it may have been made with any umask; and it may be reached by a link."""
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "xccl_emu").symlink_to(tmp_path / "elsewhere")
    assert cache.base_folder({"XCCL_EMU_CACHE_DIR": str(tmp_path)}) == str(tmp_path)
    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o700


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its mode says, as in a folder of everybody where another one was first."""
    (tmp_path / "xccl_emu").mkdir(mode=0o700)
    monkeypatch.setattr("os.getuid", lambda: os.geteuid() + 1)
    with pytest.warns(RuntimeWarning, match="others can write or replace"):
        assert cache.base_folder({"XCCL_EMU_CACHE_DIR": str(tmp_path)}) != str(tmp_path)


def test_a_folder_is_made_for_its_user_alone(tmp_path: Path) -> None:
    """Whatever the umask says."""
    before = os.umask(0)
    try:
        assert cache.base_folder({"XCCL_EMU_CACHE_DIR": str(tmp_path)}) == str(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "xccl_emu").stat().st_mode) == 0o700


def test_a_fallback_that_others_can_write_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cached code is unpickled, so a folder that someone else may have filled is left alone."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    planted = tmp_path / f"xccl_emu-{os.getuid()}"
    planted.mkdir()
    planted.chmod(0o777)
    chosen = Path(cache._private_temporary_folder())
    assert chosen != planted
    assert stat.S_IMODE(chosen.stat().st_mode) == 0o700


# The clock runs on during the test, so no age is within a minute of the limit.
AGES = st.integers(0, 10 * cache.YOUNG_SECONDS).filter(lambda age: abs(age - cache.YOUNG_SECONDS) > 60)


@given(ages=st.lists(AGES, max_size=20))
def test_pruning_keeps_the_latest_and_the_young(tmp_path_factory: pytest.TempPathFactory, ages: list[int]) -> None:
    """Whatever the ages: own and foreign folders stay, the newest stay, the young stay, the rest goes."""
    parent = tmp_path_factory.mktemp("prune")
    now = time.time()
    own = "f" * 32
    for name in (own, "notes"):
        (parent / name).mkdir()
        os.utime(parent / name, (0, 0))
    for number, age in enumerate(ages):
        folder = parent / f"{number:032x}"
        folder.mkdir()
        (folder / "code").write_text("x")
        os.utime(folder, (now - age, now - age))
    cache.prune(str(parent), own)
    newest, others = sorted(ages)[: cache.FOLDERS_KEPT - 1], sorted(ages)[cache.FOLDERS_KEPT - 1 :]
    expected = len(newest) + sum(age < cache.YOUNG_SECONDS for age in others)
    left = {path.name for path in parent.iterdir()}
    assert {own, "notes"} <= left
    assert len(left) - 2 == expected


@pytest.mark.nojit
@pytest.mark.boundscheck
def test_numba_is_in_the_mode_that_the_environment_asks_for() -> None:
    """The extra runs of the suite really are without the JIT, or with bounds checks: a wrong index shows it."""
    import numba
    import numpy as np

    @numba.njit
    def read(values, index):  # type: ignore[no-untyped-def]
        return values[index]

    plain = os.environ.get("NUMBA_DISABLE_JIT", "0") == "1"
    checked = os.environ.get("NUMBA_BOUNDSCHECK", "0") == "1"
    assert hasattr(read, "py_func") is not plain
    if plain or checked:
        with pytest.raises(IndexError):
            read(np.zeros(2), 2)
    else:
        assert read(np.ones(2), 1) == 1
