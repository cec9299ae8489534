"""The decode budget of disaggregated attention and experts (xDeepServe 7.1), with emulated A2E and E2A put in."""

from collections.abc import Mapping
from dataclasses import replace

from xccl_emu.bench import a2e, published
from xccl_emu.bench.a2e import ONE_DOMAIN, Call1, Deployment, time_call
from xccl_emu.bench.result import Result
from xccl_emu.bench.setting import DEFAULT, Setting

DOMAINS, MICROBATCHES = 3, 2
"""Domains of attention dies, and microbatches of each that take turns."""

TOKENS, CHIPS = DOMAINS * 160 * 96, 384
"""Global batch, and chips of 768 dies."""


def forward_ms(given: Mapping[str, float], a2e_ms: float, e2a_ms: float) -> float:
    """One iteration: scheduler, MTP layer, all layers, and the last microbatch's way through the experts.

    A layer takes the attention of both microbatches, behind which the other's way to the experts and back is hidden;
    where that takes longer, what sticks out counts in each layer.
    """
    attention = given["attention, of a microbatch and layer"]
    away = a2e_ms + given["MoE, of a microbatch and layer"] + e2a_ms
    layer = max(MICROBATCHES * attention, attention + away)
    return given["scheduler"] + given["MTP layer"] + given["layers"] * layer + away


def budget(given: Mapping[str, float], a2e_ms: float, e2a_ms: float) -> dict[str, float]:
    """Everything that follows from the two latencies, by the names of the published rows."""
    forward = forward_ms(given, a2e_ms, e2a_ms)
    tpot = forward / (1 + given["acceptance"])
    rate = TOKENS / CHIPS / tpot * 1000
    return {
        "A2E": a2e_ms, "E2A": e2a_ms, "forward": forward, "TPOT": tpot, "tokens a second and chip, at 50 ms": rate,
    }  # fmt: skip


def rows_of(one: Call1, deployment: Deployment) -> list[Result]:
    """The published budget, and what becomes of it with emulated A2E and E2A."""
    given = {row.what: row.value for row in published.rows("tpot", "input")}
    ours = budget(given, one.a2e_us / 1000, one.e2a_us / 1000)
    shape = deployment.shape
    rows = [Result.of(row, ours.get(row.what, row.value), configuration=shape) for row in published.rows("tpot")]
    slowest = max(one.a2e_us, one.e2a_us) / 1000 * DOMAINS * MICROBATCHES
    what = "a layer's calls of all domains through the slower stream"
    return [*rows, Result("tpot", what, slowest, "ms", configuration=shape)]


def tpot(setting: Setting = DEFAULT, deployment: Deployment = ONE_DOMAIN) -> list[Result]:
    """Time one call, and put it into the budget."""
    one = time_call(setting, deployment)
    wrong = {"A2E": one.wrong_rows, "E2A": one.wrong_sums}
    return [replace(row, wrong=wrong.get(row.what)) for row in rows_of(one, deployment)]


def tpot_and_a2e(setting: Setting = DEFAULT, deployment: Deployment = ONE_DOMAIN) -> list[Result]:
    """Time one call, for its own rows and for the budget."""
    one = time_call(setting, deployment)
    return [*a2e.rows_of(one, deployment), *rows_of(one, deployment)]
