"""What one layer takes: Eqs. (1)-(6), (12) and (13) of [MixServe] III.  Sizes are in bytes, times in seconds.

Each equation is a proportionality in the paper; here one byte takes what the link says, one operation what the device
says.

Each equation is there as printed, and as this project corrects it: each difference is a switch of `Form`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

from xccl_emu.base.errors import ConfigError
from xccl_emu.base.options import one_of
from xccl_emu.papers.plan.cluster import Cluster, Link
from xccl_emu.papers.plan.grammar import LayerStrategy, StrategyBlock
from xccl_emu.papers.plan.model import DecoderModel


@dataclass(frozen=True)
class Form:
    """Which equations are taken as they are printed; all others are corrected.

    Fields are named by the number of the equation; docs/records/mixserve.md has what is printed, what is wrong with
    it, and its correction.
    """

    eq1: bool = False
    """One round whatever the link (Table I), where a single port sends degree − 1 shares one after the other."""
    eq2: bool = False
    """All-reduce divides by the degree, and so do its two halves; so does the all-gather of (13)."""
    eq4: bool = False
    """All weights compute for every token, of all blocks by the experts' degrees; reading weights takes no time."""
    eq7: bool = False
    """Tokens a second arrive at a server that makes one token in an iteration of the whole batch."""
    eq8: bool = False
    """The cache has the hidden state twice a token, of the whole batch on each device; weights are not split by PP."""
    eq11: bool = False
    """Throughput counts one request, its wait included, whatever the batch."""
    eq13: bool = False
    """One all-reduce a layer for both blocks, d_TP of the experts for what both do, A2A shared by those alone."""

    @property
    def text(self) -> str:
        """Such as ``literal``, ``corrected`` or ``literal but for (8)``."""
        kept = [each.name for each in fields(self) if getattr(self, each.name)]
        others = [f"({each.name[2:]})" for each in fields(self) if each.name not in kept]
        if not kept:
            return "corrected"
        return f"literal but for {', '.join(others)}" if others else "literal"


CORRECTED = Form()
LITERAL = Form(**{each.name: True for each in fields(Form)})


def literal_but_for(corrected: tuple[str, ...]) -> Form:
    """The literal form with some equations corrected, by their numbers; ConfigError for another number."""
    known = [each.name.removeprefix("eq") for each in fields(Form)]
    for one in corrected:
        one_of("correct", one, known)
    return Form(**{f"eq{number}": number not in corrected for number in known})


@dataclass(frozen=True)
class PlanSetting:
    """What is asked of the equations: a model on a cluster, ``batch`` requests at once, and how to read them."""

    model: DecoderModel
    cluster: Cluster
    batch: int = 16
    form: Form = CORRECTED
    overlapped: bool = True
    """Whether A2A between groups goes on at the same time as RS and AG within them (III-D)."""
    dropping: bool = False
    """Whether experts without TP get each token once, (5) where d_DP < d_EP, not from all of a TP group, (12)."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a batch of nothing."""
        if self.batch < 1:
            raise ConfigError("batch", self.batch, "must be at least 1 (requests)")

    @property
    def weight_bytes(self) -> float:
        """Bytes of a weight: as published, or what the cluster computes with if that is wider."""
        return max(self.model.weight_bytes, self.cluster.weight_bytes_least)

    def state_bytes(self, requests: float, tokens: int) -> float:
        """b·s·h: hidden states of this many requests with this many tokens each."""
        return requests * tokens * self.model.hidden * self.model.activation_bytes

    def copied_bytes(self, requests: float, tokens: int) -> float:
        """b·s·h·k: the same, once for each routed expert of a token."""
        return self.state_bytes(requests, tokens) * self.model.experts.top_k


@dataclass(frozen=True)
class Term:
    """A part of the time of a layer, or of all layers."""

    name: str
    seconds: float
    equation: str = ""


def scatter_s(size: float, degree: int, link: Link, form: Form = CORRECTED) -> float:
    """Eq. (1): reduce-scatter or all-gather of ``size`` bytes over ``degree`` ranks, in s.

    Each sends a share of size / degree to every other one: at once over a mesh (Table I: one round), one after the
    other over a port.
    """
    rounds = 1 if form.eq1 or link.mesh else degree - 1
    return rounds * link.seconds(size / degree) if degree > 1 else 0.0


