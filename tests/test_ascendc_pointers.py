"""Kernels in Ascend C that follow pointers: requests by a clang, refused of another compiler, and wild ones."""

import shutil
from typing import Any

import numpy as np
import pytest
from llvmlite import binding as llvm

from tests.foreign_support import ROOT, has_clang
from xccl_emu.base import errors
from xccl_emu.check import check, verdict
from xccl_emu.doors import ascendc
from xccl_emu.lang.foreign import pointers
from xccl_emu.machine import Pod, small_pod
from xccl_emu.testing import Bench, protocol

SOURCE = ROOT / "tests" / "ascendc_sources" / "pointers.cpp"
LINES = SOURCE.read_text().splitlines()
RECORD = np.dtype(
    [("before", "u8"), ("small", "i2", 3), ("byte", "u1"), ("is_set", "u1"), ("number", "f4")], align=True
)


needs_clang = pytest.mark.skipif(not has_clang(), reason="no clang: pointers are not followed here")
needs_gcc = pytest.mark.skipif(not shutil.which("g++"), reason="no g++: what it refuses is not tested here")


def line_of(text: str) -> int:
    """The number of the line of the source that has a text."""
    return 1 + next(i for i, line in enumerate(LINES) if text in line)


def pod_of(name: str, args: dict[str, int], **how: Any) -> Pod:
    """A pod of one core, whose kernel may read and write its metadata area of 4 KiB."""
    bench = Bench("sc", ())
    pod = bench.pod(small_pod(1, app_bytes=1024, ub_bytes=256))
    ascendc.launch(bench, pod, ascendc.ascend_kernel(SOURCE, name, **how), 0, [0], args, [pod.grant_meta("rw")])
    return pod


@needs_clang
@pytest.mark.nojit
def test_what_is_followed_is_a_request() -> None:
    """Loads and stores of each width go to the emulated memory and data buffer, from lines of the source."""
    at = small_pod(1, app_bytes=1024).meta_start
    pod = pod_of("raw", {"from": at, "to": at + 64})
    pod.span(at, 4).view(np.int32)[0] = 41
    asked = {(site.operation, site.line) for site in pod.launch_of(0).kernel.sites}
    pod.run()
    record = pod.span(at + 64, RECORD.itemsize).view(RECORD)[0]
    assert pod.span(at, 16).view(np.int32).tolist() == [41, 0, 0, 42]
    assert [np.array(each).tolist() for each in record] == [2**64 - 1, [0, -2, 0], 200, 1, 43.0]
    assert {("load", line_of("v = *p")), ("store", line_of("p[3] =")), ("ub_store", line_of("q[1] = 0.5"))} <= asked


@needs_clang
@pytest.mark.nojit
def test_constants_of_the_host_are_read_where_they_are() -> None:
    """A context is no memory of the machine: its fields are read without a request."""
    at, context = small_pod(1, app_bytes=1024).meta_start, np.zeros(1, RECORD)
    context[0] = (0, [0, 0, -3], 0, 0, 2.5)
    pod = pod_of("constants", {"out": at, "context0": ascendc.constant(context.tobytes())}, contexts=1)
    pod.run()
    assert pod.span(at, 4).view(np.float32)[0] == -0.5


@protocol
def handed_over(bench: Bench) -> None:
    """A word and a flag that says it is there, both by pointers."""
    pod = bench.pod(small_pod(1, 2, app_bytes=1024))
    args, grants = {"data": pod.managed(0), "flag": pod.meta(0)}, [pod.grant_managed("rw"), pod.grant_meta("rw")]
    for core, name in enumerate(("give", "take")):
        ascendc.launch(bench, pod, ascendc.ascend_kernel(SOURCE, name), 0, [core], args, grants)


@needs_clang
def test_what_is_followed_is_judged_for_races() -> None:
    """With writes in order the word is there when the flag is; else the load and the store race, at their lines."""
    assert check.check(handed_over(), order="fifo").verdict == verdict.VERIFIED
    found = check.check(handed_over(), order="relaxed").violation
    assert found is not None
    assert f"pointers.cpp:{line_of('(data + 32) =')}" in found.message


@needs_clang
@pytest.mark.nojit
@pytest.mark.parametrize(
    ("name", "to", "error", "line", "says"),
    [
        ("wild", 1 << 40, errors.AccessError, "*p = 1", "store of 4 bytes at .*is not permitted"),
        ("wild", -(1 << 62), errors.AccessError, "*p = 1", "store of 4 bytes at .*is not permitted"),
        ("wild", 2, errors.RunError, "*p = 1", "must be a multiple of 4"),
        ("wild_in_buffer", 256, errors.RunError, "*p = 1", "outside of the data buffer"),
        ("wild_here", 1 << 40, errors.KernelFaultError, "*p = 1", "touched memory that is not its own"),
    ],
)
def test_a_wild_pointer_is_a_violation_with_its_line(
    name: str, to: int, error: type[Exception], line: str, says: str
) -> None:
    """A run ends where a pointer leads to no memory of the core's, by the line that follows it."""
    pod = pod_of(name, {"a": small_pod(1, app_bytes=1024).meta_start, "to": to})
    first = line_of(f"void {name}(")
    followed = first + next(i for i, each in enumerate(LINES[first:], 1) if line in each)
    with pytest.raises(error, match=rf"pointers\.cpp:{followed}\b.*{says}"):
        pod.run()


