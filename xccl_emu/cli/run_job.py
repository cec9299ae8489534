"""What run does with a case: apart from what bench does, since that loads virtual time and published rows first."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from xccl_emu.cli.run_show import PodResult
from xccl_emu.errors import ConfigError
from xccl_emu.machine.free_memory import available_bytes
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384
from xccl_emu.machine.state import ORDERS
from xccl_emu.protocol.pod_run import PodRun, resident_gb
from xccl_emu.protocol.registry import known, make, on_pod
from xccl_emu.protocol.sequence import Sizes
from xccl_emu.stage import Stage, silent

POLICIES = ("round-robin", "random")


@dataclass(frozen=True)
class RunOptions:
    """How ``run`` runs a case."""

    order: str = "sc"
    policy: str = "round-robin"
    stages: Stage = silent
    say: Callable[[str], None] = lambda note: None
    """Called with a note before the run."""

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ConfigError(f"--order {self.order}: must be one of {', '.join(ORDERS)}")
        if self.policy not in POLICIES:
            raise ConfigError(f"--policy {self.policy}: must be one of {', '.join(POLICIES)}")


@dataclass
class CaseResult:
    """What a run did, how long it took in wall seconds, and how much memory."""

    protocol: str
    configuration: dict[str, int | str]
    options: RunOptions
    stats: dict[str, Any]
    wrong_bytes: dict[str, int]
    """Wrong bytes of each buffer that has any."""
    seconds: float

    @property
    def wrong(self) -> int:
        """Wrong bytes of all buffers."""
        return sum(self.wrong_bytes.values())

    def to_json(self) -> dict[str, Any]:
        """Return it as ``--json`` prints it."""
        return {
            "protocol": self.protocol, "configuration": self.configuration, "order": self.options.order,
            "policy": self.options.policy, "wrong": self.wrong, "wrong_bytes": self.wrong_bytes,
            "rounds": [{self.protocol: self.stats}], "facts": {}, "stage_seconds": {}, "seconds": self.seconds,
            "resident_gb": resident_gb(),
        }  # fmt: skip

    def render(self) -> str:
        """Return it as text for people."""
        sizes = " ".join(f"{name}={value}" for name, value in self.configuration.items())
        moved = ", ".join(f"{pipe} {nbytes:,}" for pipe, nbytes in self.stats["bytes_by_pipe"].items() if nbytes)
        count = f"{sum(self.stats['instructions'].values()):,} instructions in {self.stats['seconds']:.3f} s"
        lines = [self.protocol, f"  {sizes}", f"  {count}; bytes by {moved or 'no pipe'}"]
        lines += [f"  WRONG: {nbytes} bytes of {name}" for name, nbytes in self.wrong_bytes.items()]
        return "\n".join([*lines, f"#wrong {self.wrong}"])


def run(protocol: str, sizes: Sizes, options: RunOptions) -> CaseResult | PodResult:
    """Run it once, on a pod that it just fits or on the whole one, and hold memory against what must be there."""
    if known(protocol).preset.on_pod is not None:
        return run_on_pod(protocol, sizes, options)
    started, case = time.perf_counter(), make(protocol, **sizes)
    trial = case.build(options.order)
    trial.pod.policy = options.policy
    stats, wrong = asdict(trial.pod.run()), trial.wrong_bytes()
    return CaseResult(protocol, dict(case.configuration), options, stats, wrong, time.perf_counter() - started)


def run_on_pod(protocol: str, sizes: Sizes, options: RunOptions) -> PodResult:
    """Run it on the whole pod, call after call; sizes that are not given may be smaller, so as to fit the memory."""
    started, case = time.perf_counter(), on_pod(protocol, **sizes)
    pod = Pod(CLOUDMATRIX384, order=options.order, policy=options.policy, seed=getattr(case, "seed", 0))
    pod_run = PodRun(pod, options.stages, available_bytes())
    case, note = case.fit_to_memory(sizes, pod_run)
    if note:
        options.say(note)
    case.run_on_pod(pod_run)
    chosen = {each.name: getattr(case, each.name) for each in case.sizes()}
    return PodResult(protocol, pod_run, chosen, time.perf_counter() - started, resident_gb())
