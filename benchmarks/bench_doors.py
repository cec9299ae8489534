"""What calls of a script cost: DeepEP's low-latency calls at the sizes of its own test, against `np.copyto`.

Ranks, tokens, hidden and choices are taken from `test_low_latency.py`; experts are fewer, since blocks that stay empty
are not touched.  Counted is each byte that an instruction copies, as in the other benchmarks.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from bench_dispatch import TimedPod
from harness import Report, Yardstick, copied, in_turns, parser, stopwatch

from xccl_emu.protocol import tight_pod
from xccl_emu.protocols.deepep.calls import LowLatency
from xccl_emu.protocols.deepep.session import DeepEpConfig
from xccl_emu.timing.run import VirtualTime

RANKS, TOKENS, HIDDEN, TOP_K, LOCAL = 8, 128, 7168, 8, 2
POLICIES: dict[str, Callable[[], Any]] = {"round-robin": lambda: "round-robin", "virtual time": VirtualTime}


class Calls:
    """A group with its inputs: a dispatch and a combine of BF16, or of FP8 there."""

    def __init__(self, policy: Any, fp8: bool, tokens: int) -> None:
        rng = np.random.default_rng(0)
        config = DeepEpConfig(
            n_ranks=RANKS, local_experts=LOCAL, hidden=HIDDEN, top_k=TOP_K, tokens_max=tokens, cores=4,
            quantized=fp8, quantizer="fp8",
        )  # fmt: skip
        spec = tight_pod(RANKS, 4, LowLatency.lays_out.ub_bytes(config), lambda pod: LowLatency(pod, config).layout)
        self.pod = TimedPod(spec, policy=policy)
        self.group = LowLatency(self.pod, config)
        shape = (tokens, HIDDEN)
        self.tokens = [rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16) for _ in range(RANKS)]
        scores = rng.random((RANKS, tokens, RANKS * LOCAL))
        self.topk = [*np.argsort(scores, 2)[:, :, :TOP_K].astype(np.int32)]
        self.weights = [np.full((tokens, TOP_K), 1 / TOP_K, np.float32)] * RANKS
        self.run, self.bytes = 0.0, 0

    def layer(self) -> float:
        """CPU seconds of both calls, checks and what the host copies with them."""
        with stopwatch() as taken:
            handle, received = self.group.dispatch_whole(self.tokens, self.topk)
            self.run, self.bytes = self.pod.cpu, copied(self.group.stats["dispatch"])
        for rank, each in enumerate(received):
            self.group.expert_output(rank, handle.place)[:] = each.source[:, None]
        with stopwatch() as more:
            self.group.combine_whole(handle, self.weights)
            self.run, self.bytes = self.run + self.pod.cpu, self.bytes + copied(self.group.stats["combine"])
        return taken["cpu"] + more["cpu"]

    def runs(self) -> float:
        """CPU seconds of the kernels of both calls."""
        self.layer()
        return self.run


def measure(report: Report, repeats: int, tokens: int) -> None:
    """Both calls by policy and type, in turns with a copy of as many bytes."""
    yardstick = Yardstick()
    yardstick.seconds(yardstick.source.nbytes)  # touches its pages
    for policy, made in POLICIES.items():
        for fp8 in (False, True):
            calls = Calls(made(), fp8, tokens)
            calls.layer()  # compiles, and touches the pages
            best, copy = in_turns(repeats, calls.runs, partial(yardstick.seconds, calls.bytes))
            what = f"{'FP8 there, BF16 back' if fp8 else 'BF16'}, {policy}"
            if policy == "round-robin" and not fp8:
                report.at_least(f"{what}: of np.copyto", copy / best, 0.3)
            else:
                report.plain(f"{what}: of np.copyto", copy / best)
            whole = min(calls.layer() for _ in range(repeats))
            report.plain(f"{what}: kernels", best * 1e3, "ms")
            report.plain(f"{what}: the calls, checks and copies of the host with them", whole * 1e3, "ms")
            report.plain(f"{what}: copied", calls.bytes / 1e9, "GB")


def main() -> None:
    """Measure, and print the table."""
    command = parser(__doc__)
    command.add_argument("--repeats", type=int, default=3, help="counts; the best one is reported")
    command.add_argument("--tokens", type=int, default=TOKENS, help="tokens of a rank")
    options = command.parse_args()
    report = Report(f"DeepEP's calls: {RANKS} ranks, {options.tokens} tokens, hidden {HIDDEN}, top-{TOP_K}")
    measure(report, options.repeats, options.tokens)
    report.finish(options.json)


if __name__ == "__main__":
    main()
