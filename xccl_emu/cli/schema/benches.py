"""What commands print that measure or plan something."""

from typing import Annotated, Any, TypedDict

from xccl_emu import words as w
from xccl_emu.cli.schema.envelope import Envelope

Configuration = Annotated[dict[str, int | float | str | bool], w.CONFIGURATION]

# ---- bench, compare, plan and fit


class Row(TypedDict):
    """A measurement."""

    bench: Annotated[str, "name of the bench"]
    what: Annotated[str, "what was measured"]
    published: Annotated[float | None, "null if nothing was published"]
    emulated: Annotated[float | None, "null if the emulator has no such thing; `note` says why"]
    unit: Annotated[str, "unit of both"]
    role: Annotated[str, "what the published number may be used for"]
    relation: Annotated[str, "`=`, or `<` and `>` for a bound"]
    error_percent: Annotated[float | None, "signed: above 0 if the emulated value is larger"]
    met: Annotated[bool | None, "whether a bound holds, or an exact value came out"]
    wrong: w.Wrong
    configuration: Configuration
    source: Annotated[str, "where it was published"]
    note: Annotated[str, "what to know of the row"]
    kind: w.Kind
    beside: Annotated[dict[str, float], "what others measured, or what follows from it"]
    low: Annotated[float | None, "lower end of the 80% interval of `emulated`; null without `--band`"]
    high: Annotated[float | None, "upper end of it"]


class Score(TypedDict):
    """How far the rows of a role are off."""

    of: Annotated[str, "`emulated`, or the name of a baseline"]
    role: Annotated[str, "what the published number may be used for"]
    n_rows: Annotated[int, "rows that were scored"]
    mape_percent: Annotated[float, "mean absolute error"]
    max_percent: Annotated[float, "largest error, signed"]
    worst: Annotated[str, "the row that has it"]
    inside: Annotated[int | None, "rows whose published number is in the interval; null without `--band`"]


class TableScore(Score):
    """How far the check rows of a bench are off that have a line to compare with."""

    table: Annotated[str, "name of the bench, or `all of these`"]


class Rows(Envelope):
    """Rows and their scores."""

    results: list[Row]
    scores: list[Score]
    tables: Annotated[list[TableScore], "what is emulated and the line, on the same rows"]
    wrong: w.Wrong
    failed: Annotated[bool, "whether data is wrong, or an exact row differs"]


class Bench(Rows):
    """`xccl-emu bench`."""

    seed: w.Seed
    data: Annotated[bool, "whether payload was moved and compared"]
    stopped: w.Stopped
    moved: Annotated[list[str], "rows that moved from `--against`, a line each"]


class Traffic(TypedDict):
    """What dies of one role asked of other dies: [mean, most] of a die."""

    protocol: w.Protocol
    part: Annotated[str, "the operator, or the role of the dies"]
    n_dies: Annotated[int, "dies of the role"]
    writes: Annotated[list[float], "by mtu-out and DMA"]
    flags: Annotated[list[float], "writes of at most a granule"]
    reads: Annotated[list[float], "by mtu-in, DMA and scalar loads"]
    write_bytes: Annotated[list[float], "bytes of writes and flags"]
    read_bytes: Annotated[list[float], "bytes of reads"]
    dies_written: Annotated[list[float], "different dies that are written to"]
    dies_read: Annotated[list[float], "different dies that are read"]
    managed_bytes: Annotated[int, "reserved on a die"]
    meta_bytes: Annotated[int, "reserved on a die"]


class Compare(Envelope):
    """`xccl-emu compare`."""

    configuration: Configuration
    results: list[Traffic]
    wrong: w.Wrong


class Workload(TypedDict):
    """Requests that a plan is for."""

    rate: Annotated[float, "requests a second"]
    input: Annotated[int, "tokens of a prompt"]
    output: Annotated[int, "tokens of an answer"]
    context: Annotated[int, "tokens that memory must have room for"]


class Memory(TypedDict):
    """Bytes of one device."""

    attention_bytes: Annotated[float, "weights of attention"]
    experts_bytes: Annotated[float, "weights of experts"]
    cache_bytes: Annotated[float, "keys and values"]


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
    memory: Memory
    load: Annotated[float, "share of what the strategy can serve"]
    load_unit: Annotated[str, "what `load` counts, such as `requests`"]
    saturated: Annotated[bool, "whether requests come faster than they are served"]
    loses_by: Annotated[str, "the term by which it loses most against the best"]
    loses_s: Annotated[float, "by how much"]
    prefill_terms_s: Annotated[dict[str, float], "each term of a prefill"]
    decode_terms_s: Annotated[dict[str, float], "each term of a token after it"]


class Observation(TypedDict):
    """A measurement of `--observed`, and what the equations say with the constants that fit best."""

    kind: Annotated[str, "`intra` and `inter` of links, or `computing`"]
    what: Annotated[str, "what was measured"]
    us: Annotated[float, "microseconds, measured"]
    fitted_us: Annotated[float, "microseconds by the equations"]
    off_percent: Annotated[float, "signed: above 0 if the equations say more"]


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
    workload: Workload
    by: Annotated[str, "what strategies are ranked by"]
    ranked: list[Strategy]
    refused: list[Strategy]
    observed: list[Observation]
    cluster_constants: Annotated[dict[str, Any], "fields of the cluster, as its file has them, or fitted"]
    weights: Annotated[Part | None, "for `--device`"]
    chosen: Annotated[Strategy | None, "for `--strategy`"]
    reason: Annotated[str, "why the best is better"]
    outcome: Annotated[str, "why the exit code is 1; empty if it is not"]


class PlanPublished(Rows):
    """`xccl-emu plan --published`."""

    form: Annotated[str, "which equations: corrected or literal"]
    batch: Annotated[int, "requests at once"]
    workload: Workload


class Fit(Envelope):
    """`xccl-emu fit`."""

    constants: Annotated[dict[str, float], "fitted constants; units are in their names"]
    intervals: Annotated[dict[str, list[float]], "how far each may be before a row is off by 3%"]
    sensitivity: Annotated[dict[str, dict[str, float]], "percent of a row per percent of a constant"]
    results: list[Row]
    evaluations: Annotated[int, "how often all rows were run"]
    mape_percent: Annotated[float, "mean absolute error"]
