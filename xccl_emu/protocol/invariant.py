"""What is claimed of results in addition to their bits: what they do not depend on.

A check shows that outputs are the oracle's in every schedule, on data whose sums of three have other bits in another
order.  So a claim about outputs holds in every schedule if it holds of the oracle's, which is tried on drawn data.
"""

from dataclasses import dataclass
from typing import Annotated

from xccl_emu.base import words as w
from xccl_emu.check.verdict import UNFINISHED, UNSUPPORTED, VERIFIED, Verdict
from xccl_emu.protocol.case import CLAIMS, Case

DRAWS = 32


@dataclass(frozen=True)
class Invariance(w.Printed):
    """A claim about the outputs of a case, and what the oracle says of it."""

    claim: Annotated[str, "`batch` or `ranks`: what the outputs do not depend on"]
    draws: Annotated[int, "drawn data on which the oracle was asked"]
    compared: Annotated[int, "rows of the oracle that were compared with the first of their draw"]
    differ: Annotated[int, "rows with other bits than that; 0 if the claim holds"]
    ordered: Annotated[int, "draws in which sums in another order have other bits"]
    shown: Annotated[int, "results of the data that is checked that have other bits if added up in another order"]
    outputs: Annotated[int, "all such results"]

    @classmethod
    def of(cls, case: Case) -> "Invariance":
        """Ask the oracle of a case for which a claim is chosen."""
        drawn = [case.twins(draw) for draw in range(DRAWS)]
        bits = [[row.tobytes() for row in each.rows] for each in drawn]
        return cls(
            str(case.pod_sizes["invariant"]), DRAWS, sum(len(rows) - 1 for rows in bits),
            sum(row != rows[0] for rows in bits for row in rows),
            sum(each.reordered.tobytes() != rows[0] for each, rows in zip(drawn, bits, strict=True)),
            *case.reordered(),
        )  # fmt: skip

    def words(self, verdict: Verdict) -> str:
        """Say whether it holds, given the verdict on the case, and why."""
        drawn = f"{self.compared - self.differ:,} of {self.compared:,} rows of {self.draws} draws by the oracle"
        by_oracle = f"{CLAIMS[self.claim]} in {drawn}"
        if self.differ:
            return f"{self.claim}: does not hold, whatever the schedule; {by_oracle}"
        if verdict.verdict in (UNFINISHED, UNSUPPORTED):
            return f"{self.claim}: not shown, since the search did not end; {by_oracle}"
        if not verdict.ok:
            return f"{self.claim}: not shown, since outputs need not be the oracle's; {by_oracle}"
        if not verdict.due:
            return f"{self.claim}: not shown: no outputs were judged; {by_oracle}"
        if self.ordered and not self.shown:
            return f"{self.claim}: not shown: with these data another order of addition has the same bits; {by_oracle}"
        where = "every schedule" if verdict.verdict == VERIFIED else "the schedules that were drawn"
        order = "no sum has three or more terms, so the order of addition cannot change bits"
        if self.ordered:
            order = f"another order of addition changes the bits of {self.shown:,} of {self.outputs:,} results"
        return f"{self.claim}: holds in {where}, where outputs are the oracle's: {by_oracle}; {order}; at these sizes"
