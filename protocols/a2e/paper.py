"""A2E and E2A with trampolines beside their paper, [xDeepServe]."""

from xccl_emu.kernels.a2e import attention, e2a, expert, trampoline
from xccl_emu.protocol import Deviation, Paper, Step

TRAMPOLINES = Paper(
    "A2E and E2A",
    "xDeepServe 3.3 and 5.2, which have no numbers of steps; these are ours",
    (attention, trampoline, expert, e2a), (
        Step(
            1, "Attention dies give all data to trampolines, which are as many expert dies; one domain at a time.", (
                Deviation(
                    "The attention die pushes, and a flag follows.",
                    "The paper leaves open who moves the data; a receiver that pulls pays a round trip behind the"
                    " flag.", "put tokens in",
                ),
                Deviation(
                    "A token is written once, with the list of its choices.",
                    "The trampoline must know where it goes.", "mtu_out",
                ),
                Deviation(
                    "There may be fewer trampolines, each for several attention dies in a row.",
                    "So that other ratios of dies can be tried; the usual one is the paper's.",
                ),
                Deviation(
                    "A batch may go in parts.",
                    "A trampoline that waits for all of it has its port out idle meanwhile.", "put tokens in",
                ),
                Deviation(
                    "By URMA tokens are quantized into an outbox, and a core's go as one descriptor; memory"
                    " semantics are the usual path.",
                    "The paper employs URMA and describes both; DMA cannot read a data buffer.", "dma",
                ),
                Deviation(
                    "Domains and their microbatches take turns in a fixed order.",
                    "The paper says that one is served at a time, not which; Figure 19 shows turns.",
                    "poll_ge slots free",
                ),
            ),
        ),
        Step(
            2, "Trampolines forward to the other expert dies.", (
                Deviation(
                    "Pushed too, into an inbox with a place for each attention die, expert and token; written again"
                    " when all expert dies have gathered.",
                    "The price of pushing: memory must be free for certain.", "poll_ge inboxes free",
                ),
                Deviation(
                    "Each trampoline tells every expert its count, zero too.",
                    "An expert die knows that it has all when each has told; the paper does not say how it knows.",
                    "put counts of messages",
                ),
                Deviation(
                    "Places are counted on the vector pipe, for large batches in scalar loops.",
                    "As in dispatch.", "v_count",
                ),
            ),
        ),
        Step(
            3, "Expert dies receive, in a persistent kernel of their own that polls.", (
                Deviation(
                    "Rows are copied from the inbox into the order of the experts.",
                    "Experts compute on rows that stand together, and the inbox is free for the next domain.",
                    "mtu_out",
                ),
            ),
        ),
        Step(
            4, "A second persistent kernel computes the experts.", (
                Deviation(
                    "A dummy: each row is scaled; for time, vector instructions that compute nothing.",
                    "What is emulated is the communication.", "poll_ge rows to compute",
                ),
            ),
        ),
        Step(
            5, "A third one sends the outputs to the trampolines.", (
                Deviation(
                    "Outputs are not quantized.",
                    "4.7 quantizes outputs of experts too; 3.3 says nothing of it.", "mtu_out",
                ),
                Deviation(
                    "What has come back is counted atomically at the trampoline, after a quiet.",
                    "Each core of each expert die has rows for it.", "add arrivals",
                ),
            ),
        ),
        Step(
            6, "Trampolines forward to the attention dies.", (
                Deviation(
                    "When all rows of a part have come, each as it is.",
                    "The paper merges at the attention dies. A batch in one part is stored, then forwarded.",
                    "poll_ge all rows arrived",
                ),
            ),
        ),
        Step(
            7, "Attention dies merge by the gating scores.", (
                Deviation(
                    "In FP32 in order of the choices, each product rounded; rounded once.", "As in combine.", "v_axpy",
                ),
            ),
        ),
    ),
)  # fmt: skip
