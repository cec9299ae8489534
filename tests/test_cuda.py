"""Kernels in CUDA C++: what accesses and PTX do to memory, where their requests are, and what is refused by name."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cuda_support import MANY, WORDS, line_of, ran, source
from tests.foreign_support import has_clang
from xccl_emu.base.errors import ConfigError, KernelError, RunError
from xccl_emu.doors import cuda
from xccl_emu.doors.cuda import launch, lowering, ptx
from xccl_emu.lang import heads
from xccl_emu.protocol import Bench, Regions

needs_clang = pytest.mark.skipif(not has_clang(), reason="no clang: kernels in CUDA C++ are not compiled here")


def u32(*values: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Words of 4 bytes."""
    return np.array(values, np.uint32)


# ---- what a kernel does


@needs_clang
@pytest.mark.nojit
def test_accesses_by_plain_pointers_reach_memory_and_variables_stay_on_the_stack() -> None:
    """Structs, vectors, volatile words and a memset: each byte is as the source says."""
    many = np.zeros(1, MANY)
    many["numbers"], many["small"] = [[1, 2, 3, 4]], [[5, 6]]
    buffers = {"from": np.arange(1, 5, dtype=np.float32), "to": np.zeros((3, 4), np.float32), "many": many}
    buffers["word"] = np.array([41], np.int32)
    found = ran(cuda.cuda_kernel(WORDS, "accesses"), buffers, half_of=np.float64(0.25))
    assert found["to"][:2].tolist() == [[1, 2, 3, 4], [6, 1, 0.25, -3]]
    assert found["to"][2].tobytes() == b"\x11" * 16
    assert (found["many"]["numbers"].tolist(), found["many"]["small"].tolist()) == ([[5, 2, 3, 4]], [[5, -3]])
    assert found["word"].tolist() == [42]


@needs_clang
@pytest.mark.nojit
def test_ptx_reads_and_writes_vectors_hints_offsets_and_narrow_types() -> None:
    """An unsigned type has no sign in a wider register; comments are passed over."""
    buffers = {"out": np.zeros(3, np.uint64), "in": u32(0x80000001, 2, 3, 0xFFFFFFFE, 0x40800000)}
    found = ran(cuda.cuda_kernel(WORDS, "vectors"), {**buffers, "narrow": np.zeros(4, np.uint16)})
    assert found["out"].tolist() == [0x80000001 + 0xFFFFFFFE, 2**64 - 1, 4]
    half, bfloat = np.float16(8).view(np.uint16), np.float32(5.5).view(np.uint32) >> 16
    assert found["narrow"].tolist() == [1, 7, half, bfloat]


@needs_clang
@pytest.mark.nojit
def test_atomics_are_what_their_names_say() -> None:
    """They return what was there, of 4 and 8 bytes, signed and not, by name and by atomic_ref."""
    buffers = {"words": u32(7, 0xFFFFFFFF, 4, 5), "wide": np.array([3], np.uint64), "seen": np.zeros(12, np.int32)}
    found = ran(cuda.cuda_kernel(WORDS, "atomics"), buffers)
    assert found["seen"].tolist() == [7, -1, -2, -2, 3, 4, 4, 5, -1, 13, 0, 15]
    assert found["words"].tolist() == [4, 0xFFFFFFFE, 4, 0]
    assert found["wide"].tolist() == [3 + 2**33 + 2]


@needs_clang
@pytest.mark.nojit
def test_threads_know_who_they_are(tmp_path: Path) -> None:
    """Indices and sizes in three directions, of blocks that run at once."""
    body = """int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    int place = blockIdx.x * blockDim.x * blockDim.y * blockDim.z + thread;
    out[place] = in[0] + 100 * gridDim.x + 10 * blockIdx.x + thread;"""
    kernel = cuda.cuda_kernel(source(tmp_path, body), "k")
    assert "xccl_thread" in kernel.params
    found = ran(kernel, {"out": np.zeros(8, np.int32), "in": np.array([1000], np.int32)}, grid=2, block=4)
    assert found["out"].tolist() == [1200 + 10 * block + thread for block in range(2) for thread in range(4)]


