"""Scripts of others on an emulated pod: what ranks ask of the server, and what is left when one of them ends."""

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli_support import hear_interrupts
from tests.torch_server_support import together
from xccl_emu import oracle
from xccl_emu.base.errors import ConfigError, UnfinishedError, ViolationError
from xccl_emu.doors.torch.client import Rank
from xccl_emu.doors.torch.launch import main, serving
from xccl_emu.doors.torch.pods import ServedGroup, Settings
from xccl_emu.doors.torch.wire import ADDRESS
from xccl_emu.protocols.deepep.session import DeepEpConfig
from xccl_emu.protocols.experts.data import differ

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "low_latency.py"
SHAPE = {"hidden": 32, "top_k": 1, "tokens_max": 2, "local_experts": 1, "quantized": False}
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")


@contextlib.contextmanager
def ranks_of(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, group: str, shrinks: bool = False
) -> Iterator[list[Rank]]:
    monkeypatch.setenv(ADDRESS, environment[ADDRESS])
    ranks = [Rank(group, rank, 2, shrinks) for rank in range(2)]
    yield ranks
    for rank in ranks:
        rank.close()


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with serving(Settings(cores=1)) as environment:
        yield environment


@pytest.fixture
def pair(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, request: Any) -> Iterator[list[Rank]]:
    """Two ranks of a group of their own."""
    with ranks_of(environment, monkeypatch, request.node.name) as ranks:
        yield ranks


def tokens_of(rank: Rank) -> dict[str, Any]:
    """Two tokens, of which one goes to the other rank."""
    x = np.random.default_rng(rank.rank).normal(size=(2, 32)).astype(ml_dtypes.bfloat16)
    return {"x": x, "topk": np.array([[rank.rank], [1 - rank.rank]], np.int32)}


def layer(rank: Rank, hooked: bool = False) -> bool:
    """Do tokens come back as they were from experts that change nothing, each with the weight 1?"""
    sent = tokens_of(rank)
    if hooked:
        number = rank.call("dispatch_send", sent, shape=SHAPE)[0]["handle"]
        got = rank.call("dispatch_recv", {}, handle=number)[1]
    else:
        said, got = rank.call("dispatch", sent, shape=SHAPE)
        number = said["handle"]
    back = {"y": got["x"].copy(), "topk": sent["topk"], "weights": np.ones((2, 1), np.float32)}
    if hooked:
        rank.call("combine_send", back, handle=number)
        out = rank.call("combine_recv", {}, handle=number)[1]
    else:
        out = rank.call("combine", back, handle=number)[1]
    return np.array_equal(out[f"out{rank.rank}"].view(np.uint16), sent["x"].view(np.uint16))


@pytest.mark.parametrize("hooked", [False, True])
def test_ranks_call_together(pair: list[Rank], hooked: bool) -> None:
    """Ranks that are threads send tokens and have them back bit for bit, in whole calls and in phases."""
    assert together(pair, lambda rank: layer(rank, hooked)) == [True, True]


def test_normal_mode(pair: list[Rank]) -> None:
    """A token goes once to each rank, with its weights; what ranks return is added, other weights and a rank's bias."""
    shape = {"hidden": 32, "top_k": 2, "tokens_max": 2, "local_experts": 1}

    def rows(rank: Rank) -> bool:
        x = tokens_of(rank)["x"]
        topk, weights = np.array([[0, 1], [rank.rank, -1]], np.int32), np.array([[1, 2], [3, 4]], np.float32)
        said, got = rank.call("dispatch_rows", {"x": x, "topk": topk, "weights": weights}, shape=shape)
        assert len(got["x"]) == 3
        assert got["weights"].sum() == 2 * (1 + rank.rank) + 3
        back = {"y": got["x"].copy(), "weights": np.full((3, 2), 0.1 + rank.rank, np.float32)}
        bias = np.full((1, 2, 32), rank.rank, x.dtype)
        back |= {"bias": bias} if rank.rank else {}
        for weighed in (True, False):
            got = rank.call("combine_rows", back, handle=said["handle"])[1]
            sums = bias[0].astype(np.float32) + x.astype(np.float32) + x * np.array([[1], [0]], np.float32)
            assert np.array_equal(got["out"], sums.astype(x.dtype))
            assert ("weights" in got) == weighed
            if weighed:
                given = np.float32(0.1), np.float32(1.1)
                assert np.array_equal(got["weights"], np.array([[sum(given)] * 2, [given[rank.rank]] * 2], np.float32))
                del back["weights"]
        return True

    assert together(pair, rows) == [True, True]


