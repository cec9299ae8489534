"""Published sizes and tables that are arithmetic on inputs: nothing is run, and nothing but a misprint can differ.

[CloudMatrix384] Tables 3 and 4: tokens a second are over TFLOPS, 1,979 in FP8 or 1,504 in INT8.  Table 5: tokens a
second and NPU are batch over TPOT.  5.4.2: MTP brings 1.7 tokens, and a layer takes longer.  Table 11: a node has 7
planes of 16 uplinks, and a logical switch two chips of 48 ports.  [xDeepServe] 7.1: two dies of 60 requests at 50 ms a
token, which is 95 ms over 1.9 tokens.  4.6: a second MTP layer, trained, brings 2.35 tokens a step in place of 2.26.

Sizes are of messages and buffers of the fused operators, and of metadata of send and receive.
"""

from collections.abc import Iterable

from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384, MIB
from xccl_emu.papers.bench import published
from xccl_emu.papers.bench.result import Configuration, Result
from xccl_emu.papers.bench.setting import DEFAULT, Setting
from xccl_emu.protocols.fused.session import FusedConfig, FusedLayout
from xccl_emu.protocols.sendrecv.rings import RingLayout

RANKS, TOKENS = 320, 96


def buffers(setting: Setting = DEFAULT) -> list[Result]:
    """Sizes as the protocols lay them out on the whole pod."""
    spec = CLOUDMATRIX384
    config = FusedConfig(n_ranks=RANKS, local_experts=1, hidden=7168, top_k=9, tokens_max=TOKENS, shared=True)
    layout = FusedLayout(config, Pod(spec))
    fused = [config.message_bytes, config.row_bytes, layout.dispatch.size / MIB, layout.combine.size / MIB]
    ring = RingLayout.fit(spec, 4, None, spec.cores_per_die, 0, 0)
    fields = [spec.meta_bytes, (ring.meta_end - ring.field_offset) // 32]
    shape = {"ranks": RANKS, "tokens": TOKENS, "hidden": 7168}
    return [
        *_beside("buffers", fused, shape),
        *_beside("metadata", fields, {"dies": spec.n_dies, "cores": spec.cores_per_die}),
    ]


def _beside(measurement: str, sizes: Iterable[float], shape: Configuration) -> list[Result]:
    rows = published.rows(measurement)
    return [Result.of(row, size, bench="buffers", configuration=shape) for row, size in zip(rows, sizes, strict=True)]


UPLINKS, PORTS = 7 * 16, 2 * 48
TABLE_5 = {"1K + 1K, 50 ms": (128, 46.8), "2K + 256, 50 ms": (112, 47.4), "4K + 256, 50 ms": (96, 49.4),
           "4K + 256, 30 ms": (24, 24.6), "4K + 256, 15 ms": (8, 14.9)}  # fmt: skip
"""Requests of an NPU, and milliseconds a token."""
TABLE_3 = {"DeepSeek's blog": (4026, 1979), "SGLang": (6288, 1979), "CloudMatrix-Infer": (5655, 1504),
           "DeepSeek's profile": (7839, 1979), "SGLang, perfect EPLB": (7417, 1979),
           "CloudMatrix-Infer, perfect EPLB": (6688, 1504)}  # fmt: skip
TABLE_4 = {"DeepSeek's blog": (1850, 1979), "DeepSeek's profile": (2325, 1979), "SGLang": (2172, 1979),
           "CloudMatrix-Infer": (1943, 1504)}  # fmt: skip
"""Tokens a second of an accelerator, and its TFLOPS."""
TABLE_11 = {384: (48, 56), 352: (44, 56), 288: (36, 42), 256: (32, 42), 192: (24, 28)}
"""By NPUs: nodes and logical switches."""


def tables(setting: Setting = DEFAULT) -> list[Result]:
    """Return each row as the formula gives it; where digits are printed they must come out."""
    made = {f"throughput, {what}": 1000 * batch / tpot for what, (batch, tpot) in TABLE_5.items()}
    made |= {
        f"switches in use, {npus} NPUs": float(round(100 * nodes * UPLINKS / (switches * PORTS)))
        for npus, (nodes, switches) in TABLE_11.items()
    }
    made |= {f"prefill a TFLOPS, {what}": round(rate / tflops, 2) for what, (rate, tflops) in TABLE_3.items()}
    made |= {f"decode a TFLOPS, {what}": round(rate / tflops, 2) for what, (rate, tflops) in TABLE_4.items()}
    longer = 1260 / 874
    made |= {"layer by MTP": float(round(100 * (longer - 1)))}
    made |= {f"throughput by MTP, {end}": 100 * (1.7 / longer - 1) for end in ("least", "most")}
    made |= {"TPOT of 93 ms and 2": float(round((93 + 2) / 1.9)), "a second MTP, trained": 100 * (2.35 / 2.26 - 1)}
    made |= {"a chip at 50 ms": 2 * 60 * 1000 / 50, "288 dies at 50 ms, thousands": 288 * 60 * 1000 / 50 // 1000}
    names = ("table 3", "table 4", "table 5", "table 11", "mtp", "decode rate", "second mtp")
    return [Result.of(row, made[row.what], bench="tables") for name in names for row in published.rows(name)]