@needs_clang
@pytest.mark.parametrize(
    ("what", "operation", "name"),
    [
        ("seen[0] = atomicAdd(words, 5)", "compare_swap", "atom.relaxed.gpu, line {line}"),
        ("ref.store(ref.load", "load", "ld.acquire.sys, line {line}"),
        ("ref.store(ref.load", "quiet", "st.release.sys, line {line}"),
        ("red.release.sys", "atomic_add", "red.release.sys, line {line}"),
        ("seen[9] =", "store", ""),
    ],
)
def test_requests_are_at_lines_of_the_source_with_names_of_ptx(what: str, operation: str, name: str) -> None:
    """However deep in headers an access is, a report shows the line of the kernel that comes to it."""
    line = line_of(WORDS, what)
    asked = {(site.operation, site.line, site.sync) for site in cuda.cuda_kernel(WORDS, "atomics").sites}
    assert (operation, line, name.format(line=line)) in asked


@needs_clang
def test_a_volatile_pointer_is_ptx_s_volatile() -> None:
    """A load by one has a name, so it synchronizes, as ``ld.volatile`` does."""
    line = line_of(WORDS, "*word = *word + 1")
    assert f"ld.volatile, line {line}" in {site.sync for site in cuda.cuda_kernel(WORDS, "accesses").sites}


HOST = """#include <stdexcept>
namespace own {
cudaStream_t last;
template <class T> __global__ void k(T *out, const T *in) { out[0] = in[0] + 1; }
template <class T> void launch(T *out, const T *in, cudaStream_t stream)
{
#define LAUNCH(n) k<T><<<n, 1, 0, stream>>>(out, \\
                                            in);
    last = stream;
    if (cudaMemcpyAsync(out, in, sizeof(T), cudaMemcpyDeviceToDevice, stream) != cudaSuccess)
        throw std::runtime_error(cudaGetErrorString(cudaGetLastError()));
    LAUNCH(1)
}
template void launch<int>(int *, const int *, cudaStream_t);
}
"""


@needs_clang
@pytest.mark.nojit
def test_the_host_s_side_of_a_source_is_passed_over(tmp_path: Path) -> None:
    """Its errors, variables, and launches of templates by macros; a kernel is called by its namespace."""
    file = tmp_path / "k.cu"
    file.write_text(HOST)
    found = ran(cuda.cuda_kernel(file, "own::k", "int"), {"out": np.zeros(1, np.int32), "in": np.array([6], np.int32)})
    assert found["out"].tolist() == [7]


# ---- what is refused


@needs_clang
@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('asm volatile("redux.sync.add.s32 %0, %1, -1;" : "=r"(out[0]) : "r"(1));', "`redux.sync.add.s32`"),
        ('asm volatile("shfl.sync.idx.b64 %0, %1, 0, 31, -1;" : "=l"(out) : "l"(in));', "lanes that meet with these"),
        ('asm volatile("ld.global.b128 %0, [%1];" : "=r"(out[0]) : "l"(in));', r"its part `\.b128`"),
        ('asm volatile("st.local.u32 [%0], %1;" :: "l"(out), "r"(1));', r"its part `\.local`"),
        ('asm volatile("st.acquire.sys.u32 [%0], %1;" :: "l"(out), "r"(1));', "`st.acquire.sys.u32`"),
        ('asm volatile("atom.add.f32 %0, [%1], %2;" : "=r"(out[0]) : "l"(in), "r"(1));', "an atomic of this operation"),
        ('asm volatile("ld.u32 %0, [%1];" : "=r"(out[0]) : "r"(7));', "an address of 32 bits"),
        ('asm volatile("bar.sync 1;");', "a barrier other than 0"),
        ('asm volatile("membar.sys;" : "=r"(out[0]));', "no instruction writes the output %0"),
        ("__atomic_fetch_add(out, 1, 0);", "an atomic access of the compiler"),
        ("typedef float v4 __attribute__((vector_size(16))); *(v4 *)out = *(v4 *)in;", "of this type"),
    ],
)
def test_what_is_not_there_is_refused_by_its_name_and_line(body: str, says: str, tmp_path: Path) -> None:
    """A typed error names the instruction and the line of the source, before anything runs."""
    with pytest.raises(KernelError, match=rf"k\.cu:3: .*{says}"):
        _ = cuda.cuda_kernel(source(tmp_path, body), "k").sites


