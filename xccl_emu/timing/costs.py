"""What everything that a core does costs: the constants of the model, each with its unit, source and range.

A constant is an *input* (published, put in as it is), *fitted* (to the rows marked so, by `xccl_emu.timing.fit`), or
*assumed*: no published row determines it; its range says what is plausible, and reports say what the results do over
that range.
"""

import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from importlib.resources import files
from typing import Any

from xccl_emu.base.errors import ConfigError
from xccl_emu.machine.device.layout import N_DMA_SLOTS

INPUT, FITTED, ASSUMED = "input", "fitted", "assumed"

PASSES = {
    "v_quantize": 4.0, "v_dequantize": 2.0, "v_copy": 0.5, "v_fill": 0.25, "v_widen": 1.5, "v_axpy": 3.0, "v_add": 2.5,
    "v_scale": 2.0, "v_narrow": 1.5, "v_count": 6.0,
}  # fmt: skip
"""How often an operation goes through the vector pipe: its instructions, those on FP32 counted double (an assumption:
amax, multiply and three casts for quantization; two comparisons and a sum for counting)."""


def _constant(default: float, kind: str, source: str, low: float | None = None, high: float | None = None) -> Any:
    """A field with where its value comes from and the range in which it is plausible."""
    return field(default=default, metadata={"kind": kind, "source": source, "range": (low, high)})


ENGINES_MAX = 8
"""DMA engines of a die."""

REPORT = tomllib.loads(files("xccl_emu.timing").joinpath("fitted.toml").read_text("utf-8"))
"""The report of the last fit."""


def _fitted(name: str, source: str, low: float, high: float) -> Any:
    """A field whose value the last fit has found (`fitted.toml`, with its report)."""
    return _constant(REPORT["constants"][name], FITTED, source, low, high)


