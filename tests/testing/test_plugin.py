"""The pytest plugin, by running pytest on small test files."""

import ast
import json
import re
from pathlib import Path

import pytest

from tests.cli_support import python
from xccl_emu.testing import ProtocolViolation, assert_verified

from .cases import telling
from .support import plugin_arguments

pytest_plugins = ["pytester"]

BODY = """
import pytest
from hypothesis import given, settings, strategies as st
from tests.testing.cases import telling
from xccl_emu.testing import assert_verified

WRONG = {"without": ["word before flag"]}
"""


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """All that a check loads stays: an inner run would drop what it has loaded, and Numba cannot be loaded twice."""
    with pytest.raises(ProtocolViolation):
        assert_verified(telling(), without=["word before flag"])


@pytest.fixture
def inner(pytester: pytest.Pytester, repository: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder for test files that find the package and `cases`."""
    monkeypatch.syspath_prepend(str(repository))
    return pytester


def run(inner: pytest.Pytester, body: str, *arguments: str) -> pytest.RunResult:
    """Run the tests of a file."""
    inner.makepyfile(test_it=BODY + body)
    return inner.runpytest_inprocess(*plugin_arguments(), "-p", "no:cacheprovider", "-p", "no:randomly", *arguments)


def test_a_violation_is_a_section_and_a_file(inner: pytest.Pytester) -> None:
    """The table stands in a section, once; the replay file is named by the test, parameters and all."""
    body = """
@pytest.mark.parametrize("value", [7, 8])
def test_wrong(xccl_check, value):
    xccl_check(telling(value), **WRONG)
"""
    result = run(inner, body)
    result.assert_outcomes(failed=2)
    text = result.stdout.str()
    assert text.count("- xccl_emu violation -") == 2
    assert text.count("SWITCHED OFF: quiet") == 2
    assert "E   " in text
    files = sorted((inner.path / ".xccl_emu").iterdir())
    digits = "[0-9a-f]{12}"
    for number, file in zip((7, 8), files, strict=True):
        assert re.fullmatch(rf"test_it\.py-test_wrong\[{number}\]-{digits}\.json", file.name)
    assert [json.loads(file.read_text())["configuration"] for file in files] == [{"value": 7}, {"value": 8}]
    result.stdout.fnmatch_lines(["replay file: *test_wrong[[]7[]]-*.json"])


def test_other_outcomes_have_neither(inner: pytest.Pytester) -> None:
    """A proof passes; a failure of another sort, or an unfinished proof, gets no section and no file."""
    body = """
def test_right(xccl_check):
    assert xccl_check(telling()).verdict == "verified"
    assert xccl_check(telling(), policy="pct", schedules=5).verdict == "no violation found"

def test_other():
    assert 1 == 2

def test_unfinished(xccl_check, monkeypatch):
    from xccl_emu.check.verdict import Verdict
    given_up = Verdict("unfinished", "telling", {}, "relaxed", "exhaustive", 0, reason="more than 1 state")
    monkeypatch.setattr("xccl_emu.testing.assertions.check", lambda case, **options: given_up)
    xccl_check(telling())
"""
    result = run(inner, body)
    result.assert_outcomes(passed=1, failed=2)
    assert "xccl_emu violation" not in result.stdout.str()
    assert not (inner.path / ".xccl_emu").exists()
    result.stdout.fnmatch_lines(["E*NotVerified: unfinished*"])


def test_violations_inside_of_hypothesis_are_found(inner: pytest.Pytester) -> None:
    """A violation that Hypothesis raises, alone or in a group with others, is reported with its own table."""
    body = """
@settings(deadline=None, database=None, derandomize=True, max_examples=10)
@given(st.integers(1, 9))
def test_drawn(value):
    assert_verified(telling(value), **WRONG)

def test_group():
    try:
        assert_verified(telling(3), **WRONG)
    except AssertionError as error:
        raise ExceptionGroup("two", [error, ValueError()])
"""
    result = run(inner, body, "--xccl-replay-dir", "elsewhere/deep")
    result.assert_outcomes(failed=2)
    assert result.stdout.str().count("- xccl_emu violation -") == 2
    names = sorted(file.name for file in (inner.path / "elsewhere" / "deep").iterdir())
    assert [name.rpartition("-")[0] for name in names] == ["test_it.py-test_drawn", "test_it.py-test_group"]
    assert json.loads((inner.path / "elsewhere/deep" / names[0]).read_text())["configuration"] == {"value": 1}


def test_violations_inside_of_unittest_are_found(inner: pytest.Pytester) -> None:
    """A violation inside a TestCase is found, as is one in a state machine of calls."""
    body = """
import unittest

class TestIt(unittest.TestCase):
    def test_wrong(self):
        assert_verified(telling(3), **WRONG)
"""
    result = run(inner, body)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["replay file: *test_it.py-TestIt-test_wrong-*.json"])


def test_a_folder_that_cannot_be_written_is_said(inner: pytest.Pytester) -> None:
    """The report is made all the same."""
    inner.path.joinpath("taken").write_text("")
    result = run(inner, "def test_wrong(xccl_check): xccl_check(telling(), **WRONG)\n", "--xccl-replay-dir", "taken")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["replay file: could not be written*"])


def test_seeds_belong_to_tests(inner: pytest.Pytester) -> None:
    """A test has the same seed in each run, another than other tests, and another with ``--xccl-seed``."""
    body = """
@pytest.mark.parametrize("n", [1, 2])
def test_seed(xccl_seed, n):
    with open("seeds", "a") as file:
        file.write(f"{xccl_seed} ")
"""
    for arguments in ([], [], ["--xccl-seed", "5"]):
        run(inner, body, *arguments).assert_outcomes(passed=2)
    one, two, again, again_two, other, other_two = (inner.path / "seeds").read_text().split()
    assert (one, two) == (again, again_two)
    assert len({one, two, other, other_two}) == 4


def test_options_reach_the_check(inner: pytest.Pytester) -> None:
    """``--xccl-seconds`` and the seed are those of each check, unless the test gives its own."""
    body = """
def test_options(xccl_check, xccl_seed, monkeypatch):
    from xccl_emu.check.verdict import Verdict
    given = []
    def check(case, **options):
        given.append(options)
        return Verdict("verified", "", {}, "", "", 0)
    monkeypatch.setattr("xccl_emu.testing.assertions.check", check)
    xccl_check(telling())
    xccl_check(telling(), seconds=1, seed=2)
    assert given == [{"seconds": 2.5, "seed": xccl_seed}, {"seconds": 1, "seed": 2}]
"""
    run(inner, body, "--xccl-seconds", "2.5").assert_outcomes(passed=1)


def test_loading_the_plugin_imports_no_checker() -> None:
    """Pytest loads it for everybody: no Numba, NumPy, rich or Hypothesis before a test asks for a check."""
    code = (
        "import pytest, sys; import xccl_emu.testing.plugin; "
        "print([m for m in ('numba', 'numpy', 'rich', 'hypothesis', 'xccl_emu.machine') if m in sys.modules])"
    )
    assert python(code, check=True).stdout == "[]\n"


def test_the_public_module_has_what_it_names_and_no_numba() -> None:
    """Every public name can be had, and none of them needs Numba before something runs."""
    code = (
        "import sys, xccl_emu.testing as t; assert set(dir(t)) == set(t.__all__); "
        "print([n for n in t.__all__ if getattr(t, n) is None], 'numba' in sys.modules, hasattr(t, 'nothing'))"
    )
    assert python(code, check=True).stdout == "[] False False\n"


COMPILED = {"jit", "jit_arrays", "njit", "call", "entry", "linked", "part"}
"""Names of decorators whose functions are compiled."""


def asserts_in_compiled_code(source: str) -> bool:
    """Does a module have a compiled function with an assert statement?"""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            decorators = {ast.unparse(decorator).split("(")[0].split(".")[-1] for decorator in function.decorator_list}
            if decorators & COMPILED and any(isinstance(node, ast.Assert) for node in ast.walk(function)):
                return True
    return False


def test_pytest_leaves_compiled_code_as_it_is(repository: Path) -> None:
    """Pytest rewrites what is installed together with a plugin; compiled functions that assert are kept out of that."""
    paths = [path for folder in ("xccl_emu", "kernels", "protocols") for path in (repository / folder).rglob("*.py")]
    sources = {path: path.read_text() for path in paths}
    asserting = [path for path, source in sources.items() if asserts_in_compiled_code(source)]
    assert asserting, "the test knows the decorators"
    for path in asserting:
        assert "PYTEST_DONT_REWRITE" in (ast.get_docstring(ast.parse(sources[path])) or ""), path
