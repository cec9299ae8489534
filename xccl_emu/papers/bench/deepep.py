"""DeepEP's low-latency protocol: on the dies of the pod, and on the machine that it was written for.

On the pod it runs the layer of Table 7, with routing, arrivals and cores of `bench fused`, the shared expert's message,
the ninth, too.  With it is what the paper has of FusedDispatch and FusedCombine on these dies, and of DeepEP on
the H800.  Nothing was published of DeepEP on this pod, so no row is scored.

On another fabric it runs DeepEP's own test: eight messages a token, FP8 with a scale per 128 elements in dispatch,
uniform routing, all ranks at once.  On the fabric called H800 DeepEP's own table is shown too, which nothing was
fitted to.
"""

from collections.abc import Iterator

import numpy as np

from xccl_emu import routing
from xccl_emu.papers.bench import baseline, published
from xccl_emu.papers.bench.fused import MESSAGE_BYTES, TOKENS, degree_of, table
from xccl_emu.papers.bench.layers import Kept, Layer, OnPod, Timed
from xccl_emu.papers.bench.published import Published
from xccl_emu.papers.bench.result import Result, Wire
from xccl_emu.papers.bench.setting import Setting


def deepep(setting: Setting) -> Iterator[Result]:
    """Latencies of both operators at each EP degree of the table."""
    return on_pod(setting) if setting.fabric.name == Published.machine else elsewhere(setting)


def on_pod(setting: Setting) -> Iterator[Result]:
    """The layer of Table 7, with nothing to be scored."""
    h800 = {row.what: row.value for row in published.rows("fused_h800")}
    for row, shape, us, wrong in table(setting, "deepep-ll"):
        beside = {"fused, published": row.value, "H800": h800[row.what]}
        yield Result("deepep", row.what, us, "us", kind=row.kind, configuration=shape, wrong=wrong, extra=beside)


def elsewhere(setting: Setting) -> Iterator[Result]:
    """DeepEP's own test on another fabric."""
    table, kept = published.rows("deepep_h800"), Kept()

    def rows(ranks: int) -> Iterator[Result]:
        layer = Layer(ranks, TOKENS)
        timed, shape = time_test(setting, layer, kept), layer.shape | setting.fabric_words
        for operator, taken, wrong in timed.operators:
            nbytes = layer.tokens * layer.top_k * MESSAGE_BYTES[operator]
            wire = Wire(operator, baseline.spread_us(setting.fabric, ranks, nbytes))
            for row in table:
                if row.what.startswith(f"{operator} EP{ranks} "):
                    us = setting.operator_us(taken)
                    yield Result.of(row, us, bench="deepep", wrong=wrong, configuration=shape, wire=wire)

    return setting.each(dict.fromkeys(map(degree_of, table)), rows)


def time_test(setting: Setting, layer: Layer, kept: Kept | None = None) -> Timed:
    """A layer without a shared expert: dispatch of ranks that begin together, and combine, as that left them."""
    rng = np.random.default_rng((setting.seed, 1))
    drawn = routing.draw_routing(np.ones(layer.experts), layer.ranks, layer.tokens, layer.top_k, rng, layer.loads)
    on = OnPod(
        setting, layer, layer.experts // layer.ranks, "deepep-ll",
        top_k=layer.top_k, shared=False, quantizer="fp8", kept=kept,
    )  # fmt: skip
    dispatch = on.dispatch(drawn.topk, np.zeros(layer.ranks))
    combine = on.combine(drawn.weights, dispatch.ends_us - dispatch.ends_us.min())
    return Timed(dispatch, combine, *on.count_wrong(drawn.topk, drawn.weights))
