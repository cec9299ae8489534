"""Write docs/fidelity.md: the papers' steps, the lines of the kernels that are made from them, and where they deviate.

Steps and deviations are with the cases (`Case.papers`); lines are found by the requests that have these steps.

    python tools/fidelity.py            write the page
    python tools/fidelity.py --check    say what in it is not true any more, and end with 1
"""

import argparse
import ast
import functools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from xccl_emu.lang import Kernel, Site
from xccl_emu.protocol.paper import Deviation, Paper, Step
from xccl_emu.protocol.registry import known, make, names

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "fidelity.md"

HEAD = """# Paper and project, step by step

What the papers say in each step of a protocol, the lines that do it, where they deviate, and why. Steps and deviations
stand with the cases (`protocols/*_paper.py`); lines are those of requests whose `step=` names the step, or of the call
of a subroutine that makes them. Written by `make docs`; a test keeps it true: each step of a kernel has a row, each row
a line, and a deviation that shows in a request has the lines of that request, so it cannot outlive it.

What is measured beside the papers is in `benchmarks.md`; MixServe's equations are in `mixserve.md`.
"""
COLUMNS = ("step", "the paper", "kernel", "deviation", "why")


@dataclass(frozen=True)
class Model:
    """Something beneath the protocols, or without steps: what a paper says of it, and what is here."""

    where: str
    says: str
    places: tuple[str, ...]
    """``file:name`` of a function or class, or of a constant, that has it."""
    deviates: str
    why: str


COLLECTIVES = (
    Model(
        "MixServe III-B2, Table I",
        "All-gather by Broadcast: one round over full-duplex pairs.",
        ("kernels/exchange.py:broadcast", "kernels/exchange.py:collect"), "A ring beside it.",
        "Its inbox has two slots, whatever the number of ranks.",
    ),
    Model(
        "MixServe III-B2, Table I",
        "Reduce-scatter by Broadcast, in one round.",
        ("kernels/exchange.py:scatter", "kernels/exchange.py:add_up"),
        "Sums by rank, from rank 0 on, in FP32, rounded once; on the ring in its order, rounded at each hop.",
        "The paper gives no order, and bits depend on it.",
    ),
    Model(
        "MixServe III-B2, Eq. (2)", "All-reduce: the one, then the other.", ("kernels/exchange.py:exchange",),
        "In one turn too (each rank adds up all), and on the ring.",
        "For small payloads one turn has fewer flags.",
    ),
    Model(
        "MixServe III-B2, Table I", "All-to-all pairwise, in d - 1 rounds.", ("kernels/exchange.py:scatter",),
        "No wait between rounds.",
        "Inboxes have a place for each rank, so all may be under way.",
    ),
    Model(
        "CloudMatrix384 4.3.1",
        "Prefill: an all-gather between stages 1 and 2 of attention, an all-to-all between 2 and 3, of packed tokens.",
        ("kernels/sp_tp_sp.py:all_gather", "kernels/sp_tp_sp.py:all_to_all"),
        "The stages themselves are not there; ranks write into each other's inboxes.",
        "What is emulated is the communication, and of that the paper says no more.",
    ),
)  # fmt: skip

