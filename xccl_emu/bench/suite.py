"""All benches, one after the other."""

from collections.abc import Callable

from xccl_emu.bench.ablation import ablation
from xccl_emu.bench.buffers import buffers
from xccl_emu.bench.dispatch import dispatch
from xccl_emu.bench.iteration import iteration
from xccl_emu.bench.links import links
from xccl_emu.bench.result import Result
from xccl_emu.bench.sendrecv import sendrecv
from xccl_emu.bench.setting import DEFAULT, Setting
from xccl_emu.bench.tpot import tpot_and_a2e

BENCHES: tuple[Callable[[Setting], list[Result]], ...] = (
    links, buffers, sendrecv, dispatch, iteration, tpot_and_a2e, ablation,
)  # fmt: skip
"""In the order in which they are shown; A2E is run once for its own rows and for the budget."""


def everything(setting: Setting = DEFAULT) -> list[Result]:
    """The rows of all benches."""
    return [result for bench in BENCHES for result in bench(setting)]
