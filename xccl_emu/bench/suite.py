"""All benches, one after the other."""

from collections.abc import Callable
from dataclasses import replace

from xccl_emu.bench import published
from xccl_emu.bench.ablation import ablation
from xccl_emu.bench.buffers import buffers
from xccl_emu.bench.dispatch import dispatch
from xccl_emu.bench.fused import fused
from xccl_emu.bench.iteration import iteration
from xccl_emu.bench.links import links
from xccl_emu.bench.result import Result
from xccl_emu.bench.sendrecv import sendrecv
from xccl_emu.bench.setting import DEFAULT, Setting
from xccl_emu.bench.tpot import tpot_and_a2e


def table7(setting: Setting = DEFAULT) -> list[Result]:
    """The fused operators, with what was published of DeepEP on H800 beside."""
    theirs = {row.what: {"H800": row.value} for row in published.rows("fused_h800")}
    return [replace(row, beside=theirs.get(row.what, {})) if not row.baseline else row for row in fused(setting)]


BENCHES: tuple[Callable[[Setting], list[Result]], ...] = (
    links, buffers, sendrecv, dispatch, table7, iteration, tpot_and_a2e, ablation,
)  # fmt: skip
"""In the order in which they are shown; A2E is run once for its own rows and for the budget."""


def everything(setting: Setting = DEFAULT) -> list[Result]:
    """The rows of all benches."""
    return [result for bench in BENCHES for result in bench(setting)]
