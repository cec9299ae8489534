"""Kernels on real memory: bits as the emulator leaves them, missing synchronizations shown, mistakes named."""

import ctypes
import shutil
import signal
import subprocess
import sys
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
    cpp,
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
from xccl_emu.machine import Pod, driver, small_pod
from xccl_emu.machine.device.layout import ENDED_DONE
from xccl_emu.native import Cuda, Native, cuda, host, program
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


def test_what_is_copied_is_counted_as_in_the_emulator() -> None:
    """Bytes of each pipe are the emulator's, by mtu and by DMA; GB/s are these by the seconds of this computer."""
    for path in ("mtu", "dma"):
        emulated = xe.make("sendrecv", path=path).build("relaxed").pod.run()
        trial = xe.make("sendrecv", path=path).build("relaxed")
        done = repeat(trial, Native(), 2)
        assert driver.outcome(trial.pod, ENDED_DONE, 1.0).bytes_by_pipe == emulated.bytes_by_pipe
        assert done.copied_bytes == 2 * emulated.copied_bytes > 0
        assert done.gb_per_s == done.copied_bytes / 1e9 / done.run_seconds


def test_ctrl_c_ends_a_run() -> None:
    """What a signal's handler raises during a run ends it, long before the time of the run is over."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    pod, _ = launched(wait_forever, Native(seconds=100_000))
    pod.policy.look(pod)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            pod.run()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_no_run_begins_when_the_time_is_over() -> None:
    """A limit of seconds ends the runs after the one that is under way."""
    assert repeat(xe.make("sendrecv").build("relaxed"), Native(), 1000, seconds=1e-9).n_runs == 1


def test_no_folder_for_the_program_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a folder for temporary files it is said that the program cannot be loaded from there."""
    monkeypatch.setattr(host.tempfile, "tempdir", str(tmp_path / "none"))
    host._program_of.cache_clear()
    with pytest.raises(KernelError, match="no program can be loaded from the folder of temporary files"):
        repeat(xe.make("ll").build("relaxed"), Native(), 1)


def test_a_cache_that_cannot_be_written_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where nothing can be kept that is a warning, and the program runs."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(host._machine_code, "folder", lambda: tmp_path / "file")
    host._program_of.cache_clear()
    with pytest.warns(RuntimeWarning, match="compiled code cannot be kept"):
        assert repeat(xe.make("ll").build("relaxed"), Native(), 1).n_bad == 0


def _to_arm() -> list[str]:
    """A compiler of this computer that makes code for Arm, or an empty list."""
    if there := shutil.which("aarch64-linux-gnu-g++"):
        return [there]
    zig = [sys.executable, "-m", "ziglang", "c++", "-target", "aarch64-linux-gnu"]
    return zig if find_spec("ziglang") else []


@pytest.mark.skipif(not _to_arm(), reason="no compiler for Arm: the program is not compiled for it here")
def test_the_program_compiles_for_arm(tmp_path: Path) -> None:
    """The program of a case becomes code for Arm with its barriers and loads that acquire; it is not run."""
    kernels = xe.make("sendrecv").build("sc").pod.kernels
    made = tmp_path / "program.s"
    command = [*_to_arm(), *(flag for flag in host.FLAGS if flag != "-shared"), "-S", "-o", str(made)]
    subprocess.run(command, input=program.text(kernels, host._PARTS), text=True, check=True)
    words = made.read_text().split()
    assert "dmb" in words
    assert {"ldar", "ldapr"} & {*words}


_QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
_MAIN = """
#include <cstdio>
int main(int, char **files) {  // from a file: words of a pod, cores, memory; to another: what a run leaves
  word sizes[3];
  FILE *from = fopen(files[1], "rb"), *to = fopen(files[2], "wb");
  fread(sizes, 8, 3, from);
  std::vector<word> state(sizes[0]), cores(sizes[1]), memory(sizes[2] / 8);
  for (auto *each : {&state, &cores, &memory}) fread(each->data(), 8, each->size(), from);
  int stop = 0;
  Machine machine{(char *)memory.data(), sizes[2], state.data(), sizes[0], 60000000000ll, &stop};
  Python none{[]() -> void * { return nullptr; }, [](void *) {}, [] { return 0; }};
  xccl_run(&machine, cores.data(), sizes[1], 7, &none);
  fwrite(state.data(), 8, state.size(), to), fwrite(memory.data(), 8, memory.size(), to);
  return fclose(to) || stop;
}
"""


@pytest.mark.nightly
@pytest.mark.skipif(not (_QEMU and _to_arm()), reason="no qemu-aarch64 or no compiler for Arm: it is not run here")
@pytest.mark.parametrize("name", ["sendrecv", "ll", "dispatch", "combine-int8", "all-reduce-two-shot"])
def test_an_emulated_arm_is_right(name: str, tmp_path: Path) -> None:
    """The program of a case, its vectors too, leaves the oracle's bytes on an Arm processor that QEMU emulates."""
    trial = xe.make(name).build("relaxed")
    pod, made, given, left = trial.pod, *(tmp_path / part for part in ("program", "given", "left"))
    pod.activate()
    assert dict(trial.wrong_bytes()) != {}
    cores = np.array(pod.active_cores(), np.int64)
    sizes = np.array([pod.state.size, cores.size, pod.memory.size], np.int64)
    given.write_bytes(b"".join(each.tobytes() for each in (sizes, pod.state, cores, pod.memory)))
    flags = [flag for flag in host.FLAGS if flag not in ("-shared", "-fPIC")]
    text = program.text(pod.kernels, host._PARTS) + _MAIN
    subprocess.run([*_to_arm(), *flags, "-static", "-o", str(made)], input=text, text=True, check=True)
    subprocess.run([str(_QEMU), str(made), str(given), str(left)], check=True, timeout=120)
    found = np.fromfile(left, np.int64)
    pod.state[:], pod.memory[:] = found[: pod.state.size], found[pod.state.size :].view(np.uint8)
    assert dict(trial.wrong_bytes()) == {}


def _nvrtc() -> str:
    """NVIDIA's runtime compiler, as a package of the registry brings it; empty if there is none."""
    spec = find_spec("nvidia")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return next((str(p) for folder in folders for p in Path(folder).glob("*/lib/libnvrtc.so.*")), "")


def _compiled_for_gpu(text: str, architecture: str) -> str:
    """Compile a program by NVRTC with the options of `Cuda`; return what it says, nothing if all is well."""
    nvrtc, made, size = ctypes.CDLL(_nvrtc()), ctypes.c_void_p(), ctypes.c_size_t()
    nvrtc.nvrtcCreateProgram(ctypes.byref(made), text.encode(), b"program.cu", 0, None, None)
    options = [option.encode() for option in (*cuda.FLAGS, "-w", f"-arch={architecture}")]
    failed = nvrtc.nvrtcCompileProgram(made, len(options), (ctypes.c_char_p * len(options))(*options))
    nvrtc.nvrtcGetProgramLogSize(made, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(made, log)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(made))
    return f"{failed}: {log.value.decode()}" if failed else ""


@pytest.mark.nightly
@pytest.mark.skipif(not _nvrtc(), reason="no NVRTC (pip install nvidia-cuda-nvrtc): no program of a GPU is compiled")
@pytest.mark.parametrize("name", registry.names())
def test_the_program_of_a_gpu_compiles(name: str) -> None:
    """NVIDIA's compiler takes the program of every shipped case, that of send/recv to the GPU's own code."""
    text = program.text(xe.make(name).build("sc").pod.kernels, cuda._PARTS)
    assert _compiled_for_gpu(text, "sm_90" if name == "sendrecv" else "compute_90") == ""


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
    """Without CuPy the way to a GPU says what to install."""
    with pytest.raises(ConfigError, match=r"xccl_emu\[cuda\]"):
        repeat(xe.make("sendrecv").build("relaxed"), Cuda(), 1)


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
    assert "GB/s, this computer's" in right
    assert right.endswith("#wrong 0\n")
    words = ("run", "sendrecv", "--on", "native", "--runs", "200", "--without", "tail in")
    wrong = as_json(*words, code=1)
    assert wrong["n_runs"] == 200
    assert wrong["n_bad"] == wrong["wrong"] + sum(wrong["ended_by"].values()) > 0
    assert wrong["machine"] == "native"