MACHINE = (
    Model(
        "xDeepServe 2.2",
        "One address space of all NPU and CPU memory.",
        ("xccl_emu/machine/spec.py:PodSpec", "xccl_emu/machine/pod.py:cpu"),
        "A CPU socket has as much memory as a die, 64 GiB; no protocol uses it, and CPUs run no kernel.",
        "The papers give no capacity; their protocols here are between NPUs.",
    ),
    Model(
        "xDeepServe 2.2",
        "mtu-in and mtu-out of each core move data between memory and its data buffer, of hundreds of KB.",
        ("xccl_emu/machine/device/pipes.py:step_mtu_in", "xccl_emu/machine/device/pipes.py:step_mtu_out"),
        "192 KiB; in-order queues of 8; reads of mtu-in may overtake each other between two flags.",
        "The papers give neither sizes nor orders; the weaker order includes the stronger one.",
    ),
    Model(
        "xDeepServe 2.2, 3.3",
        "DMA engines copy up to several GB; by URMA cores ring them, at a higher starting latency.",
        ("xccl_emu/machine/device/pipes.py:step_dma", "xccl_emu/timing/device/engines.py:_start_dma"),
        "8 descriptors a core; in time one engine a die starts one after the other, and a core's wait for each"
        " other.",
        "The papers do not say how many engines there are; HIXL's published copies fit stop and wait.",
    ),
    Model(
        "xDeepServe 3.1",
        "A die has app, metadata (4 MB) and managed areas; 74K fields of 32 bytes; a ring for each pair.",
        ("xccl_emu/machine/spec.py:CLOUDMATRIX384", "protocols/sendrecv_layout.py:RingLayout"),
        "24 GiB managed; 4 slots of 64 KiB if nothing else is said. The fields are the paper's 73,728: a tail and an"
        " ack for each other die and channel.",
        "The paper gives no sizes of rings. A channel is a core of each side, so the pairs of cores are dies x 48.",
    ),
    Model(
        "no paper",
        "Nothing is said of the order in which writes become visible.",
        ("xccl_emu/machine/device/flight.py:deliverable",),
        "Three memory orders; protocols are verified under the weakest, `relaxed`.",
        "What is right there is right under all.",
    ),
    Model(
        "xDeepServe 2.3",
        "Single-op and graph mode: who launches kernels, and when.", ("xccl_emu/timing/costs.py:Costs",),
        "A launch is one fitted constant, how far apart ranks start another.",
        "No published row of communication tells the modes apart.",
    ),
    Model(
        "CloudMatrix384 3.3.1",
        "A die has 48 vector and 24 cube cores.", ("xccl_emu/timing/costs.py:Costs",),
        "No cube cores; a vector core has one scalar unit, one vector pipe with assumed rates, 32 events for each"
        " pair of pipes.",
        "Communication runs on vector cores; the papers give none of their rates.",
    ),
    Model(
        "CloudMatrix384 3.3.1-3.3.3",
        "Seven UB planes; a switch of each in a node, with 16 links of 28 GB/s to the second tier; no"
        " oversubscription.",
        ("xccl_emu/timing/topologies.py:CLOUDMATRIX384", "xccl_emu/timing/device/transfer.py:_striped"),
        "Ports and links are queues, the inside of switches is not; a transfer is striped evenly over all planes and"
        " links, or, as an option, each block goes by its address.",
        "The paper does not say how transfers are spread.",
    ),
    Model(
        "CloudMatrix384 Table 1",
        "Latency of 512 bytes and bandwidth by path, read and write.",
        ("xccl_emu/timing/topologies.py:CLOUDMATRIX384",),
        "A die's ports together carry what Table 1 measured for the path, not the 196 GB/s of its links.",
        "What a request costs on the wire is in the measured rate.",
    ),
    Model(
        "CloudMatrix384 3.3.1",
        "1.6 TB/s of memory a die; 270 GB/s each way to the sibling die.",
        ("xccl_emu/timing/topologies.py:_HBM", "xccl_emu/timing/topologies.py:_PACKAGE"),
        "Their latencies are assumed.", "Table 1 has no such row.",
    ),
    Model(
        "CloudMatrix384 3.3.2", "A CPU socket has 160 GB/s of UB.", ("xccl_emu/timing/fabric.py:Cpus",),
        "200 GB/s for its memory are assumed.", "The paper has no such number.",
    ),
    Model(
        "CloudMatrix384 3.2", "RDMA and VPC planes beside UB.",
        ("xccl_emu/timing/topologies.py:RDMA", "xccl_emu/timing/topologies.py:VPC"),
        "Networks with ports of their own in the same run, between the dies of one supernode; latencies are assumed.",
        "The pod is one supernode, and the paper has bandwidths alone.",
    ),
    Model(
        "xDeepServe 4.5",
        "EPLB: hottest experts get replicas, on the least loaded NPUs; tokens take them in turn.",
        ("xccl_emu/routing/replicas.py", "xccl_emu/routing/placement.py"),
        "Loads are given, once; nothing collects them and no weights are swapped.",
        "Routing here is what data a run has.",
    ),
)  # fmt: skip

