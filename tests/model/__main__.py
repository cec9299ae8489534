"""``python -m tests.model --seed 1 --programs 1000``: random programs, by model, brute force and search."""

import argparse
import time
from collections import Counter

from xccl_emu.guards.campaign.programs import ORDERS

from .compare import Limits, compare
from .draw import draw
from .translate import Unknown


def main() -> int:
    """Compare, print what differs and what was counted; 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--states", type=int, default=Limits().model, help="of the model, for each program and order")
    parser.add_argument("--orders", default=",".join(ORDERS))
    given = parser.parse_args()
    counts, started, number = Counter[str](), time.monotonic(), given.first
    for number in range(given.first, given.first + given.programs):
        if time.monotonic() - started > given.seconds:
            break
        small, shown = draw(given.seed, number), False
        for order in given.orders.split(","):
            try:
                compared = compare(small, order, Limits(model=given.states))
            except Unknown as why:
                counts[f"not known: {why}"] += 1
                continue
            counts[f"{order} {compared.verdict}"] += 1
            counts["outcome sets compared"] += compared.outcomes
            counts["verdicts compared"] += compared.searched
            counts["different"] += bool(compared.differences)
            if compared.differences and not shown:
                print(f"seed {given.seed}, program {number}:\n{small}")
                shown = True
            for difference in compared.differences:
                print(f"    {order}: {difference}", flush=True)
    print(f"seed {given.seed}, programs from {given.first} on: {number - given.first + 1} in at most")
    for what, count in sorted(counts.items()):
        print(f"{count:8} {what}")
    print(f"{time.monotonic() - started:.0f} seconds")
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
