"""The decode budget of disaggregated attention and experts ([xDeepServe] 5.2, 7.1), of layers that are run."""

from collections.abc import Mapping
from dataclasses import replace

from xccl_emu.papers.bench import a2e, published
from xccl_emu.papers.bench.a2e_call import ONE_DOMAIN, A2EDeployment, time_call
from xccl_emu.papers.bench.a2e_domains import DOMAINS, Layers, time_layers
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import DEFAULT, Setting

TOKENS, CHIPS = DOMAINS * 160 * 96, 384
"""Global batch, and chips of 768 dies."""


def budget(given: Mapping[str, float], ran: Layers) -> dict[str, float]:
    """Return what follows from what was run, by the names of the published rows."""
    forward = given["scheduler"] + given["MTP layer"] + ran.all_ms(given["layers"])
    tpot = forward / (1 + given["acceptance"])
    rate = TOKENS / CHIPS / tpot * 1000
    return {
        "A2E": ran.a2e_us / 1000, "E2A": ran.e2a_us / 1000, "forward": forward, "TPOT": tpot,
        "tokens a second and chip, at 50 ms": rate,
    }  # fmt: skip


def rows_of(ran: Layers, deployment: A2EDeployment) -> list[Result]:
    """The published budget, and what becomes of it with what was run."""
    given = {row.what: row.value for row in published.rows("tpot", "input")}
    ours, shape = budget(given, ran), deployment.shape | ran.shape
    each = Result("tpot", "a layer of all microbatches, run", ran.each_us / 1000, "ms", configuration=shape)
    rows = published.rows("tpot")
    return [*(Result.of(row, ours.get(row.what, row.value), configuration=shape) for row in rows), each]


def tpot(setting: Setting = DEFAULT, deployment: A2EDeployment = ONE_DOMAIN) -> list[Result]:
    """Time one call, without payload, for what the dummy expert takes; then layers of all domains."""
    one = time_call(replace(setting, data=False), deployment)
    return rows_of(time_layers(one, setting, deployment), deployment)


def a2e_and_tpot(setting: Setting = DEFAULT, deployment: A2EDeployment = ONE_DOMAIN) -> list[Result]:
    """The rows of A2E and of the budget, of one run of the call and of the layers."""
    one = time_call(setting, deployment)
    ran = time_layers(one, setting, deployment)
    return [*a2e.rows_of(one, ran, deployment), *rows_of(ran, deployment)]
