"""What goes wrong in a kernel in C ends a run or a check by a typed error with its line, never the process."""

import os
import platform
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli_support import python
from tests.foreign_support import needs_compiler, written
from xccl_emu.base import errors
from xccl_emu.check import check, verdict
from xccl_emu.lang import kernel, store
from xccl_emu.lang.foreign import c_kernel, compiler
from xccl_emu.lang.in_turn import in_turn
from xccl_emu.machine import Pod, small_pod
from xccl_emu.protocol import Bench, Case

pytestmark = needs_compiler

DIVE = "static __attribute__((noinline)) int64_t dive(int64_t n) { volatile int64_t x = n; return dive(n + 1) + x; }\n"
FAULTS = {
    "live": ("volatile char b[4096]; b[a] = 1; xccl_quiet(); return b[5];", "more of its stack is live"),
    "calls": ("xccl_quiet(); return dive(a);", "more of its stack is live"),
    "frame": ("xccl_quiet(); volatile char b[4 << 20]; b[a] = 1; return b[a];", "more of its stack is live"),
    "pointer": ("xccl_quiet(); *(volatile int *)a = 1; return 0;", "touched memory that is not its own"),
    "jump": ("xccl_quiet(); ((void (*)(void))a)(); return 0;", "touched memory that is not its own"),
    "abort": ("xccl_quiet(); __builtin_abort();", "called abort"),
    "trap": ("xccl_quiet(); __builtin_trap();", "called abort"),
    "loop": ('xccl_quiet(); for (;;) __asm__ volatile("");', "without a request"),
    "empty loop": ("xccl_quiet(); for (;;) {}", "without a request"),
    "loop on what does not change": ("xccl_quiet(); while (!a) {} return a;", "without a request"),
    "back to itself": ("if (a) xccl_quiet(); again: if (!a) goto again;", "without a request"),
    "spin": ("xccl_quiet(); volatile int64_t x = a; while (!x) {} return x;", "without a request"),
}


@dataclass(frozen=True)
class Alone(Case):
    """One core runs a kernel of one parameter, which is 0."""

    folder: str = ""
    body: str = ""

    def lay_out(self, bench: Bench) -> None:
        """Nothing but the launch."""
        pod = bench.pod(small_pod(1, 1))
        text = f"{DIVE}XCCL_KERNEL int64_t k(int64_t a) {{ {self.body} }}"
        pod.launch(written(Path(self.folder), text), 0, [0], {"a": 0}, [])


@pytest.mark.nojit
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_an_error_with_a_line(name: str, tmp_path: Path) -> None:
    """A run ends by an error that names the kernel's line; the next run is not disturbed."""
    body, told = FAULTS[name]
    for _ in range(2):
        with pytest.raises(errors.KernelFaultError, match=rf"k\.c:3\).*{told}"):
            Alone(str(tmp_path), body).build("sc").pod.run()
    fine = Alone(str(tmp_path), "return a + 41;").build("sc").pod
    launch = fine.launch_of(0)
    fine.run()
    assert launch is not None
    assert launch.results == [41]


OTHERS = """
import ctypes
from pathlib import Path
from tests.test_foreign_refused import FAULTS, Alone
from xccl_emu.base import errors
try:
    Alone({folder!r}, FAULTS["pointer"][0]).build("sc").pod.run()
except errors.KernelFaultError:
    print("told", flush=True)
ctypes.string_at(0)
"""


def test_a_fault_of_somebody_else_is_not_taken_for_one(tmp_path: Path) -> None:
    """When a kernel has faulted, a fault that no kernel raises still ends the process as it did before."""
    done = python(OTHERS.format(folder=str(tmp_path)), env={**os.environ, "NUMBA_DISABLE_JIT": "1"})
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "told\n"), done.stderr


@pytest.mark.parametrize("name", ["pointer", "loop", "calls"])
@pytest.mark.parametrize("policy", ["exhaustive", "random"])
def test_a_fault_is_a_violation(name: str, policy: str, tmp_path: Path) -> None:
    """Search and sampled schedules tell a fault as a violation of its own kind."""
    found = check.check(Alone(str(tmp_path), FAULTS[name][0]), policy=policy)
    assert found.violation is not None
    assert found.violation.kind == verdict.KERNEL_FAULT
    assert "k.c:3" in found.violation.message


@pytest.mark.nojit
def test_division_by_zero_is_failed_arithmetic(tmp_path: Path) -> None:
    """A division by zero is what it is in Python kernels (an ARM processor makes 0 of it)."""
    if platform.machine() != "x86_64":
        pytest.skip("no fault on this processor")
    with pytest.raises(errors.KernelArithmeticError, match="division by zero"):
        Alone(str(tmp_path), "xccl_quiet(); return 7 / a;").build("sc").pod.run()


