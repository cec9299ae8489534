"""The weakest order that each request of a protocol can ask for, and which quiets could be fences.

One request, or quiet, is weakened at a time, all others are as they are; each time all is searched again.  So two that
can each be weaker need not both be: ask again with one of them changed.

What a search says of the weakened protocol is judged again by roads that share nothing with it (`check.certify`), for
some seconds: advice that these contradict is withdrawn.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from xccl_emu.base import words as w
from xccl_emu.base.errors import ConfigError
from xccl_emu.check.certify import ADVICE_SECONDS, certify
from xccl_emu.check.check import Progress, search_once
from xccl_emu.check.trial import Checkable, Trial
from xccl_emu.check.verdict import UNFINISHED, UNSUPPORTED, VERIFIED, VIOLATION, Certificate, Verdict
from xccl_emu.lang import Site
from xccl_emu.lang import operations as ops
from xccl_emu.machine.state import FENCE

ORDERS = ("relaxed", "unordered")
"""Memory orders under which it matters what a request asks for."""
AS_IT_IS = {"": "relaxed"}
_STEPS = {"": ("no-order",), "no-order": (), "relaxed": ("no-order",), "strong": ("no-order", "relaxed")}
"""What is tried of a request, by what it asks for: the weakest first."""


@dataclass(frozen=True)
class Weakened:
    """A configuration in which one site asks for something else."""

    whole: Checkable
    kernel: int
    """Number of the kernel in the pod."""
    site: int
    to: str

    @property
    def name(self) -> str:
        """Name of the whole configuration."""
        return self.whole.name

    @property
    def configuration(self) -> Mapping[str, int | str]:
        """Sizes and choices of the whole configuration."""
        return self.whole.configuration

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """Launched, on a fresh pod."""
        trial = self.whole.build(order, without)
        trial.pod.weaken(self.kernel, self.site, self.to)
        return trial


@dataclass(frozen=True)
class Weakest(w.Printed):
    """What became of one request."""

    RECORD = "Request"
    FIRST = (
        "kernel", "file", "line", "text", "operation", "sync", "asks", "weakest", "advice", "too_weak", "withdrawn",
        "states", "reached", "unfinished", "certificates",
    )  # fmt: skip
    kernel: w.Kernel
    site: Annotated[Site, w.INLINE]
    weakest: Annotated[str, "the weakest that will do: an order, `fence` or `quiet`; empty where a search has no end"]
    refuted: Annotated[Mapping[str, str], "kind of violation with each that is too weak", w.As("too_weak")]
    states: w.States
    """States of all searches together."""
    reached: Annotated[bool, "whether a run comes to it"]
    unfinished: Annotated[str, "why there is no answer"] = ""
    """Why a search has no end, or what brute force alone holds against it."""
    certificates: Annotated[Mapping[str, Certificate], "for each that was judged again"] = field(default_factory=dict)

    @property
    def text(self) -> Annotated[str, "the line itself"]:
        """The line of its source."""
        return self.site.text.strip()

    @property
    def advice(self) -> Annotated[str, "the same if it is not what it asks for"]:
        """The weakest that it could ask for instead; empty for nothing weaker."""
        return "" if self.weakest == self.asks else self.weakest

    @property
    def withdrawn(self) -> Annotated[dict[str, str], "what was found against an advice"]:
        """The requests that a search had called enough, and what was found against each."""
        return {to: each.disagreement for to, each in self.certificates.items() if each.of_proof and not each.agrees}

    @property
    def asks(self) -> Annotated[str, "what it asks for"]:
        """The order that it asks for now."""
        return "quiet" if self.site.operation == "quiet" else AS_IT_IS.get(self.site.order, self.site.order)


@dataclass(frozen=True)
class WeakenedSearch:
    """How each weakened protocol is judged.

    order: ``"relaxed"`` or ``"unordered"``.
    without: names of synchronizations that are switched off.
    seconds, max_states, max_bytes: limits of each search (`check.check`).
    certify: seconds for which each answer is judged again by brute force and sampled schedules; None for not at all.

    Raises ConfigError for another order.
    """

    max_states: int
    order: str = "relaxed"
    without: Collection[str] = ()
    seconds: float | None = None
    max_bytes: int | None = None
    progress: Progress | None = None
    certify: float | None = ADVICE_SECONDS

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            must = f"keeps all writes in order; what requests ask for matters under {ORDERS}"
            raise ConfigError("order", self.order, must)

    def verdict(self, one: Weakened) -> Verdict:
        """Return the verdict of a search, judged again."""
        found = search_once(
            one, self.order, self.without, progress=self.progress, seconds=self.seconds, max_states=self.max_states,
            max_bytes=self.max_bytes,
        )  # fmt: skip
        if self.certify is None or found.verdict not in (VERIFIED, VIOLATION):
            return found
        return certify(one, found, seconds=self.certify)


@dataclass(frozen=True)
class AdvisedRequest:
    """A request that writes, or a quiet, of a protocol that is verified as it is; else nothing is weak enough."""

    whole: Checkable
    by: WeakenedSearch
    number: int
    """Number of the kernel in the pod."""
    kernel: str
    n: int
    """Number of the site in the kernel."""
    site: Site
    reached: bool

    def weakest(self) -> Weakest:
        """Find the weakest that will do: what is tried before it are violations."""
        tried = dict[str, Verdict]()
        for to in (FENCE,) if self.site.operation == "quiet" else _STEPS[self.site.order]:
            tried[to] = self.by.verdict(Weakened(self.whole, self.number, self.n, to))
            if tried[to].verdict != VIOLATION:
                break
        refuted = {to: each.violation.kind for to, each in tried.items() if each.violation is not None}
        certificates = {to: each.certificate for to, each in tried.items() if each.certificate is not None}
        enough = [to for to, each in tried.items() if each.verdict == VERIFIED]
        open_ = [each.reason or UNFINISHED for each in tried.values() if each.verdict in (UNFINISHED, UNSUPPORTED)]
        none = self.unfinished("".join(open_))
        weakest, states = "" if open_ else [*enough, none.asks][0], sum(each.states for each in tried.values())
        return replace(none, weakest=weakest, refuted=refuted, states=states, certificates=certificates)

    def unfinished(self, why: str) -> Weakest:
        """Return an answer that says why there is none."""
        return Weakest(self.kernel, self.site, "", {}, 0, self.reached, why)


def requests(checkable: Checkable, by: WeakenedSearch) -> Iterator[AdvisedRequest]:
    """Each request that writes and each quiet, in the order of the kernels' sources."""
    reached = _reached(checkable, by.order, by.without)
    for number, kernel in enumerate(checkable.build(by.order, by.without).pod.kernels):
        for n, site in enumerate(kernel.sites):
            if site.operation in (*ops.ASK_FOR_ORDER, "quiet"):
                yield AdvisedRequest(checkable, by, number, kernel.name, n, site, (site.file, site.line) in reached)


def weakest(checkable: Checkable, **by: Any) -> Iterator[Weakest]:
    """For each of these `requests` in turn the weakest that will do; ``by`` are fields of `WeakenedSearch`."""
    return (each.weakest() for each in requests(checkable, WeakenedSearch(**by)))


def _reached(checkable: Checkable, order: str, without: Collection[str]) -> frozenset[tuple[str, int]]:
    """Files and lines of requests that a run comes to."""
    from xccl_emu.check.witness.tracer import steps

    trial = checkable.build(order, without)
    trial.pod.record = True
    trial.pod.run()
    trace = steps(checkable.build(order, without), trial.pod.schedule.actions.tolist())
    return frozenset((step.source.file, step.source.line) for step in trace.steps if step.source is not None)
