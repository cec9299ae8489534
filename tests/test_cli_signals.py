"""SIGTERM and Ctrl-C end every command, also where Python's own handlers cannot run."""

import os
import signal
from pathlib import Path

import pytest

from tests.cli_support import interrupted, python

ENVIRONMENT = {**os.environ, "NUMBA_DISABLE_JIT": "0", "XCCL_EMU_PLAIN_FIRST": "0"}
MOST_S = 20
"""On a busy machine; the grace of three seconds is most of it."""
ENDS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]

LONG = """
from xccl_emu.lang import kernel, quiet
from xccl_emu.machine import small_pod
from xccl_emu.protocol import Bench, protocol

@kernel
def turns(n):
    total = 0
    for _ in range(1 << 30):
        for i in range(n):
            total = total * 3 + i
        yield quiet()
    return total

@protocol
def long(bench: Bench, n: int = 1 << 21) -> None:
    print("begun", flush=True)
    bench.pod(small_pod(1, 1)).launch(turns, 0, [0], {"n": n}, [])
"""


def slow(*words: str) -> object:
    """A command for the slow tests."""
    return pytest.param(words, marks=pytest.mark.slow)


@pytest.mark.parametrize(("sent", "code", "says"), ENDS)
@pytest.mark.parametrize(
    "words", [("run",), slow("check"), slow("check", "--policy", "late"), slow("bench"), slow("fuzz", "--workers", "1"),
              slow("fuzz", "--workers", "2")],
)  # fmt: skip
def test_a_signal_ends_what_is_inside_compiled_code(
    words: tuple[str, ...], sent: int, code: int, says: str, tmp_path: Path
) -> None:
    """A run that would take hours ends within seconds, with its processes, by its code and without a traceback."""
    (tmp_path / "long.py").write_text(LONG)
    name, *others = words
    command = ["-m", "xccl_emu", name, f"{tmp_path}/long.py:long", *others]
    ended, errors, seconds = interrupted(command, 3, "begun\n", sent, env=ENVIRONMENT)
    assert (ended, seconds < MOST_S) == (code, True), errors
    assert "Traceback" not in errors
    assert errors.splitlines()[-1:] == [f"xccl-emu: {says}"] or name == "fuzz"


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code", "says"), ENDS)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_signal_ends_a_campaign(workers: str, sent: int, code: int, says: str) -> None:
    """In this process or in others, within seconds."""
    command = ["-m", "xccl_emu", "campaign", "--programs", "1000000", "--workers", workers]
    ended, errors, seconds = interrupted(command, 8, None, sent, env=ENVIRONMENT)
    assert (ended, seconds < MOST_S) == (code, True), errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(("sent", "code", "says"), ENDS)
def test_a_signal_that_no_handler_can_answer(sent: int, code: int, says: str) -> None:
    """Waiting in C for ever, the process ends; what it has printed is not lost."""
    done = python(COMMAND.format(does=HANGS, sent=sent))
    assert (done.returncode, done.stdout, done.stderr) == (code, "so far\n", f"xccl-emu: {says}\n")


@pytest.mark.parametrize(("sent", "code", "says"), ENDS)
def test_a_handler_that_has_answered_is_given_its_time(sent: int, code: int, says: str) -> None:
    """Cleaning up may take longer than it may take to answer."""
    done = python(COMMAND.format(does=CLEANS, sent=sent))
    assert (done.returncode, done.stdout, done.stderr) == (code, "so far\nclean\n", f"xccl-emu: {says}\n")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_handler_of_somebody_else_is_left_alone(sent: int) -> None:
    """A library that handles the signal itself decides what becomes of it."""
    done = python(COMMAND.format(does=THEIRS, sent=sent))
    assert (done.returncode, done.stdout, done.stderr) == (0, "so far\ntheirs\n", "")


COMMAND = """
import ctypes, os, signal, threading, time
from xccl_emu.cli import ending
ending._GRACE_S = 0.2
SENT = {sent:d}
def hang():
    lock, take = ctypes.create_string_buffer(64), ctypes.CDLL(None).pthread_mutex_lock
    take(lock)
    threading.Timer(0.1, os.kill, (os.getpid(), SENT)).start()
    take(lock)
def command():
    print("so far")
    {does}
ending.run_to_end(command)
"""
HANGS = "hang()"
CLEANS = """
    try:
        os.kill(os.getpid(), SENT)
        time.sleep(5)
    finally:
        time.sleep(0.8)
        print("clean")
"""
THEIRS = """
    signal.signal(SENT, lambda *_: print("theirs"))
    os.kill(os.getpid(), SENT)
    time.sleep(0.8)
"""
