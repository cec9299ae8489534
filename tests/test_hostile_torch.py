"""Calls of a server of the torch door that make no sense: each is answered by a typed error, and the server goes on."""

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.hostile_support import NUMBERS, SECONDS_MAX, each_kind_once, limited
from tests.test_torch import left_over, processes_of, shared_files
from tests.test_torch_gate import right
from tests.test_torch_launch import started
from tests.torch_server_support import NORMAL, SHAPE, Here, served, together, tokens, weighted
from xccl_emu.base.errors import XcclEmuError
from xccl_emu.doors.torch.client import Rank
from xccl_emu.doors.torch.gate import SERVED
from xccl_emu.doors.torch.wire import Line

FUSED = SHAPE | {"quantizer": "cann"}
BYTES = {"nbytes": 64}
SHAPES: dict[str, dict[str, Any]] = {
    "dispatch": SHAPE, "dispatch_send": SHAPE, "dispatch_rows": NORMAL, "dispatch_fused": FUSED, "gather": BYTES,
    "transfer": BYTES,
}  # fmt: skip
SAID = [
    None, "", "x", [], [0], [7], {}, {"hidden": 32}, "\ud800",
    *(number for number in NUMBERS if type(number) in (int, float, bool) and abs(number) < 1 << 60),
]  # fmt: skip
"""What replaces something that a call says."""
DTYPES = ("float64", "float32", "int8", "int64", "bfloat16", "uint8", "complex64", "float16", "int32", "bool")
JUNK = (
    b"junk", b"{}", b"[]", b'{"arrays": 3}', b'{"arrays": [["x", "O", [1], 0]]}',
    b'{"arrays": [["x", "int8", [-1], 0]]}',
)  # fmt: skip
"""Messages that are none."""


