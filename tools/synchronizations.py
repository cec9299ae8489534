"""Write docs/records/synchronizations.md: which synchronizations of the shipped protocols are needed.

Each is switched off alone, and the protocol checked without it: `xccl-emu check PROTOCOL --each-sync` for all of them.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence

from pages import ROOT, Remade, between, command

from xccl_emu.check.certify import certify
from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED, VIOLATION, Verdict
from xccl_emu.protocol.case import Case, reached_syncs
from xccl_emu.protocol.registry import known, make, names

PAGE = ROOT / "docs" / "records" / "synchronizations.md"

CERTIFICATE_SECONDS, CERTIFICATE_STATES, CERTIFICATE_SCHEDULES = 120.0, 20_000, 500
"""Limits of each certificate: it ends by its states and schedules, long before its time, so the page does not vary."""


def finding(verdict: Verdict, idle: bool) -> str:
    """Say what was found without a synchronization; without an idle one nobody ever had to wait."""
    if verdict.verdict == VIOLATION and verdict.violation is not None:
        return f"needed: {verdict.violation.kind}"
    if verdict.verdict == VERIFIED:
        return "redundant: nobody ever waits for it here" if idle else "redundant"
    return f"{verdict.verdict}: {verdict.reason}"


def certified(case: Case, without: Sequence[str] = (), seconds: float = 180) -> Verdict:
    """The verdict of a search of at most ``seconds`` seconds, with its certificate."""
    verdict = check(case, without=without, seconds=seconds)
    return certify(
        case, verdict, seconds=CERTIFICATE_SECONDS, max_states=CERTIFICATE_STATES, schedules=CERTIFICATE_SCHEDULES
    )


def rows(case: Case) -> Iterator[tuple[str, Verdict]]:
    """Name and verdict of each synchronization that the protocol comes to in this configuration."""
    reached = reached_syncs(case, "relaxed")
    for name in case.syncs:
        if name in reached:
            yield name, certified(case, [name])


def certificates(verdicts: Iterable[Verdict]) -> str:
    """Name the kinds of certificates of the verdicts; it varies from run to run only where verdicts do."""
    each = [verdict.certificate for verdict in verdicts if verdict.certificate is not None]
    covered = sorted({certificate.covers() for certificate in each})
    more = [certificate.of_proof for certificate in each if not certificate.agrees]
    refuted = sum(more)
    said = f"{refuted or 'none'} of them {'disagrees' if refuted < 2 else 'disagree'} with a proof"
    found = len(more) - refuted
    return f"{'; '.join(covered)}; {said}" + (f"; {found} found what an unfinished search had not" if found else "")


def section(name: str) -> str:
    """The part of the page on one protocol."""
    sizes = known(name).preset.each_sync
    case = make(name, **sizes)
    whole, found = certified(case), dict(rows(case))
    sizes_told = ", ".join(f"{key} {value}" for key, value in sizes.items()) or "usual sizes"
    lines = [f"## {name}", "", f"{sizes_told}: {whole.verdict}.", ""]
    lines += [f"Certificates: {certificates([whole, *found.values()])}.", "", "| synchronization | |", "|---|---|"]
    idle = {sync for sync in found if whole.reach is not None and whole.reach.idle(sync)}
    return "\n".join([*lines, *(f"| {sync} | {finding(each, sync in idle)} |" for sync, each in found.items())])


def page(text: str, check: bool, asked: Sequence[str], by: Remade) -> str:
    """The page with some protocols, or all, made again."""
    old = {part.partition("\n")[0]: f"## {part}" for part in text.partition("<!-- synch")[2].split("\n## ")[1:]}
    old = {name: part.partition("\n<!--")[0] for name, part in old.items()}
    parts = by.parts(old, names(), asked or names(), section)
    return between(text, "synchronizations", *parts)


if __name__ == "__main__":
    sys.exit(command(__doc__, PAGE, page, names()))