def test_a_rank_without_tokens(pair: list[Rank]) -> None:
    """A rank that sends nothing takes part in a call like the others, and is given what is for its expert."""

    def dispatch(rank: Rank) -> int:
        mine = {name: array[: 2 * rank.rank] for name, array in tokens_of(rank).items()}
        return len(rank.call("dispatch", mine, shape=SHAPE)[1]["x"])

    assert together(pair, dispatch) == [1, 1]


def test_times_are_those_of_the_kernels(pair: list[Rank]) -> None:
    """Each call says how long the kernel of a rank took in virtual time; a phase is shorter than both."""
    whole = together(pair, lambda rank: rank.call("dispatch", tokens_of(rank), shape=SHAPE)[0]["us"])
    sent = together(pair, lambda rank: rank.call("dispatch_send", tokens_of(rank), shape=SHAPE)[0])
    received = together(pair, lambda rank: rank.call("dispatch_recv", {}, handle=sent[0]["handle"])[0]["us"])
    assert all(0 < us < 1000 for us in whole)
    assert all(0 < min(a["us"], b) < us for a, b, us in zip(sent, received, whole, strict=True))


def test_sizes_of_deepeps_own_test() -> None:
    """Eight ranks, 128 tokens and top-8, though of short rows: the rows that are waited for at once have all room."""
    config = DeepEpConfig(
        n_ranks=8, local_experts=1, hidden=64, top_k=8, tokens_max=128, cores=4, dtype="bf16", quantized=False
    )
    session = Settings().session(config)
    tokens = [np.full((128, 64), rank, ml_dtypes.bfloat16) for rank in range(8)]
    handle, received = session.group.dispatch_whole(tokens, [np.tile(np.arange(8, dtype=np.int32), (128, 1))] * 8)
    assert all(np.array_equal(each.x[:, 0], each.source.astype(ml_dtypes.bfloat16)) for each in received)
    for rank, each in enumerate(received):
        session.group.expert_output(rank, handle.place)[:] = each.x
    outputs = session.group.combine_whole(handle, [np.full((128, 8), 0.125, np.float32)] * 8)
    assert all(np.array_equal(out, sent) for out, sent in zip(outputs, tokens, strict=True))


def test_calls_that_differ_are_refused_in_all_ranks(pair: list[Rank]) -> None:
    """Nothing is run when ranks make different calls, and each is told which."""
    told = together(pair, lambda rank: rank.call("dispatch", tokens_of(rank), shape={**SHAPE, "top_k": 1 + rank.rank}))
    assert [type(error) for error in told] == [ConfigError, ConfigError]
    assert "rank 1 asks" in str(told[0])
    assert str(told[0]) == str(told[1])


def test_what_a_session_refuses_is_raised_in_each_rank(pair: list[Rank]) -> None:
    """An error of the session has its type and text in the ranks; the group goes on."""
    told = together(pair, lambda rank: rank.call("combine", {}, handle=7))
    assert [str(error) for error in told] == ["handle=7: no dispatch of this group has it"] * 2
    assert together(pair, layer) == [True, True]


@pytest.mark.parametrize("calling", [False, True])
def test_peers_of_a_rank_that_ends_are_told(pair: list[Rank], calling: bool) -> None:
    """Whether they wait already or call later: the error names the rank, and comes at once."""
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        if calling:
            waiting = pool.submit(layer, pair[0])
            time.sleep(0.2)
            pair[1].close()
        else:
            pair[1].close()
            waiting = pool.submit(layer, pair[0])
        with pytest.raises(UnfinishedError, match=rf"dispatch of rank 0: rank 1 \(process {os.getpid()}\) has ended"):
            waiting.result(timeout=10)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("hooked", [False, True])
