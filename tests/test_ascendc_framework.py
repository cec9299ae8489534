"""The framework around Ascend C: a file as strangers write it compiles, and what has no meaning is refused by name."""

import os
import re
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from tests.foreign_support import ROOT, has_compiler
from xccl_emu.base.errors import ConfigError, KernelError, RunError
from xccl_emu.doors import ascendc
from xccl_emu.doors.ascendc import sites
from xccl_emu.doors.ascendc.kernel import INCLUDE
from xccl_emu.lang.foreign import compiler
from xccl_emu.machine.device.layout import CACHE_LINE_BYTES
from xccl_emu.machine.spec import small_pod
from xccl_emu.testing import Bench

needs_cxx = pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: Ascend C is not tested here")
SOURCES = ROOT / "tests" / "ascendc_sources"
FRAMEWORK = SOURCES / "framework.cpp"
INFO = {"rows": 1, "columns": 8}
TILING = {"mc2InitTiling": 0, "mc2CcTiling": 0, "info": INFO}


def kernel_of(name: str, source: str = "framework", **defines: str) -> Any:
    """A kernel of a source."""
    return ascendc.ascend_kernel(SOURCES / f"{source}.cpp", name, defines=defines)


def said_of_syntax(kernel: Any) -> str:
    """What the compiler says of a kernel's source, its syntax alone."""
    unit = kernel._unit()
    command = [*compiler.compiler(False, os.environ), "-x", "c++", "-std=gnu++20", "-fsyntax-only", "-iquote", "."]
    command += [*unit.flags, f"-I{compiler.HERE}", "-"]
    done = subprocess.run(command, input=unit.entry, text=True, cwd=SOURCES, capture_output=True, check=False)
    assert bool(done.returncode) == ("error:" in done.stderr)
    return done.stderr


@needs_cxx
@pytest.mark.parametrize(("name", "source"), [("rows", "framework"), ("keyed", "keyed")])
def test_a_file_of_a_stranger_compiles_for_syntax(name: str, source: str) -> None:
    """A source that names what callers name, with their include files, has no error and no warning."""
    assert said_of_syntax(kernel_of(name, source)) == ""


def test_each_include_file_of_callers_is_tried() -> None:
    """The stand-in includes each name that forwards."""
    forwarding = {str(file.relative_to(INCLUDE)) for file in INCLUDE.glob("**/[!x]*.h")}
    included = set(re.findall(r'#include "(.*)"', FRAMEWORK.read_text("utf-8")))
    assert forwarding == included


def refused() -> list[str]:
    """The names that are refused where code that calls them is made, as the headers list them."""
    text = "".join(file.read_text("utf-8") for file in sorted(INCLUDE.glob("xccl_*.h")))
    return re.findall(r"\bXCCL_MISSING(?:_AS)?\((?:\w+, )?([A-Z]\w+)\)", text)


@needs_cxx
def test_what_has_no_meaning_is_refused_by_name_where_it_is_called() -> None:
    """Each such name is in what the compiler says, of calls with and without arguments."""
    framework = (INCLUDE / "xccl_framework.h").read_text("utf-8")
    of_hccl = framework.partition("class Hccl")[2].partition("};")[0]
    names = refused()
    calls = [f"hccl.{name}(1)" if re.search(rf"\b{name}\b", of_hccl) else f"AscendC::{name}()" for name in names]
    asked = "; ".join(["Hccl<HCCL_SERVER_TYPE_CCU> hccl", *calls, "KERNEL_TASK_TYPE(1, KERNEL_TYPE_MIX_AIC_1_2)"])
    with pytest.raises(KernelError, match="a kernel of cube cores is not in xccl_emu's header") as said:
        assert kernel_of("rows", ASKED=asked).sites
    assert len(names) >= 20
    assert [name for name in names if f"{name} is not in xccl_emu's header" not in str(said.value)] == []


@needs_cxx
def test_what_is_refused_may_be_where_it_is_off() -> None:
    """A branch for other cores than those of the vector is compiled away, and the rest is a kernel."""
    assert kernel_of("rows", ASKED="if (g_coreType == AscendC::AIC) Meet()").sites


