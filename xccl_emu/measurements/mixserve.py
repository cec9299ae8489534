"""Figures of [MixServe]."""

from dataclasses import dataclass

from xccl_emu.measurements import Measurement


@dataclass(frozen=True)
class OperatorsMeasurement(Measurement):
    """All-reduce and all-to-all by degree and by size on 910Bs, 4 nodes of 8 (MixServe, Figure 3).

    Compared with what the paper's text says of the figure, which has no numbers.
    """

    name = "operators"
    own_fabric = True
