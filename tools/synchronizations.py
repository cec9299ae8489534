"""Write docs/synchronizations.md: which synchronizations of the shipped protocols are needed.

Each is switched off alone, and the protocol checked without it: `xccl-emu check PROTOCOL --each-sync` for all of them.

    python tools/synchronizations.py            write the page
    python tools/synchronizations.py --check    say what in it is not true any more, and end with 1
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from xccl_emu.check.certify import certify
from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION, Verdict
from xccl_emu.protocol.case import Case, reached_syncs
from xccl_emu.protocol.registry import known, make, names

PAGE = Path(__file__).parent.parent / "docs" / "synchronizations.md"

CERTIFICATE_SECONDS, CERTIFICATE_STATES = 6.0, 20_000
"""Of each certificate: brute force ends by its states, long before its time is over, so that the page does not vary."""

HEAD = """# Which synchronizations are needed

Every quiet, flag, wait, acknowledgement and barrier of the shipped kernels has a name. Here each is switched off alone,
under memory order `relaxed`, and the protocol is checked without it. *Needed*: there is a schedule in which something
goes wrong, and what. *Redundant*: every schedule of **this configuration** is right without it, which says nothing of
larger ones.

Each verdict has a certificate, reached without the search: of what is needed the schedule was replayed on the machine;
of what is verified schedules were sampled, and where the pod is small enough for it brute force has gone through its
states, in full or in part. For each protocol it is said which.

Written by `make docs`; a test keeps it true. `xccl-emu check PROTOCOL --without "NAME"` shows the schedule.
"""


def finding(verdict: Verdict) -> str:
    """What a verdict says of the synchronization that was switched off."""
    if verdict.verdict == VIOLATION and verdict.violation is not None:
        return f"needed: {verdict.violation.kind}"
    return "redundant" if verdict.verdict == VERIFIED else f"{verdict.verdict}: {verdict.reason}"


def certified(case: Case, without: Sequence[str] = (), seconds: float = 180) -> Verdict:
    """The verdict of a search of so many seconds at most, with its certificate."""
    verdict = check(case, without=without, seconds=seconds)
    return certify(case, verdict, seconds=CERTIFICATE_SECONDS, max_states=CERTIFICATE_STATES)


def rows(case: Case) -> Iterator[tuple[str, Verdict]]:
    """Name and verdict of each synchronization that the protocol comes to in this configuration."""
    reached = reached_syncs(case, "relaxed")
    for name in case.syncs:
        if name in reached:
            yield name, certified(case, [name])


def certificates(verdicts: Iterable[Verdict]) -> str:
    """What kinds of certificates the verdicts have; nothing in it varies from run to run as long as verdicts do not."""
    each = [verdict.certificate for verdict in verdicts if verdict.certificate is not None]
    told = sorted({certificate.covers() for certificate in each})
    disagree = sum(not certificate.agrees for certificate in each)
    return f"{'; '.join(told)}; {disagree or 'none'} of them {'disagrees' if disagree < 2 else 'disagree'}"


def table(name: str) -> str:
    """The part of the page on one protocol."""
    sizes = known(name).preset.each_sync
    case = make(name, **sizes)
    whole, found = certified(case), dict(rows(case))
    sizes_told = ", ".join(f"{key} {value}" for key, value in sizes.items()) or "usual sizes"
    lines = [f"## {name}", "", f"{sizes_told}: {whole.verdict}.", ""]
    lines += [f"Certificates: {certificates([whole, *found.values()])}.", "", "| synchronization | |", "|---|---|"]
    lines += [f"| {sync} | {finding(verdict)} |" for sync, verdict in found.items()]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args()
    page = "\n".join([HEAD, *map(table, names())])
    if not options.check:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    wrong = [line for line in page.splitlines() if line not in PAGE.read_text(encoding="utf-8").splitlines()]
    for line in wrong:
        print(f"not in {PAGE.name}: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
