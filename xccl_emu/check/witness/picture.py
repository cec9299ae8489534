"""A run as SVG and as a page: a lane for each pipe of a core and each die's memory, a row for each line of the table.

A dot is an action.  A grey line leads from where an instruction was queued to where it was carried out, a solid arrow
from where a write left its core to where it became visible, in the memory's lane, and a dashed one from memory to who
has seen it.  What a violation marks is red, and so are blocked cores and what they poll.
"""

from collections.abc import Callable, Sequence

from xccl_emu.base.pages.drawing import Drawing
from xccl_emu.base.pages.page import Page, PageLine
from xccl_emu.check.trial import Trial
from xccl_emu.check.verdict import Violation
from xccl_emu.check.witness import highlight
from xccl_emu.check.witness.format import number
from xccl_emu.check.witness.highlight import LOOP
from xccl_emu.check.witness.render import RenderedRow, below, blocked, rows, short
from xccl_emu.check.witness.replayer import Replayer
from xccl_emu.check.witness.trace import PERFORM, RunTrace, TraceStep, Write
from xccl_emu.check.witness.tracer import steps
from xccl_emu.machine import report

ROW, HEAD = 24, 96
"""Height of a row, and of what is above the first, in pixels."""
LEGEND = (
    '<span class="queued">Grey: queued, then carried out.</span> <span class="write">Blue: a write leaves its core, and'
    ' becomes visible (dotted: it has not yet).</span> <span class="seen">Green, dashed: memory is read.</span>'
    ' <span class="marked">Red: the violation.</span>'
)
_LANE, _LEFT, _LETTER = 34, 24, 7.3
_PIPES = ("scalar", "mtu-in", "vector", "mtu-out", "dma")
_TITLE = "Who does what, and when writes become visible"
_STYLE = """
.memory { stroke: #8aa8d8; stroke-width: 3; } .action { fill: #333; } .queued { stroke: #949494; }
.write { stroke: #0b5394; stroke-width: 1.5; } .lost { stroke-dasharray: 1 3; } .off { fill: #b45f06; }
.band { fill: #b00020; fill-opacity: 0.1; } .wait { stroke: #b00020; stroke-dasharray: 6 2; }
"""

Lane = tuple[int, int, int]
"""Die, core on it, and number of the pipe; memory comes after all cores."""


def y_of(row: int) -> float:
    """Middle of a row, from 0 on."""
    return HEAD + (row + 0.5) * ROW


def svg(trace: RunTrace, lines: list[RenderedRow]) -> str:
    """The lines of a run as a picture that says in words what each is."""
    picture = _Picture(trace, lines)
    drawing = picture.drawing(0, max(map(len, map(_words, picture.lines)), default=0))
    picture.draw_heads(drawing)
    picture.draw(drawing, worded=True)
    return drawing.svg()


def parts(trace: RunTrace, lines: list[RenderedRow]) -> tuple[str, str]:
    """The names of the lanes, and the picture below them, for a page, which has words of its own."""
    picture = _Picture(trace, lines)
    heads, below = picture.drawing(0, 0, HEAD), picture.drawing(HEAD, 0)
    picture.draw_heads(heads)
    picture.draw(below, worded=False)
    return heads.svg(), below.svg()


