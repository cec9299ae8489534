"""Write what every shipped protocol does, byte for byte and microsecond for microsecond, to tests/recorded.json.

A rebuild must not change it; whoever changes it on purpose runs this again and says why.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from xccl_emu.check.check import check
from xccl_emu.protocol.registry import make, names
from xccl_emu.timing.run import VirtualTime
from xccl_emu.timing.topologies import CLOUDMATRIX384

FILE = Path(__file__).parents[1] / "tests" / "recorded.json"
SMALL: dict[str, dict[str, int]] = {
    "sendrecv-both": {"slots": 1, "chunks": 2}, "sendrecv-async": {"slots": 1, "chunks": 2},
    "fused": {"tokens": 1, "rounds": 1}, "a2e": {"attention": 1, "experts": 2, "rounds": 1},
    "a2e-urma": {"attention": 1, "experts": 1, "rounds": 1}, "a2e-pull": {"attention": 1, "experts": 1, "rounds": 1},
    "moe": {"tokens": 1, "rounds": 1}, "dispatch": {"tokens": 1, "rounds": 1}, "combine": {"tokens": 1, "rounds": 1},
}  # fmt: skip
"""Sizes of what is searched, where the usual ones take longer than a few seconds."""


def run_of(name: str) -> dict[str, Any]:
    """Digest of all memory behind a run in turn and one in virtual time, and the latency of that."""
    trial = make(name).build("sc")
    trial.pod.run()
    timed = make(name).build("sc")
    policy = timed.pod.policy = VirtualTime(CLOUDMATRIX384)
    timed.pod.run()
    memory, memory_timed = (hashlib.blake2b(pod.memory, digest_size=16).hexdigest() for pod in (trial.pod, timed.pod))
    return {"memory": memory, "memory_timed": memory_timed, "latency_us": policy.timing.latency_us}


def search_of(name: str) -> dict[str, Any]:
    """Verdict of a search, and how many states and transitions it had."""
    verdict = check(make(name, **SMALL.get(name, {})), policy="exhaustive")
    return {"verdict": verdict.verdict, "states": verdict.states, "transitions": verdict.transitions}


def main() -> None:
    """Write the file."""
    table = {name: {"run": run_of(name), "search": search_of(name)} for name in names()}
    FILE.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
