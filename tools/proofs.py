"""Write docs/proofs.md: every configuration of a shipped protocol that is proved, with its states and a certificate.

    python tools/proofs.py
"""

from pathlib import Path

from synchronizations import certified

from xccl_emu.protocol import Case
from xccl_emu.protocol.registry import proofs

PAGE = Path(__file__).parent.parent / "docs" / "proofs.md"

HEAD = """# What is proved

Each shipped protocol in small configurations, under memory order `relaxed`, every schedule: [soundness](soundness.md)
says what that means. Beside the verdict stand the states and transitions of the search, and what its certificate
covers, reached without the search: brute force, which reduces nothing, in full, in part (20,000 states or 3 seconds),
or not at all where the pod is too large for it; then schedules of the portfolio under the monitor.

Written by `make docs`; the tests make the same proofs. `xccl-emu check PROTOCOL --certify` makes any of them again.

| configuration | verdict | states | transitions | certificate |
|---|---|---|---|---|
"""


def row(name: str, case: Case) -> str:
    """A line of the table."""
    verdict = certified(case, seconds=300)
    assert verdict.certificate is not None
    covers = verdict.certificate.covers() if verdict.certificate.agrees else verdict.certificate.disagreement
    return f"| {name} | {verdict.verdict} | {verdict.states:,} | {verdict.transitions:,} | {covers} |"


def main() -> None:
    """Write the page."""
    rows = [row(name, case) for name, case in proofs().items()]
    PAGE.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
