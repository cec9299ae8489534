"""Write the table of docs/caches.md: which shipped protocols are right where scalar units have a data cache.

    python tools/caches.py
"""

from collections.abc import Iterator
from pathlib import Path

from xccl_emu.check.check import check
from xccl_emu.check.verdict import UNFINISHED, VERIFIED, Verdict
from xccl_emu.protocol.case import Case
from xccl_emu.protocol.registry import known, make, names

PAGE = Path(__file__).parent.parent / "docs" / "caches.md"
LINES, STATES_MAX = 16, 300_000

HEAD = "|---|---|---|---|---|\n"
"""Behind it come the rows."""

TABLES = {
    "a2e", "a2e-pull", "a2e-scalar", "a2e-urma", "deepep-ll", "deepep-ll-hooks", "dispatch", "dispatch-scalar", "fused",
    "fused-scalar", "moe",
}  # fmt: skip
"""Protocols whose cores store to lines that they share."""


def cleaned(case: Case) -> Iterator[str]:
    """Names of the `dcci` in a case's kernels, each once."""
    sites = [site for kernel in case.build("relaxed").pod.kernels for site in kernel.sites]
    yield from dict.fromkeys(site.sync for site in sites if site.operation == "dcci")


def judged(case: Case, without: str = "") -> Verdict:
    """The verdict of a search of so many states."""
    return check(case, max_states=STATES_MAX, without=[without] if without else ())


def row(name: str) -> str:
    """A line of the table."""
    case = make(name, **known(name).preset.each_sync, scalar_cache=LINES)
    verdict = judged(case)
    kind = "" if verdict.violation is None else f": {verdict.violation.kind}"
    states = "" if verdict.verdict == UNFINISHED else f"{verdict.states:,}"
    needs = [sync for sync in cleaned(case) if verdict.verdict == VERIFIED and judged(case, sync).verdict != VERIFIED]
    other = "tables" if name in TABLES else ""
    return f"| {name} | {verdict.verdict}{kind} | {states} | {', '.join(needs)} | {other} |"


def main() -> None:
    """Write the rows of its table anew."""
    before, head, behind = PAGE.read_text(encoding="utf-8").partition(HEAD)
    rows = "".join(f"{row(name)}\n" for name in names())
    PAGE.write_text(before + head + rows + behind[behind.index("\n\n") + 1 :], encoding="utf-8")


if __name__ == "__main__":
    main()
