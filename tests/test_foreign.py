"""Kernels in C run, are judged, timed and replayed as their Python twins are."""

import inspect
import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cli_support import python
from tests.foreign_support import PING, has_compiler, needs_compiler, ping, pong, written
from xccl_emu import lang
from xccl_emu.base.errors import KernelError
from xccl_emu.check import check, verdict
from xccl_emu.lang import abi
from xccl_emu.lang import requests as rq
from xccl_emu.lang.foreign import c_kernel, header
from xccl_emu.lang.in_turn import in_turn
from xccl_emu.machine import Pod, small_pod
from xccl_emu.machine.device.layout import ACTIONS
from xccl_emu.machine.explore import explore
from xccl_emu.machine.launch import Launch
from xccl_emu.protocol import Bench, Case, registry
from xccl_emu.testing import replay, save_witness, witness_text
from xccl_emu.timing.run import VirtualTime

SOURCE = PING.with_suffix(".c")
ORDERS = ("sc", "fifo", "relaxed", "unordered")
REQUESTS = [each for each in vars(rq).values() if inspect.isfunction(each) and each is not rq.poll_any]


def case_of(name: str, **sizes: int) -> Any:
    """A case of the example."""
    return registry.of_file(f"{PING}:{name}")(**sizes)


def twin_of(case: Any) -> Any:
    """The same case with the Python kernels."""
    kind = type(f"{type(case).__name__}Twin", (type(case),), {"kernels": (ping, pong)})
    return kind(case.chunks, case.granules)


def test_header_is_that_of_the_requests() -> None:
    """The requests of the C header are those that the Python functions make today."""
    assert header.FILE.read_text() == header.text()


