"""Kernels on real memory: bits as the emulator leaves them, missing synchronizations shown, mistakes named."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from cli_support import as_json, printed, refusal
from foreign_support import has_compiler, needs_compiler

import xccl_emu as xe
from xccl_emu.base.errors import (
    AccessError,
    ConfigError,
    DeadlockError,
    KernelArithmeticError,
    KernelError,
    RunError,
)  # fmt: skip
from xccl_emu.lang import (
    SCALAR,
    add,
    atomic_add,
    compare_swap,
    dma,
    kernel,
    load,
    poll_any,
    poll_eq,
    poll_ge,
    quiet,
    set_flag,
    store,
    wait_flag,
)  # fmt: skip
from xccl_emu.lang.requests import DMA
from xccl_emu.machine import Pod, small_pod
from xccl_emu.native import Cuda, Native, host, program
from xccl_emu.native.runs import repeat
from xccl_emu.protocol import registry

pytestmark = pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: threads are not tested here")
SOON = ("sendrecv", "mpsc-ring", "ll", "pool-put")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in SOON else pytest.mark.slow) for n in registry.names()]
)
def test_a_shipped_case_is_right_on_real_memory(name: str) -> None:
    """Threads leave the bytes that the oracle wants, in three runs of every case at its usual sizes."""
    done = repeat(xe.make(name).build("relaxed"), Native(seed=7, seconds=60), 3)
    assert (done.n_runs, done.n_bad, done.ended_by) == (3, 0, {})


def test_a_missing_synchronization_is_shown() -> None:
    """Without the poll for the tail runs of send/recv find something else in the slot, how many depends."""
    done = repeat(xe.make("sendrecv").build("relaxed", ["tail in"]), Native(), 200)
    assert done.n_bad > 0


@kernel
def ask_for_all(counter, far):
    """Atomics, polls, DMA with its event, and an answer of the environment."""
    first = yield atomic_add(counter, 5)
    yield add(counter, 2)
    yield quiet()
    swapped = yield compare_swap(counter, first + 7, 40)
    yield store(far, -3, 4)
    low = yield load(far, 4)
    yield dma(counter, far + 8, 8, event=3)
    yield wait_flag(DMA, SCALAR, 3)
    which = yield poll_any((counter, 0, 1), (far + 8, 2, 40))
    seen = yield poll_eq(far + 8, 40)
    return (swapped * 100 + seen) * 10 + which - low


@kernel
def wait_forever(word):
    yield poll_ge(word, 1, sync="never")


@kernel
def divide(word):
    value = yield load(word)
    yield store(word, 7 // value)


@kernel
def touch_the_first_die(word):
    yield load(word % 64)


@kernel
def look_anywhere(word):
    yield load(word + (1 << 60), sync="look")


@kernel
def never_wait(word):
    seen = 0
    while seen == 0:
        seen = yield load(word)


@kernel
def leave_an_event(word):
    yield set_flag(SCALAR, SCALAR, 2)
    yield load(word)


def launched(made, policy, **args):
    """Launch a kernel on the first die that may touch the second die's metadata; ``word`` is there if not given."""
    pod = Pod(small_pod(2, app_bytes=0, meta_bytes=64, managed_bytes=0), policy=policy)
    return pod, pod.launch(made, 0, [0], args or {"word": pod.meta(1)}, [pod.grant_meta("rw", 1)])


@pytest.mark.parametrize("policy", ["random", Native(seed=3)], ids=["emulator", "native"])
def test_requests_do_what_they_do_in_the_emulator(policy: object) -> None:
    """Atomics, polls and DMA return on real memory what they return in the emulator."""
    at = small_pod(2, app_bytes=0, meta_bytes=64, managed_bytes=0).die_bytes
    pod, launch = launched(ask_for_all, policy, counter=at, far=at + 16)
    pod.run()
    assert launch.results == [(7 * 100 + 40) * 10 + 1 + 3]
    assert pod.memory[at : at + 32].view(np.int64).tolist() == [40, 0, 0xFFFFFFFD, 40]


def test_a_deadlock_says_who_waits_for_what() -> None:
    """A run that does not end in time is a deadlock, and the report names kernel, synchronization and value."""
    pod, _ = launched(wait_forever, Native(seconds=0.2))
    with pytest.raises(DeadlockError, match=r"wait_forever .*sync 'never'(.|\n)*saw 0, wants >= 1"):
        pod.run()


