"""The weakest order that each request of a protocol can ask for, and which quiets could be fences.

One request, or quiet, is weakened at a time, all others are as they are; each time all is searched anew.  So two that
can each be weaker need not both be: ask again with one of them changed.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from xccl_emu.check.check import Progress, search_once
from xccl_emu.check.trial import Checkable, Trial
from xccl_emu.check.verdict import UNFINISHED, UNSUPPORTED, VERIFIED, VIOLATION, Verdict
from xccl_emu.errors import ConfigError
from xccl_emu.lang import Site
from xccl_emu.machine.pod import FENCE, WRITES

ORDERS = ("relaxed", "unordered")
"""Memory orders under which it matters what a request asks for."""
AS_IT_IS = {"": "relaxed"}
_STEPS = {"": ("no-order",), "no-order": (), "relaxed": ("no-order",), "strong": ("no-order", "relaxed")}
"""What is tried of a request, by what it asks for: the weakest first."""


@dataclass(frozen=True)
class Weakened:
    """A configuration of which one site asks for something else."""

    whole: Checkable
    kernel: int
    """Number of the kernel in the pod."""
    site: int
    to: str

    @property
    def name(self) -> str:
        """That of the whole."""
        return self.whole.name

    @property
    def configuration(self) -> Mapping[str, int | str]:
        """That of the whole."""
        return self.whole.configuration

    def build(self, order: str, without: Collection[str] = ()) -> Trial:
        """Launched, on a fresh pod."""
        trial = self.whole.build(order, without)
        trial.pod.weaken(self.kernel, self.site, self.to)
        return trial


@dataclass(frozen=True)
class Weakest:
    """What became of one request."""

    kernel: str
    site: Site
    weakest: str
    """The weakest order under which all is verified, ``"fence"`` or ``"quiet"``; empty where a search has no end."""
    refuted: Mapping[str, str]
    """What was tried and is too weak, and the kind of violation that it has."""
    states: int
    """Of all searches."""
    reached: bool
    """Does a run come to it?"""
    unfinished: str = ""
    """Why a search has no end."""

    @property
    def asks(self) -> str:
        """What it asks for now."""
        return "quiet" if self.site.operation == "quiet" else AS_IT_IS.get(self.site.order, self.site.order)

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        where = {"kernel": self.kernel, "file": self.site.file, "line": self.site.line, "text": self.site.text.strip()}
        return where | {
            "operation": self.site.operation, "sync": self.site.sync, "asks": self.asks, "weakest": self.weakest,
            "refuted": dict(self.refuted), "states": self.states, "reached": self.reached,
            "unfinished": self.unfinished, "callers": [list(caller) for caller in self.site.callers],
        }  # fmt: skip


def weakest(
    checkable: Checkable, *, order: str = "relaxed", without: Collection[str] = (), seconds: float | None = None,
    max_states: int, progress: Progress | None = None,
) -> Iterator[Weakest]:  # fmt: skip
    """For each request that writes and each quiet, in the order of the kernels' sources, the weakest that will do.

    Parameters
    ----------
    checkable: verified as it is; else nothing is weak enough.
    order: ``"relaxed"`` or ``"unordered"``.
    without: names of synchronizations that are switched off.
    seconds, max_states: limits of each search.

    Raises ConfigError for another order.
    """
    if order not in ORDERS:
        raise ConfigError(f"order={order!r}: keeps all writes in order; what requests ask for matters under {ORDERS}")
    reached = _reached(checkable, order, without)
    for number, kernel in enumerate(checkable.build(order, without).pod.kernels):
        for n, site in enumerate(kernel.sites):
            if site.operation not in (*WRITES, "quiet"):
                continue
            refuted, states = dict[str, str](), 0
            for to in (FENCE,) if site.operation == "quiet" else _STEPS[site.order]:
                one = Weakened(checkable, number, n, to)
                found = search_once(one, order, without, seconds=seconds, max_states=max_states, progress=progress)
                states += found.states
                if found.verdict != VIOLATION or found.violation is None:
                    break
                refuted[to] = found.violation.kind
            else:
                to, found = "quiet" if site.operation == "quiet" else AS_IT_IS.get(site.order, site.order), None
            yield _told(kernel.name, site, to, refuted, states, (site.file, site.line) in reached, found)


def _told(
    kernel: str, site: Site, to: str, refuted: Mapping[str, str], states: int, reached: bool, found: Verdict | None
) -> Weakest:
    unfinished = "" if found is None or found.verdict == VERIFIED else found.reason or UNFINISHED
    assert found is None or found.verdict in (VERIFIED, UNFINISHED, UNSUPPORTED)
    return Weakest(kernel, site, "" if unfinished else to, refuted, states, reached, unfinished)


def _reached(checkable: Checkable, order: str, without: Collection[str]) -> frozenset[tuple[str, int]]:
    """Files and lines of requests that a run comes to."""
    from xccl_emu.check.witness.steps import steps

    trial = checkable.build(order, without)
    trial.pod.record = True
    trial.pod.run()
    trace = steps(checkable.build(order, without), trial.pod.schedule.actions.tolist())
    return frozenset((step.source.file, step.source.line) for step in trace.steps if step.source is not None)