REFUSED = {
    "global": ("static int64_t n;\nXCCL_KERNEL int64_t k(void) { return n++; }", r"k\.c:2: 'n' is global or static"),
    "local static": (
        "XCCL_KERNEL int64_t k(void) { static int64_t n; return n++; }",
        r"k\.c:2: 'n' is global or static",
    ),
    "library": ("#include <stdlib.h>\nXCCL_KERNEL int64_t k(void) { return !malloc(9); }", r"k\.c:3.*`malloc'"),
    "syntax": ("XCCL_KERNEL void k(void) { 1 +; }", r"k\.c:2:\d+: error"),
    "operand": ("XCCL_KERNEL void k(void) { xccl_load(1); }", r"k\.c:2.*error"),
    "not constant": ("XCCL_KERNEL void k(int64_t a) { xccl_quiet(.step = a); }", r"k\.c:2:\d+: error"),
    "order": ('XCCL_KERNEL void k(void) { xccl_put(0, 1, 0, 0, 0, .order = "late"); }', r"k\.c:2: order='late'"),
    "parameter": ("XCCL_KERNEL void k(int64_t a, int b) { }", r"k\.c:2: parameter `int b`"),
    "no kernel": ("/* XCCL_KERNEL void k(void) { } */", "no kernel 'k'"),
}


@pytest.mark.nojit
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_a_kernel_is_refused(name: str, tmp_path: Path) -> None:
    """The refusal names file and line, in the compiler's words where it is the compiler that refuses."""
    text, told = REFUSED[name]
    with pytest.raises(errors.KernelError, match=f"(?s){told}"):
        assert written(tmp_path, text).sites


def test_what_has_no_plain_form_says_so(tmp_path: Path) -> None:
    """A kernel in C cannot run as a generator, be called by one, or share a core's stream of launches with one."""
    k = written(tmp_path, "XCCL_KERNEL void k(int64_t a) { xccl_quiet(); }")

    @kernel
    def caller(a):
        yield from k(a)

    @kernel
    def other(a):
        yield store(a, 1)

    for use in (lambda: k(1), k.plain_step, lambda: caller.sites, lambda: in_turn((k, other)).sites):
        with pytest.raises(errors.KernelError, match="written in C"):
            use()


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither on the path nor named nor installed: the refusal names all three ways."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    for variable in ("CC", "CXX"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(errors.KernelError, match=r"set CC, put one of cc, gcc, clang .*xccl_emu\[cpp\]"):
        assert written(tmp_path, "XCCL_KERNEL void k(void) { }").sites
    monkeypatch.setenv("CC", str(tmp_path / "none"))
    with pytest.raises(errors.KernelError, match="the compiler cannot be run"):
        assert written(tmp_path, "XCCL_KERNEL void k(void) { }").sites


def test_too_many_requests_or_registers_are_refused(tmp_path: Path) -> None:
    """A launch refuses a kernel with more requests, or more words of stack, than a core can have."""
    many = "\n".join(["XCCL_KERNEL void k(void) {", *["xccl_quiet();"] * 1024, "}"])
    pod = Pod(small_pod(1, 1))
    with pytest.raises(errors.ConfigError, match="1024 requests"):
        pod.launch(written(tmp_path, many), 0, [0], {}, [])
    deep = written(tmp_path, "XCCL_KERNEL void k(void) { }", stack_words=5000)
    with pytest.raises(errors.ConfigError, match="registers"):
        pod.launch(deep, 0, [0], {}, [])
    with pytest.raises(errors.ConfigError, match="stack_words=0"):
        c_kernel(tmp_path / "k.c", "k", stack_words=0)
    with pytest.raises(errors.ConfigError, match="cannot be read"):
        c_kernel(tmp_path / "none.c", "k")


def test_it_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text with the same headers is taken from the cache; an edit of a header is not missed."""
    linked = []
    link = compiler._linked
    monkeypatch.setattr(compiler, "_linked", lambda *words: linked.append(1) or link(*words))
    (tmp_path / "more.h").write_text(f"#define MORE {hash(str(tmp_path)) % 10**9}\n")
    text = '#include "more.h"\nXCCL_KERNEL int64_t k(void) { return MORE; }'
    sources = [written(tmp_path, text).source for _ in range(3)]
    assert (len(linked), len({*sources})) == (1, 1)
    (tmp_path / "more.h").write_text("#define MORE 77\n")
    assert written(tmp_path, text).source != sources[0]
