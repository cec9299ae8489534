"""A line that is never looked at again, in Ascend C.

xccl-emu check corpus/stale_line/in_ascendc.py:Broken
"""

from dataclasses import dataclass
from pathlib import Path

from xccl_emu.corpus.parts import InAscendC
from xccl_emu.corpus.stale_line import stale_line


@dataclass(frozen=True)
class Mended(InAscendC, stale_line.Mended):
    """As it is mended in Python."""

    source = Path(__file__).with_name("stale_line.cpp")


@dataclass(frozen=True)
class Broken(Mended):
    """As it is broken in Python."""

    mended = 0
