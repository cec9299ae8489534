"""How far results move when a constant that no published row determines moves over the range that is plausible for it.

Each assumed constant of `Costs` is set to the ends of its range, all others left alone, and the same kernels run again
in virtual time, without payload.  So is what no paper says of the kernels: how many cores work, and how they count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from xccl_emu.base.jobs import Job
from xccl_emu.base.stage import silent
from xccl_emu.machine.spec import KIB
from xccl_emu.papers.bench import sendrecv
from xccl_emu.papers.bench.a2e_call import ONE_DOMAIN, time_call
from xccl_emu.papers.bench.fused import TOKENS, FusedLayer
from xccl_emu.papers.bench.layers import Layer, time_layer
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import Setting
from xccl_emu.timing.costs import ASSUMED, Costs

FUSED, PULL = Layer(ranks=64, tokens=TOKENS), Layer(ranks=128, tokens=64)
"""What of Table 7 and of Figure 6 is run."""

SENT_BYTES, SENT_CORES = 512 * KIB, 2
"""What of Figure 5 is."""

SWITCHES: Mapping[str, float | str] = {"cores": 16, "counting": "scalar"}
"""Fields of `Layer` that are moved as well: one of two streams of decode has 16 of the 48 cores (CloudMatrix384 4.2.3),
and counting in the vector pipe is by an instruction of ours."""

_RUN_BYTES = 4 << 30
"""Memory that one run touches at most."""


@dataclass(frozen=True)
class End:
    """An end of a constant's range, or what a switch is set to; without a name, everything as it is."""

    constant: str = ""
    value: float | str = 0.0

    def costs(self, usual: Costs) -> Costs:
        """Return the costs with the constant at this end, if it is one."""
        return replace(usual, **({} if self.constant in ("", *SWITCHES) else {self.constant: self.value}))  # type: ignore[arg-type]

    @property
    def switched(self) -> dict[str, Any]:
        """The fields of `Layer` that it sets."""
        return {self.constant: self.value} if self.constant in SWITCHES else {}

    @property
    def usual(self) -> float | str:
        """Return what it has in place of the value."""
        usual: float | str = getattr(FUSED if self.switched else Costs(), self.constant)
        return usual


def ends() -> list[End]:
    """Both ends of the range of each assumed constant, but for those at which it already is; and the switches."""
    assumed = [constant for constant in fields(Costs) if constant.metadata["kind"] == ASSUMED]
    both = ((constant, end) for constant in assumed for end in constant.metadata["range"])
    moved = [End(constant.name, float(end)) for constant, end in both if end != constant.default]
    return [*moved, *(End(name, value) for name, value in SWITCHES.items())]


def latencies(end: End, setting: Setting) -> dict[str, float]:
    """Microseconds of an operator of each protocol with a cost at an end of its range, or a switch set."""
    setting = replace(setting, costs=end.costs(setting.costs))
    fused = FusedLayer(setting, replace(FUSED, **end.switched)).run(setting.costs)
    pull = time_layer(setting, replace(PULL, **end.switched))
    call = time_call(setting, replace(ONE_DOMAIN, cores=end.switched.get("cores", ONE_DOMAIN.cores)))
    sweep = sendrecv.Sweep(sizes=(SENT_BYTES,), cores=(SENT_CORES,))
    (sent,) = sendrecv.measure(sweep, setting)
    return {
        f"send/recv {SENT_BYTES // KIB} KB on {SENT_CORES} cores": float(sent.emulated or 0),
        f"fused dispatch EP{FUSED.ranks}": setting.operator_us(fused.dispatch),
        f"fused combine EP{FUSED.ranks}": setting.operator_us(fused.combine),
        f"dispatch EP{PULL.ranks}, batch {PULL.tokens}": setting.operator_us(pull.dispatch),
        f"combine EP{PULL.ranks}, batch {PULL.tokens}": setting.operator_us(pull.combine),
        "A2E": call.a2e_us, "E2A": call.e2a_us,
    }  # fmt: skip


def jobs(setting: Setting) -> list[Job[Any]]:
    """The latencies as they are, and those with each constant at each end."""
    bare = replace(setting, stage=silent, data=False)
    return [Job(f"{end.constant} {end.value}", partial(latencies, end, bare), _RUN_BYTES) for end in (End(), *ends())]


def results_of(found: Mapping[int, Any]) -> list[Result]:
    """Return percent that each result moves, of what jobs found by number; nothing without the results as they are."""
    moved = [(end, found[number]) for number, end in enumerate(ends(), start=1) if number in found and 0 in found]
    return [row for end, each in moved for row in _moved(end, found[0], each)]


def _moved(end: End, base: Mapping[str, float], found: Mapping[str, float]) -> list[Result]:
    return [
        Result("sensitivity", f"{what}: {end.constant} {end.usual} -> {end.value}", 100 * (found[what] / us - 1), "%",
               configuration={"result": what, "latency_us": us, "constant": end.constant, "value": end.value})
        for what, us in base.items()
    ]  # fmt: skip