def all_reduce_s(size: float, degree: int, link: Link, form: Form = CORRECTED) -> float:
    """Eq. (2): all-reduce of ``size`` bytes, in s: a reduce-scatter and an all-gather, of size / degree as printed."""
    return 2 * scatter_s(printed_share(size, degree, form), degree, link, form)


def printed_share(size: float, degree: int, form: Form) -> float:
    """Return the size in bytes that Eqs. (2) and (13) pass to RS and AG: already divided, as printed, or whole."""
    return size / degree if form.eq2 else size


def all_to_all_s(size: float, degree: int, link: Link) -> float:
    """Eq. (3): pairwise all-to-all of ``size`` bytes of each rank, in s: degree − 1 rounds of size / degree."""
    return (degree - 1) * link.seconds(size / degree) if degree > 1 else 0.0


def compute_s(strategy: LayerStrategy, of: PlanSetting, tokens: int) -> float:
    """Eq. (4): computing one layer for ``tokens`` tokens of each request, in s.

    Corrected, no less than reading the weights that the tokens need.
    """
    operations, read = work(strategy, of, tokens)
    cluster = of.cluster
    flops = cluster.tflops * 1e12 * cluster.efficiency
    return cluster.layer_us / 1e6 + max(operations / flops, read / (cluster.hbm_gb_s * 1e9))


def work(strategy: LayerStrategy, of: PlanSetting, tokens: int) -> tuple[float, float]:
    """Operations of a device in one layer, two a weight and token, and bytes of weights that it reads (none in (4))."""
    model = of.model
    attention = model.attention_parameters / model.layers / strategy.attention.tensor
    requests = of.batch / strategy.attention.spread
    if of.form.eq4:
        weights = (model.attention_parameters + model.expert_parameters(model.all_experts)) / model.layers
        return 2 * weights / strategy.experts.devices * requests * tokens, 0.0
    active, touched = (
        model.expert_parameters(each) / model.layers / strategy.experts.devices
        for each in (model.active_experts, model.experts.touched(of.batch * tokens))
    )
    return 2 * tokens * (requests * attention + of.batch * active), of.weight_bytes * (attention + touched)


def exchange_s(strategy: LayerStrategy, of: PlanSetting, tokens: int) -> float:
    """The A2A term of Eqs. (5), (12) and (13), one way, in s.

    (12): experts without TP get k copies of all tokens of a DP rank from each of its TP ranks; what stays in a node is
    not counted. (5): groups of min(d_DP, d_EP) devices, each for 1 / max(d_DP, d_EP) of the batch. (13): (5) shared by
    the ranks that hold the same tokens.
    """
    experts, dp = strategy.experts, strategy.attention.spread
    link = of.cluster.link(experts.spread_span)
    if experts.tensor == 1 and not of.dropping:
        nodes = experts.devices // of.cluster.devices_per_node
        size = of.copied_bytes(of.batch / dp, tokens)
        return all_to_all_s(size, nodes if nodes > 1 else experts.spread, link)
    size = of.copied_bytes(of.batch / max(dp, experts.spread), tokens)
    return all_to_all_s(size / (experts.tensor if of.form.eq13 else holders(strategy)), strategy.sharing, link)


def holders(strategy: LayerStrategy) -> int:
    """Ranks that hold the same tokens before dispatch, once what is redundant was dropped, and so send a part each.

    The attention's TP group, or the experts' where a DP rank feeds several of them (d_DP < d_EP).
    """
    fed = strategy.attention.spread < strategy.experts.spread
    return strategy.experts.tensor if fed else strategy.attention.tensor


@dataclass(frozen=True)
class Within:
    """Seconds of what TP groups do apart from A2A."""

    gathered: float
    """AG of what dispatch brings to each rank of a TP group of experts."""
    reduced: float
    """RS of what they make of it."""
    summed: float
    """RS over the d_EP / d_DP groups of experts that a DP rank feeds: each has a part of the sum over its experts."""
    restored: float
    """AG of the outputs, which all ranks of the attention's TP group need."""


