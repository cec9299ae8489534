"""Files of one name: what a case imports from its folder is its own, by path and content."""

import copy
import os
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from unittest.mock import patch

import pytest
from cli_support import as_json, invoke, refusal

from xccl_emu.base.errors import ConfigError
from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION
from xccl_emu.fuzz.run import FuzzPlan, fuzz, fuzz_part
from xccl_emu.protocol import Case, registry
from xccl_emu.protocol.folder import contents_of
from xccl_emu.protocol.registry import make

KERNELS = '''"""Kernels."""

from xccl_emu.lang import kernel, mtu_in, mtu_out, poll_ge, put, quiet

{more}
@kernel
def push(source, target, flag):
    yield mtu_in(source, 0, 32)
    yield quiet(sync="read")
    yield mtu_out(0, target, 32)
    {between}
    yield put(flag, 1, sync="flag")


@kernel
def take(slot, target, flag):
    yield poll_ge(flag, 1, sync="arrived")
    yield mtu_in(slot, 0, 32)
    yield quiet(sync="read")
    yield mtu_out(0, target, 32)
'''
CASE = '''"""A case."""

from dataclasses import dataclass

import numpy as np
from xccl_emu.protocol import Bench, Case, Regions, size
{imports}


@dataclass(frozen=True)
class Push(Case):
    """One payload."""

    seed: int = size(1, "Of the payload.")

    def lay_out(self, bench: Bench) -> None:
        {inside}
        regions = Regions(2)
        slot, flag = regions.managed("slot", 32), regions.meta("flag")
        pod = bench.pod(regions.tight_pod(app_bytes=64, ub_bytes=32))
        regions.place(bench, pod)
        data = np.random.default_rng(self.seed).integers(1, 256, 32, np.uint8)
        own, out = bench.filled(0, data, "own"), bench.wanted(1, data, "out", owners="die1")
        sent = {{"source": own.address, "target": slot.at(1), "flag": flag.at(1)}}
        pod.launch(push, 0, [0], sent, [pod.grant(own, "r"), slot.grant(1, "w"), flag.grant(1, "w", 0)])
        taken = {{"slot": slot.at(1), "target": out.address, "flag": flag.at(1)}}
        pod.launch(take, 1, [0], taken, [slot.grant(1, "r"), flag.grant(1, "r"), pod.grant(out, "w")])
'''
RIGHT, WRONG = 'yield quiet(sync="data before flag")', "pass"
PLAIN = "from push_kernels import push, take"


def _folder(
    folder: Path, between: str, imports: str = PLAIN, inside: str = "", kernels: str = "push_kernels.py"
) -> str:
    """A case and its kernels in a folder, as ``file.py:Name``."""
    for file, text in (
        ("push.py", CASE.format(imports=imports, inside=inside)),
        (kernels, KERNELS.format(between=between, more="")),
    ):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)
    return f"{folder / 'push.py'}:Push"


@pytest.fixture
def both(tmp_path: Path) -> tuple[str, str]:
    """The right and the wrong version, side by side."""
    return _folder(tmp_path / "right", RIGHT), _folder(tmp_path / "wrong", WRONG)


def _verdict(case: Case) -> str:
    return check(case).verdict


@pytest.mark.parametrize("first", [0, 1])
def test_two_versions_side_by_side_have_two_verdicts(both: tuple[str, str], first: int) -> None:
    """Made both, then checked, in either order; and made again they are the same."""
    cases = [make(name) for name in (both if first == 0 else both[::-1])]
    assert [_verdict(case) for case in cases] == ([VERIFIED, VIOLATION] if first == 0 else [VIOLATION, VERIFIED])
    assert type(make(both[first])) is type(cases[0])
    assert type(cases[0]) is not type(cases[1])
    assert "push_kernels" not in sys.modules
    assert str(Path(both[0]).parent) not in sys.path


