"""How many single schedules of each policy find a slot that is used again too early, at 4 slots and 8 chunks.

Twice: with all detectors, as a check runs; and without the clocks that report any two accesses that nothing orders, so
that only what comes of them counts (wrong bits, a deadlock, an error of the machine).  The first says what a user gets,
the second how good a policy is at bringing a bug about.
"""

import json
import sys
from pathlib import Path

from harness import parser, stopwatch
from rich.console import Console
from rich.table import Column, Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from check.mutants import Planted
from check.mutants_ring import FREE, IN_BUFFER, KNOWN, edit

from xccl_emu.check.sampling.sample import PORTFOLIO, share
from xccl_emu.protocol import Case
from xccl_emu.protocols.sendrecv.case import SendRecvCase

RING = SendRecvCase(slots=4, chunks=8, granules=4)
EDITS = {bug.name: bug.edits for bug in KNOWN}
BUGS: dict[str, Case] = {
    "ack before the slot is read": Planted(RING, EDITS["consumer sends the ack before it reads the slot"]),
    "one slot more than there is": Planted(RING, EDITS["producer's free test is i - ack < S + 1"]),
    "ack not waited for": Planted(RING, (edit(FREE + IN_BUFFER, "        pass\n" + IN_BUFFER),)),
}
LEAST_PERCENT = 15.0
GUIDED = ("pct", "weights")
MODES = {"all detectors": True, "by what comes of it": False}


def shares(scenario: Case, races: bool, schedules: int, seed: int) -> dict[str, float]:
    """Percent of the schedules of each policy that find the bug."""
    trial = scenario.build("relaxed")
    share(trial, "eager", schedules=1, races=races)  # compile
    return {policy: 100 * share(trial, policy, seed=seed, schedules=schedules, races=races) for policy in PORTFOLIO}


def table_of(rows: dict[str, dict[str, float]], title: str) -> Table:
    """A line for each bug and mode, a column for each policy."""
    numbers = (Column(name, justify="right") for name in (*PORTFOLIO, f"pct or weights >= {LEAST_PERCENT:g} %"))
    table = Table("bug", *numbers, title=title, title_justify="left")
    for what, percent in rows.items():
        met = max(percent[policy] for policy in GUIDED) >= LEAST_PERCENT
        table.add_row(what, *(f"{percent[p]:.1f} %" for p in PORTFOLIO), "[green]met[/]" if met else "[red]not met[/]")
    return table


def main() -> None:
    """Measure and print."""
    flags = parser("Single schedules that find a slot used again too early, by policy.")
    flags.add_argument("--schedules", type=int, default=2000, help="of each policy")
    flags.add_argument("--seed", type=int, default=0)
    given = flags.parse_args()
    rows = {}
    with stopwatch() as taken:
        for bug, scenario in BUGS.items():
            for how, races in MODES.items():
                rows[f"{bug}; {how}"] = shares(scenario, races, given.schedules, given.seed)
    console = Console(width=120)
    console.print(table_of(rows, f"Found by a single schedule; {given.schedules} each, seed {given.seed}"))
    console.print(f"{dict(RING.configuration)}, order relaxed; {taken['seconds']:.0f} s", highlight=False)
    if given.json is not None:
        given.json.write_text(json.dumps({"schedules": given.schedules, "seed": given.seed, "percent": rows}, indent=1))


if __name__ == "__main__":
    main()
