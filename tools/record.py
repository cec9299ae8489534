"""Write what every shipped protocol does, byte for byte and microsecond for microsecond, to tests/recorded.json.

    python tools/record.py              all protocols
    python tools/record.py gather ...   some; the others stay as they are
    python tools/record.py --runs       runs alone, of all; searches stay as they are

A rebuild must not change it; to change it on purpose run this again and say why.
"""

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xccl_emu.check.check import check
from xccl_emu.protocol.registry import make, names
from xccl_emu.timing.run import VirtualTime
from xccl_emu.timing.topologies import CLOUDMATRIX384

FILE = Path(__file__).parents[1] / "tests" / "recorded.json"
def recorded() -> dict[str, dict[str, Any]]:
    """The table as it is; who adds a protocol whose usual sizes take long to search puts smaller ones there."""
    table: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return table


def run_of(name: str) -> dict[str, Any]:
    """Return digests of memory after a round-robin and a timed run, and the timed latency."""
    trial = make(name).build("sc")
    trial.pod.run()
    timed = make(name).build("sc")
    policy = timed.pod.policy = VirtualTime(CLOUDMATRIX384)
    timed.pod.run()
    memory, memory_timed = (hashlib.blake2b(pod.memory, digest_size=16).hexdigest() for pod in (trial.pod, timed.pod))
    return {"memory": memory, "memory_timed": memory_timed, "latency_us": policy.timing.latency_us}


def search_of(name: str) -> dict[str, Any]:
    """Verdict of a search, and how many states and transitions it had; at the sizes that the table has for it."""
    sizes = recorded().get(name, {}).get("search", {}).get("sizes", {})
    verdict = check(make(name, **sizes), policy="exhaustive")
    return {"sizes": sizes, "verdict": verdict.verdict, "states": verdict.states, "transitions": verdict.transitions}


def main(asked: Sequence[str]) -> None:
    """Write the file, what is asked for or new made again."""
    old = recorded()
    runs = "--runs" in asked
    made = (name for name in names() if not asked or runs or name in asked or name not in old)
    search = (lambda name: old[name]["search"]) if runs else search_of
    table = {**old, **{name: {"run": run_of(name), "search": search(name)} for name in made}}
    table = {name: table[name] for name in names()}
    FILE.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
