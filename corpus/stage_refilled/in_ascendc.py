"""A stage in the data buffer is refilled too early, in Ascend C.

xccl-emu check corpus/stage_refilled/in_ascendc.py:Broken
"""

from dataclasses import dataclass
from pathlib import Path

from xccl_emu.corpus.parts import InAscendC
from xccl_emu.corpus.stage_refilled import stage_refilled


@dataclass(frozen=True)
class Mended(InAscendC, stage_refilled.Mended):
    """As it is mended in Python."""

    source = Path(__file__).with_name("stage_refilled.cpp")


@dataclass(frozen=True)
class Broken(Mended):
    """As it is broken in Python."""

    mended = 0