def right_call(rng: random.Random, rank: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a rank says and gives in a call that may be right, if what goes before it is."""
    call = rng.choice([*SERVED])
    said: dict[str, Any] = {"call": call}
    if call in SHAPES:
        said["shape"] = dict(SHAPES[call])
    elif call not in ("clean", "agree", "barrier"):
        said["handle"] = rng.randint(1, 6)
    twice = call in ("dispatch", "dispatch_send") and rng.random() < 0.3
    have = {**tokens(rank), **weighted(tokens(rank)["x"], tokens(rank)["topk"])}
    have |= {"numbers": np.zeros(2, np.int64), "stats": np.zeros(1, np.int32)}
    if twice:  # both choices of a token are the same expert
        said["shape"] |= {"top_k": 2, "repeats": True}
        have["topk"] = np.repeat(have["topk"], 2, axis=1)
    if SHAPES.get(call) is BYTES:
        have["x"] = np.zeros(64, np.uint8)
    rows = [row.name for row in SERVED[call].rows if not row.optional or rng.random() < 0.5]
    if call == "transfer":
        rows = ["x"][rank:]
    return said, {name: have[name] for name in rows}


def spoil(rng: random.Random, said: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Change one thing."""
    kind = rng.random()
    if kind < 0.15:
        name = rng.choice(["handle", "shape", "masked", "waits", "replicas", "dtype", "call", "other"])
        said[name] = rng.choice(SAID)
    elif kind < 0.35 and isinstance(said.get("shape"), dict):
        name = rng.choice([*said["shape"], "opaque_bytes", "repeats", "n_ranks"])
        said["shape"][name] = rng.choice(SAID)
    elif arrays:
        name = rng.choice([*arrays])
        change = rng.randrange(5)
        array = arrays.pop(name)
        if change == 0:
            arrays[name] = array[..., :-1]
        elif change == 1:
            arrays[name] = array[:-1]
        elif change == 2:
            arrays[name] = np.zeros(array.shape, rng.choice(DTYPES))
        elif change == 3:
            arrays[rng.choice(["x", "y", "topk", "z"])] = array
            if array.dtype == np.int32:
                arrays[name] = array + rng.choice([-7, 1, 100])


class Assault:
    """Calls of two ranks, one after the other."""

    def __init__(self, here: Here, seed: int) -> None:
        self.here, self.rng, self.groups = here, random.Random(seed), 0
        self.ends: Counter[str] = Counter()
        self.ranks = self.join()

    def join(self) -> list[Rank]:
        """Two ranks of a new group."""
        self.groups += 1
        return self.here.ranks(f"{self.rng.random()} {self.groups}")

    def calls(self, count: int) -> Iterator[tuple[str, str]]:
        """For each call its kind of end, and what was wrong with it."""
        gone = 0
        for number in range(count):
            broken = self.ends["gone"] > gone and self.rng.random() < 0.5  # else what the others hear is seen
            if number % 50 == 0 or broken or self.rng.random() < 0.02:
                for rank in self.ranks:
                    rank.close()
                self.ranks = self.join()
            gone = self.ends["gone"]
            with limited(f"call {number}"):
                yield self.once()

    def once(self) -> tuple[str, str]:
        """A call, in which both ranks are wrong, or one, or none; now and then one says what is no message."""
        state, both = self.rng.random(), self.rng.random() < 0.5
        asked = []
        for rank in range(2):
            again = random.Random(state)
            said, arrays = right_call(again, rank)
            if both or rank == int(state * 1000) % 2:
                for _ in range(again.randrange(3)):
                    spoil(again, said, arrays)
            asked.append((said, arrays))
        if self.rng.random() < 0.02:
            with suppress(OSError):  # it is left out since the last one
                self.ranks[0]._line.socket.send(self.rng.choice(JUNK))
        for rank, (said, arrays) in zip(self.ranks, asked, strict=True):
            with suppress(XcclEmuError):
                rank._line.send(said, arrays)
        return self.answers(asked)

    def answers(self, asked: list[Any]) -> tuple[str, str]:
        """What was wrong with the answers of the ranks, and whether the next call is right."""
        for rank in self.ranks:
            answer = rank._line.receive()
            kind = "gone" if answer is None else answer[0].get("error", "done")
            self.ends[kind] += 1
            if answer is not None and "inside the emulator" in answer[0].get("text", ""):
                text = answer[0]["text"]
                return text[:80], f"{[said for said, _ in asked]}: {text}"
        return "", ""


def assault(here: Here, count: int, seed: int) -> tuple[list[str], Counter[str]]:
    """So many calls; what ended wrongly, each kind once, and how many ended how."""
    attack = Assault(here, seed)
    wrong = each_kind_once(attack.calls(count))
    for rank in attack.ranks:
        rank.close()
    assert together(here.ranks(f"after {seed}"), right) == [True, True]
    return wrong, attack.ends


def test_some_hostile_calls_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three hundred calls: no error is one of the emulator itself, and some of them are right."""
    with served(monkeypatch) as here:
        wrong, ends = assault(here, 300, seed=1)
    assert wrong == []
    assert ends["done"] > 20
    assert ends["ConfigError"] > 100
    assert here.counted["failed"] == 0


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10, 20))
def test_twenty_thousand_hostile_calls_of_a_server(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Two thousand in each of ten: all are answered, the server goes on, and no file of it stays open."""
    before = len(os.listdir("/proc/self/fd"))
    with served(monkeypatch) as here:
        wrong, ends = assault(here, 2000, seed)
    print(f"seed {seed}: 2000 calls, {ends.total()} answers: {dict(ends)}; {here.counted}")
    assert wrong == []
    assert ends.total() == 4000
    assert here.counted["failed"] == 0
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_line_that_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that asks on and on, and does not listen, is left out; others are served."""
    with served(monkeypatch) as here, closing(here.ranks("deaf")[0]._line) as deaf:
        assert isinstance(deaf, Line)
        for _ in range(3000):
            with suppress(XcclEmuError):
                deaf.send({"call": "clean", "masked": [1]})
        assert together(here.ranks("others"), right) == [True, True]


def signals(folder: Path, count: int, seed: int) -> None:
    """Send so many signals at drawn moments, each to a drawn process of a script that calls on and on."""
    rng, before, ends = random.Random(seed), shared_files(), Counter[str]()
    for _ in range(count):
        with started(folder, "both(lambda rank: [layer(rank) for _ in range(1 << 30)])") as launcher:
            time.sleep(rng.uniform(0.0, 8.0))
            victim = rng.choice(processes_of(folder) or [launcher.pid])
            sent = rng.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
            with suppress(ProcessLookupError):
                os.kill(victim, sent)
            try:
                launcher.communicate(timeout=10)
            except subprocess.TimeoutExpired:  # a process that goes on, as the server does after Ctrl-C
                launcher.terminate()
                launcher.communicate(timeout=SECONDS_MAX)
            ends[f"{sent.name} to {'launcher' if victim == launcher.pid else 'another'}: {launcher.returncode}"] += 1
        assert left_over(folder, before, SECONDS_MAX) == ([], set())
    print(f"seed {seed}: {count} signals: {dict(ends)}")


@pytest.mark.slow
def test_some_signals(tmp_path: Path) -> None:
    """Two, at drawn moments: no process stays, and no file in memory."""
    signals(tmp_path, 2, seed=1)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10, 20))
def test_five_hundred_signals(tmp_path: Path, seed: int) -> None:
    """Fifty in each of ten."""
    signals(tmp_path, 50, seed)
