"""`xccl-emu explain`: who waits for whom, by the flag words of ranks that hang, in DeepEP's layout."""

import contextlib
import io
import json
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.cli_support import invoke, printed, refusal
from tests.protocols.ep_support import Case
from xccl_emu.base.errors import DeadlockError
from xccl_emu.doors.flags.layouts import LAYOUTS, Dump
from xccl_emu.doors.flags.waits import RECEIVED, SENDS, SILENT, UNKNOWN, WAITS, lines, wait_graph
from xccl_emu.kernels.deepep.dispatch import SETS
from xccl_emu.protocols.deepep.calls import LowLatency
from xccl_emu.protocols.deepep.session import DeepEpConfig

PAGE = Path(__file__).parents[1] / "docs" / "records" / "doors.md"
LAYOUT = LAYOUTS["deepep-ll"]
RANKS, LOCAL = 4, 2
CONFIG = DeepEpConfig(n_ranks=RANKS, local_experts=LOCAL, hidden=32, top_k=2, tokens_max=4, cores=2)
CASE = Case(CONFIG, "relaxed", "random", 4, ((4, 1, 3, 2), (4, 1, 3, 2)))


def at_upstream(combine: bool, source: int, expert: int) -> int:
    """The place of a word in upstream's buffer."""
    return source * LOCAL + expert if combine else expert * RANKS + source


class OfUpstream:
    """A rank of an emulated group, as a script of upstream's has it: a Buffer with memory."""

    def __init__(self, group: LowLatency, rank: int) -> None:
        self.group, self.rank, self.group_size = group, rank, RANKS
        self.low_latency_dispatch = self.low_latency_combine = lambda: None

    def get_local_buffer_tensor(self, dtype: Any, size: Any, use_rdma_buffer: bool) -> Any:
        """The first words of its memory, when they are looked at."""
        assert (dtype, use_rdma_buffer) == (np.int32, True)

        def look() -> Any:
            memory = np.full(size, 77, np.int32)  # after the words there is padding
            memory[:, : RANKS * LOCAL] = self.words()
            return SimpleNamespace(numpy=lambda: memory)

        return SimpleNamespace(cpu=look)

    def words(self) -> NDArray[np.int32]:
        """[2, experts] its words, where upstream has them."""
        group, found = self.group, np.zeros((SETS, RANKS * LOCAL), np.int32)
        for number, signals in enumerate(group.layout.signals):
            address = group.pod.address(group.die_of(self.rank), 0) - group.pod.address(0, 0)
            at = group.pod.span(group.layout.first(signals) + address, RANKS * LOCAL * 8).view(np.int64)
            for i in np.flatnonzero(at).tolist():
                found[number, at_upstream(at[i] > 0, *divmod(i, LOCAL))] = at[i]
        return found


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[[], None]]:
    """The script of the page, in a process without a device."""
    (script,) = [each for each in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.S) if "savez" in each]
    script_lines = script.strip().splitlines()
    assert len([line for line in script_lines if line]) <= 20
    device = SimpleNamespace(Stream=object, stream=lambda _: contextlib.nullcontext())
    torch: Any = SimpleNamespace(int32=np.int32, Size=tuple, cuda=device)
    monkeypatch.setitem(sys.modules, "torch", torch)
    names: dict[str, Any] = {}
    exec("\n".join(script_lines[:-1]), names)  # the last line starts the thread
    made: Callable[..., Callable[[], None]] = names["flag_writer"]
    return made


def hung(writer: Callable[..., Callable[[], None]], folder: Path, absent: int, before: int) -> list[str]:
    """The files of a job in which a rank makes so many calls, and no other one after them."""
    group: LowLatency = CASE.group(made=LowLatency)
    buffers = [OfUpstream(group, rank) for rank in range(RANKS)]
    writes = [writer(buffer, RANKS * LOCAL, str(folder / "flags-{}.npz")) for buffer in buffers]
    batch, launch = CASE.batches()[0], group.pod.launch

    def launched(kernel: Any, die: int, *words: Any, **named: Any) -> None:
        if die != group.die_of(absent):
            launch(kernel, die, *words, **named)

    handle: Any = None
    for call in range(before + 1):
        if call == before:
            group.pod.launch = launched  # type: ignore[method-assign]
        for buffer in buffers:
            if call < before or buffer.rank != absent:
                (buffer.low_latency_combine if call % 2 else buffer.low_latency_dispatch)()
        with pytest.raises(DeadlockError) if call == before else contextlib.nullcontext():
            if call % 2:
                group.combine_whole(handle, batch.weights)
            else:
                handle, _ = group.dispatch_whole(batch.tokens, batch.topk)
    for write in writes:
        write()
    return [str(folder / f"flags-{rank}.npz") for rank in range(RANKS)]


