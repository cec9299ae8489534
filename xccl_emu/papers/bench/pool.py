"""The memory pool's tables: models that are loaded (Table 2), and caches of prefixes that are reused (Figure 23).

Run: a die's read of a CPU's memory, over UB and over the VPC plane.  All else is arithmetic on that and on what is
printed.
Two things do not follow.  671 GB at 2.5 GB/s take 268 s, not 320 s, nor "over five minutes"; 2,560 and 281 s are
right for 320.  And the bandwidth of the VPC plane explains a third of what UB gains over it.
"""

from xccl_emu.papers.bench import links, published
from xccl_emu.papers.bench.result import Result, total_wrong
from xccl_emu.papers.bench.setting import DEFAULT, Setting
from xccl_emu.timing.fabric import OTHER_CPU
from xccl_emu.timing.topologies import VPC

INSTANCES, MODEL_GB, STORAGE_GB_S = 8, 671, 2.5
TOKENS, TOKEN_BYTES = 16 << 10, 70_272
"""Prompts of a chip, and the cache of one of DeepSeek-R1's tokens."""
CHIPS, DIES = 8, 2
"""Chips of a node share its port to the VPC plane; each die of a chip reads over UB."""
SAVED = {0.5: (861, 0.34), 0.9: (1505, 0.59)}
"""By part of the tokens that is reused: milliseconds and part of the time to first token that are saved."""


def pool(setting: Setting = DEFAULT) -> list[Result]:
    """Return each published row with what follows from a run or from other rows; `Result.note` says which."""
    with setting.stage("pool"):
        ub = links.measure(OTHER_CPU, "read", setting)
        vpc = links.measure(OTHER_CPU, "read", setting, VPC.name)
    made = models(ub.gb_s) | prefixes(ub.gb_s, vpc.gb_s)
    wrong = {"warm start, DRAM to one instance": ub.wrong, VPC_ROW: total_wrong((ub.wrong, vpc.wrong))}
    return [
        Result.of(row, made[row.what], bench="pool", wrong=wrong.get(row.what),
                  note="run" if row.what in wrong else "arithmetic")
        for name in ("table 2", "figure 23") for row in published.rows(name)
    ]  # fmt: skip


def models(read_gb_s: float) -> dict[str, float]:
    """Table 2, in seconds: storage is shared by all instances; one of them in eight finds its model in local DRAM."""
    cold, warm, hit = MODEL_GB / STORAGE_GB_S, MODEL_GB / read_gb_s, 1 / INSTANCES
    return {
        "cold start, storage to one instance": cold,
        "cold start, 8 instances by the pool": cold,
        "cold start, 8 instances without": INSTANCES * cold,
        "cold start, 8 times the printed 320 s": INSTANCES * 320,
        "warm start, DRAM to one instance": warm,
        "models found in local DRAM": 100 * hit,
        "switch of models, local DRAM": hit * warm + (1 - hit) * cold,
        "switch of models, of the printed 5 s and 320 s": float(round(hit * 5 + (1 - hit) * 320)),
        "switch of models, by the pool": warm,
    }


VPC_ROW = "throughput of UB over VPC, 90% reused"


def prefixes(ub_gb_s: float, vpc_gb_s: float) -> dict[str, float]:
    """Figure 23: time to first token falls in proportion to what is reused, by the slope next to both savings.

    Throughput is its inverse.  Over VPC the reused cache takes longer to come by its bytes over the bandwidth.
    """
    slope = sum(part * saved for part, (_, saved) in SAVED.items()) / sum(part * part for part in SAVED)
    none_ms = SAVED[0.5][0] / SAVED[0.5][1]
    left = {part: 1 - slope * part for part in (0.125, *SAVED)}
    moved = 0.9 * TOKENS * TOKEN_BYTES / 1e6
    later_ms = moved / (vpc_gb_s / CHIPS) - moved / (DIES * ub_gb_s)
    return {
        "TTFT without the pool, 861 ms / 34% for 1,505 ms / 59%": none_ms,
        "TTFT over none, 50% reused": 100 * left[0.5],
        "TTFT over none, 90% reused": 100 * left[0.9],
        "throughput, 50% over 12.5% reused": left[0.125] / left[0.5],
        "throughput over none, 90% reused": 1 / left[0.9],
        VPC_ROW: 1 + later_ms / (none_ms * left[0.9]),
    }