@needs_compiler
@pytest.mark.nojit
@settings(max_examples=10)
@given(words=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=6, max_size=6))
def test_each_request_has_the_words_of_its_twin(words: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    """A C kernel that makes each request leaves the words that the Python function returns, and the right site."""
    listed = [inspect.signature(request).parameters for request in REQUESTS]
    counts = [len([name for name in names if name not in ("step", "sync", "order", "tentative")]) for names in listed]
    told = [f"sync{i}" for i in range(len(REQUESTS))]
    lines = [
        f'xccl_{request.__name__}({"".join(f"{name}, " for name in "abcdef"[:n])}.sync = "{sync}", .step = {n});'
        for request, n, sync in zip(REQUESTS, counts, told, strict=True)
    ]
    parameters = ", ".join(f"int64_t {name}" for name in "abcdef")
    folder = tmp_path_factory.getbasetemp()
    k = written(folder, f"XCCL_KERNEL int64_t k({parameters}) {{\n" + "\n".join(lines) + "\nreturn f;\n}")
    state = np.zeros(abi.REGISTERS + k.n_registers, np.int64)
    state[abi.REGISTERS :][:6] = words
    for number, (request, n) in enumerate(zip(REQUESTS, counts, strict=True)):
        operation = k.step(state, 0)
        assert (operation, *state[abi.REQUEST :][1:8]) == (*request(*words[:n]), number)
        site = k.sites[number]
        assert (site.operation, site.line, site.sync, site.step) == (request.__name__, number + 3, told[number], n)
    assert k.step(state, 0) == rq.OP_RETURN
    assert state[abi.REQUEST + 1] == words[5]
    assert not state[abi.REGISTERS :].any()


@needs_compiler
@pytest.mark.nojit
@settings(max_examples=10)
@given(words=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=12, max_size=12), n=st.integers(1, 4))
def test_poll_any_has_the_words_of_its_twin(words: list[int], n: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A poll_any of C has the words of the Python one, six of them behind its site; a request behind it has its own."""
    parts = [tuple(f"a{i}" for i in range(first, first + 3)) for first in range(0, 12, 3)]
    asked = [f"xccl_when({', '.join(part)})" for part in parts[:n]] + ["XCCL_UNUSED"] * (4 - n)
    parameters = ", ".join(f"int64_t a{i}" for i in range(12))
    body = f'return xccl_poll_any({", ".join(asked)}, .sync = "any");'
    k = written(tmp_path_factory.getbasetemp(), f"XCCL_KERNEL int64_t k({parameters}) {{ {body} }}")
    state = np.zeros(abi.REGISTERS + k.n_registers, np.int64)
    state[abi.REGISTERS :][:12] = words
    operation = k.step(state, 0)
    request = state[abi.REQUEST :][: abi.LONGEST_REQUEST_WORDS].tolist()
    given = [tuple(words[first : first + 3]) for first in range(0, 3 * n, 3)]
    assert [operation, *request[1:7], *request[8:14]] == list(rq.poll_any(*given))
    assert (k.sites[0].operation, k.sites[0].sync) == ("poll_any", "any")


@lang.kernel
def two_words(first, second):
    """Wait for either of two words, and then for the other."""
    which = yield lang.poll_any((first, lang.CMP_NE, 0), (second, lang.CMP_GE, 1))
    yield lang.poll_ne(second if which == 0 else first, 0)
    return which


@lang.kernel
def sets(word):
    """Set a word."""
    yield lang.put(word, 1)


TWO_WORDS = """XCCL_KERNEL int64_t k(int64_t first, int64_t second) {
    int64_t which = xccl_poll_any(xccl_when(first, XCCL_CMP_NE, 0), xccl_when(second, XCCL_CMP_GE, 1), XCCL_UNUSED,
                                  XCCL_UNUSED);
    xccl_poll_ne(which ? first : second, 0, 8, -1);
    return which;
}"""


@needs_compiler
def test_poll_any_has_the_states_of_its_twin(tmp_path: Path) -> None:
    """Brute force sees as many states of a poll_any in C as of the Python one, and random schedules end the same."""
    found = []
    for k in (written(tmp_path, TWO_WORDS), two_words):
        launches: list[Launch] = []

        def build(k: lang.Kernel = k, launches: list[Launch] = launches) -> Pod:
            pod = Pod(small_pod(1, 3), order="relaxed")
            at = pod.meta(0)
            launches.append(pod.launch(k, 0, [0], {"first": at, "second": at + 32}, [pod.grant_meta("rw")]))
            for core, word in ((1, at), (2, at + 32)):
                pod.launch(sets, 0, [core], {"word": word}, [pod.grant_meta("rw")])
            return pod

        pods = [build() for _ in range(20)]
        for seed, pod in enumerate(pods):
            pod.policy, pod.seed = "random", seed
            pod.run()
        found.append((explore(build(), seconds=60).states, [each.results for each in launches[: len(pods)]]))
    assert found[0] == found[1]


@lang.kernel
def put_word(word, value):
    """Put a word, and say so in the word behind it."""
    yield lang.put(word, value)
    yield lang.fence()
    yield lang.put(word + 32, value)


@lang.kernel
def await_word(word):
    """Wait for what is said, and return."""
    yield lang.poll_ne(word, 0)


TURNS = """XCCL_KERNEL void put_word(int64_t word, int64_t value) {
    xccl_put(word, value, 0, 0, 0);
    xccl_fence();
    xccl_put(word + 32, value, 0, 0, 0);
}
XCCL_KERNEL int64_t await_word(int64_t word) { return xccl_poll_ne(word, 0, 8, -1); }"""


@needs_compiler
@pytest.mark.parametrize("counted", [False, True])
def test_several_launches_of_a_core_are_those_of_python(counted: bool, tmp_path: Path) -> None:
    """A stream of launches of C kernels, on two cores that wait for each other, has the states of the Python one."""
    written(tmp_path, TURNS, name="put_word")
    in_c = (c_kernel(tmp_path / "put_word.c", "put_word"), c_kernel(tmp_path / "put_word.c", "await_word"))
    found = []
    for kernels in (in_c, (put_word, await_word)):

        def build(kernels: tuple[lang.Kernel, ...] = kernels) -> Pod:
            pod = Pod(small_pod(1, 2), order="relaxed")
            at, each = pod.meta(0), 3 + counted
            tables = np.zeros((2, 3, each), np.int64)
            tables[0, :, :3] = [[0, at, 7], [1, at + 96, 0], [0, at, 8]]
            tables[1, :, :3] = [[1, at + 32, 0], [0, at + 64, 9], [1, at, 0]]
            table, done = pod.put(0, tables), pod.put(0, np.zeros(4, np.int64))
            args = {"table": [table.address, table.address + tables[0].nbytes], "launches": 3}
            grants = [pod.grant_meta("rw"), pod.grant(table, "r"), pod.grant(done, "rw")]
            pod.launch(in_turn(kernels, counted), 0, [0, 1], args | ({"done": done.address} if counted else {}), grants)
            return pod

        pod = build()
        pod.run()
        found.append((explore(build(), seconds=60).states, pod.state[ACTIONS], pod.memory.tobytes()))
    assert found[0] == found[1]
    assert in_turn(in_c).in_turn == in_c
    with pytest.raises(KernelError, match="written in C"):
        assert in_turn((in_c[0], await_word)).sites


@needs_compiler
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["Ping", "Unfenced"])
def test_a_search_sees_the_same_states(name: str, order: str) -> None:
    """Search and brute force come to the same verdict by as many states as for the Python kernels.

    On the way to a violation the search may take one action more, since a C kernel counts as using what a poll returns.
    """
    case = case_of(name)
    found, wanted = (check.check(each, order=order) for each in (case, twin_of(case)))
    assert found.verdict == wanted.verdict
    if found.violation:
        assert found.violation.kind == wanted.violation.kind
        assert abs(found.states - wanted.states) <= 1
    else:
        assert (found.states, found.transitions, found.actions) == (wanted.states, wanted.transitions, wanted.actions)
    small = replace(case, chunks=1, granules=1)
    naive, twin = (explore(each.build(order, ()).pod, seconds=60) for each in (small, twin_of(small)))
    assert naive.states == twin.states
    assert found.verdict == (verdict.VIOLATION if name == "Unfenced" and order in ORDERS[2:] else verdict.VERIFIED)


@needs_compiler
@pytest.mark.nojit
@settings(max_examples=10)
@given(seed=st.integers(0, 2**32 - 1), chunks=st.integers(1, 3), granules=st.integers(1, 4))
def test_a_schedule_leaves_the_same_bytes(seed: int, chunks: int, granules: int) -> None:
    """Under the same random schedule both leave the same memory, after the same number of actions."""
    ended = []
    case = case_of("Ping", chunks=chunks, granules=granules)
    for each in (case, twin_of(case)):
        pod = each.build("relaxed", ()).pod
        pod.policy, pod.seed = "random", seed
        assert pod.run().actions
        ended.append((pod.memory[: pod.spec.memory_bytes].tobytes(), pod.state[ACTIONS]))
    assert ended[0] == ended[1]


@needs_compiler
@pytest.mark.nojit
def test_a_witness_names_the_line_in_c(tmp_path: Path) -> None:
    """Without its fence the chunk races, and the witness shows lines of ping.c and replays."""
    case = case_of("Unfenced")
    found = check.check(case)
    assert found.violation is not None
    assert found.violation.kind == verdict.DATA_RACE
    lines = enumerate(SOURCE.read_text().splitlines(), 1)
    text, line = " ".join(witness_text(case, found).split()), next(n for n, text in lines if "xccl_mtu_out" in text)
    assert f"ping.c:{line}" in text
    assert "xccl_mtu_out(0, target, nbytes);" in text
    again = replay(case, save_witness(case, found, tmp_path / "witness.json"))
    assert again is not None
    assert again.kind == verdict.DATA_RACE
    assert check.check(case_of("Ping"), without=["chunk before tail"]).violation.kind == verdict.DATA_RACE


@needs_compiler
def test_virtual_time_is_the_same() -> None:
    """A kernel in C takes the virtual time of its twin."""
    times = []
    for each in (case_of("Ping"), twin_of(case_of("Ping"))):
        pod = each.build("sc").pod
        pod.policy = VirtualTime()
        pod.run()
        times.append(pod.policy.timing.latency_us)
    assert times[0] == times[1] > 0


@needs_compiler
def test_certify_and_sampling_take_it() -> None:
    """A verdict on a kernel in C has its certificate, and sampled schedules find the race."""
    assert check.check(case_of("Ping"), certify=5).certificate.agrees
    assert check.check(case_of("Unfenced"), policy="pct", schedules=50).violation is not None


PROGRAM = """
import numpy as np
from xccl_emu.lang import abi
from xccl_emu.lang.foreign import c_kernel
k = c_kernel(FILE, "ping")
state = np.zeros(abi.REGISTERS + k.n_registers, np.int64)
state[abi.REGISTERS :][:9] = range(1, 10)
for _ in range(4):
    k.step(state, 0)
print(state.tobytes().hex())
"""


@needs_compiler
def test_states_are_the_same_in_every_process() -> None:
    """What a core keeps of its stack does not depend on where a process has its memory."""
    states = {python(f"FILE = {str(SOURCE)!r}\n{PROGRAM}").stdout for _ in range(2)}
    assert len(states) == 1
    assert len(states.pop()) > 100


@needs_compiler
@pytest.mark.nojit
def test_what_other_cores_leave_is_not_seen(tmp_path: Path) -> None:
    """A core that runs behind one with a deep stack is in the state that it would be in alone."""
    text = """
    static __attribute__((noinline)) int64_t fill(int64_t n) {
        volatile int64_t all[40];
        for (int i = 0; i < 40; i++) all[i] = n;
        xccl_quiet();
        return all[n];
    }
    XCCL_KERNEL int64_t k(int64_t deep) {
        if (deep) return fill(7);
        volatile int64_t some[4];
        some[0] = 1;
        xccl_quiet();
        return some[0];
    }"""
    k = written(tmp_path, text)
    alone, behind, deep = (np.zeros(abi.REGISTERS + k.n_registers, np.int64) for _ in range(3))
    deep[abi.REGISTERS] = 1
    k.step(alone, 0)
    k.step(deep, 0)
    k.step(behind, 0)
    assert alone.tobytes() == behind.tobytes() != deep.tobytes()


@pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: kernels in C++ are not tested here")
@pytest.mark.nojit
def test_a_kernel_may_be_cxx(tmp_path: Path) -> None:
    """A kernel in C++ may use templates and objects."""
    text = """
    template <int N> struct Sum {
        int64_t of[N];
        int64_t all() const { int64_t s = 0; for (auto x : of) s += x; return s; }
    };
    XCCL_KERNEL int64_t k(int64_t address) {
        Sum<3> sum{{address, 2, 3}};
        xccl_quiet(.sync = "here");
        return sum.all();
    }"""
    pod = Pod(small_pod(1, 1))
    launch = pod.launch(written(tmp_path, text, suffix=".cpp"), 0, [0], {"address": 5}, [])
    pod.run()
    assert launch.results == [10]
    assert launch.kernel.sites[0].sync == "here"


@pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: kernels in C++ are not tested here")
@pytest.mark.nojit
def test_member_functions_make_requests(tmp_path: Path) -> None:
    """Methods, templates of them and static ones ask as a kernel does, and each request has its place in the source."""
    text = """
    struct Word {
        int64_t at;
        void set(int64_t value) { xccl_store(at, value, 8, .sync = "set"); }
        template <class T> T get() const { return T(xccl_load(at, sizeof(T), .sync = "get")); }
        static void settle() { xccl_quiet(.sync = "settle"); }
    };
    template <class T> static T low(const Word &word) {
        return word.get<T>() + T(xccl_load(word.at, 1, .sync = "low"));
    }
    XCCL_KERNEL int64_t k(int64_t at) {
        Word word{at};
        word.set(0x107);
        Word::settle();
        xccl_quiet(.sync = "own");
        return word.get<int64_t>() + low<int16_t>(word);
    }"""
    pod = Pod(small_pod(1, 1))
    launch = pod.launch(written(tmp_path, text, suffix=".cpp"), 0, [0], {"at": pod.meta(0)}, [pod.grant_meta("rw")])
    pod.run()
    assert launch.results == [2 * 0x107 + 7]
    assert [site.sync for site in launch.kernel.sites] == ["set", "get", "get", "settle", "low", "own"]


def test_a_dsb_is_a_quiet(tmp_path: Path) -> None:
    """It asks for what a quiet asks for, by a name of hardware, and may be switched off."""
    file = tmp_path / "k.c"
    file.write_text('#include "xccl_emu.h"\nXCCL_KERNEL void k(void) { xccl_dsb(.sync = "visible"); xccl_dsb(); }\n')
    sites = [(site.operation, site.sync) for site in c_kernel(file, "k").sites]
    assert sites == [("quiet", "visible"), ("quiet", "")]


# ---- nothing that a step leaves is seen by another one

SOIL = """#include <xmmintrin.h>
static __attribute__((noinline)) int64_t soil(int64_t words, int64_t value) {
    volatile int64_t *p = __builtin_alloca(8 * words);
    for (int64_t i = 0; i < words; i++) p[i] = value;
    return p[0];
}
static __attribute__((noinline)) int64_t look(int64_t words) {
    volatile int64_t *p = __builtin_alloca(8 * words);
    int64_t seen = 0;
    for (int64_t i = 0; i < words; i++) seen |= p[i];
    return seen;
}
static int64_t rounding(void) {
    volatile double a = 0.1, b = 0.2;
    double c = a + b;
    int64_t bits;
    __builtin_memcpy(&bits, &c, 8);
    return bits == 0x3fd3333333333334;
}"""
DIRTY = f"""{SOIL}
XCCL_KERNEL void dirty(int64_t flag, int64_t words) {{
    soil(words, 0x55);
    _mm_setcsr(_mm_getcsr() | 0x6000);
    xccl_put(flag, rounding() + look(words), 0, 0, 0, .sync = "flag");
    soil(words, 0x77);
    _mm_setcsr(_mm_getcsr() | 0x6000);
}}
"""
CLEAN = f"""{SOIL}
XCCL_KERNEL void clean(int64_t flag, int64_t out, int64_t words) {{
    xccl_load(flag, 8, .sync = "look");
    int64_t seen = look(words);
    xccl_store(out, seen + rounding(), 8, .sync = "out");
}}
"""


@dataclass(frozen=True)
class Soiled(Case):
    """One core leaves what it can in the stack and in its modes; another one, or the next launch of it, looks."""

    folder: str = ""
    words: int = 1000
    alone: bool = False

    def lay_out(self, bench: Bench) -> None:
        """What is found is nothing, and sums are rounded as everywhere."""
        pod = bench.pod(small_pod(2, 1).with_(registers=160))
        out = bench.wanted(1, np.array([1]), "out")
        flag, may = pod.meta(0), [pod.grant_meta("rw"), pod.grant(out, "w")]
        clean = written(Path(self.folder), CLEAN, "clean")
        pod.launch(clean, 1, [0], {"flag": flag, "out": out.address, "words": self.words}, may)
        if not self.alone:
            pod.launch(written(Path(self.folder), DIRTY, "dirty"), 0, [0], {"flag": flag, "words": self.words}, may)


@needs_compiler
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the kernels set the rounding of SSE")
@pytest.mark.parametrize("words", [20, 20_000])
@pytest.mark.parametrize("first", ["alone", "beside"])
def test_a_verdict_does_not_depend_on_what_was_searched_before(first: str, words: int, tmp_path: Path) -> None:
    """Two searches in one process, in either order: same verdicts, states and ends; numpy rounds as it did."""
    alone, beside = (Soiled(str(tmp_path), words, one) for one in (True, False))
    found = []
    for case in (alone, beside, alone) if first == "alone" else (beside, alone, beside):
        said = check.check(case, order="relaxed")
        trial = case.build("relaxed")
        ends = explore(trial.pod, [(trial.expected[0].address, 8)], 10_000, 60)
        found.append((said.verdict, said.states, said.transitions, ends.states, {end[0] for end in ends.outcomes}))
    assert found[0] == found[2]
    assert {each[0] for each in found} == {verdict.VERIFIED}
    assert {each[4].pop() for each in found} == {1}
    assert np.float64(0.1) + np.float64(0.2) == 0.30000000000000004
