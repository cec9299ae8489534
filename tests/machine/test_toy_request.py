"""A request that is new takes six files at most: one is added to a copy of the package, run, checked and removed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ADDED = (
    # what everybody must know of it
    ("lang/requests.py", '    Operation(\n        "poll", SCALAR,',
     '    Operation.atomic("exchange", "address value", says="{value}"),\n'),
    ("lang/requests.py", "OP_POLL, OP_QUIET,", "OP_EXCHANGE, "),
    ("lang/requests.py", "def poll_eq(",
     'def exchange(address: int, value: int, step: int = 0, sync: str = "", order: str = "") -> Request:\n'
     '    """Make the aligned 8-byte word ``value`` at its home memory and return the old one; blocks the core."""\n'
     "    return (OP_EXCHANGE, address, value, 0, 0, 0, 0)\n\n\n"),
    # what it does
    ("machine/device/scalar.py", "    elif old == st[base + REQUEST + ops.COMPARE_SWAP.expected]:",
     "    elif op == rq.OP_EXCHANGE:\n        words.store_i64(mem, address, value)\n"),
    # random programs and the smallest ones draw it
    ("guards/campaign/interpreter.py", '}\n"""What each instruction of a program does,',
     '    "exchange": "last = yield lang.exchange(word, b, sync=\'exchange\')",\n'),
    ("guards/campaign/interpreter.py", '    "swap 0.0 0 2",\n', '    "exchange 0.0 1",\n'),
)  # fmt: skip
"""File of the package, text, and what comes before that."""
MADE = "lang/foreign/xccl_requests.h", "docs/records/requests.md"
"""Tools write them."""

TRIED = '''
from io import StringIO

from rich.console import Console

from xccl_emu.check.check import check
from xccl_emu.check.witness.render import print_witness
from xccl_emu.guards.campaign.run import CampaignPlan, judge_all
from xccl_emu.guards.campaign.interpreter import ALPHABET
from xccl_emu.guards.campaign.smallest import BY_HAND
from xccl_emu.lang import exchange, kernel, put
from xccl_emu.lang.foreign import header
from xccl_emu.machine import small_pod
from xccl_emu.machine.pod import Buffer
from xccl_emu.protocol import Bench, protocol


@kernel
def hand_on(word, seen, mine):
    """Put what was there into a place of the core's own."""
    old = yield exchange(word, mine, sync="exchange")
    yield put(seen, old)


@protocol
def handed(bench: Bench, wrong: int = 0) -> None:
    """Two dies exchange: the second has what the first brought, and nothing is lost."""
    pod = bench.pod(small_pod(2, app_bytes=32, meta_bytes=64, managed_bytes=0, ub_bytes=32))
    for die in range(2):
        places = {"word": pod.meta(0), "seen": pod.meta(die, 32), "mine": die + 1}
        pod.launch(hand_on, die, [0], places, [pod.grant_meta("rw", 0), pod.grant_meta("rw", die)])
    places = [Buffer(0, pod.meta(0), 8), Buffer(0, pod.meta(0, 32), 8), Buffer(1, pod.meta(1, 32), 8)]
    total = 2 if wrong else 3
    bench.judged_by(lambda *words: sum(word[0] for word in words) == total, *places, name="sum", owners="drained")


for order in ("sc", "fifo", "relaxed", "unordered"):
    print(order, check(handed(), order=order).verdict)
wrong = check(handed(wrong=1))
out = StringIO()
print_witness(Console(file=out, width=120), handed(wrong=1).build("relaxed"), wrong.violation)
print(wrong.verdict, "exchange 1" in out.getvalue(), "exchange 2" in out.getvalue())
n, new = len(ALPHABET), ALPHABET.index("exchange 0.0 1")
others = [ALPHABET.index(each) for each in ("put 0.0 1", "store 0.0 1", "swap 0.0 0 2", "ge 0.0 1", "exchange 0.0 1")]
for cores in range(2):
    for other in others:
        first = len(BY_HAND) + cores * n * n + new * n + other
        summary = judge_all(CampaignPlan(1, first=first, ends=True, enumerated=True))
        print(cores, ALPHABET[other], dict(summary.wrong), summary.share)
header.FILE.write_text(header.text())
'''


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package that has the request."""
    folder = tmp_path_factory.mktemp("toy")
    shutil.copytree(ROOT / "xccl_emu", folder / "xccl_emu", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text, new in ADDED:
        path = folder / "xccl_emu" / name
        assert path.read_text("utf-8").count(text) == 1, (name, text)
        path.write_text(path.read_text("utf-8").replace(text, new + text), "utf-8")
    return folder


def test_it_takes_six_files() -> None:
    """One row and a function, what the machine does, one of the campaign, two that are made, and its litmus test."""
    assert len({name for name, _, _ in ADDED} | {*MADE, "its litmus test"}) <= 6


@pytest.mark.slow
def test_all_judges_know_it(package: Path) -> None:
    """It is run and judged in each order, refuted where it should be, and its pairs keep their ends; C can ask it."""
    script = package / "tried.py"
    script.write_text(TRIED, "utf-8")
    environ = {**os.environ, "PYTHONPATH": str(package), "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, str(script)], env=environ, cwd=package, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:4] == [f"{order} verified" for order in ("sc", "fifo", "relaxed", "unordered")]
    assert lines[4] == "violation True True"
    pairs = lines[5:]
    assert len(pairs) == 10
    assert all("{}" in line for line in pairs)
    assert "xccl_exchange(" in (package / "xccl_emu" / MADE[0]).read_text("utf-8")
