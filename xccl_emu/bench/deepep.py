"""The layer of Table 7 by DeepEP's low-latency protocol: what another protocol takes on the same dies.

Beside it stands what the paper has of FusedDispatch and FusedCombine on these dies, and of DeepEP on its own hardware.
Nothing was published of DeepEP on this one, so no row is scored.  The layer, routing, arrivals and cores are those of
`bench fused`, the shared expert's message, the ninth, too; DeepEP's own tests have eight.
"""

from xccl_emu.bench import published
from xccl_emu.bench.fused import table
from xccl_emu.bench.result import Result
from xccl_emu.bench.setting import Setting


def deepep(setting: Setting) -> list[Result]:
    """Latencies of both operators at each EP degree of the table."""
    h800 = {row.what: row.value for row in published.rows("fused_h800")}
    return [
        Result(
            "deepep", row.what, us, "us", kind=row.kind, configuration=shape, wrong=wrong,
            beside={"fused, published": row.value, "H800": h800[row.what]},
        )
        for row, shape, us, wrong in table(setting, "deepep-ll")
    ]  # fmt: skip
