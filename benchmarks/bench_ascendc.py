"""Kernels in Ascend C: seconds to compile one, and steps a second next to the same requests' in Python."""

import os
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import device
from bench_machine import run_once
from harness import Report, in_turns, parser, stopwatch

from xccl_emu.doors import ascendc
from xccl_emu.lang import Kernel
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import small_pod
from xccl_emu.protocol import registry

ROOT = Path(__file__).parents[1]
STEPS = Path(__file__).with_name("ascendc_steps.cpp")
SOURCES = {
    "examples/ascendc/sendrecv.cpp": "send", "examples/ascendc/ring.cpp": "all_gather",
    "examples/ascendc/moe.cpp": "combine", "xccl_emu/doors/ascendc/operators/litmus.cpp": "litmus",
}  # fmt: skip
"""Sources, and the kernel of each that is compiled."""


def compile_seconds(file: str, name: str) -> float:
    """Seconds of one, into an empty cache."""
    kernel = ascendc.ascend_kernel(ROOT / file, name)
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, NUMBA_CACHE_DIR=f"{folder}/numba"):
        started = time.perf_counter()
        assert kernel.sites
        return time.perf_counter() - started


def measure_steps(report: Report, repeats: int) -> None:
    """The same loop in both languages, in turns."""
    pod, rounds = Pod(small_pod(1)), 1_000_000
    pairs = {
        "stores to the data buffer": (ascendc.ascend_kernel(STEPS, "scalar_steps"), device.scalar_steps, 1),
        "events set and waited for": (ascendc.ascend_kernel(STEPS, "flag_steps"), device.flag_steps, 2),
    }

    def seconds(kernel: Kernel, n: int) -> float:
        blocks = dict.fromkeys(("block_idx", "block_num"), 0) if isinstance(kernel, ascendc.AscendKernel) else {}
        return run_once(pod, kernel, {**blocks, "n": n}, [])[0]

    for what, (kernel, twin, steps) in pairs.items():
        for each in (kernel, twin):
            seconds(each, 1)  # compile
        ours, python = in_turns(repeats, lambda k=kernel: seconds(k, rounds), lambda k=twin: seconds(k, rounds))
        report.at_least(f"steps without payload: {what}", steps * rounds / ours / 1e6, 4, "M/s")
        report.plain("of the steps of the same in Python", python / ours)


def measure_dispatch(report: Report, repeats: int) -> None:
    """Actions of a dispatch, payload in: each is a step of a core, of a pipe or of a write in flight."""
    case = registry.of_file(f"{ROOT}/examples/ascendc/moe.py:Dispatch")(ranks=4, tokens=64, top_k=4)

    def rate() -> float:
        pod = case.build("sc").pod
        with stopwatch() as taken:
            actions = pod.run().actions
        return actions / taken["cpu"]

    report.plain("actions of a dispatch of 4 ranks", max(rate() for _ in range(repeats)) / 1e6, "M/s")


def main() -> None:
    """Measure, and print the table."""
    command = parser(__doc__)
    command.add_argument("--repeats", type=int, default=5, help="counts; the best one is reported")
    options = command.parse_args()
    report = Report("Kernels in Ascend C")
    for file, name in SOURCES.items():
        report.at_most(f"compile {name} of {Path(file).name}", compile_seconds(file, name), 10, "s")
    measure_steps(report, options.repeats)
    measure_dispatch(report, options.repeats)
    report.finish(options.json)


if __name__ == "__main__":
    main()
