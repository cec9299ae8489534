"""Barriers, all-gathers and transfers of the torch door: what ranks ask of the server besides experts' calls."""

import time
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.torch_server_support import served, together
from xccl_emu.base.errors import ConfigError, ViolationError
from xccl_emu.doors.torch.client import Rank
from xccl_emu.doors.torch.pods import ServedGroup, Settings


def drawn(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def moved(group: ServedGroup, call: str, sent: list[Any]) -> list[Any]:
    """What each rank is given for its bytes."""
    nbytes = max(len(x) for x in sent if x is not None)
    asked = [({"shape": {"nbytes": nbytes}}, {} if x is None else {"x": x}) for x in sent]
    return [arrays.get("x") for _, arrays in group.serve(call, asked)]


@pytest.fixture(scope="module")
def groups() -> list[ServedGroup]:
    """Groups of two to four ranks."""
    return [ServedGroup(Settings(cores=2), ranks) for ranks in (2, 3, 4)]


@settings(max_examples=15)
@given(which=st.integers(0, 2), granules=st.integers(1, 80) | st.integers(1000, 1100), seed=st.integers(0, 99))
def test_all_ranks_get_all_bytes(groups: list[ServedGroup], which: int, granules: int, seed: int) -> None:
    """Any bytes, NaN of any type too, come to each rank as they were, in order of the ranks."""
    rows = drawn(seed, which + 2, 32 * granules)
    assert all(np.array_equal(got, rows) for got in moved(groups[which], "gather", [*rows]))


@settings(max_examples=15)
@given(granules=st.integers(1, 80) | st.integers(3000, 3100), seed=st.integers(0, 99))
def test_a_payload_comes_to_the_other_rank(groups: list[ServedGroup], granules: int, seed: int) -> None:
    """Through a ring that is smaller than it, or larger; the sender is given nothing."""
    sent = drawn(seed, 32 * granules)
    back, got = moved(groups[0], "transfer", [sent, None])
    assert back is None
    assert np.array_equal(got, sent)


def test_a_barrier_takes_time(groups: list[ServedGroup]) -> None:
    """It brings nothing, and takes longer among more ranks."""
    took = [group.serve("barrier", [({}, {})] * group.size) for group in groups]
    assert all(arrays == {} for answers in took for _, arrays in answers)
    assert 0 < took[0][0][0]["us"] < took[2][0][0]["us"] < 100


def test_nobody_leaves_a_barrier_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that is late is waited for."""
    with served(monkeypatch) as here:
        began = time.monotonic()

        def call(rank: Rank) -> float:
            time.sleep(0.5 * rank.rank)
            rank.call("barrier", {})
            return time.monotonic() - began

        assert min(together(here.ranks("a late rank"), call)) >= 0.5


def test_a_sender_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It need not wait for the receiver, however late that is, and hears when its bytes have been received."""
    said: dict[str, Any] = {"shape": {"nbytes": 64}}
    sent = drawn(1, 64)
    with served(monkeypatch, timeout_s=0.5) as here:
        sender, receiver = here.ranks("a sender")
        sender.begin("transfer", {"x": sent}, **said)
        time.sleep(2)
        assert not sender.answered()
        assert np.array_equal(receiver.call("transfer", {}, **said)[1]["x"], sent)
        assert sender.end("transfer")[0]["us"] > 0
    assert here.counted["unreceived"] == 0


@pytest.mark.parametrize("first", [0, 1])
def test_what_nobody_receives_is_counted(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    """Whoever of the two leaves first."""
    with served(monkeypatch) as here:
        ranks = here.ranks("two")
        ranks[0].begin("transfer", {"x": drawn(1, 64)}, shape={"nbytes": 64})
        time.sleep(0.2)
        ranks[first].close()
        time.sleep(0.2)
        ranks[1 - first].close()
    assert here.counted["unreceived"] == 1


SAID = {"shape": {"nbytes": 64}}
MISTAKES: dict[str, tuple[str, list[Any], str]] = {
    "no bytes": ("gather", [(SAID, {})] * 2, "gather of rank 0: x is missing"),
    "other bytes": ("gather", [(SAID, {"x": drawn(0, 32)})] * 2, r"x is \[32\] uint8; it must be \[nbytes=64\]"),
    "another type": ("gather", [(SAID, {"x": np.zeros(64, np.int8)})] * 2, "x is .* int8"),
    "no granules": ("gather", [({"shape": {"nbytes": 33}}, {})] * 2, "must be nbytes, a multiple of 32"),
    "too many": ("gather", [({"shape": {"nbytes": 1 << 40}}, {})] * 2, "must be nbytes, a multiple of 32"),
    "another size": ("gather", [({"shape": {"nbytes": 64, "rows": 1}}, {})] * 2, "must be nbytes"),
    "no size": ("transfer", [({}, {})] * 2, "transfer: shape is missing"),
    "nothing sent": ("transfer", [(SAID, {})] * 2, "x must come from rank 0 of two, and from no other"),
    "both send": ("transfer", [(SAID, {"x": drawn(0, 64)})] * 2, "x must come from rank 0 of two, and from no other"),
    "three ranks": ("transfer", [(SAID, {"x": drawn(0, 64)}), (SAID, {}), (SAID, {})], "x must come from rank 0 of"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(groups: list[ServedGroup], name: str) -> None:
    """Nothing is moved for a call that is wrong, and the next one is right."""
    call, asked, text = MISTAKES[name]
    group = groups[len(asked) - 2]
    with pytest.raises(ConfigError, match=text):
        group.serve(call, asked)
    assert len(moved(group, "gather", [drawn(rank, 64) for rank in range(group.size)])) == group.size


def test_no_rank_may_be_absent(groups: list[ServedGroup]) -> None:
    """A group that goes on without a rank has no barrier for the others."""
    with pytest.raises(ConfigError, match=r"barrier without ranks \[1\]: needs all ranks"):
        groups[0].serve("barrier", [({}, {})] * 2, [1])


def calls(group: ServedGroup) -> None:
    group.serve("barrier", [({}, {})] * 2)
    moved(group, "gather", [drawn(rank, 64) for rank in range(2)])
    moved(group, "transfer", [drawn(0, 64), None])


@pytest.mark.slow
def test_calls_are_judged_by_drawn_schedules(tmp_path: Path) -> None:
    """All are right under drawn schedules, also while something is switched off that experts' calls alone have."""
    for without in ((), ("tokens before counts",)):
        group = ServedGroup(Settings("portfolio", cores=1, without=without, witnesses=str(tmp_path)), 2)
        calls(group)
        assert group.drawn() == 3


def test_what_only_a_later_call_has_may_be_switched_off(tmp_path: Path) -> None:
    """A script that begins with a dispatch and has transfers later may switch off what these alone have."""
    how = Settings("portfolio", schedules=1, cores=1, without=("data before tail",), witnesses=str(tmp_path))
    sent = {"x": np.ones((2, 32), ml_dtypes.bfloat16), "topk": np.array([[0], [1]], np.int32)}
    shape = {"hidden": 32, "top_k": 1, "tokens_max": 2, "local_experts": 1, "quantized": False}
    group = ServedGroup(how, 2)
    group.serve("dispatch", [({"shape": shape}, sent)] * 2)
    assert group.drawn() == 1


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["barrier field in", "field in", "data before tail"])
def test_what_is_missing_is_found(sync: str, tmp_path: Path) -> None:
    """Without a synchronization of the barrier, of the gather or of the transfer there is a violation."""
    how = Settings("portfolio", schedules=6, cores=1, without=(sync,), witnesses=str(tmp_path))
    with pytest.raises(ViolationError, match=f"without {sync}"):
        calls(ServedGroup(how, 2))


@pytest.mark.slow
def test_a_name_that_no_kernel_has(tmp_path: Path) -> None:
    """To switch that off is refused."""
    how = Settings("portfolio", cores=1, without=("a word",), witnesses=str(tmp_path))
    with pytest.raises(ConfigError, match="without"):
        calls(ServedGroup(how, 2))
