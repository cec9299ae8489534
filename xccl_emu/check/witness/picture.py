"""A run drawn as SVG: a lane for each pipe of a core and for each die's memory, a row for each line of the table.

A dot is an action.  A grey line leads from where an instruction was queued to where it was carried out, a solid arrow
from where a write left its core to where it became visible, in the memory's lane, and a dashed one from memory to who
has seen it.  What a violation marks is red.
"""

from xml.etree import ElementTree

from xccl_emu.check.witness.render import Row
from xccl_emu.check.witness.trace import PERFORM, Step, Trace, Write

ROW, HEAD = 24, 96
"""Height of a row, and of what stands above the first, in pixels."""
_LANE, _LEFT, _LETTER = 34, 24, 7.3
_PIPES = ("scalar", "mtu-in", "vector", "mtu-out", "dma")
_STYLE = """
text { font: 12px ui-monospace, monospace; fill: #1a1a1a; } .die { font-weight: bold; }
.lane { stroke: #d4d4d4; } .memory { stroke: #8aa8d8; stroke-width: 3; } .action { fill: #333; }
.queued { stroke: #949494; fill: none; } .write { stroke: #0b5394; fill: none; stroke-width: 1.5; }
.lost { stroke-dasharray: 1 3; } .seen { stroke: #38761d; fill: none; stroke-width: 1.5; stroke-dasharray: 4 3; }
.off { fill: #b45f06; } .marked { fill: #b00020; } .band { fill: #b00020; fill-opacity: 0.1; }
"""

Lane = tuple[int, int, int]
"""Die, core on it, and number of the pipe; memory stands behind all cores."""


def y_of(row: int) -> float:
    """Middle of a row, from 0 on."""
    return HEAD + (row + 0.5) * ROW


def svg(trace: Trace, lines: list[Row], told: bool = True) -> str:
    """The lines of a run as a picture; ``told`` says in words what each is, for which a page has a table."""
    return ElementTree.tostring(_Picture(trace, lines).drawn(told), encoding="unicode")


