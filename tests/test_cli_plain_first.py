"""The answer of plain Python, while all is compiled for the first time."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli_support import hear_interrupts, python, refusal
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.shrink import WITNESS_SECONDS
from xccl_emu.cli import plain_first

BROKEN = ("check", "sendrecv", "--slots", "1", "--chunks", "3", "--without", "slot free", "--json")


def started(folder: Path, *words: str, **options: Any) -> subprocess.Popen[str]:
    """The command with an empty cache, in a folder of its own."""
    environment = {**os.environ, "XCCL_EMU_CACHE_DIR": str(folder / "cache"), "NUMBA_DISABLE_JIT": "0"}
    return subprocess.Popen(
        [sys.executable, "-m", "xccl_emu", *words], env=environment | options, cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=hear_interrupts,
    )  # fmt: skip


@pytest.mark.slow
def test_both_say_the_same(tmp_path: Path) -> None:
    """Verdict, states, the violation and its file are those of the compiled command; only seconds differ.

    The first answer leaves a process that compiles on, by itself and at low priority; behind it nothing is left to be
    compiled, and it has written no answer of its own.
    """
    told, errors = answered(tmp_path)
    [number] = map(int, re.findall(r"process (\d+) compiles on", errors))
    behind = Path(f"/proc/{number}")
    assert os.getsid(number) == number
    [replay] = tmp_path.glob("witnesses/*.json")
    replay.unlink()
    while behind.exists() and behind.joinpath("cmdline").read_bytes():
        time.sleep(0.2)
    assert not [*tmp_path.glob("witnesses/*.json")]
    again, errors = answered(tmp_path)
    assert errors == ""
    with started(tmp_path, *BROKEN, XCCL_EMU_PLAIN_FIRST="0", XCCL_EMU_CACHE_DIR=str(tmp_path / "other")) as process:
        printed, errors = process.communicate()
    assert "answered by plain Python" not in errors
    assert told == again == json.loads(printed) | {"seconds": 0.0}
    assert told["violation"]["kind"] == "data race"


def answered(folder: Path) -> tuple[dict[str, Any], str]:
    """What the broken protocol's check prints, without its seconds, and what it says on stderr."""
    with started(folder, *BROKEN) as process:
        printed, errors = process.communicate()
    assert process.returncode == 1
    return json.loads(printed) | {"seconds": 0.0}, errors


def test_one_process_compiles_behind_answers(tmp_path: Path) -> None:
    """A second one leaves at once, a command knows of the first, and an environment variable forbids it."""
    script = """
from xccl_emu.cli import plain_first
assert plain_first._is_free()
with plain_first._lock(plain_first.fcntl.LOCK_EX):
    assert not plain_first._is_free()
    plain_first.compile_behind()
    print(plain_first._go_on_behind())
    plain_first.os.environ["XCCL_EMU_COMPILE_BEHIND"] = "0"
    print(plain_first._go_on_behind())
assert plain_first._is_free()
print(plain_first.os.nice(0))
"""
    process = python(script, env={**os.environ, "XCCL_EMU_CACHE_DIR": str(tmp_path)})
    assert process.stdout == f"; a process of an earlier answer is still compiling\n\n{os.nice(0)}\n", process.stderr


def test_nothing_of_numba_is_needed(tmp_path: Path) -> None:
    """Stand-ins take its place: the same verdict and states, and not a module of it."""
    told = []
    for more in ({"XCCL_EMU_WITHOUT_NUMBA": "1"}, {"NUMBA_DISABLE_JIT": "1"}):
        with started(tmp_path, *BROKEN, **more) as process:
            printed, _ = process.communicate()
        told.append(json.loads(printed) | {"seconds": 0.0})
    assert told[0] == told[1]
    script = "import xccl_emu.machine.driver, sys; print(hasattr(sys.modules['numba'], '__file__'))"
    assert python(script, env={**os.environ, "XCCL_EMU_WITHOUT_NUMBA": "1"}).stdout == "False\n"


def test_ctrl_c_ends_both(tmp_path: Path) -> None:
    """No process is left, and no answer comes behind it."""
    with started(tmp_path, *BROKEN) as process:
        assert process.stderr is not None
        while "the machine" not in process.stderr.readline():
            pass
        time.sleep(0.5)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGINT)
        printed, errors = process.communicate(timeout=60)
    assert (process.returncode, printed, errors) == (130, "", "xccl-emu: interrupted\n")
    assert len(children) == 1
    assert not Path(f"/proc/{children[0]}").exists()


@pytest.mark.parametrize(
    ("words", "applies"),
    [
        ("check sendrecv", True),
        ("trace sendrecv", True),
        ("run sendrecv", False),
        ("check sendrecv --each-sync", False),
    ],
)
def test_what_depends_on_seconds_is_left_to_compiled_code(
    words: str, applies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slower code would find less in the same seconds, and nobody who imports the package gets a process."""
    monkeypatch.setattr(plain_first.early, "IS_COMMAND", True)
    assert plain_first._applies(words.split()) == applies
    monkeypatch.setenv("XCCL_EMU_PLAIN_FIRST", "0")
    assert not plain_first._applies(words.split())


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("check sendrecv --seconds 40", True),
        ("check sendrecv --seconds=40 --without tail", True),
        ("check sendrecv --seconds 40 --policy portfolio", False),
        ("check sendrecv --fault stop:die0 --seconds 40", False),
        ("check sendrecv --each-sync", False),
    ],
)
def test_a_limit_of_a_search_leaves_the_first_answer(words: str, first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain Python is asked too where only a search is limited: what it has not finished is not taken."""
    monkeypatch.setattr(plain_first.early, "IS_COMMAND", True)
    monkeypatch.delenv("XCCL_EMU_PLAIN_FIRST", raising=False)
    assert plain_first._applies(words.split()) == first


@pytest.mark.parametrize(("environment", "seconds"), [("1", plain_first.PATIENCE_S), ("", WITNESS_SECONDS)])
def test_plain_python_has_longer_for_a_witness(
    environment: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is slower, and comes to the same schedule: the check that it makes is given the time."""

    def noted(case: object, **given: object) -> None:
        raise ConfigError(f"for {given['witness_seconds']} seconds")

    monkeypatch.setattr("xccl_emu.cli.check_job.check", noted)
    monkeypatch.delenv("XCCL_EMU_WITHOUT_NUMBA", raising=False)
    if environment:
        monkeypatch.setenv("XCCL_EMU_WITHOUT_NUMBA", environment)
    assert f"for {seconds} seconds" in refusal("check", "sendrecv")
