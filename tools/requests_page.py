"""Write the table of docs/records/requests.md: what a request of a kernel reads, writes and waits for, by its row."""

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pages import ROOT, between, command, table

from xccl_emu.lang import requests as rq
from xccl_emu.machine.stats import PIPE_NAMES

PAGE = ROOT / "docs" / "records" / "requests.md"
HEAD = ("request", "pipe", "reads", "writes", "waits for", "releases", "what it does")
HINGES = {"memory": "what memory holds", "event": "the event", "barrier": "the barrier", "visible": "all to be visible"}
"""Words for what a row says that a request waits for."""
DESIGNATORS = ("step", "sync", "order")


def functions() -> Iterator[tuple[Callable[..., Any], rq.Operation]]:
    """Yield each function that makes a request, with the row of its operation, in the order of the rows."""
    made = [each for each in vars(rq).values() if inspect.isfunction(each)]
    codes = [each(*[rq.UNUSED] * _n_operands(each))[0] for each in made]
    pairs = sorted(zip(codes, made, strict=True), key=lambda pair: pair[0])
    yield from ((each, rq.TABLE[code]) for code, each in pairs)


def _n_operands(function: Callable[..., Any]) -> int:
    return sum(each.default is each.empty for each in inspect.signature(function).parameters.values())


def touched(operands: Sequence[str], memory: rq.Bytes, buffer: rq.Bytes) -> str:
    """Say which bytes of memory, and of the data buffer, a request reads or writes."""
    said = ((place, each) for place, each in (("memory", memory), ("buffer", buffer)) if each)
    return ", ".join(f"{place} at `{at}`, {_size(operands, size)}" for place, (at, size) in said)


def _size(operands: Sequence[str], size: int | str) -> str:
    if isinstance(size, int):
        return f"{size} B"
    return "`count` elements" if size == "count" and size in operands else "`nbytes` B"


def cells(function: Callable[..., Any], row: rq.Operation) -> Sequence[str]:
    """Return the line of a function."""
    operands = [name for name in inspect.signature(function).parameters if name not in DESIGNATORS]
    says = (inspect.getdoc(function) or "").partition("\n")[0].replace("``", "`")
    return (
        f"`{function.__name__}({', '.join(operands)})`", PIPE_NAMES[row.pipe],
        touched(operands, row.reads, row.takes), touched(operands, row.writes, row.fills),
        HINGES.get(row.waits, ""), HINGES.get(row.releases, ""), says,
    )  # fmt: skip


def page(text: str, check: bool = False) -> str:
    """The page with its table made again."""
    return between(text, "requests", table(HEAD, (cells(*each) for each in functions())))


if __name__ == "__main__":
    sys.exit(command(__doc__, PAGE, page))