@pytest.mark.parametrize(
    ("made", "kind", "says"),
    [
        (divide, KernelArithmeticError, "7 // value"), (leave_an_event, RunError, "event 2"),
        (touch_the_first_die, AccessError, "is not permitted; it has rw die 1"),
    ],
)  # fmt: skip
def test_a_mistake_is_the_emulators_error(made, kind: type, says: str) -> None:
    """Arithmetic, an event left set, and an address outside of all grants end a run with the emulator's own words."""
    pod, _ = launched(made, Native())
    with pytest.raises(kind) as native:
        pod.run()
    pod, _ = launched(made, "round-robin")
    with pytest.raises(kind) as emulated:
        pod.run()
    assert says in str(native.value)
    assert str(native.value) == str(emulated.value)


def test_a_load_that_is_switched_off_is_checked() -> None:
    """What is switched off still reads, so its address is held against the grants."""
    pod = Pod(small_pod(2, app_bytes=0, meta_bytes=64, managed_bytes=0), policy=Native(), without=["look"])
    pod.launch(look_anywhere, 0, [0], {"word": pod.meta(1)}, [pod.grant_meta("r", 1)])
    with pytest.raises(AccessError):
        pod.run()


def test_a_run_in_which_nobody_waits_ends_in_time() -> None:
    """A kernel that loads for ever is ended too."""
    pod, _ = launched(never_wait, Native(seconds=0.2))
    with pytest.raises(DeadlockError):
        pod.run()


def test_a_compiler_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``$CXX`` that cannot be run is an error about the compiler."""
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    host._program_of.cache_clear()
    with pytest.raises(KernelError, match="the compiler cannot be run"):
        repeat(xe.make("ll").build("relaxed"), Native(), 1)


@needs_compiler
def test_a_kernel_in_c_is_refused() -> None:
    """A kernel in C is machine code already."""
    with pytest.raises(ConfigError, match=r"is for kernels in Python, and .* is in C"):
        repeat(registry.make("examples/c_ping/ping.py:Ping").build("relaxed"), Native(), 1)


@pytest.mark.skipif(find_spec("cupy") is not None, reason="CuPy is here")
def test_a_gpu_takes_cupy() -> None:
    """Without CuPy the way to a GPU says what to install; with vector arithmetic, what is not there."""
    with pytest.raises(ConfigError, match=r"xccl_emu\[cuda\]"):
        repeat(xe.make("sendrecv").build("relaxed"), Cuda(), 1)
    with pytest.raises(ConfigError, match="no arithmetic of vectors, and dispatch asks for v_count, v_quantize"):
        repeat(xe.make("dispatch").build("relaxed"), Cuda(), 1)


def test_the_program_of_a_gpu_has_the_same_kernels() -> None:
    """Both programs differ in how they access memory alone: machine and steps are the same text."""
    kernels = xe.make("sendrecv").build("sc").pod.kernels
    both = [program.text(kernels, ("",)), program.text(kernels, ("cuda.h", "", "cuda.cu"))]
    assert both[0] in both[1]
    assert "step_send" in both[0]


def test_the_command() -> None:
    """``run --on native`` says runs, what is wrong and how long it took; its exit code is 1 if a run is wrong."""
    right = printed("run", "sendrecv", "--on", "native", "--runs", "3")
    assert "sendrecv on native" in right
    assert "3 runs in" in right
    assert right.endswith("#wrong 0\n")
    words = ("run", "sendrecv", "--on", "native", "--runs", "200", "--without", "tail in")
    wrong = as_json(*words, code=1)
    assert wrong["n_runs"] == 200
    assert wrong["n_bad"] == wrong["wrong"] + sum(wrong["ended_by"].values()) > 0
    assert wrong["machine"] == "native"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--on", "nativ"), "must be one of emulator, native, cuda; did you mean native?"),
        (("--on", "native", "--runs", "0"), "--runs 0: must be 1 or more"),
        (("--on", "native", "--order", "fifo"), "has an order and a schedule of its own"),
        (("--runs", "5"), "runs once, with all synchronizations"),
        (("--on", "native", "--without", "tails"), "sendrecv has no such synchronization, but 'tail"),
        (("--on", "native", "--runs-seed", "-1"), "must be 0 or more"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(words: tuple[str, ...], says: str) -> None:
    """What the command cannot do is refused by name, with what would be right."""
    assert says in refusal("run", "sendrecv", *words)


def test_what_does_not_run_on_real_memory_is_refused() -> None:
    """Seconds that cannot be, kernels in C, scalar caches, and a compiler that is none are refused by name."""
    with pytest.raises(ConfigError, match="seconds=0: must be more than 0, and at most"):
        Native(seconds=0)
    pod = Pod(small_pod(2, app_bytes=0, meta_bytes=64, managed_bytes=0).with_(scalar_cache=2), policy=Native())
    pod.launch(wait_forever, 0, [0], {"word": pod.meta(1)}, [pod.grant_meta("r", 1)])
    with pytest.raises(ConfigError, match="runs no pod with scalar caches"):
        pod.run()
