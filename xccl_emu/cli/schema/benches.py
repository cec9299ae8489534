"""What commands print that measure or plan something."""

from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

from xccl_emu import words as w
from xccl_emu.bench.result import Result, Rows
from xccl_emu.cli.schema.envelope import Envelope
from xccl_emu.plan.memory import DeviceBytes
from xccl_emu.plan.observed import FittedObservation
from xccl_emu.plan.strategies import RequestStream
from xccl_emu.words import INLINE, Printed

# ---- bench, compare, plan and fit


@dataclass
class Bench(Printed):
    """`xccl-emu bench`."""

    seed: w.Seed
    data: Annotated[bool, "whether payload was moved and compared"]
    stopped: w.Stopped
    moved: Annotated[list[str], "rows that moved from `--against`, a line each"]
    rows: Annotated[Rows, INLINE]


class Strategy(TypedDict):
    """What the equations say of a strategy."""

    strategy: Annotated[str, "attention, experts [stages]"]
    refusal: Annotated[str, "why it cannot be; empty if it can"]
    ttft_s: Annotated[float | None, "time to the first token; null where there is no bound on it"]
    prefill_s: Annotated[float, "time of a prefill, without waiting"]
    wait_s: Annotated[float | None, "time in the queue; null where there is no bound on it"]
    itl_s: Annotated[float, "time between tokens"]
    tokens_per_s: Annotated[float, "throughput"]
    memory_bytes: Annotated[float, "memory of a device"]
    memory: DeviceBytes
    load: Annotated[float, "share of what the strategy can serve"]
    load_unit: Annotated[str, "what `load` counts, such as `requests`"]
    saturated: Annotated[bool, "whether requests come faster than they are served"]
    loses_by: Annotated[str, "the term by which it loses most against the best"]
    loses_s: Annotated[float, "by how much"]
    prefill_terms_s: Annotated[dict[str, float], "each term of a prefill"]
    decode_terms_s: Annotated[dict[str, float], "each term of a token after it"]


class Part(TypedDict):
    """Weights that a device has."""

    layers: Annotated[list[int], "first, and one after the last"]
    experts: Annotated[list[int], "routed ones: first, and one after the last"]
    requests: Annotated[int, "DP rank: which share of the requests its attention is for"]
    cuts: Annotated[dict[str, dict[str, str]], "rows and columns of matrices of attention, an expert, a dense layer"]


class Plan(Envelope):
    """`xccl-emu plan`."""

    model: Annotated[str, "name of the model"]
    cluster: Annotated[str, "name of the cluster"]
    form: Annotated[str, "which equations: corrected or literal"]
    batch: Annotated[int, "requests at once"]
    overlapped: Annotated[bool, "whether transfers overlap, as without `--sync`"]
    dropping: Annotated[bool, "whether `--drop` was given"]
    workload: RequestStream
    by: Annotated[str, "what strategies are ranked by"]
    ranked: list[Strategy]
    refused: list[Strategy]
    observed: list[FittedObservation]
    cluster_constants: Annotated[dict[str, Any], "fields of the cluster, as its file has them, or fitted"]
    weights: Annotated[Part | None, "for `--device`"]
    chosen: Annotated[Strategy | None, "for `--strategy`"]
    reason: Annotated[str, "why the best is better"]
    outcome: Annotated[str, "why the exit code is 1; empty if it is not"]


@dataclass
class PlanPublished(Printed):
    """`xccl-emu plan --published`."""

    form: Annotated[str, "which equations: corrected or literal"]
    batch: Annotated[int, "requests at once"]
    workload: Annotated[RequestStream, "requests that a plan is for"]
    rows: Annotated[Rows, INLINE]


@dataclass
class Fit(Printed):
    """`xccl-emu fit`."""

    constants: Annotated[dict[str, float], "fitted constants; units are in their names"]
    intervals: Annotated[dict[str, list[float]], "how far each may be before a row is off by 3%"]
    sensitivity: Annotated[dict[str, dict[str, float]], "percent of a row per percent of a constant"]
    evaluations: Annotated[int, "how often all rows were run"]
    results: Annotated[list[Result], "the rows"]
    mape_percent: Annotated[float, "mean absolute error"]
