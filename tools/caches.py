"""Write the table of docs/records/caches.md: which shipped protocols are right where scalar units have a data cache."""

import sys
from collections.abc import Collection, Iterator

from pages import ROOT, Remade, between, command, rows, table

from xccl_emu.check.check import check
from xccl_emu.check.trial import Checkable
from xccl_emu.check.verdict import UNFINISHED, VERIFIED, Verdict
from xccl_emu.protocol.registry import known, make, names
from xccl_emu.protocol.sequence import Sequence, Stage

PAGE = ROOT / "docs" / "records" / "caches.md"
COLUMNS = ("protocol", "with a cache", "states", "needs", "else")
LINES, STATES_MAX = 16, 300_000

TABLES = {
    "a2e", "a2e-pull", "a2e-scalar", "a2e-urma", "deepep-ll", "deepep-ll-hooks", "dispatch", "dispatch-scalar", "fused",
    "fused-scalar", "moe", "rollback-a2e", "rollback-dispatch", "rollback-fused", "rollback-moe",
}  # fmt: skip
"""Protocols whose cores store to lines that they share."""

IN_TURN = {"sendrecv, zero-copy, sendrecv": ("sendrecv", ({}, {"path": "zero-copy"}, {}))}
"""Consecutive calls on one communicator, in addition to the calls of the names."""


def tried(name: str) -> Checkable:
    """A protocol with a cache in the sizes of docs/records/synchronizations.md, or calls in turn."""
    if name not in IN_TURN:
        return make(name, **known(name).preset.each_sync, scalar_cache=LINES)
    of, calls = known(IN_TURN[name][0]), IN_TURN[name][1]
    return Sequence(of, (Stage({**of.preset.each_sync, "rounds": 1, "scalar_cache": LINES}, calls),))


def cleaned(case: Checkable) -> Iterator[str]:
    """Names of the `dcci` in a case's kernels, each once."""
    sites = [site for kernel in case.build("relaxed").pod.kernels for site in kernel.sites]
    yield from dict.fromkeys(site.sync for site in sites if site.operation == "dcci")


def judged(case: Checkable, without: str = "") -> Verdict:
    """The verdict of a search of at most `STATES_MAX` states."""
    return check(case, max_states=STATES_MAX, without=[without] if without else ())


def row(name: str) -> tuple[str, ...]:
    """A line of the table."""
    case = tried(name)
    verdict = judged(case)
    kind = "" if verdict.violation is None else f": {verdict.violation.kind}"
    states = "" if verdict.verdict == UNFINISHED else f"{verdict.states:,}"
    needs = [sync for sync in cleaned(case) if verdict.verdict == VERIFIED and judged(case, sync).verdict != VERIFIED]
    other = "tables" if name in TABLES else ""
    return name, f"{verdict.verdict}{kind}", states, ", ".join(needs), other


def page(text: str, check: bool, asked: Collection[str], by: Remade) -> str:
    """The page with the rows of some protocols, or all, made again."""
    every = (*names(), *IN_TURN)
    return between(text, "caches", table(COLUMNS, rows(text, "caches", every, asked or every, row, by)))


if __name__ == "__main__":
    sys.exit(command(__doc__, PAGE, page, (*names(), *IN_TURN)))
