"""What a check returns: one of five verdicts, how it was reached, and for a violation a schedule that shows it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.check.reach import Reach
from xccl_emu.sizes import some

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
UNDEFINED = "undefined bytes"
DEADLOCK = "deadlock"
LIVELOCK = "livelock"
LEFTOVER = "leftover"
ASSERTION = "protocol assertion"
BAD_INSTRUCTION = "bad instruction"
ARITHMETIC = "failed arithmetic"
KERNEL_FAULT = "kernel fault"
MISSING_RIGHT = "missing right"
KINDS = (
    DATA_RACE, TORN_METADATA, UNWRITTEN_READ, UNDEFINED, WRONG_BITS, DEADLOCK, LIVELOCK, ASSERTION, AREA_VIOLATION,
    MISSING_RIGHT, LEFTOVER, BAD_INSTRUCTION, ARITHMETIC, KERNEL_FAULT,
)  # fmt: skip
"""Kinds of violations."""

SEARCH, BRUTE_FORCE = "exhaustive search", "brute force"
"""Who finds one by looking at states; anybody else draws schedules."""


@dataclass(frozen=True, eq=False)
class Violation:
    """What went wrong, and the actions that lead there."""

    kind: str
    message: str
    """In words: who, where in the source, which step of the paper, which address."""
    actions: NDArray[np.int64]
    """[n] int64, ``actor << 16 | choice``: a schedule of the machine that ends in the violation."""
    found_by: str
    """The policy and its seed, `SEARCH` or `BRUTE_FORCE`."""
    found_after: int
    """States (exhaustive) or schedules (sampled) until it was found."""
    loop: int = 0
    """For a livelock: how many actions at the end lead from a state back to that state; 0 if none are known."""

    def to_json(self) -> dict[str, Any]:
        """Return what the verdict's JSON says of it: all but the actions themselves."""
        fields = {name: value for name, value in vars(self).items() if name != "actions"}
        return fields | {"actions": len(self.actions)}


@dataclass(frozen=True)
class Certificate:
    """What other roads than the one that led to a verdict have found: brute force, then sampled schedules; or a replay.

    Brute force (`machine.explore`) merges and reduces nothing.  It judges deadlocks, errors, and the expected bytes at
    the end of every run; not races, reads of unwritten memory, livelocks, or bytes that come too late for their owners.
    Sampled schedules are judged by the monitor, which judges these too.
    """

    states: int = 0
    """States that brute force has visited."""
    complete: bool = False
    """Has it visited all?"""
    too_large: str = ""
    """Why there is no brute force; empty if there is."""
    schedules: int = 0
    seconds: float = 0.0
    """Time that all of it took."""
    replayed: bool = False
    """A violation shows again when its schedule is replayed on the machine; then nothing else was done."""
    disagreement: str = ""
    """What was found that the verdict did not say; empty if they agree."""
    of_proof: bool = False
    """Had the verdict been "verified"?  Then, if they do not agree, it does not stand any more."""

    @property
    def agrees(self) -> bool:
        """Does nothing contradict the verdict?"""
        return not self.disagreement

    def again(self, advice: str) -> str:
        """Say what became of an advice, such as ``redundant``, that was judged again, in a few words."""
        if self.agrees:
            return self.covers()
        return f"{advice!r} is withdrawn: {self.disagreement}" if self.of_proof else self.disagreement

    def covers(self) -> str:
        """Say what was done, without numbers that vary."""
        if self.replayed:
            return "the schedule of the violation replays"
        brute = "no brute force: too large" if self.too_large else "brute force in part"
        sampled = "sampled schedules" if self.schedules else "no schedules"
        return f"{'brute force in full' if self.complete else brute}, {sampled}"

    def words(self) -> str:
        """Say what was done and whether it agrees."""
        if self.replayed:
            return "agrees: the schedule replays"
        judged = "deadlocks, errors, bytes at the end; not races, unwritten memory, livelocks, early owners"
        part = "every state" if self.complete else "a part"
        brute = self.too_large or f"brute force {part}, {some(self.states, 'states')} ({judged})"
        said = f"disagrees: {self.disagreement}" if self.disagreement else "agrees"
        return f"{said}; {brute}; {some(self.schedules, 'sampled schedules')}; {self.seconds:.1f} s"

    def to_json(self) -> dict[str, Any]:
        """Return what the verdict's JSON says of it."""
        return asdict(self) | {"agrees": self.agrees}


