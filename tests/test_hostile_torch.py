"""Calls of a server of the torch door that make no sense: each is answered by a typed error, and the server goes on."""

import math
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
from tests.torch_server_support import NORMAL, SHAPE, Here, served, together
from xccl_emu.base.errors import XcclEmuError
from xccl_emu.doors.torch.client import Rank
from xccl_emu.doors.torch.gate import BARE, BEGIN, SERVED, Row
from xccl_emu.doors.torch.wire import Line

FUSED = SHAPE | {"quantizer": "cann"}
SHAPES: dict[str, dict[str, Any]] = {
    "dispatch": SHAPE, "dispatch_send": SHAPE, "dispatch_rows": NORMAL, "dispatch_fused": FUSED, "gather": {},
    "transfer": {},
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


NAMES = (*{row.name: None for form in SERVED.values() for row in form.rows}, "z")
Asked = list[tuple[dict[str, Any], dict[str, Any]]]


def drawn_shape(rng: random.Random, call: str) -> dict[str, Any]:
    """Sizes that a call may say; tokens of dispatches are bytes, as faces that are given scales have them, or not."""
    if not SHAPES[call]:
        return {"nbytes": 32 * rng.choice([1, 2, 33, 1100])}
    drawn = {"top_k": rng.choice([1, 2]), "local_experts": rng.choice([1, 2]), "opaque_bytes": rng.choice([0, 96])}
    if call == "dispatch_fused":
        del drawn["opaque_bytes"]
    elif call != "dispatch_rows":
        drawn["repeats"] = rng.random() < 0.3
    return SHAPES[call] | drawn


def array_of(row: Row, sizes: dict[str, Any], values: np.random.Generator) -> Any:
    """Any bits in an array as its row has it; choices are experts, or -1."""
    if row.name in sizes:  # which are said again
        return sizes[row.name]
    shape = [int(sizes[name]) for name in row.shape]
    if row.name == "topk":
        experts = np.tile(np.arange(-1, 2 * sizes["local_experts"], dtype=np.int32), (shape[0], 1))
        chosen = values.permuted(experts, axis=1)[:, : shape[1]]
        return np.repeat(chosen[:, :1], shape[1], axis=1) if sizes.get("repeats") else chosen
    dtype = np.dtype(sizes.get(row.dtypes, row.dtypes))
    return values.integers(0, 256, math.prod(shape) * dtype.itemsize, np.uint8).view(dtype).reshape(shape)


def mode(call: str) -> str:
    """What a combine has in common with dispatches that it may be of."""
    return next((each for each in ("rows", "fused") if call.endswith(each)), "")


def right_call(rng: random.Random, rank: int, made: dict[int, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a rank says and gives in a call that is right, if the dispatch that it is of is held yet.

    made: by handle the sizes of each rank's dispatch.
    """
    number, of_made = rng.getrandbits(32), made and rng.random() < 0.3
    call = rng.choice([call for call in SERVED if not of_made or call not in (*BEGIN, *BARE)])
    said: dict[str, Any] = {"call": call}
    values = np.random.default_rng([number, rank])
    sizes: dict[str, Any] = {"n": 2, "tokens": int(values.integers(3)), "rows": 1, "row_dtype": "bfloat16"}
    sizes["biases"] = int(values.integers(4))
    if call in BEGIN:
        said["shape"] = drawn_shape(rng, call)
        nbytes = said["shape"].get("opaque_bytes")
        columns, dtype = (nbytes, "uint8") if nbytes else (SHAPE["hidden"], "bfloat16")
        sizes |= said["shape"] | {"columns": columns, "token_dtype": dtype}
    elif call not in BARE:
        alike = [handle for handle, of in made.items() if mode(of[0]["call"]) == mode(call)]
        said["handle"] = rng.choice((alike or [*made] or [1])[-2:] if rng.random() < 0.8 else [*made, 1, 7])
        sizes |= made.get(said["handle"], [SHAPE, SHAPE])[rank]
    rows = [row for row in SERVED[call].rows if not row.optional or rng.random() < 0.5]
    if call == "transfer":
        rows = [*SERVED[call].rows][rank:]
    return said, {row.name: array_of(row, sizes, values) for row in rows}


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
            arrays[rng.choice(NAMES)] = array
            if array.dtype == np.int32:
                arrays[name] = array + rng.choice([-7, 1, 100])


class Assault:
    """Calls of two ranks, one after the other; tensors that were sent are received later, on lines of their own."""

    def __init__(self, here: Here, seed: int) -> None:
        self.here, self.rng, self.groups = here, random.Random(seed), 0
        self.ends, self.done = Counter[str](), Counter[str]()
        self.made: dict[int, Any] = {}
        self.begun: list[tuple[list[Rank], Asked]] = []
        self.ranks = self.join()

    def join(self) -> list[Rank]:
        """Two ranks of a new group."""
        self.groups += 1
        return self.here.ranks(f"{self.rng.random()} {self.groups}")

    def leave(self) -> None:
        """Close all lines; what was sent on one is never received."""
        for rank in [*self.ranks, *(rank for ranks, _ in self.begun for rank in ranks)]:
            rank.close()
        self.made, self.begun = {}, []

    def calls(self, count: int) -> Iterator[tuple[str, str]]:
        """For each call its kind of end, and what was wrong with it."""
        gone = 0
        for number in range(count):
            broken = self.ends["gone"] > gone and self.rng.random() < 0.5  # else what the others hear is seen
            if number % 50 == 0 or broken or self.rng.random() < 0.02:
                self.leave()
                self.ranks = self.join()
            gone = self.ends["gone"]
            with limited(f"call {number}"):
                yield self.once()

    def once(self) -> tuple[str, str]:
        """A call, in which both ranks are wrong, or one, or none; now and then one says what is no message."""
        if self.begun and self.rng.random() < 0.2:
            ranks, asked = self.begun.pop(self.rng.randrange(len(self.begun)))
            return self.answers(ranks, asked, [1])
        state, both = self.rng.random(), self.rng.random() < 0.5
        asked = []
        for rank in range(2):
            again = random.Random(state)
            said, arrays = right_call(again, rank, self.made)
            if both or rank == int(state * 1000) % 2:
                for _ in range(again.choice([0, 0, 1, 2])):
                    spoil(again, said, arrays)
            asked.append((said, arrays))
        if asked[0][0]["call"] == "transfer" and self.rng.random() < 0.7:
            return self.begin(asked)
        if self.rng.random() < 0.02:
            with suppress(OSError):  # it is left out since the last one
                self.ranks[0]._line.socket.send(self.rng.choice(JUNK))
        return self.answers(self.ranks, asked, [0, 1])

    def begin(self, asked: Asked) -> tuple[str, str]:
        """The sender alone calls, now and then twice before it is answered, and goes on."""
        ranks = self.join()
        for _ in range(1 + (self.rng.random() < 0.1)):
            self.ask(ranks[0], asked[0])
        self.begun.append((ranks, asked))
        self.ends["begun"] += 2
        return "", ""

    def ask(self, rank: Rank, asked: tuple[dict[str, Any], dict[str, Any]]) -> None:
        """Make a call, and do not wait."""
        with suppress(XcclEmuError):
            rank._line.send(*asked)

    def answers(self, ranks: list[Rank], asked: Asked, late: list[int]) -> tuple[str, str]:
        """Have these ranks call, the others have; what was wrong with the answers of all."""
        for rank in late:
            self.ask(ranks[rank], asked[rank])
        got = [rank._line.receive() for rank in ranks]
        self.ends.update("gone" if answer is None else answer[0].get("error", "done") for answer in got)
        wrong = [answer[0]["text"] for answer in got if answer and "inside the emulator" in answer[0].get("text", "")]
        if not wrong and all(answer and "error" not in answer[0] for answer in got):
            wrong = self.keep(asked, got)
        if ranks is not self.ranks:
            for each in ranks:
                each.close()
        return ("", "") if not wrong else (wrong[0][:80], f"{[said for said, _ in asked]}: {wrong[0]}")

    def keep(self, asked: Asked, got: list[Any]) -> list[str]:
        """Count a call that was made, remember its dispatch; what was wrong with bytes that it moved."""
        call, xs = asked[0][0]["call"], [arrays.get("x") for _, arrays in asked]
        self.done[call] += 1
        moved: dict[str, list[Any]] = {"gather": [xs, xs], "transfer": [None, xs[0]]}
        for wanted, (_, came) in zip(moved.get(call, ()), got, strict=False):
            if wanted is not None and not np.array_equal(came["x"], wanted):
                return [f"{call} brings other bytes"]
        if not call.startswith("dispatch"):
            return []
        sizes = self.made.setdefault(got[0][0]["handle"], [{"call": call}, {"call": call}])
        for of, (said, arrays), (_, came) in zip(sizes, asked, got, strict=True):
            if call in BEGIN:
                of |= said["shape"] | {"topk": arrays["topk"], "tokens": len(arrays["topk"])}
            of["rows"] = len(came.get("x", ()))
        return []


def assault(here: Here, count: int, seed: int) -> tuple[list[str], Assault]:
    """So many calls; what ended wrongly, each kind once, and all that was counted."""
    assert together(here.ranks(f"before {seed}"), right) == [True, True]  # compiles, without a limit
    attack = Assault(here, seed)
    wrong = each_kind_once(attack.calls(count))
    attack.leave()
    assert together(here.ranks(f"after {seed}"), right) == [True, True]
    return wrong, attack


def test_some_hostile_calls_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three hundred calls: no error is one of the emulator itself, and some of them are right, of every kind."""
    with served(monkeypatch) as here:
        wrong, attack = assault(here, 300, seed=1)
    assert wrong == []
    assert attack.ends["done"] > 20
    assert attack.ends["ConfigError"] > 100
    assert {"barrier", "gather", "transfer", "dispatch_rows", "combine_rows"} <= attack.done.keys()
    assert here.counted["failed"] == 0


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10, 20))
def test_twenty_thousand_hostile_calls_of_a_server(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Two thousand in each of ten: all are answered, the server goes on, and no file of it stays open."""
    before = len(os.listdir("/proc/self/fd"))
    with served(monkeypatch) as here:
        wrong, attack = assault(here, 2000, seed)
    print(f"seed {seed}: 2000 calls: {dict(attack.ends)}; right ones: {dict(attack.done)}; {here.counted}")
    assert wrong == []
    assert attack.ends.total() == 4000
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


def reached(folder: Path, stage: int) -> bool:
    """Say whether a script has come as far: it has so many processes, or after three of them has made calls."""
    return len(processes_of(folder)) >= min(stage, 3) and (stage < 4 or (folder / "called").exists())


def signals(folder: Path, count: int, seed: int) -> None:
    """Send so many signals at drawn moments, each to a drawn process of a script that calls on and on."""
    rng, before, ends = random.Random(seed), shared_files(), Counter[str]()
    for _ in range(count):
        (folder / "called").unlink(missing_ok=True)
        with started(folder, "both(on_and_on)") as launcher:
            stage, since = rng.randrange(5), time.monotonic()
            while not reached(folder, stage) and time.monotonic() < since + SECONDS_MAX:
                time.sleep(0.05)
            time.sleep(rng.uniform(0.0, 2.0))
            victim = rng.choice(processes_of(folder) or [launcher.pid])
            sent = rng.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
            with suppress(ProcessLookupError):
                os.kill(victim, sent)
            try:
                launcher.communicate(timeout=10)
            except subprocess.TimeoutExpired:  # a process that goes on, as the server does after Ctrl-C
                launcher.terminate()
                launcher.communicate(timeout=SECONDS_MAX)
            whom = "the launcher" if victim == launcher.pid else "another"
            ends[f"stage {stage}, {sent.name} to {whom}: {launcher.returncode}"] += 1
        assert left_over(folder, before, SECONDS_MAX) == ([], set())
    print(f"seed {seed}: {count} signals: {dict(sorted(ends.items()))}")


@pytest.mark.slow
def test_some_signals(tmp_path: Path) -> None:
    """Two, at drawn moments: no process stays, and no file in memory."""
    signals(tmp_path, 2, seed=1)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10, 20))
def test_five_hundred_signals(tmp_path: Path, seed: int) -> None:
    """Fifty in each of ten."""
    signals(tmp_path, 50, seed)
