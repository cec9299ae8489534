"""Headers of a user's own, which a kernel in Ascend C includes from folders that its case names."""

from pathlib import Path

import numpy as np
import pytest

from tests.foreign_support import has_compiler
from xccl_emu.base.errors import ConfigError, KernelError
from xccl_emu.doors import ascendc
from xccl_emu.doors.ascendc.kernel import AscendKernel
from xccl_emu.lang.foreign import compiler
from xccl_emu.machine.spec import small_pod
from xccl_emu.testing import Bench

needs_cxx = pytest.mark.skipif(not has_compiler(False), reason="no C++ compiler: Ascend C is not tested here")
SOURCE = """#include "kernel_operator.h"
#include "steps.h"
extern "C" __global__ __aicore__ void k(GM_ADDR out, GM_ADDR tiling)
{
    GET_TILING_DATA_WITH_STRUCT(StepTiling, given, tiling);
    AscendC::GlobalTensor<int64_t> to;
    to.SetGlobalBuffer((__gm__ int64_t *)out);
    to.SetValue(0, given.step + STEP);
}
"""
TILING = ascendc.Tiling("StepTiling", {"step": 5})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a kernel, and one with the header that it includes, which includes another one."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "k.cpp").write_text(SOURCE)
    (tmp_path / "common" / "inner").mkdir(parents=True)
    (tmp_path / "common" / "steps.h").write_text('#pragma once\n#include "inner/tiling.h"\n#define STEP 1\n')
    (tmp_path / "common" / "inner" / "tiling.h").write_text("struct StepTiling {\n    int64_t step;\n};\n")
    return tmp_path


def kernel(folder: Path, *include: str) -> AscendKernel:
    """The kernel with some of the folder's folders."""
    return ascendc.ascend_kernel(folder / "kernels" / "k.cpp", "k", include=[folder / each for each in include])


def written(made: AscendKernel) -> int:
    """The word that a run of the kernel writes."""
    bench = Bench("sc", ())
    pod = bench.pod(small_pod(1, app_bytes=1024))
    ascendc.launch(bench, pod, made, 0, [0], {"out": pod.meta(0)}, [pod.grant_meta("rw")], TILING)
    pod.run()
    return int(pod.span(pod.meta(0), 8).view(np.int64)[0])


@needs_cxx
def test_a_header_is_found_in_a_folder_that_the_case_names(folder: Path) -> None:
    """Without the folder the compiler names the header; with it, or with a file of it, the kernel compiles."""
    with pytest.raises(KernelError, match=r"steps\.h(: No such file|' file not found)"):
        assert kernel(folder).sites
    places = [kernel(folder, include).sites for include in ("common", "common/steps.h")]
    assert places[0] == places[1]
    text = ascendc.ascend_kernel(folder / "kernels" / "k.cpp", "k", include=str(folder / "common"))
    assert text.build == kernel(folder, "common", "common/steps.h").build


@needs_cxx
def test_a_struct_of_a_header_is_a_tiling_struct(folder: Path) -> None:
    """The fields are read from the header; a struct that is in none of the files is refused."""
    made = kernel(folder, "common")
    assert TILING.packed(made).view(np.int64).tolist() == [5]
    with pytest.raises(ConfigError, match=r"k\.cpp and what it includes have no such struct"):
        ascendc.Tiling("Other").packed(made)


@needs_cxx
@pytest.mark.nojit
def test_an_edited_header_is_compiled(folder: Path) -> None:
    """The key of the cache takes in what a header holds: after an edit another value is written."""
    assert written(kernel(folder, "common")) == 6
    header = folder / "common" / "steps.h"
    header.write_text(header.read_text().replace("STEP 1", "STEP 20"))
    assert written(kernel(folder, "common")) == 25


@needs_cxx
def test_a_kernel_that_is_made_again_asks_no_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A case is built many times in a check: only a change of a file, or a header that is found first, is looked at."""
    first = kernel(folder, "common").sites
    monkeypatch.delattr(compiler, "run")
    assert kernel(folder, "common").sites == first
    (folder / "kernels" / "steps.h").write_text('#include "../common/steps.h"\n')
    with pytest.raises(NameError):
        assert kernel(folder, "common").sites


def test_a_folder_that_there_is_not_is_refused(folder: Path) -> None:
    """The error names the argument and the folder, before anything is compiled."""
    with pytest.raises(ConfigError, match=r"include='.*nowhere': must be a folder of headers"):
        kernel(folder, "common", "nowhere")
