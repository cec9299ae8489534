"""Published tables that are arithmetic on inputs: nothing is run, and nothing but a misprint can differ.

[CloudMatrix384] Table 5: tokens a second and NPU are batch over TPOT.  Table 11: a node has 7 planes of 16 uplinks, and
a logical switch two chips of 48 ports.  [xDeepServe] 7.1: two dies of 60 requests at 50 ms a token.
"""

from xccl_emu.bench import published
from xccl_emu.bench.result import Result
from xccl_emu.bench.setting import DEFAULT, Setting

UPLINKS, PORTS = 7 * 16, 2 * 48
TABLE_5 = {"1K + 1K, 50 ms": (128, 46.8), "2K + 256, 50 ms": (112, 47.4), "4K + 256, 50 ms": (96, 49.4),
           "4K + 256, 30 ms": (24, 24.6), "4K + 256, 15 ms": (8, 14.9)}  # fmt: skip
"""Requests of an NPU, and milliseconds a token."""
TABLE_11 = {384: (48, 56), 352: (44, 56), 288: (36, 42), 256: (32, 42), 192: (24, 28)}
"""By NPUs: nodes and logical switches."""


def tables(setting: Setting = DEFAULT) -> list[Result]:
    """Each row as the formula gives it; where digits are printed they must come out."""
    made = {f"throughput, {what}": 1000 * batch / tpot for what, (batch, tpot) in TABLE_5.items()}
    made |= {
        f"switches in use, {npus} NPUs": float(round(100 * nodes * UPLINKS / (switches * PORTS)))
        for npus, (nodes, switches) in TABLE_11.items()
    }
    made |= {"a chip at 50 ms": 2 * 60 * 1000 / 50, "288 dies at 50 ms, thousands": 288 * 60 * 1000 / 50 // 1000}
    return [Result.of(row, made[row.what], bench="tables") for name in ("table 5", "table 11", "decode rate")
            for row in published.rows(name)]  # fmt: skip
