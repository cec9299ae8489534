"""What run does with a case: apart from what bench does, since that loads virtual time and published rows first."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from xccl_emu.bench.memory import available_bytes
from xccl_emu.cli.site_show import SiteResult
from xccl_emu.errors import ConfigError
from xccl_emu.machine.pod import Pod
from xccl_emu.machine.spec import CLOUDMATRIX384
from xccl_emu.machine.state import ORDERS
from xccl_emu.protocol.registry import known, make, on_pod
from xccl_emu.protocol.sequence import Sizes
from xccl_emu.protocol.site import Site, resident_gb
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
    """What a run did; ``wrong`` has the wrong bytes of each buffer that has any."""

    protocol: str
    configuration: dict[str, int | str]
    options: dict[str, Any]
    stats: dict[str, Any] = field(default_factory=dict)
    wrong: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return asdict(self)

    def told(self) -> str:
        """For people."""
        sizes = " ".join(f"{name}={value}" for name, value in self.configuration.items())
        moved = ", ".join(f"{pipe} {nbytes:,}" for pipe, nbytes in self.stats["bytes_by_pipe"].items() if nbytes)
        count = f"{sum(self.stats['instructions'].values()):,} instructions in {self.stats['seconds']:.3f} s"
        lines = [self.protocol, f"  {sizes}", f"  {count}; bytes by {moved or 'no pipe'}"]
        lines += [f"  WRONG: {nbytes} bytes of {name}" for name, nbytes in self.wrong.items()]
        return "\n".join([*lines, f"#wrong {sum(self.wrong.values())}"])


def run(protocol: str, sizes: Sizes, options: RunOptions) -> CaseResult | SiteResult:
    """Run it once, on a pod that it just fits or on the whole one, and hold memory against what must be there."""
    if known(protocol).preset.on_pod is not None:
        return run_on_pod(protocol, sizes, options)
    case = make(protocol, **sizes)
    trial = case.build(options.order)
    trial.pod.policy = options.policy
    result = CaseResult(protocol, dict(case.configuration), {"order": options.order, "policy": options.policy})
    result.stats = asdict(trial.pod.run())
    result.wrong = trial.wrong_bytes()
    return result


def run_on_pod(protocol: str, sizes: Sizes, options: RunOptions) -> SiteResult:
    """Run it on the whole pod, call after call; sizes that are not given may be smaller, so as to fit the memory."""
    started, case = time.perf_counter(), on_pod(protocol, **sizes)
    pod = Pod(CLOUDMATRIX384, order=options.order, policy=options.policy, seed=getattr(case, "seed", 0))
    site = Site(pod, options.stages, available_bytes())
    case, note = case.for_pod(sizes, site)
    if note:
        options.say(note)
    case.carry_out(site)
    chosen = {each.name: getattr(case, each.name) for each in case.sizes()}
    told = {"order": options.order, "policy": options.policy, **chosen}
    return SiteResult(protocol, site, told, time.perf_counter() - started, resident_gb())
