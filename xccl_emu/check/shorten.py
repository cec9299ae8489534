"""From the path on which a violation was found to a short schedule that replays."""

from dataclasses import replace

from xccl_emu.check.trial import Checkable
from xccl_emu.check.verdict import LIVELOCK, Verdict, Violation

_SHRINK_SECONDS = 5.0


def shortened(checkable: Checkable, verdict: Verdict, violation: Violation) -> Violation:
    """The same violation as its replay shows it, with fewer actions."""
    from xccl_emu.check.sampling.sample import replay, sample
    from xccl_emu.check.witness.shrink import shrink

    fresh = lambda: checkable.build(verdict.order, verdict.without)  # noqa: E731
    shown = replay(fresh(), violation.actions, violation.loop)
    if shown is None and violation.kind != LIVELOCK:  # its path does not show it yet: look for one that does
        sampled = sample(fresh(), seed=verdict.seed, seconds=_SHRINK_SECONDS)
        if sampled.violation is not None:
            shown = violation = sampled.violation
    if shown is not None:  # where several things go wrong at once, the one that a replay meets first
        kind, message, actions, loop = shown.kind, shown.message, shown.actions, shown.loop
        violation = replace(violation, kind=kind, message=message, actions=actions, loop=loop)
    return shrink(fresh(), violation, replay, seconds=_SHRINK_SECONDS)
