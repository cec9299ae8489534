"""FusedDispatch and FusedCombine beside their paper, [CloudMatrix384]."""

from xccl_emu.kernels.fused import combine, dispatch
from xccl_emu.protocol import Deviation, Paper, Step

FUSED_DISPATCH = Paper(
    "FusedDispatch", "CloudMatrix384 4.2.1", (dispatch,), (
        Step(
            1, "For each token: load it, quantize it, append scale and routing (source rank, batch slot, key offset),"
            " find the rank of each expert, and write it there; while one leaves, the next is loaded and quantized.", (
                Deviation(
                    "The scale is FP32 where the paper has INT32.",
                    "amax / 127 is no integer; both take 4 bytes of the 512.", "v_quantize",
                ),
                Deviation("The expert slot travels too.", "The dummy expert scales by it.", "f.wire + 16, slot"),
                Deviation(
                    "The offset in the region is counted on the vector pipe, for large batches in scalar loops.",
                    "The paper has offsets computed in this stage and does not say how; `v_count` is ours.", "v_count",
                ),
                Deviation(
                    "A copy of a token leaves the data buffer before the next one's routing is written.",
                    "All copies of a token are made in one place, the expert in their routing differs.",
                    "mtu_out(at, target",
                ),
                Deviation(
                    "Each of the four optimizations can be switched off, by SDMA the first.",
                    "So that the ablation, and the checker, show what each is for.", "dma",
                ),
            ),
        ),
        Step(
            2, "A barrier until all writes are complete; count the tokens of each expert, the cores side by side;"
            " meet; send flags and counts.", (
                Deviation(
                    "The flag is the event ID of the round, in two tables by turns, and is not reset.",
                    "The paper waits for '1' and does not say who clears it; a peer that got nothing may be a round"
                    " behind.", "put counts",
                ),
                Deviation(
                    "With a count goes where the messages of the expert begin.", "So any core can bring in any rows.",
                    "put counts",
                ),
            ),
        ),
        Step(
            3, "Poll until all flags are set; read the counts; cores put tokens, scales and counts together in the"
            " outputs.", (
                Deviation(
                    "A core polls its share of the flags, and all meet.",
                    "The paper says of a rank, not of a core, that it waits for all.", "poll_eq counts in",
                ),
            ),
        ),
    ),
)  # fmt: skip

FUSED_COMBINE = Paper(
    "FusedCombine", "CloudMatrix384 4.2.1", (combine,), (
        Step(
            1, "Each core goes through its peers: read how many came from one, load the results, find by the tokens'"
            " routing where they go, and write them to the rank that they are of.", (
                Deviation(
                    "A core may have a part of a peer's rows, so that all have as many.",
                    "With fewer peers than cores some would have nothing to do.", "row + skipped",
                ),
                Deviation(
                    "A contribution's place is its token and choice, so tokens x choices rows of the region of Eq."
                    " (1) are used.",
                    "Source rank, batch slot and key offset are all that the paper's address is made of.", "mtu_out",
                ),
                Deviation(
                    "A quiet before step 2.",
                    "The paper names no order of results and flags; without it the checker finds a race.",
                    "quiet contributions visible",
                ),
            ),
        ),
        Step(
            2, "Find each token's flag by its routing, and add to it atomically.", (
                Deviation(
                    "Flags count on from round to round.",
                    "The paper does not say who clears them.", "add arrival",
                ),
            ),
        ),
        Step(
            3, "A core waits until the flags of its tokens are 1, loads the outputs, scales and adds them, the shared"
            " expert at the end.", (
                Deviation(
                    "It waits token by token for as many arrivals as the token has choices.",
                    "One flag of a token counts all of its contributions, so 1 is not enough; and the first tokens"
                    " need not wait for the last.", "poll_ge all arrived",
                ),
                Deviation(
                    "In FP32 in order of the choices, each product rounded; rounded once.",
                    "The paper gives no order, and bits depend on it.", "v_axpy",
                ),
            ),
        ),
    ),
)  # fmt: skip
