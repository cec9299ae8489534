"""``fuzz --replays``: a call that a captured graph makes again, on other data, with flags as they were left."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from xccl_emu.cli.main import app
from xccl_emu.protocol.registry import known
from xccl_emu.protocol.sequence import Sequence, Stage, replayed

CASE = '''
"""A word through a slot of the other die, with a flag that is set to 1."""

import numpy as np

from xccl_emu.lang import kernel, load, poll_eq, put, quiet, store
from xccl_emu.machine import small_pod
from xccl_emu.protocol import Bench, protocol


@kernel
def give(own, slot, flag):
    """Put the word there, and then set the flag."""
    value = yield load(own)
    yield store(slot, value)
    yield quiet()
    yield put(flag, 1)


@kernel
def take(slot, flag, out, reset):
    """Take the word when the flag is set, and clear that if it is to be ``reset``."""
    yield poll_eq(flag, 1)
    value = yield load(slot)
    yield store(out, value)
    if reset:
        yield put(flag, 0)


def lay_out(bench, seed, reset):
    pod = bench.pod(small_pod(2, app_bytes=64, meta_bytes=64, managed_bytes=0, ub_bytes=32))
    own = bench.filled(0, np.array([seed + 5]), "word")
    out = bench.wanted(1, np.array([seed + 5]), "taken", owners="die1")
    there = {"slot": pod.meta(1, 32), "flag": pod.meta(1)}
    pod.launch(give, 0, [0], {"own": own.address, **there}, [pod.grant(own, "r"), pod.grant_meta("w", 1)])
    grants = [pod.grant_meta("rw", 1), pod.grant(out, "w")]
    pod.launch(take, 1, [0], {**there, "out": out.address, "reset": reset}, grants)


@protocol
def resets(bench: Bench, seed: int = 0) -> None:
    """The kernel clears what it has waited for."""
    lay_out(bench, seed, 1)


@protocol
def relies(bench: Bench, seed: int = 0) -> None:
    """The kernel relies on a flag that is zero when it begins."""
    lay_out(bench, seed, 0)


@protocol
def by_argument(bench: Bench, seed: int = 0) -> None:
    """The host gives the kernel another argument in each call."""
    lay_out(bench, seed, 1 + seed)


@protocol
def seedless(bench: Bench, value: int = 0) -> None:
    """There are no other data."""
    lay_out(bench, value, 1)
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The cases above."""
    path = tmp_path / "word.py"
    path.write_text(CASE)
    return path


def invoke(*words: str) -> tuple[int, str]:
    """Exit code and output of the command, in this process."""
    done = CliRunner().invoke(app, ["fuzz", "--workers", "1", "--examples", "2", *words])
    return done.exit_code, " ".join(done.output.split())


def test_a_kernel_that_clears_its_flag_can_be_replayed(file: Path) -> None:
    """Three replays on other data are right in every schedule."""
    code, out = invoke(f"{file}:resets", "--replays", "3")
    assert (code, "nothing found" in out) == (0, True)


def test_a_kernel_that_relies_on_zeroed_flags_fails_on_the_second_replay(file: Path, tmp_path: Path) -> None:
    """Planted: alone, and on communicators whose hosts zero fields, nothing is found; the witness shows it again."""
    assert invoke(f"{file}:relies")[0] == 0
    kept = tmp_path / "found.json"
    code, out = invoke(f"{file}:relies", "--replays", "2", "--out", str(kept))
    assert (code, "communicator 2: replayed with seed 1" in out) == (1, True)
    code, out = invoke(f"{file}:relies", "--replay", str(kept))
    assert (code, "replayed with seed 1" in out) == (1, True)


@pytest.mark.parametrize(
    ("name", "why"),
    [("by_argument", "other data have other launches"), ("seedless", "has no seed")],
)
def test_what_no_graph_can_replay_is_refused(file: Path, name: str, why: str) -> None:
    """An argument that depends on the data is not captured; and without other data nothing would show."""
    code, out = invoke(f"{file}:{name}", "--replays", "1")
    assert (code, why in out) == (2, True)


def test_a_pull_dispatch_cannot_be_captured() -> None:
    """Its event ID is an argument: fields say of a replay that all has been sent, and it takes what was there."""
    code, out = invoke("dispatch", "--tokens", "1", "--rounds", "1", "--replays", "1")
    assert (code, "communicator 2: replayed with" in out) == (1, True)


def test_nothing_is_found_in_replays_of_kernels_that_clean_their_signals() -> None:
    """DeepEP's low-latency kernels do, as their library needs it for CUDA graphs; two calls use both buffer sets."""
    code, out = invoke("deepep-ll", "--tokens", "1", "--rounds", "2", "--replays", "2", "--states", "0")
    assert (code, "nothing found" in out) == (0, True)


def test_areas_are_as_they_were_left() -> None:
    """A replay begins with the metadata of the stage before; a new communicator with zeros."""
    stage, it = Stage({"tokens": 1, "rounds": 1}), known("dispatch")
    again = Sequence(it, (stage, replayed(stage, 1)))
    for sequence, left in ((again, True), (Sequence(it, (stage, Stage({**stage.sizes, "seed": 1}))), False)):
        pod = sequence.build("sc").pod
        fields = pod.span(pod.meta(0), pod.spec.meta_bytes)
        assert bool(fields.any()) == left
    assert Sequence.read("dispatch", again.configuration) == again


def test_a_file_says_what_is_replayed() -> None:
    """More replays are refused with it, before the file is read."""
    code, out = invoke("--replays", "2", "--replay", "found.json")
    assert (code, "--replays 2: cannot be combined with --replay" in out) == (2, True)
