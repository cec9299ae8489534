"""A slot's ready flag is cleared too early, in Ascend C.

xccl-emu check corpus/flag_cleared_early/in_ascendc.py:Broken
"""

from dataclasses import dataclass
from pathlib import Path

from xccl_emu.corpus.flag_cleared_early import flag_cleared_early
from xccl_emu.corpus.parts import InAscendC


@dataclass(frozen=True)
class Mended(InAscendC, flag_cleared_early.Mended):
    """As it is mended in Python."""

    source = Path(__file__).with_name("flag_cleared_early.cpp")


@dataclass(frozen=True)
class Broken(Mended):
    """As it is broken in Python."""

    mended = 0
