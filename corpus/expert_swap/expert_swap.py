"""An expert's slot is reloaded while tokens for it are on their way: the four phases of the paper, as printed.

xccl-emu check expert-swap:Printed
"""

from dataclasses import dataclass

from xccl_emu.check import verdict
from xccl_emu.protocol.corpus import Member
from xccl_emu.protocols.serving.reconfigure import ReconfigureCase

MEMBER = Member(("xDeepServe 4.5",), verdict.DATA_RACE, "a source that has read the map before the slot was disabled")


@dataclass(frozen=True)
class Mended(ReconfigureCase):
    """The loader waits until all sources have adopted the map without the slot."""


@dataclass(frozen=True)
class Printed(Mended):
    """It loads as soon as the map is published."""

    grace = 0


Broken = Printed
