"""A source in C, C++ or Ascend C in the place of a case: which kernels it has, and a case to begin with."""

from pathlib import Path

import numpy as np
import pytest

from tests.cli_support import refusal
from tests.foreign_support import has_compiler
from xccl_emu.base.errors import ConfigError
from xccl_emu.protocol import registry

IN_C = """#include "xccl_emu.h"
// XCCL_KERNEL void old(int64_t gone)
XCCL_KERNEL void ring(int64_t mine) { xccl_put(mine, 3, 0, 0, 0); }
XCCL_KERNEL int64_t idle(void) { return 0; }
"""
IN_ASCEND_C = """#include "kernel_operator.h"
struct Sizes { int64_t step; };
extern "C" __global__ __aicore__ void give(GM_ADDR own, __gm__ int64_t *slot, uint32_t count, GM_ADDR tiling)
{
    GET_TILING_DATA_WITH_STRUCT(Sizes, sizes, tiling);
    AscendC::GlobalTensor<int64_t> to;
    to.SetGlobalBuffer(slot);
    to.SetValue(0, sizes.step + count);
}
"""


def said_of(file: Path, text: str, name: str = "") -> str:
    """What is said of a source, with or without a name in it."""
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        registry.make(f"{file}:{name}" if name else str(file))
    return str(refused.value)


def written(file: Path, said: str) -> str:
    """Save the case that was shown, and return its name for commands."""
    place = file.with_name(f"{file.stem}_case.py")
    place.write_text(said.partition("\n\n")[2])
    name = said.partition("This is a case for ")[2].partition(";")[0]
    assert f"`xccl-emu check {place.name}:{name}`" in said
    return f"{place}:{name}"


@pytest.mark.parametrize("name", ["", "ring"])
@pytest.mark.skipif(not has_compiler(), reason="no C compiler: kernels in C are not tested here")
@pytest.mark.nojit
def test_the_case_that_is_shown_for_a_kernel_in_c_runs(name: str, tmp_path: Path) -> None:
    """Its kernels are listed with lines, none of a comment; the case for the first is Python that runs as it is."""
    said = said_of(tmp_path / "k.c", IN_C, name)
    assert "kernels in C or C++: ring (line 3), idle (line 4)" in said
    registry.make(written(tmp_path / "k.c", said)).build("sc").pod.run()


@pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: Ascend C is not tested here")
@pytest.mark.nojit
def test_the_case_that_is_shown_for_a_kernel_in_ascend_c_runs(tmp_path: Path) -> None:
    """Addresses are buffers and numbers are 1; what it cannot know, the fields of a struct, is refused by name."""
    said = said_of(tmp_path / "k.cpp", IN_ASCEND_C, "give")
    assert "kernels in Ascend C: give (line 3)" in said
    with pytest.raises(ConfigError, match=r"Sizes of k\.cpp: fields missing: \['step'\]"):
        registry.make(written(tmp_path / "k.cpp", said)).build("sc")
    pod = registry.make(written(tmp_path / "k.cpp", said.replace("{})", '{"step": 4})'))).build("sc").pod
    pod.run()
    assert 5 in pod.memory.view(np.int64)


def test_a_source_without_such_a_kernel_is_refused(tmp_path: Path) -> None:
    """The error says which kernels there are, or how one begins; a command ends as for wrong usage."""
    assert "its kernels are ring (line 3), idle (line 4): there is none called other" in said_of(
        tmp_path / "k.c", IN_C, "other"
    )
    assert "and no kernel either, which begins with `XCCL_KERNEL void NAME(`" in said_of(tmp_path / "k.h", "int a;")
    for words in (["check", f"{tmp_path}/k.h"], ["check", f"{tmp_path}/k.h:x"], ["run", f"{tmp_path}/k.h"]):
        assert "must be FILE.py:NAME; k.h has no case" in refusal(*words)
    with pytest.raises(ConfigError, match=r"there is no file '.*nowhere\.cpp'"):
        registry.make(f"{tmp_path}/nowhere.cpp:give")