@pytest.mark.parametrize(("before", "call"), [(0, "dispatch"), (1, "combine"), (2, "dispatch"), (3, "combine")])
def test_a_hang_of_our_own(writer: Any, tmp_path: Path, before: int, call: str) -> None:
    """A rank of the emulated protocol makes no call more: by the words that the script of the page writes it is named,
    with what each other one waits for."""
    absent = 2
    files = hung(writer, tmp_path, absent, before)
    code, said, _ = invoke("explain", *files)
    assert code == 1
    expected = f"look at rank {absent} first: ranks 0-1, 3 wait for it, and it for nobody"
    assert said.splitlines()[-1] == expected
    for rank in (0, 1, 3):
        experts = f"own experts {rank * 2}-{rank * 2 + 1}" if call == "dispatch" else "its experts 4-5"
        what = "counts" if call == "dispatch" else "flags"
        assert re.search(rf"rank {rank} waits in {call} \(buffer \d\) for the {what} of rank 2 for {experts}: ", said)
    told = json.loads(invoke("explain", *files, "--json")[1])
    assert [each["does"] for each in told["ranks"]] == [WAITS, WAITS, RECEIVED if before else SILENT, WAITS]
    assert [each["calls"] for each in told["ranks"]] == [before + 1, before + 1, before, before + 1]
    assert (told["look_at"], told["cycles"], told["wrong_words"]) == ([absent], [], [])


def whole(calls: int = 2) -> dict[str, Any]:
    """A dump after so many calls that all have received."""
    arrays: dict[str, Any] = {"num_ranks": RANKS, "num_experts": RANKS * LOCAL}
    for rank in range(RANKS):
        words = arrays[f"rank{rank}/signals"] = np.zeros((2, RANKS * LOCAL), np.int32)
        if calls:
            words[(calls - 1) % 2] = 1 if calls % 2 == 0 else -3
    return arrays


def explained(folder: Path, arrays: dict[str, Any]) -> tuple[int, str]:
    np.savez(folder / "dump.npz", **arrays)
    return invoke("explain", str(folder / "dump.npz"))[:2]


@pytest.mark.parametrize("calls", [0, 1, 2])
def test_nobody_waits(tmp_path: Path, calls: int) -> None:
    """After calls that all have received, or before the first one, the exit code is 0."""
    code, said = explained(tmp_path, whole(calls))
    assert code == 0
    assert said.splitlines()[-1].startswith("nobody waits")


EDITS = {
    "a flag of 2": (
        2, (1, 1, 5, 2), "rank 1, buffer 1, word 5 is 2: the place of a flag of rank 2 in combine must be 1: it was"
    ),
    "a count among flags": (
        2, (3, 1, 0, -4), "the place of a flag of rank 0 in combine has a count, as dispatch sends it: ranks are in"
    ),
    "a flag among counts": (
        1, (0, 0, 7, 1), "rank 0, buffer 0, word 7 is 1: the place of a count of rank 3 in dispatch has a flag"
    ),
    "a count that no call has": (
        1, (0, 0, 6, 9), "the place of a count of rank 2 in dispatch must be -n - 1 for n tokens, at most 8"
    ),
    "too many tokens": (1, (0, 0, 6, -10), "must be -n - 1 for n tokens, at most 8"),
    "a count that did not come": (
        1, (3, 0, 1, 0),
        "rank 3 waits in dispatch (buffer 0) for the counts of rank 1 for own experts 6: 1 of 2 have come, and rank 1 "
        "has sent them in its dispatch, and waits for nobody: the words are lost or on their way",
    ),
    "an own count that did not come": (1, (1, 0, 5, 0), "rank 1 is sending yet in dispatch (buffer 0)"),
}  # fmt: skip
"""How many calls were made, the rank, buffer, word and value of the one word that is changed, and what is said."""


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_dump(tmp_path: Path, name: str) -> None:
    """One word is changed in a dump in which nobody waits: it is found, and named."""
    calls, (rank, buffer, word, value), said = EDITS[name]
    arrays = whole(calls) | {"num_max_dispatch_tokens_per_rank": 8}
    arrays[f"rank{rank}/signals"][buffer, word] = value
    code, out = explained(tmp_path, arrays)
    assert said in out
    assert code == 1