def test_runs_that_fail_say_why() -> None:
    """The first run that did not end is reported whole: who waits for what, and where; there are no GB/s then."""
    words = ("run", "sendrecv", "--on", "native", "--runs", "2", "--runs-seconds", "0.2", "--without", "tail")
    shown = printed(*words, code=1)
    assert "FAILED: 2 runs: deadlock" in shown
    assert "kernel recv" in shown
    assert "sync 'tail in'" in shown
    assert "GB/s" not in shown
    assert as_json(*words, code=1)["gb_per_s"] is None


def test_a_kernel_is_printed_as_cpp() -> None:
    """What is printed is the text that is compiled, with the line of Python of each request."""
    shown = printed("run", "sendrecv", "--cpp", "recv")
    kernels = {each.name: each for each in xe.make("sendrecv").build("sc").pod.kernels}
    assert shown == cpp.steps([kernels["recv"]]) + "\n"
    assert "('tail in')" in shown
    assert "v_step_send" not in shown


def test_the_judge_and_this_machine_in_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``check --on native`` says what the judge needed and how often threads went wrong; JSON has the runs whole."""
    monkeypatch.chdir(tmp_path)
    words = ("check", "sendrecv", "--slots", "1", "--chunks", "2", "--on", "native", "--runs", "5")
    shown = " ".join(printed(*words, "--confirm-seconds", "0").split())
    assert "side by side: the judge: verified, " in shown
    assert "; native 0 of 5 runs wrong, in " in shown
    wrong = as_json(*words, "--without", "ack", code=1)
    assert wrong["violation"]["kind"] == "deadlock"
    assert (wrong["on_real"]["n_bad"], wrong["on_real"]["first_bad"]) == (5, 1)
    assert as_json(*words, "--confirm-seconds", "0")["on_real"]["first_bad"] is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--on", "emulator"), "must be one of native, cuda"),
        (("--runs", "5"), "--runs 5: needs --on native or --on cuda"),
        (("--on", "native", "--runs", "0"), "greater than or equal to 1, not 0"),
        (("--on", "native", "--fault", "stop:die1"), "cannot be combined with --fault"),
        (("--on", "native", "--each-sync"), "cannot be combined with --each-sync"),
        (("--on", "native", "--scalar-cache", "8"), "runs no pod with scalar caches"),
    ],
)  # fmt: skip
def test_a_check_that_does_not_go_with_real_memory_is_refused(words: tuple[str, ...], says: str) -> None:
    """What runs on real memory cannot judge is refused before anything is searched."""
    assert says in refusal("check", "sendrecv", *words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--on", "nativ"), "must be one of emulator, native, cuda; did you mean native?"),
        (("--on", "native", "--runs", "0"), "--runs 0: must be 1 or more"),
        (("--on", "native", "--order", "fifo"), "has an order and a schedule of its own"),
        (("--runs", "5"), "runs once, with all synchronizations"),
        (("--on", "native", "--without", "tails"), "sendrecv has no such synchronization, but 'tail"),
        (("--on", "native", "--runs-seed", "-1"), "must be 0 or more"),
        (("--on", "native", "--runs-seconds", "nan"), "must be more than 0, and at most 1000000"),
        (("--on", "native", "--rounds", "100000"), "at most 65536; --runs 100000 runs it so often on real memory"),
        (("--runs-seconds", "3"), "runs once, with all synchronizations"),
        (("--cpp", "sent"), "must be one of send, recv"),
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
