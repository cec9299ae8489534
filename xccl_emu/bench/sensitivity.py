"""How far results move when a constant that no published row determines moves over the range that is plausible for it.

Each assumed constant of `Costs` is set to the ends of its range, all others left alone, and the same kernels run again
in virtual time, without payload.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from xccl_emu.bench import sendrecv
from xccl_emu.bench.a2e import ONE_DOMAIN, time_call
from xccl_emu.bench.fused import TOKENS, FusedLayer
from xccl_emu.bench.layers import Layer, time_layer
from xccl_emu.bench.processes import Job
from xccl_emu.bench.result import Result
from xccl_emu.bench.setting import Setting
from xccl_emu.machine.spec import KIB
from xccl_emu.timing.costs import ASSUMED, Costs

FUSED, PULL = Layer(ranks=64, tokens=TOKENS), Layer(ranks=128, tokens=64)
"""What of Table 7 and of Figure 6 is run."""

SENT_BYTES, SENT_CORES = 512 * KIB, 2
"""What of Figure 5 is."""

_RUN_BYTES = 4 << 30
"""That one run touches at most."""


@dataclass(frozen=True)
class End:
    """An end of a constant's range; without a constant, everything as it is."""

    constant: str = ""
    value: float = 0.0


def ends() -> list[End]:
    """Both ends of the range of each assumed constant, but for those at which it already is."""
    assumed = [constant for constant in fields(Costs) if constant.metadata["kind"] == ASSUMED]
    both = ((constant, end) for constant in assumed for end in constant.metadata["range"])
    return [End(constant.name, float(end)) for constant, end in both if end != constant.default]


def latencies(end: End, seed: int) -> dict[str, float]:
    """Microseconds of an operator of each protocol with a cost at an end of its range."""
    costs = replace(Costs(), **{end.constant: end.value}) if end.constant else Costs()
    setting = Setting(costs=costs, seed=seed, data=False)
    layer = FusedLayer(setting, FUSED)
    fused = layer.run(costs)
    del layer  # its pod, before the next
    pull, call = time_layer(setting, PULL), time_call(setting, ONE_DOMAIN)
    sweep = sendrecv.Sweep(sizes=(SENT_BYTES,), cores=(SENT_CORES,))
    (sent,) = sendrecv.measure(sweep, setting)
    return {
        f"send/recv {SENT_BYTES // KIB} KB on {SENT_CORES} cores": float(sent.emulated or 0),
        f"fused dispatch EP{FUSED.ranks}": fused.dispatch_us, f"fused combine EP{FUSED.ranks}": fused.combine_us,
        f"dispatch EP{PULL.ranks}, batch {PULL.tokens}": setting.operator_us(pull.dispatch),
        f"combine EP{PULL.ranks}, batch {PULL.tokens}": setting.operator_us(pull.combine),
        "A2E": call.a2e_us, "E2A": call.e2a_us,
    }  # fmt: skip


def jobs(seed: int) -> list[Job[Any]]:
    """The latencies as they are, and those with each constant at each end."""
    return [Job(f"{end.constant} {end.value:g}", partial(latencies, end, seed), _RUN_BYTES) for end in (End(), *ends())]


def results_of(done: Iterable[tuple[int, Any]]) -> list[Result]:
    """What jobs found, by number: percent that each result moves, of what it is."""
    base, *moved = (found for _, found in sorted(done, key=lambda one: one[0]))
    rows = [_moved(end, base, found) for end, found in zip(ends(), moved, strict=True)]
    return [row for each in rows for row in each]


def _moved(end: End, base: Mapping[str, float], found: Mapping[str, float]) -> list[Result]:
    default = float(getattr(Costs(), end.constant))
    return [
        Result("sensitivity", f"{what}: {end.constant} {default:g} -> {end.value:g}", 100 * (found[what] / us - 1), "%",
               configuration={"result": what, "latency_us": us, "constant": end.constant, "value": end.value})
        for what, us in base.items()
    ]  # fmt: skip
