"""Write the tables of docs/records/mixserve.md: the analyzer with what the paper measured, and runs with forms.

With --check the runs of the fused algorithms are not made again.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace

from pages import ROOT, between, command, table

from xccl_emu.papers.bench import mixserve as forms_of_runs
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.papers.plan.cluster import SHIPPED as CLUSTERS
from xccl_emu.papers.plan.cluster import Cluster, load_cluster
from xccl_emu.papers.plan.costs import CORRECTED, LITERAL, Form, PlanSetting, literal_but_for
from xccl_emu.papers.plan.model import SHIPPED as MODELS
from xccl_emu.papers.plan.model import load_model
from xccl_emu.papers.plan.published import EQUAL, MORE_DP, MORE_EP, compared, measured
from xccl_emu.papers.plan.strategies import RequestStream, deciding, ms, plan
from xccl_emu.timing.fabric import Fabric
from xccl_emu.timing.topologies import ATLAS_800T_A2, H20

PAGE = ROOT / "docs" / "records" / "mixserve.md"

PAPER = PlanSetting(load_model("DeepSeek-R1"), load_cluster("910B"))
WORKLOAD = RequestStream()
TOKENS = (8, 64, 512)
"""Tokens of a node, in runs of the fused algorithms."""


def settings() -> Iterator[PlanSetting]:
    """The paper's four."""
    for cluster in CLUSTERS:
        for model in MODELS:
            yield replace(PAPER, model=load_model(model), cluster=load_cluster(cluster))


def where(of: PlanSetting) -> str:
    """Return words such as DeepSeek-R1 on 910B."""
    return f"{of.model.name} on {of.cluster.name}"


def best(head: str = "### The best strategy") -> str:
    """Return the best strategy of every setting, corrected, and why the next is second."""

    def rows() -> Iterator[Sequence[str]]:
        for of in settings():
            first, second, *_ = plan(of, WORKLOAD).ranked
            name, seconds = deciding(second, first)
            yield (
                where(of), f"`{first.strategy}`", f"{1e3 * first.prefill_s:.1f}", f"{1e3 * first.itl_s:.2f}",
                f"{first.throughput:.0f}", f"{first.memory.total / 1e9:.1f}",
                f"`{second.strategy}` by {name}, {ms(seconds)}",
            )  # fmt: skip

    columns = ("", "best", "TTFT without wait, ms", "ITL, ms", "tokens/s", "GB", "the next loses, of a request")
    return f"{head}\n\n{table(columns, rows())}"


def forms() -> Iterator[tuple[str, Form]]:
    """Corrected, one equation as printed at a time, and all but (8)."""
    yield "corrected", CORRECTED
    for each in fields(Form):
        yield f"({each.name[2:]}) as printed", replace(CORRECTED, **{each.name: True})
    yield "all but (8) as printed", literal_but_for(("8",))
    yield "all as printed", LITERAL


def literal() -> str:
    """Show what each equation as printed does to the best strategy, on both clusters."""
    of_both = [of for of in settings() if of.model.name == "DeepSeek-R1"]

    def rows() -> Iterator[Sequence[str]]:
        for name, form in forms():
            cells = [name]
            for of in of_both:
                found = plan(replace(of, form=form), WORKLOAD)
                stuck = " (all saturated)" if found.ranked and all(one.load.saturated for one in found.ranked) else ""
                cells.append(f"`{found.ranked[0].strategy}`{stuck}" if found.ranked else "none fits")
            yield *cells, of_cases(form)

    columns = ("", *(f"best, {where(of)}" for of in of_both), "best of the three cases: 910B; H20")
    return f"### The equations as printed\n\n{table(columns, rows())}"


def of_cases(form: Form) -> str:
    """Name the case with the highest throughput, whether or not it fits; of both models, which never differ."""
    found = []
    for of in settings():
        cases = measured(replace(of, form=form), WORKLOAD).of
        busy = {name: cases[name].prefill_s + WORKLOAD.output * cases[name].itl_s for name in (EQUAL, MORE_DP, MORE_EP)}
        found.append(min(busy, key=lambda name: busy[name]))
    return "; ".join(" or ".join(dict.fromkeys(pair)) for pair in (found[:2], found[2:]))


def cell(row: Result) -> str:
    """The error, or whether a claim holds."""
    if row.met is not None:
        return "holds" if row.met else "MISSED"
    return f"{row.error_percent:+.1f}%"


def published() -> str:
    """Every published row."""
    parts = ["### What was measured, and what the equations say"]
    results = compared(PAPER, WORKLOAD)
    for bench in dict.fromkeys(result.bench for result in results):
        rows = (
            (row.what, f"{'' if row.relation == '=' else row.relation + ' '}{row.published:g}", f"{row.emulated:.4g}",
             row.unit, cell(row), row.note.partition(": ")[2])
            for row in results if row.bench == bench
        )  # fmt: skip
        title = bench.partition(",")[0].removeprefix("mixserve ")
        parts.append(f"**{title}**\n\n" + table(("", "published", "computed", "unit", "error", "because"), rows))
    return "\n\n".join(parts)


