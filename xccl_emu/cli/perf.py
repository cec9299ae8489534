"""Settings of `bench` for a collective, with the options of nccl-tests."""

from collections.abc import Sequence
from dataclasses import dataclass

from xccl_emu.errors import ConfigError
from xccl_emu.options import Modelled, option
from xccl_emu.sizes import sizes_from

TYPES = {"bf16": "bfloat16", "fp16": "half"}
"""Types of elements, and what nccl-tests call them."""


@dataclass(frozen=True)
class Perf(Modelled):
    """Time a protocol at every combination of its sizes: --dies 2,4,8 --elements 1024,65536.

    The time is virtual, from the beginning of the first core to the end of the last. algbw is the payload over the
    time, busbw what the links would have to carry, as nccl-tests define both; a case says its payload and its factor.

    Collectives are timed as nccl-tests time them, with its options: -b 1K -e 1M -f 4 -n 5 -w 1 -d half -o sum.
    """

    begin: str | None = option(None, "Payload to begin with, as 8, 32K or 1M.", named=("-b",), metavar="BYTES")
    end: str | None = option(None, "Payload to end with.", named=("-e",), metavar="BYTES")
    factor: int = option(2, "From a payload to the next.", named=("-f",), least=2)
    iterations: int = option(3, "Calls that are timed.", named=("-n",), least=1)
    warmup: int = option(1, "Calls before them.", named=("-w",), least=0)
    dtype: str | None = option(None, "bfloat16 or half.", named=("-d",), metavar="TYPE")
    op: str | None = option(None, "sum, or none where nothing is reduced.", named=("-o",), metavar="OP")
    no_data: bool = option(False, "Move no payload and check nothing: the same times, faster.")

    def __post_init__(self) -> None:
        if self.dtype is not None and self.type_of is None:
            raise ConfigError(f"-d {self.dtype}: must be one of {', '.join(TYPES.values())}")
        if self.end is not None and self.begin is None:
            raise ConfigError(f"-e {self.end}: needs -b")

    @property
    def type_of(self) -> str | None:
        """The type of the elements as cases have it."""
        return next((ours for ours, theirs in TYPES.items() if self.dtype in (ours, theirs)), None)

    def sizes(self) -> Sequence[int | None]:
        """Bytes of each payload; None for the case's own."""
        if self.begin is None:
            return [None]
        return sizes_from(self.begin, self.end or self.begin, self.factor)
