"""Write the matrix of docs/soundness.md, and the conditions of each reduction, from docs/soundness.toml.

python tools/soundness.py            write it
python tools/soundness.py --check    say which lines of it are not true any more, and end with 1
"""

import sys
import tomllib
from collections.abc import Iterator
from typing import Any

from pages import ROOT, between, command, table

PAGE, DATA = ROOT / "docs" / "soundness.md", ROOT / "docs" / "soundness.toml"
NONE_YET = "none yet"
_MARKS = ("–", "○", "●")


class Matrix:
    """What docs/soundness.toml says."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = tomllib.loads(DATA.read_text("utf-8"))
        self.reductions: dict[str, str] = self.data["reductions"]
        self.features: dict[str, str] = self.data["features"]

    def cell(self, reduction: str, feature: str) -> dict[str, Any]:
        """The cell of a reduction and a feature, or what their row or column says otherwise; {} if that is missing."""
        otherwise = self.data["otherwise"]
        reason = otherwise.get(feature) or otherwise.get(reduction)
        return self.data.get(reduction, {}).get(feature) or ({"apart": reason} if reason else {})

    def cells(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Reduction, feature, and what is said of them."""
        for reduction in self.reductions:
            for feature in self.features:
                yield reduction, feature, self.cell(reduction, feature)

    def unshown(self) -> int:
        """Return the number of conditions that nothing shows."""
        return sum(cell.get("shows") == [NONE_YET] for _, _, cell in self.cells())

    # ---- as a page has it

    def grid(self) -> str:
        """A mark for each two."""
        head = ["", *(name.partition(".")[0] for name in self.reductions.values())]
        rows = (
            [name, *(_mark(self.cell(reduction, feature)) for reduction in self.reductions)]
            for feature, name in self.features.items()
        )
        return table(head, rows)

    def of_reduction(self, reduction: str) -> str:
        """Return all conditions of a reduction, and where it does not meet a feature."""
        rows, apart = [], dict[str, list[str]]()
        for feature, name in self.features.items():
            cell = self.cell(reduction, feature)
            if "apart" in cell:
                apart.setdefault(cell["apart"], []).append(name)
            else:
                rows.append([name, cell["when"], f"`{cell['asks']}`", "; ".join(map(_shown, cell["shows"]))])
        conditions = table(["with", "what must hold", "who asks", "what fails without it"], rows)
        reasons = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in apart.items())
        return f"{conditions}\n\nDoes not meet: {reasons or 'nothing'}."


def _mark(cell: dict[str, Any]) -> str:
    return _MARKS[0 if "apart" in cell else 1 if cell["shows"] == [NONE_YET] else 2]


def _shown(text: str) -> str:
    kind, colon, name = text.partition(": ")
    return f"{kind} *{name}*" if colon else text


def make(page: str, check: bool = False) -> str:
    """Make the page's matrix again, and the conditions of each reduction."""
    matrix = Matrix()
    page = between(page, "soundness", matrix.grid())
    for reduction in matrix.reductions:
        page = between(page, f"soundness {reduction}", matrix.of_reduction(reduction))
    return page


if __name__ == "__main__":
    sys.exit(command(__doc__, PAGE, make))
