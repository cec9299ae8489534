"""Cases that nccl-tests would measure."""

from abc import abstractmethod
from typing import Self

from xccl_emu.protocol.case import Case


class Collective(Case):
    """A case with a payload of any size, several calls back to back, and results in place or not.

    It derives from this and from `Case`, and has the fields that are named here.
    """

    calls: int
    in_place: int
    dtype: str
    """``"bf16"`` or ``"fp16"``."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Elements, as an argument of the call would give them: of a share, where each rank has its own."""

    @property
    @abstractmethod
    def redop(self) -> str:
        """``"sum"``, or ``"none"`` of what adds nothing."""

    @abstractmethod
    def of_bytes(self, nbytes: int) -> Self:
        """Return the same with a payload of ``nbytes`` bytes, or a little less where ranks cannot share them evenly."""
