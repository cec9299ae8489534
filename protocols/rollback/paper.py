"""What xDeepServe says of going back to the iteration before."""

from xccl_emu.kernels import rollback
from xccl_emu.protocol import Deviation, Paper, Step

ROLLBACK = Paper(
    "Rollback of an iteration", "xDeepServe 6.2, stage 3", (rollback,), (
        Step(
            1, "An iteration: groups exchange what their experts need.", (
                Deviation(
                    "A row to every other rank, with the epoch in front.",
                    "Any exchange would do; this one shows in its bytes which attempt they are of.", "ub_store",
                ),
            ),
        ),
        Step(
            2, "Groups that wait for each other hear of the abort too.", (
                Deviation(
                    "A wait is one request for the field, the abort or the end, whichever comes.",
                    "There a thread of its own hears the signal; how it ends a busy wait is not said.",
                ),
            ),
        ),
        Step(3, "What has come is used."),
        Step(
            4, "A signal to all groups, by a thread of its own, says that an iteration is rolled back.", (
                Deviation(
                    "The supervisor's die writes the epoch to each rank, in any order and at any moment.",
                    "Nothing says whether the signal is one for all.", "put ready",
                ),
            ),
        ),
        Step(
            5, "All groups go back to the iteration before, together.", (
                Deviation(
                    "To the least iteration that one of them is in.",
                    "They may be one apart; the paper does not say how they find the same one.", "load ready in",
                ),
            ),
        ),
        Step(
            6, "When all is through", (
                Deviation(
                    "Rank 0 gathers, and says when nobody can be rolled back any more.",
                    "There iterations never end; a proof needs an end.", "put end",
                ),
            ),
        ),
    ),
)  # fmt: skip
