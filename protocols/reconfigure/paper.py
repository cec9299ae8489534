"""Reconfiguration of experts beside its paper, [xDeepServe] 4.5."""

from xccl_emu.kernels import reconfigure
from xccl_emu.protocol import Deviation, Paper, Step

RECONFIGURATION = Paper(
    "Reconfiguration of experts", "xDeepServe 4.5, step 3, whose four phases are steps here", (reconfigure,), (
        Step(
            1, "Prefetch the weights of the new expert from storage into memory.", (
                Deviation("Into the data buffer of a core.", "One slot is loaded at a time.", "mtu_in"),
            ),
        ),
        Step(
            2, "Disable the redundant slot by changing the map from logical to physical experts.", (
                Deviation(
                    "Maps are numbered, in two tables by turns; a source adopts one between iterations and says so.",
                    "So that tokens of an iteration all go by one map, and the loader knows which is in use.",
                    "add adopted",
                ),
                Deviation(
                    "A grace period: the loader goes on when all sources have adopted the map.",
                    "Without it, as printed, a token by the old map meets weights that are half new;"
                    " `corpus/expert_swap` shows it.", "all adopted",
                ),
            ),
        ),
        Step(
            3, "Load the weights into the slot.", (
                Deviation(
                    "A quiet behind them.", "Sources learn of the slot from another die's memory.",
                    "quiet weights before map",
                ),
            ),
        ),
        Step(
            4, "Enable the slot by the map; tokens go to replicas by turns of their positions.", (
                Deviation(
                    "A message has the number of its map, a slot that since which it has its weights; an older one is"
                    " refused.", "An error is better than a token computed by another expert.", "fail",
                ),
            ),
        ),
    ),
)  # fmt: skip
