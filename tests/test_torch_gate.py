"""What a server of the torch door is asked wrongly: each mistake is answered by name in all ranks, and it goes on."""

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.torch_server_support import NORMAL, SHAPE, Here, served, together, tokens, weighted
from xccl_emu.base.errors import ConfigError, UnfinishedError, XcclEmuError
from xccl_emu.doors.torch import server as server_module
from xccl_emu.doors.torch.client import Rank
from xccl_emu.doors.torch.faces import assertions
from xccl_emu.doors.torch.gate import ANY, Form, Row
from xccl_emu.doors.torch.pods import ServedGroup, Settings


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Here]:
    with served(monkeypatch) as here:
        yield here


def refused(ranks: list[Rank], call: Callable[[Rank], Any], said: str) -> None:
    """All ranks hear of the mistake, and the next call is right."""
    for error in together(ranks, call):
        assert isinstance(error, ConfigError), error
        assert said in str(error)
    assert together(ranks, right) == [True, True]


def right(rank: Rank) -> bool:
    sent = tokens(rank.rank)
    said, got = rank.call("dispatch", sent, shape=SHAPE)
    out = rank.call("combine", weighted(got["x"], sent["topk"]), handle=said["handle"])[1]
    return np.array_equal(out[f"out{rank.rank}"].view(np.int16), sent["x"].view(np.int16))


def combining(**wrong: Callable[[Any], Any]) -> Callable[[Rank], Any]:
    """Dispatch, then combine with arrays that are changed."""

    def call(rank: Rank) -> Any:
        sent = tokens(rank.rank)
        said, got = rank.call("dispatch", sent, shape=SHAPE)
        back = weighted(got["x"], sent["topk"])
        back |= {name: change(back[name]) for name, change in wrong.items()}
        return rank.call("combine", {k: v for k, v in back.items() if v is not None}, handle=said["handle"])

    return call


def third(rank: Rank) -> Any:
    """Combine the first of three dispatches of other choices."""
    sent = tokens(rank.rank)
    said, got = rank.call("dispatch", sent, shape=SHAPE)
    back = weighted(got["x"], sent["topk"])
    for _ in range(2):
        rank.call("dispatch", tokens(rank.rank, 1), shape=SHAPE)
    return rank.call("combine", back, handle=said["handle"])


def normal(change: Callable[[Any], Any], *weights: Any, **more: Any) -> Callable[[Rank], Any]:
    """Dispatch rows, then combine with rows that are changed, with weights of each rank that are not None, and more."""

    def call(rank: Rank) -> Any:
        sent = tokens(rank.rank) | {"weights": np.ones((2, 1), np.float32)}
        said, got = rank.call("dispatch_rows", sent, shape=NORMAL)
        back = {"y": change(got["x"]).copy(), **more}
        if weights and weights[rank.rank] is not None:
            back["weights"] = weights[rank.rank]
        return rank.call("combine_rows", back, handle=said["handle"])

    return call