ABSENT = (
    (
        "xDeepServe Figure 10",
        "all-to-all between attention with TP 1 and its output projection", "no attention is here",
    ),
    ("xDeepServe 4.3", "all-gather of the status of DP groups by the leader", "scheduling of requests"),
    (
        "xDeepServe 4.5",
        "`Collect`, and the reconfiguration of experts",
        "a count beside the gate, and loads from storage",
    ),
    ("xDeepServe 5.1", "transfers of the KV cache with backpressure", "send and receive are here, DistFlow is not"),
    ("xDeepServe 6.1, 6.2", "link probing, rollback of an iteration", "faults are checked, nothing recovers from them"),
    (
        "CloudMatrix384 4.2.3",
        "the decode's two streams on parts of the cores",
        "A2E has streams, fused operators run alone",
    ),
    (
        "CloudMatrix384 4.3",
        "the prefill's pipeline on SDMA, connections for the KV cache", "of prefill SP-TP-SP alone",
    ),
    ("CloudMatrix384 4.4", "the memory pool and its caches", "storage, and no kernel on NPUs"),
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A request, or a call of a subroutine that all protocols share, in a kernel of a paper."""

    file: str
    line: int
    request: str
    """Its operation, and its synchronization if it has a name."""
    text: str
    """Its line."""


# ---- which request is of which step


def chain(site: Site) -> list[tuple[str, int]]:
    """Files and lines on the way to a request, that of the kernel first."""
    return [*site.callers, (site.file, site.line)]


def files_of(paper: Paper) -> list[str]:
    """Files of its kernels, as requests have them."""
    return [str(module.__file__) for module in paper.kernels]


def paper_of(site: Site, papers: Iterable[Paper]) -> Paper | None:
    """The paper whose kernels a request is of: the first on the way to it that any paper has."""
    by_file = {file: paper for paper in papers for file in files_of(paper)}
    return next((by_file[file] for file, _ in chain(site) if file in by_file), None)


def place_of(site: Site, paper: Paper) -> Place:
    """Where a request is in the paper's own kernels: of a shared subroutine, where it is called."""
    file, line = [at for at in chain(site) if at[0] in files_of(paper)][-1]
    return Place(file, line, f"{site.operation} {site.sync}".strip(), site.text)


def seen_in(deviation: Deviation, places: Iterable[Place]) -> list[Place]:
    """Requests in which a deviation shows; by a part of their lines only if there is none of that name."""
    places = [*places] if deviation.seen else []
    named = [place for place in places if place.request == deviation.seen]
    return named or [place for place in places if deviation.seen in place.text]


def steps_of(papers: Iterable[Paper], kernels: Iterable[Kernel]) -> dict[tuple[Paper | None, int], list[Place]]:
    """Requests that have a step, by paper and step; a request of no paper's kernels stands under none."""
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
    return f"`{name}` [{at.name}:{lines}](../{at}{anchor})"


def links(places: Iterable[Place]) -> str:
    """All places, by function."""
    lines: dict[tuple[Path, str], list[int]] = {}
    for place in places:
        file = Path(place.file)
        name = next(name for name, first, last in functions(file) if first <= place.line <= last and first < last)
        lines.setdefault((file, name), []).append(place.line)
    return "<br>".join(link(file, name, min(at), max(at)) for (file, name), at in lines.items())


def row(*cells: str) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def rows(step: Step, places: list[Place]) -> Iterator[str]:
    """The step, and its deviations below it."""
    yield row(f"{step.number}", step.says, links(places), "" if step.deviations else "none", "")
    for deviation in step.deviations:
        yield row("", "", links(seen_in(deviation, places)), deviation.what, deviation.why)


def table(paper: Paper, cases: list[str], found: dict[tuple[Paper | None, int], list[Place]]) -> str:
    """The part of the page on one protocol."""
    lines = [f"## {paper}", "", f"Cases: {', '.join(f'`{name}`' for name in cases)}.", ""]
    lines += [row(*COLUMNS), row(*["---"] * len(COLUMNS))]
    lines += [line for step in paper.steps for line in rows(step, found.get((paper, step.number), []))]
    return "\n".join(lines) + "\n"


def where(place: str) -> str:
    """A link to ``file:name``, or to a file."""
    file, _, name = place.partition(":")
    if not name:
        return f"[{Path(file).name}](../{file})"
    first = {known: first for known, first, _ in functions(ROOT / file)}[name]
    return link(ROOT / file, name, first, first)


def models(title: str, rows_of: Iterable[Model]) -> str:
    """The part of the page on what has no steps."""
    head = ("paper", "what it says", "here", "deviation", "why")
    lines = [f"## {title}", "", row(*head), row(*["---"] * len(head))]
    lines += [row(of.where, of.says, "<br>".join(map(where, of.places)), of.deviates, of.why) for of in rows_of]
    return "\n".join(lines) + "\n"


def absent() -> str:
    """The part of the page on what is not here."""
    head = ("paper", "communication that is not here", "")
    return "\n".join(["## Absent", "", row(*head), row(*["---"] * len(head)), *(row(*of) for of in ABSENT)]) + "\n"


def page() -> str:
    """The whole page."""
    papers, kernels = shipped()
    found = steps_of(papers, kernels)
    of_papers = sorted(papers.items(), key=lambda item: item[0].where)
    parts = [table(paper, cases, found) for paper, cases in of_papers]
    parts += [models("Collectives", COLLECTIVES), models("Machine, engines, fabric", MACHINE), absent()]
    return "\n".join([HEAD, *parts])


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    wrong = [*complaints(*shipped())]
    new = page()
    if not check:
        PAGE.write_text(new, encoding="utf-8")
    else:
        old = PAGE.read_text(encoding="utf-8").splitlines()
        wrong += [f"not in {PAGE.name}: {line}" for line in new.splitlines() if line not in old]
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
