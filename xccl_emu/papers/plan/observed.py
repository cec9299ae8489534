"""Measurements of a user's own cluster, to which the constants of the equations are fitted ([MixServe] III-A).

The paper's offline stage profiles prompts of several batches and lengths, and gives what it observed to the analyzer
with theoretical values.  How the two come together it does not say.  Here the equations stay, and what is a constant
in them is what fits the observations best: of each kind of link its bandwidth and what a round takes to begin, of a
device its operations a second, the bandwidth of its memory, and what a layer takes however little it computes.  Errors
are relative.  What was not observed stays as the file of the cluster has it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from xccl_emu.base import words as w
from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import one_of
from xccl_emu.papers.plan import costs
from xccl_emu.papers.plan.cluster import Cluster, Link
from xccl_emu.papers.plan.costs import Form
from xccl_emu.papers.plan.grammar import parse
from xccl_emu.papers.plan.model import check_names, check_numbers, load, number, record, whole

Seconds = Callable[[float, int, Link, Form], float]
OPERATIONS: Mapping[str, Seconds] = {
    "RS": costs.scatter_s, "AG": costs.scatter_s, "AR": costs.all_reduce_s,
    "A2A": lambda size, degree, link, _: costs.all_to_all_s(size, degree, link),
    "P2P": lambda size, _degree, link, _form: link.seconds(size),
}  # fmt: skip
"""By name: the equation of each, of bytes, ranks, the link, and how the equations are read; in s."""
COMPUTING = "computing"


@dataclass(frozen=True)
class ObservedTransfer:
    """How long an operation took among ranks that one kind of link joins."""

    operation: str
    link: str
    """intra or inter."""
    ranks: int = whole("ranks of the group", 2, 1 << 26)
    kb: float = number("10^3 bytes, the size in the operation's equation", 1e-3, 1e12)
    us: float = number("measured, of the operation", 1e-6, 1e12)

    def __post_init__(self) -> None:
        """Raises ConfigError for an operation or a link that there is not, or a number out of range."""
        one_of("operation", self.operation, [*OPERATIONS])
        one_of("link", self.link, ["intra", "inter"])
        check_numbers(self)

    def seconds(self, link: Link, form: Form) -> float:
        """Return what the equation says over a link."""
        return OPERATIONS[self.operation](1000 * self.kb, self.ranks, link, form)

    def __str__(self) -> str:
        return f"{self.operation} of {self.kb:g} KB over {self.ranks} ranks"


@dataclass(frozen=True)
class Computed:
    """How long a device computed one layer, without what it sends."""

    strategy: str
    """As ``--strategy`` has it."""
    batch: int = whole("requests at once", 1, 1 << 30)
    tokens: int = whole("tokens of each request: of the prompt, or 1 of a decode", 1, 1 << 30)
    us: float = number("measured, of one layer", 1e-6, 1e12)

    def __post_init__(self) -> None:
        """Raises ConfigError for a strategy that is no text, or a number out of range."""
        if not isinstance(self.strategy, str):
            raise ConfigError("strategy", self.strategy, "must be a text, such as 'TP=8 + DP=4, TP=8 + EP=4'")
        check_numbers(self)

    def work(self, of: costs.PlanSetting) -> tuple[float, float]:
        """Operations and bytes read of Eq. (4)."""
        chosen = parse(self.strategy, of.cluster.devices, of.cluster.devices_per_node)
        return costs.work(chosen, replace(of, batch=self.batch), self.tokens)

    def __str__(self) -> str:
        return f"{self.strategy}, {self.batch} x {self.tokens} tokens"


@dataclass(frozen=True)
class FittedObservation(w.Printed):
    """One observation with what the equations say with the fitted constants."""

    RECORD = "Observation"
    kind: Annotated[str, "`intra` and `inter` of links, or `computing`"]
    what: Annotated[str, "what was measured"]
    us: Annotated[float, "microseconds, measured"]
    fitted_us: Annotated[float, "microseconds by the equations"]

    @property
    def off_percent(self) -> Annotated[float, "signed: above 0 if the equations say more"]:
        """Signed: above 0 if the equations say more."""
        return 100 * (self.fitted_us - self.us) / self.us


@dataclass(frozen=True)
class Observed:
    """All that was measured."""

    where: str
    communication: tuple[ObservedTransfer, ...]
    computing: tuple[Computed, ...]

    def fit(self, of: costs.PlanSetting) -> tuple[costs.PlanSetting, tuple[FittedObservation, ...]]:
        """The setting with what was observed in its cluster, and each observation with it.

        Raises ConfigError where the observations cannot separate the constants, or contradict them.
        """
        cluster, points = of.cluster, []
        try:
            for kind in ("intra", "inter"):
                if sent := [each for each in self.communication if each.link == kind]:
                    link = _fitted_link(getattr(cluster, kind), sent, kind, cluster, of.form)
                    cluster = replace(cluster, intra=link) if kind == "intra" else replace(cluster, inter=link)
                    points += [
                        FittedObservation(kind, str(one), one.us, 1e6 * one.seconds(link, of.form)) for one in sent
                    ]
            if self.computing:
                cluster, computed = _fitted_device(self.computing, replace(of, cluster=cluster))
                points += [FittedObservation(COMPUTING, str(one), one.us, us)
                           for one, us in zip(self.computing, computed.tolist(), strict=True)]  # fmt: skip
        except ConfigError as error:
            raise ConfigError(f"{self.where}: {error}") from error
        return replace(of, cluster=cluster), tuple(points)


def load_observed(path: str) -> Observed:
    """Observations of a TOML file, ``[[communication]]`` and ``[[computing]]``; ConfigError, naming the field."""
    tables, where = load(path, {}, "observed")
    given: dict[str, tuple[Any, ...]] = {}
    for name, kind in (("communication", ObservedTransfer), ("computing", Computed)):
        found = tables.get(name, [])
        if not isinstance(found, list):
            raise ConfigError(f"{where}: {name}: must be tables, each under [[{name}]]")
        given[name] = tuple(record(kind, one, f"{where}: {name} {n}") for n, one in enumerate(found, start=1))
    check_names(Observed, {"where": where, **tables, **given}, where)
    if not any(given.values()):
        raise ConfigError(f"{where}: must have at least one [[communication]] or [[computing]]")
    return Observed(where, **given)


def _fitted_link(link: Link, sent: Sequence[ObservedTransfer], kind: str, cluster: Cluster, form: Form) -> Link:
    """Bandwidth and start of a round; the equations are linear in both."""
    most = cluster.devices_per_node if kind == "intra" else cluster.devices
    for one in sent:
        if one.ranks > most:
            raise ConfigError(f"ranks={one.ranks} of {one}: must be at most {most}, as many as {kind} joins")
    at_once, in_a_second = (replace(link, gb_s=1.0, ways=1, start_us=start_us) for start_us in (0.0, 1e6))
    gb = np.array([one.seconds(at_once, form) for one in sent])
    rounds = np.array([one.seconds(in_a_second, form) for one in sent]) - gb
    us = np.array([one.us for one in sent])
    columns = np.stack([1e6 * gb, rounds], axis=1) / us[:, None]
    if np.linalg.matrix_rank(columns / columns.max(axis=0), tol=1e-6) < 2:
        raise ConfigError(f"{kind}: bandwidth and start cannot be separated by these; give another size or operation")
    per_gb_s, start_us = _least_squares(columns)
    if not per_gb_s:
        raise ConfigError(f"{kind}: what was measured does not grow with the size, so there is no bandwidth in it")
    return replace(link, gb_s=link.ways / per_gb_s, start_us=start_us)


def _fitted_device(computed: Sequence[Computed], of: costs.PlanSetting) -> tuple[Cluster, NDArray[np.float64]]:
    """The cluster with what its devices do, and microseconds of each observation then.

    An observation is bound by operations, or by reading weights: which, its ratio of the two decides.  So every ratio
    is tried as the border, and the one that fits best is taken.
    """
    works = [one.work(of) for one in computed]
    if len(set(works)) < 3:
        raise ConfigError(f"{COMPUTING}: must be at least 3 different observations, for as many constants")
    operations, read = np.array(works).T
    us = np.array([one.us for one in computed])
    best: tuple[float, Cluster, NDArray[np.float64]] | None = None
    place = np.argsort(np.argsort(operations / np.maximum(read, 1e-9)))
    for border in range(len(us) + 1):
        bound = place >= border
        columns = np.stack([bound * operations, ~bound * read, np.ones_like(us)], axis=1) / us[:, None]
        per_operation, per_byte, layer_us = _least_squares(columns)
        try:
            cluster = replace(
                of.cluster, layer_us=layer_us,
                efficiency=1e-6 / per_operation / of.cluster.tflops if per_operation else of.cluster.efficiency,
                hbm_gb_s=1e-3 / per_byte if per_byte else of.cluster.hbm_gb_s,
            )  # fmt: skip
        except ConfigError as error:
            refused = error
            continue
        flops = cluster.tflops * 1e6 * cluster.efficiency
        fitted = layer_us + np.maximum(operations / flops, read / (cluster.hbm_gb_s * 1e3))
        off = float(((fitted / us - 1) ** 2).sum())
        if best is None or off < best[0]:
            best = off, cluster, fitted
    if best is None:
        raise ConfigError(f"{COMPUTING}: {refused}")
    return best[1:]


def _least_squares(given: NDArray[np.float64]) -> list[float]:
    """Coefficients, none below 0, by which columns of ``given`` [observations, constants] add up nearest to 1."""
    n = given.shape[1]
    best, found = np.inf, np.zeros(n)
    for chosen in (list(names) for size in range(1, n + 1) for names in combinations(range(n), size)):
        scale = np.maximum(np.abs(given[:, chosen]).max(axis=0), 1e-300)
        values = np.linalg.lstsq(given[:, chosen] / scale, np.ones(len(given)), rcond=None)[0] / scale
        off = float(((given[:, chosen] @ values - 1) ** 2).sum())
        if (values >= 0).all() and off < best - 1e-15:
            best, found = off, np.zeros(n)
            found[chosen] = values
    return [float(value) for value in found]