def test_who_waited_for_whom(hooked: bool) -> None:
    """A rank with many tokens is waited for longest, by the others and in both calls; sums stay within the kernel."""
    group, shape = ServedGroup(Settings(cores=1), 3), {**SHAPE, "tokens_max": 16, "local_experts": 2}
    topk = [np.arange(n, dtype=np.int32)[:, None] % 6 for n in (1, 16, 1)]
    sent = [({"shape": shape}, {"x": np.ones((len(each), 32), ml_dtypes.bfloat16), "topk": each}) for each in topk]
    if hooked:
        number = group.serve("dispatch_send", sent)[0][0]["handle"]
        got = group.serve("dispatch_recv", [({"handle": number, "waits": True}, {})] * 3)
    else:
        got = group.serve("dispatch", [({**said, "waits": True}, arrays) for said, arrays in sent])
        for said, arrays in (got[0], got[2]):
            assert arrays["waits"].argmax() == 1
            assert 0 < arrays["waits"].sum() < 1000 * said["us"]
    back = [
        ({"handle": got[0][0]["handle"], "waits": not hooked},
         {"y": each["x"], "topk": chosen, "weights": np.ones((len(chosen), 1), np.float32)})
        for chosen, (_, each) in zip(topk, got, strict=True)
    ]  # fmt: skip
    combined = group.serve("combine", back)
    assert all(("waits" in arrays) is not hooked for _, arrays in combined)
    assert all(arrays["waits"].shape == (3,) and (arrays["waits"] >= 0).all() for _, arrays in got)


def test_waits_are_told_in_virtual_time_alone() -> None:
    """Where schedules are drawn there is no time to tell."""
    nothing = {"x": np.ones((0, 32), ml_dtypes.bfloat16), "topk": np.zeros((0, 1), np.int32)}
    asked = [({"shape": SHAPE, "waits": True}, nothing)] * 2
    with pytest.raises(ConfigError, match="wait_recv_cost_stats: times are virtual without --policy"):
        ServedGroup(Settings("portfolio", cores=1), 2).serve("dispatch", asked)


@pytest.mark.parametrize("quantized", [False, True])
def test_fused_calls(quantized: bool) -> None:
    """Rows and sums are the oracle's; combine takes the choices of its own dispatch, and no handle of another mode."""
    group, rng = ServedGroup(Settings(cores=1), 2), np.random.default_rng(3)
    shape = {"hidden": 64, "top_k": 2, "tokens_max": 3, "local_experts": 2, "quantized": quantized, "quantizer": "cann"}
    tokens = [rng.normal(size=(n, 64)).astype(ml_dtypes.bfloat16) for n in (3, 1)]
    topk = [np.array([rng.permutation(4)[:2] for _ in x], np.int32) for x in tokens]
    weights = [rng.random((len(x), 2), np.float32) for x in tokens]
    sent = [({"shape": shape}, {"x": x, "topk": chosen}) for x, chosen in zip(tokens, topk, strict=True)]
    got = group.serve("dispatch_fused", sent)
    want = oracle.dispatch(tokens, topk, 2, 2, quantized, quantizer="cann")
    for rank, (_, each) in enumerate(got):
        names = ("x", "scales", "source", "token", "choice", "counts")
        assert all(differ(each[name], getattr(want.received_by(rank), name)) == 0 for name in names)
    outputs = [rng.normal(size=(len(each["x"]), 64)).astype(ml_dtypes.bfloat16) for _, each in got]

    def back(choices: list[Any]) -> list[Any]:
        columns = zip(outputs, choices, weights, strict=True)
        return [({"handle": 1}, {"y": y, "topk": chosen, "weights": table}) for y, chosen, table in columns]

    def fetched(experts: Any, rows: Any) -> Any:
        return np.stack([outputs[expert][row] for expert, row in zip(experts, rows, strict=True)])

    with pytest.raises(ConfigError, match="expert_ids: must be the ones of dispatch 1"):
        group.serve("combine_fused", back([chosen[:, ::-1] for chosen in topk]))
    for call in ("combine", "combine_rows"):
        with pytest.raises(ConfigError, match="handle=1: is of another mode"):
            group.serve(call, back(topk))
    for rank, (_, each) in enumerate(group.serve("combine_fused", back(topk))):
        assert differ(each["out"], want.combined_for(rank, weights[rank], fetched)) == 0