class _Picture:
    def __init__(self, trace: RunTrace, lines: list[RenderedRow]) -> None:
        self._trace, self._taken = trace, lines
        self.lines = [*lines, *blocked(trace)]
        first = next((row for row, line in enumerate(lines) if line.mark == LOOP), len(lines))
        self._loop = range(first, len(lines))
        lanes = {lane for line in self.lines for lane in (self._lane(line.step), *self._memories(line.step))}
        self._x = {lane: _LEFT + (i + 0.5) * _LANE for i, lane in enumerate(sorted(lanes))}
        self._right = _LEFT + len(self._x) * _LANE

    def drawing(self, top: float, letters: int, bottom: float = 0) -> Drawing:
        """An empty one from a height on, with room for words on the right."""
        height = (bottom or y_of(len(self.lines)) + ROW / 2) - top
        return Drawing((0, top, self._right + _LETTER * letters + ROW, height), _TITLE, _STYLE)

    def draw_heads(self, into: Drawing) -> None:
        """The names of the lanes."""
        before = None
        for (die, core, pipe), x in self._x.items():
            several = "" if self._trace.cores_per_die == 1 else f"core{core}."
            name = into.text(0, 0, "memory" if core == self._trace.cores_per_die else several + _PIPES[pipe])
            name.set("transform", f"translate({x + 4:g} {HEAD - 12}) rotate(-60)")
            if die != before:
                into.text(x - _LANE / 2 + 4, 14, self._trace.home(die), "die")
            before = die

    def draw(self, into: Drawing, worded: bool) -> None:
        """All below them."""
        for row, line in enumerate(self.lines):
            into.add("rect", "row", row, x=0, y=y_of(row) - ROW / 2, width=self._right, height=ROW)
            if line.mark or row in self._loop:
                into.add("rect", "band", row, x=0, y=y_of(row) - ROW / 2, width=self._right, height=ROW)
        for (_, core, _), x in self._x.items():
            shown = "memory" if core == self._trace.cores_per_die else "lane"
            into.line((x, HEAD - 6), (x, y_of(len(self.lines)) + ROW / 2), shown)
        self._draw_loop(into)
        for row, line in enumerate(self.lines):
            self._draw_row(into, row, line)
            if worded:
                into.text(self._right + 8, y_of(row) + 4, _words(line), _class_of(line))

    def _draw_loop(self, into: Drawing) -> None:
        """From the end of a livelock back to where it goes round."""
        if self._loop:
            ends = y_of(self._loop[-1]) + ROW / 2 - 2, y_of(self._loop[0]) - ROW / 2 + 2
            into.line((_LEFT, ends[0]), (_LEFT, ends[1]), "path", arrow=True)

    # ---- where

    def _lane(self, step: TraceStep) -> Lane:
        """Return where the dot of a step is: its pipe, or the memory in which a write becomes visible."""
        if step.pipe == PERFORM:
            die = -1 if step.address is None else self._trace.die_of(step.address)
            return self._memory(die if die >= 0 else step.core // self._trace.cores_per_die)
        return *divmod(step.core, self._trace.cores_per_die), _PIPES.index(step.pipe)

    def _memory(self, die: int) -> Lane:
        return die, self._trace.cores_per_die, 0

    def _memories(self, step: TraceStep) -> set[Lane]:
        """The memories that a step reads, or that its writes go to."""
        touched = {self._trace.die_of(access.start) for access in step.accesses}
        if step.blocked and step.operation == "poll" and step.address is not None:
            touched = {self._trace.die_of(step.address)}
        touched |= {self._trace.die_of(self._trace.writes[n].address) for n in (*step.left, *step.landed)}
        return {self._memory(die) for die in touched - {-1}}

    # ---- what happens

    def _draw_row(self, into: Drawing, row: int, line: RenderedRow) -> None:
        step, y = line.step, y_of(row)
        x = self._x[self._lane(step)]
        if line.mark:
            into.text(8, y + 4, line.mark, "marked")
        queued = self._queued_in(row, step)
        if queued is not None:
            into.line((self._x[self._lane(self.lines[queued].step)], y_of(queued)), (x, y), "queued")
        for memory, landed in self._landings(row, line):
            end = y_of(len(self._taken) if landed is None else landed)
            into.line((x, y), (self._x[memory], end), "write lost" if landed is None else "write", arrow=True)
        read = [access.start for access in step.accesses if not access.writes]
        for die in {self._trace.die_of(start) for start in read} - {-1}:
            into.line((self._x[self._memory(die)], y), (x, y), "seen", arrow=True)
        if step.blocked and step.operation == "poll":
            into.line((x, y), (self._x[next(iter(self._memories(step)))], y), "wait", arrow=True)
            self._draw_ring(into, step, y)
        into.add("circle", _class_of(line) or "action", row, cx=x, cy=y, r=4.5 if line.mark else 3.5)

    def _draw_ring(self, into: Drawing, step: TraceStep, y: float) -> None:
        """From what a core polls, which is one of a ring of waiting, to the next one, who writes there."""
        ring = [one.step for one in self._trace.cycle]
        if step in ring:
            following = ring[(ring.index(step) + 1) % len(ring)]
            row = next(row for row, line in enumerate(self.lines) if line.step is following)
            ends = self._x[next(iter(self._memories(step)))], self._x[self._lane(following)]
            into.line((ends[0], y), (ends[1], y_of(row)), "path", arrow=True)

    def _queued_in(self, row: int, step: TraceStep) -> int | None:
        """The row in which the instruction was queued that this one begins to carry out."""
        if step.blocked or step.pipe in (PERFORM, "scalar") or step.instruction == step.number:
            return None
        before = self.lines[:row]
        if any((other.step.instruction, other.step.pipe) == (step.instruction, step.pipe) for other in before):
            return None
        return next((i for i, other in enumerate(before) if other.first <= step.instruction <= other.last), None)

    def _landings(self, row: int, line: RenderedRow) -> set[tuple[Lane, int | None]]:
        """The memories that writes of a row go to, and the rows in which they become visible; None if they never do."""
        if line.step.pipe == PERFORM:
            return set()
        done = (line.step, *self._trace.steps[line.first : line.last])
        left = [self._trace.writes[n] for step in done for n in step.left]
        ends = ((self._trace.die_of(write.address), self._landed_in(row, line, write)) for write in left)
        return {(self._memory(die), end) for die, end in ends if die >= 0}

    def _landed_in(self, row: int, line: RenderedRow, write: Write) -> int | None:
        if line.first <= write.visible <= line.last:
            return row
        rows = [(i, at.step) for i, at in enumerate(self._taken) if at.first <= write.visible <= at.last]
        own = [i for i, step in rows if (step.core, step.instruction) == (write.by.core, write.by.instruction)]
        return next((i for i, _ in rows if i in own or not own), None)


def _words(line: RenderedRow) -> str:
    step = line.step
    return " ".join(filter(None, (line.numbers, line.mark, step.words(), step.place, step.value)))


def _class_of(line: RenderedRow) -> str:
    return "marked" if line.mark else "off" if line.step.switched_off else ""


# ---- the page

_COLUMNS = ("", "#", "who", "action", "where", "value")


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
    why = [(line, (one.why,)) for line, one in zip(blocked(trace), trace.waiting, strict=True)]
    words = _watched(trial, trace, marked)
    headline, *more = short(violation.message).splitlines() or [""]
    head, body = parts(trace, lines)
    return Page(
        title, [headline, *below(trace, marked), *(more[2:] if "A" in marked.values() else more)], LEGEND,
        head, body, _COLUMNS, [_line(line, also, len(actions)) for line, also in [*((one, ()) for one in lines), *why]],
        row=ROW, words=list(words), memory=_values(fresh(), actions, list(words.values())),
    ).text()  # fmt: skip


def _line(line: RenderedRow, more: Sequence[str], last: int) -> PageLine:
    step, source = line.step, line.step.source
    words = [step.words(), *(each.words() for each in line.also)]
    action = "; ".join([words[0], *(each.removeprefix("issue ") for each in words[1:])])
    place = "" if source is None else short(f"{source.file}:{source.line}, kernel {source.kernel}")
    who = f"{step.who}.{step.pipe}"
    texts = (f"step {line.numbers}: {who}" if line.numbers else f"never done: {who}", *words, step.place, step.value)
    before, after = (line.first - 1, line.last) if line.first else (last, last)
    return PageLine(
        (line.mark, line.numbers, who, action, step.place, step.value),
        [short(each) for each in (*texts, *more) if each],
        "marked" if line.mark else "off" if step.switched_off else "",
        *("", 0) if source is None else (source.file, source.line), place, before, after,
    )  # fmt: skip


def _watched(trial: Trial, trace: RunTrace, marked: dict[int, str]) -> dict[str, int]:
    """Words of memory that somebody polls, adds to, or loads by name, or that are marked: in words, and where."""
    taken = [access for step in trace.steps for access in step.accesses if access.synchronizes and access.nbytes <= 8]
    raced = [access for step in trace.steps if step.number in marked for access in step.accesses]
    polled = [one.step.address or 0 for one in trace.waiting if one.step.operation == "poll"]
    found = {*(access.start for access in (*taken, *raced)), *polled}
    return {report.symbolic(trial.pod, at): at for at in sorted(found) if trace.die_of(at) >= 0}


def _values(trial: Trial, actions: Sequence[int], addresses: Sequence[int]) -> list[list[str]]:
    """Return what the words hold at first and after each action: [actions + 1][words]."""
    replayer, memory = Replayer(trial.pod), trial.pod.memory

    def words() -> list[str]:
        return [number(int.from_bytes(memory[at : at + 8].tobytes(), "little", signed=True)) for at in addresses]

    return [words(), *(words() for code in actions if replayer.take(code) is not None)]
