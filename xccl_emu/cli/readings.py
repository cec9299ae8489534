"""Two readings of what documents leave open, such as `PipeBarrier`: a verdict by the weaker, one by the stronger."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from xccl_emu.check.verdict import Verdict
from xccl_emu.protocol.bench import READINGS
from xccl_emu.protocol.case import Case

_IF = {"barrier": ("barriers wait for visibility", "they only drain"),
       "sync_all": ("SyncAll drains", "SyncAll only arrives")}  # fmt: skip
"""What each reading says, the stronger and the weaker one."""


@dataclass(frozen=True)
class Stronger:
    """The verdict by the stronger readings of what nobody has chosen."""

    read: dict[str, str]
    verdict: Verdict

    def words(self, weaker: Verdict) -> str:
        """Both verdicts in one line."""
        weak = " and ".join(_IF[name][1] for name in self.read)
        return f"{_of(self.verdict)} if {self.condition}; {_of(weaker)} if {weak}"

    @property
    def condition(self) -> str:
        """The condition under which these readings hold."""
        return " and ".join(_IF[name][0] for name in self.read)

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {"read": self.read, **self.verdict.to_json()}


def stronger(case: Case, open_readings: Collection[str], judge: Callable[[Case], Verdict]) -> Stronger | None:
    """A case judged by the stronger readings of what is open in it; None if nothing is."""
    read = {name: of[1] for name, of in READINGS.items() if name in open_readings}
    return Stronger(read, judge(case.with_pod_options(**read))) if read else None


def _of(verdict: Verdict) -> str:
    found = verdict.violation
    return f"{found.kind} in {len(found.actions)} steps" if found else verdict.verdict