class _Picture:
    def __init__(self, trace: Trace, lines: list[Row]) -> None:
        self._trace, self._lines = trace, lines
        lanes = sorted({lane for line in lines for lane in (self._lane(line.step), *self._memories(line.step))})
        self._x = {lane: _LEFT + (i + 0.5) * _LANE for i, lane in enumerate(lanes)}
        self._root = ElementTree.Element("svg", xmlns="http://www.w3.org/2000/svg", role="img")

    def drawn(self, told: bool) -> ElementTree.Element:
        words = [_words(line) for line in self._lines] if told else [""]
        blocked = [f"blocked: {why}" for _, why in self._trace.waiting]
        right, height = _LEFT + len(self._x) * _LANE, y_of(len(self._lines) + len(blocked)) + ROW / 2
        width = right + _LETTER * max(map(len, [*words, *blocked]), default=0) + ROW
        self._root.attrib |= {"viewBox": f"0 0 {width:g} {height:g}", "width": f"{width:g}", "height": f"{height:g}"}
        self._add("title").text = "Who does what, and when writes become visible"
        self._add("style").text = _STYLE
        head = self._add("marker", id="head", viewBox="0 0 8 8", refX=7, refY=4, markerWidth=7, markerHeight=7)
        head.set("orient", "auto")
        ElementTree.SubElement(head, "path", d="M0,0 L8,4 L0,8 z", fill="context-stroke")
        self._draw_lanes(height)
        for row, line in enumerate(self._lines):
            self._draw_row(row, line)
            if told:
                self._text(right + 8, y_of(row) + 4, words[row], _class_of(line))
        for row, text in enumerate(blocked, len(self._lines)):
            self._text(right + 8, y_of(row) + 4, text, "marked")
        return self._root

    # ---- where

    def _lane(self, step: Step) -> Lane:
        """Where the dot of a step is: its pipe, or the memory in which a write becomes visible."""
        if step.pipe == PERFORM:
            die = -1 if step.address is None else self._trace.die_of(step.address)
            return self._memory(die if die >= 0 else step.core // self._trace.cores_per_die)
        return *divmod(step.core, self._trace.cores_per_die), _PIPES.index(step.pipe)

    def _memory(self, die: int) -> Lane:
        return die, self._trace.cores_per_die, 0

    def _memories(self, step: Step) -> set[Lane]:
        """The memories that a step reads, or that its writes go to."""
        touched = {self._trace.die_of(access.start) for access in step.accesses}
        touched |= {self._trace.die_of(self._trace.writes[n].address) for n in (*step.left, *step.landed)}
        return {self._memory(die) for die in touched - {-1}}

    # ---- what stands still

    def _draw_lanes(self, height: float) -> None:
        before = None
        for (die, core, pipe), x in self._x.items():
            memory = core == self._trace.cores_per_die
            self._line((x, HEAD - 6), (x, height), "memory" if memory else "lane")
            several = "" if self._trace.cores_per_die == 1 else f"core{core}."
            name = self._text(0, 0, "memory" if memory else several + _PIPES[pipe])
            name.set("transform", f"translate({x + 4:g} {HEAD - 12}) rotate(-60)")
            if die != before:
                self._text(x - _LANE / 2 + 4, 14, self._trace.home(die), "die")
            before = die

    # ---- what happens

    def _draw_row(self, row: int, line: Row) -> None:
        step, y = line.step, y_of(row)
        x = self._x[self._lane(step)]
        if line.mark:
            self._add("rect", x=0, y=y - ROW / 2, width=_LEFT + len(self._x) * _LANE, height=ROW).set("class", "band")
            self._text(4, y + 4, line.mark, "marked")
        queued = self._queued_in(row, step)
        if queued is not None:
            self._line((self._x[self._lane(self._lines[queued].step)], y_of(queued)), (x, y), "queued")
        for memory, landed in self._landings(row, line):
            end = y_of(len(self._lines) if landed is None else landed)
            self._line((x, y), (self._x[memory], end), "write lost" if landed is None else "write", arrow=True)
        for die in {self._trace.die_of(access.start) for access in step.accesses if not access.writes} - {-1}:
            self._line((self._x[self._memory(die)], y), (x, y), "seen", arrow=True)
        self._add("circle", cx=x, cy=y, r=4.5 if line.mark else 3.5).set("class", _class_of(line) or "action")

    def _queued_in(self, row: int, step: Step) -> int | None:
        """The row in which the instruction was queued that this one begins to carry out."""
        if step.pipe in (PERFORM, "scalar") or step.instruction == step.number:
            return None
        before = self._lines[:row]
        if any((other.step.instruction, other.step.pipe) == (step.instruction, step.pipe) for other in before):
            return None
        return next((i for i, other in enumerate(before) if other.first <= step.instruction <= other.last), None)

    def _landings(self, row: int, line: Row) -> set[tuple[Lane, int | None]]:
        """The memories that writes of a row go to, and the rows in which they become visible; None if they never do."""
        if line.step.pipe == PERFORM:
            return set()
        left = [self._trace.writes[n] for step in self._trace.steps[line.first - 1 : line.last] for n in step.left]
        ends = ((self._trace.die_of(write.address), self._landed_in(row, line, write)) for write in left)
        return {(self._memory(die), end) for die, end in ends if die >= 0}

    def _landed_in(self, row: int, line: Row, write: Write) -> int | None:
        if line.first <= write.visible <= line.last:
            return row
        rows = [(i, at.step) for i, at in enumerate(self._lines) if at.first <= write.visible <= at.last]
        own = [i for i, step in rows if (step.core, step.instruction) == (write.by.core, write.by.instruction)]
        return next((i for i, _ in rows if i in own or not own), None)

    # ---- elements

    def _add(self, tag: str, **attributes: object) -> ElementTree.Element:
        return ElementTree.SubElement(self._root, tag, {name: f"{value}" for name, value in attributes.items()})

    def _text(self, x: float, y: float, text: str, shown: str = "") -> ElementTree.Element:
        element = self._add("text", x=x, y=y)
        element.text = text
        element.set("class", shown)
        return element

    def _line(self, one: tuple[float, float], other: tuple[float, float], shown: str, arrow: bool = False) -> None:
        line = self._add("line", x1=one[0], y1=one[1], x2=other[0], y2=other[1])
        line.set("class", shown)
        if arrow:
            line.set("marker-end", "url(#head)")


def _words(line: Row) -> str:
    step = line.step
    return " ".join(filter(None, (line.numbers, line.mark, step.words(), step.place, step.value)))


def _class_of(line: Row) -> str:
    return "marked" if line.mark else "off" if line.step.switched_off else ""