def test_words_of_both_calls(tmp_path: Path) -> None:
    """A rank whose buffer of the call before was never cleaned has its own words in both."""
    arrays = whole(2)
    arrays["rank1/signals"][0] = -1
    code, out = explained(tmp_path, arrays)
    assert "rank 1, buffer 1, word 2 is 1: its own words are in both buffers: one was not cleaned" in out
    assert code == 1


def test_lost_words_make_a_cycle(tmp_path: Path) -> None:
    """Rank 0 never gets the counts of rank 3, which goes on and waits for the flags of rank 0."""
    arrays = whole(2)
    arrays["rank0/signals"][:] = [-3] * 8, [0, 0, 1, 1, 1, 1, 1, 1]
    arrays["rank0/signals"][0, [3, 7]] = 0
    for rank in (1, 2, 3):
        arrays[f"rank{rank}/signals"][1, :2] = 0
    out = explained(tmp_path, arrays)[1]
    first = "rank 0 waits in dispatch (buffer 0) for the counts of rank 3 for own experts 0-1: rank 3 has sent its next"
    assert first in out
    assert "rank 3 waits in combine (buffer 1) for the flags of rank 0 for its experts 0-1: rank 0 has not sent" in out
    assert "its dispatch before that (buffer 0) has not ended, it waits for rank 3" in out
    assert "ranks 0, 3 wait for each other" in out


def test_ranks_that_are_missing_or_masked(tmp_path: Path) -> None:
    """A rank without a dump is where to look; one that is masked is not waited for."""
    arrays = whole(1)
    for rank in (0, 1, 2):
        arrays[f"rank{rank}/signals"][0, [3, 7]] = 0
    del arrays["rank3/signals"]
    code, out = explained(tmp_path, arrays)
    assert "there is no dump of rank 3: its process may have ended" in out
    assert "look at rank 3 first: ranks 0-2 wait for it, and it for nobody" in out
    for rank in (0, 1, 2):
        arrays[f"rank{rank}/mask"] = np.array([0, 0, 0, 1], np.int32)
    assert (code, explained(tmp_path, arrays)[0]) == (1, 0)


def test_who_leaves_a_rank_out_sends_it_nothing(tmp_path: Path) -> None:
    """A rank that waits for one by which it is masked hears so, and of no lost words."""
    arrays = whole(1)
    arrays["rank1/signals"][0, [0, 4]] = 0
    arrays["rank0/mask"] = np.array([0, 1, 0, 0], np.int32)
    out = explained(tmp_path, arrays)[1]
    assert "rank 0 has left rank 1 out, and sends it nothing" in out
    assert "lost" not in out


def test_only_the_rank_that_is_awaited_is_there(tmp_path: Path) -> None:
    """Ranks without a dump whose words are in the buffer of a call that this one has not begun wait for it."""
    arrays = whole(1)
    for rank in (0, 1, 3):
        del arrays[f"rank{rank}/signals"]
    arrays["rank2/signals"][1, [0, 1, 6, 7]] = 1
    code, out = explained(tmp_path, arrays)
    assert "rank 0, without a dump, waits in combine (buffer 1) for the flags of rank 2 for its experts 4-5: " in out
    assert out.splitlines()[-1] == "look at rank 2 first: ranks 0, 3 wait for it, and it for nobody"
    assert code == 1


# ---- any hang


