"""A store that is issued and not propagated, in Ascend C.

xccl-emu check corpus/store_issued/in_ascendc.py:Broken
"""

from dataclasses import dataclass
from pathlib import Path

from xccl_emu.corpus.parts import InAscendC
from xccl_emu.corpus.store_issued import store_issued


@dataclass(frozen=True)
class Mended(InAscendC, store_issued.Mended):
    """As it is mended in Python."""

    source = Path(__file__).with_name("store_issued.cpp")


@dataclass(frozen=True)
class Broken(Mended):
    """As it is broken in Python."""

    mended = 0