MISTAKES = {
    "an old handle": (third, "its result was replaced by one of other choices"),
    "half the hidden size": (combining(y=lambda y: y[:, :16]), "y is [2, 16] bfloat16; it must be [rows=2, hidden=32]"),
    "rows that broadcast": (combining(y=lambda y: y[:1]), "y is [1, 32] bfloat16; it must be [rows=2"),
    "FP32 rows": (combining(y=lambda y: y.astype(np.float32)), "y is [2, 32] float32"),
    "no weights": (combining(weights=lambda _: None), "weights is missing; it must be [tokens=2, top_k=1] float32"),
    "fewer weights": (combining(weights=lambda w: w[:1]), "weights is [1, 1] float32"),
    "half the hidden size in normal mode": (normal(lambda y: y[:, :16]), "combine_rows of rank 0: y is [2, 16]"),
    "one row in normal mode": (normal(lambda y: y[:1]), "combine_rows of rank 0: y is [1, 32]"),
    "weights of one row in normal mode": (
        normal(lambda y: y, *[np.ones((1, 1), np.float32)] * 2),
        "combine_rows of rank 0: weights is [1, 1] float32; it must be [rows=2, top_k=1] float32",
    ),
    "weights in FP64 in normal mode": (normal(lambda y: y, *[np.ones((2, 1))] * 2), "weights is [2, 1] float64"),
    "weights of one rank in normal mode": (
        normal(lambda y: y, np.ones((2, 1), np.float32), None), "weights: must come from all 2 ranks, or none"
    ),
    "a bias of one token": (
        normal(lambda y: y, bias=np.zeros((1, 1, 32), ml_dtypes.bfloat16)),
        "bias is [1, 1, 32] bfloat16; it must be [biases=1, tokens=2, hidden=32] bfloat16",
    ),
    "three biases": (
        normal(lambda y: y, bias=np.zeros((3, 2, 32), ml_dtypes.bfloat16)), "must be up to 2 of [2, 32] bfloat16"
    ),
    "statistics of another length": (
        lambda rank: rank.call("dispatch", tokens(rank.rank) | {"stats": np.zeros(2, np.int32)}, shape=SHAPE),
        "dispatch of rank 0: stats is [2] int32; it must be [local_experts=1] int32",
    ),
    "an array that there is not": (
        lambda rank: rank.call("dispatch", tokens(rank.rank) | {"z": np.zeros(2)}, shape=SHAPE),
        "z: there is no such array; there are x, topk, stats",
    ),
    "a size that there is not": (
        lambda rank: rank.call("dispatch", tokens(rank.rank), shape=SHAPE | {"depth": 2}), "shape: depth: "
    ),
    "a call that there is not": (lambda rank: rank.call("reduce", {}), "call='reduce': must be one of dispatch, "),
    "no shape": (lambda rank: rank.call("dispatch", tokens(rank.rank)), "dispatch: shape is missing"),
    "masks that are none": (lambda rank: rank.call("clean", {}, masked=[[1]]), "must be numbers of ranks"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_answered(here: Here, name: str) -> None:
    """What would have ended the server, or been accepted, is named in each rank; the server goes on."""
    ranks = here.ranks(name)
    refused(ranks, *MISTAKES[name])
    for rank in ranks:
        rank.close()


def test_one_rank_is_wrong(here: Here) -> None:
    """The other hears it too, instead of waiting for a call that is not made."""
    ranks = here.ranks("one")
    wrong = {"stats": np.zeros(2, np.int32)}
    refused(ranks, lambda rank: rank.call("dispatch", tokens(rank.rank) | (wrong if rank.rank else {}), shape=SHAPE),
            "dispatch of rank 1: stats")  # fmt: skip
    ranks[1].refuse("low_latency_dispatch: x is none")
    with pytest.raises(ConfigError, match="rank 1: low_latency_dispatch: x is none"):
        ranks[0].call("dispatch", tokens(0), shape=SHAPE)
    assert together(ranks, right) == [True, True]


def test_an_error_of_the_emulator(
    here: Here, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is answered by the name of the call, counted and printed; handles from before are refused, new calls right."""
    ranks = here.ranks("error")
    said = together(ranks, lambda rank: rank.call("dispatch", tokens(rank.rank), shape=SHAPE)[0])
    with monkeypatch.context() as broken:
        broken.setattr(ServedGroup, "_held", lambda *_: 1 // 0)
        for error in together(ranks, right):
            assert type(error) is XcclEmuError
            assert "dispatch failed inside the emulator: ZeroDivisionError" in str(error)
    assert "please report" in capfd.readouterr().err
    refused(ranks, lambda rank: rank.call("combine", weighted(np.zeros((2, 32)), tokens(rank.rank)["topk"]),
                                          handle=said[0]["handle"]), "its pod was given back")  # fmt: skip
    assert here.counted == {}


@pytest.mark.parametrize("junk", [b"junk", b"{}", b'{"arrays": [["x", "int8", [1], 1]]}', b"[" * 5000, b"\xff" * 9])
def test_junk_on_a_line(here: Here, junk: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    """A rank that says what is no message is left out; its peers hear that it has ended, and others are served."""
    ranks, others = here.ranks(f"junk {junk!r:.20}"), here.ranks(f"others {junk!r:.20}")
    ranks[0]._line.socket.send(junk)
    with pytest.raises(UnfinishedError, match=r"rank 0 .* has ended"):
        ranks[1].call("dispatch", tokens(1), shape=SHAPE)
    assert together(others, right) == [True, True]
    assert "rank 0 (process" in capfd.readouterr().err


def test_connections_that_say_nothing(here: Here) -> None:
    """Others are served meanwhile; nor does one that says junk at once disturb."""
    mute, junk = (socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2))
    for each_socket in (mute, junk):
        each_socket.connect("\0" + here.address)
    junk.send(b"junk")
    assert together(here.ranks("mute"), right) == [True, True]
    mute.close()
    junk.close()


def test_arrays_that_are_not_in_the_memory(here: Here) -> None:
    """A message that names bytes outside of the memory is none."""
    ranks = here.ranks("outside")
    ranks[0]._line.socket.send(b'{"call": "dispatch", "arrays": [["x", "int8", [1048577], 0]]}')
    with pytest.raises(UnfinishedError, match="rank 0"):
        ranks[1].call("clean", {})


def test_what_is_counted(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Calls, and those that were sent and never received, or that a rank never waited for."""
    with served(monkeypatch) as here:
        ranks = here.ranks("counted")
        assert together(ranks, right) == [True, True]
        together(ranks, lambda rank: rank.call("dispatch_send", tokens(rank.rank), shape=SHAPE))
        ranks[1].note_due("low_latency_combine", True)
        ranks[0].note_due("low_latency_combine", True)
        ranks[0].note_due("low_latency_combine", False)
        for rank in ranks:
            rank.close()
    assert here.counted == {"calls": 3, "schedules": 0, "violations": 0, "unreceived": 2, "failed": 0}
    said = capfd.readouterr().err
    assert "dispatch_send of dispatch 2 was sent, and its hook never called" in said
    assert "rank 1 never waited for what low_latency_combine brings" in said


def test_who_is_awaited(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """After some seconds a line says which rank is awaited, in which call; after the time-out all calls are refused."""
    monkeypatch.setattr(server_module, "_SILENT_S", 0.5)
    monkeypatch.setattr(server_module._Members, "silent_s", 0.5)
    with served(monkeypatch, timeout_s=4.0) as here:
        ranks = here.ranks("awaited")
        assert together(ranks, right) == [True, True]
        began = time.monotonic()
        with pytest.raises(UnfinishedError, match=r"dispatch of rank 0 has waited .* rank 1 .*--timeout is 4 s"):
            ranks[0].call("dispatch", tokens(0), shape=SHAPE)
        assert time.monotonic() - began < 30
        with pytest.raises(UnfinishedError, match="--timeout is 4 s"):
            ranks[1].call("dispatch", tokens(1), shape=SHAPE)
    said = capfd.readouterr().err
    assert "its last call was combine" in said
    assert said.count("has waited") >= 2


def test_pods_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory is short, pods of other sizes go first; handles of those are refused by name."""
    group = ServedGroup(Settings(cores=1, memory_gib=1e-6), 2)
    for hidden in (32, 64, 96):
        sent = {"topk": np.zeros((0, 1), np.int32), "x": np.zeros((0, hidden), tokens(0)["x"].dtype)}
        group.serve("dispatch", [({"shape": SHAPE | {"hidden": hidden}}, sent)] * 2)
    assert len(group.sessions) == 1
    with pytest.raises(ConfigError, match="handle=1: its pod was given back"):
        group.serve("combine", [({"handle": 1}, {})] * 2)


def test_the_gate_itself() -> None:
    """A form says sizes that its arrays have, and names what is missing, too many, or against a condition."""
    form = Form((Row("a", ("n", "2"), "int32"), Row("b", ("n",), "*", optional=True)), ("n % step == 0",))
    ok = np.zeros((4, 2), np.int32)
    assert form.check("f", {"a": ok, "b": None}, {"step": 2})["n"] == 4
    for arrays, said in (
        ({}, "f: a is missing; it must be [n, 2] int32, contiguous"), ({"a": 3}, "a is int 3"),
        ({"a": ok[:, :1]}, "a is [4, 1] int32"),
        ({"a": ok, "b": np.zeros(3)}, "b is [3] float64; it must be [n=4] of any"),
        ({"a": np.zeros((4, 4), np.int32)[:, ::2]}, "not contiguous"),
        ({"a": ok[:3].copy()}, "f: n=3, step=2: must have n % step == 0"),
    ):  # fmt: skip
        with pytest.raises(ConfigError) as error:
            form.check("f", arrays, {"step": 2})
        assert said in str(error.value)
    for step in ("x", 0, None, np.ones(2)):
        with pytest.raises(ConfigError, match="must have n % step == 0"):
            form.check("f", {"a": ok}, {"step": step})




FORMS = {name: form for name, form in vars(assertions).items() if isinstance(form, Form)}
SIZES: dict[str, Any] = {
    "tokens": 4, "hidden": 512, "top_k": 2, "rows": 8, "scales": 4, "ranks": 2, "num_experts": 4, "local_experts": 2,
    "num_max_dispatch_tokens_per_rank": 4, "num_rdma_bytes": 1 << 20, "size_hint": lambda *_: 0, "element_size": 1,
    "low_latency_mode": True, "use_fp8": True, "use_ue8m0": True, "round_scale": True, "async_finish": False,
    "return_recv_hook": False, "most_of_an_expert": 4, "cached": False, "has_scales": True, "last_active": 1,
    "first_off": 2, **{f"has_{row.name}": True for row in assertions.DISPATCH.rows}, "num_bytes": 1 << 23,
    "num_cpu_bytes": 1 << 21, "num_max_session_bytes": 64, "num_max_all_gathers_per_session": 2,
    "agrs_in_session": True, "agrs_buffer_offset": 64, "num_all_gathers": 2, "inplace_at_its_slot": True,
    "num_max_tensor_bytes": 64, "num_max_inflight_tensors": 2, "nbytes": 32, "peer": 1, "prev_rank_idx": 1,
    "next_rank_idx": 1, "num_qps": 2, "num_allocated_qps": 2, "has_previous_event": False,
    "allocate_on_comm_stream": False, "num_max_tokens_per_rank": 4, "an_expert_twice": False, "do_expand": False,
    "do_zero_padding": False, "do_cpu_sync": False, "as_in_handle": True, "has_topk_idx": True, "places": 2,
    "dispatch_bytes": lambda *sizes: sum(sizes), "combine_bytes": lambda *sizes: sum(sizes),
}  # fmt: skip
"""Sizes with which every form of a face is met."""


NUMBERS = {
    "ELASTIC": {"num_bytes": (0, -1 << 21, (1 << 23) + 1, 1 << 20), "num_cpu_bytes": (-1 << 21, 1, 1 << 24)},
    "AGRS_CONFIG": {"num_max_session_bytes": (0, 1 << 24), "num_max_all_gathers_per_session": (0, 33)},
    "AGRS": {
        "agrs_in_session": (False,), "agrs_buffer_offset": (65,), "num_all_gathers": (3,),
        "inplace_at_its_slot": (False,),
    },
    "ELASTIC_HINT": {"num_max_tokens_per_rank": (0,), "hidden": (0,)},
    "ELASTIC_DISPATCH": {
        "num_qps": (3,), "num_experts": (0, 3), "element_size": (1.5 / 32,), "num_max_tokens_per_rank": (3,),
        "an_expert_twice": (True,), "do_zero_padding": (True,), "cached": (True,), "as_in_handle": (False,),
    },
    "ELASTIC_COMBINE": {"num_qps": (3,), "num_max_tokens_per_rank": (1 << 24,)},
    "ELASTIC_COMBINE_BY_EXPERT": {"num_qps": (3,), "places": (1 << 24,)},
    "PP_CONFIG": {"num_max_tensor_bytes": (0, 1 << 21), "num_max_inflight_tensors": (0, 1 << 20)},
    "PP": {"num_max_tensor_bytes": (0,), "peer": (0, 2)},
    "PP_TENSOR": {"nbytes": (0, 33, 96)},
}  # fmt: skip
"""By form of ElasticBuffer, what it must not take."""


def zeros(row: Row, dtype: str) -> Any:
    """Make an array as its row has it."""
    return np.zeros([4] if row.shape == ANY else [SIZES[size] for size in row.shape], getattr(ml_dtypes, dtype, dtype))


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_a_face(name: str) -> None:
    """Each number that upstream's host code asserts something of is named when it is wrong, and else passes."""
    form = FORMS[name]
    arrays = {row.name: zeros(row, row.dtypes.replace("*", "float32").split()[0]) for row in form.rows}
    form.check(name, arrays, SIZES)
    for number, wrong in NUMBERS[name].items():
        for value in wrong:
            with pytest.raises(ConfigError, match=f"{name}: .*{number}={value}.*: must have"):
                form.check(name, arrays, {**SIZES, number: value})


@pytest.mark.parametrize("name", [name for name, form in FORMS.items() if form.rows])
@given(data=st.data())
def test_every_row_of_a_face(name: str, data: st.DataObject) -> None:
    """Arrays as their rows have them pass, and one of another type, shape or layout is named, as is a missing one."""
    form = FORMS[name]
    dtypes = {row: st.sampled_from(row.dtypes.replace("*", "float32").split()) for row in form.rows}
    arrays = {row.name: zeros(row, data.draw(dtypes[row])) for row in form.rows}
    form.check(name, arrays, SIZES)
    row = data.draw(st.sampled_from(form.rows))
    array = arrays[row.name]
    wrong = [array.tolist(), *([] if row.shape == ANY else [array[..., None], array[..., :-1].copy()])]
    wrong += [] if row.dtypes == "*" else [array.astype(np.complex64)]
    wrong += [] if row.gaps else [np.repeat(array, 2, axis=-1)[..., ::2]]
    wrong += [] if row.optional else [None]
    with pytest.raises(ConfigError, match=f"{name}: {row.name} is "):
        form.check(name, {**arrays, row.name: data.draw(st.sampled_from(wrong))}, SIZES)