def communication(strategy: LayerStrategy, of: PlanSetting, tokens: int) -> Iterator[Term]:
    """Eqs. (5), (12), (13): what one layer sends for ``tokens`` tokens of each request, term by term.

    Corrected, the AR of the attention is in (13) too, as in (5), and RS and AG move what their own groups hold:
    b / d_DP of attention, b / d_EP of experts. A2A hides them where they overlap with it (III-D).
    """
    attention = strategy.attention
    equation = "(5)" if strategy.experts.spread == 1 else "(12)" if strategy.experts.tensor == 1 else "(13)"
    own = of.state_bytes(of.batch / attention.spread, tokens)
    link = of.cluster.link(attention.tensor_span)
    one = of.form.eq13 and equation == "(13)"
    yield Term("attention AR", 0.0 if one else all_reduce_s(own, attention.tensor, link, of.form), equation)
    within = _printed(strategy, of, tokens) if of.form.eq13 else _by_group(strategy, of, tokens)
    exchange = exchange_s(strategy, of, tokens)
    hidden = exchange if of.overlapped else 0.0
    yield Term("A2A dispatch", exchange, equation)
    yield Term("expert AG", max(0.0, within.gathered - hidden), equation)
    yield Term("expert RS", max(0.0, within.reduced - hidden), equation)
    yield Term("A2A combine", exchange, equation)
    yield Term("output RS", within.summed, equation)
    yield Term("output AG", within.restored, equation)


def _printed(strategy: LayerStrategy, of: PlanSetting, tokens: int) -> Within:
    """The AG of (13), and the halves of the one AR of (13) or the second of (5); d_TP is the experts'."""
    experts, dp = strategy.experts, strategy.attention.spread
    half = _of_group(experts, of, of.state_bytes(of.batch / dp, tokens))
    copied = of.copied_bytes(of.batch / max(dp, experts.spread), tokens)
    return Within(_of_group(experts, of, copied) if experts.spread > 1 else 0.0, half, 0.0, half)


def _by_group(strategy: LayerStrategy, of: PlanSetting, tokens: int) -> Within:
    """The same where each group moves what it holds, and where groups of the two blocks differ.

    What combine sends back is k copies, so RS has made as many. Tokens of the group's own DP rank need no AG (III-D2),
    unless the group has several of those.
    """
    attention, experts = strategy.attention, strategy.experts
    if experts.tensor == 1 and not of.dropping:  # (12): every rank gets back all that it sent
        return Within(0.0, 0.0, 0.0, 0.0)
    own, group = (of.state_bytes(of.batch / block.spread, tokens) for block in (attention, experts))
    copies = of.model.experts.top_k if experts.spread > 1 else 1
    brought = 1 - 1 / attention.spread if attention.spread <= experts.spread else 1.0
    fed = max(1, experts.spread // attention.spread)
    link = of.cluster.link(attention.tensor_span)
    return Within(
        _of_group(experts, of, brought * copies * group),
        _of_group(experts, of, copies * group),
        scatter_s(own / experts.tensor, fed, link, of.form),
        _of_group(attention, of, own),
    )


def _of_group(block: StrategyBlock, of: PlanSetting, size: float) -> float:
    """Eq. (1) over a TP group of a block, of a size as Eqs. (2) and (13) hand it on."""
    link = of.cluster.link(block.tensor_span)
    return scatter_s(printed_share(size, block.tensor, of.form), block.tensor, link, of.form)


def service(strategy: LayerStrategy, of: PlanSetting, tokens: int) -> tuple[Term, ...]:
    """Eq. (6): the terms of one iteration of all layers, in s; ``tokens`` is s, L_in of a prefill and 1 of a decode."""
    layer = [Term("compute", compute_s(strategy, of, tokens), "(4)"), *communication(strategy, of, tokens)]
    return *(Term(one.name, of.model.layers * one.seconds, one.equation) for one in layer), Term(
        "P2P", stages_s(strategy, of, tokens), "(6)"
    )


def stages_s(strategy: LayerStrategy, of: PlanSetting, tokens: int) -> float:
    """The P2P term of Eq. (6), in s: hidden states pass from each stage to the next, between nodes where those end."""
    size = of.state_bytes(of.batch / strategy.attention.spread, tokens)
    crossing = min(strategy.stages, of.cluster.nodes) - 1
    within = strategy.stages - 1 - crossing
    return crossing * of.cluster.inter.seconds(size) + within * of.cluster.intra.seconds(size)
