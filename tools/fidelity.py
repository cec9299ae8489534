"""Write docs/records/fidelity.md: the papers' steps, the lines of the kernels that take them, and each deviation.

Steps and deviations are with the cases (`Case.papers`); lines are found by the requests that have these steps. In what
is written by hand after them the lines in links follow.
"""

import ast
import functools
import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pages import ROOT, between, command, table

from xccl_emu.lang import Kernel, Site
from xccl_emu.protocol.paper import Deviation, Paper, PaperStep
from xccl_emu.protocol.registry import known, make, names

PAGE = ROOT / "docs" / "records" / "fidelity.md"

COLUMNS = ("step", "the paper", "kernel", "deviation", "why")
_LINK = re.compile(r"`(?P<name>\w+)` \[[\w.]+:[\d-]+\]\(\.\./\.\./(?P<file>[\w./]+)#L\d+\)")


@dataclass(frozen=True)
class Place:
    """A request, or a call of a subroutine that all protocols share, in a kernel of a paper."""

    file: str
    line: int
    request: str
    """Its operation, and its synchronization if it has a name."""
    text: str
    """Its line."""


# ---- the step of each request


def chain(site: Site) -> list[tuple[str, int]]:
    """Files and lines on the way to a request, the kernel's first."""
    return [*site.callers, (site.file, site.line)]


def files_of(paper: Paper) -> list[str]:
    """Files of its kernels, as requests have them."""
    return [str(importlib.import_module(f"xccl_emu.kernels.{name}").__file__) for name in paper.kernels]


def paper_of(site: Site, papers: Iterable[Paper]) -> Paper | None:
    """The paper whose kernels a request is of: the first on the way to it that any paper has."""
    by_file = {file: paper for paper in papers for file in files_of(paper)}
    return next((by_file[file] for file, _ in chain(site) if file in by_file), None)


def place_of(site: Site, paper: Paper) -> Place:
    """Find the place of a request in the paper's own kernels: of a shared subroutine, where it is called."""
    file, line = [at for at in chain(site) if at[0] in files_of(paper)][-1]
    return Place(file, line, f"{site.operation} {site.sync}".strip(), site.text)


def seen_in(deviation: Deviation, places: Iterable[Place]) -> list[Place]:
    """Requests in which a deviation shows; by a part of their lines only if there is none of that name."""
    places = [*places] if deviation.seen else []
    named = [place for place in places if place.request == deviation.seen]
    return named or [place for place in places if deviation.seen in place.text]


def steps_of(papers: Iterable[Paper], kernels: Iterable[Kernel]) -> dict[tuple[Paper | None, int], list[Place]]:
    """Requests that have a step, by paper and step; a request of no paper's kernels is under none."""
    papers, found = [*papers], {}
    for site in (site for kernel in kernels for site in kernel.sites if site.step):
        paper = paper_of(site, papers)
        place = place_of(site, paper) if paper else Place(site.file, site.line, site.operation, site.text)
        found.setdefault((paper, site.step), {})[place] = True
    return {key: sorted(places, key=lambda at: (at.file, at.line)) for key, places in found.items()}


def shipped() -> tuple[dict[Paper, list[str]], set[Kernel]]:
    """Papers of all shipped cases, with the names of these, and all kernels that they launch."""
    papers: dict[Paper, list[str]] = {}
    kernels: set[Kernel] = set()
    for name in names():
        it = known(name)
        launched = {k for sizes in ({}, it.preset.each_sync) for k in make(name, **sizes).build("relaxed").pod.kernels}
        said = getattr(it.maker, "papers", ())
        made = {paper for paper, _ in steps_of(said, launched)}
        for paper in said:
            papers.setdefault(paper, []).extend([name] if paper in made else [])
        kernels |= launched
    return papers, kernels


def complaints(papers: Iterable[Paper], kernels: Iterable[Kernel]) -> Iterator[str]:
    """Steps of kernels that have no row, rows that no kernel has, and deviations that are not seen any more."""
    papers = [*papers]
    found = steps_of(papers, kernels)
    for (paper, number), places in found.items():
        if paper is None or number not in [step.number for step in paper.steps]:
            at = f"{Path(places[0].file).name}:{places[0].line}"
            yield f"{paper.title if paper else 'no paper'}: step {number} of {at} has no row"
    for paper in papers:
        for step in paper.steps:
            places = found.get((paper, step.number), [])
            if not places:
                yield f"{paper.title}: no request has step {step.number}"
            for deviation in step.deviations:
                if deviation.seen and not seen_in(deviation, places):
                    yield f"{paper.title}: step {step.number} has no request {deviation.seen!r}: {deviation.what}"


# ---- the page


@functools.cache
def functions(file: Path) -> list[tuple[str, int, int]]:
    """Names of a file's functions, classes and constants, with their first and last lines."""
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Assign(targets=[ast.Name(id=name)]):
                found.append((name, node.lineno, node.end_lineno or 0))
    return found


def link(file: Path, name: str, first: int, last: int) -> str:
    """A function and lines of it."""
    at = file.resolve().relative_to(ROOT)
    lines = f"{first}" if first == last else f"{first}-{last}"
    anchor = f"#L{first}" if first == last else f"#L{first}-L{last}"
    return f"`{name}` [{at.name}:{lines}](../../{at}{anchor})"


def links(places: Iterable[Place]) -> str:
    """Link all places, by function."""
    lines: dict[tuple[Path, str], list[int]] = {}
    for place in places:
        file = Path(place.file)
        name = next(name for name, first, last in functions(file) if first <= place.line <= last and first < last)
        lines.setdefault((file, name), []).append(place.line)
    return "<br>".join(link(file, name, min(at), max(at)) for (file, name), at in lines.items())


def rows(step: PaperStep, places: list[Place]) -> Iterator[tuple[str, ...]]:
    """The step, and its deviations below it."""
    yield f"{step.number}", step.says, links(places), "" if step.deviations else "none", ""
    for deviation in step.deviations:
        yield "", "", links(seen_in(deviation, places)), deviation.what, deviation.why


def section(paper: Paper, cases: list[str], found: dict[tuple[Paper | None, int], list[Place]]) -> str:
    """The part of the page on one protocol."""
    lines = (line for step in paper.steps for line in rows(step, found.get((paper, step.number), [])))
    named = ", ".join(f"`{name}`" for name in cases)
    return f"## {paper}\n\nCases: {named}.\n\n{table(COLUMNS, lines)}"


def relinked(found: re.Match[str]) -> str:
    """A link to a function, class or constant, with the line where it is now."""
    file = ROOT / found["file"]
    first = {name: first for name, first, _ in functions(file)}[found["name"]]
    return link(file, found["name"], first, first)


def page(text: str, check: bool = False) -> str:
    """The page with the part about steps made again, and with lines of today in the links after it."""
    papers, kernels = shipped()
    if wrong := [*complaints(papers, kernels)]:
        raise SystemExit("\n".join(wrong))
    found = steps_of(papers, kernels)
    of_papers = sorted(papers.items(), key=lambda item: item[0].where)
    text = between(text, "fidelity", *(section(paper, cases, found) for paper, cases in of_papers))
    before, end, by_hand = text.partition("<!-- fidelity end -->")
    return before + end + _LINK.sub(relinked, by_hand)


if __name__ == "__main__":
    sys.exit(command(__doc__, PAGE, page))
