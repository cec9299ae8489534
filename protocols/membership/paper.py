"""What xDeepServe says of going on with fewer ranks."""

from xccl_emu.kernels import membership
from xccl_emu.protocol import Deviation, Paper, Step

MEMBERSHIP = Paper(
    "Going on with fewer ranks", "xDeepServe 6.2, stage 2", (membership,), (
        Step(
            1, "Experts' results go to all groups that are left.", (
                Deviation(
                    "A row to every other rank, with the epoch in front.",
                    "Any exchange would do; this one shows in its bytes which attempt they are of.", "ub_store",
                ),
            ),
        ),
        Step(
            2, "Groups that wait hear of the loss too.", (
                Deviation("A wait is one request for the field or the word, whichever comes.", "As in rollback."),
            ),
        ),
        Step(
            3, "What has come is used.", (
                Deviation(
                    "The heir copies the row of the lost rank's expert from its own spare.",
                    "There a redundant expert is one more slot; where weights come from is not said.", "mtu_in",
                ),
            ),
        ),
        Step(
            4, "The groups that are left get a new configuration and go back to the iteration before.", (
                Deviation(
                    "One word has epoch, lost rank and heir, so no two of them can be of different losses.",
                    "How it is published is not said.", "put ready",
                ),
            ),
        ),
        Step(
            5, "They go back together.", (
                Deviation("To the least iteration of those that are left.", "As in rollback.", "load ready in"),
            ),
        ),
        Step(
            6, "When all is through", (
                Deviation(
                    "The supervisor gathers, and says when nobody can be rolled back any more.",
                    "There iterations never end; a proof needs an end, and any rank may be lost.", "put end",
                ),
            ),
        ),
    ),
)  # fmt: skip
