"""Command lines that make no sense: each ends with a code of its own and a message, none with a traceback."""

import random
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.hostile_support import WithoutEnd, each_kind_once, limited
from xccl_emu.cli.main import app

CODES = {0, 1, 2, 3, 5}
"""What a command may end with, if nobody interrupts it."""

TEXTS = (
    "0", "1", "2", "-1", "3", "7", "48", "1.5", "nan", "inf", "1e9", "", " ", "a", "relaxed", "dma", "é", "\udcff",
    "x" * 300, "9223372036854775807", "9223372036854775808", "-9223372036854775809", str(10**40), "1,2", "0:0", "--",
    "-", "--json", "NaN", "0x10", "1_0", "٣", "1K", "/dev/full", "/dev/null", "/nonexistent/a", "/", ".",
    "/proc/version", "a\nb", "[red]", "cores=1", "=", "ep=2", "stop:die1",
)  # fmt: skip

RIGHT: Sequence[Sequence[str]] = [
    shlex.split(line)
    for line in (
        "check sendrecv --slots 1 --chunks 1 --granules 1 --seconds 0.2 --schedules 2",
        "check sendrecv --slots 1 --chunks 1 --granules 1 --policy pct --schedules 2 --seed 1 --order fifo "
        "--out w.json --without 'tail in' --chart c.mmd",
        "check dispatch --tokens 1 --granules 1 --rounds 1 --top-k 1 --ranks 2 --states 20 --seconds 0.2 --schedules 1 "
        "--set experts=1",
        "check --replay w.json",
        "explain flags.npz --layout deepep-ll",
        "run sendrecv --nbytes 100 --cores 1 --slots 2 --path mtu --source 1 --target 2 --rounds 1 --seed 3 --order sc "
        "--policy random",
        "run dispatch --ranks 2 --tokens 1 --hidden 32 --cores 1 --top-k 1 --rounds 1 --redundant 0 "
        "--redundant-slots 0 --seed 0 --dtype bf16 --quantizer xccl",
        "run fused --ranks 2 --tokens 1 --hidden 32 --cores 1 --top-k 1 --path aiv",
        "run a2e --domains 1 --attention 1 --experts 2 --tokens 1 --calls 1 --hidden 32 --top-k 1 --depth 1 --cores 1",
        "trace sendrecv --out t.json --set slots=1 --set chunks=1 --dies 0,1 --fabric cloudmatrix384 --place packed "
        "--events 50",
        "bench buffers --csv b.csv",
        "bench sendrecv -b 1K -e 1K -f 2 -n 1 -w 0 --cores 2 --to node --slots 2 --no-data",
        "bench dispatch --ranks 2 --batches 1 --cores 1 --no-data --seed 0",
        "bench dispatch --sweep ep=2:x batch=1 --cores 1",
        "compare --ranks 2 --attention 1 --tokens 1 --hidden 32 --top-k 1 --cores 1",
        "plan --model Qwen3-235B-A22B --cluster H20 --rate 2 --batch 4 --input 8 --output 8 --context 64 --by itl "
        "--strategy 'TP=8 + DP=2, EP=16' --top 2 --literal --correct 8 --sync --drop --json",
        "plan --published --literal --correct 7 --rate 8 --json",
        "campaign --programs 1 --workers 1 --seconds 1 --orders sc --shrink 0 --first 2",
    )
]
"""Command lines that are right, and small."""

SHARED = ("sendrecv", "buffers", "--replay")
QUICK = [words for words in RIGHT if words[0] == "plan" or (words[1] in SHARED and "-b" not in words)]
"""Commands that share what they compile with many other tests, or compile nothing."""


def hostile(rng: random.Random, among: Sequence[tuple[str, ...]] = RIGHT) -> list[str]:
    """A right command line with one to three words replaced, dropped or put in."""
    words = list(rng.choice(among))
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(1, len(words) + 1)
        kind = rng.random()
        if place == len(words) or kind < 0.1:
            words.insert(place, rng.choice(TEXTS))
        elif kind < 0.2:
            del words[place]
        elif words[place].startswith("--"):
            words[place] += rng.choice(("", "x", "="))
        else:
            words[place] = rng.choice(TEXTS)
    return words


def assault(calls: int, seed: int, among: Sequence[tuple[str, ...]] = RIGHT) -> list[str]:
    """So many command lines; those that ended in a traceback, not at all, or with a code that nothing says."""
    rng = random.Random(seed)
    for words in among:  # as it is right, so that compiling is not in the time that a command may take
        CliRunner().invoke(app, words)
    lines = [hostile(rng, among) for _ in range(calls)]
    ends = [(wrong, words) for words in lines if (wrong := what_is_wrong(words))]
    return each_kind_once((wrong[:40], f"xccl-emu {words!r}: {wrong}") for wrong, words in ends)


def what_is_wrong(words: list[str]) -> str:
    """With the end of a command, nothing if it is as it should be."""
    try:
        with limited("this command"):
            done = CliRunner().invoke(app, words)
    except WithoutEnd as error:
        return str(error)
    raised = done.exception
    if raised is not None and not isinstance(raised, SystemExit):
        return f"{type(raised).__name__}: {raised}"
    if done.exit_code not in CODES:
        return f"ends with {done.exit_code}"
    return "says nothing" if done.exit_code in (2, 3) and not done.stderr + done.stdout else ""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_some_hostile_command_lines() -> None:
    """A hundred command lines, wrong in one to three words: a code and a message each."""
    assert assault(100, seed=1, among=QUICK) == []


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10, 20))
def test_two_thousand_hostile_command_lines(seed: int) -> None:
    """Two thousand in all: no traceback, and each comes to an end."""
    assert assault(200, seed) == []