@needs_clang
@pytest.mark.parametrize(
    "text",
    [
        'multimem.ld_reduce.global.add.v4.f32 {%0,%0,%0,%0}, [%1];" : "=f"(x) : "l"(in)',
        'multimem.st.global.v4.f32 [%0], {%1,%1,%1,%1};" :: "l"(out), "f"(x)',
        'multimem.red.release.sys.add.u32 [%0], 1;" :: "l"(out)',
    ],
)
def test_multimem_is_refused_with_its_reason(text: str, tmp_path: Path) -> None:
    """Its name, the line, and what its addresses are."""
    says = rf"k\.cu:3: `{text.split()[0]}`: .*: its address is memory of several ranks at once"
    with pytest.raises(KernelError, match=says):
        _ = cuda.cuda_kernel(source(tmp_path, f'float x = 0; asm volatile("{text} : "memory");'), "k").sites


@needs_clang
def test_a_name_that_the_headers_lack_is_the_compiler_s_error(tmp_path: Path) -> None:
    """It says the name and the line."""
    with pytest.raises(KernelError, match=r"k\.cu:3:\d+: error: .*__reduce_add_sync"):
        _ = cuda.cuda_kernel(source(tmp_path, "out[0] = __reduce_add_sync(-1, in[0]);"), "k").sites


