"""What tests of kernels in CUDA C++ share: kernels on a pod of one or more ranks, with buffers by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.foreign_support import ROOT
from xccl_emu.doors import cuda
from xccl_emu.protocol import Bench, Regions

SOURCES = ROOT / "tests" / "cuda_sources"
WORDS = SOURCES / "words.cu"


def source(tmp_path: Path, body: str) -> Path:
    """A file with a kernel ``k(int *out, const int *in)`` of this body."""
    file = tmp_path / "k.cu"
    file.write_text(f"__global__ void k(int *out, const int *in)\n{{\n{body}\n}}\n")
    return file


def ran(
    kernel: cuda.CudaKernel, buffers: Mapping[str, NDArray[Any]], grid: int = 1, block: int = 1, **args: Any
) -> dict[str, NDArray[Any]]:
    """What buffers of rank 0 hold, after a run of a kernel that may read and write all of them."""
    bench = Bench("sc", ())
    room = sum(each.nbytes + 32 for each in buffers.values()) + 64
    gpus = cuda.gpus(bench, Regions(1), grid, block, app_bytes=room)
    held = {name: bench.filled(0, each, name) for name, each in buffers.items()}
    given = {name: each.address for name, each in held.items()}
    gpus.launch(kernel, 0, {**given, **args}, [gpus.pod.grant(each, "rw") for each in held.values()], grid, block)
    gpus.pod.run()
    return {
        name: gpus.pod.span(held[name].address, each.nbytes).view(each.dtype).reshape(each.shape).copy()
        for name, each in buffers.items()
    }


def line_of(file: Path, text: str) -> int:
    """The line of a file that has a text first."""
    return next(i for i, line in enumerate(file.read_text().splitlines(), 1) if text in line)


MANY = np.dtype([("numbers", "f4", 4), ("small", "i2", 2)])
