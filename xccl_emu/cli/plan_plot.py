"""Plot of a plan: what each of the best strategies spends its prefill and its decode on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xccl_emu.cli.files import save_figure
from xccl_emu.cli.plan_show import Shown
from xccl_emu.plan.strategies import Estimate, single_terms

_COLOURS = ("#aeb6bf", "#1b4f72", "#ba4a00", "#2e86c1", "#17a589", "#d68910", "#7d3c98", "#85c1e9", "#566573")


def draw(shown: Shown, path: Path) -> None:
    """Draw stacked bars of terms, the best strategy on top; raises OutputError if the file cannot be written."""
    from matplotlib.figure import Figure

    rows = [*shown.plan.ranked[: shown.top]]
    if shown.chosen is not None and shown.chosen.strategy not in [row.strategy for row in rows]:
        rows.append(shown.chosen)
    figure = Figure(figsize=(12.0, 1.6 + 0.3 * len(rows)), layout="constrained")
    prefill, decode = figure.subplots(1, 2, sharey=True)
    _add(prefill, rows, "prefill")
    _add(decode, rows, "decode")
    prefill.set_yticks(range(len(rows)), [str(row.strategy) for row in rows], fontsize="small")
    prefill.invert_yaxis()
    prefill.legend(frameon=False, fontsize="small")
    one = rows[0].setting
    figure.suptitle(f"{one.model.name} on {one.cluster.name}, equations {one.form.text}".replace("$", r"\$"))
    save_figure(figure, path)


def _add(panel: Any, rows: Sequence[Estimate], phase: str) -> None:
    terms = [single_terms(getattr(row, phase)) for row in rows]
    lefts = [0.0] * len(rows)
    for name, colour in zip(terms[0], _COLOURS, strict=True):
        widths = [1e3 * each[name] for each in terms]
        panel.barh(range(len(rows)), widths, left=lefts, color=colour, label=name)
        lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    panel.set(xlabel="ms", title=f"{phase}: {'TTFT without the wait' if phase == 'prefill' else 'ITL'}")
    panel.margins(x=0.03)
    panel.spines[["top", "right"]].set_visible(False)