@needs_gcc
@pytest.mark.nojit
@pytest.mark.parametrize("name", ["wild", "wild_in_buffer", "wild_here"])
def test_what_gcc_compiles_is_refused_where_it_follows_a_pointer(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error by the line says that the compiler cannot do it, and what to install: the kernel may be right."""
    monkeypatch.setenv("CXX", "g++")
    pod = pod_of(name, {"a": small_pod(1, app_bytes=1024).meta_start, "to": 64})
    first = line_of(f"void {name}(")
    followed = first + next(i for i, each in enumerate(LINES[first:], 1) if "*p = 1" in each)
    with pytest.raises(errors.PointerError, match=rf"pointers\.cpp:{followed}\b.*g\+\+.*xccl_emu\[cpp\]"):
        pod.run()


@needs_gcc
def test_a_check_of_what_gcc_compiles_has_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check ends by the same error: no verdict is given on a kernel whose pointers are not followed."""
    monkeypatch.setenv("CXX", "g++")
    for policy in ("exhaustive", "random"):
        with pytest.raises(errors.PointerError, match="cannot be judged"):
            check.check(handed_over(), policy=policy)


# ---- the pass over the IR, by itself

HEAD = """declare i64 @xccl_follow(ptr, i64, i64, i64, i64)
declare void @llvm.memcpy.p1.p0.i64(ptr addrspace(1), ptr, i64, i1)
define void @f(ptr addrspace(1) %p, ptr %q, i64 %n) !dbg !2 {
"""
TAIL = """  ret void
}
!llvm.dbg.cu = !{!5}
!llvm.module.flags = !{!6}
!1 = !DIFile(filename: "k.cpp", directory: "/folder")
!2 = distinct !DISubprogram(name: "f", scope: !1, file: !1, line: 3, unit: !5, spFlags: DISPFlagDefinition)
!3 = !DILocation(line: 7, column: 5, scope: !4)
!4 = distinct !DILexicalBlock(scope: !2, file: !1, line: 6)
!5 = distinct !DICompileUnit(language: DW_LANG_C_plus_plus, file: !1, emissionKind: FullDebug)
!6 = !{i32 2, !"Debug Info Version", i32 3}
"""


@pytest.mark.parametrize(
    "kind", ["i8", "i16", "i32", "i64", "half", "bfloat", "float", "double", "ptr", "ptr addrspace(1)"]
)
def test_each_type_is_read_and_written_by_requests(kind: str) -> None:
    """What the pass makes of a load and a store is IR again, without an access and with both sites."""
    body = f"  %v = load {kind}, ptr addrspace(1) %p, align 1, !dbg !3\n"
    body += f"  store {kind} %v, ptr addrspace(2) inttoptr (i64 64 to ptr addrspace(2)), align 1, !dbg !3\n"
    made = pointers.lowered(HEAD + body + TAIL, "k.cpp")
    llvm.parse_assembly(made).verify()
    assert made.count("call i64 @xccl_follow(") == 2
    assert made.count('section "xccl_sites"') == 2
    assert f"load {kind}, ptr addrspace" not in made
    assert made.count("i64 7,") == 2


@pytest.mark.parametrize(
    "what",
    [
        "%v = addrspacecast ptr addrspace(1) %p to ptr",
        "%v = atomicrmw add ptr addrspace(1) %p, i32 1 seq_cst, align 4",
        "%v = load atomic i32, ptr addrspace(1) %p seq_cst, align 4",
        "%v = load <4 x i32>, ptr addrspace(1) %p, align 16",
        "%v = load i128, ptr addrspace(1) %p, align 16",
        "store i32 1, ptr addrspace(1) addrspacecast (ptr null to ptr addrspace(1)), align 4",
        "call void @llvm.memcpy.p1.p0.i64(ptr addrspace(1) %p, ptr %q, i64 %n, i1 false)",
        '%v = call i32 asm "ldr $0, [$1]", "=r,r"(ptr addrspace(1) %p)',
        "%v = loadnew i32, ptr addrspace(1) %p",
    ],
)
def test_what_the_pass_does_not_know_is_refused_by_its_line(what: str) -> None:
    """An instruction with such a pointer in a shape that is not known, as a newer LLVM's, is an error with its line."""
    with pytest.raises(errors.KernelError, match=r"^k\.cpp:7: .*`"):
        pointers.lowered(f"{HEAD}  {what}, !dbg !3\n{TAIL}", "/folder/k.cpp")


@pytest.mark.parametrize(
    "what",
    [
        "call void @g(ptr addrspace(1) %p)",
        "%v = call { i64, i64 } @g(ptr noundef %q, ptr addrspace(1) noundef %p)",
        "store ptr addrspace(1) %p, ptr %q, align 8",
        "%v = load ptr addrspace(1), ptr %q, align 8",
        "%v = getelementptr inbounds nuw i32, ptr addrspace(1) %p, i64 %n",
        "%v = icmp eq ptr addrspace(1) %p, null",
    ],
)
def test_a_pointer_that_nobody_follows_is_left_as_it_is(what: str) -> None:
    """A pointer that is passed, kept, moved or compared touches no memory of the machine."""
    text = f"{HEAD}  {what}, !dbg !3\n{TAIL}"
    assert pointers.lowered(text, "k.cpp") == text


@pytest.mark.parametrize(
    "what",
    ["@x = addrspace(1) global i32 0", "@x = global ptr addrspace(1) addrspacecast (ptr null to ptr addrspace(1))"],
)
def test_a_variable_in_memory_of_the_machine_is_refused(what: str) -> None:
    """A variable has no place in emulated memory: nobody granted one."""
    with pytest.raises(errors.KernelError, match=r"^k\.cpp: a variable in memory of the machine"):
        pointers.lowered(what, "k.cpp")


@needs_clang
@pytest.mark.nojit
def test_what_published_sources_do_compiles() -> None:
    """A launch of the host is left out, and its lines are kept; a queue of the vector pipe gives its buffers in turn.

    Numbers of 16 bits are stored by pointers, and an array of pointers is filled from a constant.
    """
    source, bench = SOURCE.with_name("launched.cpp"), Bench("sc", ())
    at = small_pod(1, app_bytes=1024).meta_start
    pod = bench.pod(small_pod(1, app_bytes=1024, ub_bytes=256))
    kernel = ascendc.ascend_kernel(source, "twice", include=source.parent / "far")
    ascendc.launch(bench, pod, kernel, 0, [0], {"from": at, "to": at + 64}, [pod.grant_meta("rw")])
    pod.span(at, 4).view(np.int32)[0] = 1
    pod.run()
    assert pod.span(at + 66, 2).view(np.float16)[0] == 3
    assert pod.span(at + 68, 4).view(np.float32)[0] == 3
    asked = {(site.file.rpartition("/")[2], site.line) for site in kernel.sites if site.operation == "store"}
    assert asked == {("far.h", 2), ("launched.cpp", 18)}


def test_a_file_of_another_folder_is_called_by_all_of_its_path() -> None:
    """A clang parts the path of a header from the prefix that it has in common with the kernel's folder."""
    text = f"{HEAD}  store atomic i32 1, ptr addrspace(1) %p seq_cst, align 4, !dbg !3\n{TAIL}"
    with pytest.raises(errors.KernelError, match=r"^/folder/k\.cpp:7: "):
        pointers.lowered(text, "/near/k.cpp")


def test_an_array_of_pointers_is_filled_from_a_constant() -> None:
    """Such a constant is of numbers alone; one with the address of a variable is refused as before."""
    kind = "ptr addrspace(2)"
    row = f"@c = private unnamed_addr constant [1 x {kind}] [{kind} inttoptr (i64 96 to {kind})]"
    assert pointers.lowered(row, "k.cpp") == row + "\n"
    with pytest.raises(errors.KernelError, match="a variable in memory of the machine"):
        pointers.lowered(row.replace("i64 96", "i64 ptrtoint (ptr @x to i64)"), "k.cpp")


@pytest.mark.parametrize(
    ("head", "wanted"),
    [
        ("define linkonce_odr hidden i64 @f() #1 comdat {", "define internal i64 @f() alwaysinline #1 comdat {"),
        ("define dso_local void @f() unnamed_addr #1 {", "define internal void @f() unnamed_addr alwaysinline #1 {"),
        ("define hidden void @xccl_body(ptr %a) #1 {", ""),
        ("define linkonce_odr hidden i64 @xccl_follow(ptr %a) #1 {", ""),
        ("define hidden void @apart() #2 {", ""),
        ("define available_externally void @f() #1 {", ""),
    ],
)  # fmt: skip
def test_functions_of_a_kernel_are_inlined(head: str, wanted: str) -> None:
    """So no frame keeps what is no longer needed; but not what asks for the opposite, or is called from outside."""
    attributes = 'attributes #1 = { mustprogress "x"="noinline-not" }\nattributes #2 = { mustprogress noinline }\n'
    assert pointers.lowered(f"{head}\n{attributes}", "k.cpp") == f"{wanted or head}\n{attributes}"
