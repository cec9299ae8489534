"""What a check returns: one of five verdicts, how it was reached, and for a violation a schedule that shows it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

VERIFIED = "verified"
NO_VIOLATION = "no violation found"
VIOLATION = "violation"
UNFINISHED = "unfinished"
UNSUPPORTED = "unsupported"

WRONG_BITS = "wrong bits"
DATA_RACE = "data race"
UNWRITTEN_READ = "read of never-written memory"
AREA_VIOLATION = "area violation"
TORN_METADATA = "torn metadata"
DEADLOCK = "deadlock"
LIVELOCK = "livelock"
LEFTOVER = "leftover"
ASSERTION = "protocol assertion"
BAD_INSTRUCTION = "bad instruction"
"""Kinds of violations."""


@dataclass(frozen=True, eq=False)
class Violation:
    """What went wrong, and the actions that lead there."""

    kind: str
    message: str
    """In words: who, where in the source, which step of the paper, which address."""
    actions: NDArray[np.int64]
    """[n] int64, ``actor << 16 | choice``: a schedule of the machine that ends in the violation."""
    found_by: str
    """The policy or search, and its seed."""
    found_after: int
    """States (exhaustive) or schedules (sampled) until it was found."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """The outcome of a check."""

    verdict: str
    protocol: str
    configuration: Mapping[str, int | str]
    order: str
    policy: str
    seed: int
    without: tuple[str, ...] = ()
    fault: str = ""
    states: int = 0
    transitions: int = 0
    """Actions on shared memory."""
    actions: int = 0
    """All actions of the machine, with those that a search merged into transitions."""
    schedules: int = 0
    seconds: float = 0.0
    bounds: Mapping[str, int] = field(default_factory=dict)
    """Limits of the machine within which "every schedule" is meant."""
    collision: float = 0.0
    """Upper bound on the probability that two states were taken for one (64-bit fingerprints)."""
    reason: str = ""
    """Why it is unfinished or unsupported, how far it came; what a verified one rests on."""
    violation: Violation | None = None
    ended: Mapping[str, int] = field(default_factory=dict)
    """Of the schedules in which it came to the fault (or behind a stalled link), how many ended ``"right"``, in a
    ``"declared error"``, ``"blocked"`` and ``"refused by the machine"``; a violation is none of them."""
    declared: Mapping[str, int] = field(default_factory=dict)
    """The declared errors, by code and meaning."""

    @property
    def ok(self) -> bool:
        """Nothing wrong was found and the check did what it was asked."""
        return self.verdict in (VERIFIED, NO_VIOLATION)

    def to_json(self) -> dict[str, Any]:
        """The verdict as the command's ``--json`` prints it."""
        found = self.violation
        return {
            "verdict": self.verdict,
            "protocol": self.protocol,
            "configuration": dict(self.configuration),
            "order": self.order,
            "policy": self.policy,
            "seed": self.seed,
            "without": list(self.without),
            "fault": self.fault,
            "states": self.states,
            "transitions": self.transitions,
            "actions": self.actions,
            "schedules": self.schedules,
            "seconds": round(self.seconds, 3),
            "bounds": dict(self.bounds),
            "collision": self.collision,
            "reason": self.reason,
            "ended": dict(self.ended),
            "declared": dict(self.declared),
            "violation": None
            if found is None
            else {
                "kind": found.kind,
                "message": found.message,
                "steps": len(found.actions),
                "found_by": found.found_by,
                "found_after": found.found_after,
            },
        }