class Model:
    """Ranks that call as upstream's do, each until it stops; what they then wait for is known from what they do."""

    def __init__(self, local: int, ranks: int) -> None:
        self.local, self.n = local, ranks
        self.words = np.zeros((ranks, 2, ranks * local), np.int32)
        self.called, self.sent = np.zeros((2, ranks), int)

    def steps(self, rank: int) -> Iterator[bool]:
        """Make calls; each step says whether the rank could go on."""
        for call in range(1 << 30):
            self.words[rank, (call + 1) % 2] = 0
            self.sent[rank], self.called[rank] = 0, call + 1
            yield True
            for other in [*(each for each in range(self.n) if each != rank), rank]:
                for expert in range(self.local):
                    place = rank * self.local + expert if call % 2 else expert * self.n + rank
                    self.words[other, call % 2, place] = 1 if call % 2 else -expert - 1
                    self.sent[rank] += other == rank
                    yield True
            while self.missing(rank):
                yield False

    def missing(self, rank: int) -> list[int]:
        """Ranks whose words of its call a rank has not."""
        call = self.called[rank] - 1
        grid = self.words[rank, call % 2].reshape((self.n, self.local) if call % 2 else (self.local, self.n))
        return np.flatnonzero((grid == 0).any(1 if call % 2 else 0)).tolist()

    def does(self, rank: int) -> str:
        """What it does, by what it has done."""
        if self.sent[rank] < self.local:
            return SENDS if self.sent[rank] else SILENT
        return WAITS if self.missing(rank) else RECEIVED


@settings(max_examples=60)
@given(st.integers(1, 5), st.integers(1, 3), st.data())
def test_any_hang(ranks: int, local: int, data: st.DataObject) -> None:
    """Ranks make calls in any order, and stop anywhere: what each does, for whom it waits, and where to look."""
    model = Model(local, ranks)
    left = data.draw(st.lists(st.integers(0, 60), min_size=ranks, max_size=ranks))
    steps, stuck = [model.steps(rank) for rank in range(ranks)], 0
    rng = data.draw(st.randoms(use_true_random=False))
    while any(left) and stuck < 200:
        rank = rng.choice([rank for rank in range(ranks) if left[rank]])
        moved = next(steps[rank])
        left[rank] -= moved
        stuck = 0 if moved else stuck + 1
    numbers = {"num_ranks": ranks, "num_experts": ranks * local}
    graph = wait_graph("deepep-ll", Dump(LAYOUT, numbers, {r: {"signals": model.words[r]} for r in range(ranks)}))
    does = [model.does(rank) for rank in range(ranks)]
    assert [state.does for state in graph.ranks] == does
    waits_for = {rank: model.missing(rank) if does[rank] == WAITS else [] for rank in range(ranks)}
    assert {state.rank: [each.rank for each in state.waits_for] for state in graph.ranks} == waits_for
    awaited = {other for others in waits_for.values() for other in others}
    assert graph.look_at == sorted(rank for rank in awaited if not waits_for[rank])
    assert (graph.cycles, graph.wrong_words) == ([], [])


@settings(max_examples=100)
@given(st.integers(1, 4), st.integers(1, 3), st.data())
def test_any_words(ranks: int, local: int, data: st.DataObject) -> None:
    """Whatever the words are, each that is no word of its call is named once, and a line says what each rank awaits."""
    value = st.one_of(st.sampled_from([0, 1, -1, -3]), st.integers(-(1 << 31), (1 << 31) - 1))
    words = st.lists(value, min_size=2 * ranks * local, max_size=2 * ranks * local)
    dumped = data.draw(st.sets(st.integers(0, ranks - 1), min_size=1))
    own = {rank: {"signals": np.array(data.draw(words), np.int32).reshape(2, -1)} for rank in dumped}
    graph = wait_graph("deepep-ll", Dump(LAYOUT, {"num_ranks": ranks, "num_experts": ranks * local}, own))
    for rank, arrays in own.items():
        named = {(each.buffer, each.index) for each in graph.wrong_words if each.rank == rank}
        for at in zip(*np.nonzero(arrays["signals"] > 1), strict=True):
            assert tuple(map(int, at)) in named
    said = "\n".join(lines(graph))
    for state in graph.ranks:
        assert state.does in (WAITS, UNKNOWN) if state.waits_for else state.does != WAITS
        assert bool(state.waits_for) == bool(re.search(rf"rank {state.rank}(, without a dump,)? waits in", said))
    assert graph.is_at_rest() == ("nobody waits: " in said)


