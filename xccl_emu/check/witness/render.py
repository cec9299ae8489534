"""A violation for people: the run that leads to it as a table, and below it what to look at."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.box import HORIZONTALS
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

import xccl_emu
from xccl_emu.check import messages, verdict
from xccl_emu.check.messages import wrong_element
from xccl_emu.check.trial import Trial
from xccl_emu.check.verdict import Violation
from xccl_emu.check.witness import highlight
from xccl_emu.check.witness.shrink_schedule import signature
from xccl_emu.check.witness.trace import PERFORM, RunTrace, SubTransfer, TracedAccess, TraceStep
from xccl_emu.check.witness.tracer import steps
from xccl_emu.lang import operations as ops

_FLAGS = ops.names(ops.FLAGS)
LINES_MAX = 80
"""Longer tables are cut down to what passes between cores."""
LINES_OF_BYTES = 40
"""In longer tables of wrong bits are only the steps that the first wrong element comes from."""
NARROW = 80
"""Columns below which a table would be letters one below the other: each line of it is then put into several."""
_CODE = re.compile(r" `[^`]*`")


@dataclass(frozen=True)
class RenderedRow:
    """A line of the table: one step, or several in a row that lose nothing by being said together."""

    first: int
    last: int
    step: TraceStep
    """The first of them; its part is the part of all."""
    also: tuple[TraceStep, ...] = ()
    """Flags that the same pipe went on with."""
    mark: str = ""

    @property
    def numbers(self) -> str:
        """``12`` or ``12-15``; nothing for what was never done."""
        if not self.first:
            return ""
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def rows(trace: RunTrace, marked: dict[int, str] | None = None) -> list[RenderedRow]:
    """The steps of a run as lines of the table."""
    lines, marked = list[RenderedRow](), marked or {}
    racing = highlight.raced(trace, marked)
    for step in trace.steps:
        for line in _lines(trace, racing.get(step.number, step), marked.get(step.number, "")):
            joined = _join(lines[-1], line) if lines else None
            lines[-1:] = [*lines[-1:], line] if joined is None else [joined]
    return lines


def _lines(trace: RunTrace, step: TraceStep, mark: str) -> Iterator[RenderedRow]:
    """One line of a step, below the line that makes room for it; where writes become visible one for each."""
    if step.room is not None:
        yield RenderedRow(step.number, step.number, step.room)
    if step.pipe != PERFORM or step.operation == "fault":
        yield RenderedRow(step.number, step.number, step, mark=mark)
        return
    for write in (trace.writes[n] for n in step.landed):
        by = write.by
        each = replace(
            step, core=by.core, who=by.who, source=by.source, operation=by.operation, action=by.action,
            instruction=by.instruction, address=write.address, place=write.place, value=write.value, part=write.part,
        )  # fmt: skip
        yield RenderedRow(step.number, step.number, each, mark=mark)


def _join(line: RenderedRow, following: RenderedRow) -> RenderedRow | None:
    """Two lines as one, if that loses nothing: further granules of a transfer, or flags that the pipe goes on with."""
    one, other = line.step, following.step
    if (one.core, one.pipe) != (other.core, other.pipe) or line.mark != following.mark or other.failed:
        return None
    if "fault" in (one.operation, other.operation):
        return None
    same = one.instruction == other.instruction and not one.issues and not line.also
    if same and one.part is not None and other.part is not None and one.part.last + 1 == other.part.first:
        part = SubTransfer(one.part.first, other.part.last, one.part.count)
        return replace(line, last=following.last, step=replace(one, part=part))
    if other.operation in _FLAGS and one.issues == other.issues and not line.mark and len(line.also) < 2:
        return replace(line, last=following.last, also=(*line.also, other))
    return None


def blocked(trace: RunTrace) -> list[RenderedRow]:
    """After a deadlock a line for each blocked core; those that wait in a ring are marked."""
    ring = trace.cycle
    return [
        RenderedRow(0, 0, one.step, mark=highlight.LOOP if one in ring else highlight.FAILS) for one in trace.waiting
    ]


def excerpt(trace: RunTrace, lines: list[RenderedRow]) -> list[RenderedRow]:
    """Return the lines of a long run that pass between cores, are switched off, or are marked."""
    return [line for line in lines if line.mark or line.step.switched_off or _concerns_others(trace, line.step)]


def fold(
    trial: Trial, violation: Violation, trace: RunTrace, lines: list[RenderedRow]
) -> tuple[list[RenderedRow], list[str]]:
    """Return the lines that the violation depends on, and a sentence on the others; the run of ``trial`` has ended."""
    if trace.waiting:
        matter, why = cores_that_matter(trace), "cores that play no part, and return"
        left = [line for line in lines if line.step.core in matter]
    elif len(lines) > LINES_OF_BYTES and (wrong := element(trial, violation)):
        matter, why = steps_that_matter(trace, wrong), "what the wrong element does not come from"
        left = [line for line in lines if matter & {*range(line.first, line.last + 1)} or line.step.switched_off]
    else:
        return lines, []
    return left, [f"({len(lines) - len(left)} lines are left out, of {why})"] if len(left) < len(lines) else []


def _concerns_others(trace: RunTrace, step: TraceStep) -> bool:
    """Does a step read or write memory, or is it a quiet, a barrier, an answer or the end of a kernel?"""
    if step.operation == "fault":
        return True
    touches = any(trace.die_of(access.start) >= 0 for access in step.accesses)
    return (touches and not step.issues) or step.operation in ("quiet", "arrive", "await_group", "choose", "return")


def table(lines: Iterable[RenderedRow]) -> Table:
    """Lines of a run as a table of about 110 columns; a rule is drawn wherever another core goes on."""
    shown = Table(box=HORIZONTALS, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for name in ("", "#", "die.core.pipe", "step", "action", "address", "value"):
        shown.add_column(name, justify="right" if name in ("#", "step") else "left", overflow="fold")
    before = None
    for line in lines:
        if before is not None and before != line.step.core:
            shown.add_section()
        before = line.step.core
        shown.add_row(*(escape(cell) for cell in _cells(line)), style=_style(line))
    return shown


def stacked(lines: Iterable[RenderedRow]) -> Text:
    """Lines of a run one below the other, for narrow terminals: who, then below it what, where, and the value."""
    return Text("\n").join(Text(_stack(*_cells(line)), _style(line)) for line in lines)


def _stack(mark: str, numbers: str, who: str, step: str, *more: str) -> str:
    head = f"{mark} {numbers} {who}{step and f', step {step}'}".lstrip()
    return "\n  ".join([head, *filter(None, more)])


def _cells(line: RenderedRow) -> tuple[str, ...]:
    step = line.step
    paper = next((str(s.source.step) for s in (step, *line.also) if s.source is not None and s.source.step), "")
    action = "; ".join([step.words(), *(each.words().removeprefix("issue ") for each in line.also)])
    who = step.who if step.operation == "fault" and not step.landed else f"{step.who}.{step.pipe}"
    return line.mark, line.numbers, who, paper, action, step.place, step.value


def _style(line: RenderedRow) -> str:
    if line.mark:
        return "bold red"
    if line.step.switched_off:
        return "yellow"
    if line.step.operation == "fault":
        return "bold magenta"
    return "cyan" if line.step.pipe == PERFORM else ""


def below(trace: RunTrace, marked: dict[int, str]) -> Iterator[str]:
    """The two accesses of a race, with their source lines, where a loop begins, or who waits in a ring; the message
    has the rest."""
    racing = highlight.raced(trace, marked)
    for step in (racing.get(step.number, step) for step in trace.steps):
        if marked.get(step.number) == highlight.LOOP:
            yield f"{highlight.LOOP}  step {step.number}: {highlight.ROUND}, {len(trace.steps) - step.number + 1} steps"
        if (mark := marked.get(step.number, "")) in ("A", "B"):
            where = f"; {short(step.source)}" if step.source is not None else ""
            yield f"{mark}  step {step.number}: {step.who}.{step.pipe} {step.words()} {step.place}{where}"
    if ring := [one.step.who for one in trace.cycle]:
        ring_in_words = " → ".join([*ring, ring[0]])
        yield f"{highlight.LOOP}  each waits for what the next one wrote last, or writes next: {ring_in_words}"


def short(text: object) -> str:
    """The text, with paths in it as seen from the working directory or from where the package is."""
    for folder in (Path.cwd(), Path(xccl_emu.__file__).parent.parent):
        text = str(text).replace(f"{folder}{os.sep}", "")
    return str(text)


def print_witness(console: Console, trial: Trial, violation: Violation) -> RunTrace:
    """Print a violation and the run that leads to it; returns the run, for charts and traces of it.

    Of a run of more than `LINES_MAX` lines those are left out that only say what a core does by itself.  ``trial`` is
    a fresh one, which is used up.  Raises ReplayError if the violation's schedule is not one of it.
    """
    order, without = trial.pod.order, sorted(trial.pod.without)
    trace = steps(trial, violation.actions.tolist())
    marked = highlight.marks(trace, violation)
    off = f", without {', '.join(without)}" if without else ""
    console.print(f"[bold red]{violation.kind}[/] under {order}{escape(off)}, in {len(trace.steps)} steps:")
    headline, *more = short(violation.message).splitlines() or [""]
    _print_lines(console, [headline, ""])
    lines, folded = fold(trial, violation, trace, rows(trace, marked))
    few = lines if len(lines) <= LINES_MAX else excerpt(trace, lines)
    console.print(table(few) if console.width >= NARROW else stacked(few))
    if len(few) < len(lines):
        folded = [f"({len(lines) - len(few)} lines are left out, of what cores do by themselves)", *folded]
    _print_lines(console, folded)
    _print_lines(console, ["", *below(trace, marked), *(more[2:] if "A" in marked.values() else more)])
    return trace


def in_a_line(violation: Violation) -> str:
    """A violation in a line: what, where, by which source lines, and who found it."""
    headline, *more = short(violation.message).splitlines() or [""]
    headline = _CODE.sub("", headline).removeprefix(f"{violation.kind}: ").removesuffix(":")
    of_two = violation.kind in highlight.RACES or messages.SET_AGAIN in headline
    lines = ", ".join(sorted(signature(violation)[1])) if of_two and more else ""
    return f"{violation.kind}: {headline}{lines and f' ({short(lines)})'}; by {violation.found_by}"


def print_others(console: Console, others: Sequence[Violation]) -> None:
    """Say in a line each what else goes wrong."""
    if others:
        _print_lines(console, ["", "also found:", *(f"  {in_a_line(other)}" for other in others)])


def _print_lines(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(escape(line), highlight=False)


# ---- what a table leaves out

_GROUP = ("arrive", "await_group")
_READS = ops.names(ops.LOOKS | ops.ATOMICS | ops.BUFFER_READS)

Range = tuple[int, int]
"""First byte, and the one after the last."""


def cores_that_matter(trace: RunTrace) -> set[int]:
    """After a deadlock: blocked cores, and all that wrote what these have read, or what those have, and so on."""
    matter = {one.step.core for one in trace.waiting}
    need = [(one.step.address, one.step.address + 8) for one in trace.waiting if one.step.address is not None]
    meet = {step.core for step in (*trace.steps, *(one.step for one in trace.waiting)) if step.operation in _GROUP}
    for step in reversed([*trace.parts()]):
        wrote = {write.by.core for write in map(trace.writes.__getitem__, step.landed) if _meets(write.range, need)}
        matter |= wrote | (meet if meet & (matter | wrote) else set())
        if step.core in matter:
            need += [_range(each) for each in step.accesses if not each.writes and trace.die_of(each.start) >= 0]
    return matter


def element(trial: Trial, violation: verdict.Violation) -> Range | None:
    """The wrong element that a message is about, where the run of a trial has ended; None if it is about none."""
    if violation.kind != verdict.WRONG_BITS:
        return None
    named = (each for each in trial.expected if violation.message.startswith(f"{each.name} is wrong at"))
    return next((found for each in named if (found := wrong_element(trial, each))), None)


def steps_that_matter(trace: RunTrace, wrong: Range) -> set[int]:
    """Numbers of the steps that wrote an element, or what it was made of, and of those that read it for that."""
    return set(_Slice(trace, wrong).numbers())


class _Slice:
    """A walk from the end of a run to its beginning, along where bytes come from."""

    def __init__(self, trace: RunTrace, wrong: Range) -> None:
        self._trace, self._wrong = trace, wrong
        self._need = [wrong]
        self._writes: set[int] = set()
        self._issued: set[int] = set()
        self._cores: set[int] = set()
        """Cores whose registers matter: their kernels gave addresses or values."""

    def numbers(self) -> Iterator[int]:
        """The steps, the last one first."""
        for step in reversed([*self._trace.parts()]):
            landed = {n for n in step.landed if _meets(self._trace.writes[n].range, self._need)}
            self._writes |= landed
            if self._carries_out(step) or self._reads_for_it(step) or step.number in self._issued or landed:
                yield step.number

    def _carries_out(self, step: TraceStep) -> bool:
        """Return True if a step writes what is needed; what it reads for that is needed from here on."""
        left = [self._trace.writes[n].range for n in step.left if n in self._writes]
        inside = [_range(each) for each in step.accesses if each.writes and self._trace.die_of(each.start) < 0]
        wrote = left + [part for each in inside for part in _common(each, self._need)]
        if not wrote:
            return False
        self._need = [part for one in self._need for part in _without(one, inside)]
        self._need += _sources(step.accesses, wrote)
        self._issued.add(step.instruction)
        self._cores.add(step.core)
        return True

    def _reads_for_it(self, step: TraceStep) -> bool:
        """Return True if a kernel reads what it makes an address or a value of."""
        taken = step.pipe == "scalar" and step.operation in _READS and step.core in self._cores
        if not taken or step.issues or (step.operation.startswith("poll") and not (step.source and step.source.used)):
            return False
        self._need += [_range(each) for each in step.accesses if not each.writes]
        return True


def _range(access: TracedAccess) -> Range:
    return access.start, access.start + access.nbytes


def _common(one: Range, others: Iterable[Range]) -> list[Range]:
    both = ((max(one[0], start), min(one[1], end)) for start, end in others)
    return [(start, end) for start, end in both if start < end]


def _meets(one: Range, others: Iterable[Range]) -> bool:
    return bool(_common(one, others))


def _without(one: Range, taken: Iterable[Range]) -> list[Range]:
    """Return what is left of a range."""
    left = [one]
    for start, end in taken:
        left = [part for a, b in left for part in ((a, min(b, start)), (max(a, end), b)) if part[0] < part[1]]
    return left


def _sources(accesses: tuple[TracedAccess, ...], wrote: list[Range]) -> list[Range]:
    """Return where a step's bytes come from: of a copy the same part of what it reads, else all that it reads."""
    read = [_range(each) for each in accesses if not each.writes]
    target = [_range(each) for each in accesses if each.writes]
    if len(read) == len(target) == 1 and read[0][1] - read[0][0] == target[0][1] - target[0][0]:
        by = read[0][0] - target[0][0]
        return [(start + by, end + by) for each in wrote for start, end in _common(each, target)]
    return read