@dataclass(frozen=True)
class Costs:
    """Constants of one core and one die; times in nanoseconds, rates in 10^9 bytes or elements a second."""

    clock_ns: float = _constant(0.54, ASSUMED, "scalar unit at about 1.85 GHz", 0.5, 0.7)
    """One cycle of the scalar unit."""
    issue_cycles: float = _constant(5.0, ASSUMED, "a short instruction and its operands; Table 7 says little", 2, 20)
    """Scalar cycles that a request takes, whatever it is."""
    load_ns: float = _constant(30, ASSUMED, "mostly hits in the data cache; a miss goes to HBM", 5, 300)
    """Scalar load or store in the own die's memory."""
    poll_ns: float = _constant(250, ASSUMED, "half of a polling period and the read that sees the flag", 100, 800)
    """From the moment that a flag is visible to the poller's next instruction."""
    quiet_ns: float = _constant(100, ASSUMED, "draining write buffers when all is already visible", 20, 500)
    """Time of a quiet, beyond what it waits for."""
    fence_ns: float = _constant(15, ASSUMED, "as an event between two pipes; up to a round trip", 5, 2600)
    """Time of a fence on the pipe of mtu-out, beyond what it waits for."""
    ack_share: float = _constant(1.0, ASSUMED, "back as long as there; 0 if Table 1's writes are acknowledged", 0, 1)
    """From when a write is visible to its acknowledgement, for which quiets and fences wait, over its latency."""
    event_ns: float = _constant(15, ASSUMED, "set_flag to wait_flag between two pipes", 5, 50)
    """From set_flag to the instruction after the wait."""
    skew_us: float = _fitted("skew_us", "Table 7: dispatch waits for the last rank, combine follows dispatch", 0, 60)
    """Standard deviation of ranks' arrivals at an operator (`xccl_emu.timing.arrival`)."""
    launch_us: float = _fitted("launch_us", "Table 7: of both operators", 0, 60)
    """From the operator's start to its kernel's first instruction, and from its last to the operator's end."""
    mtu_start_ns: float = _constant(40, ASSUMED, "decoding a transfer; later ones follow in the pipe", 10, 200)
    """Time of every transfer of mtu-in and mtu-out, on the pipe."""
    core_gb_s: float = _constant(1600 / 48, ASSUMED, "one core's share of the die's memory bandwidth", 20, 60)
    """What one core's mtu-in or mtu-out moves, whatever the path."""
    vector_start_ns: float = _constant(20, ASSUMED, "filling the vector pipe", 5, 60)
    """Time of every vector instruction."""
    vector_gelem_s: float = _constant(100.0, ASSUMED, "128 bytes a cycle: 64 elements of two bytes", 40, 240)
    """Elements of one pass of the vector pipe; an operation takes as many passes as `PASSES` says."""
    dma_start_us: float = _constant(0.9, ASSUMED, "HIXL in one machine: what small blocks take in a row", 0.1, 1.0)
    """Time of each DMA descriptor, on the engine that all cores of a die share."""
    dma_less_us: float = _fitted("dma_less_us", "HIXL: blocks of 1 MiB, one after the other", 0, 1)
    """What of a read's latency is the core's part: a descriptor takes two round trips without it, or its start."""
    dma_gb_s: float = _constant(181.6, INPUT, "slope of MemFabric's copies by SDMA to the sibling die")
    """What the descriptors of one core move, one after the other."""
    dma_in_flight: float = _constant(1, ASSUMED, "HIXL between dies: each waits; in one machine they overlap", 1, 8)
    """Descriptors of a core that are under way at once: a whole number."""
    dma_issue_ns: float = _constant(100, ASSUMED, "writing a descriptor and the doorbell; 3400 on a host", 30, 3400)
    """Time of ringing a DMA descriptor, on the scalar unit."""

    dma_engines: float = _constant(1, ASSUMED, "\"the DMA engine\" of xDeepServe 3.3; HIXL's rows have one core", 1, 8)
    """DMA engines of a die; each starts descriptors by itself: a whole number."""

    def __post_init__(self) -> None:
        for constant in fields(self):
            value = getattr(self, constant.name)
            if not isinstance(value, int | float) or not 0 <= value < 1e9:
                raise ConfigError(constant.name, value, "must be a number, at least 0")
        for name in ("core_gb_s", "vector_gelem_s", "dma_gb_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(name, getattr(self, name), "must be above 0")
        for name, most in (("dma_engines", ENGINES_MAX), ("dma_in_flight", N_DMA_SLOTS)):
            if getattr(self, name) not in range(1, most + 1):
                raise ConfigError(name, getattr(self, name), f"must be a whole number, 1 to {most}")

    def barrier_us(self, local_us: float) -> float:
        """From the last arrival at a core group's barrier to everybody's next instruction: a flag to one core and one
        back, each a store, the way to the die's memory, of a write of ``local_us``, and a poll."""
        return 2 * (local_us + (self.load_ns + self.poll_ns) / 1000)


def ranges() -> dict[str, tuple[float, float]]:
    """Return the range of each assumed constant, and how far the others may be by the report of their fit."""
    by = {each.name: each.metadata for each in fields(Costs)}
    assumed = {name: of["range"] for name, of in by.items() if of["kind"] == ASSUMED}
    return assumed | {name: tuple(ends) for name, ends in REPORT["intervals"].items() if by[name]["kind"] == FITTED}


def ends(costs: Costs) -> dict[tuple[str, float], Costs]:
    """Costs with one constant at an end of its range, by the constant and the end.

    Omitted are ends at which a constant is already, and constants that somebody has set.
    """
    usual = Costs()
    both = ((name, float(end)) for name, of in ranges().items() for end in of)
    return {
        (name, end): replace(costs, **{name: end})
        for name, end in both if getattr(costs, name) == getattr(usual, name) != end
    }  # fmt: skip


def in_squares(moves: Iterable[float]) -> tuple[float, float]:
    """Moves down and moves up, each added in squares: the first at most 0, the second at least 0."""
    known = [*moves]
    down, up = (math.sqrt(math.fsum(min(0.0, sign * move) ** 2 for move in known)) for sign in (1, -1))
    return -down, up
