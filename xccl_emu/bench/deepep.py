"""The layer of Table 7 by DeepEP's low-latency protocol: what another protocol takes on the same dies.

Beside it stands what the paper has of FusedDispatch and FusedCombine on these dies, and of DeepEP on its own hardware.
Nothing was published of DeepEP on this one, so no row is scored.  The layer, routing, arrivals and cores are those of
`bench fused`, the shared expert's message, the ninth, too; DeepEP's own tests have eight.
"""

from xccl_emu.bench import published
from xccl_emu.bench.fused import TOKENS, FusedLayer, degree_of
from xccl_emu.bench.layers import Layer
from xccl_emu.bench.result import Result
from xccl_emu.bench.setting import Setting


def deepep(setting: Setting) -> list[Result]:
    """Latencies of both operators at each EP degree of the table."""
    latencies = [row for row in published.rows("fused") if row.unit == "us"]
    h800 = {row.what: row.value for row in published.rows("fused_h800")}
    results = []
    for ranks in sorted({degree_of(row) for row in latencies}):
        shape = Layer(ranks, TOKENS)
        layer = FusedLayer(setting, shape, "deepep-ll")
        times, wrong = layer.run(setting.costs), dict(zip(("dispatch", "combine"), layer.count_wrong(), strict=True))
        for row in (row for row in latencies if degree_of(row) == ranks):
            operator = row.what.split()[0]
            results.append(
                Result(
                    "deepep", row.what, getattr(times, f"{operator}_us"), "us", kind=row.kind, wrong=wrong[operator],
                    configuration={**shape.shape, "routing": "balanced"},
                    beside={"fused, published": row.value, "H800": h800[row.what]},
                )
            )  # fmt: skip
        del layer
    return results
