"""Copies by a die's DMA engine to and from another die, block by block, as [HIXL]'s benchmark moves 128 MiB.

One core rings a descriptor for each block.  They are a queue: the next begins when the one before it is done.
"""

from collections.abc import Sequence

import numpy as np

from xccl_emu.base.sizes import parse_size
from xccl_emu.kernels.transfers import copy_blocks
from xccl_emu.machine.spec import GIB, MIB
from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.published import Published
from xccl_emu.papers.bench.result import Result, Wire
from xccl_emu.papers.bench.setting import DEFAULT, TARGETS, Setting

TOTAL_BYTES = 128 * MIB
PLACES = {"same node": TARGETS["node"], "other node": TARGETS["pod"]}
"""The other die, by the end of a row's name."""


def copy_us(setting: Setting, row: Published) -> tuple[float, int | None]:
    """Microseconds from the call of a row's copies to the end of the last, launch included; and wrong bytes."""
    op, block, place = _parse(row)
    here, there = (PLACES[place], 0) if op == "read" else (0, PLACES[place])
    pod, policy = setting.pod()
    source, target = pod.alloc(here, TOTAL_BYTES), pod.alloc(there, TOTAL_BYTES)
    if setting.data:
        rng = np.random.default_rng(setting.seed)
        pod.view(source)[:] = rng.integers(0, 256, TOTAL_BYTES, np.uint8)
    args = {
        "source": source.address, "target": target.address, "nbytes": block, "times": TOTAL_BYTES // block,
    }  # fmt: skip
    pod.launch(copy_blocks, 0, [0], args, [pod.grant(source, "r"), pod.grant(target, "w")])
    pod.run()
    wrong = int(np.count_nonzero(pod.view(source) != pod.view(target))) if setting.data else None
    return policy.timing.latency_us + setting.costs.launch_us, wrong


def _parse(row: Published) -> tuple[str, int, str]:
    """Read or write, bytes of a block, and where to."""
    blocks, place = row.what.split(", ")
    op, number, unit, _ = blocks.split()
    return op, parse_size("block", number + unit), place


def gib_s(took_us: float) -> float:
    """Bandwidth of the whole."""
    return TOTAL_BYTES / GIB / (took_us * 1e-6)


def hixl(setting: Setting = DEFAULT, rows: Sequence[Published] | None = None) -> list[Result]:
    """Every row, or some."""
    results = []
    for row in published.rows("hixl") if rows is None else rows:
        with setting.stage(row.what):
            took_us, wrong = copy_us(setting, row)
        op, block, place = _parse(row)
        path = setting.fabric.paths[setting.fabric.path_of(0, PLACES[place])]
        wire_us = TOTAL_BYTES / 1000 / (path.read if op == "read" else path.write).gb_s
        wire = Wire("copies", wire_us, TOTAL_BYTES // block, TOTAL_BYTES / GIB)
        results.append(Result.of(row, gib_s(took_us), wrong=wrong, wire=wire))
    return results
