"""Send and receive beside their paper, [xDeepServe]."""

from xccl_emu.kernels import sendrecv
from xccl_emu.protocol import Deviation, Paper, Step

SEND_RECV = Paper(
    "Send and receive", "xDeepServe 3.1", (sendrecv,), (
        Step(
            1, "Cores load the payload from the app data area into their data buffers, side by side.", (
                Deviation(
                    "A core has one contiguous part of the payload, in chunks of a slot.",
                    "The paper does not say how cores share it. So channels have nothing in common.", "mtu_in",
                ),
            ),
        ),
        Step(
            2, "Read the receiver's address from the own metadata; mtu-out writes to the managed area there, the"
            " halves of the data buffer in turn; or DMA copies without the data buffer.", (
                Deviation(
                    "The address is a word of the ack field, beside the count.",
                    "One field a channel and side is all that the paper's 74K fields allow.", "load ring address",
                ),
                Deviation(
                    "By DMA a chunk is a slot too, of any size, and half of the slots are under way at once.",
                    "A side may choose its path by itself, so both have the same slots.", "dma",
                ),
                Deviation(
                    "Zero-copy: the address is an offer that the receiver puts into the ack field.",
                    "The paper names zero-copy and does not say how the sender learns the address.",
                    "poll_ge offer in",
                ),
            ),
        ),
        Step(
            3, "Write the receiver's tailPtr by mtu-out: how much is there.", (
                Deviation(
                    "tailPtr counts chunks of all transfers on the channel; it is no address.",
                    "A count that only rises is never reset, and tells a full ring from an empty one.", "put tail",
                ),
                Deviation(
                    "A fence before each tail: it becomes visible behind its chunk, and nothing waits.",
                    "Nothing in the paper orders the tail behind its data; without it the checker finds a race.",
                    "fence data before tail",
                ),
                Deviation(
                    "By DMA a fence before each tail keeps it behind the tail before.",
                    "The event of a DMA says that its chunk is visible, not that the older tail is. Without the"
                    " fence the older one may land on the newer one where writes to one address have no order.",
                    "fence tails in order",
                ),
            ),
        ),
        Step(
            4, "Poll the own metadata for the acknowledgment.", (
                Deviation(
                    "It is waited for before each chunk that needs a slot to be free.",
                    "A payload may be larger than its ring.", "poll_ge slot free",
                ),
                Deviation(
                    "Asynchronous: the count is loaded once in a pass, and the host runs passes.",
                    "The paper says that kernels avoid polling, not how.", "load acknowledged",
                ),
            ),
        ),
        Step(
            5, "Poll the metadata for new data; event IDs are for sanity checks.", (
                Deviation(
                    "The fourth word of the field has the payload's bytes and channels; another event ID or shape stops"
                    " the run.",
                    "Sides that disagree would wait for each other, or copy the wrong bytes.", "load shape",
                ),
                Deviation(
                    "A chunk ID that is not that of the chunk, or of one behind it, stops the run.",
                    "The paper does not say what it is for; the count says the same.", "load chunk ID",
                ),
            ),
        ),
        Step(
            6, "Copy from the managed area to the app data area by mtu-in and mtu-out, the halves in turn.", (
                Deviation(
                    "By DMA, too, as on the other side.",
                    "The paper has DMA for the sender; a receiver may choose it here.", "dma",
                ),
            ),
        ),
        Step(
            7, "When the transfer is complete, acknowledge to the sender's metadata.", (
                Deviation(
                    "Of a payload larger than its ring each chunk before the last is acknowledged too, when its slot"
                    " has been read; so it is on request, and in asynchronous passes. These add one to the count.",
                    "So such a payload passes through its ring, and a pass knows what those before it have done. The"
                    " last acknowledgment comes when all is copied out. Additions need no order.", "add slot ack",
                ),
            ),
        ),
        Step(8, "See the acknowledgment and return."),
    ),
)  # fmt: skip
