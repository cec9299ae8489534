"""Cases that nccl-tests would measure."""

from abc import abstractmethod
from typing import Self

from xccl_emu.protocol.case import Case


class Collective(Case):
    """A case with a payload of any size, several calls back to back, and results in place or not.

    It derives from this beside `Case`, and has the fields that are named here.
    """

    calls: int
    in_place: int
    dtype: str
    """``"bf16"`` or ``"fp16"``."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Elements, as the call would be told them: of a share, where each rank has its own."""

    @property
    @abstractmethod
    def redop(self) -> str:
        """``"sum"``, or ``"none"`` of what adds nothing."""

    @abstractmethod
    def of_bytes(self, nbytes: int) -> Self:
        """The same with a payload of so many bytes, or a little less where ranks cannot share them evenly."""