@pytest.mark.slow
def test_every_command_tells_them_apart(both: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check, each-sync, fuzz, run, bench and compare in one process, the right one first."""
    monkeypatch.chdir(tmp_path)
    assert [invoke("check", name)[0] for name in both] == [0, 1]
    each = as_json("check", both[0], "--each-sync")["each_sync"]
    assert {one["sync"]: one["finding"] for one in each}["data before flag"] == "needed"
    assert "data before flag" in refusal("check", both[1], "--without", "data before flag")
    assert [invoke("fuzz", name, "--examples", "3", "--workers", "1")[0] for name in both] == [0, 1]
    assert [invoke("run", name)[0] for name in both] == [0, 0]
    slow, fast = (as_json("bench", name)["results"][0]["emulated"] for name in both)
    assert slow > fast
    assert [line["protocol"] for line in as_json("compare", *both)["results"]] == [*both]


@pytest.mark.slow
def test_processes_tell_them_apart(both: tuple[str, str], tmp_path: Path) -> None:
    """Cases that are sent to a worker, in which files are as they were when it loaded them; a worker that would load
    something else refuses; and so it is with fuzzing in workers."""
    with _worker() as pool:
        for _ in range(2):
            assert [*pool.map(_verdict, map(make, both))] == [VERIFIED, VIOLATION]
        assert [len(fuzz(FuzzPlan(name, examples=4), 2).findings) for name in both] == [0, 1]
        old, new = make(both[0], seed=2), make(_folder(tmp_path / "right", WRONG))
        assert [*pool.map(_verdict, (old, new))] == [VERIFIED, VIOLATION]
    with _worker() as pool:
        with pytest.raises(ConfigError, match=r"push.Push: one of .*push_kernels.py has changed"):
            pool.submit(_read, pickle.dumps(old)).result()
        assert pool.submit(_verdict, new).result() == VIOLATION
    assert _verdict(_read(pickle.dumps(old))) == _verdict(copy.copy(old)) == VERIFIED


def _worker() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, get_context("spawn"))


def _read(sent: bytes) -> Case:
    case: Case = pickle.loads(sent)
    return case


def test_fuzzing_refuses_what_was_edited_meanwhile(both: tuple[str, str], tmp_path: Path) -> None:
    """A part that comes to its turn behind an edit is of another protocol than the parts before it."""
    plan = FuzzPlan(both[0], examples=1, contents=contents_of(registry.known(both[0]).maker.__module__))
    assert not fuzz_part(plan).findings
    _folder(tmp_path / "right", WRONG)
    with pytest.raises(ConfigError, match=r"push_kernels.py has changed meanwhile"):
        fuzz_part(plan)


@pytest.mark.parametrize("lowered", [True, False])
def test_an_edited_file_is_loaded_again(tmp_path: Path, lowered: bool) -> None:
    """An edit within the same second and of the same length is seen; what was made before stays as it was, even if
    none of its kernels had been lowered; and the edit undone is what it was."""
    name = _folder(tmp_path, RIGHT)
    old = make(name)
    if lowered:
        assert _verdict(old) == VERIFIED
    times = (tmp_path / "push_kernels.py").stat()
    _folder(tmp_path, f"{WRONG}  {'#' * (len(RIGHT) - len(WRONG) - 2)}")
    os.utime(tmp_path / "push_kernels.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (tmp_path / "push_kernels.py").stat().st_size == times.st_size
    assert _verdict(make(name)) == VIOLATION
    assert _verdict(old) == VERIFIED
    _folder(tmp_path, RIGHT)
    assert type(make(name)) is type(old)


def test_a_kernel_is_told_as_it_was_loaded(tmp_path: Path) -> None:
    """Lines that are inserted above a kernel between its import and its first launch move none of its sites."""
    name = _folder(tmp_path, WRONG)
    case = make(name)
    kernels = tmp_path / "push_kernels.py"
    kernels.write_text("# one\n# two\n" + kernels.read_text())
    (site,) = (site for kernel in case.build("sc").pod.kernels for site in kernel.sites if site.sync == "flag")
    assert (site.file, site.line, site.text) == (str(kernels), 12, 'yield put(flag, 1, sync="flag")')


WAYS = {
    "module": ("import push_kernels\npush, take = push_kernels.push, push_kernels.take", "", "push_kernels.py"),
    "as": ("import helpers.push as it\npush, take = it.push, it.take", "", "helpers/push.py"),
    "dotted": ("import helpers.deep.k\npush, take = helpers.deep.k.push, helpers.deep.k.take", "", "helpers/deep/k.py"),
    "from package": ("from helpers import k\npush, take = k.push, k.take", "", "helpers/k.py"),
    "star": ("from push_kernels import *", "", "push_kernels.py"),
    "later": ("", PLAIN, "push_kernels.py"),
    "standard": ("from queue import push, take", "", "queue.py"),
    "installed": ("from typer import push, take", "", "typer.py"),
    "path": ("import sys\nsys.path.insert(0, __file__ + '/../common')\nfrom k import push, take", "", "common/k.py"),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_import_is_of_the_own_folder(tmp_path: Path, way: str) -> None:
    """Modules, packages without and with an ``__init__.py``, names of other packages, imports while a case is laid out,
    and folders that a case puts on the path itself."""
    imports, inside, kernels = WAYS[way]
    if way == "path":
        imports = imports.replace("__file__ + '/../common'", "__file__[:-7] + 'common'")
    before = [*sys.path]
    cases = [make(_folder(tmp_path / str(i), text, imports, inside, kernels)) for i, text in enumerate((RIGHT, WRONG))]
    assert [_verdict(case) for case in cases] == [VERIFIED, VIOLATION]
    assert sys.path == before


def test_a_package_is_known_by_the_folder_above_it(tmp_path: Path) -> None:
    """Relative imports, and two files that import each other, in two versions of one package."""
    cases = []
    for folder, text in (("a", RIGHT), ("b", WRONG)):
        package = tmp_path / folder / "of_mine"
        name = _folder(package, text, "from .inner.push_kernels import push, take\nfrom of_mine import other")
        (package / "__init__.py").touch()
        (package / "inner").mkdir()
        (package / "inner" / "__init__.py").touch()
        (package / "push_kernels.py").rename(package / "inner" / "push_kernels.py")
        (package / "other.py").write_text("import of_mine.push\ndef of():\n    return of_mine.push.Push\n")
        cases.append(make(name))
    assert [_verdict(case) for case in cases] == [VERIFIED, VIOLATION]
    assert sys.modules[type(cases[0]).__module__].other.of() is type(cases[0])


def test_modules_that_are_dropped_are_loaded_again(tmp_path: Path) -> None:
    """Pytest's own tests, and `mock.patch.dict`, put ``sys.modules`` back as it was."""
    name = _folder(tmp_path, RIGHT)
    with patch.dict(sys.modules):
        make(name)
    assert isinstance(make(name), Case)


def test_what_appears_beside_a_file_counts(tmp_path: Path) -> None:
    """A module that was found elsewhere is the folder's own as soon as it is there."""
    name = _folder(tmp_path, RIGHT, f"from statistics import mean\n{PLAIN}")
    old = make(name)
    (tmp_path / "statistics.py").write_text("mean = 7\n")
    new = make(name)
    assert [sys.modules[type(case).__module__].mean == 7 for case in (old, new)] == [False, True]
    (tmp_path / "xccl_emu.py").write_text("1 / 0\n")
    assert isinstance(make(name), Case)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1 / 0", "push_kernels.py:1: ZeroDivisionError: division by zero"),
        ("import xml.none", "push_kernels.py:1: ModuleNotFoundError: No module named 'xml.none'"),
        ("import push.none", "push_kernels.py:1: ModuleNotFoundError: No module named 'push.none'; 'push' is not a p"),
    ],
)
def test_what_fails_is_told_by_its_own_line(tmp_path: Path, text: str, told: str) -> None:
    """The error names the file and line of the folder, and no name that the user has not written; mended it loads."""
    name = _folder(tmp_path, RIGHT)
    (tmp_path / "push_kernels.py").write_text(text)
    with pytest.raises(ConfigError, match=f"cannot be imported .*{told}"):
        make(name)
    assert isinstance(make(_folder(tmp_path, RIGHT)), Case)