REDUCTIONS = {"full": "1 to 8", "less": "1 to 6", "merged": "1, 2, 5"}
"""Numbers, in docs/soundness.md, of what a search by each reduction uses."""


@dataclass(frozen=True)
class Opinion:
    """What one other road says of a verdict, or of a smaller configuration of the same case."""

    by: str
    """``"less"`` or ``"merged"``, a search that reduces less; `BRUTE_FORCE`; or `SEARCH`, of a smaller configuration
    that it refutes."""
    verdict: str
    """`VERIFIED`, `VIOLATION`, or `UNFINISHED` for what has not ended in time."""
    smaller: Mapping[str, int]
    """Sizes that are smaller; empty for the configuration itself."""
    states: int
    seconds: float
    because: str = ""
    """What was found, or why it has not ended."""
    violation: Violation | None = None
    """What was found, with a schedule, where one is known."""

    @property
    def contradicts(self) -> bool:
        """Return whether it contradicts the search."""
        return self.verdict == VIOLATION and self.by != SEARCH

    def words(self) -> str:
        """Say who says what, of what."""
        rests = f" (reductions {REDUCTIONS[self.by]})" if self.by in REDUCTIONS else ""
        found = self.because if self.verdict == VIOLATION else some(self.states, "states")
        return f"{self.by}{rests}{self.at()}: {found}"

    def at(self) -> str:
        """Say which smaller configuration it is of, if any."""
        return f" at {', '.join(f'{name} {value}' for name, value in self.smaller.items())}" if self.smaller else ""

    def to_json(self) -> dict[str, Any]:
        """Return what the verdict's JSON says of it."""
        plain = {name: value for name, value in vars(self).items() if name != "violation"}
        seconds = round(self.seconds, 3)
        return plain | {"smaller": dict(self.smaller), "seconds": seconds, "contradicts": self.contradicts}


@dataclass(frozen=True)
class Confirmation:
    """Second opinions on a verdict (`check.confirm`)."""

    limit_seconds: float
    """For how long they were asked, at most."""
    opinions: tuple[Opinion, ...] = ()
    interrupted_seconds: float | None = None
    """After how long Ctrl-C has ended it; None if it has not."""

    @property
    def agreed(self) -> tuple[Opinion, ...]:
        """Searches that reduce less, and have ended."""
        return tuple(one for one in self.opinions if one.by in REDUCTIONS and one.verdict == VERIFIED)

    @property
    def confirmed(self) -> Opinion | None:
        """Brute force that has ended, on the largest configuration."""
        return next((one for one in self.opinions[::-1] if one.by == BRUTE_FORCE and one.verdict == VERIFIED), None)

    @property
    def contradicted(self) -> Opinion | None:
        """The opinion that contradicts the verdict, if one does."""
        return next((one for one in self.opinions if one.contradicts), None)

    def words(self) -> str:
        """All of it in a line."""
        if self.contradicted is not None:
            return f"contradicted by {self.contradicted.words()}"
        said = [f"agreed by {one.words()}" for one in self.agreed]
        said.append(f"confirmed by {self.confirmed.words()}" if self.confirmed is not None else self._unconfirmed())
        refuted = next((one for one in self.opinions if one.by == SEARCH), None)
        said += [] if refuted is None else [f"but a smaller one is wrong, {refuted.words()}"]
        ended = self.confirmed is not None and self.interrupted_seconds is not None
        return "; ".join([*said, *([self._interrupted()] if ended else [])])

    def _interrupted(self) -> str:
        return f"interrupted after {self.interrupted_seconds:.1f} s"

    def _unconfirmed(self) -> str:
        if self.interrupted_seconds is not None:
            return f"not confirmed: {self._interrupted()}"
        tried = next((one for one in self.opinions[::-1] if one.by == BRUTE_FORCE), None)
        more = "" if tried is None else f"nor{tried.at()}" if tried.smaller else tried.because
        return f"not confirmed within {self.limit_seconds:.1f} s" + (more and f", {more}")

    def to_json(self) -> dict[str, Any]:
        """Return what the verdict's JSON says of it."""
        opinions = [one.to_json() for one in self.opinions]
        confirmed = None if self.confirmed is None else self.confirmed.to_json()
        seconds, interrupted = round(self.limit_seconds, 3), self.interrupted_seconds
        return {
            "limit_seconds": seconds, "opinions": opinions, "confirmed": confirmed,
            "interrupted": interrupted is not None,
        }  # fmt: skip


