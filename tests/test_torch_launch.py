"""The command of the torch door: exit codes and a last line by what was counted, Ctrl-C, and the end of the server."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli_support import hear_interrupts
from tests.test_torch import processes_of

ROOT = Path(__file__).parents[1]
BEGIN = """
import os, signal, sys, threading, time
import numpy as np
from xccl_emu.base.errors import XcclEmuError
from xccl_emu.doors.torch.client import Rank

SHAPE = {"hidden": 32, "top_k": 1, "tokens_max": 2, "local_experts": 1, "quantized": False, "dtype": "fp16"}
SENT = {"x": np.zeros((1, 32), np.float16), "topk": np.zeros((1, 1), np.int32)}
BACK = {"topk": SENT["topk"], "weights": np.ones((1, 1), np.float32)}

def layer(rank):
    said, got = rank.call("dispatch", SENT, shape=SHAPE)
    rank.call("combine", {**BACK, "y": got["x"].copy()}, handle=said["handle"])

def caught(rank):
    try:
        layer(rank)
    except XcclEmuError:
        pass

def sent(rank):
    rank.call("dispatch_send", SENT, shape=SHAPE)

def on_and_on(rank):
    layer(rank)
    open("called", "w").close()
    while True: layer(rank)

def both(call):
    ranks = [Rank("script", number, 2) for number in range(2)]
    threads = [threading.Thread(target=call, args=(rank,)) for rank in ranks]
    for each in threads: each.start()
    for each in threads: each.join()

def is_server(number):
    try:
        with open(f"/proc/{number}/cmdline", "rb") as words:
            return b"torch.server" in words.read() and os.readlink(f"/proc/{number}/cwd") == os.getcwd()
    except OSError:
        return False

def stopping(rank):
    layer(rank)
    if rank.rank:
        os.kill(int(next(filter(is_server, filter(str.isdecimal, os.listdir("/proc"))))), signal.SIGKILL)
    time.sleep(3)

def waiting():
    print("waiting", flush=True)
    time.sleep(60)

"""


@contextmanager
def started(folder: Path, script: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    (folder / "script.py").write_text(BEGIN + script)
    command = [sys.executable, "-m", "xccl_emu.doors.torch", "--cores", "1", "--witnesses", str(folder / "found")]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "WHO": str(folder)}
    with subprocess.Popen(
        [*command, *options, "script.py"], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, preexec_fn=hear_interrupts,
    ) as launcher:  # fmt: skip
        yield launcher


def ran(folder: Path, script: str, *options: str) -> tuple[int, str]:
    """Exit code, and what the command says last."""
    with started(folder, script, *options) as launcher:
        said = launcher.communicate(timeout=300)[1]
        return launcher.returncode, said


@pytest.mark.parametrize(("script", "code", "last"), [
    ("both(layer)", 0, "2 calls, 0 violations, 0 unreceived"),
    ("both(sent)", 1, "1 calls, 0 violations, 1 unreceived"),
    ("both(layer); sys.exit(5)", 5, "2 calls, 0 violations, 0 unreceived"),
    ("", 0, "0 calls, 0 violations, 0 unreceived"),
])  # fmt: skip
def test_what_was_counted(tmp_path: Path, script: str, code: int, last: str) -> None:
    """The last line says it, and a call that is never received is an error though the script ends with 0."""
    found, said = ran(tmp_path, script)
    assert found == code, said
    assert said.splitlines()[-1] == f"xccl_emu: {last}"


def test_a_script_that_calls_nothing(tmp_path: Path) -> None:
    """Where schedules were to be drawn, nothing was judged, which is no success."""
    found, said = ran(tmp_path, "", "--policy", "portfolio")
    assert found == 1
    assert "xccl_emu: 0 calls, 0 schedules drawn, 0 violations" in said


@pytest.mark.slow
def test_a_violation_that_the_script_catches(tmp_path: Path) -> None:
    """It counts."""
    found, said = ran(tmp_path, "both(caught)", "--without", "tokens before counts", "--schedules", "24")
    assert found == 1
    assert "1 violations" in said.splitlines()[-1]


def test_the_end_of_the_server(tmp_path: Path) -> None:
    """It is said, with its signal."""
    found, said = ran(tmp_path, "both(stopping)")
    assert found == 70, said
    assert "xccl_emu: the server ended by SIGKILL (this computer's memory may be full)" in said


def test_an_interrupt_reaches_the_script(tmp_path: Path) -> None:
    """Its traceback says where it was, and nothing is left."""
    with started(tmp_path, "waiting()") as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "waiting\n"
        os.kill(launcher.pid, signal.SIGINT)
        said = launcher.communicate(timeout=60)[1]
    assert launcher.returncode == 130
    assert "in waiting" in said
    assert "KeyboardInterrupt" in said
    assert processes_of(tmp_path) == []