def test_a_script_beside_its_files(both: tuple[str, str]) -> None:
    """A script whose folder Python itself puts on the path, and which imports its kernels by their bare name, gets the
    other folder's where it makes the case of that."""
    folder = Path(both[0]).parent
    script = folder / "script.py"
    script.write_text(
        "import push_kernels\nfrom xccl_emu.check.check import check\nfrom xccl_emu.protocol.registry import make\n"
        "if __name__ == '__main__':\n"
        f"    print(*(check(make(name)).verdict for name in ('push.py:Push', {both[1]!r}, {both[0]!r})))\n"
    )
    done = subprocess.run([sys.executable, script], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [VERIFIED, VIOLATION, VERIFIED]


FUNCTION = '''
from xccl_emu.protocol import Bench, protocol


@protocol
def decorated(bench: Bench, size: int = 1) -> None:
    """Laid out by a function."""


def plain(bench: Bench, size: int = 1) -> None:
    """Its protocol has another name."""


named = protocol(plain)
'''


@pytest.mark.parametrize("name", ["decorated", "named"])
def test_a_case_of_a_function_is_read_in_another_process(name: str, tmp_path: Path) -> None:
    """By the file of the function, with its sizes and those of its pod; a copy is of the same function."""
    (tmp_path / "functions.py").write_text(FUNCTION)
    case = make(f"{tmp_path / 'functions.py'}:{name}", size=3, scalar_cache=2)
    assert copy.copy(case) == case
    with _worker() as pool:
        assert pool.submit(_sizes, pickle.dumps(case)).result() == {"size": 3, "scalar_cache": 2}


def _sizes(pickled: bytes) -> dict[str, int | str]:
    return dict(pickle.loads(pickled).configuration)
