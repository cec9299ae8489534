"""A violation as one page of HTML: the picture, the steps, the source, and flags in memory at each step."""

import html
import json
import linecache
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from string import Template
from typing import Any

from xccl_emu.check.trial import Trial
from xccl_emu.check.verdict import Violation
from xccl_emu.check.witness import highlight, picture
from xccl_emu.check.witness.format import number
from xccl_emu.check.witness.render import Row, below, rows, short
from xccl_emu.check.witness.replayer import Replayer
from xccl_emu.check.witness.trace import Source, Step, Trace, steps
from xccl_emu.machine import report

_AROUND = 6
"""Lines of source before and behind the one that is carried out."""


def page(fresh: Callable[[], Trial], violation: Violation, title: str) -> str:
    """The page, as text.

    ``fresh`` makes the trial on which the violation is replayed, twice; ``title`` is what was checked.  Raises
    ReplayError if the violation's schedule is not one of it.
    """
    actions = violation.actions.tolist()
    trial = fresh()
    trace = steps(trial, actions)
    marked = highlight.marks(trace, violation)
    lines = rows(trace, marked)
    flags = _flags(trial, trace)
    headline, *more = short(violation.message).splitlines() or [""]
    found = [headline, *below(trace, marked), *(more[2:] if "A" in marked.values() else more)]
    shown = {
        "rows": [_row(line) for line in lines],
        "flags": list(flags),
        "memory": _values(fresh(), actions, list(flags.values())),
        "sources": {str(source): _lines_of(source) for source in _sources(lines)},
    }  # fmt: skip
    template = Template(resources.files("xccl_emu.check.witness").joinpath("page.html").read_text("utf-8"))
    return template.substitute(
        title=html.escape(title), row=picture.ROW, head=picture.HEAD,
        found=html.escape("\n".join(found)),
        picture=picture.svg(trace, lines, told=False), table="\n".join(map(_table_row, lines)),
        shown=json.dumps(shown, ensure_ascii=False).replace("<", "\\u003c"),
    )  # fmt: skip


def _table_row(line: Row) -> str:
    step = line.step
    shown = "marked" if line.mark else "off" if step.switched_off else ""
    action = "; ".join([step.words(), *(each.words().removeprefix("issue ") for each in line.also)])
    cells = (line.mark, line.numbers, f"{step.who}.{step.pipe}", action, step.place, step.value)
    return f'<tr class="{shown}" tabindex="-1">' + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"


def _row(line: Row) -> dict[str, Any]:
    source = line.step.source
    place = {"source": "", "line": 0} if source is None else {"source": str(source), "line": source.line}
    return {"before": line.first - 1, "last": line.last, **place}


def _sources(lines: Sequence[Row]) -> Iterator[Source]:
    return (line.step.source for line in lines if line.step.source is not None)


def _lines_of(source: Source) -> dict[str, Any]:
    """The place, and the lines of source round it; none of a file that is not there."""
    first = max(1, source.line - _AROUND)
    text = [linecache.getline(source.file, line) for line in range(first, source.line + _AROUND + 1)]
    place = f"{short(source.file)}:{source.line}, kernel {source.kernel}"
    return {"place": place, "first": first, "text": "".join(text)}


def _flags(trial: Trial, trace: Trace) -> dict[str, int]:
    """Words of memory that somebody polls, adds to, or loads by name: in words, and where they are."""
    found = (access.start for step in trace.steps for access in _synchronizing(step))
    return {report.symbolic(trial.pod, at): at for at in sorted({*found}) if trace.die_of(at) >= 0}


def _synchronizing(step: Step) -> Iterator[Any]:
    return (access for access in step.accesses if access.synchronizes and access.nbytes <= 8)


def _values(trial: Trial, actions: Sequence[int], addresses: Sequence[int]) -> list[list[str]]:
    """What the words hold at first and behind each action: [actions + 1][words]."""
    replayer, memory = Replayer(trial.pod), trial.pod.memory

    def words() -> list[str]:
        return [number(int.from_bytes(memory[at : at + 8].tobytes(), "little", signed=True)) for at in addresses]

    return [words(), *(words() for code in actions if replayer.take(code) is not None)]
