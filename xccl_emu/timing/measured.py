"""How long a protocol takes in the model of time, and on what: for authors of protocols."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from xccl_emu.check.trial import Checkable
from xccl_emu.machine.stats import PIPE_NAMES
from xccl_emu.timing.costs import Costs
from xccl_emu.timing.critical import PathPart, critical_path
from xccl_emu.timing.fabric import Fabric
from xccl_emu.timing.run import Timing, VirtualTime
from xccl_emu.timing.topologies import topology

WAITS = ("polling", "quiet", "barrier", "contention")
"""What of `timing.critical.RESOURCES` is waiting."""
WORKS = ("issue", "vector", "wire")
"""What of them a pipe does."""


@dataclass(frozen=True)
class Measured:
    """One run of a case in virtual time."""

    latency_us: float
    """From the start until the last core has returned."""
    wrong_bytes: int
    """Bytes that are not what the case expects."""
    payload_bytes: int | None
    """What the case says that it moves."""
    bus_factor: float
    timing: Timing
    """With the log of all actions, for `xccl_emu.timing.trace.save_trace`."""

    @property
    def algbw_gb_s(self) -> float | None:
        """Payload over latency, as nccl-tests define it; None for a case without a payload."""
        return None if self.payload_bytes is None else self.payload_bytes / self.latency_us / 1000

    @property
    def busbw_gb_s(self) -> float | None:
        """Return the bandwidth times the factor of the case."""
        return None if self.algbw_gb_s is None else self.algbw_gb_s * self.bus_factor

    @property
    def path(self) -> list[PathPart]:
        """Return what the latency is made of: works and waits, one after the other, without gaps."""
        return critical_path(self.timing)

    @property
    def by_resource_us(self) -> dict[str, float]:
        """Microseconds of the path by what they are spent on (`timing.critical.RESOURCES`), the most first."""
        return sums((part.resource, part) for part in self.path)

    @property
    def by_pipe_us(self) -> dict[str, float]:
        """Return the time by pipe, without waits and what the fabric takes."""
        return sums((PIPE_NAMES[part.engine], part) for part in self.path if part.resource in WORKS)

    @property
    def by_wait_us(self) -> dict[str, float]:
        """Waits of the path by the name (`sync=`) or the line of the request that waits."""
        return sums((site_name(self.timing, part), part) for part in self.path if part.resource in WAITS)


def site_name(timing: Timing, part: PathPart) -> str:
    """The name (`sync=`) or the line of the request of a part, and its kernel."""
    kernel = timing.kernels[part.core]
    site = kernel.sites[part.site]
    return f"{site.sync or f'line {site.line}'} ({kernel.name})"


def sums(named: Iterable[tuple[str, PathPart]]) -> dict[str, float]:
    """Microseconds by name, the most first."""
    total: dict[str, float] = defaultdict(float)
    for name, part in named:
        total[name] += part.end_us - part.start_us
    return dict(sorted(total.items(), key=lambda one: -one[1]))


def measure(case: Checkable, *, fabric: str | Fabric = "cloudmatrix384", costs: Costs | None = None) -> Measured:
    """Run a case once in virtual time, every action logged.

    fabric: a name (`cloudmatrix384`, `atlas-800t-a2`, `h20`) or one of your own. costs: of what is on the die.

    Raises ConfigError for an unknown fabric, RunError and its kinds for a run that fails.
    """
    trial = case.build("sc")
    policy = VirtualTime(topology(fabric) if isinstance(fabric, str) else fabric, costs, log=True)
    trial.pod.policy = policy
    trial.pod.run()
    return Measured(
        policy.timing.latency_us, sum(trial.wrong_bytes().values()), getattr(case, "payload_bytes", None),
        getattr(case, "bus_factor", 1.0), policy.timing,
    )  # fmt: skip