@needs_clang
def test_a_variable_of_the_device_is_refused(tmp_path: Path) -> None:
    """What a kernel keeps is in memory that its launch gives."""
    file = source(tmp_path, "out[0] = count++;")
    file.write_text("__device__ int count;\n" + file.read_text())
    with pytest.raises(KernelError, match="count' is global or static"):
        _ = cuda.cuda_kernel(file, "k").sites


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++: what it refuses is not tested here")
def test_another_compiler_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only a clang has the IR; the error says what to install."""
    monkeypatch.setenv("CXX", "g++")
    with pytest.raises(KernelError, match=r"g\+\+ is no clang.*xccl_emu\[cpp\]"):
        _ = cuda.cuda_kernel(source(tmp_path, "out[0] = in[0];"), "k").sites


@needs_clang
def test_launches_refuse_what_does_not_fit(tmp_path: Path) -> None:
    """Sizes of grid and block, and numbers whose type is open."""
    kernel = cuda.cuda_kernel(source(tmp_path, "out[0] = in[0];"), "k")
    buffers = {"out": np.zeros(1, np.int32), "in": np.zeros(1, np.int32)}
    for sizes in (0, (1, 2, 3, 4), 5):
        with pytest.raises(ConfigError, match="block="):
            launch._sizes("block", sizes, 4)
    with pytest.raises(ConfigError, match=r"must be np\.float32 or np\.float64"):
        ran(kernel, buffers, out=1.5)
    with pytest.raises(ConfigError, match="stack_words"):
        cuda.cuda_kernel(WORDS, "atomics", stack_words=0)


@needs_clang
def test_a_scope_holds_no_thread_of_another_rank(tmp_path: Path) -> None:
    """An atomic for a GPU ends the run where its word lies with another rank; one for all does not."""
    for name, fails in (("atomicAdd", True), ("atomicAdd_system", False)):
        bench, regions = Bench("sc", ()), Regions(2)
        words = regions.meta("words")
        gpus = cuda.gpus(bench, regions, 1, 1, app_bytes=64)
        kernel = cuda.cuda_kernel(source(tmp_path, f"{name}(out, 1);"), "k")
        gpus.launch(kernel, 0, {"out": words.at(1), "in": 0}, [words.grant(1, "rw")])
        if fails:
            with pytest.raises(RunError, match=r"k\.cu:3.*code 52480"):
                gpus.pod.run()
        else:
            gpus.pod.run()
            assert gpus.pod.span(words.at(1), 8).view(np.int64)[0] == 1


# ---- the table


@pytest.mark.parametrize(
    ("text", "name", "request_", "nbytes"),
    [
        ("ld.global.f32 %0, [%1];", "ld.weak", "load", 4),
        ("st.release.sys.global.u32 [%1], %0;", "st.release.sys", "store", 4),
        ("atom.global.add.u64 %0, [%1], %2;", "atom.relaxed.gpu", "atomic", 8),
        ("fence.sc.sys;", "fence.sc.sys", "", 0),
        ("fence.acq_rel.gpu;", "fence.acq_rel.gpu", "", 0),
        ("membar.gl;", "membar.sc.gl", "", 0),
        ("barrier.sync.aligned 0;", "barrier.sync", "barrier", 0),
    ],
)
def test_an_instruction_is_a_row_of_the_table(text: str, name: str, request_: str, nbytes: int) -> None:
    """Opcode and order choose it, and a default stands in for what is not said."""
    (found,) = ptx.instructions(text)
    assert (found.name, found.row.request, found.nbytes) == (name, request_, nbytes)


def test_what_releases_publishes_and_nothing_else_does() -> None:
    """By PTX: releases, and fences of each kind."""
    released = {(row.opcode, row.order) for row in ptx.TABLE if row.publishes}
    assert released == {
        ("st", "release"), *((each, order) for each in ("atom", "red") for order in ("release", "acq_rel")),
        ("fence", "acq_rel"), ("fence", "sc"), ("membar", "sc"),
    }  # fmt: skip


def test_kinds_of_registers_are_no_other_processor_s() -> None:
    """A constraint is replaced where an operand follows, and no other text is."""
    text = 'asm("ld.f32 %0, [%1];" : "=f"(x) : "l"(p), "n"(4)); say("l"); f("h", 1);'
    assert lowering.compiled(text) == 'asm("ld.f32 %0, [%1];" : "=r"(x) : "r"(p), "n"(4)); say("l"); f("h", 1);'


@pytest.mark.parametrize(
    "head",
    [
        "__global__ void k(int *a, const float *__restrict__ b, Pair<int, 2> c)",
        "template <typename T, int N>\n__global__ void __launch_bounds__(512, 1) k(int *a, const T *b, Pair<T, N> c)",
        'extern "C" __global__ __launch_bounds__(64) void\nk(int *a, T *b, const Pair<T, N> &c)',
        "static __global__ void k(int *a, const float b[], Pair<int, 2> c)",
    ],
)
def test_a_head_has_its_parameters_by_name(head: str, tmp_path: Path) -> None:
    """Templates, bounds and commas in types are no parameters."""
    file = tmp_path / "k.cu"
    file.write_text(f"{head} {{}}\n")
    assert cuda.cuda_kernel(file, "k").params[-3:] == ("a", "b", "c")


def test_a_source_in_place_of_a_case_lists_its_kernels_and_shows_one(tmp_path: Path) -> None:
    """``check k.cu:k`` says what is missing: a case, which can be saved as it is."""
    found = heads.no_case("k.cu:k", source(tmp_path, ""), "k")
    assert "kernels in CUDA C++: k (line 1)" in str(found)
    assert "gpus.launch(kernel, 0, {" in str(found)