@settings(max_examples=10)
@given(st.integers(0, 999), st.booleans(), st.booleans())
def test_an_expert_twice(three: ServedGroup, seed: int, hooked: bool, quantized: bool) -> None:
    """Where tokens name an expert twice, each is a row of its own, and sums are the oracle's; else the pod is the
    usual one."""
    rng, phase = np.random.default_rng(seed), "_send" if hooked else ""
    shape = {"hidden": 64, "top_k": 3, "tokens_max": 3, "local_experts": 1, "quantized": quantized, "quantizer": "cann"}
    tokens = [rng.normal(size=(n, 64)).astype(ml_dtypes.bfloat16) for n in rng.integers(0, 4, 3)]
    topk = [rng.integers(-1, 3, (len(x), 3)).astype(np.int32) for x in tokens]
    said = {"shape": {**shape, "repeats": True}}
    sent = [(said, {"x": x, "topk": each}) for x, each in zip(tokens, topk, strict=True)]
    got = three.serve(f"dispatch{phase}", sent)
    handle = {"handle": got[0][0]["handle"]}
    got = three.serve("dispatch_recv", [(handle, {})] * 3) if hooked else got
    want = oracle.dispatch(tokens, topk, 3, 1, quantized, quantizer="cann")
    for rank, (_, each) in enumerate(got):
        names = ("x", "source", "token", "choice", "counts")
        assert all(differ(each[name], getattr(want.received_by(rank), name)) == 0 for name in names)
    outputs = [rng.normal(size=(len(each["x"]), 64)).astype(ml_dtypes.bfloat16) for _, each in got]
    weights = [rng.random(each.shape, np.float32) for each in topk]
    back = [
        (handle, {"y": y, "topk": each, "weights": table})
        for y, each, table in zip(outputs, topk, weights, strict=True)
    ]  # fmt: skip
    out = three.serve(f"combine{phase}", back)
    out = three.serve("combine_recv", [(handle, {})] * 3) if hooked else out

    def fetched(experts: Any, rows: Any) -> Any:
        return np.stack([outputs[expert][row] for expert, row in zip(experts, rows, strict=True)])

    for rank in range(3):
        assert differ(out[rank][1][f"out{rank}"], want.combined_for(rank, weights[rank], fetched)) == 0
    twice = any(len({*row} - {-1}) < sum(slot >= 0 for slot in row) for each in topk for row in each.tolist())
    assert three.dispatches[handle["handle"]].session.group.config.repeats == twice  # type: ignore[union-attr]


# ---- ranks that are left out


@pytest.fixture(scope="module")
def three() -> ServedGroup:
    """Three ranks."""
    return ServedGroup(Settings(cores=1), 3)


