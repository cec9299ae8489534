"""Pull dispatch and combine beside their paper, [xDeepServe]."""

from xccl_emu.kernels.pull import combine, dispatch
from xccl_emu.protocol import Deviation, Paper, Step

DISPATCH = Paper(
    "Pull dispatch", "xDeepServe 3.2", (dispatch,), (
        Step(
            1, "The engine passes a buffer, an event ID and more; cores load tokens side by side.", (
                Deviation(
                    "Event IDs count rounds; the caller passes none.",
                    "Acknowledgments count rounds too, and any other ID would have to be mapped to them.",
                ),
                Deviation(
                    "The place of each message is counted here, on the vector pipe, for large batches in scalar loops.",
                    "The paper does not say how cores know where to write. `v_count` is an instruction of ours:"
                    " loops of the scalar unit alone took 15 to 20 µs.", "v_count",
                ),
            ),
        ),
        Step(
            2, "Vector instructions make INT8 of FP16 or BF16, if asked for.", (
                Deviation(
                    "One scale a token, amax / 127 in FP32, behind the payload; rounding to the even.",
                    "4.7 has one scale a token and no formula; `quantizers.md` has ours, and CANN's.", "v_quantize",
                ),
            ),
        ),
        Step(
            3, "Write tokens into the own managed area, which is partitioned by destination rank.", (
                Deviation(
                    "A token goes once for each expert, also where one rank has several of them; in a block messages"
                    " stand by expert.",
                    "So a row belongs to one expert, and its position is all that combine needs to find it.",
                    "mtu_out",
                ),
                Deviation(
                    "Behind each payload are 512 bytes with scale, source rank, token, choice and expert.",
                    "The paper gives no message; CloudMatrix384 4.2.1 has this one.", "c.payload + 16, slot",
                ),
                Deviation(
                    "Wait for the destination's acknowledgment of the round before.",
                    "The paper does not say when a block may be written again.", "poll_ge dispatch blocks free",
                ),
                Deviation(
                    "A quiet before step 4, and there a barrier of the cores.",
                    "A core's quiet covers its own writes; the paper names no order of tokens and counts.",
                    "quiet tokens visible",
                ),
            ),
        ),
        Step(
            4, "Tell each destination its count; a field has event ID, offset and count, one for each rank.", (
                Deviation(
                    "One field for each expert of the destination.",
                    "Rows are received by expert, and so any core can pull any of them.", "put counts",
                ),
            ),
        ),
        Step(
            5, "Poll the own metadata until all ranks have told.", (
                Deviation(
                    "A core polls its share of the fields, notes the counts in memory, and all meet.",
                    "All fields on each core would take as many polls as there are ranks, 48 times.",
                    "poll_eq counts in",
                ),
            ),
        ),
        Step(
            6, "Pull tokens into the data buffer by mtu-in, led by offsets and counts; DMA may do it.", (
                Deviation(
                    "Rows are dealt evenly to the cores, and each rank begins as far on as it stands in the group.",
                    "The paper gives no order; if all began with rank 0, its port would be the bottleneck.", "mtu_in",
                ),
                Deviation(
                    "By DMA row by row, payload and route, each awaited.",
                    "It is there to be checked and compared, and no published number is of it.", "dma",
                ),
            ),
        ),
        Step(
            7, "Copy into the destination buffer in the app data area by mtu-out.", (
                Deviation(
                    "When all cores have pulled, acknowledge to each source.", "The other half of the wait in step 3.",
                    "put dispatch ack",
                ),
            ),
        ),
    ),
)  # fmt: skip

COMBINE = Paper(
    "Pull combine",
    "xDeepServe 3.2, of which it says that it is like dispatch", (combine,), (
        Step(1, "Load the outputs of the experts."),
        Step(
            2, "4.7: quantize outputs, and dequantize them within the operator.", (
                Deviation(
                    "Only on request (`quantized_back`), by the rule of dispatch.",
                    "3.2 and Figure 6, where combine moves twice the bytes, do not have it.", "v_quantize",
                ),
            ),
        ),
        Step(
            3, "Write them into the own managed area, by the rank of their tokens.", (
                Deviation(
                    "Wait for that rank's acknowledgment of the round before.", "As in dispatch.",
                    "poll_ge combine blocks free",
                ),
            ),
        ),
        Step(
            4, "Tell each rank.", (
                Deviation(
                    "A field has event ID and offset, and no count.",
                    "The rank knows from its choices what it gets; dispatch's positions say where it stands.",
                    "put rows offered",
                ),
            ),
        ),
        Step(
            5, "Poll until all ranks have told.", (
                Deviation(
                    "Token by token, and only for the ranks of its experts.",
                    "Waiting for all made each token wait for the slowest rank.", "poll_eq rows in",
                ),
            ),
        ),
        Step(
            6, "Pull contributions.", (
                Deviation(
                    "By DMA a contribution lands in the own managed area and is loaded from there.",
                    "DMA does not write to data buffers.", "dma",
                ),
            ),
        ),
        Step(
            7, "Weigh and add; copy the sum out.", (
                Deviation(
                    "In FP32 in order of the choices, each product rounded, the shared expert last and unweighted;"
                    " rounded once.",
                    "The paper gives no order, and bits depend on it.", "v_axpy",
                ),
                Deviation(
                    "Acknowledge to every rank, also to those that nothing was needed from.",
                    "A rank writes into its blocks again when all have acknowledged.", "put combine ack",
                ),
            ),
        ),
    ),
)  # fmt: skip