@dataclass(frozen=True)
class Recovery:
    """How far it is at most from a fault, at any moment, to the return of the last core that it leaves."""

    longest: int | None
    """None if nothing bounds them: a core may look, or ask the environment, any number of times before it goes on."""
    unit: str
    """What is counted: `SHARED` or `ALL`."""

    def words(self) -> str:
        """For reports."""
        if self.longest is None:
            return "every other core returns; no number of steps bounds when, since a loop may go round again and again"
        return f"every other core returns, at most {self.longest:,} {self.unit} after the fault"


SHARED, ALL = "actions on shared memory", "actions"
"""What steps are: a search by reduced states counts the former, brute force all."""


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
    """The most telling one that was found."""
    others: tuple[Violation, ...] = ()
    """Violations of other kinds or at other places, the most telling first; each replays, none has been shrunk."""
    ended: Mapping[str, int] = field(default_factory=dict)
    """For a fault: how many of the schedules that came to it (or had a stalled link) ended ``"right"``, in a
    ``"declared error"``, ``"blocked"``, ``"refused by the machine"`` and ``"given up at the link"``; a violation is
    none of them."""
    declared: Mapping[str, int] = field(default_factory=dict)
    """The declared errors, by code and meaning."""
    certificate: Certificate | None = None
    """What other roads say of it, if they were asked."""
    confirmation: Confirmation | None = None
    """What was asked of a proof within some seconds, if that was asked for."""
    recovery: Recovery | None = None
    """What is added to a proof that no core waits for ever after a fault."""
    due: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the expected bytes, by what made them due (`messages.due`)."""
    reach: Reach | None = None
    """What no run needed: of one that is verified, of all runs (of memory, of some drawn ones); of drawn schedules, of
    these."""

    @property
    def contradicted(self) -> bool:
        """Return whether it has been a proof that another road contradicts: a bug of xccl_emu."""
        certificate, confirmation = self.certificate, self.confirmation
        disproved = certificate is not None and certificate.of_proof and not certificate.agrees
        return disproved or (confirmation is not None and confirmation.contradicted is not None)

    @property
    def ok(self) -> bool:
        """Nothing wrong was found and the check did what it was asked."""
        return self.verdict in (VERIFIED, NO_VIOLATION)

    def to_json(self) -> dict[str, Any]:
        """The verdict as the command's ``--json`` prints it."""
        given = vars(self)
        plain = {name: dict(value) for name, value in given.items() if isinstance(value, Mapping)}
        return given | plain | {
            "without": list(self.without),
            "seconds": round(self.seconds, 3),
            "certificate": None if self.certificate is None else self.certificate.to_json(),
            "confirmation": None if self.confirmation is None else self.confirmation.to_json(),
            "violation": None if self.violation is None else self.violation.to_json(),
            "others": [other.to_json() for other in self.others],
            "recovery": None if self.recovery is None else asdict(self.recovery),
            "reach": None if self.reach is None else self.reach.to_json(),
        }
