"""Latency and bandwidth of every class of paths, measured by kernels that read and write in virtual time (Table 1).

And copies by a die's DMA engine to and from another die, block by block, as [HIXL]'s benchmark moves 128 MiB: one core
rings a descriptor for each block.  They are a queue: the next begins when the one before it is done.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from xccl_emu.base.sizes import parse_size
from xccl_emu.kernels.transfers import copy_blocks, read_blocks, write_blocks
from xccl_emu.lang.requests import MTU_IN, MTU_OUT
from xccl_emu.machine.spec import CLOUDMATRIX384, GIB, KIB, MIB
from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.published import Published
from xccl_emu.papers.bench.result import Result, Wire, total_wrong
from xccl_emu.papers.bench.setting import DEFAULT, TARGETS, Setting
from xccl_emu.timing.array import PS_PER_US
from xccl_emu.timing.device import layout as tl
from xccl_emu.timing.fabric import NODE_CPU, OTHER_CPU, OTHER_NODE, PATHS, SAME_DIE, SAME_NODE, SIBLING_DIE
from xccl_emu.timing.run import Timing
from xccl_emu.timing.topologies import RDMA, VPC

LATENCY_BYTES = 512
"""The transfer whose latency is measured, as in the published table."""

BLOCK_BYTES, BLOCKS = 64 * KIB, 16
"""What each core moves, one block after the other, when bandwidth is measured."""

OPS = ("read", "write")
ASSUMED_LATENCY = "an assumption of the topology, measured back"

ONE_OF_EACH = (0, 1, 2, 16, CLOUDMATRIX384.n_dies, CLOUDMATRIX384.n_dies + CLOUDMATRIX384.cpus_per_node)
"""A die, or a CPU, on each class of paths from die 0 of the pod, as `PATHS` names them."""


@dataclass(frozen=True)
class MeasuredPath:
    """Latency and bandwidth measured in one direction of one path."""

    latency_us: float
    gb_s: float
    wrong: int | None
    """Bytes that are not where they should be, or not what they should be."""


def measure(path: int, op: str, setting: Setting = DEFAULT, over: str = "") -> MeasuredPath:
    """Run kernels on die 0 that ``"read"`` from or ``"write"`` to memory on a class of paths, over a network but UB
    if one is named.

    Latency: one core, from the start of a transfer of 512 bytes until it is done. Bandwidth: all cores of the die.
    """
    _, latency_us, wrong = _run(path, op, setting, over, 1, LATENCY_BYTES, 1)
    moved, took_us, wrong_too = _run(path, op, setting, over, CLOUDMATRIX384.cores_per_die, BLOCK_BYTES, BLOCKS)
    return MeasuredPath(latency_us, moved / took_us / 1000, total_wrong((wrong, wrong_too)))


def _run(
    path: int, op: str, setting: Setting, over: str, cores: int, nbytes: int, times: int
) -> tuple[int, float, int | None]:
    """Bytes that went over the path, microseconds from the first one's start to the last one's end, wrong bytes."""
    pod, policy = setting.pod(log=[0])
    far, each = ONE_OF_EACH[path], nbytes * times
    read = op == "read"
    here, there = (far, 0) if read else (0, far)
    strides, kernel = ((each, nbytes), read_blocks) if read else ((nbytes, each), write_blocks)
    source, target = pod.alloc(here, cores * strides[0]), pod.alloc(there, cores * strides[1])
    data = np.zeros((cores, 1, nbytes), np.uint8)
    if setting.data:
        data = np.random.default_rng(setting.seed).integers(0, 256, (cores, strides[0] // nbytes, nbytes), np.uint8)
        pod.view(source)[:] = data.ravel()
    expected = data[:, -1] if read else np.broadcast_to(data, (cores, times, nbytes))
    args: dict[str, int | Sequence[int]] = {
        "source": [source.address + core * strides[0] for core in range(cores)],
        "target": [target.address + core * strides[1] for core in range(cores)],
        "nbytes": nbytes, "times": times,
    }  # fmt: skip
    pod.launch(kernel, 0, range(cores), args, [pod.grant(source, "r"), pod.grant(target, "w")])
    policy.over = {over: [source if read else target]} if over else {}
    pod.run()
    wrong = int(np.count_nonzero(pod.view(target) != expected.ravel())) if setting.data else None
    return cores * each, _span_us(policy.timing, MTU_IN if read else MTU_OUT), wrong


def _span_us(timing: Timing, engine: int) -> float:
    """Return the time from the start of an engine's first transfer to the end of its last."""
    records = timing.records
    moved = records[(records[:, tl.RECORD_ENGINE] == engine) & (records[:, tl.RECORD_NBYTES] > 0)]
    return int(moved[:, tl.RECORD_VISIBLE].max() - moved[:, tl.RECORD_START].min()) / PS_PER_US


