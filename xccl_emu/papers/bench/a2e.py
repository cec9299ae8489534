"""A2E and E2A ([xDeepServe] 3.3) as they were published, of three domains; and a call by itself, in other ways too."""

from collections.abc import Mapping
from dataclasses import replace

from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.a2e_call import ONE_DOMAIN, A2EDeployment, Call1, time_call
from xccl_emu.papers.bench.a2e_domains import Layers, time_layers
from xccl_emu.papers.bench.result import Result
from xccl_emu.papers.bench.setting import DEFAULT, Setting

ALONE = "of one domain alone"

OTHERS = {
    "in one part": replace(ONE_DOMAIN, a2e_parts=1, e2a_parts=1),
    "by URMA": replace(ONE_DOMAIN, path="urma"),
    "by URMA, in one part": replace(ONE_DOMAIN, path="urma", a2e_parts=1, e2a_parts=1),
}
"""A call by itself in other ways."""

ENGINES = ((2, 1), (8, 1), (8, 8))
"""DMA engines of a die, and descriptors of a core under way, with which URMA is timed as well: no paper says how many.
HIXL's copies, which wait for each, are by SDMA and of one core, so they say nothing of either."""


def rows_of(one: Call1, ran: Layers, deployment: A2EDeployment) -> list[Result]:
    """Both while calls of other domains are under way, with what was published; and a call by itself."""
    pairs = zip(published.rows("a2e"), (ran.a2e_us, ran.e2a_us), strict=True)
    shape = deployment.shape
    return [
        *(Result.of(row, us, configuration=shape | ran.shape) for row, us in pairs),
        *_rows_of_call(one, ALONE, deployment),
        Result("a2e", "dummy expert between them", one.compute_us, "us", configuration=shape),
    ]


def _rows_of_call(one: Call1, name: str, deployment: A2EDeployment) -> list[Result]:
    both = (("A2E", one.a2e_us, one.wrong_rows), ("E2A", one.e2a_us, one.wrong_sums))
    return [
        Result("a2e", f"{what} {name}", us, "us", configuration=deployment.shape, wrong=wrong)
        for what, us, wrong in both
    ]


def rows_beside(setting: Setting = DEFAULT, others: Mapping[str, A2EDeployment] = OTHERS) -> list[Result]:
    """A call by itself in other ways, for which nothing was published."""
    named = {name: (setting, deployment) for name, deployment in others.items()}
    for n, under_way in ENGINES if others is OTHERS else ():
        more = replace(setting, costs=replace(setting.costs, dma_engines=n, dma_in_flight=under_way))
        words = f", {under_way} descriptors of a core under way" * (under_way > 1)
        named[f"by URMA, {n} engines a die{words}"] = more, OTHERS["by URMA"]
    return [
        row
        for name, (where, deployment) in named.items()
        for row in _rows_of_call(time_call(where, deployment), name, deployment)
    ]


def a2e(setting: Setting = DEFAULT, deployment: A2EDeployment = ONE_DOMAIN) -> list[Result]:
    """Time one call, layers of all domains, and one call in each of the other ways."""
    one = time_call(setting, deployment)
    return [*rows_of(one, time_layers(one, setting, deployment), deployment), *rows_beside(setting)]
