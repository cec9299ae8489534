"""Why one strategy is better than another: by the terms of Eq. (6) that differ most."""

from collections.abc import Mapping

from xccl_emu.plan.strategies import Estimate

_WAYS = {"A2A dispatch": "A2A", "A2A combine": "A2A", "expert AG": "expert AG+RS", "expert RS": "expert AG+RS"}
"""Terms of both ways count as one: mostly they are equal."""


def terms_s(of: Estimate, by: str = "throughput") -> Mapping[str, float]:
    """Seconds by term of what strategies are ranked by: a whole request, its prefill, or one decode."""
    prefills, decodes = {"throughput": (1, of.workload.output), "ttft": (1, 0), "itl": (0, 1)}[by]
    found: dict[str, float] = {}
    for a, b in zip(of.prefill, of.decode, strict=True):
        name = _WAYS.get(a.name, a.name)
        found[name] = found.get(name, 0.0) + prefills * a.seconds + decodes * b.seconds
    return found


def deciding(of: Estimate, other: Estimate, by: str = "throughput") -> tuple[str, float]:
    """The term by which ``of`` takes most longer than ``other``, and how many seconds; no term if none is longer."""
    mine, theirs = terms_s(of, by), terms_s(other, by)
    name, seconds = max(((name, mine[name] - theirs[name]) for name in mine), key=lambda item: item[1])
    return (name, seconds) if seconds > 1e-12 else ("", 0.0)


def reason(winner: Estimate, second: Estimate, by: str = "throughput") -> str:
    """One sentence on why the first is ahead of the second."""
    name, more_s = deciding(second, winner, by)
    of = {"throughput": "of a request", "ttft": "of a prefill", "itl": "of a decode"}[by]
    if not name:
        return f"{winner.strategy} and {second.strategy} take the same time; memory or the other order decides"
    back, less_s = deciding(winner, second, by)
    but = f", which {back} ({ms(less_s)}) does not make up for" if back else ""
    return f"{second.strategy} loses to {winner.strategy} by {name}: {ms(more_s)} {of}{but}"


def ms(seconds: float) -> str:
    """A difference in ms, with its sign and three figures."""
    value = 1e3 * seconds
    return f"{value:+,.0f} ms" if abs(value) >= 1000 else f"{value:+.3g} ms"
