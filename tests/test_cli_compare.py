"""``xccl-emu compare`` and the page that holds what it prints."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from tests.cli_support import as_json, invoke

SMALL = ("compare", "--ranks", "4", "--attention", "3", "--tokens", "3", "--hidden", "32", "--top-k", "2")


@pytest.fixture(scope="module")
def small() -> dict[str, Any]:
    """A small comparison."""
    return as_json(*SMALL)


@pytest.fixture
def tool(load_tool: Callable[[str], ModuleType]) -> ModuleType:
    """The script that writes the page."""
    return load_tool("protocols")


def line(comparison: dict[str, Any], protocol: str, part: str) -> dict[str, Any]:
    """One line of a comparison."""
    found: dict[str, Any] = next(x for x in comparison["results"] if (x["protocol"], x["part"]) == (protocol, part))
    return found


def test_every_protocol_brings_the_oracles_rows_and_outputs(small: dict[str, Any]) -> None:
    """No element of any protocol is wrong."""
    assert small["wrong"] == 0


def test_pull_writes_flags_alone(small: dict[str, Any]) -> None:
    """Each of 4 ranks tells 3 others its counts, and 3 that it has read, once on the way there and once back."""
    for part, times in (("dispatch", 1), ("combine", 1), ("both", 2)):
        found = line(small, "pull", part)
        assert found["writes"] == [0, 0]
        assert found["flags"] == [6 * times, 6 * times]
        assert found["write_bytes"] == [6 * 32 * times] * 2
        assert found["dies_written"] == [3, 3]


def test_what_one_reads_by_pull_another_writes_when_fused(small: dict[str, Any]) -> None:
    """The same messages and rows cross between dies, so all dies together move as many bytes but for the flags."""
    for part, per_rank in (("dispatch", 3 * 32), ("combine", None)):
        pull, fused = line(small, "pull", part), line(small, "fused", part)
        flags = fused["flags"][0] * 8 if per_rank is None else per_rank
        assert pull["read_bytes"][0] == fused["write_bytes"][0] - flags
        assert fused["reads"] == [0, 0]


def test_fused_tells_every_peer_and_adds_once_a_row(small: dict[str, Any]) -> None:
    """Dispatch puts a field at each of 3 peers; combine adds one to an arrival for each row that it writes there."""
    assert line(small, "fused", "dispatch")["flags"] == [3, 3]
    combine = line(small, "fused", "combine")
    assert combine["flags"] == combine["writes"]


def test_deepep_adds_once_for_each_expert_and_peer(small: dict[str, Any]) -> None:
    """There and back a rank writes what the fused one does, and adds once for each of its peers' or its own experts."""
    for part in ("dispatch", "combine"):
        deepep, fused = line(small, "deepep", part), line(small, "fused", part)
        assert deepep["writes"] == fused["writes"]
        assert deepep["flags"] == [3, 3]
        assert deepep["reads"] == [0, 0]


def test_attention_dies_talk_to_one_trampoline(small: dict[str, Any]) -> None:
    """An attention die writes its 3 tokens to one die and announces them; pulling, it tells and thanks all 4."""
    attention = line(small, "a2e", "attention die")
    assert (attention["writes"], attention["flags"], attention["dies_written"]) == ([3, 3], [1, 1], [1, 1])
    pull = line(small, "a2e-pull", "attention die")
    assert (pull["writes"], pull["flags"], pull["dies_written"]) == ([0, 0], [8, 8], [4, 4])


def test_the_page_prints_what_the_command_prints(tool: ModuleType) -> None:
    """The first table of the page is what its command prints today."""
    arguments, table = next(tool.parts(tool.PAGE.read_text(encoding="utf-8")))
    assert invoke(*arguments)[:2] == (0, table)


@pytest.mark.slow
def test_the_page_prints_what_the_command_prints_at_full_size(tool: ModuleType) -> None:
    """So is the second one, of the large deployments."""
    _, (arguments, table) = tool.parts(tool.PAGE.read_text(encoding="utf-8"))
    assert tool.printed(arguments) == table


def test_both_tables_have_every_protocol(tool: ModuleType, small: dict[str, Any]) -> None:
    """Neither table of the page lacks a line."""
    lines = [[found["protocol"], found["part"]] for found in small["results"]]
    for _, table in tool.parts(tool.PAGE.read_text(encoding="utf-8")):
        assert [[cell.strip() for cell in row.split("|")[1:3]] for row in table.splitlines()[2:]] == lines


@pytest.mark.parametrize("command", ["compare sendrecv", "trace sendrecv --out /dev/null"])
def test_a_terminal_sees_that_something_is_under_way(command: str) -> None:
    """From the start: a spinner on stderr, where that is a terminal."""
    ours, theirs = os.openpty()
    line = [sys.executable, "-m", "xccl_emu", *command.split()]
    environ = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=theirs, env=environ) as process:
        os.close(theirs)
        told = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while part := os.read(ours, 1 << 16):
                told += part
    os.close(ours)
    assert process.returncode == 0
    assert command.split()[0].encode() in told
    assert b"0:00:0" in told