@needs_cxx
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("PipeBarrier<PIPE_FIX>()", "PipeBarrier of a pipe of cubes is not in"),
        ("TQueSync<PIPE_M, PIPE_V>().SetFlag(0)", "TQueSync of these pipes is not in"),
        ("TQue<TPosition::A1, 1> queue", "a queue is VECIN or VECOUT"),
        ("sizeof(DTYPE_X)", "incomplete type.*DTYPE_X"),
        ("sizeof(AscendC::IbVerbsData)", "incomplete type.*IbVerbsData"),
        ("REGISTER_TILING_FOR_TILINGKEY(1, RowsTiling); GET_TILING_DATA(other, tiling)", "by REGISTER_TILING_FOR_"),
    ],
)
def test_what_is_refused_by_its_type(asked: str, said: str) -> None:
    """A pipe, a type or a struct without a meaning here is an error that names it."""
    assert re.search(said, said_of_syntax(kernel_of("rows", ASKED=asked)))


@needs_cxx
def test_the_key_and_the_types_of_a_build_are_given() -> None:
    """Without the key the compiler says how to give it; with it and the types the source's branch is what runs."""
    with pytest.raises(KernelError, match=r"TILING_KEY_IS: ascend_kernel\(defines="):
        assert kernel_of("keyed", "keyed").sites
    types = {"ORIG_DTYPE_X": "DT_BF16", "DTYPE_X": "bfloat16_t", "DTYPE_EXPAND_X": "int8_t"}
    assert {each.operation for each in kernel_of("keyed", "keyed", TILING_KEY_VAR="1000", **types).sites} > {"load"}


def test_a_struct_in_a_tiling_struct_is_a_mapping() -> None:
    """Fields of both are where a compiler puts them; another field, or no mapping, is refused with its place."""
    build = SimpleNamespace(include=(), defines={})
    kernel: Any = SimpleNamespace(file=FRAMEWORK, text=FRAMEWORK.read_text("utf-8"), build=build)
    assert ascendc.Tiling("RowsTiling", TILING).packed(kernel).view("u4").tolist() == [0, 0, 0, 0, 1, 8]
    build.defines["XCCL_TILING"], kernel.text = "struct Given { uint64_t rows; };", kernel.text + "#endif"
    assert ascendc.Tiling("Given", {"rows": 5}).packed(kernel).view("u8").tolist() == [5]
    for info in ({"rows": 1}, 3):
        with pytest.raises(ConfigError, match=r"RowsTiling\.info of framework\.cpp: fields missing: \['columns'"):
            ascendc.Tiling("RowsTiling", {**TILING, "info": info}).packed(kernel)


@needs_cxx
@pytest.mark.nojit
@pytest.mark.parametrize("columns", [8, 12])
def test_an_assertion_of_the_source_is_one_of_the_run(columns: int) -> None:
    """What the source asserts is judged, at its line: of a row of 8 columns it holds, of one of 12 it does not."""
    bench = Bench("sc", ())
    pod = bench.pod(small_pod(1, app_bytes=1024))
    tiling = ascendc.Tiling("RowsTiling", {**TILING, "info": {"rows": 1, "columns": columns}})
    ascendc.launch(bench, pod, kernel_of("rows"), 0, [0], {"context": 0, "source": 0}, [], tiling)
    if columns == 8:
        pod.run()
        return
    before, _, _ = FRAMEWORK.read_text("utf-8").partition("    assert(given.info.columns")
    line = 1 + before.count("\n")
    with pytest.raises(RunError, match=rf"framework\.cpp:{line}"):
        pod.run()


def test_a_line_of_the_cache_has_the_bytes_of_the_machine() -> None:
    """CACHE_LINE_SIZE of the header is the machine's."""
    said = re.search(r"CACHE_LINE_SIZE = (\d+);", (INCLUDE / "xccl_framework.h").read_text("utf-8"))
    assert said
    assert int(said[1]) == CACHE_LINE_BYTES


def test_calls_in_headers_of_the_compiler_are_none_of_the_source() -> None:
    """A line that the preprocessor marks as a system header's has no site; one of the file that includes it has."""
    text = '# 1 "k.cpp"\n# 1 "/usr/include/utility" 1 3\nMax(a, b);\n# 2 "k.cpp" 2\nMax(a, b, c, 8);'
    assert [(each.file, each.line) for each in sites.calls(text, "own")] == [("k.cpp", 2)]
