"""The pytest plugin: a violation is a section of the report and a replay file.

It is loaded at every start of pytest, so it imports nothing of the checker until a test asks for it.

Pytest takes the whole of an installed distribution that has a plugin for test code, and rewrites its assert statements.
What they become Numba cannot compile, so modules with compiled functions that assert say PYTEST_DONT_REWRITE.
"""

import re
import zlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xccl_emu.check.trial import Checkable
    from xccl_emu.check.verdict import Verdict
    from xccl_emu.testing.assertions import ProtocolViolation

REPLAY_DIR = ".xccl_emu"
_NAME_MAX = 120


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("xccl_emu")
    group.addoption(
        "--xccl-replay-dir", default=REPLAY_DIR, metavar="DIR", help="where violations are kept as replay files"
    )
    group.addoption(
        "--xccl-seconds", type=float, default=None, metavar="S", help="limit of each check by xccl_check, in seconds"
    )
    group.addoption("--xccl-seed", type=int, default=0, metavar="N", help="seed that xccl_seed is made of")


@pytest.fixture
def xccl_seed(request: pytest.FixtureRequest) -> int:
    """A seed that belongs to this test: the same in each run, another one with another ``--xccl-seed``."""
    return zlib.crc32(f"{request.config.getoption('--xccl-seed')} {request.node.nodeid}".encode())


@pytest.fixture
def xccl_check(request: pytest.FixtureRequest, xccl_seed: int) -> "Callable[..., Verdict]":
    """Check and assert: ``xccl_check(case, **options)`` takes the options of `check` and returns the verdict.

    Every schedule must be right; with a ``policy`` other than exhaustive, or under a ``fault``, the schedules that are
    drawn with `xccl_seed`.  ``--xccl-seconds`` is its limit unless ``seconds`` is given.  Raises ProtocolViolation, or
    NotVerified if a limit was met before every schedule was seen.
    """
    from xccl_emu.testing.assertions import assert_no_violation, assert_verified

    defaults = {"seed": xccl_seed, "seconds": request.config.getoption("--xccl-seconds")}

    def checked(checkable: "Checkable", **options: Any) -> "Verdict":
        __tracebackhide__ = True
        sampled = options.get("policy", "exhaustive") != "exhaustive" or options.get("fault")
        assertion = assert_no_violation if sampled else assert_verified
        return assertion(checkable, **(defaults | options))

    return checked


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give the report of a failure the runs that lead to its violations, and write their replay files."""
    raised = [call.excinfo, *(getattr(item, "_excinfo", None) or ())]  # the second: what a TestCase has raised
    found = [one for each in raised if each is not None for one in _violations(each.value)]
    for violation in found:
        violation.shown_elsewhere = True  # in the section, so not in the traceback
    report = yield
    for number, violation in enumerate(found):
        lines = [str(violation), violation.witness, f"replay file: {_save(item, violation, number)}"]
        report.sections.append(("xccl_emu violation", "\n\n".join([*lines, f"as a line: {violation.line}"])))
    return report


def _violations(error: BaseException) -> "Iterator[ProtocolViolation]":
    """The violations in what was raised; Hypothesis raises a group where examples fail in different ways."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _violations(part)
    elif hasattr(error, "shown_elsewhere"):  # no import: most failures are of tests that have nothing to do with us
        violation: ProtocolViolation = error  # type: ignore[assignment]
        yield violation


def _save(item: pytest.Item, violation: "ProtocolViolation", number: int) -> Path | str:
    """Write the replay file, named by the test; what to say instead if that is impossible."""
    from xccl_emu.testing.witnesses import keep_witness

    name = re.sub(r"[^\w.\-\[\]]+", "-", item.nodeid)[-_NAME_MAX:].strip("-") + (f"-{number + 1}" if number else "")
    folder = item.config.rootpath / item.config.getoption("--xccl-replay-dir")
    try:
        return keep_witness(violation.checkable, violation.verdict, folder, name)
    except OSError as error:
        return f"could not be written ({error})"
