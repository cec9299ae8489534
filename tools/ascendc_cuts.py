"""Write the table of docs/records/ascendc.md: each synchronization of examples/ascendc cut alone.

A case is checked in configurations that grow, the last one on a pod whose scalar units have a cache.  A cut has a row
with the first in which it is found.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence

from pages import ROOT, between, command, table

from xccl_emu.check.check import check
from xccl_emu.check.verdict import VERIFIED
from xccl_emu.protocol.case import Case, reached_syncs
from xccl_emu.protocol.registry import make

PAGE = ROOT / "docs" / "records" / "ascendc.md"
CACHED = {"scalar_cache": 8}
GROWING: Mapping[str, tuple[Mapping[str, int], ...]] = {
    "sendrecv.py:Message": ({"chunks": 1}, {"chunks": 2}, {"chunks": 3}, {"chunks": 1, **CACHED}),
    "ring.py:Ring": ({"dies": 2}, {"dies": 3}, {"dies": 2, **CACHED}),
    "moe.py:Dispatch": ({"tokens": 1}, {"tokens": 2}, {"tokens": 3}, {"tokens": 1, **CACHED}),
    "moe.py:Combine": ({"tokens": 1}, {"tokens": 2}, {"tokens": 3}, {"tokens": 1, **CACHED}),
}
"""Sizes in which cases are checked, in addition to the usual ones."""
COLUMNS = ("case", "cut", "found with", "as", "after states")


def case_of(name: str, sizes: Mapping[str, int]) -> Case:
    """A case of the examples."""
    made: Case = make(f"{ROOT}/examples/ascendc/{name}", **sizes)
    return made


def rows(name: str) -> Iterator[Sequence[str]]:
    """A row for each synchronization that a case comes to; SystemExit if it is not verified with all of them."""
    cases = {
        ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in sizes.items()): case_of(name, sizes)
        for sizes in GROWING[name]
    }
    for sizes, case in cases.items():
        whole = check(case)
        if whole.verdict != VERIFIED:
            sys.exit(f"{name}, {sizes}: {whole.verdict}: {whole.reason}")
    reached = {sizes: reached_syncs(case, "relaxed") for sizes, case in cases.items()}
    for sync in next(iter(cases.values())).syncs:
        where = {sizes: case for sizes, case in cases.items() if sync in reached[sizes]}
        if where:
            yield name.partition(":")[2], sync, *found(sync, where)


def found(sync: str, cases: Mapping[str, Case]) -> Sequence[str]:
    """Return where a cut is found first, as what, and after how many states."""
    for sizes, case in cases.items():
        violation = (verdict := check(case, without=[sync])).violation
        if violation is not None:
            return sizes, violation.kind, f"{verdict.states:,}"
    return "none of these", "redundant", ""


def page(text: str, _: bool) -> str:
    """The page with the table made again."""
    return between(text, "cuts", table(COLUMNS, (row for name in GROWING for row in rows(name))))


if __name__ == "__main__":
    sys.exit(command(__doc__, PAGE, page))
