"""MixServe's fused algorithms beside their paper, [MixServe]."""

from xccl_emu.kernels.mixserve import combine, dispatch
from xccl_emu.protocol import Deviation, Paper, Step

AG_DISPATCH = Paper(
    "AG-Dispatch",
    "MixServe III-D2; steps are lines of Algorithm 2, whose mistakes are in mixserve.md", (dispatch,), (
        Step(
            8, "In step i send this rank's shard of the rows for a node i steps on to the same TP rank there,"
            " asynchronously.", (
                Deviation(
                    "Rows are made ready by the host, by node and expert (line 5).",
                    "The map of experts is arithmetic on the gate's choices, and moves nothing.",
                ),
                Deviation(
                    "Counts of the experts go before the rows, their sum with the flag.",
                    "The listing has tensors whose shape the receiver knows; that of routed rows it does not.",
                    "put rows sent",
                ),
            ),
        ),
        Step(10, "Receive the shard that comes from i nodes back."),
        Step(
            13, "When it is there, all-gather it in the TP group.", (
                Deviation(
                    "Rows of the own node stay: a local stage that the listing lacks.", "Without it they are lost.",
                    "mtu_out(at, row + (c.node",
                ),
                Deviation(
                    "Every rank writes its shard to all others at once.", "Table I has one round of Broadcast.",
                    "put rows gathered",
                ),
                Deviation(
                    "Where d_DP > d_EP it goes over all groups of the node.",
                    "They share its experts; the listing has one group.",
                ),
            ),
        ),
    ),
)  # fmt: skip

RS_COMBINE = Paper(
    "RS-Combine",
    "MixServe III-D1; steps are lines of Algorithm 1, whose mistakes are in mixserve.md", (combine,), (
        Step(
            14, "Reduce-scatter in the TP group.", (
                Deviation(
                    "Before the exchange, where the listing has it behind.",
                    "The text and Figure 9 have it first; as printed, ranks add up different columns.",
                    "poll_ge terms in",
                ),
                Deviation(
                    "Sums are over ranks from the first on, in FP32, rounded once.",
                    "The paper gives no order, and bits depend on it.", "v_add",
                ),
            ),
        ),
        Step(
            9, "Send the shard to the same TP rank i nodes on, asynchronously.", (
                Deviation(
                    "To (r + i m) mod (m n) of the global rank r.",
                    "Of the TP rank, as printed, all nodes would send to node i.", "put sums returned",
                ),
            ),
        ),
        Step(11, "Receive the shard that comes from i nodes back."),
        Step(
            15, "Add what has come, weighed by the gate.", (
                Deviation(
                    "When the sums of all nodes are there, in order of the choices; the listing adds step by step.",
                    "In the order of arrival the bits would depend on the schedule.", "v_axpy",
                ),
            ),
        ),
        Step(
            17, "All-gather in the TP group.", (
                Deviation(
                    "Where d_DP < d_EP over the whole node, and the groups' parts are added up, rounded.",
                    "Each group has experts of its own; the paper leaves open who adds.", "v_add",
                ),
            ),
        ),
    ),
)  # fmt: skip
