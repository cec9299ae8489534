"""Why one strategy is better than another: by the terms of Eq. (6) that differ most."""

from collections.abc import Mapping

from xccl_emu.plan.strategies import Estimate


def terms_s(of: Estimate, by: str = "throughput") -> Mapping[str, float]:
    """Seconds by term of what strategies are ranked by: a whole request, its prefill, or one decode."""
    prefills, decodes = {"throughput": (1, of.workload.output), "ttft": (1, 0), "itl": (0, 1)}[by]
    return {a.name: prefills * a.seconds + decodes * b.seconds for a, b in zip(of.prefill, of.decode, strict=True)}


def deciding(of: Estimate, other: Estimate, by: str = "throughput") -> tuple[str, float]:
    """The term by which ``of`` takes most longer than ``other``, and how many seconds; no term if none is longer.

    Terms of strategies that send in different ways have the same names; one that a strategy lacks takes no time.
    """
    mine, theirs = terms_s(of, by), terms_s(other, by)
    longer = {name: mine.get(name, 0.0) - theirs.get(name, 0.0) for name in {*mine, *theirs}}
    name, seconds = max(sorted(longer.items()), key=lambda item: item[1])
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
