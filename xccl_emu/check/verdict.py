"""What a check returns: one of five verdicts, how it was reached, and for a violation a schedule that shows it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base import words as w
from xccl_emu.base.sizes import some
from xccl_emu.check.reach import Reach

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
class Violation(w.Printed):
    """What went wrong, and the actions that lead there."""

    kind: w.Kind
    message: Annotated[str, "who, where in the source, which step of the paper, which address"]
    actions: NDArray[np.int64]
    """[n] int64, ``actor << 16 | choice``: a schedule of the machine that ends in the violation."""
    found_by: Annotated[str, "policy and seed, `exhaustive search` or `brute force`"]
    found_after: Annotated[int, "states or schedules until it was found"]
    loop: Annotated[int, "actions at the end that go round in a livelock, back to a state; 0 if none are known"] = 0

    @property
    def length(self) -> Annotated[int, "actions of its schedule", w.As("actions")]:
        """Number of actions."""
        return len(self.actions)


@dataclass(frozen=True)
class Certificate(w.Printed):
    """What other roads than the one that led to a verdict have found: brute force, then sampled schedules; or a replay.

    Brute force (`machine.explore`) merges and reduces nothing.  It judges deadlocks, errors, and the expected bytes at
    the end of every run; not races, reads of unwritten memory, livelocks, or bytes that come too late for their owners.
    Sampled schedules are judged by the monitor, which judges these too.
    """

    states: w.States = 0
    complete: Annotated[bool, "whether brute force has visited all states"] = False
    too_large: Annotated[str, "why there is no brute force; empty if there is"] = ""
    schedules: w.Schedules = 0
    seconds: w.Seconds = 0.0
    replayed: Annotated[bool, "whether the violation shows again when replayed; then nothing else was done"] = False
    disagreement: Annotated[str, "what was found that the verdict did not say; empty if they agree"] = ""
    of_proof: Annotated[bool, "whether the verdict had been `verified`; if they do not agree it is no more"] = False

    @property
    def agrees(self) -> Annotated[bool, "whether nothing contradicts the verdict"]:
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


REDUCTIONS = {"full": "1 to 8", "less": "1 to 6", "merged": "1, 2, 5"}
"""Numbers, in docs/soundness.md, of what a search by each reduction uses."""


@dataclass(frozen=True)
class Opinion(w.Printed):
    """What one other road says of a verdict, or of a smaller configuration of the same case."""

    by: Annotated[str, "`less`, `merged` or `brute force`; `exhaustive search` of a smaller one that it refutes"]
    verdict: Annotated[str, "`verified`, `violation`, or `unfinished` for what has not ended in time"]
    smaller: Annotated[Mapping[str, int], "sizes that are smaller; empty for the configuration itself"]
    states: w.States
    seconds: Annotated[w.Seconds, w.As(digits=3)]
    because: Annotated[str, "what was found, or why it has not ended"] = ""
    violation: Violation | None = None
    """What was found, with a schedule, where one is known."""

    @property
    def contradicts(self) -> Annotated[bool, "whether it contradicts the search: a bug of xccl_emu"]:
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


@dataclass(frozen=True)
class Confirmation(w.Printed):
    """Second opinions on a proof, asked for some seconds (`check.confirm`)."""

    limit_seconds: Annotated[float, "for how long they were asked, at most", w.As(digits=3)]
    opinions: Annotated[tuple[Opinion, ...], "in the order in which they came"] = ()
    interrupted_seconds: float | None = None
    """After how long Ctrl-C has ended it; None if it has not."""

    @property
    def agreed(self) -> tuple[Opinion, ...]:
        """Searches that reduce less, and have ended."""
        return tuple(one for one in self.opinions if one.by in REDUCTIONS and one.verdict == VERIFIED)

    @property
    def confirmed(self) -> Annotated[Opinion | None, "brute force that has ended, on the largest configuration"]:
        """Brute force that has ended, on the largest configuration."""
        return next((one for one in self.opinions[::-1] if one.by == BRUTE_FORCE and one.verdict == VERIFIED), None)

    @property
    def interrupted(self) -> Annotated[bool, "whether Ctrl-C has ended it"]:
        """Return whether Ctrl-C has ended it."""
        return self.interrupted_seconds is not None

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
        refuted = next((one for one in self.opinions if one.by == SEARCH and one.verdict == VIOLATION), None)
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


@dataclass(frozen=True)
class Recovery(w.Printed):
    """How far it is at most from a fault, at any moment, to the return of the last core that it leaves."""

    longest: Annotated[int | None, "most actions from the fault to the last return; null if nothing bounds them"]
    """None if nothing bounds them: a core may look, or ask the environment, any number of times before it goes on."""
    unit: Annotated[str, "`actions on shared memory`, or `actions` where brute force has counted all"]

    def words(self) -> str:
        """For reports."""
        if self.longest is None:
            return "every other core returns; no number of steps bounds when, since a loop may go round again and again"
        return f"every other core returns, at most {self.longest:,} {self.unit} after the fault"


@dataclass(frozen=True)
class ProfiledSite(w.Printed):
    """What a request has to do with the states of a search."""

    FIRST = ("kernel", "request", "states", "alike", "kept")
    kernel: Annotated[str, "the kernel that makes it"]
    request: Annotated[str, "operation, file and line, and its name"]
    states: Annotated[int, "first reached by an action of it"]
    alike: Annotated[int, "with a core at it, and like another one but for what the core keeps"]
    kept: Annotated[tuple[str, ...], "words in which these differ"]


SHARED, ALL = "actions on shared memory", "actions"
"""What steps are: a search by reduced states counts the former, brute force all."""


@dataclass(frozen=True, eq=False)
class Verdict(w.Printed):
    """The outcome of a check."""

    verdict: Annotated[str, "`verified`, `no violation found`, `violation`, `unfinished` or `unsupported`"]
    protocol: w.Protocol
    configuration: w.Configuration
    order: w.Order
    policy: w.Policy
    seed: w.Seed
    without: Annotated[tuple[str, ...], "synchronizations that were switched off"] = ()
    fault: w.Fault = ""
    states: w.States = 0
    transitions: Annotated[int, "actions on shared memory"] = 0
    actions: Annotated[int, "actions of the machine, with those that a search merged into transitions"] = 0
    schedules: w.Schedules = 0
    seconds: Annotated[w.Seconds, w.As(digits=3)] = 0.0
    bounds: Annotated[Mapping[str, int], "limits of the machine within which it holds"] = field(default_factory=dict)
    collision: Annotated[float, "upper bound on the probability that a state was missed"] = 0.0
    """A state is missed when its 64-bit fingerprint is another one's."""
    reason: Annotated[str, "why there is no answer; what a proof rests on"] = ""
    """Why it is unfinished or unsupported, how far it came; what a verified one rests on."""
    violation: Annotated[Violation | None, "the most telling one that was found"] = None
    others: Annotated[tuple[Violation, ...], "violations of other kinds or at other places"] = ()
    """The most telling first; each replays, none has been shrunk."""
    ended: Annotated[Mapping[str, int], "with a fault: how schedules ended"] = field(default_factory=dict)
    """For a fault: how many of the schedules that came to it (or had a stalled link) ended ``"right"``, in a
    ``"declared error"``, ``"blocked"``, ``"refused by the machine"`` and ``"given up at the link"``; a violation is
    none of them."""
    declared: Annotated[Mapping[str, int], "with a fault: declared errors, by code and meaning"] = field(
        default_factory=dict
    )
    certificate: Annotated[Certificate | None, "what other roads say of it; null if they were not asked"] = None
    confirmation: Annotated[Confirmation | None, "second opinions on a proof; null if they were not asked for"] = None
    recovery: Annotated[Recovery | None, "what is added to a proof that no core waits for ever after a fault"] = None
    due: Annotated[Mapping[str, tuple[str, ...]], "names of the expected bytes, by what made them due"] = field(
        default_factory=dict
    )
    """`messages.due` makes these texts."""
    reach: Annotated[Reach | None, "what no run needed"] = None
    """A proof says it of all runs (of memory: of some drawn ones), drawn schedules of themselves."""
    if_all_acquire: bool = False
    """Does a proof take every read of a flag to acquire, where some do not?"""

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
