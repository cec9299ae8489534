"""A picture of a run as SVG, put together from lines, texts and rectangles by the standard library's ElementTree."""

from xml.etree import ElementTree

STYLE = """
text { font: 12px ui-monospace, monospace; fill: #1a1a1a; } .die { font-weight: bold; } .lane { stroke: #d4d4d4; }
.row { fill: transparent; } .row.chosen { fill: #d9e8ff; } .seen { stroke: #38761d; fill: none; stroke-dasharray: 4 3; }
.marked { fill: #b00020; } .path { stroke: #b00020; fill: none; stroke-width: 2; }
"""
"""What all pictures have; ``data-row`` of an element is the line of the table that a page shows for it."""


class Drawing:
    """Elements, and the rectangle of them that is seen: left, top, width, height."""

    def __init__(self, seen: tuple[float, float, float, float], title: str, style: str) -> None:
        self._arrows = False
        self._root = ElementTree.Element("svg", xmlns="http://www.w3.org/2000/svg", role="img")
        self._root.attrib |= {"viewBox": " ".join(f"{end:g}" for end in seen)}
        self._root.attrib |= {"width": f"{seen[2]:g}", "height": f"{seen[3]:g}"}
        self.add("title").text = title
        self.add("style").text = STYLE + style

    def add(self, tag: str, shown: str = "", row: int | None = None, **attributes: object) -> ElementTree.Element:
        """An element of some classes, of a row."""
        element = ElementTree.SubElement(self._root, tag, {name: f"{value}" for name, value in attributes.items()})
        named = {"class": shown, "data-row": "" if row is None else str(row)}
        element.attrib |= {name: value for name, value in named.items() if value}
        return element

    def below(self, parent: ElementTree.Element, tag: str) -> ElementTree.Element:
        """An element within another one."""
        return ElementTree.SubElement(parent, tag)

    def text(self, x: float, y: float, text: str, shown: str = "") -> ElementTree.Element:
        """Words that begin there."""
        element = self.add("text", shown, x=f"{x:g}", y=f"{y:g}")
        element.text = text
        return element

    def line(self, one: tuple[float, float], other: tuple[float, float], shown: str, arrow: bool = False) -> None:
        """A line, or an arrow to the other end."""
        (x1, y1), (x2, y2) = one, other
        line = self.add("line", shown, x1=f"{x1:g}", y1=f"{y1:g}", x2=f"{x2:g}", y2=f"{y2:g}")
        if arrow:
            line.set("marker-end", "url(#head)")
            self._arrows = True

    def svg(self) -> str:
        """The picture as text, with the head of its arrows if it has any."""
        if self._arrows:
            head = self.add("marker", id="head", viewBox="0 0 8 8", refX=7, refY=4, markerWidth=7, markerHeight=7)
            head.set("orient", "auto")
            ElementTree.SubElement(head, "path", d="M0,0 L8,4 L0,8 z", fill="context-stroke")
        return ElementTree.tostring(self._root, encoding="unicode")
