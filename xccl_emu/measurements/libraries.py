"""Benchmarks that libraries for this hardware publish of themselves."""

from dataclasses import dataclass

from xccl_emu.measurements import Measurement, Suite


@dataclass(frozen=True)
class Hixl(Measurement):
    """Copies of 128 MiB by the DMA engine, in blocks of 1 to 8 MiB, to a die of the same and of another node (HIXL)."""

    name = "hixl"
    suite = Suite(9, 8, 1.5, 1.0)


@dataclass(frozen=True)
class Hccl(Measurement):
    """All-gather of 1.3, 8.8 and 40 MB of each of 16 dies of a server, beside what HCCL takes for it.

    Above 2 MB of a rank no payload moves, and nothing is compared.
    """

    name = "hccl"
    suite = Suite(11, 9, 1.5, 1.0)


@dataclass(frozen=True)
class DeepEp(Measurement):
    """DeepEP's low-latency mode on 8 to 256 of these dies, with 128 tokens each, beside FusedDispatch and the H800."""

    name = "deepep"
    suite = Suite(12, 2, 17.0, 3.5)
