"""[DeepEP]'s low-latency dispatch and combine beside their source, which stands in place of a paper."""

from xccl_emu.kernels.deepep import combine, dispatch
from xccl_emu.protocol import Deviation, Paper, Step

_SOURCE = "deepseek-ai/DeepEP, csrc/kernels/internode_ll.cu"

DEEPEP_DISPATCH = Paper(
    "Low-latency dispatch", _SOURCE, (dispatch,), (
        Step(
            1, "One unit cleans the signals of the next buffer set; the others read a token's choices.", (
                Deviation(
                    "Each core cleans its share; a quiet, and all cores meet before the first token leaves.",
                    "There the last counts wait for a counter in memory; here a barrier costs less than polls of it.",
                    "quiet next buffer clean",
                ),
            ),
        ),
        Step(
            2, "Cast the token to FP8, with a scale for each 128 elements.", (
                Deviation("To INT8 with one scale, or not at all.", "As XCCL; FP8 is not here.", "v_quantize"),
                Deviation(
                    "For each of a core's experts anew.", "Cores share experts out, not tokens.",
                    "v_quantize",
                ),
            ),
        ),
        Step(
            3, "Put it into the block of this source and that expert, in the next slot of it.", (
                Deviation(
                    "The slot is a core's own count; there it is drawn by an atomic addition.",
                    "So rows always come in order of the tokens, and bits do not depend on who was first.",
                    "n + 1, step=3",
                ),
                Deviation(
                    "Blocks stand by source and then by expert.", "So what a source may write is one range.",
                    "mtu_out(at, data",
                ),
                Deviation(
                    "Behind each payload are the 512 bytes of XCCL's messages.", "The dummy expert needs the route.",
                    "slot, step=3",
                ),
            ),
        ),
        Step(
            4, "When all tokens of an expert are issued, add -n - 1 to its signal, on the same queue.", (
                Deviation(
                    "A fence, and no counter of what is issued: all tokens of an expert leave by one core.",
                    "Queues of cores are not ordered with each other.", "fence tokens before counts",
                ),
                Deviation(
                    "With a hook, the half that sends ends when its writes are visible; there they may still travel.",
                    "Every launch here ends behind a quiet, so less overlaps than on GPUs, and less of that is proved.",
                ),
            ),
        ),
        Step(
            5, "Wait until the signal is not 0; draw the first row by an atomic addition.", (
                Deviation(
                    "All counts are noted, and all cores meet; the first row follows from them.",
                    "As above: so rows are in order of the sources, those of all experts one behind the other.",
                    "store",
                ),
            ),
        ),
        Step(6, "Load a token from its block."),
        Step(7, "Store it where its expert reads."),
    ),
)  # fmt: skip

DEEPEP_COMBINE = Paper(
    "Low-latency combine", _SOURCE, (combine,), (
        Step(
            1, "One unit cleans the signals of the next buffer set; put each row of an expert to the home of its token,"
            " by expert and token.", (
                Deviation("Each core cleans its share, as in dispatch.", "As there.", "quiet next buffer clean"),
                Deviation(
                    "Rows stand by token and choice.",
                    "So a set has room for as many rows as tokens have choices, not as there are experts.",
                    "ub_load(routes + i * ROUTE_BYTES + 12",
                ),
            ),
        ),
        Step(
            2, "When all of an expert's rows for a home are issued, and the next set is clean, add 1 to the expert's"
            " signal there.", (
                Deviation("A fence, as in dispatch.", "As there.", "fence rows before flags"),
            ),
        ),
        Step(
            3, "Wait until the signals of all experts are set, and meet; add up each token's contributions in FP32,"
            " weighed, in order of its choices; round once.", (
                Deviation(
                    "Each product is rounded before it is added.", "As in all combines here; there it may be fused.",
                    "v_axpy",
                ),
            ),
        ),
    ),
)  # fmt: skip