# ---- what is refused


WRONG = {
    "num_ranks=None": ({"num_ranks": None}, "num_ranks is missing; it must be [] int64 or"),
    "num_ranks=3": ({"num_ranks": 3}, "num_experts=8, num_ranks=3: must have num_experts % num_ranks == 0"),
    "num_ranks=0": ({"num_ranks": 0}, "num_ranks=0: must have 1 <= num_ranks <= 4096"),
    **{
        f"{name}={value}": ({prefix + name: np.int64(value)}, f"{name}={value}: must have {must}")
        for prefix, name, must, values in (
            ("", "num_max_dispatch_tokens_per_rank", "1 <= num_max_dispatch_tokens_per_rank < 2147483648",
             (-(1 << 63), -1, 0, 1 << 31)),
            ("rank1/", "calls", "0 <= calls", (-1,)),
        )
        for value in values
    },
    "a list": ({"num_ranks": [4]}, "num_ranks is [1] int64; it must be [] int64"),
    "a row short": ({"rank1/signals": np.zeros((2, 7), np.int32)},
                    "rank1: signals is [2, 7] int32; it must be [2, num_experts=8] int32"),
    "floats": ({"rank1/signals": np.zeros((2, 8))}, "rank1: signals is [2, 8] float64; it must be"),
    "a rank too many": ({"rank4/signals": np.zeros((2, 8), np.int32)}, "rank4: must be a rank of num_ranks=4, from 0"),
    "another name": ({"rank1/words": np.zeros(2)}, "words: there is no such array; there are signals, calls, mask"),
    "no rank's": ({"signals": np.zeros(2)}, "signals: there is no such array; there are num_ranks, num_experts"),
    "no ranks": ({f"rank{r}/signals": None for r in range(4)}, "has no rank; its arrays must have names such as"),
    "a mask of three": ({"rank1/mask": np.zeros(3, np.int32)}, "rank1: mask is [3] int32; it must be [num_ranks=4]"),
    "objects": ({"rank1/signals": np.array([None, 1])}, "must be a file that numpy.savez wrote"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_dump_that_is_none(tmp_path: Path, name: str) -> None:
    """A wrong array is named, with what it must be, and the exit code is 2."""
    changed, said = WRONG[name]
    arrays = {name: each for name, each in {**whole(1), **changed}.items() if each is not None}
    np.savez(tmp_path / "dump.npz", **arrays)
    out = refusal("explain", str(tmp_path / "dump.npz"))
    assert said in out


def test_files_that_are_none(tmp_path: Path) -> None:
    """No file, another file, one that is cut, ranks twice, and ranks that call with other sizes."""
    here, other = tmp_path / "dump.npz", tmp_path / "other.npz"
    np.savez(here, **whole(1))
    assert "none.npz: must be a file that numpy.savez wrote (No such file or directory)" in refusal(
        "explain", str(tmp_path / "none.npz")
    )
    other.write_bytes(here.read_bytes()[:-100])
    assert "other.npz: must be a file that numpy.savez wrote" in refusal("explain", str(other))
    np.savez(other, **whole(1))
    assert "other.npz: rank0: must be in one of the files only" in refusal("explain", str(here), str(other))
    np.savez(other, **{"num_ranks": 4, "num_experts": 16})
    assert "num_experts is 16 here, and 8 in" in refusal("explain", str(here), str(other))
    assert "--layout deepep: must be one of deepep-ll" in refusal("explain", str(here), "--layout", "deepep")
    assert "FILE: must be a dump" in refusal("explain", "--json")
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i4", "fortran_order": False, "shape": (1 << 50,)})
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("num_ranks.npy", header.getvalue())
    assert "other.npz: must be a file that numpy.savez wrote" in refusal("explain", str(other))


def test_help_has_all_arrays() -> None:
    """Each array of a layout, and each layout, is in the help and on the page."""
    said, page = printed("explain", "--help"), PAGE.read_text("utf-8")
    for name, layout in LAYOUTS.items():
        assert name in said.replace("\n  ", "").replace("deepep- ll", "deepep-ll")
        for row in (*layout.common.rows, *layout.of_rank.rows):
            assert row.name in said
            assert row.name in page