@settings(max_examples=15)
@given(data=st.data())
def test_results_without_some_ranks(three: ServedGroup, data: st.DataObject) -> None:
    """Whoever is absent from a dispatch, or from its combine alone: rows and sums of the others are the oracle's."""
    first = data.draw(st.sets(st.integers(0, 2), max_size=2))
    second = first | data.draw(st.sets(st.integers(0, 2), max_size=1))
    quantized, hooked = data.draw(st.booleans()), data.draw(st.booleans())
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 20)))
    shape = {"hidden": 64, "top_k": 2, "tokens_max": 3, "local_experts": 2, "quantized": quantized, "quantizer": "cann"}
    tokens = [rng.normal(size=(n, 64)).astype(ml_dtypes.bfloat16) for n in rng.integers(0, 4, 3)]
    topk = [np.array([rng.permutation(6)[:2] for _ in x], np.int32).reshape(-1, 2) for x in tokens]
    weights = [rng.random((len(x), 2), np.float32) for x in tokens]

    def serve(call: str, absent: set[int], said: dict[str, Any], arrays: list[dict[str, Any]]) -> list[Any]:
        asked = [(said, {} if rank in absent else each) for rank, each in enumerate(arrays)]
        return three.serve(call, asked, absent)

    sent = [{"x": x, "topk": choices} for x, choices in zip(tokens, topk, strict=True)]
    got = serve("dispatch_send" if hooked else "dispatch", first, {"shape": shape}, sent)
    handle = {"handle": got[0][0]["handle"]}
    if hooked:
        got = serve("dispatch_recv", first, handle, [{}] * 3)
    masked = [np.where(np.isin(choices // 2, [*first]), -1, choices) for choices in topk]
    masked = [choices[: 0 if rank in first else None] for rank, choices in enumerate(masked)]
    there = [x[: len(choices)] for x, choices in zip(tokens, masked, strict=True)]
    want = oracle.dispatch(there, masked, 3, 2, quantized, quantizer="cann")
    for rank in {0, 1, 2} - first:
        rows = want.received_by(rank)
        assert all(differ(got[rank][1][name], getattr(rows, name)) == 0 for name in ("x", "token", "source", "counts"))
    outputs = [rng.normal(size=(len(each["x"]), 64)).astype(ml_dtypes.bfloat16) for _, each in got]
    back = [
        {"y": y, "topk": choices, "weights": table}
        for y, choices, table in zip(outputs, topk, weights, strict=True)
    ]  # fmt: skip
    if second == {0, 1, 2}:
        return

    def fetched(experts: Any, rows: Any) -> Any:
        return np.stack([outputs[expert][row] for expert, row in zip(experts, rows, strict=True)])

    out = serve("combine", second, handle, back)
    for rank in {0, 1, 2} - second:
        kept = ~np.isin(masked[rank] // 2, [*second])
        sums = want.combined_for(rank, weights[rank], fetched, kept=kept)
        assert differ(out[rank][1][f"out{rank}"], sums) == 0


def test_a_group_that_shrinks(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """A call that waits is made when a rank leaves, and says so; normal mode alone is refused."""
    with ranks_of(environment, monkeypatch, request.node.name, shrinks=True) as ranks:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: ranks[0].call("dispatch", tokens_of(ranks[0]), shape=SHAPE))
            time.sleep(0.2)
            assert not waiting.done()
            ranks[1].close()
            said, got = waiting.result(timeout=10)
        assert said["lost"] == [1]
        assert np.array_equal(got["x"], tokens_of(ranks[0])["x"][:1])
        assert ranks[0].call("clean", {})[0]["lost"] == [1]
        with pytest.raises(ConfigError, match=r"dispatch_rows without ranks \[1\]"):
            ranks[0].call("dispatch_rows", {}, shape=SHAPE)


def test_a_rank_that_is_masked(pair: list[Rank]) -> None:
    """Who masks a rank does not wait for it; if it calls nonetheless, both are told."""
    assert pair[0].call("dispatch", tokens_of(pair[0]), shape=SHAPE, masked=[1])[0]["lost"] == []
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: pair[1].call("clean", {}))
        time.sleep(0.2)
        with pytest.raises(ConfigError, match="masked: rank 1 is"):
            pair[0].call("clean", {}, masked=[1])
        with pytest.raises(ConfigError, match="masked: rank 1 is"):
            waiting.result(timeout=10)
    assert together(pair, layer) == [True, True]


def test_a_missing_synchronization_raises_in_the_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Under drawn schedules the monitor sees the race though the values are right, and there is a replay file."""
    how = Settings("portfolio", cores=1, without=("tokens before counts",), witnesses=str(tmp_path))
    with serving(how) as environment, ranks_of(environment, monkeypatch, "watched") as ranks:
        told = together(ranks, layer)
    assert [type(error) for error in told] == [ViolationError, ViolationError]
    assert len(list(tmp_path.glob("*.json"))) == 1


@pytest.mark.parametrize(("rank", "size"), [(0, 2), (2, 2), (0, 3)])
def test_a_place_that_is_not_free(pair: list[Rank], request: Any, rank: int, size: int) -> None:
    """A rank that is there already, or is none of the group, is refused when it joins; the others go on."""
    with pytest.raises(ConfigError, match="no free place in a group of 2"):
        Rank(request.node.name, rank, size)
    assert together(pair, layer) == [True, True]


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["next buffer clean", "all cores have cleaned", "counts in"])
def test_what_orders_calls_is_missed_too(sync: str, tmp_path: Path) -> None:
    """Three calls with equal inputs, judged together, show what is missing between one and the next."""
    x, choices = np.ones((2, 32), ml_dtypes.bfloat16), np.array([[0], [1]], np.int32)
    how = Settings("portfolio", schedules=6, together=3, cores=2, without=(sync,), witnesses=str(tmp_path))
    group = ServedGroup(how, 2)

    def calls() -> None:
        for _ in range(3):
            got = group.serve("dispatch", [({"shape": SHAPE}, {"x": x, "topk": choices})] * 2)
            back = {"topk": choices, "weights": np.ones((2, 1), np.float32)}
            group.serve("combine", [({"handle": said["handle"]}, {**back, "y": each["x"]}) for said, each in got])

    with pytest.raises(ViolationError, match=f"without {sync}"):
        calls()


def test_without_a_server() -> None:
    """A script that is started by itself is told how it must be."""
    with pytest.raises(ConfigError, match=r"python -m xccl_emu\.doors\.torch SCRIPT"):
        Rank("alone", 0, 2)


# ---- what is left


SCRIPT = """
import multiprocessing, os, sys, time
import numpy as np
from xccl_emu.doors.torch.client import Rank

def work(rank):
    own = Rank("script", rank, 2)
    sent = {"x": np.zeros((1, 32), np.float16), "topk": np.zeros((1, 1), np.int32)}
    shape = {"hidden": 32, "top_k": 1, "tokens_max": 2, "local_experts": 1, "quantized": False, "dtype": "fp16"}
    while True:
        own.call("dispatch", sent, shape=shape)
        os.write(1, f"{rank} {os.getpid()}\\n".encode())  # one write: lines of two ranks do not mix

if __name__ == "__main__":
    started = [multiprocessing.get_context("spawn").Process(target=work, args=(rank,)) for rank in range(2)]
    for each in started: each.start()
    for each in started: each.join()
    sys.exit(any(each.exitcode for each in started))
"""


def processes_of(folder: Path) -> list[int]:
    """Processes that were started there."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").resolve() == folder.resolve():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def shared_files() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def left_over(folder: Path, before: set[str], seconds: float) -> tuple[list[int], set[str]]:
    """Processes of a folder, and files in memory, that are still there after so long; others' come and go meanwhile."""
    until, files = time.monotonic() + seconds, shared_files() - before
    while (processes_of(folder) or files) and time.monotonic() < until:
        time.sleep(0.05)
        files &= shared_files()
    return processes_of(folder), files


@pytest.mark.parametrize(("whom", "how"), [
    ("launcher", signal.SIGTERM), pytest.param("launcher", signal.SIGINT, marks=pytest.mark.slow),
    ("rank", signal.SIGKILL), pytest.param("launcher", signal.SIGKILL, marks=pytest.mark.slow),
])  # fmt: skip
def test_nothing_is_left(tmp_path: Path, whom: str, how: signal.Signals) -> None:
    """Whoever is ended, and however: no process and no segment of shared memory stays, and the exit code tells."""
    (tmp_path / "script.py").write_text(SCRIPT)
    before = shared_files()
    command = [sys.executable, "-m", "xccl_emu.doors.torch", "--cores", "1", "--device", "cuda", "script.py"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True,
        preexec_fn=hear_interrupts,
    ) as launcher:  # fmt: skip
        assert launcher.stdout is not None
        said = launcher.stdout.readline().split()
        os.kill(launcher.pid if whom == "launcher" else int(said[1]), how)
        launcher.stdout.read()
        code = launcher.wait(timeout=5)
    codes = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGKILL: 1 if whom == "rank" else -how}
    assert code == codes[how]
    assert code == -how or processes_of(tmp_path) == []
    assert left_over(tmp_path, before, 5) == ([], set())


# ---- the command


@pytest.mark.parametrize("wrong", [
    ["no-such-file.py"], ["--policy", "lucky", __file__], ["--policy", "time", "--without", "x", __file__],
    ["--schedules", "0", "--policy", "portfolio", __file__],
])  # fmt: skip
def test_wrong_usage(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be is refused before anything starts."""
    assert main(wrong) == 2
    assert capsys.readouterr().err.startswith("xccl_emu: ")


def run_example(*options: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    sizes = ("--ranks", "2", "--hidden", "512", "--tokens", "2", "--experts", "2")
    return run_script(*options, str(EXAMPLE), *sizes, cwd=cwd)


def run_script(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "xccl_emu.doors.torch", "--cores", "1", *words]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "MASTER_PORT": str(20_000 + os.getpid() % 20_000)}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


@needs_torch
@pytest.mark.slow
def test_a_script_in_virtual_time(tmp_path: Path) -> None:
    """A script in DeepEP's style passes, and the times that it prints are the model's: the same in every run."""
    first, second = (run_example(cwd=tmp_path) for _ in range(2))
    assert first.returncode == second.returncode == 0, first.stderr
    assert sorted(first.stdout.splitlines()) == sorted(second.stdout.splitlines())
    assert len(first.stdout.splitlines()) == 8


@needs_torch
@pytest.mark.slow
def test_a_script_under_drawn_schedules(tmp_path: Path) -> None:
    """It passes as it is, and fails with a replay file where a synchronization is switched off."""
    right = run_example("--policy", "portfolio", "--seeds", "2", cwd=tmp_path)
    assert right.returncode == 0, right.stderr
    assert "this computer's" in right.stderr
    wrong = run_example("--without", "tokens before counts", cwd=tmp_path)
    assert wrong.returncode == 1
    assert "violation: data race" in wrong.stderr
    (witness,) = (tmp_path / "witnesses").glob("*.json")
    again = run_example("--without", "tokens before counts", "--replay", str(witness), cwd=tmp_path)
    assert again.returncode == 1
    assert "violation: data race" in again.stderr


@needs_torch
@pytest.mark.slow
def test_a_script_in_normal_mode(tmp_path: Path) -> None:
    """Rows come once to each rank, from choices or a table of ranks or a handle, and weights come back."""
    done = run_script("--policy", "portfolio", str(Path(__file__).with_name("torch_normal.py")), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"rank \d passed", done.stdout)) == ["rank 0 passed", "rank 1 passed"]


@needs_torch
@pytest.mark.slow
def test_a_script_with_mistakes(tmp_path: Path) -> None:
    """Each is answered by name in all ranks, none is right by what was in memory, and the server serves on."""
    done = run_script(str(Path(__file__).with_name("torch_mistakes.py")), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"rank \d passed", done.stdout)) == ["rank 0 passed", "rank 1 passed"]
    assert done.stderr.splitlines()[-1].endswith("0 violations, 0 unreceived")


@needs_torch
@pytest.mark.slow
def test_a_face_before_pytorch(tmp_path: Path) -> None:
    """A face that needs no PyTorch may be imported first, though PyTorch imports another one while it is loaded."""
    (tmp_path / "script.py").write_text("import nvshmem.core\nimport torch\nprint(nvshmem.core.Nothing)")
    done = run_script("--device", "cuda", "script.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "nvshmem.core.Nothing: xccl_emu.doors.torch does not have it; it has" in done.stderr


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("device", ["cuda", "npu"])
def test_pytorch_stays_whole(tmp_path: Path, device: str) -> None:
    """Its compiler's parts, optimizers, profilers and the names of devices work, or are refused by name."""
    script = str(Path(__file__).with_name("torch_whole.py"))
    done = run_script("--device", device, script, device, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "passed\n"


@needs_torch
@pytest.mark.slow
def test_a_script_that_goes_on_without_a_rank(tmp_path: Path) -> None:
    """Masked by its peers, or gone: its tokens are missing, sums and statistics of waits are there."""
    done = run_script(str(Path(__file__).with_name("torch_shrink.py")), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} passed" for rank in range(3)]


@needs_torch
@pytest.mark.slow
def test_a_script_for_mooncake(tmp_path: Path) -> None:
    """Rows come back as they were, after a rank has joined again too; to leave a rank out is refused in all."""
    done = run_script(str(Path(__file__).with_name("torch_mooncake.py")), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"rank \d passed", done.stdout)) == ["rank 0 passed", "rank 1 passed"]


@needs_torch
@pytest.mark.slow
def test_a_script_for_elastic_buffers(tmp_path: Path) -> None:
    """Barriers, all-gathers and tensors around a ring are right, and poison until due; mistakes are named."""
    done = run_script(str(Path(__file__).with_name("torch_elastic.py")), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"rank \d passed", done.stdout)) == 3
    assert done.stderr.splitlines()[-1].endswith("0 violations, 0 unreceived")


@needs_torch
@pytest.mark.slow
def test_a_script_for_torch_npu(tmp_path: Path) -> None:
    """Rows, counts and sums of FusedDispatch and FusedCombine, under drawn schedules; what is not there is refused."""
    done = run_script("--policy", "portfolio", str(Path(__file__).with_name("torch_distribute.py")), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"rank \d passed", done.stdout)) == ["rank 0 passed", "rank 1 passed"]
