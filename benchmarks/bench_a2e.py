"""A2E and E2A with the domains of the whole pod: bytes copied against np.copyto, both paths, and plain pull."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
from harness import Report, Yardstick, copied, parser, stopwatch

from xccl_emu import routing
from xccl_emu.kernels.experts.parameters import Buffers
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384, KIB, small_pod
from xccl_emu.machine.stats import RunStats
from xccl_emu.protocol.pod_run import resident_gb
from xccl_emu.protocols.a2e.calls import AttentionExperts
from xccl_emu.protocols.a2e.case import bytes_needed
from xccl_emu.protocols.a2e.pull import A2EPull
from xccl_emu.protocols.a2e.session import A2E, A2EConfig, Call, Calls
from xccl_emu.protocols.experts import layout as app
from xccl_emu.protocols.experts.data import draw_tokens
from xccl_emu.protocols.experts.group import DUMMY

EXPERTS, TOP_K, TOKENS, HIDDEN = 256, 8, 96, 7168


@dataclass
class Sample:
    """The results of one group; a launch is one call of each domain, and the first launch is left out."""

    run: RunStats
    cpu: list[float] = field(default_factory=list)
    """CPU seconds of each launch, the run alone."""
    expert: RunStats | None = None
    expert_cpu: list[float] = field(default_factory=list)
    """CPU seconds of the dummy expert by itself, on the rows of one call."""
    copyto: list[float] = field(default_factory=list)
    """CPU seconds of np.copyto for the bytes of a launch, timed after each of them."""
    calls: int = 1

    def of_copyto(self, with_expert: bool) -> float:
        """Bytes copied a second, of what np.copyto reaches; without the expert what it takes by itself is taken off."""
        nbytes, seconds = copied(self.run), min(self.cpu)
        yardstick = min(self.copyto) / nbytes
        if not with_expert and self.expert is not None:
            nbytes -= self.calls * copied(self.expert)
            seconds -= self.calls * min(self.expert_cpu)
        return nbytes / seconds * yardstick


def config_of(attention: int, domains: int, local: int, tokens: int, hidden: int, path: str, cores: int) -> A2EConfig:
    """Attention and expert dies in the proportion of the whole pod."""
    experts = attention * 288 // 160
    return A2EConfig(
        domains, attention, experts, local, hidden=hidden, top_k=TOP_K + 1, tokens_max=tokens, shared=True, path=path,
        depth=1, cores=cores, a2e_cores=cores, compute_cores=cores, e2a_cores=cores,
    )  # fmt: skip


def make_calls(c: A2EConfig, placement: routing.Placement) -> list[Call]:
    """A call of each domain, with the same tokens."""
    rng = np.random.default_rng(0)
    tokens = [*draw_tokens(c.n_attention, c.tokens_max, c.hidden, "bf16", 0)]
    calls = []
    for _ in range(c.n_domains):
        loads = routing.skewed_loads(EXPERTS, 0)
        drawn = routing.draw_routing(loads, c.n_attention, c.tokens_max, TOP_K, rng, "generated")
        routed = routing.place_choices(drawn, placement)
        calls.append(Call(tokens, routed.topk, routed.weights))
    return calls


def run_expert(owner: AttentionExperts, calls: Calls) -> RunStats:
    """The dummy expert on the rows that the last call has left."""
    c, pod = owner.config, owner.pod
    for die, buffers in enumerate(owner.experts):
        its = {name: buffers[name] for name in app.touched_by(DUMMY.kernel)}
        its["counts"] = app.part_of(its, (calls.n_calls - 1) % (c.depth + 1), c.depth + 1)["counts"]
        addresses = {name: buffer.address for name, buffer in its.items()}
        shape = c.group(c.n_attention, c.compute_cores, pod.spec.die_bytes)
        cores = range(c.compute_cores)
        args = {"core": cores, "c": shape, "b": Buffers(**addresses)}
        pod.launch(DUMMY.kernel, owner.first_die + die, cores, args)
    return pod.run()


def measure(owner: AttentionExperts, given: Sequence[Call], repeats: int, yardstick: Yardstick) -> Sample:
    """A launch that touches the memory, and ``repeats`` more."""
    mark, sample = owner.pod.mark_app(), None
    for number in range(repeats + 1):
        owner.pod.release_app(mark)
        calls = Calls(owner, given)
        calls.launch()
        with stopwatch() as taken:
            owner.run_launched()
        sample = sample or Sample(owner.stats[owner.name], calls=len(given))
        if number:
            sample.cpu.append(taken["cpu"])
            sample.copyto.append(yardstick.seconds(copied(sample.run)))
        with stopwatch() as taken:
            sample.expert = run_expert(owner, calls)
        sample.expert_cpu.append(taken["cpu"])
    assert sample is not None
    return sample


def report_sample(report: Report, what: str, sample: Sample, least: float | None) -> None:
    """Report how much, how long, and how fast."""
    report.plain(f"{what}: copied", copied(sample.run) / 1e9, "GB")
    report.plain(f"{what}: the run alone, CPU", min(sample.cpu), "s")
    report.plain(f"{what}: instructions", sum(sample.run.instructions.values()) / 1e6, "million")
    report.plain(f"{what}: bytes copied a second, of np.copyto", sample.of_copyto(True))
    ratio, name = sample.of_copyto(False), f"{what}: the same without the dummy expert"
    report.plain(name, ratio) if least is None else report.at_least(name, ratio, least)


def main() -> None:
    """Measure, and print the table."""
    command = parser(__doc__)
    command.add_argument("--attention", type=int, nargs="+", default=[20, 160], help="attention dies of a domain")
    command.add_argument("--domains", type=int, default=3, help="domains")
    command.add_argument("--cores", type=int, default=2, help="cores of an attention die and a stream")
    command.add_argument("--repeats", type=int, default=2, help="later launches; the best one counts")
    options = command.parse_args()
    report = Report(f"A2E and E2A: {options.domains} domains, {TOKENS} tokens a die, hidden {HIDDEN}")
    tiny = A2EConfig(1, 1, 2, hidden=32, top_k=1, tokens_max=1, depth=1)
    token, weight = np.zeros((1, 32), ml_dtypes.bfloat16), np.ones((1, 1), np.float32)
    for kind in (A2E, A2EPull):  # compiles
        kind(Pod(small_pod(3, 3, ub_bytes=64 * KIB)), tiny).run([Call([token], [np.zeros((1, 1), int)], [weight])])
    yardstick = Yardstick()
    for attention in sorted(options.attention):
        experts = attention * 288 // 160
        placement = routing.place_experts(experts, EXPERTS)
        shape = (placement.local_experts, TOKENS, HIDDEN)
        for path in ("mtu", "urma"):
            c = config_of(attention, options.domains, *shape, path, options.cores)
            what = f"{c.n_dies} dies, {path}"
            if not report.fits(what, bytes_needed(c, options.domains)):
                continue
            owner = A2E(Pod(CLOUDMATRIX384), c)
            sample = measure(owner, make_calls(c, placement), options.repeats, yardstick)
            report_sample(report, what, sample, 0.4 if attention == max(options.attention) else None)
            del owner
        if attention == min(options.attention):
            c = config_of(attention, 1, *shape, "mtu", options.cores)
            pulled = measure(A2EPull(Pod(CLOUDMATRIX384), c), make_calls(c, placement), options.repeats, yardstick)
            report_sample(report, f"{c.n_dies} dies, plain pull, one domain", pulled, None)
    report.plain("resident, without np.copyto's arrays", resident_gb() - yardstick.gigabytes, "GB")
    report.finish(options.json)


if __name__ == "__main__":
    main()