def links(setting: Setting = DEFAULT) -> list[Result]:
    """Table 1: bandwidth and latency of reads and writes, within the node and beyond; then other paths and planes."""
    with setting.stage("links"):
        return [*_table(setting), *_on_chip(setting), *_planes(setting)]


def _table(setting: Setting) -> Iterator[Result]:
    paths = {
        ("NPU-NPU", "same"): SAME_NODE, ("NPU-NPU", "other"): OTHER_NODE,
        ("NPU-CPU", "same"): NODE_CPU, ("NPU-CPU", "other"): OTHER_CPU,
    }  # fmt: skip
    measured = {(*ends, op): measure(path, op, setting) for ends, path in paths.items() for op in OPS}
    for row in published.rows("links"):
        ends, op, figure, where, _ = row.what.replace(",", "").split()
        yield _figure(row, measured[ends, where, op], figure)


def _figure(row: Published, one: MeasuredPath, figure: str) -> Result:
    """Bandwidth carries what was wrong in both transfers, so that it counts once."""
    return Result.of(row, one.latency_us) if figure == "latency" else Result.of(row, one.gb_s, wrong=one.wrong)


def _on_chip(setting: Setting) -> Iterator[Result]:
    for path in (SAME_DIE, SIBLING_DIE):
        for op in OPS:
            one = measure(path, op, setting)
            what = f"{PATHS[path]} {op}"
            yield Result("links", f"{what} bandwidth", one.gb_s, "GB/s", wrong=one.wrong)
            yield Result("links", f"{what} latency", one.latency_us, "us")


def _planes(setting: Setting) -> Iterator[Result]:
    """Writes over the planes for other supernodes and for the datacenter; their latencies were not published."""
    planes = {"RDMA plane a die, a direction": RDMA, "VPC plane a node": VPC}
    for what, network in planes.items():
        one = measure(OTHER_NODE, "write", setting, network.name)
        yield Result.of(published.row("topology", what), 8 * one.gb_s, bench="links", wrong=one.wrong)
        yield Result("links", f"{what.split()[0]} write latency", one.latency_us, "us", note=ASSUMED_LATENCY)


TOTAL_BYTES = 128 * MIB
PLACES = {"same chip": TARGETS["sibling"], "same node": TARGETS["node"], "other node": TARGETS["pod"]}
"""The other die, by the end of a row's name."""


def copy_us(setting: Setting, row: Published) -> tuple[float, int | None]:
    """Microseconds from the call of a row's copies to the end of the last, launch included; and wrong bytes."""
    op, block, place = _parse(row)
    return copied_us(setting, op, block, PLACES[place])


def copied_us(setting: Setting, op: str, block: int, die: int, total: int = TOTAL_BYTES) -> tuple[float, int | None]:
    """The same of blocks that die 0 reads from another die, or writes to it."""
    here, there = (die, 0) if op == "read" else (0, die)
    pod, policy = setting.pod()
    source, target = pod.alloc(here, total), pod.alloc(there, total)
    if setting.data:
        rng = np.random.default_rng(setting.seed)
        pod.view(source)[:] = rng.integers(0, 256, total, np.uint8)
    args = {
        "source": source.address, "target": target.address, "nbytes": block, "times": total // block,
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


def hixl(setting: Setting = DEFAULT, rows: Sequence[Published] | None = None) -> Iterator[Result]:
    """Every row, or some."""
    for row in published.rows("hixl") if rows is None else rows:
        with setting.stage(row.what):
            took_us, wrong = copy_us(setting, row)
        op, block, place = _parse(row)
        path = setting.fabric.paths[setting.fabric.path_of(0, PLACES[place])]
        wire_us = TOTAL_BYTES / 1000 / (path.read if op == "read" else path.write).gb_s
        wire = Wire("copies", wire_us, TOTAL_BYTES // block, TOTAL_BYTES / GIB)
        yield Result.of(row, gib_s(took_us), wrong=wrong, wire=wire)