def holding(setting: PlanSetting, workload: RequestStream, change: Callable[[Cluster], Cluster] = lambda of: of) -> str:
    """Count the claims about the three cases that hold if something is assumed otherwise."""
    claims = [row for row in compared(setting, workload, change) if row.what.startswith("d_DP") and row.met is not None]
    return f"{sum(bool(row.met) for row in claims)} of {len(claims)}"


def robust() -> str:
    """Claims that hold, assumption by assumption."""

    def links(**other: object) -> Callable[[Cluster], Cluster]:
        return lambda of: replace(of, intra=replace(of.intra, **other))  # type: ignore[arg-type]

    def inter(times: float) -> Callable[[Cluster], Cluster]:
        return lambda of: replace(of, inter=replace(of.inter, gb_s=of.inter.gb_s * times))

    def start(us: float) -> Callable[[Cluster], Cluster]:
        return lambda of: replace(of, intra=replace(of.intra, start_us=us), inter=replace(of.inter, start_us=us))

    def rows() -> Iterator[Sequence[str]]:
        yield "as it is", holding(PAPER, WORKLOAD)
        for tokens in (32, 1024, 3000):
            yield f"prompts of {tokens} tokens", holding(PAPER, replace(WORKLOAD, input=tokens))
        for batch in (4, 64):
            yield f"{batch} requests at once", holding(replace(PAPER, batch=batch), WORKLOAD)
        for part in (0.2, 1.0):
            yield f"efficiency {part}", holding(PAPER, WORKLOAD, lambda of, part=part: replace(of, efficiency=part))
        yield "EP without copies (`--drop`)", holding(replace(PAPER, dropping=True), WORKLOAD)
        yield "nothing overlaps", holding(replace(PAPER, overlapped=False), WORKLOAD)
        yield "HCCS and NVLink as printed in each direction", holding(PAPER, WORKLOAD, links(ways=1))
        yield "every pair linked on both clusters", holding(PAPER, WORKLOAD, links(mesh=True))
        yield "a port on both clusters", holding(PAPER, WORKLOAD, links(mesh=False))
        for times in (0.125, 0.5, 2):
            yield f"{times:g} times the bandwidth between nodes", holding(PAPER, WORKLOAD, inter(times))
        for us in (1, 5, 50):
            yield f"{us} µs before each round", holding(PAPER, WORKLOAD, start(us))

    return f"### What the order of the three cases rests on\n\n{table(('assumed', 'claims that hold'), rows())}"


def timed(part: str, fabric: Fabric) -> str:
    """Closed forms and runs of one of the fused algorithms, side by side, on a cluster."""

    def rows() -> Iterator[Sequence[str]]:
        for tokens in TOKENS:
            for degrees in forms_of_runs.DEGREES:
                case = forms_of_runs.of_cluster(fabric, part, tokens, degrees)
                yield f"{tokens}, {degrees}", *timed_cells(forms_of_runs.compared(case, Setting(fabric)), degrees)

    columns = (
        "tokens a node", "between", "within", "flags", "least", "run", "sum", "run off", "most of the sum",
        "overlapped run", "form", "form off",
    )  # fmt: skip
    return f"{part.capitalize()} on {fabric.name}, µs:\n\n{table(columns, rows())}"


def timed_cells(of: forms_of_runs.Compared, degrees: str) -> Iterator[str]:
    """Parts of the sum; the run between the least and the sum, and how far it is from the latter; with overlap the form
    and how far that is from the run.  (12) says nothing of overlap."""
    parts, form = of.form.parts, of.form
    yield from (f"{parts[name]:.1f}" for name in ("between nodes", "within nodes", "flags"))
    yield from (f"{us:.1f}" for us in (form.least_us, of.run_us, form.sum_us))
    yield f"{100 * (of.run_us / form.sum_us - 1):+.0f}%"
    yield max(parts, key=lambda name: parts[name])
    yield f"{of.overlapped_run_us:.1f}"
    has_form = degrees != "EP"
    yield f"{of.overlapped_us:.1f}" if has_form else ""
    yield f"{100 * (of.overlapped_us / of.overlapped_run_us - 1):+.0f}%" if has_form else ""


def with_tables(text: str) -> str:
    """The page with tables of the analyzer made again."""
    return between(text, "analyzer", best(), published(), literal(), robust())


def page(text: str, check: bool = False) -> str:
    """The page with all tables made again; tables of runs are only written."""
    if check:
        return with_tables(text)
    parts = [timed(part, fabric) for fabric in (ATLAS_800T_A2, H20) for part in forms_of_runs.ALGORITHMS]
    return between(with_tables(text), "runs", *parts)


if __name__ == "__main__":
    sys.exit(command(__doc__, PAGE, page))
