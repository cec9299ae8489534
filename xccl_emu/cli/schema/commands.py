"""The objects that commands print."""

from collections.abc import Mapping

from xccl_emu.bench.traffic import Comparison
from xccl_emu.cli.schema import benches, runs

COMMANDS: Mapping[str, type] = {
    "list": runs.List,
    "list PROTOCOL": runs.Described,
    "run": runs.Run,
    "check": runs.Check,
    "fuzz": runs.Fuzz,
    "trace": runs.Trace,
    "sizes": runs.Sizes,
    "bench": benches.Bench,
    "compare": Comparison,
    "plan": benches.Plan,
    "plan --published": benches.PlanPublished,
    "fit": benches.Fit,
    "litmus": runs.Litmus,
    "litmus --read": runs.LitmusRead,
    "corpus": runs.Corpus,
    "campaign": runs.Campaign,
}
