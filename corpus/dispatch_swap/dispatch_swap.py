"""An expert's slot is reloaded while pull dispatch and combine run: the four phases of the paper, as printed.

xccl-emu check dispatch-swap:Printed
"""

from dataclasses import dataclass
from typing import ClassVar

from xccl_emu.check import verdict
from xccl_emu.protocol import text
from xccl_emu.protocol.corpus import Member
from xccl_emu.protocols.experts.routed import TOKENS_HELP
from xccl_emu.protocols.serving.swap import DispatchSwap

MEMBER = Member(("xDeepServe 4.5",), verdict.DATA_RACE, "a rank whose tokens went by the map before")


@dataclass(frozen=True)
class Mended(DispatchSwap):
    """The loader waits until all ranks have adopted the map without the slot."""

    tokens: int | str = text("2,0", TOKENS_HELP, each_call=True)


@dataclass(frozen=True)
class Printed(Mended):
    """It loads as soon as the map is published."""

    grace: ClassVar[int] = 0


Broken = Printed
